//! `expanding`: statistics of everything so far.

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
use super::{FeatureNaming, FloatType, GapPolicy, SeriesStatistic};

/// Statistics of everything that a series had up to the row, or up to `gap` before it.
///
/// In: columns of numbers or booleans; of any type where only `first`, `last`, `count` and `n_unique` are computed. Out, for each statistic: `<column>_expanding_<statistic>`.
/// Numbers are `dtype`, `count`, `n_unique` and `since_nonzero` by rows `int64`, `first` and `last`
/// the column's own type. `slope` and `since_nonzero` are by the unit in which `gap` is written,
/// and by rows without a gap of time. Null and NaN are no values; where there are fewer than
/// `min_periods`, or too few for the statistic, the result is null. State per series: some 100
/// bytes for each column; quantiles, `n_unique` and a gap hold the values themselves. Follows
/// pandas' `expanding`.
///
/// ```yaml
/// - expanding: { columns: [qty], compute: [mean, max], gap: 1d }
/// ```
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema, Setters)]
#[serde(deny_unknown_fields)]
#[setters(
    fn expanding(columns),
    example = r#"expanding(["qty"]).compute([SeriesStatistic::Mean]).gap("1d")"#
)]
pub struct ExpandingWindow {
    /// Columns of numbers or booleans; of any type for `first`, `last`, `count` and `n_unique`.
    pub columns: ColumnSelector,
    /// Which statistics.
    pub compute: Vec<SeriesStatistic>,
    /// How far before the row it ends: the last so many rows, or rows later than `t - gap`, do
    /// not count.
    #[serde(default)]
    pub gap: Option<LengthSpec>,
    /// How many values it takes; 1 where left out, 0 for `count`.
    #[serde(default)]
    pub min_periods: Option<u64>,
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

impl ConfiguredTransform for ExpandingWindow {
    const NAME: &'static str = "expanding";
}

impl Transform for ExpandingWindow {
    fn bind(&self, scope: &BindScope<'_>) -> Result<Vec<PlanOp>> {
        require_not_empty(&self.compute, "compute")?;
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
        let length = self.gap.unwrap_or(LengthSpec::Rows(0));
        let frame = SeriesFrame::Expanding {
            gap: windows.gap(self.gap, length, "gap")?,
        };
        for field in fields {
            for statistic in &self.compute {
                let unless_set = if *statistic == SeriesStatistic::Count {
                    0
                } else {
                    1
                };
                let options = StatisticOptions {
                    frame,
                    measure: length,
                    min_periods: self.min_periods.unwrap_or(unless_set),
                    ddof: self.ddof,
                    dtype: self.dtype,
                };
                let name = names.column_name(
                    field.name(),
                    format!("expanding_{}", statistic.word()),
                    |names| names.mlforecast_name("expanding", *statistic, length, ""),
                )?;
                windows.add_statistic(field, *statistic, name, &options)?;
            }
        }
        windows.finish()
    }
}
