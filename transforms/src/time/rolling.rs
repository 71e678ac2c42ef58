//! `rolling`: statistics of the last rows or the last stretch of time.

use forebay_model::Result;
use forebay_plan::{Columns, Configured, Op, Scope, Transform};
use forebay_window::Frame;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::length::Length;
use super::naming::Names;
use super::windows::{Taken, Windows, not_empty};
use super::{FloatType, Gaps, MinPeriods, Naming, Statistic};
use crate::shared::bad_value;

/// Statistics of a window that ends at the row, or `gap` before it.
///
/// In: columns of numbers or booleans. Out, for each length and statistic:
/// `<column>_<statistic>_<over>`, such as `qty_mean_28d`; a quantile is `q90`. Numbers are `dtype`,
/// `count`, `n_unique` and `since_nonzero` by rows `int64`, `first` and `last` the column's own
/// type. The window of time is `(t - gap - over, t - gap]`; rows of the same time count as far as
/// they came before. Null and NaN are no values; where there are fewer than `min_periods`, or too
/// few for the statistic, the result is null. Every result is a function of the window's values
/// alone. State per series: some 16 bytes for each row that the longest window holds. Follows
/// pandas' `rolling`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Rolling {
    /// Columns of numbers or booleans.
    pub columns: Columns,
    /// Which statistics.
    pub compute: Vec<Statistic>,
    /// How long windows are, in rows or time.
    pub over: Vec<Length>,
    /// How far before the row windows end: a feature then uses data at or before `t - gap` only.
    #[serde(default)]
    pub gap: Option<Length>,
    /// Which ends belong to the window.
    #[serde(default)]
    pub closed: Closed,
    /// How many values it takes: a count, or a share of the rows such as `50%`. Where left out,
    /// the whole window by rows and 1 by time; 0 for `count`.
    #[serde(default)]
    pub min_periods: Option<MinPeriods>,
    /// `std` and `var` divide by `n - ddof`.
    #[serde(default = "one")]
    pub ddof: u8,
    /// The event-time column, where the source does not declare it.
    #[serde(default)]
    pub time: Option<String>,
    /// The columns that tell series apart, where the source does not declare them; `[]` makes all
    /// rows one series.
    #[serde(default)]
    pub keys: Option<Vec<String>>,
    /// What missing periods mean; has to be said where rows are counted.
    #[serde(default)]
    pub gaps: Option<Gaps>,
    /// How the new columns are called.
    #[serde(default)]
    pub names: Naming,
    /// The type of computed numbers.
    #[serde(default)]
    pub dtype: FloatType,
}

pub(super) fn one() -> u8 {
    1
}

impl Default for Rolling {
    fn default() -> Self {
        let (columns, compute, over, gap, closed, min_periods) = Default::default();
        let (time, keys, gaps, names, dtype) = Default::default();
        Rolling { columns, compute, over, gap, closed, min_periods, ddof: 1, time, keys, gaps, names, dtype }
    }
}

/// Which ends of a window belong to it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Closed {
    /// `(t - w, t]`.
    #[default]
    Right,
    /// `[t - w, t)`.
    Left,
    /// `[t - w, t]`.
    Both,
    /// `(t - w, t)`.
    Neither,
}

impl Closed {
    pub(super) fn of(self) -> forebay_window::Closed {
        match self {
            Closed::Right => forebay_window::Closed::Right,
            Closed::Left => forebay_window::Closed::Left,
            Closed::Both => forebay_window::Closed::Both,
            Closed::Neither => forebay_window::Closed::Neither,
        }
    }

    /// How many periods a window of so many spans holds.
    fn holds(self, periods: u64) -> u64 {
        match self {
            Closed::Right | Closed::Left => periods,
            Closed::Both => periods.saturating_add(1),
            Closed::Neither => periods.saturating_sub(1),
        }
    }
}

impl Configured for Rolling {
    const NAME: &'static str = "rolling";
}

impl Transform for Rolling {
    fn bind(&self, scope: &Scope<'_>) -> Result<Vec<Op>> {
        not_empty(&self.compute, "compute")?;
        not_empty(&self.over, "over")?;
        let mut windows = Windows::new(scope, Self::NAME, &self.time, &self.keys, self.gaps.as_ref())?;
        let time = windows.time.clone();
        let fields = windows.numbers(&self.columns)?;
        let names = Names::new(self.names, fields.len(), &time, self.gaps.as_ref());
        for field in fields {
            for length in &self.over {
                if length.is_zero() {
                    return Err(bad_value(format!("a window of `over: {length}` holds nothing")));
                }
                let (over, gap) = (windows.length(*length)?, windows.gap(self.gap, *length, "over")?);
                let frame = Frame::Rolling { over, gap, closed: self.closed.of() };
                let periods = match (length, self.gaps.as_ref().and_then(Gaps::every)) {
                    (Length::Rows(rows), _) => Some(*rows),
                    (_, Some(every)) => Some((length.ticks(&time)? / every.ticks(&time)?.max(1)) as u64),
                    _ => None,
                };
                let holds = periods.map(|periods| self.closed.holds(periods));
                for statistic in &self.compute {
                    let min_periods = match (self.min_periods, length, statistic) {
                        (Some(wanted), ..) => wanted.of(holds)?,
                        (None, _, Statistic::Count) => 0,
                        (None, Length::Rows(rows), _) => (*rows).min(self.closed.holds(*rows)),
                        (None, Length::Time(..), _) => 1,
                    };
                    let name = names.of(field.name(), format!("{}_{length}", statistic.word()), |names| {
                        let mut rest = format!("_window_size{}", names.periods(*length)?);
                        if self.min_periods.is_some() {
                            rest += &format!("_min_samples{min_periods}");
                        }
                        names.peer("rolling", *statistic, self.gap.unwrap_or(Length::Rows(0)), &rest)
                    })?;
                    let (ddof, dtype) = (self.ddof, self.dtype);
                    windows.statistic(
                        field,
                        *statistic,
                        name,
                        &Taken { frame, measure: *length, min_periods, ddof, dtype },
                    )?;
                }
            }
        }
        windows.finish()
    }
}
