//! A half-open interval of time.

use arrow::datatypes::Field;
use serde::{Deserialize, Serialize};

use crate::{Fault, Result, TimeCutoff, codes};

/// From a time on, and before another: dates, timestamps, or numbers where times are numbers.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Interval {
    /// The first time.
    pub from: String,
    /// The first time that no longer belongs to it.
    pub to: String,
}

impl Interval {
    /// Its first and last tick in a column of times.
    pub fn ticks(&self, time: &Field) -> Result<(i64, i64)> {
        // The first tick is the one behind the last tick before the interval.
        let before_first = TimeCutoff::before(&self.from).last_tick(time)?;
        let first = before_first.saturating_add(1);
        let last = TimeCutoff::before(&self.to).last_tick(time)?;
        if first > last {
            let message = format!(
                "the interval from {} to {} holds no value of `{}`",
                self.from,
                self.to,
                time.name()
            );
            return Err(Fault::new(codes::BAD_VALUE, message)
                .hint("its end lies after its start, and outside of it"));
        }
        Ok((first, last))
    }
}
