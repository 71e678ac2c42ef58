//! As-of joins of sides in order of time: the last row of each key of the other side is held, and nothing is sorted.

use std::io::{Read, Write};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::{Scope, ScopedJoinHandle};

use arrow::array::{
    Array, ArrayRef, AsArray, BinaryArray, Int64Array, RecordBatch, new_null_array,
};
use arrow::compute::{CastOptions, cast, cast_with_options, interleave};
use arrow::datatypes::{DataType, Field, Int64Type, Schema, SchemaRef};
use arrow::ipc::reader::StreamReader;
use arrow::ipc::writer::StreamWriter;
use forebay_model::{AdmittedMemory, Fault, Result, catch_panic, codes, picked_text_bytes};
use forebay_plan::{
    AdmitBytes, AsOf, JoinBy, JoinOp, MatchDirection, NodeFlow, OpId, PlanOp, SharedSort,
    base_column, span_extents,
};
use forebay_threads::{poisoned_lock, start_scoped};
use hashbrown::HashTable;

use crate::admission::admission;
use crate::as_of_join::AsOfOperator;
use crate::external_sort::compact;
use crate::join_keys::{EncodedKeys, JoinKeys};
use crate::materialize::{FlowSpans, QUEUE_BATCHES};
use crate::sorted_file::SortedFile;
use crate::sorted_operator::SortedOperator;
use crate::sorted_pass::SortedPass;

/// Batches of the other side that are held before those rows that count are copied into one.
const BATCHES_MAX: usize = 64;

/// Approximate bytes of a held key in addition to the key itself.
const ENTRY_BYTES: usize = 64;

/// The share of the engine's memory that held rows may fill.
pub const HELD_SHARE: usize = 4;

/// Columns of held rows that are written.
const KEY: &str = "__key";
const TIME: &str = "__time";

/// Held rows of a batch that is written.
const WRITTEN_ROWS: usize = 8192;

