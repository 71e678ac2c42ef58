//! A source that stops when its run is cancelled or taken over.

use std::sync::Arc;

use forebay_model::{Dataset, Result, Span, caught};
use forebay_storage::{Chunks, Interrupt, Io, Notes, RowRuns, ScanRequest, Source};

use crate::claim::Claim;

/// A source that gives no more rows once the run should stop: no pass outlives its rows by much.
#[derive(Debug)]
pub(crate) struct Stoppable {
    pub inner: Arc<dyn Source>,
    pub interrupt: Interrupt,
    pub claim: Option<Arc<Claim>>,
}

impl Source for Stoppable {
    fn discover(&self, io: &Io, watch: &[String]) -> Result<Dataset> {
        self.inner.discover(io, watch)
    }

    fn rediscover(&self, io: &Io, watch: &[String], notes: &Notes) -> Result<Dataset> {
        self.inner.rediscover(io, watch, notes)
    }

    fn open(&self, io: &Io, span: &Span, request: &ScanRequest) -> Result<Chunks> {
        self.interrupt.check()?;
        self.claim.as_ref().map_or(Ok(()), |claim| claim.look())?;
        // A panic is a fault like others: the caller adds the file.
        let mut chunks = caught(|| self.inner.open(io, span, request))?;
        let interrupt = self.interrupt.clone();
        let mut next = move || caught(|| chunks.next().transpose()).transpose();
        Ok(Box::new(std::iter::from_fn(move || next().map(|chunk| interrupt.check().and(chunk)))))
    }

    fn cut(&self, io: &Io, spans: &[Span], runs: Option<RowRuns>) -> Result<Vec<Span>> {
        self.inner.cut(io, spans, runs)
    }
}
