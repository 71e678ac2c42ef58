//! Blocks over the spans of sources: row groups are read by our own scans, and the operations of a
//! pipeline are applied while reading.

use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::Duration;

use arrow::array::{ArrayRef, AsArray, BooleanArray, RecordBatch, RecordBatchOptions};
use arrow::compute::{and_kleene, filter_record_batch, is_not_null};
use arrow::datatypes::{Field, Schema};
use forebay_contract::{ChunkIterator, RowRuns, ScanRequest};
use forebay_execute::{PlannedSpan, ReadAhead, SourceInput};
use forebay_feed::{BlockDataset, BlockSource, DatasetBlock};
use forebay_model::{BoundValue, Chunk, ContentId, Dataset, Fault, Result, Span};
use forebay_plan::{Carry, ColumnKernel, OpChain};
use forebay_storage::{StorageClient, storage_wait};
use forebay_threads::parallel_map;

/// Minimum number of blocks of a feed that are opened ahead.
const BLOCKS_OPEN_MIN: usize = 4;

/// Transformation of the rows of a span.
pub(super) enum RowTransform {
    /// Operations, whose first output holds the columns.
    Chain(Box<OpChain>),
    /// No operation, except that rows of other parts are dropped.
    Kept(Option<RowCondition>),
}

/// A condition over the columns of a chunk.
pub(super) struct RowCondition {
    pub kernel: ColumnKernel,
    /// Number of the kernel's output.
    pub output: usize,
    /// Indexes of the columns of the chunk that the kernel reads.
    pub reads: Vec<usize>,
}

/// Spans that are read with equal plans.
pub(super) struct ScanPlan {
    pub input: SourceInput,
    pub request: ScanRequest,
    pub transform: RowTransform,
    /// For each fed column, its index among the columns that are read.
    pub positions: Vec<usize>,
    /// True if rows of other parts are returned as well, marked by the last column of a chain or by
    /// the condition.
    pub flagged: bool,
}

/// Callback that takes columns, their number of rows, and a mask of the rows of the selected part,
/// if that is not all of them.
pub(super) type EmitColumns<'a> =
    dyn FnMut(&[ArrayRef], usize, Option<&BooleanArray>) -> Result<ControlFlow<()>> + 'a;

/// Blocks of rows of a pipeline.
pub(super) struct SourceBlocks {
    readings: Vec<ScanPlan>,
    scans: BlockScans,
    dataset: BlockDataset,
    /// Ids of the stored rows of each block, if they are known.
    ids: Vec<ContentId>,
}

impl ScanPlan {
    /// Opens a span.
    pub fn open(&self, io: &StorageClient, span: &Span) -> Result<ChunkIterator> {
        self.input.source.open(io, span, &self.request)
    }

    /// Passes the columns of each chunk of a span to `give`.
    pub fn each(&self, span: &Span, chunks: ChunkIterator, give: &mut EmitColumns) -> Result<()> {
        let mut carry = Carry::default();
        for chunk in chunks {
            let chunk = chunk.map_err(|fault| fault.file(span.label()))?;
            let mut flow = ControlFlow::Continue(());
            match &self.transform {
                RowTransform::Chain(chain) => {
                    for part in chunk.divided() {
                        chain.run(&[part], &mut carry, &mut |_, input| {
                            flow = match input.columns.split_last().filter(|_| self.flagged) {
                                Some((flags, columns)) => {
                                    give(columns, input.rows, Some(as_flags(flags)?))?
                                }
                                None => give(input.columns, input.rows, None)?,
                            };
                            Ok(())
                        })?;
                        if flow.is_break() {
                            break;
                        }
                    }
                }
                RowTransform::Kept(None) => {
                    flow = give(chunk.batch.columns(), chunk.batch.num_rows(), None)?
                }
                RowTransform::Kept(Some(condition)) if self.flagged => {
                    let keep = condition.holds(&chunk)?;
                    flow = give(
                        chunk.batch.columns(),
                        chunk.batch.num_rows(),
                        Some(as_flags(&keep)?),
                    )?;
                }
                RowTransform::Kept(Some(condition)) => {
                    let keep = condition.holds(&chunk)?;
                    let keep = as_flags(&keep)?;
                    let selected =
                        filter_record_batch(&chunk.batch, &and_kleene(keep, &is_not_null(keep)?)?)?;
                    flow = give(selected.columns(), selected.num_rows(), None)?;
                }
            }
            if flow.is_break() {
                break;
            }
        }
        Ok(())
    }

