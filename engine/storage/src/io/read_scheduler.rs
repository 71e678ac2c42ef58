//! The order of reads from object stores. All readers of a process share it: requests that a thread waits for come
//! first, those that were asked for ahead follow in the order in which they were asked for, as far as the memory for
//! them goes and as many at a time as pay.

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use bytes::Bytes;
use forebay_model::{Result, TraceContext};
use forebay_threads::current_span;
use futures::future::{BoxFuture, Either, select};
use tokio::runtime::Handle;
use tokio::sync::oneshot;
use tokio::task::AbortHandle;

use super::concurrency::ConcurrencyLimit;
use super::requests::send_for;
use super::stragglers::StragglerPolicy;

/// Bytes that are read ahead where no run has set its limit.
const AHEAD_BYTES_DEFAULT: u64 = 64 << 20;

/// Sends a request; called again where an answer is late.
pub type SendRequest = Box<dyn Fn() -> BoxFuture<'static, Result<Bytes>> + Send + Sync>;

/// Decides which request begins next.
pub struct ReadScheduler {
    begun: Instant,
    state: Mutex<SchedulerState>,
}

struct SchedulerState {
    limit: ConcurrencyLimit,
    stragglers: StragglerPolicy,
    /// Bytes that may be read ahead.
    ahead_bytes_max: u64,
    /// Bytes that are on their way or held by readers.
    held: u64,
    /// Bytes of requests that wait in `ahead`.
    waiting: u64,
    running: usize,
    demanded: VecDeque<Arc<ReadRequest>>,
    ahead: VecDeque<Arc<ReadRequest>>,
}

/// A range of an object.
struct ReadRequest {
    bytes: u64,
    /// What the thread works for that asks for it.
    span: Option<TraceContext>,
    send: SendRequest,
    runtime: Handle,
    stage: Mutex<RequestStage>,
}

enum RequestStage {
    Waiting(oneshot::Sender<Result<Bytes>>),
    Running(AbortHandle),
    /// Its reader has dropped it.
    GivenUp,
}

/// The bytes of a range, to be waited for. Dropping it gives the request up.
pub struct PendingRead {
    scheduler: Arc<ReadScheduler>,
    request: Arc<ReadRequest>,
    answer: oneshot::Receiver<Result<Bytes>>,
}

/// Memory of a request. It is free again once the last slice of the bytes is dropped.
struct MemoryPermit {
    scheduler: Arc<ReadScheduler>,
    bytes: u64,
}

/// Bytes with their permit.
struct HeldBytes {
    bytes: Bytes,
    _permit: MemoryPermit,
}

impl AsRef<[u8]> for HeldBytes {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

/// A request in flight. Dropping it, also when the task is aborted, makes room for the next one.
struct RunningRequest {
    scheduler: Arc<ReadScheduler>,
    bytes: u64,
    begun: Duration,
    is_done: bool,
}

impl std::fmt::Debug for ReadScheduler {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("ReadScheduler")
    }
}

impl Default for ReadScheduler {
    fn default() -> Self {
        let state = SchedulerState {
            limit: ConcurrencyLimit::default(),
            stragglers: StragglerPolicy::default(),
            ahead_bytes_max: AHEAD_BYTES_DEFAULT,
            held: 0,
            waiting: 0,
            running: 0,
            demanded: VecDeque::new(),
            ahead: VecDeque::new(),
        };
        ReadScheduler {
            begun: Instant::now(),
            state: Mutex::new(state),
        }
    }
}

