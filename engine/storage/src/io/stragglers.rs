//! Repeats requests that take long. Pure: the durations of other requests are passed in.

use std::collections::VecDeque;
use std::time::Duration;

/// Requests that are remembered.
const PEERS_MAX: usize = 128;

/// Requests that must be known before one can be called late.
const PEERS_MIN: usize = 20;

/// The share of requests that are not late: 19 in 20.
const IN_TIME: (usize, usize) = (19, 20);

/// Number of requests for each that may be sent twice.
const REQUESTS_PER_REPEAT: u64 = 50;

/// Latency of a request in bytes: short requests take longer for each of theirs.
const LATENCY_BYTES: u64 = 2 << 20;

/// Durations of recent requests, and the number of those that were sent twice.
#[derive(Debug, Default)]
pub struct StragglerPolicy {
    /// Seconds for each byte, the latency included.
    peers: VecDeque<f64>,
    asked: u64,
    repeated: u64,
}

impl StragglerPolicy {
    /// Records the begin of a request for `bytes` bytes; returns the time after which it is late.
    /// `None`: too few peers are known.
    pub fn begin(&mut self, bytes: u64) -> Option<Duration> {
        self.asked += 1;
        if self.peers.len() < PEERS_MIN {
            return None;
        }
        let mut peers: Vec<f64> = self.peers.iter().copied().collect();
        peers.sort_unstable_by(f64::total_cmp);
        let late = peers[peers.len() * IN_TIME.0 / IN_TIME.1];
        Some(Duration::from_secs_f64(
            late * (bytes + LATENCY_BYTES) as f64,
        ))
    }

    /// Records the duration of a request for `bytes` bytes.
    pub fn end(&mut self, bytes: u64, took: Duration) {
        if self.peers.len() == PEERS_MAX {
            self.peers.pop_front();
        }
        self.peers
            .push_back(took.as_secs_f64() / (bytes + LATENCY_BYTES) as f64);
    }

    /// True if a late request may be sent again; counts it if so.
    pub fn may_repeat(&mut self) -> bool {
        let may = (self.repeated + 1) * REQUESTS_PER_REPEAT <= self.asked;
        self.repeated += u64::from(may);
        may
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn late_requests_are_repeated_within_a_share() {
        let mut policy = StragglerPolicy::default();
        let took = |bytes: u64| Duration::from_secs_f64(0.05 + bytes as f64 / 60e6);
        let mut repeated = 0;
        for request in 0..1000u64 {
            let bytes = if request % 2 == 0 { 8 << 20 } else { 1 << 20 };
            let late = policy.begin(bytes);
            assert_eq!(late.is_some(), request >= PEERS_MIN as u64);
            if let Some(late) = late {
                assert!(
                    late >= took(bytes).mul_f64(0.99) && late < took(bytes) * 2,
                    "{bytes} {late:?}"
                );
            }
            // Half of all requests are late, and few may be repeated.
            repeated += u64::from(request % 2 == 0 && policy.may_repeat());
            policy.end(bytes, took(bytes));
        }
        // The last request that is late is the one before the last.
        assert_eq!(repeated, 999 / REQUESTS_PER_REPEAT);
    }
}