    fn rows(&self, span: &Span, chunks: ChunkIterator) -> Result<u64> {
        let mut count = 0;
        self.each(span, chunks, &mut |_, rows, _| {
            count += rows as u64;
            Ok(ControlFlow::Continue(()))
        })?;
        Ok(count)
    }
}

impl RowCondition {
    /// Evaluates the condition: true for rows of the part.
    fn holds(&self, chunk: &Chunk) -> Result<ArrayRef> {
        let columns: Vec<ArrayRef> = self
            .reads
            .iter()
            .map(|position| chunk.batch.column(*position).clone())
            .collect();
        let results = (self.kernel)(&columns, chunk.batch.num_rows())?;
        results
            .get(self.output)
            .cloned()
            .ok_or_else(|| Fault::internal("a part of the split is no condition"))
    }
}

fn as_flags(flags: &ArrayRef) -> Result<&BooleanArray> {
    flags
        .as_boolean_opt()
        .ok_or_else(|| Fault::internal("a part of the split is no condition"))
}

/// The pieces of all readings, in order. With `rows_max`, pieces of no more rows where the format can skip to a row.
pub(super) fn cut_pieces(
    io: &StorageClient,
    readings: &[ScanPlan],
    rows_max: Option<u64>,
) -> Result<Vec<(usize, Span)>> {
    let mut blocks = Vec::new();
    for (number, reading) in readings.iter().enumerate() {
        let runs = rows_max.map(|rows_max| RowRuns {
            rows_max,
            columns: &reading.request.columns,
        });
        let spans = reading
            .input
            .source
            .split_spans(io, &reading.input.dataset.spans, runs)?;
        blocks.extend(spans.into_iter().map(|span| (number, span)));
    }
    Ok(blocks)
}

/// Number of rows of each block, by reading only the columns that decide it.
pub(super) fn count_block_rows(
    io: &StorageClient,
    readings: &[ScanPlan],
    blocks: &[(usize, Span)],
    threads: usize,
) -> Result<Vec<u64>> {
    inspect_blocks(io, readings, blocks, threads, &|reading, span, chunks| {
        reading.rows(span, chunks)
    })
}

/// Result of `look` for each block.
pub(super) fn inspect_blocks<T: Send>(
    io: &StorageClient,
    readings: &[ScanPlan],
    blocks: &[(usize, Span)],
    threads: usize,
    look: &(dyn Fn(&ScanPlan, &Span, ChunkIterator) -> Result<T> + Sync),
) -> Result<Vec<T>> {
    let opened = BlockScans::new(io.clone(), readings, blocks.to_vec(), threads);
    opened.plan(0..blocks.len())?;
    parallel_map(threads, blocks.len(), &|at| {
        let (reading, span) = opened.block(at);
        look(&readings[reading], span, opened.open(at)?)
    })
}

/// The blocks of some readings, of which those that come next are opened before they are read.
struct BlockScans {
    io: StorageClient,
    /// For each reading, its blocks as spans, and the columns that are read of them.
    inputs: Vec<(SourceInput, Arc<ScanRequest>)>,
    /// The reading of each block, and its place among the spans of that.
    positions: Vec<(usize, usize)>,
    ahead: ReadAhead<usize>,
}

impl BlockScans {
    fn new(
        io: StorageClient,
        readings: &[ScanPlan],
        blocks: Vec<(usize, Span)>,
        threads: usize,
    ) -> BlockScans {
        let mut spans: Vec<Vec<Span>> = readings.iter().map(|_| Vec::new()).collect();
        let mut positions = Vec::with_capacity(blocks.len());
        for (reading, span) in blocks {
            positions.push((reading, spans[reading].len()));
            spans[reading].push(span);
        }
        let mut inputs = Vec::with_capacity(readings.len());
        for (reading, spans) in readings.iter().zip(spans) {
            let dataset = Arc::new(Dataset {
                spans,
                ..reading.input.dataset.as_ref().clone()
            });
            let input = SourceInput {
                dataset,
                ..reading.input.clone()
            };
            inputs.push((input, Arc::new(reading.request.clone())));
        }
        BlockScans {
            io,
            inputs,
            positions,
            ahead: ReadAhead::new(threads),
        }
    }

