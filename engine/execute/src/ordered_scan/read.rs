//! Reads of single spans, and the reads that are announced to storage.

use std::sync::Arc;

use forebay_model::{Fault, Result, codes};
use forebay_storage::failpoint::reading;
use forebay_storage::{ChunkIterator, ScanRequest};

use super::{OrderedScan, ReadMode, SpanRef};
use crate::chunk_source::{ChunkIter, RangeReader};
use crate::read_ahead::PlannedSpan;
use crate::run_state::scan_request;

/// The hint for a corrupt file that an earlier run wrote.
const REMOVE_IT: &str = "it is a file of the output: remove it, and run again";

impl OrderedScan<'_> {
    /// Announces the spans that are read, in order.
    pub fn plan_reads(&self, reads: impl Iterator<Item = (SpanRef, ReadMode)>) -> Result<()> {
        for (task, columns) in reads {
            self.ahead.plan(self.planned_span(task, columns)?.map(|span| ((task, columns), span)))?;
        }
        Ok(())
    }

    /// The read of a span, unless it goes to a written file.
    fn planned_span(&self, task: SpanRef, columns: ReadMode) -> Result<Option<PlannedSpan>> {
        if matches!(columns, ReadMode::Written(_)) {
            return Ok(None);
        }
        let request = Arc::new(self.span_request(task, columns)?);
        let input = self.known.input(self.program, self.scans[task.scan].base)?.clone();
        Ok(Some(PlannedSpan { input, span: task.span, request }))
    }

    fn span_request(&self, task: SpanRef, columns: ReadMode) -> Result<ScanRequest> {
        let (scan, chain) = (&self.scans[task.scan], self.chains[task.scan]);
        let input = self.known.input(self.program, scan.base)?;
        let mut request = scan_request(self.program, scan, input, self.chunk_rows_max(chain), false);
        match (columns, self.column_path(columns)) {
            (_, Some(track)) => request.columns = track.columns().to_vec(),
            (ReadMode::Remembered, _) => request.columns = chain.advance_columns().to_vec(),
            _ => {}
        }
        Ok(request)
    }

    /// The rows of a span.
    pub fn open_span(&self, task: SpanRef, columns: ReadMode) -> Result<ChunkIterator> {
        let input = self.known.input(self.program, self.scans[task.scan].base)?;
        let span = &input.dataset.spans[task.span];
        let written = if let ReadMode::Written(at) = columns { self.written.get(at) } else { None };
        let label = written.map_or_else(|| span.label(), |written| written.shown.clone());
        reading(&label);
        let chunks = match written {
            Some(written) => written.stored.rows(&self.span_request(task, columns)?)?,
            None => {
                let open = || input.source.open(self.io, span, &self.span_request(task, columns)?);
                self.ahead.take(self.io, (task, columns), open)?
            }
        };
        let is_written = written.is_some();
        let placed = move |fault: Fault| match fault.code() {
            codes::CORRUPT if is_written => fault.file(&*label).hint(REMOVE_IT),
            _ => fault.file(&*label),
        };
        Ok(Box::new(chunks.map(move |chunk| chunk.map_err(&placed))))
    }
}

impl RangeReader for &OrderedScan<'_> {
    fn chunks(&self, task: SpanRef, columns: ReadMode) -> Result<ChunkIter<'_>> {
        Ok(self.open_span(task, columns)?)
    }
}
