//! The order of reads from object stores. All readers of a process share it: requests that a thread
//! waits for come first; those submitted ahead follow in the order of submission, within the memory
//! for them and the limit of requests in flight.

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

/// Sends a request; called again if an answer is late.
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
    /// Bytes that are requested or held by readers.
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
    /// Span of the work that the request is for.
    span: Option<TraceContext>,
    send: SendRequest,
    runtime: Handle,
    stage: Mutex<RequestStage>,
}

enum RequestStage {
    Waiting(oneshot::Sender<Result<Bytes>>),
    Running(AbortHandle),
    /// The reader has dropped the request.
    GivenUp,
}

/// Requested bytes of a range. Dropping it cancels the request.
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

    /// True if less is waiting to be read ahead than memory allows: readers should submit more.
    pub fn wants_more(&self) -> bool {
        let state = self.lock();
        state.waiting + state.held < state.ahead_bytes_max * 2
            && state.waiting < state.ahead_bytes_max
    }

    /// Records that the store has refused a request because of too many requests.
    pub fn refuse(&self) {
        let now = self.now();
        self.lock().limit.refuse(now);
    }

    /// Submits a range ahead of its use.
    pub fn submit(
        self: &Arc<Self>,
        range: &Range<u64>,
        runtime: Handle,
        send: SendRequest,
    ) -> PendingRead {
        let (sender, answer) = oneshot::channel();
        let stage = Mutex::new(RequestStage::Waiting(sender));
        let bytes = range.end - range.start;
        let span = current_span();
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

    /// Starts the requests that the limits allow.
    fn dispatch(self: &Arc<Self>) {
        loop {
            let mut state = self.lock();
            if state.running >= state.limit.limit() {
                return;
            }
            // A request that a thread waits for starts regardless of the held bytes: threads could
            // otherwise wait for memory that only they can free (decisions/read-scheduler.md).
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
            let straggler_limit = state.stragglers.begin(request.bytes);
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
            request.clone().start(running, permit, straggler_limit);
        }
    }

    /// Moves a request that a thread waits for before those that were submitted ahead.
    fn demand(self: &Arc<Self>, request: &Arc<ReadRequest>) {
        let mut state = self.lock();
        let Some(position) = state
            .ahead
            .iter()
            .position(|queued| Arc::ptr_eq(queued, request))
        else {
            return;
        };
        state.ahead.remove(position);
        state.waiting -= request.bytes;
        state.demanded.push_back(request.clone());
        drop(state);
        self.dispatch();
    }

    fn forget(self: &Arc<Self>, request: &Arc<ReadRequest>) {
        let mut state = self.lock();
        if let Some(position) = state
            .ahead
            .iter()
            .position(|queued| Arc::ptr_eq(queued, request))
        {
            state.ahead.remove(position);
            state.waiting -= request.bytes;
        }
        state
            .demanded
            .retain(|queued| !Arc::ptr_eq(queued, request));
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
        retry: Option<Duration>,
    ) {
        let mut stage = self.stage();
        let RequestStage::Waiting(sender) = std::mem::replace(&mut *stage, RequestStage::GivenUp)
        else {
            return;
        };
        let request = self.clone();
        let task = self.runtime.spawn(async move {
            let answer = send_for(request.span, request.answer(&running.scheduler, retry)).await;
            running.end(answer.is_ok());
            let owned = answer.map(|bytes| {
                Bytes::from_owner(HeldBytes {
                    bytes,
                    _permit: permit,
                })
            });
            // The reader may have gone, and then the result is dropped.
            let _ = sender.send(owned);
        });
        *stage = RequestStage::Running(task.abort_handle());
    }

    /// The first of two answers, if the first request is late.
    async fn answer(
        &self,
        scheduler: &ReadScheduler,
        straggler_limit: Option<Duration>,
    ) -> Result<Bytes> {
        let first = (self.send)();
        let Some(straggler_limit) = straggler_limit else {
            return first.await;
        };
        let first = match select(first, std::pin::pin!(tokio::time::sleep(straggler_limit))).await {
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
    /// Reports that a thread waits for the bytes.
    pub fn demand(&self) {
        self.scheduler.demand(&self.request);
    }

    /// Waits for the bytes; `None` if the request was cancelled by the end of its runtime.
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

    /// A store whose answers have as many bytes as requested.
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
        let runtime = runtime();
        let scheduler = scheduler(30);
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
        let runtime = runtime();
        let scheduler = scheduler(5);
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
        let runtime = runtime();
        let scheduler = scheduler(10);
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
        let runtime = runtime();
        let scheduler = scheduler(1 << 20);
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