impl ReadScheduler {
    fn lock(&self) -> MutexGuard<'_, SchedulerState> {
        // Every change of the state is complete before anything can panic.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn now(&self) -> Duration {
        self.begun.elapsed()
    }

    /// Sets how many bytes may be read ahead.
    pub fn set_ahead_bytes(self: &Arc<Self>, bytes: u64) {
        self.lock().ahead_bytes_max = bytes;
        self.dispatch();
    }

    /// Bytes that may be read ahead.
    pub fn ahead_bytes(&self) -> u64 {
        self.lock().ahead_bytes_max
    }

    /// Whether less waits to be read ahead than memory allows: readers should ask for more.
    pub fn wants_more(&self) -> bool {
        let state = self.lock();
        state.waiting + state.held < state.ahead_bytes_max * 2
            && state.waiting < state.ahead_bytes_max
    }

    /// The store has refused a request because it was asked too much.
    pub fn refuse(&self) {
        let now = self.now();
        self.lock().limit.refuse(now);
    }

    /// Asks for a range ahead of its use.
    pub fn submit(
        self: &Arc<Self>,
        range: &Range<u64>,
        runtime: Handle,
        send: SendRequest,
    ) -> PendingRead {
        let (sender, answer) = oneshot::channel();
        let stage = Mutex::new(RequestStage::Waiting(sender));
        let (bytes, span) = (range.end - range.start, current_span());
        let request = Arc::new(ReadRequest {
            bytes,
            span,
            send,
            runtime,
            stage,
        });
        let mut state = self.lock();
        state.waiting += request.bytes;
        state.ahead.push_back(request.clone());
        drop(state);
        self.dispatch();
        PendingRead {
            scheduler: self.clone(),
            request,
            answer,
        }
    }

    /// Begins what may begin.
    fn dispatch(self: &Arc<Self>) {
        loop {
            let mut state = self.lock();
            if state.running >= state.limit.limit() {
                return;
            }
            let request = match state.demanded.pop_front() {
                Some(request) => request,
                None => {
                    let Some(next) = state.ahead.front() else {
                        return;
                    };
                    // A request that is larger than the memory for all of them comes alone.
                    if state.held > 0 && state.held + next.bytes > state.ahead_bytes_max {
                        return;
                    }
                    let Some(request) = state.ahead.pop_front() else {
                        return;
                    };
                    state.waiting -= request.bytes;
                    request
                }
            };
            state.running += 1;
            state.held += request.bytes;
            let begun = self.now();
            state.limit.begin(begun);
            let patience = state.stragglers.begin(request.bytes);
            drop(state);
            let running = RunningRequest {
                scheduler: self.clone(),
                bytes: request.bytes,
                begun,
                is_done: false,
            };
            let permit = MemoryPermit {
                scheduler: self.clone(),
                bytes: request.bytes,
            };
            request.clone().start(running, permit, patience);
        }
    }

    /// A thread waits for a request: it comes before those that were asked for ahead.
    fn demand(self: &Arc<Self>, request: &Arc<ReadRequest>) {
        let mut state = self.lock();
        let Some(place) = state
            .ahead
            .iter()
            .position(|known| Arc::ptr_eq(known, request))
        else {
            return;
        };
        state.ahead.remove(place);
        state.waiting -= request.bytes;
        state.demanded.push_back(request.clone());
        drop(state);
        self.dispatch();
    }

    fn forget(self: &Arc<Self>, request: &Arc<ReadRequest>) {
        let mut state = self.lock();
        if let Some(place) = state
            .ahead
            .iter()
            .position(|known| Arc::ptr_eq(known, request))
        {
            state.ahead.remove(place);
            state.waiting -= request.bytes;
        }
        state.demanded.retain(|known| !Arc::ptr_eq(known, request));
    }

    fn may_repeat(&self) -> bool {
        self.lock().stragglers.may_repeat()
    }
}

impl ReadRequest {
    fn stage(&self) -> MutexGuard<'_, RequestStage> {
        self.stage.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn start(
        self: Arc<Self>,
        running: RunningRequest,
        permit: MemoryPermit,
        patience: Option<Duration>,
    ) {
        let mut stage = self.stage();
        let RequestStage::Waiting(sender) = std::mem::replace(&mut *stage, RequestStage::GivenUp)
        else {
            return;
        };
        let request = self.clone();
        let task = self.runtime.spawn(async move {
            let answer = send_for(request.span, request.answer(&running.scheduler, patience)).await;
            running.end(answer.is_ok());
            let held = answer.map(|bytes| {
                Bytes::from_owner(HeldBytes {
                    bytes,
                    _permit: permit,
                })
            });
            // A reader that has gone needs no answer.
            let _ = sender.send(held);
        });
        *stage = RequestStage::Running(task.abort_handle());
    }

    /// The first of two answers where the first request is late.
    async fn answer(&self, scheduler: &ReadScheduler, patience: Option<Duration>) -> Result<Bytes> {
        let first = (self.send)();
        let Some(patience) = patience else {
            return first.await;
        };
        let first = match select(first, std::pin::pin!(tokio::time::sleep(patience))).await {
            Either::Left((answer, _)) => return answer,
            Either::Right((_, first)) => first,
        };
        if !scheduler.may_repeat() {
            return first.await;
        }
        match select(first, (self.send)()).await {
            Either::Left((Ok(bytes), _)) | Either::Right((Ok(bytes), _)) => Ok(bytes),
            Either::Left((Err(_), other)) | Either::Right((Err(_), other)) => other.await,
        }
    }
}

impl RunningRequest {
    fn end(mut self, is_answered: bool) {
        let now = self.scheduler.now();
        let mut state = self.scheduler.lock();
        if is_answered {
            state
                .stragglers
                .end(self.bytes, now.saturating_sub(self.begun));
        }
        let is_full = state.running >= state.limit.limit()
            && !(state.demanded.is_empty() && state.ahead.is_empty());
        state
            .limit
            .end(now, if is_answered { self.bytes } else { 0 }, is_full);
        state.running -= 1;
        drop(state);
        self.is_done = true;
        self.scheduler.dispatch();
    }
}

impl Drop for RunningRequest {
    fn drop(&mut self) {
        if !self.is_done {
            self.scheduler.lock().running -= 1;
            self.scheduler.dispatch();
        }
    }
}

impl Drop for MemoryPermit {
    fn drop(&mut self) {
        self.scheduler.lock().held -= self.bytes;
        self.scheduler.dispatch();
    }
}

