//! External sort: sorted runs on disk, merged a batch of each at a time. The query engine's sort requests memory from a
//! shared pool and fails if other consumers hold it. This sort has a budget of its own and never exceeds it.

use std::cmp::Ordering;
use std::collections::BinaryHeap;
use std::collections::binary_heap::PeekMut;
use std::fs::File;
use std::io::{BufReader, BufWriter};
use std::sync::Arc;

use arrow::array::{ArrayRef, RecordBatch};
use arrow::compute::{SortOptions, interleave_record_batch};
use arrow::datatypes::SchemaRef;
use arrow::ipc::CompressionType;
use arrow::ipc::reader::StreamReader;
use arrow::ipc::writer::{IpcWriteOptions, StreamWriter};
use arrow::row::{RowConverter, Rows, SortField};
use forebay_model::{Fault, Result, column_bytes};
use forebay_storage::ScratchDir;
use tempfile::TempPath;

/// Rows of a batch at most.
const BATCH_ROWS: usize = 8192;

/// Approximate bytes of a batch: a merge holds one batch of each run.
const BATCH_BYTES: usize = 128 << 10;

/// A merge holds about this many times a batch's bytes for each run: encoded, decoded, its sort keys, and the batch
/// before it.
const RUN_BATCHES: usize = 4;

/// Runs merged at a time at most.
const RUNS_MAX: usize = 64;

/// An order of rows.
#[derive(Clone)]
pub struct SortSpec {
    schema: SchemaRef,
    columns: Arc<[(usize, SortOptions)]>,
}

/// Sorts the pushed rows. Rows beyond the budget are spilled to sorted runs on disk.
pub struct SpillingSorter {
    order: SortSpec,
    converter: RowConverter,
    scratch: ScratchDir,
    budget_bytes: usize,
    held: Vec<(RecordBatch, Rows)>,
    held_rows: usize,
    held_bytes: usize,
    runs: Vec<SortedRun>,
}

/// Sorted rows.
pub enum SortedRun {
    /// A run in memory.
    Held {
        batches: Vec<RecordBatch>,
        places: Vec<(usize, usize)>,
        batch_rows: usize,
    },
    /// On disk, in batches of at most `batch_bytes` bytes. The file is opened when the run is read: there may be more
    /// runs than a process may open files.
    Stored { path: TempPath, batch_bytes: usize },
}

impl SortSpec {
    /// The order by some columns, the most significant first.
    pub fn new(schema: SchemaRef, columns: &[(usize, SortOptions)]) -> SortSpec {
        SortSpec {
            schema,
            columns: columns.into(),
        }
    }

    fn converter(&self) -> Result<RowConverter> {
        let field = |(column, options): &(usize, SortOptions)| {
            SortField::new_with_options(self.schema.field(*column).data_type().clone(), *options)
        };
        Ok(RowConverter::new(self.columns.iter().map(field).collect())?)
    }

    /// Number of leading bytes that all keys share: the byte that marks nulls, if the first column
    /// has none.
    fn equal_key_bytes(&self) -> usize {
        let first = self.columns.first();
        usize::from(first.is_some_and(|(column, _)| !self.schema.field(*column).is_nullable()))
    }

    /// The sort keys of a batch: byte strings that compare as the rows do.
    fn sort_keys(&self, converter: &RowConverter, batch: &RecordBatch) -> Result<Rows> {
        let columns: Vec<ArrayRef> = self
            .columns
            .iter()
            .map(|(column, _)| batch.column(*column).clone())
            .collect();
        Ok(converter.convert_columns(&columns)?)
    }
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
            scratch: scratch.clone(),
            budget_bytes,
            held: Vec::new(),
            held_rows: 0,
            held_bytes: 0,
            runs: Vec::new(),
        })
    }

    /// Adds rows.
    pub fn push(&mut self, batch: &RecordBatch) -> Result<()> {
        if batch.num_rows() == 0 {
            return Ok(());
        }
        let batch = compact(batch)?;
        let rows = self.order.sort_keys(&self.converter, &batch)?;
        // Sorting takes half as much again.
        let position_bytes = batch.num_rows() * size_of::<RowPosition>() * 3 / 2;
        let bytes = batch.get_array_memory_size() + rows.size() + position_bytes;
        if self.held_bytes + bytes > self.budget_bytes {
            self.spill()?;
        }
        self.held_rows += batch.num_rows();
        self.held_bytes += bytes;
        self.held.push((batch, rows));
        Ok(())
    }

    /// The rows as sorted runs: a single run in memory if all of them fit.
    pub fn finish(mut self) -> Result<Vec<SortedRun>> {
        if self.runs.is_empty() {
            let run = self.sort_buffered();
            return Ok(run.into_iter().collect());
        }
        self.spill()?;
        Ok(self.runs)
    }

    fn spill(&mut self) -> Result<()> {
        if let Some(run) = self.sort_buffered() {
            self.runs.push(spill_run(
                &self.order.schema,
                &self.scratch,
                run.batches()?,
            )?);
        }
        Ok(())
    }

    /// Sorts the buffered rows.
    fn sort_buffered(&mut self) -> Option<SortedRun> {
        let buffered = std::mem::take(&mut self.held);
        let rows = std::mem::take(&mut self.held_rows);
        let bytes = std::mem::take(&mut self.held_bytes);
        if rows == 0 {
            return None;
        }
        let skipped = self.order.equal_key_bytes();
        let mut positions: Vec<RowPosition> = Vec::with_capacity(rows);
        for (batch, (_, rows)) in buffered.iter().enumerate() {
            let position_of = |(row, key): (usize, arrow::row::Row<'_>)| RowPosition {
                prefix: key_prefix(key.as_ref().get(skipped..).unwrap_or_default()),
                batch: batch as u32,
                row: row as u32,
            };
            positions.extend(rows.iter().enumerate().map(position_of));
        }
        let key = |position: &RowPosition| {
            buffered[position.batch as usize]
                .1
                .row(position.row as usize)
        };
        // Rows often come as runs in order, which a stable sort merges.
        positions.sort_by(|a, b| {
            a.prefix
                .cmp(&b.prefix)
                .then_with(|| key(a).as_ref().cmp(key(b).as_ref()))
        });
        let batch_rows = (BATCH_BYTES / (bytes / rows).max(1)).clamp(1, BATCH_ROWS);
        let positions = positions
            .iter()
            .map(|position| (position.batch as usize, position.row as usize))
            .collect();
        Some(SortedRun::Held {
            batches: buffered.into_iter().map(|(batch, _)| batch).collect(),
            places: positions,
            batch_rows,
        })
    }
}

