//! Spans that are opened before a thread reads them: a remote store then sends the next bytes while
//! rows are decoded.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};

use forebay_contract::{ChunkIterator, ScanRequest};
use forebay_model::Result;
use forebay_storage::StorageClient;
use forebay_threads::lock;

use crate::source_input::SourceInput;

/// Spans that are open at a time at most, besides those that are being read.
const OPEN_MAX: usize = 64;

/// The spans that a pass will read, named by `K`, in about this order. Those that were not announced are opened when they
/// are read.
pub struct ReadAhead<K> {
    state: Mutex<ReadAheadState<K>>,
    /// Minimum number of spans that are kept open: one for each thread.
    open_min: usize,
}

struct ReadAheadState<K> {
    planned: VecDeque<(K, PlannedSpan)>,
    open: Vec<(K, ChunkIterator)>,
}

/// Span of a dataset and the planned read of it.
pub struct PlannedSpan {
    pub input: SourceInput,
    pub span: usize,
    pub request: Arc<ScanRequest>,
}

impl PlannedSpan {
    /// True if the span lies in a remote store.
    fn is_remote(&self) -> bool {
        self.input.dataset.spans[self.span]
            .pieces
            .first()
            .is_some_and(|piece| piece.path.contains("://"))
    }

    fn open(&self, io: &StorageClient) -> Result<ChunkIterator> {
        self.input
            .source
            .open(io, &self.input.dataset.spans[self.span], &self.request)
    }
}

impl<K: Copy + PartialEq> ReadAhead<K> {
    /// Creates the reader for `threads` threads.
    pub fn new(threads: usize) -> Self {
        let state = ReadAheadState {
            planned: VecDeque::new(),
            open: Vec::new(),
        };
        ReadAhead {
            state: Mutex::new(state),
            open_min: threads.clamp(1, OPEN_MAX),
        }
    }

    /// Announces spans. Those on a local disk are left to the system's read-ahead.
    pub fn plan(&self, spans: impl IntoIterator<Item = (K, PlannedSpan)>) -> Result<()> {
        lock(&self.state)?
            .planned
            .extend(spans.into_iter().filter(|(_, span)| span.is_remote()));
        Ok(())
    }

    /// Drops the spans that were announced and not read.
    pub fn clear(&self) -> Result<()> {
        let mut state = lock(&self.state)?;
        state.planned.clear();
        let open = std::mem::take(&mut state.open);
        drop(state);
        drop(open);
        Ok(())
    }

    /// The chunks of a span. The spans that follow it are opened, as far as memory allows.
    pub fn take(
        &self,
        io: &StorageClient,
        span: K,
        open: impl FnOnce() -> Result<ChunkIterator>,
    ) -> Result<ChunkIterator> {
        let mut state = lock(&self.state)?;
        let opened_ahead = match state
            .open
            .iter()
            .position(|(open_span, _)| *open_span == span)
        {
            Some(position) => Some(state.open.swap_remove(position).1),
            None => {
                if let Some(position) = state
                    .planned
                    .iter()
                    .position(|(planned_span, _)| *planned_span == span)
                {
                    state.planned.remove(position);
                }
                None
            }
        };
        // The span itself comes first.
        let chunks = match opened_ahead {
            Some(chunks) => chunks,
            None if state.planned.is_empty() => {
                drop(state);
                return open();
            }
            None => open()?,
        };
        while state.open.len() < self.open_min || (state.open.len() < OPEN_MAX && io.wants_reads())
        {
            let Some(next) = state.planned.pop_front() else {
                break;
            };
            // A span that cannot be opened fails again when it is read, and is reported then.
            let Ok(chunks) = next.1.open(io) else { break };
            state.open.push((next.0, chunks));
        }
        Ok(chunks)
    }
}
