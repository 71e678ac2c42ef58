//! As-of joins of sides in order of time: the last row of each key of the other side is held, and nothing is sorted.

use std::cell::Cell;
use std::io::{Read, Write};
use std::sync::Arc;
use std::sync::mpsc::sync_channel;

use arrow::array::{
    Array, ArrayRef, AsArray, BinaryArray, Int64Array, RecordBatch, new_null_array,
};
use arrow::compute::{CastOptions, cast, cast_with_options, interleave};
use arrow::datatypes::{DataType, Field, Int64Type, Schema, SchemaRef};
use arrow::ipc::reader::StreamReader;
use arrow::ipc::writer::StreamWriter;
use forebay_model::{Fault, Result, catch_panic, codes};
use forebay_plan::{
    AsOf, JoinBy, JoinOp, MatchDirection, NodeFlow, PlanOp, SharedSort, base_column, span_extents,
};
use forebay_threads::{for_current_span, poisoned_lock};
use hashbrown::HashTable;

use crate::as_of_join::AsOfOperator;
use crate::join_keys::{EncodedKeys, JoinKeys};
use crate::materialize::{FlowSpans, QUEUE_BATCHES};
use crate::sorted_outputs::SortedFile;
use crate::sorted_pass::{SortInput, SortedOperator, SortedPass};

/// Batches of the other side that are held before those rows that count are copied into one.
const BATCHES_MAX: usize = 64;

/// Bytes that a held key takes beside its own, about.
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
    pub fn merge_by_time(&self, together: &SharedSort) -> Result<Option<SortedFile>> {
        let PlanOp::Join(
            join @ JoinOp {
                by: JoinBy::Time(as_of),
                ..
            },
        ) = &self.gather.context.program.bound.ops[together.stand].op
        else {
            return Ok(None);
        };
        let is_backward = as_of.direction == MatchDirection::Backward && as_of.known_at.is_none();
        if !is_backward
            || join.keys.is_empty()
            || self
                .gather
                .context
                .state
                .out_of_order
                .contains(&together.stand)
        {
            return Ok(None);
        }
        let sides = self.sort_inputs(together)?;
        let [here, there] = sides.as_slice() else {
            return Ok(None);
        };
        if !self.may_follow(here.flow, &as_of.time)?
            || !self.may_follow(there.flow, &as_of.other_time)?
        {
            return Ok(None);
        }
        let spans = |side: &SortInput<'_>| self.gather.spans(side.flow, &side.columns);
        let (here_spans, there_spans) = (spans(here)?, spans(there)?);
        let schemas = [&here_spans.schema, &there_spans.schema];
        let mut merge = TimeMerge::new(join, as_of, [&here.keys, &there.keys], schemas)?;
        let schema = AsOfOperator::new(join, as_of).schema().clone();
        let back = self.restore_order(
            together.stand,
            self.gather.engine_context()?,
            schema.clone(),
            self.flow(together)?,
        )?;
        merge.held_bytes_max = self.gather.context.memory.engine_bytes() / HELD_SHARE;
        let gives_up = Cell::new(false);
        std::thread::scope(|scope| {
            let (here_sender, here_rows) = sync_channel::<RecordBatch>(QUEUE_BATCHES);
            let (there_sender, there_rows) = sync_channel::<RecordBatch>(QUEUE_BATCHES);
            let gather = &self.gather;
            let read = |spans: FlowSpans, sender: std::sync::mpsc::SyncSender<RecordBatch>| {
                let all = 0..spans.len();
                let read = move || {
                    catch_panic(|| {
                        gather.read(&spans, all, &mut |batch| sender.send(batch).is_ok())
                    })
                };
                scope.spawn(for_current_span(read))
            };
            let readers = [
                read(here_spans, here_sender),
                read(there_spans, there_sender),
            ];
            let mut next_there = move || Ok(there_rows.recv().ok());
            let mut is_done = false;
            let mut batches = here_rows.into_iter();
            let merged = std::iter::from_fn(|| {
                if is_done || gives_up.get() {
                    return None;
                }
                let step = match batches.next() {
                    Some(batch) => {
                        let joined = merge.join(&batch, &mut next_there);
                        joined.and_then(|outputs| {
                            outputs
                                .map(|own| with_positions(own, &batch, &schema))
                                .transpose()
                        })
                    }
                    None => {
                        is_done = true;
                        merge.finish(&mut next_there)
                    }
                };
                match step {
                    Ok(None) => {
                        gives_up.set(true);
                        None
                    }
                    Ok(Some(outputs)) => Some(outputs.into_iter().map(Ok).collect::<Vec<_>>()),
                    Err(fault) => Some(vec![Err(fault)]),
                }
            });
            let written = back.write_all(merged.flatten(), self.keeps_rows, self.stop);
            // Readers end once their rows are no longer received.
            drop((batches, next_there));
            for reader in readers {
                reader.join().unwrap_or_else(|_| Err(poisoned_lock()))?;
            }
            let written = written?;
            Ok((!gives_up.get()).then_some(written))
        })
    }

    /// Whether the rows of a flow come in order of time, as far as it is worth to try. Where extents of spans say nothing,
    /// the times are read first: a join that is given up costs more.
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

    /// Whether the times of a flow do not fall.
    fn follows_in(&self, flow: &NodeFlow, time: &str) -> Result<bool> {
        let spans = self.gather.spans(flow, &[time.to_owned()])?;
        let (mut seen, mut is_ordered) = (i64::MIN, true);
        self.gather.read(&spans, 0..spans.len(), &mut |batch| {
            let ticks = cast(batch.column(0), &DataType::Int64);
            is_ordered = ticks.is_ok_and(|ticks| follows(ticks.as_primitive(), &mut seen));
            is_ordered
        })?;
        Ok(is_ordered)
    }
}