/// A buffered row with the first bytes of its key.
struct RowPosition {
    prefix: u64,
    batch: u32,
    row: u32,
}

/// The first bytes of a key as a number that compares as they do.
fn key_prefix(key: &[u8]) -> u64 {
    let mut first = [0; 8];
    let length = key.len().min(8);
    first[..length].copy_from_slice(&key[..length]);
    u64::from_be_bytes(first)
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

pub type BatchIter = Box<dyn Iterator<Item = Result<RecordBatch>> + Send>;

impl SortedRun {
    /// The rows of the run, batch by batch.
    fn batches(self) -> Result<BatchIter> {
        match self {
            SortedRun::Held {
                batches,
                places: positions,
                batch_rows,
            } => {
                let mut from = 0;
                Ok(Box::new(std::iter::from_fn(move || {
                    let until = (from + batch_rows).min(positions.len());
                    let some = positions.get(from..until).filter(|some| !some.is_empty())?;
                    from = until;
                    let batches: Vec<&RecordBatch> = batches.iter().collect();
                    Some(interleave_record_batch(&batches, some).map_err(Into::into))
                })))
            }
            SortedRun::Stored { path, .. } => {
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

    fn batch_bytes(&self) -> usize {
        match self {
            SortedRun::Held { .. } => 0,
            SortedRun::Stored { batch_bytes, .. } => *batch_bytes,
        }
    }
}

/// Writes sorted rows to a run on disk.
fn spill_run(schema: &SchemaRef, scratch: &ScratchDir, batches: BatchIter) -> Result<SortedRun> {
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
        Ok(SortedRun::Stored {
            path: file.into_temp_path(),
            batch_bytes,
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
    loop {
        let batch_bytes = runs
            .iter()
            .map(SortedRun::batch_bytes)
            .max()
            .unwrap_or(0)
            .max(BATCH_BYTES);
        let most = (budget_bytes / (RUN_BATCHES * batch_bytes)).clamp(2, RUNS_MAX);
        if runs.len() <= most {
            return RunMerger::begin(order, runs);
        }
        // Runs in memory hold part of the budget and are merged first. Runs on disk are of about one size; the earlier
        // ones were merged less often.
        runs.sort_by_key(|run| matches!(run, SortedRun::Stored { .. }));
        let some: Vec<SortedRun> = runs.drain(..most.min(runs.len() - most + 1)).collect();
        runs.push(spill_run(
            &order.schema,
            scratch,
            RunMerger::begin(order, some)?,
        )?);
    }
}

/// A merge of sorted runs.
struct RunMerger {
    order: SortSpec,
    converter: RowConverter,
    cursors: BinaryHeap<RunCursor>,
}

/// The read position in a run.
struct RunCursor {
    run: BatchIter,
    batch: RecordBatch,
    rows: Rows,
    at: usize,
    /// The index of the batch among those from which the next rows are taken.
    slot: usize,
}

impl RunMerger {
    fn begin(order: &SortSpec, runs: Vec<SortedRun>) -> Result<BatchIter> {
        if runs.len() == 1 {
            let run = runs
                .into_iter()
                .next()
                .map(SortedRun::batches)
                .transpose()?;
            return Ok(run.unwrap_or_else(|| Box::new(std::iter::empty())));
        }
        let mut merge = RunMerger {
            order: order.clone(),
            converter: order.converter()?,
            cursors: BinaryHeap::new(),
        };
        for run in runs {
            let mut run = run.batches()?;
            if let Some((batch, rows)) = merge.next_batch(&mut run)? {
                merge.cursors.push(RunCursor {
                    run,
                    batch,
                    rows,
                    at: 0,
                    slot: 0,
                });
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

    /// The next batch of a run that is not empty.
    fn next_batch(&self, run: &mut BatchIter) -> Result<Option<(RecordBatch, Rows)>> {
        for batch in run.by_ref() {
            let batch = batch?;
            if batch.num_rows() > 0 {
                let rows = self.order.sort_keys(&self.converter, &batch)?;
                return Ok(Some((batch, rows)));
            }
        }
        Ok(None)
    }

    /// The next rows in order.
    fn next_rows(&mut self) -> Result<Option<RecordBatch>> {
        let mut batches: Vec<RecordBatch> = Vec::new();
        let cursors = std::mem::take(&mut self.cursors).into_vec().into_iter();
        // The order of cursors does not depend on `slot`.
        self.cursors = cursors
            .map(|cursor| {
                batches.push(cursor.batch.clone());
                RunCursor {
                    slot: batches.len() - 1,
                    ..cursor
                }
            })
            .collect();
        let bytes: usize = batches.iter().map(RecordBatch::get_array_memory_size).sum();
        let rows: usize = batches.iter().map(RecordBatch::num_rows).sum();
        let most = (8 * BATCH_BYTES / (bytes / rows.max(1)).max(1)).clamp(1, BATCH_ROWS);
        let mut picks: Vec<(usize, usize)> = Vec::with_capacity(most);
        while picks.len() < most {
            let Some(mut first) = self.cursors.peek_mut() else {
                break;
            };
            picks.push((first.slot, first.at));
            if first.at + 1 < first.batch.num_rows() {
                first.at += 1;
                continue;
            }
            let mut cursor = PeekMut::pop(first);
            if let Some((batch, rows)) = self.next_batch(&mut cursor.run)? {
                batches.push(batch.clone());
                self.cursors.push(RunCursor {
                    run: cursor.run,
                    batch,
                    rows,
                    at: 0,
                    slot: batches.len() - 1,
                });
            }
        }
        if picks.is_empty() {
            return Ok(None);
        }
        let batches: Vec<&RecordBatch> = batches.iter().collect();
        Ok(Some(interleave_record_batch(&batches, &picks)?))
    }
}

impl RunCursor {
    fn key(&self) -> arrow::row::Row<'_> {
        self.rows.row(self.at)
    }
}

impl Ord for RunCursor {
    /// Reversed: the maximum of the heap is the cursor with the least row.
    fn cmp(&self, other: &Self) -> Ordering {
        other.key().as_ref().cmp(self.key().as_ref())
    }
}

impl PartialOrd for RunCursor {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for RunCursor {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for RunCursor {}

#[cfg(test)]
mod tests {
    use arrow::array::{AsArray, Int64Array, StringArray, UInt64Array};
    use arrow::compute::{SortColumn, concat_batches, lexsort_to_indices, take_record_batch};
    use arrow::datatypes::UInt64Type;

    use super::*;
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

    #[test]
    fn rows_come_out_in_order_whatever_fits_memory() {
        let all: Vec<RecordBatch> = (0..50).map(|batch| rows(batch * 400, 400)).collect();
        let schema = all[0].schema();
        let directions = [(false, true), (true, true), (true, false)];
        let options = directions.map(|(descending, nulls_first)| SortOptions {
            descending,
            nulls_first,
        });
        let by: Vec<(usize, SortOptions)> = options.into_iter().enumerate().collect();
        let whole = concat_batches(&schema, &all).unwrap();
        let columns: Vec<SortColumn> = by
            .iter()
            .map(|(column, options)| SortColumn {
                values: whole.column(*column).clone(),
                options: Some(*options),
            })
            .collect();
        let expected =
            take_record_batch(&whole, &lexsort_to_indices(&columns, None).unwrap()).unwrap();
        let scratch = ScratchDir::new(None, Arc::new(IgnoreEvents)).unwrap();
        let order = SortSpec::new(schema.clone(), &by);
        for (budget_bytes, sorters, spills) in [
            (64 << 20, 1, false),
            (64 << 20, 3, false),
            (60 << 10, 1, true),
            (60 << 10, 3, true),
        ] {
            let before = scratch.spilled_bytes();
            let mut runs = Vec::new();
            for sorter in 0..sorters {
                let mut sorted = SpillingSorter::new(&order, &scratch, budget_bytes).unwrap();
                all.iter()
                    .skip(sorter)
                    .step_by(sorters)
                    .for_each(|batch| sorted.push(batch).unwrap());
                runs.extend(sorted.finish().unwrap());
            }
            // With a small budget there are more runs than can be merged at a time.
            assert_eq!(runs.len() > 20, spills, "{} runs", runs.len());
            let merged = merge_runs(&order, runs, &scratch, budget_bytes).unwrap();
            let found: Vec<RecordBatch> = merged.collect::<Result<_>>().unwrap();
            assert_eq!(
                concat_batches(&schema, &found).unwrap(),
                expected,
                "{budget_bytes} bytes, {sorters} sorters"
            );
            assert_eq!(scratch.spilled_bytes() > before, spills);
        }
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
