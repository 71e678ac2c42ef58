//! Eviction policy: which series move to the cold store, and when.

use forebay_model::Result;

use crate::eviction_stats::EvictionStats;
use crate::partition::SeriesPartition;

/// Eviction starts at one part in this many of the memory limit.
const EVICT_FROM_SHARE: usize = 8;

/// Divisor of the memory limit: from one part in this many on, eviction continues even if series
/// return soon, unless more are active than evicted.
const EVICT_ALWAYS_SHARE: usize = 2;

/// Divisor of the number of series: one part in this many stays active, those with the newest rows.
const ACTIVE_SHARE: usize = 4;

impl SeriesPartition {
    /// Evicts series if the state is large compared with `bytes_max`.
    pub fn settle(&mut self, bytes_max: usize) -> Result<()> {
        let awake = self.table.len();
        let bytes = self.awake_bytes();
        if awake < self.rests.crowd || bytes < bytes_max / EVICT_FROM_SHARE {
            return Ok(());
        }
        let is_much = bytes >= bytes_max / EVICT_ALWAYS_SHARE && self.resting.len() >= awake;
        if self.rests.woken * 2 > self.rests.rested && !is_much {
            // Evicted series return too soon: keep more of them active.
            self.rests = EvictionStats {
                crowd: awake * 2,
                ..EvictionStats::default()
            };
            return Ok(());
        }
        let rested = self.rest()?;
        self.rests = EvictionStats {
            crowd: awake,
            rested,
            woken: 0,
        };
        Ok(())
    }

    /// Evicts all series but those with the newest rows; returns how many.
    pub fn rest(&mut self) -> Result<usize> {
        let awake = self.table.len();
        let last = |part: &SeriesPartition, series: usize| part.history.head(series as u32).last;
        let mut lasts: Vec<i64> = (0..awake).map(|series| last(self, series)).collect();
        let at = awake - awake.div_ceil(ACTIVE_SHARE);
        if at == 0 {
            return Ok(0);
        }
        let (_, &mut oldest, _) = lasts.select_nth_unstable(at);
        drop(lasts);
        self.forget_tied_windows();
        let mut bytes = Vec::new();
        let mut even_times = Vec::new();
        // Backward, so that a series that takes a removed one's number has been visited.
        for series in (0..awake).rev() {
            if last(self, series) >= oldest {
                continue;
            }
            self.encode_series(series, &mut even_times, &mut bytes)?;
            if self.resting.insert(self.table.hash(series), &bytes) {
                self.table.remove(series);
                self.history.remove(series);
                self.memories.remove(series);
            }
        }
        Ok(awake - self.table.len())
    }

    /// Restores the evicted ones among the series from number `known_series` on.
    pub(crate) fn wake(&mut self, known_series: usize) -> Result<()> {
        if self.resting.len() == 0 {
            return Ok(());
        }
        let resting = std::mem::take(&mut self.resting);
        let mut columns = Vec::new();
        let mut woken = Vec::new();
        for series in known_series..self.table.len() {
            let hash = self.table.hash(series);
            let Some(bytes) = resting.find(hash) else {
                continue;
            };
            self.history.grow(series);
            self.memories.grow(series);
            self.decode_series(bytes, &mut columns, self.table.len() - series - 1)?;
            woken.push(hash);
        }
        self.resting = resting;
        self.rests.woken += woken.len();
        woken.into_iter().for_each(|hash| self.resting.remove(hash));
        self.resting.compact();
        Ok(())
    }
}
