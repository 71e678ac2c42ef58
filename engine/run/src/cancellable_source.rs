//! A source that stops when its run is cancelled or taken over.

use std::sync::Arc;

use forebay_commit::AttemptFence;
use forebay_contract::{ChunkIterator, ScanRequest, Source, SourceWrapper};
use forebay_model::{Result, Span, catch_panic};
use forebay_storage::{CancellationToken, StorageClient};

/// A source that stops once the run is cancelled: no pass outlives its rows by much.
#[derive(Debug)]
pub(crate) struct CancellableSource {
    pub inner: Arc<dyn Source>,
    pub interrupt: CancellationToken,
    pub fence: Option<Arc<AttemptFence>>,
}

impl SourceWrapper for CancellableSource {
    fn inner(&self) -> &dyn Source {
        self.inner.as_ref()
    }

    fn open_span(
        &self,
        io: &StorageClient,
        span: &Span,
        request: &ScanRequest,
    ) -> Result<ChunkIterator> {
        self.interrupt.check()?;
        self.fence
            .as_ref()
            .map_or(Ok(()), |fence| fence.check_throttled())?;
        // A panic is a fault like others: the caller adds the file.
        let mut chunks = catch_panic(|| self.inner.open(io, span, request))?;
        let cancellation = self.interrupt.clone();
        let mut next = move || catch_panic(|| chunks.next().transpose()).transpose();
        Ok(Box::new(std::iter::from_fn(move || {
            next().map(|chunk| cancellation.check().and(chunk))
        })))
    }
}
