//! Number of requests in flight: raised while that raises the throughput, lowered where the store
//! refuses. Pure: answers and their times are passed in.

use std::time::Duration;

/// Requests in flight at first: enough that the latency of a store in the same region does not count, and that the
/// footers of some tens of files come in one round trip.
const REQUESTS_FIRST: usize = 32;

/// Requests in flight at most.
pub const REQUESTS_MAX: usize = 64;

/// Requests in flight at least, where a store refuses: retries have pauses of their own.
const REQUESTS_MIN: usize = 4;

/// Factor by which more requests must raise the throughput to be worth it; twice as many could
/// double it.
const GAIN_MIN: f64 = 1.1;

/// The share of refused requests from which on there are too many in flight.
const REFUSED_SHARE_MAX: f64 = 0.02;

/// Rounds after which a limit that did not pay is tried again: conditions change.
const ROUNDS_BETWEEN_TRIES: usize = 8;

/// The limit of requests in flight. Answers are counted in rounds of about as many as may be in flight.
#[derive(Debug)]
pub struct ConcurrencyLimit {
    limit: usize,
    /// The limit before the last raise, while it is unknown whether that pays.
    before: Option<usize>,
    /// Bytes per second of the round before.
    throughput: f64,
    /// True once a refusal has ended the first, fast growth.
    is_careful: bool,
    /// Rounds until the next raise.
    pause: usize,
    round: Round,
}

/// Answers since the limit was last adjusted.
#[derive(Debug, Default)]
struct Round {
    begun: Option<Duration>,
    bytes: u64,
    done: usize,
    refused: usize,
    /// True if requests waited for others to end.
    is_full: bool,
}

impl Default for ConcurrencyLimit {
    fn default() -> Self {
        ConcurrencyLimit {
            limit: REQUESTS_FIRST,
            before: None,
            throughput: 0.0,
            is_careful: false,
            pause: 0,
            round: Round::default(),
        }
    }
}

impl ConcurrencyLimit {
    /// Requests that may be in flight.
    pub fn limit(&self) -> usize {
        self.limit
    }

    /// A request begins at a time that counts from any start.
    pub fn begin(&mut self, now: Duration) {
        self.round.begun.get_or_insert(now);
    }

    /// Records the end of a request with `bytes` bytes; `is_full` if others wait because of the
    /// limit.
    pub fn end(&mut self, now: Duration, bytes: u64, is_full: bool) {
        self.round.bytes += bytes;
        self.round.done += 1;
        self.round.is_full |= is_full;
        self.close_round(now);
    }

    /// Records that the store has refused a request because of too many requests.
    pub fn refuse(&mut self, now: Duration) {
        self.round.begun.get_or_insert(now);
        self.round.refused += 1;
        self.close_round(now);
    }

    fn close_round(&mut self, now: Duration) {
        let answers = self.round.done + self.round.refused;
        if answers < self.limit {
            return;
        }
        let round = std::mem::replace(
            &mut self.round,
            Round {
                begun: Some(now),
                ..Round::default()
            },
        );
        if round.refused as f64 > answers as f64 * REFUSED_SHARE_MAX {
            self.limit = (self.limit / 2).max(REQUESTS_MIN);
            (self.before, self.throughput, self.is_careful, self.pause) = (None, 0.0, true, 1);
            return;
        }
        let seconds = now.saturating_sub(round.begun.unwrap_or(now)).as_secs_f64();
        // A round below its limit gives no evidence about the limit.
        if !round.is_full || seconds <= 0.0 {
            return;
        }
        let throughput = round.bytes as f64 / seconds;
        match self.before.take() {
            Some(earlier_limit) if throughput < self.throughput * GAIN_MIN => {
                (self.limit, self.pause, self.is_careful) =
                    (earlier_limit, ROUNDS_BETWEEN_TRIES, true);
                return;
            }
            _ => self.throughput = throughput,
        }
        if self.pause > 0 {
            self.pause -= 1;
        } else if self.limit < REQUESTS_MAX {
            let growth = if self.is_careful {
                (self.limit / 4).max(1)
            } else {
                self.limit
            };
            self.before = Some(self.limit);
            self.limit = (self.limit + growth).min(REQUESTS_MAX);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Limits after each round of requests to a store of some total bandwidth: `rate` bytes a
    /// second over all requests, at most `per_request` for each, after a latency. It refuses
    /// requests beyond `most` in flight.
    fn limit_after(rounds: usize, rate: f64, per_request: f64, most: usize) -> Vec<usize> {
        let mut limit = ConcurrencyLimit::default();
        let mut now = 0.0;
        let mut limits = Vec::new();
        let bytes = 8e6;
        for _ in 0..rounds {
            let in_flight = limit.limit();
            limit.begin(Duration::from_secs_f64(now));
            let taken = bytes / per_request.min(rate / in_flight as f64);
            now += 0.05 + taken;
            (0..in_flight.saturating_sub(most))
                .for_each(|_| limit.refuse(Duration::from_secs_f64(now)));
            (0..in_flight.min(most))
                .for_each(|_| limit.end(Duration::from_secs_f64(now), bytes as u64, true));
            limits.push(limit.limit());
        }
        limits
    }

    #[test]
    fn the_limit_grows_while_throughput_does() {
        // Each connection is slow, all together are not: after a round the limit is at its most.
        assert_eq!(limit_after(3, 1e12, 60e6, 1000), [64, 64, 64]);
        // The network is full with few.
        let settled = limit_after(100, 300e6, 60e6, 1000);
        assert!(settled[1..].iter().all(|limit| *limit <= 40), "{settled:?}");
        let mean = settled.iter().sum::<usize>() as f64 / 100.0;
        assert!((30.0..36.0).contains(&mean), "{settled:?}");
    }

    #[test]
    fn refusals_halve_the_limit_until_it_fits() {
        let limits = limit_after(200, 1e12, 60e6, 24);
        let late = &limits[100..];
        assert!(
            late.iter().all(|limit| (8..=32).contains(limit)),
            "{late:?}"
        );
        assert!(late.iter().sum::<usize>() as f64 / 100.0 > 14.0, "{late:?}");
        // It never comes to a halt.
        assert_eq!(limit_after(50, 1e12, 60e6, 0).last(), Some(&REQUESTS_MIN));
    }

    #[test]
    fn a_limit_that_is_not_used_stays() {
        let mut limit = ConcurrencyLimit::default();
        for second in 0..1000 {
            limit.begin(Duration::from_secs(second));
            limit.end(Duration::from_secs(second + 1), 1 << 20, false);
        }
        assert_eq!(limit.limit(), REQUESTS_FIRST);
    }
}
