//! Ordered appending: several threads produce parts in any order, and the parts are appended in the order of their
//! items. `rayon` keeps an order by holding all results; here, few bytes are pending.

use std::collections::BTreeMap;

use forebay_model::{Result, catch_panic};

use crate::parallel::{lock, poisoned_lock};
use crate::sync::{Condvar, Mutex};

/// Appends the parts of numbered items in the order of the numbers. The thread that produces the next item appends. The
/// others continue until `bytes_max` bytes are pending, then wait. Items must be started in order.
pub struct OrderedAppender<P, T, A> {
    state: Mutex<AppendState<P, T>>,
    moved: Condvar,
    bytes_max: u64,
    append: A,
}

struct AppendState<P, T> {
    next: usize,
    /// Pending parts with their bytes, and whether the item is complete.
    pending: BTreeMap<usize, (Vec<(P, u64)>, bool)>,
    pending_bytes: u64,
    to: T,
    stopped: bool,
}

impl<P, T, A: Fn(&mut T, P) -> Result<()>> OrderedAppender<P, T, A> {
    /// Appends parts to `to` with `append`; at most `bytes_max` bytes may be pending.
    pub fn new(to: T, bytes_max: u64, append: A) -> Self {
        let state = AppendState {
            next: 0,
            pending: BTreeMap::new(),
            pending_bytes: 0,
            to,
            stopped: false,
        };
        OrderedAppender {
            state: Mutex::new(state),
            moved: Condvar::new(),
            bytes_max,
            append,
        }
    }

    /// Adds a part of an item with its bytes; `last` ends the item.
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
            // This item is the next one: the thread appends it, and those behind it that are pending.
            if state.next == item {
                break;
            }
            if state.pending_bytes <= self.bytes_max {
                return Ok(());
            }
            state = self.moved.wait(state).map_err(|_| poisoned_lock())?;
        }
        loop {
            let next = state.next;
            let Some((pending_parts, is_complete)) = state.pending.get_mut(&next) else {
                break;
            };
            let parts = std::mem::take(pending_parts);
            let is_complete = *is_complete;
            for (part, bytes) in parts {
                state.pending_bytes -= bytes;
                // A panic must not poison the lock: the other threads would report the poisoned lock instead.
                let appended = catch_panic(|| (self.append)(&mut state.to, part));
                if appended.is_err() {
                    drop(state);
                    self.stop();
                    return appended;
                }
            }
            // The rest of the item is offered later, by the thread that produces it.
            if !is_complete {
                break;
            }
            state.pending.remove(&next);
            state.next += 1;
        }
        drop(state);
        self.moved.notify_all();
        Ok(())
    }

    /// Wakes all waiting threads and appends nothing more.
    pub fn stop(&self) {
        if let Ok(mut state) = self.state.lock() {
            state.stopped = true;
        }
        self.moved.notify_all();
    }

    /// The target of all appended parts.
    pub fn done(self) -> Result<T> {
        self.state
            .into_inner()
            .map(|state| state.to)
            .map_err(|_| poisoned_lock())
    }
}
