//! Streams: queues of work, each on a thread of its own.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use crate::event::Event;
use crate::{fault, number, report};

/// What a stream does next.
pub enum Work {
    /// A copy, a kernel, a product. It is skipped once the device is broken.
    Do(Box<dyn FnOnce() + Send>),
    /// The stream has come to a record of an event.
    Record(Arc<Event>, u64),
    /// Goes on when another stream has come to a record.
    Wait(Arc<Event>, u64),
    /// The end.
    Stop,
}

/// A queue that a thread works on.
#[derive(Default)]
struct Queue {
    work: Mutex<VecDeque<Work>>,
    changed: Condvar,
}

impl Queue {
    fn lock(&self) -> MutexGuard<'_, VecDeque<Work>> {
        self.work.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn push(&self, work: Work) {
        self.lock().push_back(work);
        self.changed.notify_one();
    }

    fn next(&self) -> Work {
        let mut work = self.lock();
        loop {
            match work.pop_front() {
                Some(next) => return next,
                None => work = self.changed.wait(work).unwrap_or_else(PoisonError::into_inner),
            }
        }
    }
}

/// A stream.
pub struct Stream {
    queue: Arc<Queue>,
    /// Work that was queued and is not done.
    pending: Arc<AtomicU64>,
    thread: Option<JoinHandle<()>>,
}

/// A sequence of numbers from a seed (Steele, Lea, Flood: SplitMix64, OOPSLA 2014).
pub fn random(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mixed = (*state ^ (*state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ (mixed >> 31)
}

static ALL: Mutex<Vec<Arc<AtomicU64>>> = Mutex::new(Vec::new());

impl Default for Stream {
    fn default() -> Stream {
        let queue = Arc::new(Queue::default());
        let pending = Arc::new(AtomicU64::new(0));
        let mut all = ALL.lock().unwrap_or_else(PoisonError::into_inner);
        let mut state = number("FAKE_CUDA_SEED", 0).wrapping_mul(31).wrapping_add(all.len() as u64);
        all.push(pending.clone());
        let (of_thread, pending_there) = (queue.clone(), pending.clone());
        let run = move || {
            let longest = number("FAKE_CUDA_DELAY_US", 200);
            loop {
                match of_thread.next() {
                    Work::Stop => return,
                    Work::Record(event, record) => {
                        // A host that waits for the event finds the work done.
                        pending_there.fetch_sub(1, Ordering::SeqCst);
                        event.reach(record);
                        continue;
                    }
                    Work::Wait(event, record) => event.wait(record),
                    Work::Do(work) => {
                        // Half of all work is done at once, so that streams overtake each other.
                        let delay = random(&mut state) % (2 * longest + 1);
                        if delay < longest {
                            std::thread::sleep(Duration::from_micros(delay));
                        }
                        if fault::sticky() == fault::SUCCESS {
                            work();
                        }
                    }
                }
                pending_there.fetch_sub(1, Ordering::SeqCst);
            }
        };
        Stream { queue, pending, thread: Some(std::thread::spawn(run)) }
    }
}

impl Stream {
    /// Queues work.
    pub fn push(&self, work: Work) {
        self.pending.fetch_add(1, Ordering::SeqCst);
        self.queue.push(work);
    }

    /// Waits until everything that was queued so far is done.
    pub fn synchronize(&self) {
        let event = Arc::new(Event::default());
        let record = event.record();
        self.push(Work::Record(event.clone(), record));
        event.wait(record);
    }

    /// Reports a violation if another stream has work that is not done: memory of the device goes, and nothing tells
    /// that kernels or copies elsewhere have finished with it.
    pub fn frees(&self) {
        let all = ALL.lock().unwrap_or_else(PoisonError::into_inner);
        let busy =
            |pending: &&Arc<AtomicU64>| !Arc::ptr_eq(pending, &self.pending) && pending.load(Ordering::SeqCst) > 0;
        if all.iter().find(busy).is_some() && fault::sticky() == fault::SUCCESS {
            report::violation("device memory is freed while another stream has work");
        }
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        self.queue.push(Work::Stop);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}
