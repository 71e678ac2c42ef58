//! The memory promise: shares of the user's limit, and a watch over the whole process.

use std::sync::OnceLock;

use forebay_model::{Fault, MemoryRequest, Result, codes};

use crate::memory_shortage::{MemoryShortage, rounded_mib};
use crate::pending_memory::{PendingMemory, ThreadReservation};

/// Gives memory back to the system that is free, but kept for use again.
static RELEASE_HOOK: OnceLock<fn()> = OnceLock::new();

/// Sets the function that returns free memory to the system: an allocator that keeps it is called
/// before a run reaches its limit.
pub fn set_release_hook(give_back: fn()) {
    // The first caller is the allocator in use; later calls have no effect.
    let _ = RELEASE_HOOK.set(give_back);
}

/// Division of the user's limit. The shares leave room for memory that is not accounted: the
/// allocator's slack, footers, thread stacks.
#[derive(Debug, Clone, Copy)]
pub struct MemoryBudget {
    /// The user's limit in bytes.
    pub limit_bytes: u64,
    /// Number of concurrent users of the same budget: each has its part of all shares.
    beside: u64,
}

impl MemoryBudget {
    /// Budget of the whole limit.
    pub fn new(limit_bytes: u64) -> MemoryBudget {
        MemoryBudget {
            limit_bytes,
            beside: 1,
        }
    }

    /// Share of one of `users` concurrent users.
    pub fn one_of(self, users: usize) -> MemoryBudget {
        MemoryBudget {
            beside: self.beside * users.max(1) as u64,
            ..self
        }
    }

    /// Bytes for all states that are held at the same time.
    pub fn states_bytes(&self) -> usize {
        (self.limit_bytes / 2 / self.beside) as usize
    }

    /// The query engine's pool, while a gather runs (no states are held then).
    pub fn engine_bytes(&self) -> usize {
        (self.limit_bytes / 2 / self.beside) as usize
    }

    /// The `--memory` in MiB below which the query engine's pool has less than so many bytes, rounded up.
    pub fn least_engine_mib(&self, engine_bytes: usize) -> u64 {
        let shared_bytes = (engine_bytes as u64).saturating_mul(2);
        let limit_bytes = shared_bytes.saturating_mul(self.beside);
        rounded_mib(limit_bytes.max(self.limit_bytes))
    }

    /// Rows between reading and writing, over all threads.
    pub fn rows_bytes(&self) -> usize {
        (self.limit_bytes / 8 / self.beside) as usize
    }

    /// Encoded output that waits for its turn, over all threads.
    pub fn output_bytes(&self) -> usize {
        (self.limit_bytes / 8 / self.beside) as usize
    }

    /// Rows of many partitions that wait for others of their partition.
    pub fn waiting_bytes(&self) -> usize {
        (self.limit_bytes / 4 / self.beside) as usize
    }

    /// Stored bytes that are requested from a remote store or wait to be decoded, over all runs of
    /// the process.
    pub fn read_ahead_bytes(&self) -> u64 {
        self.limit_bytes / 8
    }

    /// Stored bytes of earlier reads that a run keeps.
    pub fn recent_bytes(&self) -> usize {
        (self.limit_bytes / 64 / self.beside) as usize
    }

    /// Maximum bytes that the process may hold: 1.3 times the limit and 150 MiB.
    pub fn promised_bytes(&self) -> u64 {
        (self.limit_bytes / 10)
            .saturating_mul(13)
            .saturating_add(150 << 20)
    }

    /// Bytes that the process holds, after the allocator returned free memory if the limit is near.
    fn held_bytes(&self, requested_bytes: u64) -> Option<u64> {
        let resident = resident_bytes()?;
        match RELEASE_HOOK.get() {
            Some(give_back)
                if resident.saturating_add(requested_bytes) > self.promised_bytes() / 4 * 3 =>
            {
                give_back();
                resident_bytes()
            }
            _ => Some(resident),
        }
    }

    /// Fails when the process holds more than was promised.
    pub fn check(&self) -> Result<()> {
        let resident = self
            .held_bytes(0)
            .filter(|resident| *resident > self.promised_bytes());
        let Some(resident) = resident else {
            return Ok(());
        };
        Err(Fault::new(
            codes::MEMORY,
            format!(
                "the process holds {} MiB, more than --memory {} MiB allows",
                resident >> 20,
                self.limit_bytes >> 20
            ),
        )
        .hint("raise --memory, or lower --threads"))
    }

    /// Shortage if `needed_bytes` do not fit into the promise beside all that is reserved. Nothing is reserved: for
    /// callers that write or spill what they hold where memory is short.
    pub fn shortage(&self, needed_bytes: u64) -> Option<MemoryShortage> {
        self.shortage_beside(needed_bytes, PendingMemory::of_process().bytes())
    }

