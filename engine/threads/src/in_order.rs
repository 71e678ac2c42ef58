//! Parts that come from several threads in any order, and are appended in theirs.

use std::collections::BTreeMap;

use forebay_model::{Result, caught};

use crate::side_by_side::{lock, poisoned};
use crate::sync::{Condvar, Mutex};

/// Appends the parts of numbered items in the order of the numbers. The thread whose item is next appends; the others
/// go on until too many bytes wait, and wait then. Items have to be begun in their order.
pub struct InOrder<P, T, A> {
    state: Mutex<State<P, T>>,
    moved: Condvar,
    bytes_max: u64,
    append: A,
}

struct State<P, T> {
    next: usize,
    /// Parts with their bytes, and whether those are all of an item.
    pending: BTreeMap<usize, (Vec<(P, u64)>, bool)>,
    pending_bytes: u64,
    to: T,
    stopped: bool,
}

impl<P, T, A: Fn(&mut T, P) -> Result<()>> InOrder<P, T, A> {
    /// What `append` adds parts to, and how many bytes of them may wait.
    pub fn new(to: T, bytes_max: u64, append: A) -> Self {
        let state = State { next: 0, pending: BTreeMap::new(), pending_bytes: 0, to, stopped: false };
        InOrder { state: Mutex::new(state), moved: Condvar::new(), bytes_max, append }
    }

    /// Takes a part of an item with its bytes, the `last` or not.
    pub fn offer(&self, item: usize, part: Option<(P, u64)>, last: bool) -> Result<()> {
        let mut state = lock(&self.state)?;
        let entry = state.pending.entry(item).or_default();
        entry.1 = last;
        if let Some((part, bytes)) = part {
            entry.0.push((part, bytes));
            state.pending_bytes += bytes;
        }
        loop {
            if state.stopped {
                return Ok(());
            }
            if state.next == item {
                break;
            }
            if state.pending_bytes <= self.bytes_max {
                return Ok(());
            }
            state = self.moved.wait(state).map_err(|_| poisoned())?;
        }
        loop {
            let next = state.next;
            let Some((parts, complete)) = state.pending.get_mut(&next) else { break };
            let (parts, complete) = (std::mem::take(parts), *complete);
            for (part, bytes) in parts {
                state.pending_bytes -= bytes;
                // A panic must not poison the lock: the others would tell of that instead.
                let appended = caught(|| (self.append)(&mut state.to, part));
                if appended.is_err() {
                    drop(state);
                    self.stop();
                    return appended;
                }
            }
            if !complete {
                break;
            }
            state.pending.remove(&next);
            state.next += 1;
        }
        drop(state);
        self.moved.notify_all();
        Ok(())
    }

    /// Wakes all that wait, and appends nothing more.
    pub fn stop(&self) {
        if let Ok(mut state) = self.state.lock() {
            state.stopped = true;
        }
        self.moved.notify_all();
    }

    /// What all parts were appended to.
    pub fn done(self) -> Result<T> {
        self.state.into_inner().map(|state| state.to).map_err(|_| poisoned())
    }
}