impl PendingRead {
    /// Tells that a thread waits for the bytes.
    pub fn demand(&self) {
        self.scheduler.demand(&self.request);
    }

    /// The bytes; `None` where the request was given up by an end of its runtime.
    pub async fn wait(&mut self) -> Option<Result<Bytes>> {
        (&mut self.answer).await.ok()
    }
}

impl Drop for PendingRead {
    fn drop(&mut self) {
        let stage = std::mem::replace(&mut *self.request.stage(), RequestStage::GivenUp);
        match stage {
            RequestStage::Waiting(_) => self.scheduler.forget(&self.request),
            RequestStage::Running(task) => task.abort(),
            RequestStage::GivenUp => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicUsize, Ordering};

    fn runtime() -> tokio::runtime::Runtime {
        tokio::runtime::Builder::new_current_thread()
            .enable_time()
            .build()
            .unwrap()
    }

    fn scheduler(ahead_bytes: u64) -> Arc<ReadScheduler> {
        let scheduler: Arc<ReadScheduler> = Arc::default();
        scheduler.set_ahead_bytes(ahead_bytes);
        scheduler
    }

    /// A store that answers every request with as many bytes as it asks for.
    fn answers(bytes: usize) -> SendRequest {
        Box::new(move || Box::pin(async move { Ok(Bytes::from(vec![7; bytes])) }))
    }

    fn silent() -> SendRequest {
        Box::new(|| Box::pin(std::future::pending()))
    }

    /// Requests in flight and bytes that are held.
    fn load(scheduler: &ReadScheduler) -> (usize, u64) {
        let state = scheduler.lock();
        (state.running, state.held)
    }

    #[test]
    fn memory_bounds_what_is_read_ahead_and_not_what_is_demanded() {
        let (runtime, scheduler) = (runtime(), scheduler(30));
        let submit = |_| scheduler.submit(&(0..10), runtime.handle().clone(), answers(10));
        let mut reads: Vec<PendingRead> = (0..6).map(submit).collect();
        assert_eq!(load(&scheduler), (3, 30));
        assert!(!scheduler.wants_more());
        reads[5].demand();
        assert_eq!(load(&scheduler), (4, 40));
        let mut read = |at: usize| runtime.block_on(reads[at].wait()).unwrap().unwrap();
        // Bytes count until their last slice is gone.
        let held: Vec<Bytes> = [5, 0, 1, 2]
            .map(&mut read)
            .into_iter()
            .map(|bytes| bytes.slice(2..4))
            .collect();
        assert_eq!(load(&scheduler), (0, 40));
        drop(held);
        assert_eq!(load(&scheduler), (2, 20));
        assert!([3, 4].map(read).iter().all(|bytes| bytes.len() == 10));
        assert_eq!(load(&scheduler), (0, 0));
        assert!(scheduler.wants_more());
    }

    #[test]
    fn a_request_that_is_larger_than_the_memory_comes_alone() {
        let (runtime, scheduler) = (runtime(), scheduler(5));
        let mut reads: Vec<PendingRead> = (0..3)
            .map(|_| scheduler.submit(&(0..10), runtime.handle().clone(), answers(10)))
            .collect();
        for read in &mut reads {
            assert_eq!(load(&scheduler), (1, 10));
            drop(runtime.block_on(read.wait()).unwrap().unwrap());
        }
        assert_eq!(load(&scheduler), (0, 0));
    }

    #[test]
    fn reads_that_are_dropped_make_room() {
        let (runtime, scheduler) = (runtime(), scheduler(10));
        let running = scheduler.submit(&(0..10), runtime.handle().clone(), silent());
        let waiting = scheduler.submit(&(0..10), runtime.handle().clone(), silent());
        let mut last = scheduler.submit(&(0..10), runtime.handle().clone(), answers(10));
        drop(waiting);
        drop(running);
        assert_eq!(runtime.block_on(last.wait()).unwrap().unwrap().len(), 10);
        drop(last);
        assert_eq!(load(&scheduler), (0, 0));
    }

    #[test]
    fn a_late_request_is_asked_again() {
        let (runtime, scheduler) = (runtime(), scheduler(1 << 20));
        for _ in 0..100 {
            let mut read = scheduler.submit(&(0..10), runtime.handle().clone(), answers(10));
            runtime.block_on(read.wait()).unwrap().unwrap();
        }
        let asked = Arc::new(AtomicUsize::new(0));
        let counted = asked.clone();
        // The first request is never answered.
        let send: SendRequest = Box::new(move || match counted.fetch_add(1, Ordering::Relaxed) {
            0 => Box::pin(std::future::pending()),
            _ => Box::pin(async { Ok(Bytes::from_static(b"answer")) }),
        });
        let mut read = scheduler.submit(&(0..6), runtime.handle().clone(), send);
        assert_eq!(runtime.block_on(read.wait()).unwrap().unwrap(), "answer");
        assert_eq!(asked.load(Ordering::Relaxed), 2);
    }
}