impl SortedPass<'_> {
    /// The outputs of a backward as-of join whose sides come in order of time. `None` for other operations, where a row
    /// comes out of order, and where the held rows outgrow their memory: the sides are then sorted.
    pub fn merge_by_time(&self, shared_sort: &SharedSort) -> Result<Option<SortedFile>> {
        let op = shared_sort.stand;
        let PlanOp::Join(join) = &self.gather.context.program.bound.ops[op].op else {
            return Ok(None);
        };
        let JoinBy::Time(as_of) = &join.by else {
            return Ok(None);
        };
        if !self.may_merge(op, join, as_of) {
            return Ok(None);
        }
        let sides = self.sort_inputs(shared_sort)?;
        let [own_side, other_side] = sides.as_slice() else {
            return Ok(None);
        };
        if !self.may_follow(own_side.flow, &as_of.time)?
            || !self.may_follow(other_side.flow, &as_of.other_time)?
        {
            return Ok(None);
        }
        let own_spans = self.gather.spans(own_side.flow, &own_side.columns)?;
        let other_spans = self.gather.spans(other_side.flow, &other_side.columns)?;
        let keys = [own_side.keys.as_slice(), other_side.keys.as_slice()];
        let schemas = [&own_spans.schema, &other_spans.schema];
        let mut merge = TimeMerge::new(join, as_of, keys, schemas)?;
        merge.held_bytes_max = self.gather.context.memory.engine_bytes() / HELD_SHARE;
        merge.admit = Some(admission(self.gather.context.memory));
        let schema = AsOfOperator::new(join, as_of).schema().clone();
        let engine_context = self.gather.engine_context()?;
        let restore_order =
            self.restore_order(op, engine_context, schema.clone(), self.flow(shared_sort)?)?;
        std::thread::scope(|scope| {
            // The queues are bounded: a side that is ahead in time waits instead of filling the
            // memory.
            let (own_sender, own_rows) = sync_channel::<RecordBatch>(QUEUE_BATCHES);
            let (other_sender, other_rows) = sync_channel::<RecordBatch>(QUEUE_BATCHES);
            let readers = [
                self.read_side(scope, own_spans, own_sender)?,
                self.read_side(scope, other_spans, other_sender)?,
            ];
            let mut outputs = MergedOutputs {
                merge,
                schema,
                own_rows,
                other_rows,
                unwritten: Vec::new().into_iter(),
                is_finished: false,
                gives_up: false,
            };
            let written = restore_order.write_all(&mut outputs, self.keeps_rows, self.stop);
            let gives_up = outputs.gives_up;
            // Readers end once their rows are no longer received.
            drop(outputs);
            for reader in readers {
                reader.join().unwrap_or_else(|_| Err(poisoned_lock()))?;
            }
            let written = written?;
            Ok((!gives_up).then_some(written))
        })
    }

    /// True for backward joins with keys of which no row has come out of order.
    fn may_merge(&self, op: OpId, join: &JoinOp, as_of: &AsOf) -> bool {
        let is_backward = as_of.direction == MatchDirection::Backward && as_of.known_at.is_none();
        let is_in_order = !self.gather.context.state.out_of_order.contains(&op);
        is_backward && is_in_order && !join.keys.is_empty()
    }

    /// Starts a thread that sends the rows of a side until they are no longer received.
    fn read_side<'scope>(
        &'scope self,
        scope: &'scope Scope<'scope, '_>,
        spans: FlowSpans,
        sender: SyncSender<RecordBatch>,
    ) -> Result<ScopedJoinHandle<'scope, Result<()>>> {
        let gather = &self.gather;
        start_scoped(scope, move || {
            catch_panic(|| {
                let all_spans = 0..spans.len();
                gather.read(&spans, all_spans, &mut |batch| sender.send(batch).is_ok())
            })
        })
    }

    /// True if the rows of a flow are likely in order of time. If extents of spans do not decide
    /// it, the times are read first, since an abandoned join costs more.
    fn may_follow(&self, flow: &NodeFlow, time: &str) -> Result<bool> {
        let [stream] = flow.streams.as_slice() else {
            return Ok(false);
        };
        let Some(column) = base_column(&self.gather.context.program.bound, stream, time) else {
            return Ok(false);
        };
        let dataset = &self.gather.context.input(stream.base)?.dataset;
        match span_extents(dataset, &column) {
            Some(extents) if extents.len() > 1 => {
                Ok(extents.windows(2).all(|pair| pair[0].max <= pair[1].min))
            }
            _ => self.follows_in(flow, time),
        }
    }

    /// True if the times of a flow do not decrease.
    fn follows_in(&self, flow: &NodeFlow, time: &str) -> Result<bool> {
        let spans = self.gather.spans(flow, &[time.to_owned()])?;
        let mut seen = i64::MIN;
        let mut is_ordered = true;
        self.gather.read(&spans, 0..spans.len(), &mut |batch| {
            let ticks = cast(batch.column(0), &DataType::Int64);
            is_ordered = ticks.is_ok_and(|ticks| follows(ticks.as_primitive(), &mut seen));
            is_ordered
        })?;
        Ok(is_ordered)
    }
}

/// The outputs of a join whose sides are read in order of time, with the positions of their rows.
struct MergedOutputs {
    merge: TimeMerge,
    schema: SchemaRef,
    own_rows: Receiver<RecordBatch>,
    other_rows: Receiver<RecordBatch>,
    unwritten: std::vec::IntoIter<RecordBatch>,
    is_finished: bool,
    /// True after a row out of order, or too many held rows: the caller sorts both sides (decisions/time-merge.md).
    gives_up: bool,
}

impl MergedOutputs {
    /// Joins the next batch; `None` if a row is out of order, or if the held rows outgrow their memory.
    fn join_next(&mut self) -> Result<Option<Vec<RecordBatch>>> {
        let other_rows = &self.other_rows;
        let Ok(batch) = self.own_rows.recv() else {
            self.is_finished = true;
            return self.merge.finish(&mut || Ok(other_rows.recv().ok()));
        };
        let joined = self
            .merge
            .join(&batch, &mut || Ok(other_rows.recv().ok()))?;
        match joined {
            Some(outputs) => with_positions(outputs, &batch, &self.schema).map(Some),
            None => Ok(None),
        }
    }
}

impl Iterator for MergedOutputs {
    type Item = Result<RecordBatch>;

    fn next(&mut self) -> Option<Result<RecordBatch>> {
        loop {
            if let Some(output) = self.unwritten.next() {
                return Some(Ok(output));
            }
            if self.is_finished || self.gives_up {
                return None;
            }
            match self.join_next() {
                Ok(Some(outputs)) => self.unwritten = outputs.into_iter(),
                Ok(None) => self.gives_up = true,
                Err(fault) => return Some(Err(fault)),
            }
        }
    }
}

