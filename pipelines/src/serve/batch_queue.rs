//! Queue of requests that threads compute in batches.
//!
//! A thread takes the request that waits longest, and those behind it that can be computed with it: the same version,
//! the same columns. Without a delay, batches form only while all threads are busy. With one, a request waits for others
//! that the server has begun to read, and not where there are none.

use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use arrow::array::RecordBatch;
use arrow::compute::concat_batches;
use forebay_model::{Result, catch_panic};
use forebay_threads::start_thread;
use tokio::sync::oneshot;

use super::error::ServeError;
use super::limits::ServeLimits;
use super::model::ServedModel;
use crate::metrics::ServeMetrics;

/// Form of an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum AnswerForm {
    /// One row for each row of the request; others are refused.
    Aligned,
    /// Without the rows that the pipeline removes.
    Filtered,
}

/// Rows that wait for their answer.
struct WaitingRequest {
    model: Arc<ServedModel>,
    rows: RecordBatch,
    form: AnswerForm,
    entered: Instant,
    deadline: Instant,
    reply: oneshot::Sender<Result<RecordBatch, ServeError>>,
}

/// Requests in the order of their arrival.
#[derive(Default)]
struct WaitingRequests {
    requests: VecDeque<WaitingRequest>,
    rows: usize,
    /// True once no more requests come.
    is_closed: bool,
}

struct QueueState {
    waiting: Mutex<WaitingRequests>,
    changed: Condvar,
    limits: ServeLimits,
    metrics: Arc<ServeMetrics>,
}

/// The queue and its threads. Dropping it answers what waits, and joins them.
pub(super) struct BatchQueue {
    state: Arc<QueueState>,
    threads: Vec<JoinHandle<()>>,
}

impl BatchQueue {
    /// Starts threads that compute answers.
    pub fn start(
        threads: usize,
        limits: &ServeLimits,
        metrics: &Arc<ServeMetrics>,
    ) -> Result<BatchQueue> {
        let state = Arc::new(QueueState {
            waiting: Mutex::default(),
            changed: Condvar::new(),
            limits: limits.clone(),
            metrics: metrics.clone(),
        });
        let mut queue = BatchQueue {
            state,
            threads: Vec::new(),
        };
        for number in 0..threads.max(1) {
            let state = queue.state.clone();
            let name = format!("forebay-serve-{number}");
            let thread = start_thread(name, move || state.work())?;
            queue.threads.push(thread);
        }
        Ok(queue)
    }

    /// Waits for the answer to rows. Refuses them where too many wait.
    pub async fn apply(
        &self,
        model: Arc<ServedModel>,
        rows: RecordBatch,
        form: AnswerForm,
    ) -> Result<RecordBatch, ServeError> {
        let timeout = self.state.limits.timeout;
        let (reply, answer) = oneshot::channel();
        let now = Instant::now();
        self.state.enter(WaitingRequest {
            model,
            rows,
            form,
            entered: now,
            deadline: now + timeout,
            reply,
        })?;
        match tokio::time::timeout(timeout, answer).await {
            Ok(Ok(answer)) => answer,
            Ok(Err(_)) => Err(ServeError::internal("the computation of the answer ended")),
            Err(_) => Err(ServeError::timed_out(timeout)),
        }
    }

    /// True if less than half of the room for waiting rows is taken.
    pub fn has_room(&self) -> bool {
        self.state.lock().rows < self.state.limits.queue_rows / 2
    }
}

impl Drop for BatchQueue {
    fn drop(&mut self) {
        self.state.lock().is_closed = true;
        self.state.changed.notify_all();
        for thread in self.threads.drain(..) {
            // A panic of a computation has been caught before.
            let _ = thread.join();
        }
    }
}

