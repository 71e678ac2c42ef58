//! Memory that was admitted and is not resident yet, of all parts of the process.
//!
//! The system counts memory once it is written. Between an answer and the first write, other requests would find it free:
//! asking and taking are one step here, and each request counts what earlier ones have reserved.

use std::cell::Cell;
use std::marker::PhantomData;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// Time between two looks at the memory of a process while a request waits.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// Looks after which a request is refused: for ten minutes, no reservation ended.
const LOOKS_MAX: u32 = 600;

/// The system counts one number for the process, and so does this.
static OF_PROCESS: PendingMemory = PendingMemory::new();

thread_local! {
    /// Reservations of this thread: it must not wait for others, which may wait for it.
    static RESERVATIONS: Cell<usize> = const { Cell::new(0) };
}

/// Bytes that are reserved and, as far as is known, not resident.
#[derive(Debug)]
pub(crate) struct PendingMemory {
    bytes: Mutex<u64>,
    released: Condvar,
}

/// Memory that a thread has reserved for what it makes next. Dropping it says that the memory is resident or free again.
/// It stays on its thread, which must not wait for other reservations meanwhile.
#[derive(Debug)]
pub struct ThreadReservation {
    pending: &'static PendingMemory,
    bytes: u64,
    _stays: PhantomData<*const ()>,
}

impl PendingMemory {
    pub(crate) const fn new() -> PendingMemory {
        PendingMemory {
            bytes: Mutex::new(0),
            released: Condvar::new(),
        }
    }

    /// That of the process.
    pub(crate) fn of_process() -> &'static PendingMemory {
        &OF_PROCESS
    }

    /// Bytes that are reserved.
    pub(crate) fn bytes(&self) -> u64 {
        *self.lock()
    }

    /// Reserves bytes unless `shortage` tells that they do not fit beside all that is reserved. While others hold
    /// reservations, `waits` is asked at least once a second whether to wait for them.
    pub(crate) fn take<S>(
        &self,
        bytes: u64,
        shortage: &dyn Fn(u64) -> Option<S>,
        waits: &mut dyn FnMut() -> bool,
    ) -> Result<(), S> {
        let mut pending = self.lock();
        let mut looks = 0;
        loop {
            let Some(shortage) = shortage(*pending) else {
                *pending = pending.saturating_add(bytes);
                return Ok(());
            };
            let may_wait = *pending > 0 && RESERVATIONS.get() == 0;
            if !may_wait || looks == LOOKS_MAX || !waits() {
                return Err(shortage);
            }
            // Memory may also become free without the end of a reservation.
            let woken = self.released.wait_timeout(pending, LOOK_EVERY);
            let (woken, timeout) = woken.unwrap_or_else(PoisonError::into_inner);
            looks += u32::from(timeout.timed_out());
            pending = woken;
        }
    }

    /// Like [`PendingMemory::take`], for what this thread makes next.
    pub(crate) fn reserve<S>(
        &'static self,
        bytes: u64,
        shortage: &dyn Fn(u64) -> Option<S>,
        waits: &mut dyn FnMut() -> bool,
    ) -> Result<ThreadReservation, S> {
        self.take(bytes, shortage, waits)?;
        RESERVATIONS.set(RESERVATIONS.get() + 1);
        Ok(ThreadReservation {
            pending: self,
            bytes,
            _stays: PhantomData,
        })
    }

    /// Gives bytes back that were reserved.
    pub(crate) fn give_back(&self, bytes: u64) {
        let mut pending = self.lock();
        *pending = pending.saturating_sub(bytes);
        drop(pending);
        self.released.notify_all();
    }

    fn lock(&self) -> MutexGuard<'_, u64> {
        self.bytes.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for ThreadReservation {
    fn drop(&mut self) {
        RESERVATIONS.set(RESERVATIONS.get().saturating_sub(1));
        self.pending.give_back(self.bytes);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Barrier;

    use super::*;

    /// Sixty bytes do not fit into a hundred where others have reserved more than forty.
    fn shortage_of_sixty(pending: u64) -> Option<u64> {
        (pending + 60 > 100).then_some(pending)
    }

    fn never() -> bool {
        false
    }

    fn always() -> bool {
        true
    }

    #[test]
    fn a_request_counts_what_others_reserved_and_did_not_take() {
        static PENDING: PendingMemory = PendingMemory::new();
        let pending = &PENDING;
        let first = pending.reserve(60, &shortage_of_sixty, &mut never);
        let first = first.unwrap();
        let second = pending.reserve(60, &shortage_of_sixty, &mut never);
        assert_eq!(second.map(drop), Err(60));
        drop(first);
        assert_eq!(pending.bytes(), 0);
        assert_eq!(pending.take(60, &shortage_of_sixty, &mut never), Ok(()));
    }

    #[test]
    fn of_threads_that_ask_at_once_only_one_gets_memory_for_one() {
        static PENDING: PendingMemory = PendingMemory::new();
        let pending = &PENDING;
        let all_asked = Barrier::new(4);
        let ask = || {
            let reserved = pending.reserve(60, &shortage_of_sixty, &mut never);
            // No thread gives memory back before all have asked.
            all_asked.wait();
            usize::from(reserved.is_ok())
        };
        let granted: usize = std::thread::scope(|scope| {
            let threads: Vec<_> = (0..4).map(|_| scope.spawn(ask)).collect();
            threads
                .into_iter()
                .map(|thread| thread.join().unwrap())
                .sum()
        });
        assert_eq!(granted, 1);
        assert_eq!(pending.bytes(), 0);
    }

    #[test]
    fn a_thread_with_a_reservation_does_not_wait_for_itself() {
        static PENDING: PendingMemory = PendingMemory::new();
        let pending = &PENDING;
        let first = pending.reserve(60, &shortage_of_sixty, &mut always);
        let first = first.unwrap();
        assert!(pending.take(60, &shortage_of_sixty, &mut always).is_err());
        let second = std::thread::scope(|scope| {
            let second = scope.spawn(|| pending.take(60, &shortage_of_sixty, &mut always));
            drop(first);
            second.join().unwrap()
        });
        assert_eq!(second, Ok(()));
        assert_eq!(pending.bytes(), 60);
    }
}