/// Adds the positions of the rows of a batch to their outputs.
fn with_positions(
    outputs: Vec<RecordBatch>,
    batch: &RecordBatch,
    schema: &SchemaRef,
) -> Result<Vec<RecordBatch>> {
    let positions = batch.column(batch.num_columns() - 1);
    let mut offset = 0;
    let mut positioned = Vec::with_capacity(outputs.len());
    for output in outputs {
        let rows = output.num_rows();
        let mut columns = output.columns().to_vec();
        columns.push(positions.slice(offset, rows));
        offset += rows;
        positioned.push(RecordBatch::try_new(schema.clone(), columns)?);
    }
    Ok(positioned)
}

/// The last row of each key that was seen.
#[derive(Clone, Default)]
struct LatestRows {
    table: HashTable<u32>,
    /// The bytes of all keys, and where each ends.
    keys: Vec<u8>,
    ends: Vec<usize>,
    hashes: Vec<u64>,
    rows: Vec<LatestRow>,
    /// The batches that hold them: the columns that the join takes.
    batches: Vec<Vec<ArrayRef>>,
    batch_bytes: usize,
}

#[derive(Clone, Copy)]
struct LatestRow {
    batch: u32,
    row: u32,
    time: i64,
}

impl LatestRows {
    fn entry(&self, hash: u64, key: &[u8]) -> Option<u32> {
        let entry = self.table.find(hash, |entry| {
            let entry = *entry as usize;
            self.hashes[entry] == hash && self.key(entry) == key
        });
        entry.copied()
    }

    fn find(&self, keys: &EncodedKeys, row: usize) -> Option<LatestRow> {
        if !keys.is_valid(row) {
            return None;
        }
        let entry = self.entry(keys.hashes[row], keys.rows.row(row).as_ref())?;
        Some(self.rows[entry as usize])
    }

    fn set(&mut self, keys: &EncodedKeys, row: usize, latest: LatestRow) {
        self.set_key(keys.hashes[row], keys.rows.row(row).as_ref(), latest);
    }

    fn set_key(&mut self, hash: u64, key: &[u8], latest: LatestRow) {
        if let Some(entry) = self.entry(hash, key) {
            self.rows[entry as usize] = latest;
            return;
        }
        let entry = self.rows.len() as u32;
        self.keys.extend_from_slice(key);
        self.ends.push(self.keys.len());
        self.hashes.push(hash);
        self.rows.push(latest);
        let hashes = &self.hashes;
        self.table
            .insert_unique(hash, entry, |entry| hashes[*entry as usize]);
    }

    /// Appends a batch; returns its number.
    fn push(&mut self, columns: Vec<ArrayRef>) -> u32 {
        for column in &columns {
            self.batch_bytes += column.get_array_memory_size();
        }
        self.batches.push(columns);
        self.batches.len() as u32 - 1
    }

    /// Columns of some of the rows, with nulls where there is none. `admit` is asked for their texts.
    fn take(
        &self,
        schema: &Schema,
        picks: &[Option<LatestRow>],
        admit: Option<&AdmitBytes>,
    ) -> Result<Vec<ArrayRef>> {
        let mut positions = Vec::with_capacity(picks.len());
        for pick in picks {
            positions.push(match pick {
                Some(latest) => (latest.batch as usize + 1, latest.row as usize),
                // The first source of each column holds a null.
                None => (0, 0),
            });
        }
        let mut columns = Vec::with_capacity(schema.fields().len());
        for (index, field) in schema.fields().iter().enumerate() {
            let null = new_null_array(field.data_type(), 1);
            let mut sources: Vec<&dyn Array> = vec![null.as_ref()];
            for batch in &self.batches {
                sources.push(batch[index].as_ref());
            }
            // Reserved until the column is made.
            let _admitted = match admit {
                Some(admit) => admit(picked_text_bytes(&sources, &positions))?,
                None => AdmittedMemory::default(),
            };
            columns.push(interleave(&sources, &positions)?);
        }
        Ok(columns)
    }

    /// Copies the rows that count into one batch and frees the others.
    fn compact(&mut self, schema: &Schema) -> Result<()> {
        let picks: Vec<Option<LatestRow>> = self.rows.iter().copied().map(Some).collect();
        // Each row is copied once: that is not more than what is held.
        let columns = self.take(schema, &picks, None)?;
        self.batches.clear();
        self.batch_bytes = 0;
        self.push(columns);
        for (row, latest) in self.rows.iter_mut().enumerate() {
            latest.batch = 0;
            latest.row = row as u32;
        }
        Ok(())
    }

