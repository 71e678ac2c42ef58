//! Blocks for sequences: rows with the earlier rows of their series.
//!
//! Rows that a part of the split leaves out are still history of those that follow. Where rows lie
//! series by series, the history of a block is the end of the pieces before it; where they lie in
//! order of time, it is all rows within reach. The case is determined once, by reading keys and
//! times.

use std::ops::{ControlFlow, Range};
use std::sync::Arc;
use std::time::Duration;

use arrow::array::{Array, ArrayRef, BooleanArray, Int64Array, RecordBatch};
use arrow::compute::kernels::cmp::gt_eq;
use arrow::compute::{cast, filter_record_batch, prep_null_mask_filter};
use arrow::datatypes::{Field, Schema};
use arrow::row::{RowConverter, Rows, SortField};
use forebay_contract::ChunkIterator;
use forebay_feed::{BlockDataset, BlockSource, DatasetBlock, SequenceOptions};
use forebay_model::{ContentId, Fault, Result, Span, canonical_keys, codes, logical_type, ticks};
use forebay_storage::{StorageClient, storage_wait};
use serde::{Deserialize, Serialize};

use crate::feed::source_blocks::{ScanPlan, read_share};

/// Rows of a block at most, before it is as large as its history.
const BLOCK_ROWS_MAX: u64 = 1 << 18;

/// Minimum number of blocks in a window of the shuffle, where pieces are small enough.
const BLOCKS_IN_WINDOW: u64 = 64;

/// Row counts, times and ends of a piece.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct PieceSummary {
    /// Rows of the piece, and those of the part that is delivered.
    rows: u64,
    delivered: u64,
    /// The first and the last time.
    times: Option<(i64, i64)>,
    /// The first and the last row's key and time, where the rows are in order of both.
    ends: Option<[(Vec<u8>, i64); 2]>,
}

/// Finds out about a piece, whose columns are the keys, the time, and which rows are delivered.
pub(super) fn summarize_piece(
    reading: &ScanPlan,
    span: &Span,
    chunks: ChunkIterator,
) -> Result<PieceSummary> {
    let mut facts = PieceSummary::default();
    let mut sorted = true;
    reading.each(span, chunks, &mut |arrays, rows, delivered| {
        if rows == 0 {
            return Ok(ControlFlow::Continue(()));
        }
        let (keys, time) = arrays.split_at(arrays.len() - 1);
        let keys = encode_keys(keys)?;
        let times = time_ticks(&time[0])?;
        let row = |at: usize| {
            (
                keys.as_ref().map_or(&[][..], |keys| keys.row(at).data()),
                times.value(at),
            )
        };
        let owned = |at: usize| (row(at).0.to_vec(), row(at).1);
        facts.delivered += delivered.map_or(rows, BooleanArray::true_count) as u64;
        facts.rows += rows as u64;
        let (first, last) = times
            .values()
            .iter()
            .fold((i64::MAX, i64::MIN), |(a, b), t| (a.min(*t), b.max(*t)));
        facts.times = Some(facts.times.map_or((first, last), |times_so_far| {
            (times_so_far.0.min(first), times_so_far.1.max(last))
        }));
        sorted = sorted
            && facts
                .ends
                .as_ref()
                .is_none_or(|[_, last]| (last.0.as_slice(), last.1) <= row(0))
            && (1..rows).all(|at| row(at - 1) <= row(at));
        let first = facts
            .ends
            .take()
            .map_or_else(|| owned(0), |[first, _]| first);
        facts.ends = Some([first, owned(rows - 1)]);
        Ok(ControlFlow::Continue(()))
    })?;
    if !sorted {
        facts.ends = None;
    }
    Ok(facts)
}

/// True if pieces lie series by series: the last row of each comes before the first one of the next.
fn is_by_series(facts: &[PieceSummary], filled: &[usize]) -> bool {
    if filled.iter().any(|at| facts[*at].ends.is_none()) {
        return false;
    }
    filled
        .windows(2)
        .all(|pair| match (&facts[pair[0]].ends, &facts[pair[1]].ends) {
            (Some([_, last]), Some([first, _])) => last <= first,
            _ => false,
        })
}

/// Bytes that are in the order of the keys; `None` where there is one series.
fn encode_keys(keys: &[ArrayRef]) -> Result<Option<Rows>> {
    if keys.is_empty() {
        return Ok(None);
    }
    let plain = keys
        .iter()
        .map(|key| canonical_keys(&cast(key, &logical_type(key.data_type()))?));
    let plain = plain.collect::<Result<Vec<_>>>()?;
    let fields = plain
        .iter()
        .map(|key| SortField::new(key.data_type().clone()))
        .collect();
    Ok(Some(RowConverter::new(fields)?.convert_columns(&plain)?))
}

/// Times in their own ticks.
fn time_ticks(times: &ArrayRef) -> Result<Int64Array> {
    if times
        .logical_nulls()
        .is_some_and(|nulls| nulls.null_count() > 0)
    {
        let fault = Fault::new(
            codes::BAD_ROW,
            "rows without a time have no place in a sequence",
        );
        return Err(fault.hint("filter such rows before"));
    }
    ticks(times)
}

