//! A source as it was at the end of an interval.

use std::collections::BTreeMap;
use std::sync::Arc;

use arrow::array::BooleanArray;
use arrow::compute::filter_record_batch;
use forebay_contract::{ChunkIterator, ScanRequest, Source};
use forebay_model::{
    BoundValue, Chunk, ContentId, Dataset, IdBuilder, Result, RowKeys, Span, TimeCutoff, ticks,
};
use forebay_storage::StorageClient;

use crate::source_input::SourceInput;

/// A source as it was at the time `end`: without spans after it, and with only the rows before it
/// of spans that reach beyond it. Rows without a time lie outside of every interval, in any span:
/// they are filtered.
pub fn truncate_at(input: SourceInput, time: &str, end: &TimeCutoff) -> Result<SourceInput> {
    let SourceInput {
        dataset,
        source,
        in_time_order,
    } = input;
    let last = end.last_tick(dataset.schema.field_with_name(time)?)?;
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
    let source: Arc<dyn Source> = if whole.is_empty() {
        source
    } else {
        Arc::new(TruncatedSource {
            inner: source,
            time: time.to_owned(),
            last,
            whole,
        })
    };
    Ok(SourceInput {
        dataset: Arc::new(dataset),
        source,
        in_time_order,
    })
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
    fn discover(&self, io: &StorageClient, watched_columns: &[String]) -> Result<Dataset> {
        self.inner.discover(io, watched_columns)
    }

    fn paths(&self) -> Vec<String> {
        self.inner.paths()
    }

    fn open(
        &self,
        io: &StorageClient,
        span: &Span,
        request: &ScanRequest,
    ) -> Result<ChunkIterator> {
        if !span
            .pieces
            .iter()
            .any(|piece| self.whole.contains_key(&piece.fingerprint))
        {
            return self.inner.open(io, span, request);
        }
        let mut span = span.clone();
        let mut request = request.clone();
        for piece in &mut span.pieces {
            piece.fingerprint = self
                .whole
                .get(&piece.fingerprint)
                .copied()
                .unwrap_or(piece.fingerprint);
        }
        let reads_time = request.columns.contains(&self.time);
        if !reads_time {
            request.columns.push(self.time.clone());
        }
        let time = self.time.clone();
        let last = self.last;
        let chunks = self.inner.open(io, &span, &request)?;
        Ok(Box::new(chunks.map(move |chunk| {
            rows_up_to(chunk?, &time, last, reads_time)
        })))
    }
}

/// The rows of a chunk up to a tick. The time column is dropped unless the request
/// `reads_time`.
fn rows_up_to(chunk: Chunk, time: &str, last: i64, reads_time: bool) -> Result<Chunk> {
    let Chunk {
        batch,
        keys,
        file,
        first_row,
        skipped,
        unfit,
    } = chunk;
    let rows = batch.num_rows();
    let index = batch.schema_ref().index_of(time)?;
    let times = ticks(batch.column(index))?;
    let seen: Vec<bool> = times
        .iter()
        .map(|tick| tick.is_some_and(|tick| tick <= last))
        .collect();
    let keys = keys.map(|keys| {
        let kept_keys = keys.as_slice().iter().zip(&seen).filter(|(_, seen)| **seen);
        RowKeys::from_keys(kept_keys.map(|(key, _)| *key))
    });
    let mut batch = filter_record_batch(&batch, &BooleanArray::from(seen))?;
    if !reads_time {
        let others: Vec<usize> = (0..batch.num_columns())
            .filter(|column| *column != index)
            .collect();
        batch = batch.project(&others)?;
    }
    let skipped = skipped + (rows - batch.num_rows()) as u64;
    Ok(Chunk {
        batch,
        keys,
        file,
        first_row,
        skipped,
        unfit,
    })
}
