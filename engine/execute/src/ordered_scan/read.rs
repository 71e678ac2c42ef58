//! Reads of single spans, and the reads that are announced to storage.

use std::sync::Arc;

use forebay_contract::{ChunkIterator, ScanRequest};
use forebay_model::Result;
use forebay_storage::failpoint::reading;

use super::OrderedScan;
use crate::chunk_source::{ChunkIter, RangeReader};
use crate::chunk_source::{ReadMode, SpanRef};
use crate::read_ahead::PlannedSpan;
use crate::run_state::scan_request;

impl OrderedScan<'_> {
    /// Announces the spans that are read, in order.
    pub fn plan_reads(&self, reads: impl Iterator<Item = (SpanRef, ReadMode)>) -> Result<()> {
        for (task, columns) in reads {
            self.ahead
                .plan([((task, columns), self.planned_span(task, columns)?)])?;
        }
        Ok(())
    }

    fn planned_span(&self, task: SpanRef, columns: ReadMode) -> Result<PlannedSpan> {
        let request = Arc::new(self.span_request(task, columns)?);
        let input = self.context.input(self.scans[task.scan].base)?.clone();
        Ok(PlannedSpan {
            input,
            span: task.span,
            request,
        })
    }

    fn span_request(&self, task: SpanRef, columns: ReadMode) -> Result<ScanRequest> {
        let scan = &self.scans[task.scan];
        let chain = self.chains[task.scan];
        let input = self.context.input(scan.base)?;
        let mut request = scan_request(
            self.context.program,
            scan,
            input,
            self.chunk_rows_max(chain),
            false,
        );
        if columns == ReadMode::Remembered {
            request.columns = chain.advance_columns().to_vec();
        }
        Ok(request)
    }

    /// The rows of a span.
    pub fn open_span(&self, task: SpanRef, columns: ReadMode) -> Result<ChunkIterator> {
        let io = self.context.io;
        let input = self.context.input(self.scans[task.scan].base)?;
        let span = &input.dataset.spans[task.span];
        let label = span.label();
        reading(&label);
        let chunks = self.ahead.take(io, (task, columns), || {
            let request = self.span_request(task, columns)?;
            input.source.open(io, span, &request)
        })?;
        Ok(Box::new(chunks.map(move |chunk| {
            chunk.map_err(|fault| fault.file(&*label))
        })))
    }
}

impl RangeReader for &OrderedScan<'_> {
    fn chunks(&self, task: SpanRef, columns: ReadMode) -> Result<ChunkIter<'_>> {
        Ok(self.open_span(task, columns)?)
    }
}
