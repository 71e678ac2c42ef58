//! A state that threads advance along a line of points and hand over to the threads that start at those points.
//!
//! A thread of `rayon` that advances the state may run another task while it waits for a nested call; that task may
//! need the state, and neither would end.

use std::collections::BTreeMap;
use std::sync::PoisonError;

use forebay_model::Result;

use crate::sync::{Condvar, Mutex, MutexGuard};

/// Hands a state to the threads that need it at given points of a line. A thread that needs the state advances it from
/// the furthest known point. It waits only while another thread is advancing the state, never for a thread that has not
/// started.
pub struct HandOff<T> {
    /// The points at which the state is needed, ascending.
    points: Vec<usize>,
    state: Mutex<HandOffState<T>>,
    moved: Condvar,
}

struct HandOffState<T> {
    /// Copies of the state for points that a thread advanced past.
    passed_states: BTreeMap<usize, T>,
    furthest: HandOffProgress<T>,
    is_stopped: bool,
}

/// The furthest point at which the state is known.
enum HandOffProgress<T> {
    /// Before all points; no state exists yet.
    Start,
    At(usize, T),
    /// A thread is advancing the state.
    Moving,
}

impl<T> HandOff<T> {
    /// For these points, in any order.
    pub fn new(points: impl IntoIterator<Item = usize>) -> Self {
        let mut points: Vec<usize> = points.into_iter().collect();
        points.sort_unstable();
        let state = HandOffState {
            passed_states: BTreeMap::new(),
            furthest: HandOffProgress::Start,
            is_stopped: false,
        };
        HandOff {
            points,
            state: Mutex::new(state),
            moved: Condvar::new(),
        }
    }

    /// Returns the state at a point; `None` if the hand-off was stopped. Each point is requested once, and each thread
    /// requests ascending points. `begin` returns a state before the first point. `advance` moves a state from
    /// one point to another (`None` if it was stopped). `fork` copies a state.
    pub fn state_at(
        &self,
        point: usize,
        begin: impl FnOnce() -> Result<(usize, T)>,
        advance: impl Fn(T, usize, usize) -> Result<Option<T>>,
        fork: impl Fn(&T) -> T,
    ) -> Result<Option<T>> {
        let mut state = self.state();
        let furthest = loop {
            if state.is_stopped {
                return Ok(None);
            }
            if let Some(passed_state) = state.passed_states.remove(&point) {
                return Ok(Some(passed_state));
            }
            // `Moving` claims the state for this thread; other threads wait for it below.
            match std::mem::replace(&mut state.furthest, HandOffProgress::Moving) {
                HandOffProgress::Start => break None,
                HandOffProgress::At(position, value) => break Some((position, value)),
                HandOffProgress::Moving => {
                    state = self
                        .moved
                        .wait(state)
                        .unwrap_or_else(PoisonError::into_inner)
                }
            }
        };
        drop(state);
        // On every early return the state is lost, so the guard stops all waiting threads.
        let stop_guard = StopOnDrop(self);
        let (start, mut value) = match furthest {
            Some(furthest) => furthest,
            None => begin()?,
        };
        let mut position = start;
        for next in self.points.iter().copied() {
            if next <= start || next > point {
                continue;
            }
            let Some(advanced) = advance(value, position, next)? else {
                return Ok(None);
            };
            value = advanced;
            position = next;
            // Threads that start at a passed point find a copy and need not wait for this thread.
            if next < point {
                let copy = fork(&value);
                self.state().passed_states.insert(next, copy);
                self.moved.notify_all();
            }
        }
        // Behind the last point no thread needs the state, and it is not copied.
        if self.points.last().is_some_and(|last| *last > point) {
            let copy = fork(&value);
            self.state().furthest = HandOffProgress::At(position, copy);
            self.moved.notify_all();
        }
        std::mem::forget(stop_guard);
        Ok(Some(value))
    }

    /// Stops the hand-off: all waiting threads return `None`.
    pub fn stop(&self) {
        self.state().is_stopped = true;
        self.moved.notify_all();
    }

    /// Ignores poisoning: no code that holds the lock can leave the state half-changed.
    fn state(&self) -> MutexGuard<'_, HandOffState<T>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

struct StopOnDrop<'h, T>(&'h HandOff<T>);

impl<T> Drop for StopOnDrop<'_, T> {
    fn drop(&mut self) {
        self.0.stop();
    }
}
