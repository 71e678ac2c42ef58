//! A state that one thread brings forward from point to point, and hands to the threads that begin there.

use std::collections::BTreeMap;
use std::sync::PoisonError;

use forebay_model::Result;

use crate::sync::{Condvar, Mutex, MutexGuard};

/// Hands a state to those that need it at points of a line. A thread that needs it brings it there from the furthest
/// point that is known, unless another thread is bringing it forward: only then it waits, so that no wait is for a
/// thread that has yet to begin.
pub struct HandOff<T> {
    /// Where the state is needed, ascending.
    points: Vec<usize>,
    state: Mutex<State<T>>,
    moved: Condvar,
}

struct State<T> {
    /// For points that a thread went past.
    left: BTreeMap<usize, T>,
    furthest: Furthest<T>,
    is_stopped: bool,
}

/// The furthest point at which the state is known.
enum Furthest<T> {
    /// Before all points.
    Start,
    At(usize, T),
    /// A thread brings it forward.
    Moving,
}

impl<T> HandOff<T> {
    /// For these points, which may come in any order.
    pub fn new(points: impl IntoIterator<Item = usize>) -> Self {
        let mut points: Vec<usize> = points.into_iter().collect();
        points.sort_unstable();
        let state = State { left: BTreeMap::new(), furthest: Furthest::Start, is_stopped: false };
        HandOff { points, state: Mutex::new(state), moved: Condvar::new() }
    }

    /// The state at a point; `None` when it was stopped. Each point is asked for once, and a thread asks for none
    /// behind the one that it asked for before. `begin` gives the state somewhere before the first point, `advance`
    /// brings it from one point to another (`None` when it was stopped), and `fork` copies it.
    pub fn at(
        &self,
        point: usize,
        begin: impl FnOnce() -> Result<(usize, T)>,
        advance: impl Fn(T, usize, usize) -> Result<Option<T>>,
        fork: impl Fn(&T) -> T,
    ) -> Result<Option<T>> {
        let mut state = self.state();
        let known = loop {
            if state.is_stopped {
                return Ok(None);
            }
            if let Some(found) = state.left.remove(&point) {
                return Ok(Some(found));
            }
            match std::mem::replace(&mut state.furthest, Furthest::Moving) {
                Furthest::Start => break None,
                Furthest::At(at, known) => break Some((at, known)),
                Furthest::Moving => state = self.moved.wait(state).unwrap_or_else(PoisonError::into_inner),
            }
        };
        drop(state);
        // Whichever way this ends early, the state is lost: all that wait for it have to stop.
        let broken = Broken(self);
        let (mut at, mut known) = known.map_or_else(begin, Ok)?;
        let began = at;
        for next in self.points.iter().copied().filter(|next| began < *next && *next <= point) {
            let Some(there) = advance(known, at, next)? else { return Ok(None) };
            (at, known) = (next, there);
            if next < point {
                let left = fork(&known);
                self.state().left.insert(next, left);
                self.moved.notify_all();
            }
        }
        if self.points.last().is_some_and(|last| *last > point) {
            let furthest = fork(&known);
            self.state().furthest = Furthest::At(at, furthest);
            self.moved.notify_all();
        }
        std::mem::forget(broken);
        Ok(Some(known))
    }

    /// Wakes all that wait: they get nothing.
    pub fn stop(&self) {
        self.state().is_stopped = true;
        self.moved.notify_all();
    }

    /// Nothing that holds the lock can fail half-way.
    fn state(&self) -> MutexGuard<'_, State<T>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

struct Broken<'h, T>(&'h HandOff<T>);

impl<T> Drop for Broken<'_, T> {
    fn drop(&mut self) {
        self.0.stop();
    }
}
