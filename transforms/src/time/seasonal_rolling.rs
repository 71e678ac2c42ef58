//! `seasonal_rolling`: statistics of the same place in the last seasons.

use forebay_model::Result;
use forebay_plan::{BindScope, ColumnSelector, ConfiguredTransform, PlanOp, Transform};
use forebay_setters::Setters;
use forebay_window::SeriesFrame;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::length::LengthSpec;
use super::naming::FeatureNamer;
use super::rolling::one;
use super::windows::{StatisticOptions, WindowOpBuilder, require_not_empty};
use super::{FeatureNaming, FloatType, GapPolicy, MinPeriods, SeriesStatistic};
use crate::shared::bad_value;

/// Statistics of every season-th row: the mean of the last four Mondays, say.
///
/// In: columns of numbers or booleans; of any type where only `first`, `last`, `count` and `n_unique` are computed. Out, for each `over` and statistic:
/// `<column>_seasonal_<statistic>_<season>x<over>`, such as `qty_seasonal_mean_7dx4`, of the types
/// that `rolling` gives. The rows are those at `i - gap - k * season`, or at exactly the times
/// `t - gap - k * season` (the last one, if there are several), for k below `over`; with no gap
/// the row itself is among them. Null and NaN are no values; where there are fewer than
/// `min_periods`, or too few for the statistic, the result is null. State per series: some 16
/// bytes for each row of `season * over`. Follows mlforecast's `SeasonalRollingMean` and others,
/// whose lag is the gap.
///
/// ```yaml
/// - seasonal_rolling: { columns: [qty], compute: [mean], season: 7d, over: [4], gap: 7d }
/// ```
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema, Setters)]
#[serde(deny_unknown_fields)]
#[setters(
    fn seasonal_rolling(columns, season),
    example = r#"seasonal_rolling(["qty"], "7d").compute([SeriesStatistic::Mean]).over([4]).gap("1d")"#
)]
pub struct SeasonalRolling {
    /// Columns of numbers or booleans; of any type for `first`, `last`, `count` and `n_unique`.
    pub columns: ColumnSelector,
    /// Which statistics.
    pub compute: Vec<SeriesStatistic>,
    /// The distance from one season to the next, in rows or time.
    pub season: LengthSpec,
    /// Over how many seasons.
    pub over: Vec<u64>,
    /// How far before the row the last one is.
    #[serde(default)]
    pub gap: Option<LengthSpec>,
    /// How many values it takes: a count, or a share of `over` such as `50%`. Where left out,
    /// `over` by rows and 1 by time; 0 for `count`.
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

impl ConfiguredTransform for SeasonalRolling {
    const NAME: &'static str = "seasonal_rolling";
}

impl Transform for SeasonalRolling {
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
        if self.season.is_zero() {
            let message = format!("`season: {}` is no distance", self.season);
            return Err(bad_value(message));
        }
        let season = windows.length(self.season)?;
        let gap = windows.gap(self.gap, self.season, "season")?;
        for field in fields {
            for over in self.over.iter().copied() {
                if over == 0 {
                    return Err(bad_value("a window of `over: 0` holds nothing"));
                }
                for statistic in &self.compute {
                    let min_periods = self.required_periods(over, *statistic)?;
                    let usual = format!("seasonal_{}_{}x{over}", statistic.word(), self.season);
                    let name = names.column_name(field.name(), usual, |names| {
                        let season = names.periods(self.season)?;
                        let mut suffix = format!("_season_length{season}_window_size{over}");
                        if self.min_periods.is_some() {
                            suffix += &format!("_min_samples{min_periods}");
                        }
                        let gap = self.gap.unwrap_or(LengthSpec::Rows(0));
                        names.mlforecast_name("seasonal_rolling", *statistic, gap, &suffix)
                    })?;
                    let options = StatisticOptions {
                        frame: SeriesFrame::Seasonal { season, over, gap },
                        measure: self.season,
                        min_periods,
                        ddof: self.ddof,
                        dtype: self.dtype,
                    };
                    windows.add_statistic(field, *statistic, name, &options)?;
                }
            }
        }
        windows.finish()
    }
}

impl SeasonalRolling {
    /// The values without which a statistic is null.
    fn required_periods(&self, over: u64, statistic: SeriesStatistic) -> Result<u64> {
        if let Some(min_periods) = self.min_periods {
            return min_periods.resolve_count(Some(over));
        }
        Ok(match statistic {
            SeriesStatistic::Count => 0,
            _ if self.season.is_rows() => over,
            _ => 1,
        })
    }
}
