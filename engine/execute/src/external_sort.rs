//! External sort: sorted runs on disk, merged a batch of each at a time. The query engine's sort requests memory from a
//! shared pool and fails if other consumers hold it. This sort has a budget of its own and never exceeds it.

use std::fs::File;
use std::io::{BufReader, BufWriter};

use arrow::array::RecordBatch;
use arrow::compute::interleave_record_batch;
use arrow::datatypes::SchemaRef;
use arrow::ipc::CompressionType;
use arrow::ipc::reader::StreamReader;
use arrow::ipc::writer::{IpcWriteOptions, StreamWriter};
use arrow::row::{Row, RowConverter, Rows};
use forebay_model::{Fault, Result, column_bytes};
use forebay_storage::ScratchDir;
use tempfile::TempPath;

use crate::batch_iter::{BatchIter, batches_ahead};
use crate::ordered_rows::OrderedRows;
use crate::sort_keys::{
    BatchKeys, KeyMaker, KeyRanges, RowKey, SortSpec, key_number, shared_bytes, sort_by_encoded,
    sorted_positions,
};

/// Rows of a batch at most.
const BATCH_ROWS: usize = 8192;

/// Approximate bytes of a batch at least: a merge holds one batch of each run.
const BATCH_BYTES: usize = 128 << 10;

/// Approximate bytes of a batch of a run, and of merged rows, at most.
const BATCH_BYTES_MAX: usize = 1 << 20;

/// A merge holds about this many times a batch's bytes for each run: encoded, decoded, its sort keys, and the batch
/// before it.
const RUN_BATCHES: usize = 4;

/// Stored runs merged at a time at most.
const RUNS_MAX: usize = 64;

/// Bytes of rows and keys that are sorted at a time, at least, if the budget has room for several such parts. Parts use
/// the same memory for their keys one after the other, and miss the caches of a processor less than all rows of a large
/// budget would. They are merged.
const PART_BYTES: usize = 16 << 20;

/// The number of parts of a budget with room for more parts of the least bytes.
const PARTS_MAX: usize = 32;

/// A budget with room for fewer parts of the least bytes is not divided.
const PARTS_MIN: usize = 8;

/// Parts are spilled as runs of their own while there are fewer runs than this.
const RUNS_OF_PARTS: usize = RUNS_MAX / 4 * 3;

/// Half of the parts are spilled as one run while there are fewer runs than this; with more runs, all parts are.
const RUNS_OF_HALVES: usize = RUNS_MAX / 8 * 7;

/// One part in this many of a budget is left to a merge of rows that stay in memory.
const MERGE_SHARE: usize = 4;

/// Bytes of a buffered row while it is sorted: its key and its position. The key makes room for the second copy of a
/// column afterwards.
const PACKED_ROW_BYTES: usize = size_of::<u128>() + size_of::<u64>();

