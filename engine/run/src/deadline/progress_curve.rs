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
        let begin = part.checked_sub(1).map_or(0.0, |before| self.0[before]);
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
    pub fn push(&mut self, more: u64, seconds: f64) {
        let rows = self.rows() + more;
        self.last = (rows, seconds);
        if self
            .samples
            .last()
            .is_some_and(|(before, _)| rows < before + self.apart)
        {
            return;
        }
        self.samples.push(self.last);
        if self.samples.len() == SAMPLES_MAX {
            self.apart = 2 * rows / SAMPLES_MAX as u64;
            let mut kept = 0;
            self.samples.retain(|(rows, _)| {
                let is_kept = *rows >= kept;
                kept = if is_kept { rows + self.apart } else { kept };
                is_kept
            });
        }
    }

    /// The reported rows.
    pub fn rows(&self) -> u64 {
        self.last.0
    }

    /// When the last row was told of.
    pub fn last(&self) -> f64 {
        self.last.1
    }

    /// Seconds of a row, from the first rows that were reported to the last; `None` before there are two reports.
    pub fn seconds_per_row(&self) -> Option<f64> {
        let (first_rows, first) = *self.samples.first()?;
        let (last_rows, last) = self.last;
        (last_rows > first_rows).then(|| (last - first) / (last_rows - first_rows) as f64)
    }

    /// The course of a pass that took so long.
    pub fn course(&self, seconds: f64) -> ProgressCurve {
        let rows = self.rows();
        if rows == 0 || seconds <= 0.0 {
            return ProgressCurve::default();
        }
        let mut moments = self.samples.iter().chain([&self.last]).peekable();
        let mut before = (0, 0.0);
        let mut end = |part: usize| {
            let goal = rows as f64 * part as f64 / PARTS as f64;
            while let Some(moment) = moments.next_if(|(rows, _)| (*rows as f64) < goal) {
                before = *moment;
            }
            let after = moments.peek().map_or(self.last, |moment| **moment);
            let share = (goal - before.0 as f64) / (after.0 - before.0).max(1) as f64;
            (before.1 + (after.1 - before.1) * share.min(1.0)) / seconds
        };
        ProgressCurve((1..=PARTS).map(&mut end).collect())
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
            let course = moments.course(100.0);
            for (done, time) in [
                (0.0, 0.0),
                (0.25, 0.025),
                (0.5, 0.05),
                (0.75, 0.275),
                (1.0, 0.5),
                (2.0, 0.5),
            ] {
                assert!(
                    (course.at(done) - time).abs() < 0.01,
                    "{rows} rows, {done}: {} {time}",
                    course.at(done)
                );
            }
        }
    }

    #[test]
    fn default_curve_is_linear() {
        for course in [
            ProgressCurve::default(),
            ProgressSamples::default().course(1.0),
        ] {
            assert_eq!(
                [0.0, 0.3, 1.0, 7.0].map(|rows| course.at(rows)),
                [0.0, 0.3, 1.0, 1.0]
            );
        }
    }
}
