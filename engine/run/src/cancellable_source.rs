//! A source that stops when its run is cancelled or taken over.

use std::sync::Arc;

use forebay_commit::AttemptFence;
use forebay_model::{Dataset, Result, Span, catch_panic};
use forebay_storage::{
    CancellationToken, ChunkIterator, MetadataCache, RowRuns, ScanRequest, Source, StorageClient,
};

/// A source that gives no more rows once the run should stop: no pass outlives its rows by much.
#[derive(Debug)]
pub(crate) struct CancellableSource {
    pub inner: Arc<dyn Source>,
    pub interrupt: CancellationToken,
    pub claim: Option<Arc<AttemptFence>>,
}

impl Source for CancellableSource {
    fn discover(&self, io: &StorageClient, watch: &[String]) -> Result<Dataset> {
        self.inner.discover(io, watch)
    }

    fn discover_with_cache(
        &self,
        io: &StorageClient,
        watch: &[String],
        notes: &MetadataCache,
    ) -> Result<Dataset> {
        self.inner.discover_with_cache(io, watch, notes)
    }

    fn open(
        &self,
        io: &StorageClient,
        span: &Span,
        request: &ScanRequest,
    ) -> Result<ChunkIterator> {
        self.interrupt.check()?;
        self.claim
            .as_ref()
            .map_or(Ok(()), |claim| claim.check_throttled())?;
        // A panic is a fault like others: the caller adds the file.
        let mut chunks = catch_panic(|| self.inner.open(io, span, request))?;
        let interrupt = self.interrupt.clone();
        let mut next = move || catch_panic(|| chunks.next().transpose()).transpose();
        Ok(Box::new(std::iter::from_fn(move || {
            next().map(|chunk| interrupt.check().and(chunk))
        })))
    }

    fn split_spans(
        &self,
        io: &StorageClient,
        spans: &[Span],
        runs: Option<RowRuns>,
    ) -> Result<Vec<Span>> {
        self.inner.split_spans(io, spans, runs)
    }
}
