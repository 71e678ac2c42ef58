//! Blocks over the spans of sources: row groups are read by our own scans, and what a pipeline does
//! with rows is done on the way.

use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::Duration;

use arrow::array::{ArrayRef, AsArray, BooleanArray, RecordBatch, RecordBatchOptions};
use arrow::compute::{and_kleene, filter_record_batch, is_not_null};
use arrow::datatypes::{Field, Schema};
use forebay_execute::SourceInput;
use forebay_feed::{BlockDataset, BlockSource, DatasetBlock};
use forebay_model::{BoundValue, Chunk, ContentId, Fault, Result, Span};
use forebay_plan::{Carry, ColumnKernel, OpChain};
use forebay_storage::{RowRuns, ScanRequest, StorageClient, storage_wait};
use forebay_threads::parallel_map;

/// What is done with the rows of a span.
pub(super) enum RowTransform {
    /// Operations, of which the first wants are the columns.
    Chain(Box<OpChain>),
    /// Nothing, but that rows of other parts are left out.
    Kept(Option<RowCondition>),
}

/// A condition over the columns of a chunk.
pub(super) struct RowCondition {
    pub kernel: ColumnKernel,
    /// Which of its results.
    pub output: usize,
    /// Which columns of the chunk it reads.
    pub reads: Vec<usize>,
}

/// Spans that are read alike.
pub(super) struct ScanPlan {
    pub input: SourceInput,
    pub request: ScanRequest,
    pub transform: RowTransform,
    /// For each column that is fed, its place among those of the way.
    pub places: Vec<usize>,
    /// Rows of other parts are given as well, and told apart: by the last column of a chain, or by the
    /// condition.
    pub flagged: bool,
}

/// Takes columns, how many rows they have, and which of these are of the part that is wanted, where it is
/// not all of them.
pub(super) type EmitColumns<'a> = dyn FnMut(&[ArrayRef], usize, Option<&BooleanArray>) -> Result<ControlFlow<()>> + 'a;

/// Blocks of rows of a pipeline.
pub(super) struct SourceBlocks {
    io: StorageClient,
    readings: Vec<ScanPlan>,
    blocks: Vec<(usize, Span)>,
    dataset: BlockDataset,
}

impl ScanPlan {
    /// Gives the columns of each chunk of a span.
    pub fn each(&self, io: &StorageClient, span: &Span, give: &mut EmitColumns) -> Result<()> {
        let mut carry = Carry::default();
        for chunk in self.input.source.open(io, span, &self.request)? {
            let chunk = chunk.map_err(|fault| fault.file(span.label()))?;
            let mut flow = ControlFlow::Continue(());
            match &self.transform {
                RowTransform::Chain(chain) => {
                    chain.run(std::slice::from_ref(&chunk), &mut carry, &mut |_, input| {
                        flow = match input.columns.split_last().filter(|_| self.flagged) {
                            Some((flags, columns)) => give(columns, input.rows, Some(as_flags(flags)?))?,
                            None => give(input.columns, input.rows, None)?,
                        };
                        Ok(())
                    })?;
                }
                RowTransform::Kept(None) => flow = give(chunk.batch.columns(), chunk.batch.num_rows(), None)?,
                RowTransform::Kept(Some(condition)) if self.flagged => {
                    let keep = condition.holds(&chunk)?;
                    flow = give(chunk.batch.columns(), chunk.batch.num_rows(), Some(as_flags(&keep)?))?;
                }
                RowTransform::Kept(Some(condition)) => {
                    let keep = condition.holds(&chunk)?;
                    let keep = as_flags(&keep)?;
                    let kept = filter_record_batch(&chunk.batch, &and_kleene(keep, &is_not_null(keep)?)?)?;
                    flow = give(kept.columns(), kept.num_rows(), None)?;
                }
            }
            if flow.is_break() {
                break;
            }
        }
        Ok(())
    }

    fn rows(&self, io: &StorageClient, span: &Span) -> Result<u64> {
        let mut count = 0;
        self.each(io, span, &mut |_, rows, _| {
            count += rows as u64;
            Ok(ControlFlow::Continue(()))
        })?;
        Ok(count)
    }
}

impl RowCondition {
    /// Of which rows it holds.
    fn holds(&self, chunk: &Chunk) -> Result<ArrayRef> {
        let columns: Vec<ArrayRef> = self.reads.iter().map(|place| chunk.batch.column(*place).clone()).collect();
        let results = (self.kernel)(&columns, chunk.batch.num_rows())?;
        results.get(self.output).cloned().ok_or_else(|| Fault::internal("a part of the split is no condition"))
    }
}