    fn bytes(&self) -> usize {
        self.batch_bytes + self.keys.capacity() + self.rows.len() * ENTRY_BYTES
    }

    fn key(&self, entry: usize) -> &[u8] {
        let start = match entry.checked_sub(1) {
            Some(previous) => self.ends[previous],
            None => 0,
        };
        &self.keys[start..self.ends[entry]]
    }

    /// Writes the rows from a time on, in the order of their keys: batches of keys, times and columns.
    fn encode(&self, schema: &Schema, from: i64, out: &mut dyn Write) -> Result<()> {
        let mut entries: Vec<usize> = Vec::new();
        for (entry, latest) in self.rows.iter().enumerate() {
            if latest.time >= from {
                entries.push(entry);
            }
        }
        entries.sort_unstable_by(|a, b| self.key(*a).cmp(self.key(*b)));
        let mut fields = vec![
            Arc::new(Field::new(KEY, DataType::Binary, false)),
            Arc::new(Field::new(TIME, DataType::Int64, false)),
        ];
        fields.extend(schema.fields().iter().cloned());
        let written = Arc::new(Schema::new(fields));
        let mut writer = StreamWriter::try_new(out, &written)?;
        for entries in entries.chunks(WRITTEN_ROWS) {
            let columns = self.encoded_columns(schema, entries)?;
            writer.write(&RecordBatch::try_new(written.clone(), columns)?)?;
        }
        Ok(writer.finish()?)
    }

    /// The keys, the times and the columns of some entries.
    fn encoded_columns(&self, schema: &Schema, entries: &[usize]) -> Result<Vec<ArrayRef>> {
        let mut times = Vec::with_capacity(entries.len());
        let mut picks = Vec::with_capacity(entries.len());
        for entry in entries {
            let latest = self.rows[*entry];
            times.push(latest.time);
            picks.push(Some(latest));
        }
        let keys = BinaryArray::from_iter_values(entries.iter().map(|entry| self.key(*entry)));
        let mut columns: Vec<ArrayRef> = vec![Arc::new(keys), Arc::new(Int64Array::from(times))];
        columns.extend(self.take(schema, &picks, None)?);
        Ok(columns)
    }

    /// Reads the rows that [`LatestRows::encode`] wrote.
    fn decode(input: &mut dyn Read) -> Result<LatestRows> {
        let mut latest = LatestRows::default();
        for batch in StreamReader::try_new(input, None)? {
            let batch = batch?;
            let Some(keys) = batch.column(0).as_binary_opt::<i32>() else {
                return Err(damaged_state());
            };
            let Some(times) = batch.column(1).as_primitive_opt::<Int64Type>() else {
                return Err(damaged_state());
            };
            let number = latest.push(batch.columns()[2..].to_vec());
            for row in 0..batch.num_rows() {
                let key = keys.value(row);
                let latest_row = LatestRow {
                    batch: number,
                    row: row as u32,
                    time: times.value(row),
                };
                latest.set_key(JoinKeys::hash(key), key, latest_row);
            }
        }
        Ok(latest)
    }
}

fn damaged_state() -> Fault {
    Fault::new(codes::CORRUPT, "the state of a join cannot be read")
}

/// Rows of the other side, of which the first ones have been seen.
struct OtherRows {
    keys: EncodedKeys,
    times: Int64Array,
    /// The number of their batch among those that are held.
    batch: u32,
    at: usize,
}

/// The row that each row of a batch meets, and the distance between them.
#[derive(Default)]
struct Matches {
    rows: Vec<Option<LatestRow>>,
    distances: Vec<Option<i64>>,
}

impl Matches {
    fn push(&mut self, row_match: Option<(LatestRow, i64)>) {
        let (latest, distance) = row_match.unzip();
        self.rows.push(latest);
        self.distances.push(distance);
    }
}

/// Result of advancing over the other side.
enum Advance {
    /// Advanced as far as a row needs.
    Done,
    OutOfOrder,
    /// Batches have to be freed before the next one.
    Full,
}

/// Returns the next rows of the other side.
pub type NextBatchFn<'f> = &'f mut dyn FnMut() -> Result<Option<RecordBatch>>;