/// Bytes of a buffered row with an encoded key, without the key. Equal numbers may make all rows one group.
const ENCODED_ROW_BYTES: usize = PACKED_ROW_BYTES + size_of::<(Row<'static>, u64)>();

/// Sorts the pushed rows, part by part. Parts beyond the budget are spilled to sorted runs on disk, the earliest first.
pub struct SpillingSorter {
    order: SortSpec,
    converter: RowConverter,
    /// The ranges of the keys of all rows so far, while keys are packed.
    ranges: Option<KeyRanges>,
    scratch: ScratchDir,
    budget_bytes: usize,
    /// Bytes of rows and keys that are sorted at a time.
    part_bytes: usize,
    /// With more than one thread, rows of a run are collected while others are compressed.
    threads: usize,
    /// The number of sorters whose runs are merged together.
    sorters: usize,
    /// Rows of the next part.
    buffer: SortBuffer,
    /// Sorted parts in memory.
    parts: Vec<SortedRun>,
    /// Runs on disk.
    runs: Vec<SortedRun>,
}

/// Rows to sort.
#[derive(Default)]
struct SortBuffer {
    batches: Vec<RecordBatch>,
    /// The keys of each batch, if they are not packed.
    encoded: Vec<Rows>,
    rows: usize,
    /// Bytes of the rows alone.
    batch_bytes: usize,
    /// Bytes of the rows and of their keys.
    bytes: usize,
}

/// Sorted rows.
pub struct SortedRun {
    /// The ranges of the keys, if they were packed.
    ranges: Option<KeyRanges>,
    rows: RunRows,
}

enum RunRows {
    /// A run in memory of `bytes` bytes, which is read in batches of about `batch_bytes` bytes.
    Buffered {
        ordered: OrderedRows,
        bytes: usize,
        batch_bytes: usize,
    },
    /// On disk, in batches of at most `batch_bytes` bytes. The file is opened when the run is read: there may be more
    /// runs than a process may open files.
    Stored { path: TempPath, batch_bytes: usize },
}

impl SpillingSorter {
    /// A sorter with a budget in bytes.
    pub fn new(
        order: &SortSpec,
        scratch: &ScratchDir,
        budget_bytes: usize,
    ) -> Result<SpillingSorter> {
        Ok(SpillingSorter {
            order: order.clone(),
            converter: order.converter()?,
            ranges: order.empty_ranges(),
            scratch: scratch.clone(),
            budget_bytes,
            part_bytes: part_bytes(budget_bytes),
            threads: 1,
            sorters: 1,
            buffer: SortBuffer::default(),
            parts: Vec::new(),
            runs: Vec::new(),
        })
    }

    /// Spills with as many as two threads.
    pub fn with_threads(self, threads: usize) -> SpillingSorter {
        SpillingSorter { threads, ..self }
    }

    /// One of several sorters whose runs are merged together.
    pub fn one_of(self, sorters: usize) -> SpillingSorter {
        SpillingSorter {
            sorters: sorters.max(1),
            ..self
        }
    }

    /// Adds rows.
    pub fn push(&mut self, batch: &RecordBatch) -> Result<()> {
        if batch.num_rows() == 0 {
            return Ok(());
        }
        let batch = compact(batch)?;
        let wider = self.ranges.as_ref().map(|ranges| ranges.with(&batch));
        if wider.as_ref().is_some_and(|ranges| !ranges.fit()) {
            // The buffered rows have no encoded keys.
            self.sort_part()?;
            self.ranges = None;
        }
        let mut encoded = None;
        if self.ranges.is_none() {
            encoded = Some(self.order.encode(&self.converter, &batch)?);
        }
        let key_bytes = match &encoded {
            Some(rows) => rows.size() + batch.num_rows() * ENCODED_ROW_BYTES,
            None => batch.num_rows() * PACKED_ROW_BYTES,
        };
        let batch_bytes = batch.get_array_memory_size();
        let added_bytes = batch_bytes + key_bytes;
        if self.buffer.bytes + added_bytes > self.part_bytes {
            self.sort_part()?;
        }
        self.spill_beyond(self.buffer.bytes + added_bytes)?;
        if self.ranges.is_some() {
            self.ranges = wider;
        }
        self.buffer.rows += batch.num_rows();
        self.buffer.batch_bytes += batch_bytes;
        self.buffer.bytes += added_bytes;
        self.buffer.batches.push(batch);
        self.buffer.encoded.extend(encoded);
        Ok(())
    }

    /// The rows as sorted runs: those that fit stay in memory.
    pub fn finish(mut self) -> Result<Vec<SortedRun>> {
        self.sort_part()?;
        let is_only_part = self.parts.len() == 1 && self.runs.is_empty();
        if !is_only_part {
            self.spill_beyond(0)?;
        }
        if !self.has_parts() && !self.runs.is_empty() {
            // All of a small budget is left to the merge.
            while !self.parts.is_empty() {
                self.spill()?;
            }
        }
        let mut runs = self.runs;
        runs.append(&mut self.parts);
        Ok(runs)
    }

    /// True if the budget is divided into parts.
    fn has_parts(&self) -> bool {
        self.part_bytes < self.budget_bytes
    }

    /// The bytes that a merge of the runs may hold beside the rows in memory.
    fn merge_bytes(&self) -> usize {
        if self.has_parts() {
            self.budget_bytes / MERGE_SHARE
        } else {
            self.budget_bytes
        }
    }

    /// Sorts the buffered rows as a part of their own.
    fn sort_part(&mut self) -> Result<()> {
        let part = self.sort_buffered()?;
        self.parts.extend(part);
        Ok(())
    }

    /// Spills parts until the others fit beside the rows of the next part and a merge.
    fn spill_beyond(&mut self, next_bytes: usize) -> Result<()> {
        let most = self.budget_bytes - self.budget_bytes / MERGE_SHARE;
        while !self.parts.is_empty() && memory_bytes(&self.parts) + next_bytes > most {
            self.spill()?;
        }
        Ok(())
    }

    /// Spills the earliest part. If there are many runs, it is merged with others into one.
    fn spill(&mut self) -> Result<()> {
        let mut parts = std::mem::take(&mut self.parts);
        let runs = self.runs.len();
        let count = if runs < RUNS_OF_PARTS / self.sorters {
            parts.len().min(1)
        } else if runs < RUNS_OF_HALVES / self.sorters {
            parts.len().div_ceil(2)
        } else {
            parts.len()
        };
        self.parts = parts.split_off(count);
        if parts.is_empty() {
            return Ok(());
        }
        let ranges = shared_ranges(&self.order, &parts);
        let rows = RunMerger::begin(&self.order, ranges.clone(), parts, self.run_batch_bytes())?;
        let batches = batches_ahead(rows, self.threads);
        let stored = spill_run(&self.order.schema, &self.scratch, ranges, batches)?;
        self.runs.push(stored);
        Ok(())
    }

    /// Bytes of a batch of a run. A merge of as many runs as possible holds a batch of each.
    fn run_batch_bytes(&self) -> usize {
        (self.merge_bytes() / (RUN_BATCHES * RUNS_MAX)).clamp(BATCH_BYTES, BATCH_BYTES_MAX)
    }

    /// Sorts the buffered rows.
    fn sort_buffered(&mut self) -> Result<Option<SortedRun>> {
        let buffer = std::mem::take(&mut self.buffer);
        if buffer.rows == 0 {
            return Ok(None);
        }
        let positions = match &self.ranges {
            Some(ranges) => buffer.positions_by_packed(ranges),
            None => buffer.positions_by_encoded(),
        };
        let row_bytes = (buffer.batch_bytes / buffer.rows).max(1);
        let batch_rows = (self.run_batch_bytes() / row_bytes).clamp(1, BATCH_ROWS);
        let bytes = buffer.batch_bytes + positions.len() * size_of::<u64>();
        drop(buffer.encoded);
        let ordered = OrderedRows::new(buffer.batches, positions, batch_rows)?;
        Ok(Some(SortedRun {
            ranges: self.ranges.clone(),
            rows: RunRows::Buffered {
                ordered,
                bytes,
                batch_bytes: batch_rows * row_bytes,
            },
        }))
    }
}

impl SortBuffer {
    /// The positions of the rows in the order of their packed keys.
    fn positions_by_packed(&self, ranges: &KeyRanges) -> Vec<u64> {
        let mut numbers = Vec::with_capacity(self.rows);
        for batch in &self.batches {
            ranges.pack(batch, &mut numbers);
        }
        // A packed number is the whole key.
        sorted_positions(&numbers, None)
    }

    /// The positions of the rows in the order of their encoded keys.
    fn positions_by_encoded(&self) -> Vec<u64> {
        let skipped = shared_bytes(&self.encoded);
        let mut numbers = Vec::with_capacity(self.rows);
        let mut starts = Vec::with_capacity(self.encoded.len());
        for rows in &self.encoded {
            starts.push(numbers.len());
            numbers.extend(rows.iter().map(|key| key_number(key, skipped)));
        }
        let key = |position: u64| {
            let position = position as usize;
            let batch = starts
                .partition_point(|start| *start <= position)
                .saturating_sub(1);
            self.encoded[batch].row(position - starts[batch])
        };
        let sort_equal = |group: &mut [u64]| sort_by_encoded(group, key);
        sorted_positions(&numbers, Some(&sort_equal))
    }
}

/// Bytes of rows and keys that are sorted at a time.
fn part_bytes(budget_bytes: usize) -> usize {
    if budget_bytes < PARTS_MIN * PART_BYTES {
        budget_bytes
    } else {
        PART_BYTES.max(budget_bytes / PARTS_MAX)
    }
}

/// Bytes of the runs in memory.
fn memory_bytes(runs: &[SortedRun]) -> usize {
    runs.iter().map(SortedRun::memory_bytes).sum()
}

/// Compression of rows in files that only this run reads.
pub fn compressed_ipc() -> Result<IpcWriteOptions> {
    Ok(IpcWriteOptions::default().try_with_compression(Some(CompressionType::LZ4_FRAME))?)
}

/// Copies the batch if it is a slice of much larger columns.
pub fn compact(batch: &RecordBatch) -> Result<RecordBatch> {
    let sliced: usize = batch
        .columns()
        .iter()
        .map(|column| column_bytes(column))
        .sum();
    if batch.get_array_memory_size() <= 2 * sliced + (64 << 10) {
        return Ok(batch.clone());
    }
    let positions: Vec<(usize, usize)> = (0..batch.num_rows()).map(|row| (0, row)).collect();
    Ok(interleave_record_batch(&[batch], &positions)?)
}

impl SortedRun {
    /// The rows of the run, batch by batch.
    fn batches(self) -> Result<BatchIter> {
        match self.rows {
            RunRows::Buffered { ordered, .. } => Ok(Box::new(ordered)),
            RunRows::Stored { path, .. } => {
                let file = File::open(&path)
                    .map_err(|error| Fault::disk("sorted rows cannot be read", error))?;
                let reader = StreamReader::try_new(BufReader::with_capacity(1 << 16, file), None)?;
                // The file goes with the last batch.
                Ok(Box::new(reader.map(move |batch| {
                    let _ = &path;
                    Ok(batch?)
                })))
            }
        }
    }

    fn is_stored(&self) -> bool {
        matches!(self.rows, RunRows::Stored { .. })
    }

    fn batch_bytes(&self) -> usize {
        match &self.rows {
            RunRows::Buffered { batch_bytes, .. } | RunRows::Stored { batch_bytes, .. } => {
                *batch_bytes
            }
        }
    }

    fn memory_bytes(&self) -> usize {
        match &self.rows {
            RunRows::Buffered { bytes, .. } => *bytes,
            RunRows::Stored { .. } => 0,
        }
    }
}

/// Writes sorted rows to a run on disk.
fn spill_run(
    schema: &SchemaRef,
    scratch: &ScratchDir,
    ranges: Option<KeyRanges>,
    batches: BatchIter,
) -> Result<SortedRun> {
    let write = || -> Result<SortedRun> {
        let file = BufWriter::with_capacity(1 << 16, scratch.file()?);
        let mut writer = StreamWriter::try_new_with_options(file, schema, compressed_ipc()?)?;
        let mut batch_bytes = 0;
        for batch in batches {
            let batch = batch?;
            batch_bytes = batch_bytes.max(batch.get_array_memory_size());
            writer.write(&batch)?;
        }
        writer.finish()?;
        let file = writer.into_inner()?.into_inner();
        let file =
            file.map_err(|error| scratch.fault("rows cannot be spilled", error.into_error()))?;
        scratch.count_spilled(file.as_file().metadata().map_or(0, |meta| meta.len()));
        Ok(SortedRun {
            ranges,
            rows: RunRows::Stored {
                path: file.into_temp_path(),
                batch_bytes,
            },
        })
    };
    write().map_err(|fault| scratch.locate_fault(fault))
}

/// Merges sorted runs. If the budget does not allow all runs at a time, the smaller ones are first merged to runs on
/// disk.
pub fn merge_runs(
    order: &SortSpec,
    mut runs: Vec<SortedRun>,
    scratch: &ScratchDir,
    budget_bytes: usize,
) -> Result<BatchIter> {
    let ranges = shared_ranges(order, &runs);
    loop {
        let most = most_at_once(&runs, budget_bytes);
        let stored = runs.iter().filter(|run| run.is_stored()).count();
        if runs.len() <= most && stored <= RUNS_MAX {
            return RunMerger::begin(order, ranges, runs, BATCH_BYTES_MAX);
        }
        // Runs in memory hold part of the budget and are merged first. Runs on disk are of about one size; the earlier
        // ones were merged less often.
        runs.sort_by_key(SortedRun::is_stored);
        let most = most.min(RUNS_MAX);
        let some: Vec<SortedRun> = runs.drain(..most.min(runs.len() + 1 - most)).collect();
        let rows = RunMerger::begin(order, ranges.clone(), some, BATCH_BYTES_MAX)?;
        runs.push(spill_run(&order.schema, scratch, ranges.clone(), rows)?);
    }
}

/// The number of the runs that can be merged at a time: a merge holds batches of each beside those that are in memory
/// as a whole.
fn most_at_once(runs: &[SortedRun], budget_bytes: usize) -> usize {
    let batch_bytes = runs.iter().map(SortedRun::batch_bytes).max();
    let batch_bytes = batch_bytes.unwrap_or(0).max(BATCH_BYTES);
    let free_bytes = budget_bytes.saturating_sub(memory_bytes(runs));
    let merge_bytes = free_bytes.max(budget_bytes / MERGE_SHARE);
    (merge_bytes / (RUN_BATCHES * batch_bytes)).max(2)
}

/// The ranges of the keys of all runs; none if some keys are not packed.
fn shared_ranges(order: &SortSpec, runs: &[SortedRun]) -> Option<KeyRanges> {
    let mut shared = order.empty_ranges()?;
    for run in runs {
        shared = shared.union(run.ranges.as_ref()?);
    }
    Some(shared)
}

/// A merge of sorted runs.
struct RunMerger {
    keys: KeyMaker,
    cursors: Vec<RunCursor>,
    /// Approximate bytes of merged rows that are given at once, at most.
    batch_bytes: usize,
    /// The batches of the cursors, and those that end among the next rows.
    loaded: Vec<LoadedBatch>,
}

/// The read position in a run.
struct RunCursor {
    run: BatchIter,
    /// The index of the batch among the loaded ones.
    slot: usize,
    /// The next row of the batch.
    row: usize,
}

struct LoadedBatch {
    batch: RecordBatch,
    keys: BatchKeys,
}

/// The index of a loaded batch, and a row of it.
type LoadedRow = (usize, usize);

impl RunMerger {
    fn begin(
        order: &SortSpec,
        ranges: Option<KeyRanges>,
        mut runs: Vec<SortedRun>,
        batch_bytes: usize,
    ) -> Result<BatchIter> {
        if runs.len() < 2 {
            let run = runs.pop().map(SortedRun::batches).transpose()?;
            return Ok(run.unwrap_or_else(|| Box::new(std::iter::empty())));
        }
        let mut merge = RunMerger {
            keys: KeyMaker::new(order, ranges)?,
            cursors: Vec::with_capacity(runs.len()),
            batch_bytes,
            loaded: Vec::with_capacity(runs.len()),
        };
        for run in runs {
            let mut run = run.batches()?;
            if let Some(batch) = LoadedBatch::next(&merge.keys, &mut run)? {
                merge.cursors.push(RunCursor {
                    run,
                    slot: merge.loaded.len(),
                    row: 0,
                });
                merge.loaded.push(batch);
            }
        }
        let mut failed = false;
        Ok(Box::new(std::iter::from_fn(move || {
            if failed {
                return None;
            }
            let next = merge.next_rows().transpose();
            failed = matches!(next, Some(Err(_)));
            next
        })))
    }

    /// The next rows in order.
    fn next_rows(&mut self) -> Result<Option<RecordBatch>> {
        self.drop_merged();
        let most = self.rows_at_once();
        let mut picked = Vec::with_capacity(most + self.cursors.len());
        // With many runs, the last rows of a full batch would be picked a few at a time.
        let enough = most - most / 4;
        while picked.len() < enough && !self.cursors.is_empty() {
            self.pick_rows(most - picked.len(), &mut picked);
            self.load_next()?;
        }
        if picked.is_empty() {
            return Ok(None);
        }
        let batches: Vec<&RecordBatch> = self.loaded.iter().map(|loaded| &loaded.batch).collect();
        Ok(Some(interleave_record_batch(&batches, &picked)?))
    }

    /// Drops the batches that have no more rows.
    fn drop_merged(&mut self) {
        let loaded = std::mem::take(&mut self.loaded);
        let mut loaded: Vec<Option<LoadedBatch>> = loaded.into_iter().map(Some).collect();
        for cursor in &mut self.cursors {
            if let Some(batch) = loaded[cursor.slot].take() {
                cursor.slot = self.loaded.len();
                self.loaded.push(batch);
            }
        }
    }

    /// The number of rows of a merged batch.
    fn rows_at_once(&self) -> usize {
        let mut bytes = 0;
        let mut rows = 0;
        for loaded in &self.loaded {
            bytes += loaded.batch.get_array_memory_size();
            rows += loaded.batch.num_rows();
        }
        (self.batch_bytes / (bytes / rows.max(1)).max(1)).clamp(1, BATCH_ROWS)
    }

    /// Adds the next rows in order: at least one, and about `most` at most. Each run has a block of its next rows. The
    /// rows up to the least end of a block precede all rows behind the blocks. Sorting these few rows in the cache is
    /// faster than comparing all runs for each row.
    fn pick_rows(&mut self, most: usize, picked: &mut Vec<LoadedRow>) {
        let block_rows = most.div_ceil(self.cursors.len().max(1));
        let blocks = self
            .cursors
            .iter()
            .map(|cursor| cursor.block_end(&self.loaded, block_rows));
        let Some(bound) = blocks.min() else {
            return;
        };
        let picked_max = block_rows * self.cursors.len();
        let mut numbers = Vec::with_capacity(picked_max);
        let mut rows: Vec<LoadedRow> = Vec::with_capacity(picked_max);
        for cursor in &mut self.cursors {
            let LoadedBatch { batch, keys } = &self.loaded[cursor.slot];
            let block = cursor.row..batch.num_rows().min(cursor.row + block_rows);
            let end = keys.end_of_rows(block, bound);
            numbers.extend_from_slice(keys.numbers(cursor.row..end));
            rows.extend((cursor.row..end).map(|row| (cursor.slot, row)));
            cursor.row = end;
        }
        let sort_equal = |group: &mut [u64]| {
            group.sort_unstable_by_key(|position| {
                let (slot, row) = rows[*position as usize];
                (self.loaded[slot].keys.key(row), *position)
            });
        };
        let positions = match self.keys {
            KeyMaker::Packed(_) => sorted_positions(&numbers, None),
            KeyMaker::Encoded(..) => sorted_positions(&numbers, Some(&sort_equal)),
        };
        picked.extend(positions.iter().map(|position| rows[*position as usize]));
    }

    /// Loads the next batches of the runs whose batches have no more rows.
    fn load_next(&mut self) -> Result<()> {
        let mut index = 0;
        while index < self.cursors.len() {
            let cursor = &mut self.cursors[index];
            if cursor.row < self.loaded[cursor.slot].batch.num_rows() {
                index += 1;
                continue;
            }
            match LoadedBatch::next(&self.keys, &mut cursor.run)? {
                Some(batch) => {
                    cursor.slot = self.loaded.len();
                    cursor.row = 0;
                    self.loaded.push(batch);
                    index += 1;
                }
                None => {
                    self.cursors.remove(index);
                }
            }
        }
        Ok(())
    }
}

impl RunCursor {
    /// The key of the last of the next rows, at most `block_rows`.
    fn block_end<'k>(&self, loaded: &'k [LoadedBatch], block_rows: usize) -> RowKey<'k> {
        let LoadedBatch { batch, keys } = &loaded[self.slot];
        keys.key(batch.num_rows().min(self.row + block_rows) - 1)
    }
}