    /// The reading of a block, and its span.
    fn block(&self, at: usize) -> (usize, &Span) {
        let (reading, position) = self.positions[at];
        (reading, &self.inputs[reading].0.dataset.spans[position])
    }

    /// Announces blocks that are read in this order.
    fn plan(&self, blocks: impl Iterator<Item = usize>) -> Result<()> {
        self.ahead.plan(blocks.map(|at| {
            let (reading, span) = self.positions[at];
            let (input, request) = self.inputs[reading].clone();
            (
                at,
                PlannedSpan {
                    input,
                    span,
                    request,
                },
            )
        }))
    }

    fn open(&self, at: usize) -> Result<ChunkIterator> {
        let (reading, span) = self.block(at);
        let (input, request) = &self.inputs[reading];
        self.ahead
            .take(&self.io, at, || input.source.open(&self.io, span, request))
    }
}

impl SourceBlocks {
    /// Blocks of `counts` rows each. `time` is the name of the time among the watched columns.
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
            let position = time.and_then(|time| watched.iter().position(|name| name == time));
            let bytes = (span.bytes() as f64 * shares[*reading]) as u64;
            DatasetBlock {
                rows: *rows,
                halo: 0,
                bytes,
                time: position.and_then(|position| time_extent(span, position)),
            }
        });
        let dataset = BlockDataset::new(fingerprint, blocks_of.collect::<Vec<_>>());
        let scans = BlockScans::new(io, &readings, blocks, BLOCKS_OPEN_MIN);
        SourceBlocks {
            readings,
            scans,
            dataset,
            ids: Vec::new(),
        }
    }

    /// Sets the ids of the stored rows of the blocks.
    pub fn with_ids(self, ids: Vec<ContentId>) -> SourceBlocks {
        SourceBlocks { ids, ..self }
    }
}

/// Share of the stored bytes that is read.
pub(super) fn read_share(reading: &ScanPlan) -> f64 {
    reading
        .input
        .dataset
        .share_of_columns(&reading.request.columns)
}

fn time_extent(span: &Span, position: usize) -> Option<(i64, i64)> {
    match span.extent(position).map(|extent| (extent.min, extent.max)) {
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
        let (reading, span) = self.scans.block(block as usize);
        let reading = &self.readings[reading];
        let wait_before = storage_wait();
        let chunks = self.scans.open(block as usize)?;
        reading.each(span, chunks, &mut |arrays, count, _| {
            Ok(rows(feed_batch(reading, columns, arrays, count)?))
        })?;
        Ok(storage_wait() - wait_before)
    }

    fn announce(&self, blocks: &[u32]) {
        // Blocks that are not announced are opened when they are read.
        let _ = self.scans.plan(blocks.iter().map(|block| *block as usize));
    }

    fn block_id(&self, block: u32) -> Option<ContentId> {
        self.ids.get(block as usize).copied()
    }

    fn locate_fault(&self, block: u32, fault: Fault) -> Fault {
        let (_, span) = self.scans.block(block as usize);
        fault.note(format!(
            "rows count from the first that the feed got of {}",
            span.label()
        ))
    }
}

/// The columns in the order of the feed; one may be there twice.
fn feed_batch(
    reading: &ScanPlan,
    columns: &[String],
    arrays: &[ArrayRef],
    rows: usize,
) -> Result<RecordBatch> {
    let picked: Vec<ArrayRef> = reading
        .positions
        .iter()
        .map(|position| arrays[*position].clone())
        .collect();
    let fields = columns
        .iter()
        .zip(&picked)
        .map(|(name, array)| Field::new(name, array.data_type().clone(), true));
    let options = RecordBatchOptions::new().with_row_count(Some(rows));
    Ok(RecordBatch::try_new_with_options(
        Arc::new(Schema::new(fields.collect::<Vec<_>>())),
        picked,
        &options,
    )?)
}
