//! A part of time: what is seen ends with it, and what is written lies inside it.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

use arrow::array::{BooleanArray, RecordBatch};
use arrow::compute::filter_record_batch;
use arrow::datatypes::Field;
use forebay_model::{
    BoundValue, Chunk, ColumnExtent, ContentId, Dataset, Fault, IdBuilder, Result, RowKeys, Span, codes,
};
use forebay_plan::span_extents;
use forebay_storage::{ChunkIterator, ScanRequest, Source, StorageClient};
use serde::{Deserialize, Serialize};

use crate::pass::SourceInput;
use crate::perturb::{TimeCutoff, ticks};

/// From a time on, and before another: dates, timestamps, or numbers where times are numbers.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Interval {
    /// The first time.
    pub from: String,
    /// The first time that no longer belongs to it.
    pub to: String,
}

impl Interval {
    /// Its first and last tick in a column of times.
    pub(crate) fn ticks(&self, time: &Field) -> Result<(i64, i64)> {
        let first = TimeCutoff::before(&self.from).last_tick(time)?.saturating_add(1);
        let last = TimeCutoff::before(&self.to).last_tick(time)?;
        if first > last {
            let message = format!("the interval from {} to {} holds no value of `{}`", self.from, self.to, time.name());
            return Err(Fault::new(codes::BAD_VALUE, message).hint("its end lies after its start, and outside of it"));
        }
        Ok((first, last))
    }
}

/// The rows of a sink that lie in an interval.
#[derive(Debug, Clone)]
pub(crate) struct IntervalFilter {
    /// The sink's column that holds the time.
    pub column: String,
    /// The column of the source that it is, if it is one.
    pub base: Option<String>,
    pub first: i64,
    pub last: i64,
}

impl IntervalFilter {
    /// Consecutive spans that hold all rows of the interval.
    pub fn overlapping_spans(&self, dataset: &Dataset) -> Range<usize> {
        let all = 0..dataset.spans.len();
        let Some(extents) = self.base.as_ref().and_then(|base| span_extents(dataset, base)) else { return all };
        let meets = |extent: &ColumnExtent| {
            extent.max >= BoundValue::Int(self.first) && extent.min <= BoundValue::Int(self.last)
        };
        match (extents.iter().position(meets), extents.iter().rposition(meets)) {
            (Some(from), Some(to)) => from..to + 1,
            _ => all.end..all.end,
        }
    }

    /// The rows of a batch that lie in the interval.
    pub fn filter_rows(&self, batch: RecordBatch) -> Result<RecordBatch> {
        let column = batch.column_by_name(&self.column).ok_or_else(|| Fault::internal("the time of a sink is gone"))?;
        let inside = |tick: Option<i64>| Some(tick.is_some_and(|tick| (self.first..=self.last).contains(&tick)));
        let mask: BooleanArray = ticks(column)?.iter().map(inside).collect();
        match mask.true_count() == batch.num_rows() {
            true => Ok(batch),
            false => Ok(filter_record_batch(&batch, &mask)?),
        }
    }
}

/// A source as it was when time had come as far as the end of an interval: spans after it are not
/// there, and of those that reach beyond it only the rows before. Rows without a time lie outside of every
/// interval, in whatever span they are: they are filtered.
pub(crate) fn truncate_at(input: SourceInput, time: &str, interval: &Interval) -> Result<SourceInput> {
    let SourceInput { dataset, source, in_time_order } = input;
    let (_, last) = interval.ticks(dataset.schema.field_with_name(time)?)?;
    let mut dataset = Arc::unwrap_or_clone(dataset);
    let watched = dataset.watched.iter().position(|name| name == time);
    let mut whole = BTreeMap::new();
    let mut spans = Vec::with_capacity(dataset.spans.len());
    for mut span in std::mem::take(&mut dataset.spans) {
        match watched.and_then(|watched| span.extent(watched)) {
            Some(extent) if extent.min > BoundValue::Int(last) => continue,
            Some(extent) if extent.max <= BoundValue::Int(last) && !extent.nulls => {}
            None if span.rows() == Some(0) => {}
            extent => {
                let is_before = extent.is_some_and(|extent| extent.max <= BoundValue::Int(last));
                for piece in &mut span.pieces {
                    let mut id = IdBuilder::new("until");
                    id.id(piece.fingerprint);
                    // What is before the end is the same for all later ends.
                    if is_before {
                        id.text("all rows with a time");
                    } else {
                        id.bytes(&last.to_le_bytes());
                    }
                    let cut = id.finish();
                    whole.insert(cut, std::mem::replace(&mut piece.fingerprint, cut));
                    piece.rows = None;
                }
            }
        }
        spans.push(span);
    }
    dataset.spans = spans;
    let source: Arc<dyn Source> = match whole.is_empty() {
        true => source,
        false => Arc::new(TruncatedSource { inner: source, time: time.to_owned(), last, whole }),
    };
    Ok(SourceInput { dataset: Arc::new(dataset), source, in_time_order })
}

/// A source some of whose spans reach beyond an end.
#[derive(Debug)]
struct TruncatedSource {
    inner: Arc<dyn Source>,
    time: String,
    last: i64,
    /// The fingerprints of pieces that are read in part, by those that they have here.
    whole: BTreeMap<ContentId, ContentId>,
}

impl Source for TruncatedSource {
    fn discover(&self, io: &StorageClient, watch: &[String]) -> Result<Dataset> {
        self.inner.discover(io, watch)
    }

    fn open(&self, io: &StorageClient, span: &Span, request: &ScanRequest) -> Result<ChunkIterator> {
        if !span.pieces.iter().any(|piece| self.whole.contains_key(&piece.fingerprint)) {
            return self.inner.open(io, span, request);
        }
        let (mut span, mut request) = (span.clone(), request.clone());
        for piece in &mut span.pieces {
            piece.fingerprint = self.whole.get(&piece.fingerprint).copied().unwrap_or(piece.fingerprint);
        }
        let asked = request.columns.contains(&self.time);
        if !asked {
            request.columns.push(self.time.clone());
        }
        let (time, last) = (self.time.clone(), self.last);
        let chunks = self.inner.open(io, &span, &request)?;
        Ok(Box::new(chunks.map(move |chunk| rows_up_to(chunk?, &time, last, asked))))
    }
}

/// The rows of a chunk up to a tick. The time column is dropped unless it was `asked` for.
fn rows_up_to(chunk: Chunk, time: &str, last: i64, asked: bool) -> Result<Chunk> {
    let Chunk { batch, keys, file, first_row, skipped } = chunk;
    let rows = batch.num_rows();
    let place = batch.schema_ref().index_of(time)?;
    let times = ticks(batch.column(place))?;
    let seen: Vec<bool> = times.iter().map(|tick| tick.is_some_and(|tick| tick <= last)).collect();
    let keys = keys.map(|keys| {
        let kept = keys.as_slice().iter().zip(&seen).filter(|(_, seen)| **seen);
        RowKeys::from_keys(kept.map(|(key, _)| *key))
    });
    let mut batch = filter_record_batch(&batch, &BooleanArray::from(seen))?;
    if !asked {
        let others: Vec<usize> = (0..batch.num_columns()).filter(|column| *column != place).collect();
        batch = batch.project(&others)?;
    }
    let skipped = skipped + (rows - batch.num_rows()) as u64;
    Ok(Chunk { batch, keys, file, first_row, skipped })
}