/// Joins batches of rows in order of time with the rows of the other side.
pub struct TimeMerge {
    /// The distance, then the columns of the join.
    schema: SchemaRef,
    /// The columns of the join.
    columns: SchemaRef,
    /// The places of these columns on the other side.
    takes: Vec<usize>,
    keys: [JoinKeys; 2],
    /// The places of the times.
    times: [usize; 2],
    time_type: DataType,
    tolerance: Option<u64>,
    exact: bool,
    latest: LatestRows,
    /// The memory of held rows.
    pub held_bytes_max: usize,
    /// Asked for long texts that many rows meet.
    pub admit: Option<AdmitBytes>,
    other: Option<OtherRows>,
    /// The last times of both sides.
    seen: [i64; 2],
}

impl TimeMerge {
    /// `keys` are those of both sides, with the types in which they are compared.
    pub fn new(
        join: &JoinOp,
        as_of: &AsOf,
        keys: [&[(String, DataType)]; 2],
        schemas: [&SchemaRef; 2],
    ) -> Result<Self> {
        let [own_schema, other_schema] = schemas;
        let times = [
            own_schema.index_of(&as_of.time)?,
            other_schema.index_of(&as_of.other_time)?,
        ];
        let own_type = own_schema.field(times[0]).data_type();
        let other_type = other_schema.field(times[1]).data_type();
        let Some(time_type) = AsOf::time_type(own_type, other_type) else {
            return Err(Fault::internal("times that cannot be compared"));
        };
        let mut outputs = vec![Field::new("distance", DataType::Int64, true)];
        let mut columns = Vec::with_capacity(join.columns.len());
        let mut takes = Vec::with_capacity(join.columns.len());
        for (name, field) in &join.columns {
            let field = field.clone().with_nullable(true);
            outputs.push(field.clone());
            columns.push(field);
            takes.push(other_schema.index_of(name)?);
        }
        Ok(TimeMerge {
            schema: Arc::new(Schema::new(outputs)),
            columns: Arc::new(Schema::new(columns)),
            takes,
            keys: [
                JoinKeys::new(own_schema, keys[0])?,
                JoinKeys::new(other_schema, keys[1])?,
            ],
            times,
            time_type,
            tolerance: as_of.tolerance.map(i64::unsigned_abs),
            exact: as_of.exact,
            latest: LatestRows::default(),
            held_bytes_max: usize::MAX,
            admit: None,
            other: None,
            seen: [i64::MIN; 2],
        })
    }

    /// The times of a side's rows, in common ticks.
    fn ticks(&self, side: usize, batch: &RecordBatch) -> Result<Int64Array> {
        let strict = CastOptions {
            safe: false,
            ..CastOptions::default()
        };
        let times = cast_with_options(batch.column(self.times[side]), &self.time_type, &strict)?;
        Ok(cast_with_options(&times, &DataType::Int64, &strict)?
            .as_primitive::<Int64Type>()
            .clone())
    }

    /// The outputs for a batch; `None` if a row is out of order, or if the held rows outgrow their memory.
    pub fn join(
        &mut self,
        batch: &RecordBatch,
        next: NextBatchFn<'_>,
    ) -> Result<Option<Vec<RecordBatch>>> {
        let keys = self.keys[0].encode(batch)?;
        let times = self.ticks(0, batch)?;
        let mut outputs = Vec::new();
        let mut matches = Matches::default();
        for row in 0..batch.num_rows() {
            if !times.is_valid(row) {
                matches.push(None);
                continue;
            }
            let time = times.value(row);
            if time < self.seen[0] {
                return Ok(None);
            }
            loop {
                match self.advance(time, next)? {
                    Advance::Done => break,
                    Advance::OutOfOrder => return Ok(None),
                    // The matches so far lie in the batches that are freed.
                    Advance::Full => {
                        outputs.push(self.outputs(std::mem::take(&mut matches))?);
                        if !self.free_batches()? {
                            return Ok(None);
                        }
                    }
                }
            }
            self.seen[0] = time;
            matches.push(self.nearest(&keys, row, time));
        }
        outputs.push(self.outputs(matches)?);
        Ok(Some(outputs))
    }

    /// The row that a row of this time meets, and the distance between them.
    fn nearest(&self, keys: &EncodedKeys, row: usize, time: i64) -> Option<(LatestRow, i64)> {
        let latest = self.latest.find(keys, row)?;
        let distance = time.abs_diff(latest.time);
        if let Some(tolerance) = self.tolerance
            && distance > tolerance
        {
            return None;
        }
        Some((latest, i64::try_from(distance).unwrap_or(i64::MAX)))
    }

    /// The schema of outputs.
    pub fn schema(&self) -> &SchemaRef {
        &self.schema
    }