/// A block: its own pieces, and the rows to read from those before.
#[derive(Debug)]
struct HistoryBlock {
    before: Range<usize>,
    own: Range<usize>,
    /// Number of rows before the block that are kept, counted from its end.
    last: u64,
    /// Time before which no rows are kept.
    since: Option<i64>,
}

/// Blocks of rows and their history.
pub(super) struct SequenceBlocks {
    io: StorageClient,
    readings: Vec<ScanPlan>,
    pieces: Vec<(usize, Span)>,
    blocks: Vec<HistoryBlock>,
    /// Index of the time among the columns.
    time: usize,
    dataset: BlockDataset,
}

/// Parameters that divide rows into blocks for sequences.
pub(super) struct SequenceCut<'a> {
    pub series: &'a SequenceOptions,
    /// Index of the time among the columns.
    pub time: usize,
    pub window_rows: u64,
}

impl SequenceBlocks {
    /// Blocks of pieces of which the facts are known.
    pub fn new(
        io: StorageClient,
        fingerprint: ContentId,
        readings: Vec<ScanPlan>,
        pieces: Vec<(usize, Span)>,
        facts: &[PieceSummary],
        cut: &SequenceCut<'_>,
    ) -> Result<SequenceBlocks> {
        let label = |at: usize| pieces[at].1.label();
        let blocks = cut_blocks(facts, cut.series, cut.window_rows, &label)?;
        let shares: Vec<f64> = readings.iter().map(read_share).collect();
        let of_block = |block: &HistoryBlock| {
            let mut rows = 0;
            let mut delivered = 0;
            let mut time: Option<(i64, i64)> = None;
            for piece in &facts[block.own.clone()] {
                rows += piece.rows;
                delivered += piece.delivered;
                if let Some((first, last)) = piece.times {
                    let (least, greatest) = time.unwrap_or((first, last));
                    time = Some((least.min(first), greatest.max(last)));
                }
            }
            let history = &facts[block.before.clone()];
            let history_rows: u64 = history.iter().map(|piece| piece.rows).sum();
            let mut bytes = 0;
            for (reading, span) in &pieces[block.before.start..block.own.end] {
                bytes += (span.bytes() as f64 * shares[*reading]) as u64;
            }
            DatasetBlock {
                rows: delivered,
                halo: history_rows.min(block.last) + rows - delivered,
                bytes,
                time,
            }
        };
        let dataset =
            BlockDataset::new(fingerprint, blocks.iter().map(of_block).collect::<Vec<_>>());
        Ok(SequenceBlocks {
            io,
            readings,
            pieces,
            blocks,
            time: cut.time,
            dataset,
        })
    }

    /// Returns the rows of a piece in the order of the feed's columns, with those that are
    /// delivered.
    fn read_piece(
        &self,
        at: usize,
        names: &[String],
        is_own: bool,
        give: &mut dyn FnMut(RecordBatch) -> Result<ControlFlow<()>>,
    ) -> Result<ControlFlow<()>> {
        let (reading, span) = &self.pieces[at];
        let reading = &self.readings[*reading];
        let mut flow = ControlFlow::Continue(());
        let chunks = reading.open(&self.io, span)?;
        reading.each(span, chunks, &mut |arrays, rows, delivered| {
            let mut columns: Vec<ArrayRef> = reading
                .positions
                .iter()
                .map(|position| arrays[*position].clone())
                .collect();
            let flags = match delivered {
                Some(delivered) if is_own && delivered.null_count() > 0 => {
                    prep_null_mask_filter(delivered)
                }
                Some(delivered) if is_own => delivered.clone(),
                _ => BooleanArray::from(vec![is_own; rows]),
            };
            columns.push(Arc::new(flags));
            let fields = names.iter().zip(&columns);
            let fields =
                fields.map(|(name, array)| Field::new(name, array.data_type().clone(), true));
            let schema = Schema::new(fields.collect::<Vec<_>>());
            flow = give(RecordBatch::try_new(Arc::new(schema), columns)?)?;
            Ok(flow)
        })?;
        Ok(flow)
    }
}