    /// Shortage if `needed_bytes` do not fit into the promise beside `owed` bytes that earlier
    /// answers take later.
    pub(crate) fn shortage_beside(&self, needed_bytes: u64, owed: u64) -> Option<MemoryShortage> {
        let wanted_bytes = needed_bytes.saturating_add(owed);
        let held_bytes = self
            .held_bytes(wanted_bytes)
            .filter(|resident| resident.saturating_add(wanted_bytes) > self.promised_bytes())?;
        Some(MemoryShortage {
            needed_bytes,
            held_bytes: held_bytes.saturating_add(owed),
            limit_bytes: self.limit_bytes,
        })
    }

    /// Reserves bytes that this thread takes next: asking and taking are one step. While others hold reservations, `waits`
    /// is asked at least once a second whether to wait for them.
    pub fn reserve(
        &self,
        bytes: u64,
        waits: &mut dyn FnMut() -> bool,
    ) -> Result<ThreadReservation, MemoryShortage> {
        let shortage = |pending| self.shortage_beside(bytes, pending);
        PendingMemory::of_process().reserve(bytes, &shortage, waits)
    }

    /// Reserves what is taken now. Fails when the process would hold more than was promised; `owed` is what earlier answers
    /// take later.
    pub fn admit(&self, request: MemoryRequest, owed: u64) -> Result<ThreadReservation> {
        let bytes = request.now as u64;
        let shortage = |pending: u64| self.shortage_beside(bytes, pending.saturating_add(owed));
        let reserved = PendingMemory::of_process().reserve(bytes, &shortage, &mut || false);
        reserved.map_err(|shortage| {
            let limit = self.limit_bytes >> 20;
            let allowed = self.promised_bytes() >> 20;
            let message = format!(
                "what is learned needs {} MiB more where the process holds {} MiB: --memory \
                 {limit} MiB allows {allowed} MiB",
                shortage.needed_bytes >> 20,
                shortage.held_bytes >> 20
            );
            Fault::new(codes::MEMORY, message).hint(format!(
                "keep fewer values (`top_k`, `min_count`, `hash` instead of a vocabulary), or \
                 give {}",
                shortage.sufficient_option()
            ))
        })
    }
}

/// Bytes of mapped files that count at most in a program that is not optimised: about the code of one that is.
const MAPPED_CODE_BYTES_MAX: u64 = 96 << 20;

/// Resident memory of this process in bytes; `None` where the system does not report it.
pub fn resident_bytes() -> Option<u64> {
    let statm = std::fs::read_to_string("/proc/self/statm").ok()?;
    let mut fields = statm.split_whitespace().skip(1);
    let pages: u64 = fields.next()?.parse().ok()?;
    let bytes = pages * rustix::param::page_size() as u64;
    if !cfg!(debug_assertions) {
        return Some(bytes);
    }
    // Tests run a program that is not optimised, whose code is larger.
    let mapped_pages: u64 = fields.next()?.parse().ok()?;
    let mapped_bytes = mapped_pages * rustix::param::page_size() as u64;
    Some(bytes - mapped_bytes.saturating_sub(MAPPED_CODE_BYTES_MAX))
}

/// The peak of the resident memory of this process in bytes; `None` where the system does not
/// report it.
pub fn peak_resident_bytes() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find(|line| line.starts_with("VmHWM:"))?;
    Some(line.split_whitespace().nth(1)?.parse::<u64>().ok()? << 10)
}

/// Memory of the machine (or of the container's limit, where that is lower).
pub fn machine_bytes() -> Option<u64> {
    let meminfo = std::fs::read_to_string("/proc/meminfo").ok()?;
    let line = meminfo.lines().find(|line| line.starts_with("MemTotal:"))?;
    let total = line.split_whitespace().nth(1)?.parse::<u64>().ok()? << 10;
    let limit = std::fs::read_to_string("/sys/fs/cgroup/memory.max")
        .ok()
        .and_then(|text| text.trim().parse().ok());
    Some(limit.map_or(total, |limit: u64| limit.min(total)))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// With the named memory the request fits, and with the step below it does not.
    #[test]
    fn the_least_memory_is_one_that_would_do() {
        for engine_mib in [1, 65, 2_200] {
            let engine_bytes = engine_mib << 20;
            for users in [1, 3] {
                let budget = MemoryBudget::new(1 << 20).one_of(users);
                let least_bytes = budget.least_engine_mib(engine_bytes) << 20;
                let fitting = MemoryBudget::new(least_bytes).one_of(users);
                assert!(fitting.engine_bytes() >= engine_bytes);
                let lower = MemoryBudget::new(least_bytes - (64 << 20)).one_of(users);
                assert!(lower.engine_bytes() <= engine_bytes);
            }
        }
        for needed_mib in [300, 8_192] {
            let shortage = MemoryShortage {
                needed_bytes: needed_mib << 20,
                held_bytes: 100 << 20,
                limit_bytes: 64 << 20,
            };
            let total_bytes = shortage.needed_bytes + shortage.held_bytes;
            let least_bytes = shortage.least_mib() << 20;
            assert!(MemoryBudget::new(least_bytes).promised_bytes() >= total_bytes);
            let lower = MemoryBudget::new(least_bytes - (64 << 20));
            assert!(lower.promised_bytes() <= total_bytes);
        }
    }
}
