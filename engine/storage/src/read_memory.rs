//! Admission of the memory that readers take to decode files.
//!
//! A reader leases from a share of the memory what its metadata says that it will hold. If the share is used up, it reads
//! less at a time. What cannot be divided, such as one page, is reserved: the reservation waits until other readers have
//! decoded what they reserved, and fails if the process would hold more than was promised.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use forebay_model::{Fault, codes};

use crate::memory::MemoryBudget;
use crate::memory_shortage::MemoryShortage;
use crate::pending_memory::PendingMemory;

/// One part in this many of the memory is leased to readers.
const LEASED_SHARE: u64 = 2;

/// One part in this many of the memory is for rows that one reader decodes ahead of its batches.
const RANGE_SHARE: u64 = 4;

/// One part in this many of the memory is for rows between readers and writers.
const ROWS_SHARE: u64 = 8;

/// A chunk of rows may always have this many bytes: smaller ones cost more than they save.
const CHUNK_BYTES_MIN: u64 = 1 << 20;

/// The memory that all readers of a process take.
#[derive(Debug)]
pub struct ReadMemory {
    /// The user's limit in bytes; 0 where there is none.
    limit_bytes: AtomicU64,
    threads: AtomicUsize,
    leased: AtomicU64,
    /// Memory that is reserved and not resident yet, also by steps.
    pending: &'static PendingMemory,
}

/// A part of the share of readers. Dropping it gives it back.
#[derive(Debug)]
pub struct ReadLease {
    memory: Arc<ReadMemory>,
    bytes: u64,
}

/// Memory for one call of a decoder. Dropping it says that the memory is resident or free again.
#[derive(Debug)]
pub struct ReadReservation {
    pending: &'static PendingMemory,
    bytes: u64,
}

impl Default for ReadMemory {
    fn default() -> ReadMemory {
        ReadMemory {
            limit_bytes: AtomicU64::new(0),
            threads: AtomicUsize::new(0),
            leased: AtomicU64::new(0),
            pending: PendingMemory::of_process(),
        }
    }
}

impl ReadMemory {
    /// Sets the limit of the process and the threads that share it.
    pub fn set_limit(&self, limit_bytes: u64, threads: usize) {
        self.limit_bytes.store(limit_bytes, Ordering::Relaxed);
        self.threads.store(threads.max(1), Ordering::Relaxed);
    }

    fn limit(&self) -> Option<u64> {
        Some(self.limit_bytes.load(Ordering::Relaxed)).filter(|limit| *limit > 0)
    }

    /// Bytes that one chunk of rows should have at most.
    pub fn chunk_bytes(&self) -> u64 {
        let threads = self.threads.load(Ordering::Relaxed).max(1) as u64;
        match self.limit() {
            Some(limit) => (limit / ROWS_SHARE / threads).max(CHUNK_BYTES_MIN),
            None => u64::MAX,
        }
    }

    /// Bytes of rows that one reader should decode ahead of its batches at most.
    pub fn range_bytes(&self) -> u64 {
        self.limit().map_or(u64::MAX, |limit| limit / RANGE_SHARE)
    }

    /// Leases bytes for as long as a reader is open; `None` where the share of readers is used up.
    pub fn lease(self: &Arc<Self>, bytes: u64) -> Option<ReadLease> {
        let share = self.limit().map_or(u64::MAX, |limit| limit / LEASED_SHARE);
        let leased = self
            .leased
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |leased| {
                leased.checked_add(bytes).filter(|leased| *leased <= share)
            });
        leased.ok().map(|_| ReadLease {
            memory: self.clone(),
            bytes,
        })
    }

    /// Reserves bytes that one call of a decoder takes. With `may_wait`, the call waits while others make what they
    /// reserved; a reader that holds a reservation must not wait for another one.
    pub fn reserve(&self, bytes: u64, may_wait: bool) -> Result<ReadReservation, MemoryShortage> {
        let Some(limit) = self.limit() else {
            return Ok(ReadReservation {
                pending: self.pending,
                bytes: 0,
            });
        };
        let budget = MemoryBudget::new(limit);
        let shortage = |pending| budget.shortage_beside(bytes, pending);
        self.pending.take(bytes, &shortage, &mut || may_wait)?;
        Ok(ReadReservation {
            pending: self.pending,
            bytes,
        })
    }
}

impl Drop for ReadLease {
    fn drop(&mut self) {
        self.memory.leased.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

impl Drop for ReadReservation {
    fn drop(&mut self) {
        self.pending.give_back(self.bytes);
    }
}

impl MemoryShortage {
    /// The fault of something that has to be in memory at once, such as `a page of the column`.
    pub fn fault(&self, decoded: &str) -> Fault {
        let budget = MemoryBudget::new(self.limit_bytes);
        let message = format!(
            "{decoded} needs {} MiB more where the process holds {} MiB: --memory {} MiB allows \
             {} MiB",
            self.needed_bytes >> 20,
            self.held_bytes >> 20,
            self.limit_bytes >> 20,
            budget.promised_bytes() >> 20,
        );
        Fault::new(codes::MEMORY, message)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn limited(limit_bytes: u64, pending: &'static PendingMemory) -> Arc<ReadMemory> {
        let memory = ReadMemory {
            pending,
            ..ReadMemory::default()
        };
        memory.set_limit(limit_bytes, 2);
        Arc::new(memory)
    }

    #[test]
    fn leases_end_with_the_share_and_are_given_back() {
        static PENDING: PendingMemory = PendingMemory::new();
        let memory = limited(64 << 20, &PENDING);
        let lease = memory.lease(20 << 20);
        assert!(lease.is_some() && memory.lease(20 << 20).is_none());
        drop(lease);
        assert!(memory.lease(32 << 20).is_some());
        assert!(memory.lease(u64::MAX).is_none());
    }

    #[test]
    fn a_reservation_beyond_the_promise_names_the_memory_that_would_do() {
        static PENDING: PendingMemory = PendingMemory::new();
        let memory = limited(64 << 20, &PENDING);
        let shortage = memory.reserve(8 << 30, true).unwrap_err();
        assert_eq!(shortage.needed_bytes, 8 << 30);
        let sufficient = shortage.sufficient_mib() << 20;
        let roomy = MemoryBudget::new(sufficient);
        assert!(roomy.shortage_beside(8 << 30, 0).is_none());
        let fault = shortage.fault("a page");
        assert!(
            fault.message().starts_with("a page needs 8192 MiB more"),
            "{}",
            fault.message()
        );
    }

    #[test]
    fn a_reader_waits_for_what_another_decodes() {
        static PENDING: PendingMemory = PendingMemory::new();
        let memory = limited(64 << 20, &PENDING);
        // Two of these do not fit beside each other.
        let bytes = MemoryBudget::new(64 << 20).promised_bytes() / 2;
        let first = memory.reserve(bytes, true).unwrap();
        assert!(memory.reserve(bytes, false).is_err());
        let second = std::thread::scope(|scope| {
            let second = scope.spawn(|| memory.reserve(bytes, true).map(drop));
            drop(first);
            second.join().unwrap()
        });
        assert_eq!(second, Ok(()));
        assert_eq!(memory.pending.bytes(), 0);
    }

    #[test]
    fn without_a_limit_nothing_is_refused() {
        let memory = Arc::new(ReadMemory::default());
        assert!(memory.lease(1 << 50).is_some());
        assert!(memory.reserve(1 << 50, false).is_ok());
        assert_eq!(memory.chunk_bytes(), u64::MAX);
    }
}