    /// Frees the batches of rows that no longer count; false if the held rows outgrow their memory.
    fn free_batches(&mut self) -> Result<bool> {
        self.latest.compact(&self.columns)?;
        Ok(!self.is_outgrown())
    }

    /// True if the held rows take more than half of their memory.
    pub fn is_outgrown(&self) -> bool {
        self.latest.bytes() > self.held_bytes_max / 2
    }

    /// Reads the rows of the other side that can match a row of this time or a later one; returns
    /// false if a row is out of order, or if the held rows outgrow their memory.
    pub fn see_until(&mut self, time: i64, next: NextBatchFn<'_>) -> Result<bool> {
        loop {
            match self.advance(time, next)? {
                Advance::Done => return Ok(true),
                Advance::OutOfOrder => return Ok(false),
                Advance::Full if self.free_batches()? => {}
                Advance::Full => return Ok(false),
            }
        }
    }

    /// True if rows of the other side are waiting that no row has been matched with yet.
    pub fn has_waiting(&self) -> bool {
        self.other.is_some()
    }

    /// Writes the held rows, without those that cannot match at `time` or later.
    pub fn encode(&self, time: i64, out: &mut dyn Write) -> Result<()> {
        let mut from = i64::MIN;
        if let Some(tolerance) = self.tolerance
            && let Ok(tolerance) = i64::try_from(tolerance)
        {
            from = time.saturating_sub(tolerance);
        }
        self.latest.encode(&self.columns, from, out)
    }

    /// Continues with the rows that another merge holds.
    pub fn continue_from(&mut self, other: &TimeMerge) {
        self.latest = other.latest.clone();
    }

    /// Continues with rows that [`TimeMerge::encode`] wrote.
    pub fn decode(&mut self, input: &mut dyn Read) -> Result<()> {
        self.latest = LatestRows::decode(input)?;
        Ok(())
    }

    /// Checks the order of the rows of the other side that no row meets; `None` if a row is out of order.
    fn finish(&mut self, next: NextBatchFn<'_>) -> Result<Option<Vec<RecordBatch>>> {
        if let Some(other) = self.other.take() {
            let unseen = other.times.len() - other.at;
            if !follows(&other.times.slice(other.at, unseen), &mut self.seen[1]) {
                return Ok(None);
            }
        }
        while let Some(batch) = next()? {
            if !follows(&self.ticks(1, &batch)?, &mut self.seen[1]) {
                return Ok(None);
            }
        }
        Ok(Some(Vec::new()))
    }

    fn outputs(&self, matches: Matches) -> Result<RecordBatch> {
        let distances = Int64Array::from(matches.distances);
        let mut columns: Vec<ArrayRef> = vec![Arc::new(distances)];
        // One long text may be the latest of many rows.
        let admit = self.admit.as_ref();
        columns.extend(self.latest.take(&self.columns, &matches.rows, admit)?);
        Ok(RecordBatch::try_new(self.schema.clone(), columns)?)
    }

    /// Reads the rows of the other side that can match a row of this time.
    fn advance(&mut self, until: i64, next: NextBatchFn<'_>) -> Result<Advance> {
        loop {
            if let Some(other) = self.other.take() {
                if let Some(outcome) = self.see_rows(other, until) {
                    return Ok(outcome);
                }
            } else if self.is_full() {
                return Ok(Advance::Full);
            } else if let Some(batch) = next()? {
                self.hold_batch(&batch)?;
            } else {
                return Ok(Advance::Done);
            }
        }
    }

    /// True if batches have to be freed before the next one.
    fn is_full(&self) -> bool {
        let batches = self.latest.batches.len();
        let is_large = self.latest.bytes() > self.held_bytes_max && batches > 1;
        is_large || batches > BATCHES_MAX
    }

    /// Holds a batch of the other side, of which no row is seen yet.
    fn hold_batch(&mut self, batch: &RecordBatch) -> Result<()> {
        let mut columns = Vec::with_capacity(self.takes.len());
        for (index, field) in self.takes.iter().zip(self.columns.fields()) {
            columns.push(cast(batch.column(*index), field.data_type())?);
        }
        let columns = self.without_hidden_rows(columns)?;
        let keys = self.keys[1].encode(batch)?;
        let times = self.ticks(1, batch)?;
        self.other = Some(OtherRows {
            keys,
            times,
            batch: self.latest.push(columns),
            at: 0,
        });
        Ok(())
    }

