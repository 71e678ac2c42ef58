//! How well rows are shuffled: one number between 0 (as they lie) and 1 (a true permutation).
//!
//! In a true permutation of `n` rows, two rows that are delivered near each other lie `(n + 1) / 3`
//! apart in the source on average. Quality is the smallest ratio, over the distances 1, 2, 4, ...
//! 4096 in delivery, of the mean distance in the source to that. A window that holds `k` blocks at
//! a time, chosen at random, reaches about `1 - 1/k`: two rows of the same block lie near each
//! other. A shuffle buffer over rows in source order stays near 0, and so does reading with a
//! stride, at the distance in delivery that undoes the stride.

use super::RowSequence;

/// Distances in delivery that are looked at.
const LAGS: [usize; 13] = [1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096];

/// Rows remembered: the largest distance.
const RING: usize = 4096;

/// A stretch of an epoch that is looked at, and how many of them, evenly spread: what one window mixes is a few blocks
/// by chance, so that many windows must be seen.
const SEGMENT_ROWS: u64 = 1 << 14;
const SEGMENTS: u64 = 32;

/// A shuffle below this is worth a warning: rows that lie near each other are delivered near each other.
const QUALITY_MIN: f64 = 0.95;

/// How well rows are shuffled.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct ShuffleQuality {
    /// 0 as the rows lie, 1 as in a true permutation.
    pub score: f64,
    /// Where the score was found: the distance in delivery.
    pub lag: usize,
    /// How many rows were looked at.
    pub rows: u64,
}

impl ShuffleQuality {
    /// Whether the score is below 0.95, by more than chance.
    pub fn is_poor(&self) -> bool {
        self.score + 2.5 / (self.rows.max(1) as f64).sqrt() < QUALITY_MIN
    }
}

/// Measures the quality of an order from the source rows as they are delivered.
#[derive(Debug, Clone)]
pub struct QualityMeter {
    ring: Vec<u64>,
    rows: u64,
    /// Rows of the present stretch.
    seen: usize,
    /// Pairs of rows so many apart in delivery, and the sum of their distances in the source.
    pairs: [u64; LAGS.len()],
    distances: [u128; LAGS.len()],
}

impl Default for QualityMeter {
    fn default() -> Self {
        QualityMeter {
            ring: vec![0; RING],
            rows: 0,
            seen: 0,
            pairs: [0; LAGS.len()],
            distances: [0; LAGS.len()],
        }
    }
}

impl QualityMeter {
    /// The next row that is delivered, by its number in the source.
    pub fn push(&mut self, row: u64) {
        for ((distance, pairs), &lag) in self.distances.iter_mut().zip(&mut self.pairs).zip(&LAGS) {
            if self.seen >= lag {
                *distance += u128::from(self.ring[(self.seen - lag) % RING].abs_diff(row));
                *pairs += 1;
            }
        }
        self.ring[self.seen % RING] = row;
        self.seen += 1;
        self.rows += 1;
    }

    /// Rows from here on do not follow those before.
    fn begin_segment(&mut self) {
        self.seen = 0;
    }

    /// The quality of what was delivered of `rows` rows; `None` before there are enough rows to
    /// tell: two.
    pub fn finish(&self, rows: u64) -> Option<ShuffleQuality> {
        // Of few rows, far lags see few pairs and say nothing.
        let lags = LAGS.iter().zip(&self.pairs).zip(&self.distances);
        let told = lags
            .filter(|((lag, pairs), _)| **pairs > 0 && (**lag == 1 || **pairs > **lag as u64 * 15));
        told.map(|((&lag, &pairs), &distance)| {
            let mean = distance as f64 / pairs as f64;
            ShuffleQuality {
                score: (mean / ((rows as f64 + 1.0) / 3.0)).min(1.0),
                lag,
                rows: self.rows,
            }
        })
        .min_by(|a, b| a.score.total_cmp(&b.score))
    }
}

impl RowSequence {
    /// How well an epoch is shuffled, from stretches of it (at most half a million rows); `None` where there are fewer
    /// than two rows.
    pub fn quality(&self, epoch: u64) -> Option<ShuffleQuality> {
        let rows = self.epoch_rows();
        let start = epoch.saturating_mul(rows);
        let firsts: Vec<u64> = self
            .datasets()
            .iter()
            .scan(0, |sum, data| {
                Some(std::mem::replace(sum, *sum + data.rows()))
            })
            .collect();
        let stretches = rows.div_ceil(SEGMENT_ROWS).min(SEGMENTS);
        let mut meter = QualityMeter::default();
        for stretch in 0..stretches {
            // The first begins where the epoch does, and the last ends with it.
            let length = SEGMENT_ROWS.min(rows);
            let from = if stretches > 1 {
                (rows - length) / (stretches - 1) * stretch
            } else {
                0
            };
            meter.begin_segment();
            let places = start + from..start + from + length;
            self.rows(places)
                .iter()
                .for_each(|row| meter.push(firsts[row.dataset as usize] + row.row));
        }
        meter.finish(rows)
    }
}
