//! The elapsed time of a pass by the rows that it has processed. Some rows cost more than others, and most passes end with
//! work without rows, such as merging states and publishing files.

use serde::{Deserialize, Serialize};

/// The number of equal parts of a pass's rows at whose ends the time is kept.
pub(crate) const PARTS: usize = 16;

/// The samples that are kept of a pass.
const SAMPLES_MAX: usize = 256;

/// For each part of the rows, when the pass had processed it, as a share of its total time. Empty if unknown: time is
/// then taken as proportional to rows.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct ProgressCurve(Vec<f64>);

impl ProgressCurve {
    /// The share of the time at a share of the rows.
    pub fn at(&self, rows: f64) -> f64 {
        let rows = rows.clamp(0.0, 1.0);
        let part = (rows * self.0.len() as f64).ceil().max(1.0) as usize - 1;
        let Some(end) = self.0.get(part) else {
            return rows;
        };
        let begin = match part.checked_sub(1) {
            Some(previous) => self.0[previous],
            None => 0.0,
        };
        begin + (end - begin) * (rows * self.0.len() as f64 - part as f64)
    }
}

/// The rows that a pass has reported, with the seconds since it began.
#[derive(Debug, Clone, Default)]
pub(crate) struct ProgressSamples {
    samples: Vec<(u64, f64)>,
    /// The least number of rows between two samples.
    apart: u64,
    last: (u64, f64),
}

impl ProgressSamples {
    /// Adds rows that the pass has reported.
    pub fn push(&mut self, new_rows: u64, seconds: f64) {
        let rows = self.rows() + new_rows;
        self.last = (rows, seconds);
        if let Some((sampled_rows, _)) = self.samples.last()
            && rows < sampled_rows + self.apart
        {
            return;
        }
        self.samples.push(self.last);
        if self.samples.len() == SAMPLES_MAX {
            // Half of the samples stay, twice as far from each other.
            self.apart = 2 * rows / SAMPLES_MAX as u64;
            let mut next_rows = 0;
            self.samples.retain(|(rows, _)| {
                if *rows < next_rows {
                    return false;
                }
                next_rows = rows + self.apart;
                true
            });
        }
    }

    /// The reported rows.
    pub fn rows(&self) -> u64 {
        self.last.0
    }

    /// Time of the last report of rows.
    pub fn last(&self) -> f64 {
        self.last.1
    }

    /// Seconds per row, from the first reported rows to the last; `None` before there are two
    /// reports.
    pub fn seconds_per_row(&self) -> Option<f64> {
        let (first_rows, first) = *self.samples.first()?;
        let (last_rows, last) = self.last;
        (last_rows > first_rows).then(|| (last - first) / (last_rows - first_rows) as f64)
    }

    /// The curve of a pass that took `seconds`.
    pub fn curve(&self, seconds: f64) -> ProgressCurve {
        let rows = self.rows();
        if rows == 0 || seconds <= 0.0 {
            return ProgressCurve::default();
        }
        let mut samples = self.samples.iter().chain([&self.last]).peekable();
        let mut shares = Vec::with_capacity(PARTS);
        let mut lower = (0, 0.0);
        for part in 1..=PARTS {
            // The time at the end of a part lies between those of the samples around it.
            let part_rows = rows as f64 * part as f64 / PARTS as f64;
            while let Some(sample) = samples.next_if(|(rows, _)| (*rows as f64) < part_rows) {
                lower = *sample;
            }
            let upper = samples.peek().map_or(self.last, |sample| **sample);
            let share = (part_rows - lower.0 as f64) / (upper.0 - lower.0).max(1) as f64;
            let time = lower.1 + (upper.1 - lower.1) * share.min(1.0);
            shares.push(time / seconds);
        }
        ProgressCurve(shares)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn curve_follows_the_recorded_run() {
        // However many moments there were, a pass that does its rows in half of its time, the first half of them
        // in a tenth of that.
        for rows in [20, 1000, 1_000_000] {
            let mut moments = ProgressSamples::default();
            for row in 1..=rows {
                let done = row as f64 / rows as f64;
                let seconds = if done <= 0.5 {
                    done * 0.1
                } else {
                    0.05 + (done - 0.5) * 0.9
                };
                moments.push(1, seconds * 100.0);
            }
            assert!(moments.samples.len() < SAMPLES_MAX);
            assert_eq!(moments.last(), 50.0);
            let curve = moments.curve(100.0);
            for (done, time) in [
                (0.0, 0.0),
                (0.25, 0.025),
                (0.5, 0.05),
                (0.75, 0.275),
                (1.0, 0.5),
                (2.0, 0.5),
            ] {
                assert!(
                    (curve.at(done) - time).abs() < 0.01,
                    "{rows} rows, {done}: {} {time}",
                    curve.at(done)
                );
            }
        }
    }

    #[test]
    fn default_curve_is_linear() {
        for curve in [
            ProgressCurve::default(),
            ProgressSamples::default().curve(1.0),
        ] {
            assert_eq!(
                [0.0, 0.3, 1.0, 7.0].map(|rows| curve.at(rows)),
                [0.0, 0.3, 1.0, 1.0]
            );
        }
    }
}