impl LoadedBatch {
    /// The next batch of a run that is not empty.
    fn next(keys: &KeyMaker, run: &mut BatchIter) -> Result<Option<LoadedBatch>> {
        for batch in run.by_ref() {
            let batch = batch?;
            if batch.num_rows() > 0 {
                let keys = keys.keys(&batch)?;
                return Ok(Some(LoadedBatch { batch, keys }));
            }
        }
        Ok(None)
    }
}

#[cfg(test)]
mod tests {
    use std::ops::Range;
    use std::sync::Arc;

    use arrow::array::{
        ArrayRef, AsArray, BooleanArray, Date32Array, DictionaryArray, Float32Array, Float64Array,
        Int8Array, Int64Array, StringArray, TimestampNanosecondArray, UInt16Array, UInt64Array,
    };
    use arrow::compute::{
        SortColumn, SortOptions, concat_batches, lexsort_to_indices, take_record_batch,
    };
    use arrow::datatypes::{Int32Type, UInt64Type};

    use super::*;
    use crate::row_position::ROW_BITS;
    use forebay_storage::IgnoreEvents;

    /// Rows with many equal keys, nulls and strings of all lengths; the last column numbers the rows.
    fn rows(from: u64, count: u64) -> RecordBatch {
        let mixed = |row: u64| (row + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 17;
        let key = (from..from + count)
            .map(|row| (mixed(row) % 7 != 0).then(|| "x".repeat((mixed(row) % 40) as usize)));
        let time = (from..from + count)
            .map(|row| (mixed(row) % 11 != 0).then(|| (mixed(row) % 1000) as i64 - 500));
        let columns: [(&str, ArrayRef); 3] = [
            ("key", Arc::new(StringArray::from_iter(key))),
            ("time", Arc::new(Int64Array::from_iter(time))),
            (
                "row",
                Arc::new(UInt64Array::from_iter_values(from..from + count)),
            ),
        ];
        RecordBatch::try_from_iter(columns).unwrap()
    }

    /// The rows as the library's kernel sorts them.
    fn plainly_sorted(batches: &[RecordBatch], by: &[(usize, SortOptions)]) -> RecordBatch {
        let whole = concat_batches(&batches[0].schema(), batches).unwrap();
        let columns: Vec<SortColumn> = by
            .iter()
            .map(|(column, options)| SortColumn {
                values: whole.column(*column).clone(),
                options: Some(*options),
            })
            .collect();
        take_record_batch(&whole, &lexsort_to_indices(&columns, None).unwrap()).unwrap()
    }

    /// The sorted runs of some sorters, which the batches are dealt to.
    fn sorted_runs(
        order: &SortSpec,
        scratch: &ScratchDir,
        batches: &[RecordBatch],
        budget_bytes: usize,
        sorters: usize,
    ) -> Vec<SortedRun> {
        let mut runs = Vec::new();
        for sorter in 0..sorters {
            let mut sorted = SpillingSorter::new(order, scratch, budget_bytes).unwrap();
            for batch in batches.iter().skip(sorter).step_by(sorters) {
                sorted.push(batch).unwrap();
            }
            runs.extend(sorted.finish().unwrap());
        }
        runs
    }

    fn merged(
        order: &SortSpec,
        scratch: &ScratchDir,
        runs: Vec<SortedRun>,
        budget_bytes: usize,
    ) -> RecordBatch {
        let merged = merge_runs(order, runs, scratch, budget_bytes).unwrap();
        let batches: Vec<RecordBatch> = merged.collect::<Result<_>>().unwrap();
        concat_batches(&order.schema, &batches).unwrap()
    }

    #[test]
    fn rows_come_out_in_order_whatever_fits_memory() {
        let all: Vec<RecordBatch> = (0..50).map(|batch| rows(batch * 400, 400)).collect();
        let directions = [(false, true), (true, true), (true, false)];
        let options = directions.map(|(descending, nulls_first)| SortOptions {
            descending,
            nulls_first,
        });
        let by: Vec<(usize, SortOptions)> = options.into_iter().enumerate().collect();
        let expected = plainly_sorted(&all, &by);
        let scratch = ScratchDir::new(None, Arc::new(IgnoreEvents)).unwrap();
        let order = SortSpec::new(all[0].schema(), &by);
        for (budget_bytes, sorters, spills) in [
            (64 << 20, 1, false),
            (64 << 20, 3, false),
            (60 << 10, 1, true),
            (60 << 10, 3, true),
        ] {
            let spilled_bytes = scratch.spilled_bytes();
            let runs = sorted_runs(&order, &scratch, &all, budget_bytes, sorters);
            // With a small budget there are more runs than can be merged at a time.
            assert_eq!(runs.len() > 20, spills, "{} runs", runs.len());
            assert_eq!(
                merged(&order, &scratch, runs, budget_bytes),
                expected,
                "{budget_bytes} bytes, {sorters} sorters"
            );
            assert_eq!(scratch.spilled_bytes() > spilled_bytes, spills);
        }
    }

    #[test]
    fn parts_beyond_the_budget_are_spilled_and_others_stay_in_memory() {
        let all: Vec<RecordBatch> = (0..50).map(|batch| rows(batch * 400, 400)).collect();
        let by = [0, 1, 2].map(|column| (column, SortOptions::default()));
        let expected = plainly_sorted(&all, &by);
        let scratch = ScratchDir::new(None, Arc::new(IgnoreEvents)).unwrap();
        let order = SortSpec::new(all[0].schema(), &by);
        let mut stored_runs = Vec::new();
        for (budget_bytes, sorters) in [(64 << 20, 1), (1 << 20, 1), (1 << 20, RUNS_MAX)] {
            let sorter = SpillingSorter::new(&order, &scratch, budget_bytes).unwrap();
            let mut sorter = SpillingSorter {
                part_bytes: 200 << 10,
                ..sorter.one_of(sorters)
            };
            for batch in &all {
                sorter.push(batch).unwrap();
                let bytes = memory_bytes(&sorter.parts) + sorter.buffer.bytes;
                assert!(bytes <= budget_bytes / 4 * 3, "{bytes} bytes");
            }
            let runs = sorter.finish().unwrap();
            let stored = runs.iter().filter(|run| run.is_stored()).count();
            assert!(stored < runs.len(), "{stored} of {} runs", runs.len());
            assert!(memory_bytes(&runs) <= budget_bytes / 4 * 3);
            stored_runs.push(stored);
            assert_eq!(
                merged(&order, &scratch, runs, budget_bytes),
                expected,
                "{budget_bytes} bytes, {sorters} sorters"
            );
        }
        // Many sorters merge their parts before they spill them.
        let [fitting, alone, together] = stored_runs[..] else {
            panic!("{stored_runs:?}");
        };
        assert!(
            fitting == 0 && 0 < together && together < alone,
            "{stored_runs:?}"
        );
    }

    #[test]
    fn large_budgets_are_divided_into_parts() {
        let budgets = [1, 127, 128, 512, 4096].map(|mebibytes| mebibytes << 20);
        let parts = [1, 127, 16, 16, 128].map(|mebibytes| mebibytes << 20);
        assert_eq!(budgets.map(part_bytes), parts);
    }

    /// A number of 53 bits for each row of each seed.
    fn drawn(seed: u64, row: u64) -> u64 {
        let mixed = (seed * 1_000_003 + row + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        (mixed ^ (mixed >> 29)).wrapping_mul(0xbf58_476d_1ce4_e5b9) >> 11
    }

    /// Drawn values of one of eleven kinds.
    fn drawn_column(kind: u64, seed: u64, rows: Range<u64>) -> ArrayRef {
        let words = ["", "a", "a longer word than a number has bytes", "b", "é"];
        let floats = [
            f64::NAN,
            -f64::NAN,
            -0.0,
            0.0,
            f64::INFINITY,
            f64::MIN,
            1.5,
            -1.5,
        ];
        let has_nulls = seed.is_multiple_of(3);
        let values = rows.map(|row| {
            let is_null = has_nulls && drawn(seed + 1, row).is_multiple_of(5);
            (!is_null).then(|| drawn(seed, row))
        });
        match kind {
            0 => Arc::new(BooleanArray::from_iter(
                values.map(|value| value.map(|value| value % 2 == 0)),
            )),
            1 => Arc::new(Int8Array::from_iter(
                values.map(|value| value.map(|value| value as i8)),
            )),
            2 => Arc::new(UInt16Array::from_iter(
                values.map(|value| value.map(|value| value as u16)),
            )),
            3 => Arc::new(Int64Array::from_iter(
                values.map(|value| value.map(|value| value as i64 % 1000 - 500)),
            )),
            // All bits of a number: two such columns make keys that cannot be packed.
            4 => {
                Arc::new(Int64Array::from_iter(values.map(|value| {
                    value.map(|value| value.wrapping_mul(value) as i64)
                })))
            }
            5 => Arc::new(UInt64Array::from_iter(
                values.map(|value| value.map(|value| value << 11)),
            )),
            6 => Arc::new(Date32Array::from_iter(
                values.map(|value| value.map(|value| (value % 40) as i32 - 20)),
            )),
            7 => Arc::new(TimestampNanosecondArray::from_iter(
                values.map(|value| value.map(|value| value as i64)),
            )),
            8 => {
                Arc::new(Float32Array::from_iter(values.map(|value| {
                    value.map(|value| floats[value as usize % 8] as f32)
                })))
            }
            9 => Arc::new(Float64Array::from_iter(
                values.map(|value| value.map(|value| floats[value as usize % 8])),
            )),
            _ => {
                let words = values.map(|value| value.map(|value| words[value as usize % 5]));
                Arc::new(words.collect::<DictionaryArray<Int32Type>>())
            }
        }
    }

    /// Rows with one to three drawn keys and their positions.
    fn drawn_rows(seed: u64, rows: Range<u64>) -> RecordBatch {
        let mut columns: Vec<(String, ArrayRef, bool)> = Vec::new();
        for key in 0..1 + seed % 3 {
            let kind = drawn(seed, key) % 11;
            let values = drawn_column(kind, seed * 10 + key, rows.clone());
            columns.push((format!("key {key}"), values, true));
        }
        let positions = rows.map(|row| ((row / 700) << ROW_BITS) | (row % 700));
        let positions = UInt64Array::from_iter_values(positions);
        columns.push(("row".to_owned(), Arc::new(positions), true));
        RecordBatch::try_from_iter_with_nullable(columns).unwrap()
    }

    #[test]
    fn drawn_keys_are_sorted_as_by_the_kernel() {
        let scratch = ScratchDir::new(None, Arc::new(IgnoreEvents)).unwrap();
        let mut packed_runs = 0;
        let mut encoded_runs = 0;
        for seed in 0..90 {
            let mut batches = Vec::new();
            for batch in 0..10 {
                batches.push(drawn_rows(seed, batch * 300..(batch + 1) * 300));
            }
            let schema = batches[0].schema();
            let mut by = Vec::new();
            for column in 0..schema.fields().len() {
                let bits = drawn(seed + 7, column as u64);
                let options = SortOptions {
                    descending: bits.is_multiple_of(2),
                    nulls_first: (bits / 2).is_multiple_of(2),
                };
                by.push((column, options));
            }
            let expected = plainly_sorted(&batches, &by);
            let order = SortSpec::new(schema, &by);
            for budget_bytes in [64 << 20, 40 << 10] {
                let runs = sorted_runs(&order, &scratch, &batches, budget_bytes, 2);
                let packed = runs.iter().filter(|run| run.ranges.is_some()).count();
                packed_runs += packed;
                encoded_runs += runs.len() - packed;
                assert_eq!(
                    merged(&order, &scratch, runs, budget_bytes),
                    expected,
                    "seed {seed}, {budget_bytes} bytes"
                );
            }
        }
        assert!(
            packed_runs > 100 && encoded_runs > 100,
            "{packed_runs} packed, {encoded_runs} encoded"
        );
    }

    #[test]
    fn keys_that_become_too_wide_are_encoded_from_there() {
        let narrow: [(&str, ArrayRef); 3] = [
            ("a", Arc::new(Int64Array::from_iter_values(0..500))),
            ("b", Arc::new(Int64Array::from_iter_values(0..500))),
            ("row", Arc::new(UInt64Array::from_iter_values(0..500))),
        ];
        let extremes = [i64::MIN, i64::MAX].repeat(250);
        let wide: [(&str, ArrayRef); 3] = [
            ("a", Arc::new(Int64Array::from(extremes.clone()))),
            ("b", Arc::new(Int64Array::from(extremes))),
            ("row", Arc::new(UInt64Array::from_iter_values(500..1000))),
        ];
        let batches = [narrow, wide].map(|columns| RecordBatch::try_from_iter(columns).unwrap());
        let by = [0, 1, 2].map(|column| (column, SortOptions::default()));
        let scratch = ScratchDir::new(None, Arc::new(IgnoreEvents)).unwrap();
        let order = SortSpec::new(batches[0].schema(), &by);
        let runs = sorted_runs(&order, &scratch, &batches, 64 << 20, 1);
        let packed: Vec<bool> = runs.iter().map(|run| run.ranges.is_some()).collect();
        assert_eq!(packed, [true, false]);
        assert_eq!(
            merged(&order, &scratch, runs, 64 << 20),
            plainly_sorted(&batches, &by)
        );
    }

    #[test]
    fn slices_do_not_hold_what_they_are_slices_of() {
        let whole = rows(0, 20_000);
        let scratch = ScratchDir::new(None, Arc::new(IgnoreEvents)).unwrap();
        let order = SortSpec::new(whole.schema(), &[(2, SortOptions::default())]);
        let mut sorter = SpillingSorter::new(&order, &scratch, 8 << 20).unwrap();
        (0..20_000)
            .step_by(100)
            .for_each(|from| sorter.push(&whole.slice(from, 100)).unwrap());
        let runs = sorter.finish().unwrap();
        assert_eq!((runs.len(), scratch.spilled_bytes()), (1, 0));
        let found: Vec<RecordBatch> = merge_runs(&order, runs, &scratch, 8 << 20)
            .unwrap()
            .collect::<Result<_>>()
            .unwrap();
        let rows = found.iter().flat_map(|batch| {
            batch
                .column(2)
                .as_primitive::<UInt64Type>()
                .values()
                .to_vec()
        });
        assert!(rows.eq(0..20_000));
    }
}
