//! How well rows are shuffled: one number between 0 (as they lie) and 1 (a true permutation).
//!
//! In a true permutation of `n` rows, two rows that are delivered near each other lie `(n + 1) / 3`
//! apart in the source on average. Quality is the smallest ratio, over the distances 1, 2, 4, ...
//! 4096 in delivery, of the mean distance in the source to that. A window that holds `k` blocks at
//! a time, chosen at random, reaches about `1 - 1/k`: two rows of the same block lie near each
//! other. A shuffle buffer over rows in source order stays near 0, and so does reading with a
//! stride, at the distance in delivery that undoes the stride.

/// Distances in delivery that are looked at.
const LAGS: [usize; 13] = [1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096];

/// Rows remembered: the largest distance.
const RING: usize = 4096;

/// How well rows are shuffled.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Quality {
    /// 0 as the rows lie, 1 as in a true permutation.
    pub score: f64,
    /// Where the score was found: the distance in delivery.
    pub lag: usize,
}

/// Measures the quality of an order from the source rows as they are delivered.
#[derive(Debug, Clone)]
pub struct QualityMeter {
    ring: Vec<u64>,
    seen: usize,
    distances: [u128; LAGS.len()],
}

impl Default for QualityMeter {
    fn default() -> Self {
        QualityMeter { ring: vec![0; RING], seen: 0, distances: [0; LAGS.len()] }
    }
}

impl QualityMeter {
    /// The next row that is delivered, by its number in the source.
    pub fn push(&mut self, row: u64) {
        for (distance, &lag) in self.distances.iter_mut().zip(&LAGS) {
            if self.seen >= lag {
                *distance += u128::from(self.ring[(self.seen - lag) % RING].abs_diff(row));
            }
        }
        self.ring[self.seen % RING] = row;
        self.seen += 1;
    }

    /// The quality of what was delivered of `rows` rows; `None` before there are enough rows to
    /// tell: two.
    pub fn finish(&self, rows: u64) -> Option<Quality> {
        // Of few rows, far lags see few pairs and say nothing.
        let lags = LAGS.iter().zip(&self.distances).filter(|(lag, _)| **lag == 1 || **lag * 16 < self.seen);
        lags.filter(|(lag, _)| self.seen > **lag)
            .map(|(&lag, &distance)| {
                let mean = distance as f64 / (self.seen - lag) as f64;
                Quality { score: (mean / ((rows as f64 + 1.0) / 3.0)).min(1.0), lag }
            })
            .min_by(|a, b| a.score.total_cmp(&b.score))
    }
}
