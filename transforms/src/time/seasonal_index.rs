//! `seasonal_index`: how the row's slot of the week or year compares with the whole.

use arrow::datatypes::{DataType, Field};
use forebay_model::{Result, TimeDistance};
use forebay_plan::{BindScope, ColumnSelector, ConfiguredTransform, PlanOp, Transform};
use forebay_setters::Setters;
use forebay_window::{WindowFunction, WordEncoding};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::length::{LengthSpec, TimeColumn};
use super::pooled_index::pooled_index;
use super::windows::{WindowOpBuilder, hide_helper_columns};
use super::{FloatType, GapPolicy, SeasonalPeriod};
use crate::shared::bad_value;

/// The hidden column of slots.
const SLOT: &str = "__slot";

/// The mean of the series in the row's slot (its day of the week, say), divided by the mean of the
/// series in all slots, both over the rows up to `gap` before.
///
/// In: columns of numbers. Out: `<column>_<period>_index`, such as `qty_day_of_week_index`
/// (`<column>_seasonal_index` of an expression). Null and NaN are no values, and rows without a
/// slot do not count. With n values in the slot and `shrink`, the index is `(n * index + strength *
/// parent) / (n + strength)`; the parent is 1, or the index of all series of a group. Where the
/// slot has fewer than `min_periods` values, or the whole mean is 0, the result is the parent, or
/// null without `shrink`.
///
/// State per series: 16 bytes for each slot that occurred, and 24 for each row in the gap. The
/// parent's table has some 60 bytes for each group, slot and time, and some 300 while it is made,
/// spilled beyond the budget. It is learned from the rows that the step is fitted on; an artifact
/// that is applied uses the table that it was made with.
///
/// ```yaml
/// - seasonal_index: { columns: [qty], period: day_of_week, gap: 1d }
/// ```
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema, Setters)]
#[serde(deny_unknown_fields)]
#[setters(
    fn seasonal_index(columns, period),
    example = r#"seasonal_index(["qty"], SeasonalPeriod::DayOfWeek).gap("1d")"#
)]
pub struct SeasonalIndex {
    /// Columns of numbers.
    pub columns: ColumnSelector,
    /// What comes round: `day_of_week`, `month`, ..., or `expression: "..."`.
    pub period: SeasonalPeriod,
    /// How far before the row the past ends.
    #[serde(default)]
    pub gap: Option<LengthSpec>,
    /// How many values the slot takes.
    #[serde(default = "one")]
    pub min_periods: u64,
    /// Draws the index of slots with few values toward a parent's.
    #[serde(default)]
    pub shrink: Option<IndexShrinkage>,
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
    /// The type that comes out.
    #[serde(default)]
    pub dtype: FloatType,
}

/// Draws an index toward its parent.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema, Setters)]
#[serde(deny_unknown_fields)]
#[setters(fn shrinkage(strength))]
pub struct IndexShrinkage {
    /// How many values the parent counts as.
    pub strength: f64,
    /// The columns of the group whose index is the parent, `[]` for that of all series together;
    /// where left out the parent is 1. A gap has to be a length of time.
    #[serde(default)]
    pub parent: Option<Vec<String>>,
}

fn one() -> u64 {
    1
}

impl ConfiguredTransform for SeasonalIndex {
    const NAME: &'static str = "seasonal_index";
}

impl Transform for SeasonalIndex {
    fn bind(&self, scope: &BindScope<'_>) -> Result<Vec<PlanOp>> {
        let mut windows = WindowOpBuilder::new(
            scope,
            Self::NAME,
            &self.time,
            &self.keys,
            self.gaps.as_ref(),
        )?;
        let time = windows.time.clone();
        let fields = scope.numeric_columns(&self.columns)?;
        let mut ops = vec![PlanOp::Map(self.period.slot_map(scope, &time, SLOT)?)];
        let gap = windows.gap(self.gap, self.gap.unwrap_or(LengthSpec::Rows(0)), "gap")?;
        let strength = self.checked_strength()?;
        let slot = windows.add_input(&Field::new(SLOT, DataType::Int64, true), WordEncoding::Bits);
        let mut names = Vec::new();
        for field in fields {
            let mut parent = None;
            if let Some(shrink) = &self.shrink
                && let Some(parents) = &shrink.parent
            {
                let gap = self.parent_gap(&time)?;
                let name = format!("__parent_{}", field.name());
                let index = pooled_index(scope, field, parents, SLOT, &time, gap, &name)?;
                ops.push(PlanOp::Map(index));
                let index_field = Field::new(name, DataType::Float64, true);
                parent = Some(windows.add_input(&index_field, WordEncoding::Number));
            }
            let input = windows.add_input(field, WordEncoding::Number);
            let name = match &self.period {
                SeasonalPeriod::Expression(_) => format!("{}_seasonal_index", field.name()),
                period => format!("{}_{}_index", field.name(), period.column_infix()),
            };
            let compute = WindowFunction::SeasonalIndex {
                slot,
                gap,
                min_periods: self.min_periods,
                strength,
                parent,
            };
            windows.add_output(input, compute, name.clone(), self.dtype.data_type());
            names.push(name);
        }
        ops.extend(windows.finish()?);
        ops.push(hide_helper_columns(scope, names));
        Ok(ops)
    }
}

impl SeasonalIndex {
    fn checked_strength(&self) -> Result<f64> {
        let strength = match &self.shrink {
            Some(shrink) => shrink.strength,
            None => 0.0,
        };
        if strength >= 0.0 && strength.is_finite() {
            return Ok(strength);
        }
        let message = format!("`strength: {strength}` is not a number of values");
        Err(bad_value(message))
    }

    /// The gap of the parent's index, whose windows are of time.
    fn parent_gap(&self, time: &TimeColumn) -> Result<TimeDistance> {
        match self.gap {
            Some(gap) if gap.is_zero() => Ok(TimeDistance::Ticks(0)),
            Some(gap) if gap.is_rows() => Err(bad_value(format!(
                "`gap: {gap}` is rows, and a `parent` takes a length of time"
            ))),
            Some(gap) => gap.distance(time),
            None => Ok(TimeDistance::Ticks(0)),
        }
    }
}