    /// Columns of rows that are held. A slice would hold all rows of the batch that it is a slice of.
    fn without_hidden_rows(&self, columns: Vec<ArrayRef>) -> Result<Vec<ArrayRef>> {
        if columns.is_empty() {
            return Ok(columns);
        }
        let batch = RecordBatch::try_new(self.columns.clone(), columns)?;
        Ok(compact(&batch)?.columns().to_vec())
    }

    /// Sees the rows of a batch of the other side up to a time; `None` if the batch has no more rows.
    fn see_rows(&mut self, mut other: OtherRows, until: i64) -> Option<Advance> {
        while other.at < other.times.len() {
            let row = other.at;
            if other.times.is_valid(row) {
                let time = other.times.value(row);
                if time < self.seen[1] {
                    return Some(Advance::OutOfOrder);
                }
                if time > until || (time == until && !self.exact) {
                    self.other = Some(other);
                    return Some(Advance::Done);
                }
                self.seen[1] = time;
                if other.keys.is_valid(row) {
                    let latest = LatestRow {
                        batch: other.batch,
                        row: row as u32,
                        time,
                    };
                    self.latest.set(&other.keys, row, latest);
                }
            }
            other.at += 1;
        }
        None
    }
}

/// True if times do not decrease, starting from `seen`.
pub fn follows(times: &Int64Array, seen: &mut i64) -> bool {
    times
        .iter()
        .flatten()
        .all(|time| time >= std::mem::replace(seen, time))
}

#[cfg(test)]
mod tests {
    use arrow::array::{Int32Array, StringArray, UInt64Array};
    use forebay_plan::GatherOp;

    use super::*;

    /// A row: time, key, value.
    type Row = (Option<i64>, Option<i32>, i32);

    fn chance(seed: &mut u64, below: u64) -> u64 {
        *seed = seed
            .wrapping_mul(0x5851_f42d_4c95_7f2d)
            .wrapping_add(0x1405_7b7e_f767_814f);
        (*seed >> 33) % below
    }

    fn rows(seed: &mut u64, count: usize, step: u64) -> Vec<Row> {
        let mut time = 0;
        let row = |value: usize| {
            time += chance(seed, step) as i64;
            let key = (chance(seed, 12) > 0).then(|| chance(seed, 5) as i32);
            ((chance(seed, 10) > 0).then_some(time), key, value as i32)
        };
        (0..count).map(row).collect()
    }

    fn batches(rows: &[Row], size: usize) -> Vec<RecordBatch> {
        let batch = |(number, rows): (usize, &[Row])| {
            let first = (number * size) as u64;
            let columns: Vec<(&str, ArrayRef)> = vec![
                (
                    "time",
                    Arc::new(rows.iter().map(|row| row.0).collect::<Int64Array>()),
                ),
                (
                    "key",
                    Arc::new(rows.iter().map(|row| row.1).collect::<Int32Array>()),
                ),
                (
                    "value",
                    Arc::new(
                        rows.iter()
                            .map(|row| Some(format!("v{}", row.2)))
                            .collect::<StringArray>(),
                    ),
                ),
                (
                    GatherOp::ROW,
                    Arc::new(UInt64Array::from_iter_values(
                        first..first + rows.len() as u64,
                    )),
                ),
            ];
            RecordBatch::try_from_iter_with_nullable(columns.into_iter().map(|(n, c)| (n, c, true)))
                .unwrap()
        };
        rows.chunks(size).enumerate().map(batch).collect()
    }

    fn merge_of(as_of: &AsOf) -> TimeMerge {
        let join = JoinOp {
            other: "there".to_owned(),
            keys: vec![("key".to_owned(), "key".to_owned())],
            matched: None,
            keeps_unmatched: true,
            columns: vec![("value".to_owned(), Field::new("met", DataType::Utf8, true))],
            by: JoinBy::Time(as_of.clone()),
        };
        let schema = batches(&[(None, None, 0)], 1)[0].schema();
        let keys = [("key".to_owned(), DataType::Int32)];
        TimeMerge::new(&join, as_of, [&keys, &keys], [&schema, &schema]).unwrap()
    }

