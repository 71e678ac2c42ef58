//! The memory promise: shares of the user's limit, and a watch over the whole process.

use std::sync::OnceLock;

use forebay_model::{Fault, MemoryRequest, Result, codes};

/// Gives memory back to the system that is free, but kept for use again.
static RELEASE_HOOK: OnceLock<fn()> = OnceLock::new();

/// Says how free memory is given back: an allocator that keeps it is asked before a run
/// comes to its limit.
pub fn set_release_hook(give_back: fn()) {
    // The first caller is the allocator in use; later calls have no effect.
    let _ = RELEASE_HOOK.set(give_back);
}

/// How the user's limit is divided. The shares leave room for memory that is not accounted: the
/// allocator's slack, footers, thread stacks.
#[derive(Debug, Clone, Copy)]
pub struct MemoryBudget {
    /// The user's limit in bytes.
    pub limit_bytes: u64,
    /// How many do the same beside each other: each has its part of all shares.
    beside: u64,
}

impl MemoryBudget {
    /// All that the user allows.
    pub fn new(limit_bytes: u64) -> MemoryBudget {
        MemoryBudget {
            limit_bytes,
            beside: 1,
        }
    }

    /// What one of so many has who do the same beside each other.
    pub fn one_of(self, beside: usize) -> MemoryBudget {
        MemoryBudget {
            beside: self.beside * beside.max(1) as u64,
            ..self
        }
    }

    /// All states that are held at the same time.
    pub fn states_bytes(&self) -> usize {
        (self.limit_bytes / 2 / self.beside) as usize
    }

    /// The query engine's pool, while a gather runs (no states are held then).
    pub fn engine_bytes(&self) -> usize {
        (self.limit_bytes / 2 / self.beside) as usize
    }

    /// Rows between reading and writing, over all threads.
    pub fn rows_bytes(&self) -> usize {
        (self.limit_bytes / 8 / self.beside) as usize
    }

    /// Encoded output that waits for its turn, over all threads.
    pub fn output_bytes(&self) -> usize {
        (self.limit_bytes / 8 / self.beside) as usize
    }

    /// Stored bytes on their way from a remote store or waiting to be decoded, over all runs of the process.
    pub fn read_ahead_bytes(&self) -> u64 {
        self.limit_bytes / 8
    }

    /// Stored bytes that a run keeps of what it has read.
    pub fn recent_bytes(&self) -> usize {
        (self.limit_bytes / 64 / self.beside) as usize
    }

    /// What the process may hold at most: 1.3 times the limit and 150 MiB.
    pub fn promised_bytes(&self) -> u64 {
        self.limit_bytes / 10 * 13 + (150 << 20)
    }

    /// What the process holds, after the allocator gave back what it keeps if the limit is near.
    fn held_bytes(&self, more: u64) -> Option<u64> {
        let held = resident_bytes()?;
        match RELEASE_HOOK.get() {
            Some(give_back) if held.saturating_add(more) > self.promised_bytes() / 4 * 3 => {
                give_back();
                resident_bytes()
            }
            _ => Some(held),
        }
    }

    /// Fails when the process holds more than was promised.
    pub fn check(&self) -> Result<()> {
        let held = self
            .held_bytes(0)
            .filter(|held| *held > self.promised_bytes());
        let Some(held) = held else { return Ok(()) };
        Err(Fault::new(
            codes::MEMORY,
            format!(
                "the process holds {} MiB, more than --memory {} MiB allows",
                held >> 20,
                self.limit_bytes >> 20
            ),
        )
        .hint("raise --memory, or lower --threads"))
    }

    /// Fails when the process would hold more than was promised; `owed` is what earlier answers take later.
    pub fn admit(&self, more: MemoryRequest, owed: u64) -> Result<()> {
        let more = (more.now as u64).saturating_add(owed);
        let held = self
            .held_bytes(more)
            .filter(|held| held.saturating_add(more) > self.promised_bytes());
        let Some(held) = held else { return Ok(()) };
        let (limit, allowed) = (self.limit_bytes >> 20, self.promised_bytes() >> 20);
        let message = format!(
            "what is learned needs {} MiB more where the process holds {} MiB: --memory {limit} MiB allows {allowed} MiB",
            more >> 20,
            held >> 20
        );
        Err(Fault::new(codes::MEMORY, message)
            .hint("keep fewer values (`top_k`, `min_count`, `hash` instead of a vocabulary), or raise --memory"))
    }
}

/// Resident memory of this process; `None` where the system does not tell.
pub fn resident_bytes() -> Option<u64> {
    let statm = std::fs::read_to_string("/proc/self/statm").ok()?;
    let pages: u64 = statm.split_whitespace().nth(1)?.parse().ok()?;
    Some(pages * rustix::param::page_size() as u64)
}

/// The most resident memory that this process has had; `None` where the system does not tell.
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
