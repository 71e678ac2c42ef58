//! The answer to a request for memory that the promise does not allow.

/// A reservation that would break the promise.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MemoryShortage {
    /// Bytes that were asked for.
    pub needed_bytes: u64,
    /// Bytes that the process holds, with those that it has promised to others.
    pub held_bytes: u64,
    /// The user's limit in bytes.
    pub limit_bytes: u64,
}

impl MemoryShortage {
    /// The least `--memory` that would do, in MiB, with room for what grows with it.
    pub fn sufficient_mib(&self) -> u64 {
        let least = self.least_bytes();
        let roomy = (least + least / 4).max(self.limit_bytes.saturating_mul(2));
        (roomy >> 20).next_multiple_of(64)
    }

    /// The `--memory` in MiB below which the request cannot be granted, rounded up.
    pub fn least_mib(&self) -> u64 {
        rounded_mib(self.least_bytes().max(self.limit_bytes))
    }

    fn least_bytes(&self) -> u64 {
        const UNACCOUNTED: u64 = 150 << 20;
        let total_bytes = self.needed_bytes.saturating_add(self.held_bytes);
        total_bytes.saturating_sub(UNACCOUNTED) / 13 * 10
    }

    /// The option that would do, as it is typed.
    pub fn sufficient_option(&self) -> String {
        format!("--memory {}MiB", self.sufficient_mib())
    }
}

/// A number of MiB above some bytes, as it is typed.
pub(crate) fn rounded_mib(bytes: u64) -> u64 {
    ((bytes >> 20) + 1).next_multiple_of(64)
}
