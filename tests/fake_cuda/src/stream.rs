//! Streams: queues of work, each on a thread of its own.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use crate::event::FakeEvent;
use crate::{fault, number, report};

/// What a stream does next.
pub enum StreamWork {
    /// A copy, which sees by itself whether its memory is there. It is skipped once the device is broken.
    Do(Box<dyn FnOnce() + Send>),
    /// A kernel or a product: which memory it uses is not known. It is skipped once the device is broken.
    Compute(Box<dyn FnOnce() + Send>),
    /// The stream has come to a record of an event.
    Record(Arc<FakeEvent>, u64),
    /// Goes on when another stream has come to a record.
    Wait(Arc<FakeEvent>, u64),
    /// The end.
    Stop,
}

/// A queue that a thread works on.
#[derive(Default)]
struct StreamQueue {
    work: Mutex<VecDeque<StreamWork>>,
    changed: Condvar,
}

impl StreamQueue {
    fn lock(&self) -> MutexGuard<'_, VecDeque<StreamWork>> {
        self.work.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn push(&self, work: StreamWork) {
        self.lock().push_back(work);
        self.changed.notify_one();
    }

    fn next(&self) -> StreamWork {
        let mut work = self.lock();
        loop {
            match work.pop_front() {
                Some(next) => return next,
                None => {
                    work = self
                        .changed
                        .wait(work)
                        .unwrap_or_else(PoisonError::into_inner)
                }
            }
        }
    }
}

/// A stream.
pub struct FakeStream {
    queue: Arc<StreamQueue>,
    /// Kernels and products that were queued and are not done.
    computing: Arc<AtomicU64>,
    thread: Option<JoinHandle<()>>,
}

/// A sequence of numbers from a seed (Steele, Lea, Flood: SplitMix64, OOPSLA 2014).
pub fn random(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mixed = (*state ^ (*state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ (mixed >> 31)
}

/// A stream that is there: its queue, and how many kernels and products in it are not done.
struct LiveStream {
    queue: Arc<StreamQueue>,
    computing: Arc<AtomicU64>,
}

static ALL: Mutex<Vec<LiveStream>> = Mutex::new(Vec::new());
static MADE: AtomicU64 = AtomicU64::new(0);

fn live_streams() -> MutexGuard<'static, Vec<LiveStream>> {
    ALL.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Waits until everything that was queued so far on any stream is done.
pub fn synchronize_all() {
    let record = |known: &LiveStream| {
        let event = Arc::new(FakeEvent::default());
        known
            .queue
            .push(StreamWork::Record(event.clone(), event.record()));
        event
    };
    // Under the lock, so that no stream ends between.
    let events: Vec<Arc<FakeEvent>> = live_streams().iter().map(record).collect();
    events.iter().for_each(|event| event.wait(event.last()));
}

impl Default for FakeStream {
    fn default() -> FakeStream {
        let queue = Arc::new(StreamQueue::default());
        let computing = Arc::new(AtomicU64::new(0));
        let made = MADE.fetch_add(1, Ordering::SeqCst);
        let mut state = number("FAKE_CUDA_SEED", 0)
            .wrapping_mul(31)
            .wrapping_add(made);
        live_streams().push(LiveStream {
            queue: queue.clone(),
            computing: computing.clone(),
        });
        let of_thread = queue.clone();
        let computing_there = computing.clone();
        let run = move || {
            let longest = number("FAKE_CUDA_DELAY_US", 200);
            loop {
                let (work, computes) = match of_thread.next() {
                    StreamWork::Stop => return,
                    StreamWork::Record(event, record) => {
                        event.reach(record);
                        continue;
                    }
                    StreamWork::Wait(event, record) => {
                        event.wait(record);
                        continue;
                    }
                    StreamWork::Do(work) => (work, false),
                    StreamWork::Compute(work) => (work, true),
                };
                // Half of all work is done at once, so that streams overtake each other.
                let delay = random(&mut state) % (2 * longest + 1);
                if delay < longest {
                    std::thread::sleep(Duration::from_micros(delay));
                }
                if fault::sticky_error() == fault::SUCCESS {
                    work();
                }
                if computes {
                    computing_there.fetch_sub(1, Ordering::SeqCst);
                }
            }
        };
        FakeStream {
            queue,
            computing,
            thread: Some(std::thread::spawn(run)),
        }
    }
}

impl FakeStream {
    /// Queues work.
    pub fn push(&self, work: StreamWork) {
        if matches!(work, StreamWork::Compute(_)) {
            self.computing.fetch_add(1, Ordering::SeqCst);
        }
        self.queue.push(work);
    }

    /// Waits until everything that was queued so far is done.
    pub fn synchronize(&self) {
        let event = Arc::new(FakeEvent::default());
        let record = event.record();
        self.push(StreamWork::Record(event.clone(), record));
        event.wait(record);
    }

    /// Reports a violation if another stream has kernels or products that are not done: memory of the device goes, and
    /// nothing tells that they have finished with it.
    pub fn check_free(&self) {
        let busy = |known: &LiveStream| {
            !Arc::ptr_eq(&known.computing, &self.computing)
                && known.computing.load(Ordering::SeqCst) > 0
        };
        if live_streams().iter().any(busy) && fault::sticky_error() == fault::SUCCESS {
            report::violation("device memory is freed while another stream has work");
        }
    }
}

impl Drop for FakeStream {
    fn drop(&mut self) {
        live_streams().retain(|known| !Arc::ptr_eq(&known.computing, &self.computing));
        self.queue.push(StreamWork::Stop);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}