/// Adds the positions of the rows of a batch to their outputs.
fn with_positions(
    outputs: Vec<RecordBatch>,
    batch: &RecordBatch,
    schema: &SchemaRef,
) -> Result<Vec<RecordBatch>> {
    let positions = batch.column(batch.num_columns() - 1);
    let mut from = 0;
    let placed = outputs.into_iter().map(|own| {
        let rows = positions.slice(from, own.num_rows());
        from += own.num_rows();
        let columns = own.columns().iter().cloned().chain([rows]).collect();
        Ok(RecordBatch::try_new(schema.clone(), columns)?)
    });
    placed.collect()
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
        let same = |entry: &u32| {
            let entry = *entry as usize;
            let start = entry.checked_sub(1).map_or(0, |before| self.ends[before]);
            self.hashes[entry] == hash && self.keys[start..self.ends[entry]] == *key
        };
        self.table.find(hash, same).copied()
    }

    fn find(&self, keys: &EncodedKeys, row: usize) -> Option<LatestRow> {
        if !keys.is_valid(row) {
            return None;
        }
        self.entry(keys.hashes[row], keys.rows.row(row).as_ref())
            .map(|entry| self.rows[entry as usize])
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
        self.batch_bytes += columns
            .iter()
            .map(|column| column.get_array_memory_size())
            .sum::<usize>();
        self.batches.push(columns);
        self.batches.len() as u32 - 1
    }

    /// Columns of some of the rows.
    fn take(&self, schema: &Schema, picks: &[Option<LatestRow>]) -> Result<Vec<ArrayRef>> {
        let places: Vec<(usize, usize)> = picks
            .iter()
            .map(|pick| pick.map_or((0, 0), |pick| (pick.batch as usize + 1, pick.row as usize)))
            .collect();
        let column = |(place, field): (usize, &Arc<arrow::datatypes::Field>)| {
            let null = new_null_array(field.data_type(), 1);
            let sources: Vec<&dyn Array> = std::iter::once(null.as_ref())
                .chain(self.batches.iter().map(|batch| batch[place].as_ref()))
                .collect();
            Ok(interleave(&sources, &places)?)
        };
        schema.fields().iter().enumerate().map(column).collect()
    }

    /// Copies the rows that count into one batch and frees the others.
    fn compact(&mut self, schema: &Schema) -> Result<()> {
        let picks: Vec<Option<LatestRow>> = self.rows.iter().copied().map(Some).collect();
        let columns = self.take(schema, &picks)?;
        (self.batches, self.batch_bytes) = (Vec::new(), 0);
        self.push(columns);
        for (row, latest) in self.rows.iter_mut().enumerate() {
            (latest.batch, latest.row) = (0, row as u32);
        }
        Ok(())
    }

    fn bytes(&self) -> usize {
        self.batch_bytes + self.keys.capacity() + self.rows.len() * ENTRY_BYTES
    }

    fn key(&self, entry: usize) -> &[u8] {
        let start = entry.checked_sub(1).map_or(0, |before| self.ends[before]);
        &self.keys[start..self.ends[entry]]
    }

    /// Writes the rows from a time on, in the order of their keys: batches of keys, times and columns.
    fn encode(&self, schema: &Schema, from: i64, out: &mut dyn Write) -> Result<()> {
        let mut entries: Vec<usize> = (0..self.rows.len())
            .filter(|entry| self.rows[*entry].time >= from)
            .collect();
        entries.sort_unstable_by(|a, b| self.key(*a).cmp(self.key(*b)));
        let fields = [
            Field::new(KEY, DataType::Binary, false),
            Field::new(TIME, DataType::Int64, false),
        ];
        let fields = fields
            .into_iter()
            .map(Arc::new)
            .chain(schema.fields().iter().cloned());
        let written = Arc::new(Schema::new(fields.collect::<Vec<_>>()));
        let mut writer = StreamWriter::try_new(out, &written)?;
        for entries in entries.chunks(WRITTEN_ROWS) {
            let keys = BinaryArray::from_iter_values(entries.iter().map(|entry| self.key(*entry)));
            let times =
                Int64Array::from_iter_values(entries.iter().map(|entry| self.rows[*entry].time));
            let picks: Vec<Option<LatestRow>> = entries
                .iter()
                .map(|entry| Some(self.rows[*entry]))
                .collect();
            let mut columns: Vec<ArrayRef> = vec![Arc::new(keys), Arc::new(times)];
            columns.extend(self.take(schema, &picks)?);
            writer.write(&RecordBatch::try_new(written.clone(), columns)?)?;
        }
        Ok(writer.finish()?)
    }

    /// Reads what [`LatestRows::encode`] wrote.
    fn decode(input: &mut dyn Read) -> Result<LatestRows> {
        let damaged = || Fault::new(codes::CORRUPT, "the state of a join cannot be read");
        let mut latest = LatestRows::default();
        for batch in StreamReader::try_new(input, None)? {
            let batch = batch?;
            let keys = batch.column(0).as_binary_opt::<i32>().ok_or_else(damaged)?;
            let times = batch
                .column(1)
                .as_primitive_opt::<Int64Type>()
                .ok_or_else(damaged)?;
            let number = latest.push(batch.columns()[2..].to_vec());
            for row in 0..batch.num_rows() {
                let key = keys.value(row);
                let found = LatestRow {
                    batch: number,
                    row: row as u32,
                    time: times.value(row),
                };
                latest.set_key(JoinKeys::hash(key), key, found);
            }
        }
        Ok(latest)
    }
}