    /// Distances and values, or `None` where a row is out of order.
    fn merged(
        here: &[Row],
        there: &[Row],
        as_of: &AsOf,
        size: usize,
    ) -> Option<Vec<(Option<i64>, Option<String>)>> {
        let mut merge = merge_of(as_of);
        let mut others = batches(there, size).into_iter();
        let mut next = || Ok(others.next());
        let mut found = Vec::new();
        let mut rows = 0;
        for batch in batches(here, 7) {
            for output in merge.join(&batch, &mut next).unwrap()? {
                let values = output
                    .column(1)
                    .as_string::<i32>()
                    .iter()
                    .map(|value| value.map(str::to_owned));
                found.extend(
                    output
                        .column(0)
                        .as_primitive::<Int64Type>()
                        .iter()
                        .zip(values),
                );
                rows += output.num_rows();
            }
        }
        assert_eq!(rows, here.len());
        merge.finish(&mut next).unwrap()?;
        Some(found)
    }

    #[test]
    fn rows_meet_the_last_row_at_or_before_them() {
        let mut seed = 5;
        for case in 0..60 {
            let here = rows(&mut seed, 60, 1 + case % 4);
            let there = rows(&mut seed, [0, 40, 200][case as usize % 3], 1 + case % 3);
            let as_of = AsOf {
                time: "time".to_owned(),
                other_time: "time".to_owned(),
                known_at: None,
                direction: MatchDirection::Backward,
                tolerance: [None, Some(0), Some(6)][case as usize / 3 % 3],
                exact: case % 2 == 0,
            };
            let expected = here.iter().map(|(time, key, _)| {
                let met = there.iter().rev().find(|(other, other_key, _)| {
                    let before =
                        |(other, time): (i64, i64)| other < time || as_of.exact && other == time;
                    key.is_some() && key == other_key && other.zip(*time).is_some_and(before)
                })?;
                let distance = (*time)? - met.0?;
                as_of
                    .tolerance
                    .is_none_or(|most| distance <= most)
                    .then(|| (distance, format!("v{}", met.2)))
            });
            let expected: Vec<_> = expected.map(Option::unzip).collect();
            for size in [1, 3, 50] {
                assert_eq!(
                    merged(&here, &there, &as_of, size).as_ref(),
                    Some(&expected),
                    "case {case}, {size} rows"
                );
            }
            // A row out of order is noticed on both sides, also where no row meets it.
            let late = |rows: &[Row]| {
                let mut rows = rows.to_vec();
                rows.extend([(Some(1 << 20), Some(1), 0), (Some(0), Some(1), 0)]);
                rows
            };
            assert_eq!(merged(&late(&here), &there, &as_of, 3), None);
            assert_eq!(merged(&here, &late(&there), &as_of, 3), None);
        }
    }

    /// A join with the last row at or before each row.
    fn any_earlier() -> AsOf {
        AsOf {
            time: "time".to_owned(),
            other_time: "time".to_owned(),
            known_at: None,
            direction: MatchDirection::Backward,
            tolerance: None,
            exact: true,
        }
    }

    #[test]
    fn slices_do_not_hold_the_batches_that_they_are_slices_of() {
        let there: Vec<Row> = (0..20_000)
            .map(|time| (Some(time), Some(1), time as i32))
            .collect();
        let whole = batches(&there, there.len()).remove(0);
        let mut slices = (0..there.len())
            .step_by(100)
            .map(|from| whole.slice(from, 100));
        let mut merge = merge_of(&any_earlier());
        let here = batches(&[(Some(999), Some(1), 0)], 1);
        let joined = merge.join(&here[0], &mut || Ok(slices.next()));
        let output = joined.unwrap().unwrap().remove(0);
        assert_eq!(output.column(1).as_string::<i32>().value(0), "v999");
        // Eleven of two hundred slices are read.
        let whole_bytes = whole.column(2).get_array_memory_size();
        assert!(merge.latest.batch_bytes < whole_bytes / 4);
    }

    #[test]
    fn texts_count_for_each_row_that_meets_them() {
        let as_of = any_earlier();
        let here: Vec<Row> = (2..6).map(|time| (Some(time), Some(1), 0)).collect();
        // Four rows meet three bytes.
        for (bytes_max, is_refused) in [(12, false), (11, true)] {
            let mut merge = merge_of(&as_of);
            merge.admit = Some(Arc::new(move |bytes| {
                if bytes > bytes_max {
                    return Err(Fault::new(codes::MEMORY, "the memory is full"));
                }
                Ok(AdmittedMemory::default())
            }));
            let mut others = batches(&[(Some(1), Some(1), 10)], 1).into_iter();
            let joined = merge.join(&batches(&here, 4)[0], &mut || Ok(others.next()));
            assert_eq!(joined.is_err(), is_refused, "{bytes_max} bytes");
            // Copies of what is held need no more memory.
            assert!(merge.free_batches().unwrap());
        }
    }
}