impl QueueState {
    fn lock(&self) -> MutexGuard<'_, WaitingRequests> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn enter(&self, request: WaitingRequest) -> Result<(), ServeError> {
        let mut waiting = self.lock();
        let rows = request.rows.num_rows();
        // A request alone is always taken: its own limit is another one.
        if waiting.rows > 0 && waiting.rows + rows > self.limits.queue_rows {
            let message = format!("{} rows wait for an answer already", waiting.rows);
            return Err(ServeError::busy(message));
        }
        waiting.rows += rows;
        waiting.requests.push_back(request);
        self.metrics.queue_rows.set(waiting.rows as i64);
        drop(waiting);
        self.changed.notify_one();
        Ok(())
    }

    /// Computes batches until the queue is closed and empty.
    fn work(&self) {
        while let Some(batch) = self.take() {
            self.metrics.batch_requests.observe(batch.len() as f64);
            self.answer(batch);
        }
    }

    /// The next requests that are computed as one batch; none at the end.
    fn take(&self) -> Option<Vec<WaitingRequest>> {
        let mut waiting = self.lock();
        loop {
            let Some(first) = waiting.requests.front() else {
                if waiting.is_closed {
                    return None;
                }
                waiting = self
                    .changed
                    .wait(waiting)
                    .unwrap_or_else(PoisonError::into_inner);
                continue;
            };
            let delay = self.remaining_delay(first, &waiting);
            if delay.is_zero() {
                break;
            }
            waiting = self
                .changed
                .wait_timeout(waiting, delay)
                .unwrap_or_else(PoisonError::into_inner)
                .0;
        }
        let batch = waiting.take_batch(self.limits.batch_rows);
        self.metrics.queue_rows.set(waiting.rows as i64);
        let has_more = !waiting.requests.is_empty();
        drop(waiting);
        if has_more {
            self.changed.notify_one();
        }
        Some(batch)
    }

    /// Time until the first request is computed, with those that came by then.
    fn remaining_delay(&self, first: &WaitingRequest, waiting: &WaitingRequests) -> Duration {
        // No request is on its way that this one could wait for.
        let is_complete = waiting.requests.len() as i64 >= self.metrics.in_flight.get();
        let is_ready = waiting.is_closed
            || is_complete
            || waiting.rows >= self.limits.batch_rows
            || !first.model.merges_requests();
        if is_ready {
            return Duration::ZERO;
        }
        let delay = self.limits.batch_delay;
        delay.saturating_sub(first.entered.elapsed())
    }

    fn answer(&self, batch: Vec<WaitingRequest>) {
        let now = Instant::now();
        let (current, late): (Vec<_>, Vec<_>) = batch
            .into_iter()
            .partition(|request| request.deadline > now && !request.reply.is_closed());
        for request in late {
            let _ = request
                .reply
                .send(Err(ServeError::timed_out(self.limits.timeout)));
        }
        if current.len() > 1
            && let Some(answers) = merged_answers(&current)
        {
            for (request, answer) in current.into_iter().zip(answers) {
                let _ = request.reply.send(Ok(answer));
            }
            return;
        }
        for request in current {
            let answer = request.answer();
            // The client may have gone.
            let _ = request.reply.send(answer);
        }
    }
}

impl WaitingRequests {
    fn take_batch(&mut self, rows_max: usize) -> Vec<WaitingRequest> {
        let mut batch: Vec<WaitingRequest> = Vec::new();
        let mut rows = 0;
        while let Some(next) = self.requests.front() {
            let fits = match batch.first() {
                Some(first) => first.merges_with(next) && rows + next.rows.num_rows() <= rows_max,
                None => true,
            };
            if !fits {
                break;
            }
            let Some(next) = self.requests.pop_front() else {
                break;
            };
            rows += next.rows.num_rows();
            batch.push(next);
        }
        self.rows -= rows;
        batch
    }
}

impl WaitingRequest {
    fn merges_with(&self, other: &WaitingRequest) -> bool {
        Arc::ptr_eq(&self.model, &other.model)
            && self.model.merges_requests()
            && self.rows.schema_ref().fields() == other.rows.schema_ref().fields()
    }

    fn answer(&self) -> Result<RecordBatch, ServeError> {
        let computed = catch_panic(|| {
            Ok(match self.form {
                AnswerForm::Aligned => self.model.apply_aligned(&self.rows),
                AnswerForm::Filtered => {
                    self.model.apply_batch(&self.rows).map_err(ServeError::from)
                }
            })
        });
        computed?
    }
}

/// The answers to requests, computed as one batch. None where the batch fails: then each request is computed alone, so that
/// the rows of one do not fail another.
fn merged_answers(requests: &[WaitingRequest]) -> Option<Vec<RecordBatch>> {
    let first = requests.first()?;
    let batches = requests.iter().map(|request| &request.rows);
    let rows = concat_batches(first.rows.schema_ref(), batches).ok()?;
    let answers = catch_panic(|| first.model.apply_batch(&rows)).ok()?;
    if answers.num_rows() != rows.num_rows() {
        return None;
    }
    let mut start = 0;
    let mut slices = Vec::with_capacity(requests.len());
    for request in requests {
        let length = request.rows.num_rows();
        slices.push(answers.slice(start, length));
        start += length;
    }
    Some(slices)
}