fn as_flags(flags: &ArrayRef) -> Result<&BooleanArray> {
    flags.as_boolean_opt().ok_or_else(|| Fault::internal("a part of the split is no condition"))
}

/// The pieces of all readings, in order. With `rows_max`, pieces of no more rows where the format can skip to a row.
pub(super) fn cut_pieces(
    io: &StorageClient,
    readings: &[ScanPlan],
    rows_max: Option<u64>,
) -> Result<Vec<(usize, Span)>> {
    let mut blocks = Vec::new();
    for (number, reading) in readings.iter().enumerate() {
        let runs = rows_max.map(|rows_max| RowRuns { rows_max, columns: &reading.request.columns });
        let spans = reading.input.source.split_spans(io, &reading.input.dataset.spans, runs)?;
        blocks.extend(spans.into_iter().map(|span| (number, span)));
    }
    Ok(blocks)
}

/// How many rows each block gives, by reading what decides that.
pub(super) fn count_block_rows(
    io: &StorageClient,
    readings: &[ScanPlan],
    blocks: &[(usize, Span)],
    threads: usize,
) -> Result<Vec<u64>> {
    inspect_blocks(readings, blocks, threads, &|reading, span| reading.rows(io, span))
}

/// What is found out about each block.
pub(super) fn inspect_blocks<T: Send>(
    readings: &[ScanPlan],
    blocks: &[(usize, Span)],
    threads: usize,
    look: &(dyn Fn(&ScanPlan, &Span) -> Result<T> + Sync),
) -> Result<Vec<T>> {
    parallel_map(threads, blocks.len(), &|at| {
        let (reading, span) = &blocks[at];
        look(&readings[*reading], span)
    })
}

impl SourceBlocks {
    /// Blocks of so many rows each. `time` is the place of the time among the watched columns.
    pub fn new(
        io: StorageClient,
        fingerprint: ContentId,
        readings: Vec<ScanPlan>,
        blocks: Vec<(usize, Span)>,
        counts: &[u64],
        time: Option<&str>,
    ) -> SourceBlocks {
        let shares: Vec<f64> = readings.iter().map(read_share).collect();
        let blocks_of = blocks.iter().zip(counts).map(|((reading, span), rows)| {
            let watched = &readings[*reading].input.dataset.watched;
            let place = time.and_then(|time| watched.iter().position(|name| name == time));
            let bytes = (span.bytes() as f64 * shares[*reading]) as u64;
            DatasetBlock { rows: *rows, halo: 0, bytes, time: place.and_then(|place| time_extent(span, place)) }
        });
        let dataset = BlockDataset::new(fingerprint, blocks_of.collect::<Vec<_>>());
        SourceBlocks { io, readings, blocks, dataset }
    }
}

/// Which part of the stored bytes is read.
pub(super) fn read_share(reading: &ScanPlan) -> f64 {
    reading.input.dataset.share_of_columns(&reading.request.columns)
}

fn time_extent(span: &Span, place: usize) -> Option<(i64, i64)> {
    match span.extent(place).map(|extent| (extent.min, extent.max)) {
        Some((BoundValue::Int(first), BoundValue::Int(last))) => Some((first, last)),
        _ => None,
    }
}

impl BlockSource for SourceBlocks {
    fn dataset(&self) -> BlockDataset {
        self.dataset.clone()
    }

    fn read(
        &self,
        block: u32,
        columns: &[String],
        rows: &mut dyn FnMut(RecordBatch) -> ControlFlow<()>,
    ) -> Result<Duration> {
        let (reading, span) = &self.blocks[block as usize];
        let reading = &self.readings[*reading];
        let before = storage_wait();
        reading.each(&self.io, span, &mut |arrays, count, _| Ok(rows(feed_batch(reading, columns, arrays, count)?)))?;
        Ok(storage_wait() - before)
    }

    fn locate_fault(&self, block: u32, fault: Fault) -> Fault {
        let (_, span) = &self.blocks[block as usize];
        fault.note(format!("rows count from the first that the feed got of {}", span.label()))
    }
}

/// The columns in the order of the feed; one may be there twice.
fn feed_batch(reading: &ScanPlan, columns: &[String], arrays: &[ArrayRef], rows: usize) -> Result<RecordBatch> {
    let picked: Vec<ArrayRef> = reading.places.iter().map(|place| arrays[*place].clone()).collect();
    let fields = columns.iter().zip(&picked).map(|(name, array)| Field::new(name, array.data_type().clone(), true));
    let options = RecordBatchOptions::new().with_row_count(Some(rows));
    Ok(RecordBatch::try_new_with_options(Arc::new(Schema::new(fields.collect::<Vec<_>>())), picked, &options)?)
}
