//! Quality of a shuffle: one number between 0 (rows as they lie) and 1 (a true permutation).
//!
//! In a true permutation of `n` rows, two rows that are delivered near each other lie `(n + 1) / 3`
//! apart in the source on average. Quality is the smallest ratio, over the distances 1, 2, 4, ...
//! 4096 in delivery, of the mean distance in the source to that. A window that holds `k` blocks at
//! a time, chosen at random, reaches about `1 - 1/k`: two rows of the same block lie near each
//! other. A shuffle buffer over rows in source order stays near 0, and so does reading with a
//! stride, at the distance in delivery that undoes the stride.

use super::RowSequence;

/// Distances in delivery that are measured.
const LAGS: [usize; 13] = [1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096];

/// Rows remembered: the largest distance.
const RING: usize = 4096;

/// Rows of a segment of an epoch that is measured, and the number of segments, evenly spread: one window mixes a few blocks
/// by chance, so that many windows must be seen.
const SEGMENT_ROWS: u64 = 1 << 14;
const SEGMENTS: u64 = 32;

/// A shuffle below this is worth a warning: rows that lie near each other are delivered near each other.
const QUALITY_MIN: f64 = 0.95;

/// Quality of a shuffle.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct ShuffleQuality {
    /// 0 as the rows lie, 1 as in a true permutation.
    pub score: f64,
    /// The distance in delivery with the lowest score.
    pub lag: usize,
    /// Number of rows that were measured.
    pub rows: u64,
}

impl ShuffleQuality {
    /// True if the score is below 0.95, by more than chance.
    pub fn is_poor(&self) -> bool {
        self.score + 2.5 / (self.rows.max(1) as f64).sqrt() < QUALITY_MIN
    }
}

/// Measures the quality of an order from the source rows as they are delivered.
#[derive(Debug, Clone)]
pub struct QualityMeter {
    ring: Vec<u64>,
    rows: u64,
    /// Rows of the current segment.
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
    /// Adds the next row that is delivered, by its number in the source.
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

    /// Begins a segment, whose rows do not follow those before.
    fn begin_segment(&mut self) {
        self.seen = 0;
    }

    /// The quality of what was delivered of `rows` rows; `None` before there are enough rows to
    /// tell: two.
    pub fn finish(&self, rows: u64) -> Option<ShuffleQuality> {
        // Of few rows, far lags see few pairs and say nothing.
        let expected = (rows as f64 + 1.0) / 3.0;
        let mut lowest: Option<ShuffleQuality> = None;
        for (index, &lag) in LAGS.iter().enumerate() {
            let pairs = self.pairs[index];
            if pairs == 0 || (lag > 1 && pairs <= lag as u64 * 15) {
                continue;
            }
            let mean = self.distances[index] as f64 / pairs as f64;
            let score = (mean / expected).min(1.0);
            if lowest.is_none_or(|lowest| score < lowest.score) {
                lowest = Some(ShuffleQuality {
                    score,
                    lag,
                    rows: self.rows,
                });
            }
        }
        lowest
    }
}

impl RowSequence {
    /// The quality of an epoch's shuffle, from segments of it (at most half a million rows); `None` where there are fewer
    /// than two rows.
    pub fn quality(&self, epoch: u64) -> Option<ShuffleQuality> {
        let rows = self.epoch_rows();
        let start = epoch.saturating_mul(rows);
        // Rows of all datasets are numbered one dataset after another.
        let mut first_rows = Vec::new();
        let mut row_count = 0;
        for dataset in self.datasets() {
            first_rows.push(row_count);
            row_count += dataset.rows();
        }
        let segments = rows.div_ceil(SEGMENT_ROWS).min(SEGMENTS);
        let length = SEGMENT_ROWS.min(rows);
        let mut meter = QualityMeter::default();
        for segment in 0..segments {
            // The first begins where the epoch does, and the last ends with it.
            let from = if segments > 1 {
                (rows - length) / (segments - 1) * segment
            } else {
                0
            };
            meter.begin_segment();
            let place_range = start + from..start + from + length;
            for row in self.rows(place_range) {
                meter.push(first_rows[row.dataset as usize] + row.row);
            }
        }
        meter.finish(rows)
    }
}
