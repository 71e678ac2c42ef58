//! `rolling`: statistics of the last rows or the last stretch of time.

use forebay_model::Result;
use forebay_plan::{BindScope, ColumnSelector, ConfiguredTransform, PlanOp, Transform};
use forebay_setters::Setters;
use forebay_window::SeriesFrame;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::length::{LengthSpec, TimeColumn};
use super::naming::FeatureNamer;
use super::windows::{StatisticOptions, WindowOpBuilder, require_not_empty};
use super::{FeatureNaming, FloatType, GapPolicy, MinPeriods, SeriesStatistic};
use crate::shared::bad_value;

/// Statistics of a window that ends at the row, or `gap` before it.
///
/// In: columns of numbers or booleans; of any type where only `first`, `last`, `count` and `n_unique` are computed. Out, for each length and statistic:
/// `<column>_<statistic>_<over>`, such as `qty_mean_28d`; a quantile is `q90`. Numbers are `dtype`,
/// `count`, `n_unique` and `since_nonzero` by rows `int64`, `first` and `last` the column's own
/// type. The window of time is `(t - gap - over, t - gap]`; rows of the same time count as far as
/// they came before. Null and NaN are no values; where there are fewer than `min_periods`, or too
/// few for the statistic, the result is null. Every result is a function of the window's values
/// alone. State per series: some 16 bytes for each row that the longest window holds. Follows
/// pandas' `rolling`.
///
/// ```yaml
/// - rolling: { columns: [qty], compute: [mean, std], over: [7d, 28d], gap: 1d }
/// ```
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema, Setters)]
#[serde(deny_unknown_fields)]
#[setters(
    fn rolling(columns),
    example = r#"rolling(["qty"]).compute([SeriesStatistic::Mean]).over(["7d", "28d"]).gap("1d")"#
)]
pub struct RollingWindow {
    /// Columns of numbers or booleans; of any type for `first`, `last`, `count` and `n_unique`.
    pub columns: ColumnSelector,
    /// Which statistics.
    pub compute: Vec<SeriesStatistic>,
    /// How long windows are, in rows or time.
    pub over: Vec<LengthSpec>,
    /// How far before the row windows end: a feature then uses data at or before `t - gap` only.
    #[serde(default)]
    pub gap: Option<LengthSpec>,
    /// Which ends belong to the window.
    #[serde(default)]
    pub closed: ClosedWindow,
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
    /// Meaning of missing periods; required where rows are counted.
    #[serde(default)]
    pub gaps: Option<GapPolicy>,
    /// How the new columns are called.
    #[serde(default)]
    pub names: FeatureNaming,
    /// The type of computed numbers.
    #[serde(default)]
    pub dtype: FloatType,
}

pub(super) fn one() -> u8 {
    1
}

/// Which ends of a window belong to it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum ClosedWindow {
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

impl ClosedWindow {
    pub(super) fn to_window_closed(self) -> forebay_window::ClosedEnds {
        match self {
            ClosedWindow::Right => forebay_window::ClosedEnds::Right,
            ClosedWindow::Left => forebay_window::ClosedEnds::Left,
            ClosedWindow::Both => forebay_window::ClosedEnds::Both,
            ClosedWindow::Neither => forebay_window::ClosedEnds::Neither,
        }
    }

    /// Number of periods that a window of so many spans holds.
    fn periods_held(self, periods: u64) -> u64 {
        match self {
            ClosedWindow::Right | ClosedWindow::Left => periods,
            ClosedWindow::Both => periods.saturating_add(1),
            ClosedWindow::Neither => periods.saturating_sub(1),
        }
    }
}

impl ConfiguredTransform for RollingWindow {
    const NAME: &'static str = "rolling";
}

impl Transform for RollingWindow {
    fn bind(&self, scope: &BindScope<'_>) -> Result<Vec<PlanOp>> {
        require_not_empty(&self.compute, "compute")?;
        require_not_empty(&self.over, "over")?;
        let mut windows = WindowOpBuilder::new(
            scope,
            Self::NAME,
            &self.time,
            &self.keys,
            self.gaps.as_ref(),
        )?;
        let time = windows.time.clone();
        let fields = windows.columns_of_statistics(&self.columns, &self.compute)?;
        let names = FeatureNamer::new(self.names, fields.len(), &time, self.gaps.as_ref());
        for field in fields {
            for length in self.over.iter().copied() {
                if length.is_zero() {
                    let message = format!("a window of `over: {length}` holds nothing");
                    return Err(bad_value(message));
                }
                let over = windows.length(length)?;
                let gap = windows.gap(self.gap, length, "over")?;
                let frame = SeriesFrame::Rolling {
                    over,
                    gap,
                    closed: self.closed.to_window_closed(),
                };
                let periods_held = self.periods_held(length, &time)?;
                for statistic in self.compute.iter().copied() {
                    let min_periods = self.required_periods(length, statistic, periods_held)?;
                    let usual = format!("{}_{length}", statistic.word());
                    let name = names.column_name(field.name(), usual, |names| {
                        let mut suffix = format!("_window_size{}", names.periods(length)?);
                        if self.min_periods.is_some() {
                            suffix += &format!("_min_samples{min_periods}");
                        }
                        let gap = self.gap.unwrap_or(LengthSpec::Rows(0));
                        names.mlforecast_name("rolling", statistic, gap, &suffix)
                    })?;
                    let options = StatisticOptions {
                        frame,
                        measure: length,
                        min_periods,
                        ddof: self.ddof,
                        dtype: self.dtype,
                    };
                    windows.add_statistic(field, statistic, name, &options)?;
                }
            }
        }
        windows.finish()
    }
}

impl RollingWindow {
    /// The periods that a window of a length holds, where its length is a number of periods.
    fn periods_held(&self, length: LengthSpec, time: &TimeColumn) -> Result<Option<u64>> {
        let mut periods = None;
        if let LengthSpec::Rows(rows) = length {
            periods = Some(rows);
        } else if let Some(gaps) = &self.gaps
            && let Some(every) = gaps.every()
        {
            let whole_periods = length.periods_of(every, time)?;
            periods = whole_periods.map(|(periods, _)| periods as u64);
        }
        Ok(periods.map(|periods| self.closed.periods_held(periods)))
    }

    /// The values without which a statistic is null.
    fn required_periods(
        &self,
        length: LengthSpec,
        statistic: SeriesStatistic,
        periods_held: Option<u64>,
    ) -> Result<u64> {
        if let Some(min_periods) = self.min_periods {
            return min_periods.resolve_count(periods_held);
        }
        Ok(match (statistic, length) {
            (SeriesStatistic::Count, _) => 0,
            (_, LengthSpec::Rows(rows)) => rows.min(self.closed.periods_held(rows)),
            _ => 1,
        })
    }
}