/// Cuts pieces into blocks with their history.
fn cut_blocks(
    facts: &[PieceSummary],
    series: &SequenceOptions,
    window_rows: u64,
    label: &dyn Fn(usize) -> String,
) -> Result<Vec<HistoryBlock>> {
    let block_rows = (window_rows / BLOCKS_IN_WINDOW).clamp(1, BLOCK_ROWS_MAX);
    let filled: Vec<usize> = (0..facts.len()).filter(|at| facts[*at].rows > 0).collect();
    let by_series = is_by_series(facts, &filled);
    if !by_series {
        check_time_order(facts, &filled, label)?;
        if series.within.is_none() {
            let message =
                "rows lie in order of time, and nothing says how far back their steps reach";
            return Err(Fault::new(codes::MISSING_FIELD, message).hint(
                "add `within` to `series`, such as `within: 28d`; or write the rows series \
                       by series",
            ));
        }
    }
    let mut blocks = Vec::new();
    let mut next = 0;
    while let Some(&start) = filled.get(next) {
        let history_block = if by_series {
            preceding_pieces(facts, &filled[..=next], series.steps)
        } else {
            let since = facts[start].times.map_or(i64::MIN, |(first, _)| {
                first.saturating_sub(series.within.unwrap_or(0))
            });
            let mut earlier = filled[..next].iter();
            let first = earlier.find(|at| facts[**at].times.is_some_and(|(_, last)| last >= since));
            HistoryBlock {
                before: first.copied().unwrap_or(start)..start,
                own: start..start,
                last: u64::MAX,
                since: Some(since),
            }
        };
        let history: u64 = facts[history_block.before.clone()]
            .iter()
            .map(|piece| piece.rows)
            .sum();
        // A block has as many rows as its history, or the feed would read little but histories.
        let block_rows = if by_series {
            block_rows
        } else {
            block_rows.max(history)
        };
        let mut rows = 0;
        while let Some(&at) = filled.get(next)
            && rows < block_rows
        {
            rows += facts[at].rows;
            next += 1;
        }
        blocks.push(HistoryBlock {
            own: start..filled[next - 1] + 1,
            ..history_block
        });
    }
    Ok(blocks)
}

/// Rows before the last of these pieces that belong to the series that continues in it.
fn preceding_pieces(facts: &[PieceSummary], filled: &[usize], steps: u32) -> HistoryBlock {
    let start = filled[filled.len() - 1];
    let rows_max = u64::from(steps.saturating_sub(1));
    let key = |at: usize, end: usize| facts[at].ends.as_ref().map(|ends| &ends[end].0);
    let mut first = start;
    let mut rows = 0;
    for &at in filled[..filled.len() - 1].iter().rev() {
        if rows >= rows_max || key(at, 1) != key(start, 0) {
            break;
        }
        first = at;
        rows += facts[at].rows;
    }
    HistoryBlock {
        before: first..start,
        own: start..start,
        last: rows_max,
        since: None,
    }
}

fn check_time_order(
    facts: &[PieceSummary],
    filled: &[usize],
    label: &dyn Fn(usize) -> String,
) -> Result<()> {
    let overlap =
        filled
            .windows(2)
            .find(|pair| match (facts[pair[0]].times, facts[pair[1]].times) {
                (Some((_, last)), Some((first, _))) => last > first,
                _ => true,
            });
    let Some(pair) = overlap else { return Ok(()) };
    let message = format!(
        "sequences need rows that lie series by series or in order of time: {} goes back behind \
         the end of {}",
        label(pair[1]),
        label(pair[0])
    );
    Err(Fault::new(codes::OUT_OF_ORDER, message).hint(
        "write the rows with a `sql` step that ends in `ORDER BY` keys and time, and feed \
               that output",
    ))
}

impl BlockSource for SequenceBlocks {
    fn dataset(&self) -> BlockDataset {
        self.dataset.clone()
    }

    fn read(
        &self,
        block: u32,
        columns: &[String],
        rows: &mut dyn FnMut(RecordBatch) -> ControlFlow<()>,
    ) -> Result<Duration> {
        let waiting = storage_wait();
        let block = &self.blocks[block as usize];
        let mut history: Vec<RecordBatch> = Vec::new();
        let mut spare = 0;
        for at in block.before.clone() {
            let _ = self.read_piece(at, columns, false, &mut |batch| {
                let batch = match block.since {
                    Some(since) => {
                        let late = gt_eq(
                            &time_ticks(batch.column(self.time))?,
                            &Int64Array::new_scalar(since),
                        )?;
                        filter_record_batch(&batch, &late)?
                    }
                    None => batch,
                };
                spare += batch.num_rows() as u64;
                history.push(batch);
                // Only the last rows are needed.
                while let Some(first) = history.first()
                    && spare - first.num_rows() as u64 >= block.last
                {
                    spare -= first.num_rows() as u64;
                    history.remove(0);
                }
                Ok(ControlFlow::Continue(()))
            })?;
        }
        let mut skipped = spare.saturating_sub(block.last) as usize;
        for batch in history {
            let skip = std::mem::take(&mut skipped).min(batch.num_rows());
            if rows(batch.slice(skip, batch.num_rows() - skip)).is_break() {
                return Ok(storage_wait() - waiting);
            }
        }
        for at in block.own.clone() {
            if self
                .read_piece(at, columns, true, &mut |batch| Ok(rows(batch)))?
                .is_break()
            {
                break;
            }
        }
        Ok(storage_wait() - waiting)
    }

    fn locate_fault(&self, block: u32, fault: Fault) -> Fault {
        let block = &self.blocks[block as usize];
        let first = self.pieces[block.before.start].1.label();
        fault.note(format!(
            "rows count from the first that the feed read of {first}, series' history included"
        ))
    }
}
