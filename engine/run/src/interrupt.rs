//! Stopping early: whoever is asked to stop sets a flag, and whoever reads rows looks at it.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use forebay_model::{Dataset, Fault, Result, Span, codes};

use crate::{Chunks, Io, Notes, ScanRequest, Source};

/// Whether a run should stop. Clones share it.
#[derive(Debug, Clone, Default)]
pub struct Interrupt(Arc<AtomicBool>);

impl Interrupt {
    /// What signal handlers set.
    pub fn flag(&self) -> Arc<AtomicBool> {
        self.0.clone()
    }

    /// Fails when the run should stop.
    pub fn check(&self) -> Result<()> {
        match self.0.load(Ordering::Relaxed) {
            false => Ok(()),
            true => {
                let fault = Fault::new(codes::INTERRUPTED, "the run was asked to stop");
                Err(fault.hint("what is committed stays; run the same command again to go on"))
            }
        }
    }
}

/// A source that gives no more rows once the run should stop: no pass outlives its rows by much.
#[derive(Debug)]
pub(crate) struct Stoppable {
    pub inner: Arc<dyn Source>,
    pub interrupt: Interrupt,
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
        let (chunks, interrupt) = (self.inner.open(io, span, request)?, self.interrupt.clone());
        Ok(Box::new(chunks.map(move |chunk| interrupt.check().and(chunk))))
    }

    fn cut(&self, io: &Io, spans: &[Span]) -> Result<Vec<Span>> {
        self.inner.cut(io, spans)
    }
}