/// Rows of the other side, of which the first ones have been seen.
struct OtherRows {
    keys: EncodedKeys,
    times: Int64Array,
    /// The number of their batch among those that are held.
    batch: u32,
    at: usize,
}

/// How far the other side was seen.
enum Advance {
    /// As far as a row needs.
    Done,
    OutOfOrder,
    /// Batches have to be freed before the next one.
    Full,
}

/// Gives the next rows of the other side.
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
        let [here, there] = schemas;
        let times = [
            here.index_of(&as_of.time)?,
            there.index_of(&as_of.other_time)?,
        ];
        let time_type = AsOf::time_type(
            here.field(times[0]).data_type(),
            there.field(times[1]).data_type(),
        );
        let fields: Vec<_> = join
            .columns
            .iter()
            .map(|(_, field)| field.clone().with_nullable(true))
            .collect();
        let outputs = [Field::new("distance", DataType::Int64, true)]
            .into_iter()
            .chain(fields.iter().cloned());
        let takes = join
            .columns
            .iter()
            .map(|(name, _)| Ok(there.index_of(name)?))
            .collect::<Result<_>>()?;
        Ok(TimeMerge {
            schema: Arc::new(Schema::new(outputs.collect::<Vec<_>>())),
            columns: Arc::new(Schema::new(fields)),
            takes,
            keys: [
                JoinKeys::new(here, keys[0])?,
                JoinKeys::new(there, keys[1])?,
            ],
            times,
            time_type: time_type.ok_or_else(|| Fault::internal("times that cannot be compared"))?,
            tolerance: as_of.tolerance.map(i64::unsigned_abs),
            exact: as_of.exact,
            latest: LatestRows::default(),
            held_bytes_max: usize::MAX,
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
        let (keys, times) = (self.keys[0].encode(batch)?, self.ticks(0, batch)?);
        let mut outputs = Vec::new();
        let (mut picks, mut distances) = (Vec::new(), Vec::new());
        for row in 0..batch.num_rows() {
            let mut found = None;
            if times.is_valid(row) {
                let time = times.value(row);
                if time < self.seen[0] {
                    return Ok(None);
                }
                loop {
                    match self.advance(time, next)? {
                        Advance::Done => break,
                        Advance::OutOfOrder => return Ok(None),
                        // What was found so far lies in the batches that are freed.
                        Advance::Full => {
                            outputs.push(self.outputs(&picks, &distances)?);
                            (picks, distances) = (Vec::new(), Vec::new());
                            if !self.free_batches()? {
                                return Ok(None);
                            }
                        }
                    }
                }
                self.seen[0] = time;
                let near = |latest: &LatestRow| {
                    self.tolerance
                        .is_none_or(|most| time.abs_diff(latest.time) <= most)
                };
                found = self
                    .latest
                    .find(&keys, row)
                    .filter(near)
                    .map(|latest| (latest, time.abs_diff(latest.time)));
            }
            picks.push(found.map(|(latest, _)| latest));
            distances.push(found.map(|(_, distance)| i64::try_from(distance).unwrap_or(i64::MAX)));
        }
        outputs.push(self.outputs(&picks, &distances)?);
        Ok(Some(outputs))
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

    /// Whether the held rows take more than half of their memory.
    pub fn is_outgrown(&self) -> bool {
        self.latest.bytes() > self.held_bytes_max / 2
    }

    /// Sees the rows of the other side that a row of this time, or a later one, may meet; false if a row is out of order,
    /// or if the held rows outgrow their memory.
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

    /// Whether rows of the other side wait that no row has met yet.
    pub fn has_waiting(&self) -> bool {
        self.other.is_some()
    }

    /// Writes the rows that are held. Those of no use at a time, or later, are left out.
    pub fn encode(&self, time: i64, out: &mut dyn Write) -> Result<()> {
        let most = self.tolerance.and_then(|most| i64::try_from(most).ok());
        self.latest.encode(
            &self.columns,
            most.map_or(i64::MIN, |most| time.saturating_sub(most)),
            out,
        )
    }

    /// Goes on with the rows that another merge holds.
    pub fn continue_from(&mut self, other: &TimeMerge) {
        self.latest = other.latest.clone();
    }

    /// Goes on with rows that [`TimeMerge::encode`] wrote.
    pub fn decode(&mut self, input: &mut dyn Read) -> Result<()> {
        self.latest = LatestRows::decode(input)?;
        Ok(())
    }

    /// Checks the order of the rows of the other side that no row meets; `None` if a row is out of order.
    fn finish(&mut self, next: NextBatchFn<'_>) -> Result<Option<Vec<RecordBatch>>> {
        if let Some(other) = self.other.take()
            && !follows(
                &other.times.slice(other.at, other.times.len() - other.at),
                &mut self.seen[1],
            )
        {
            return Ok(None);
        }
        while let Some(batch) = next()? {
            if !follows(&self.ticks(1, &batch)?, &mut self.seen[1]) {
                return Ok(None);
            }
        }
        Ok(Some(Vec::new()))
    }

    fn outputs(
        &self,
        picks: &[Option<LatestRow>],
        distances: &[Option<i64>],
    ) -> Result<RecordBatch> {
        let mut columns: Vec<ArrayRef> = vec![Arc::new(Int64Array::from(distances.to_vec()))];
        columns.extend(self.latest.take(&self.columns, picks)?);
        Ok(RecordBatch::try_new(self.schema.clone(), columns)?)
    }

    /// Sees the rows of the other side that a row of this time may meet.
    fn advance(&mut self, until: i64, next: NextBatchFn<'_>) -> Result<Advance> {
        loop {
            let Some(mut other) = self.other.take() else {
                let is_full =
                    self.latest.bytes() > self.held_bytes_max && self.latest.batches.len() > 1;
                if is_full || self.latest.batches.len() > BATCHES_MAX {
                    return Ok(Advance::Full);
                }
                let Some(batch) = next()? else {
                    return Ok(Advance::Done);
                };
                let taken = self.takes.iter().zip(self.columns.fields());
                let taken =
                    taken.map(|(place, field)| Ok(cast(batch.column(*place), field.data_type())?));
                let columns = taken.collect::<Result<_>>()?;
                let (keys, times) = (self.keys[1].encode(&batch)?, self.ticks(1, &batch)?);
                self.other = Some(OtherRows {
                    keys,
                    times,
                    batch: self.latest.push(columns),
                    at: 0,
                });
                continue;
            };
            while other.at < other.times.len() {
                let row = other.at;
                if other.times.is_valid(row) {
                    let time = other.times.value(row);
                    if time < self.seen[1] {
                        return Ok(Advance::OutOfOrder);
                    }
                    if time > until || (time == until && !self.exact) {
                        self.other = Some(other);
                        return Ok(Advance::Done);
                    }
                    self.seen[1] = time;
                    if other.keys.is_valid(row) {
                        self.latest.set(
                            &other.keys,
                            row,
                            LatestRow {
                                batch: other.batch,
                                row: row as u32,
                                time,
                            },
                        );
                    }
                }
                other.at += 1;
            }
        }
    }
}

/// Whether times do not fall, from a time on.
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

    /// Distances and values, or `None` where a row is out of order.
    fn merged(
        here: &[Row],
        there: &[Row],
        as_of: &AsOf,
        size: usize,
    ) -> Option<Vec<(Option<i64>, Option<String>)>> {
        let join = JoinOp {
            other: "there".to_owned(),
            keys: vec![("key".to_owned(), "key".to_owned())],
            matched: None,
            columns: vec![("value".to_owned(), Field::new("met", DataType::Utf8, true))],
            expects_match: true,
            by: JoinBy::Time(as_of.clone()),
        };
        let schema = batches(&[(None, None, 0)], 1)[0].schema();
        let keys = [("key".to_owned(), DataType::Int32)];
        let mut merge = TimeMerge::new(&join, as_of, [&keys, &keys], [&schema, &schema]).unwrap();
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
}
