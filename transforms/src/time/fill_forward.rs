//! `fill_forward`: the last value that a series had.

use forebay_model::Result;
use forebay_plan::{BindScope, ColumnSelector, ConfiguredTransform, PlanOp, Transform};
use forebay_setters::Setters;
use forebay_window::WindowFunction;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::GapPolicy;
use super::windows::WindowOpBuilder;
use crate::shared::{bad_value, output_name};

/// Fills missing values (null and NaN) with the last value of the series before them.
///
/// In: columns of numbers, booleans, dates or times. Out: the same types. What comes before the
/// first value of a series stays missing, as null. Rows are filled only where they are; none are
/// added. State per series: some 16 bytes per column.
///
/// ```yaml
/// - fill_forward: { columns: [price] }
/// ```
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema, Setters)]
#[serde(deny_unknown_fields)]
#[setters(fn fill_forward(columns), example = r#"fill_forward(["price"])"#)]
pub struct FillForward {
    /// Columns of numbers, booleans, dates or times.
    pub columns: ColumnSelector,
    /// How many rows after a value are filled at most; all where left out.
    #[serde(default)]
    pub limit: Option<u64>,
    /// Writes `<column><suffix>` instead of replacing the column.
    #[serde(default)]
    pub suffix: Option<String>,
    /// The event-time column, where the source does not declare it.
    #[serde(default)]
    pub time: Option<String>,
    /// The columns that tell series apart, where the source does not declare them; `[]` makes all
    /// rows one series.
    #[serde(default)]
    pub keys: Option<Vec<String>>,
    /// What missing periods mean; has to be said where there is a `limit`.
    #[serde(default)]
    pub gaps: Option<GapPolicy>,
}

impl ConfiguredTransform for FillForward {
    const NAME: &'static str = "fill_forward";
}

impl Transform for FillForward {
    fn bind(&self, scope: &BindScope<'_>) -> Result<Vec<PlanOp>> {
        let mut windows = WindowOpBuilder::new(
            scope,
            Self::NAME,
            &self.time,
            &self.keys,
            self.gaps.as_ref(),
        )?;
        if let Some(limit) = self.limit {
            if limit == 0 {
                return Err(bad_value("`limit: 0` fills nothing"));
            }
            windows.count_rows();
        }
        for field in windows.copyable_columns(&self.columns)? {
            windows.add_copy(
                field,
                output_name(field.name(), &self.suffix),
                WindowFunction::LastValid { limit: self.limit },
            );
        }
        match self.suffix.as_deref() {
            None | Some("") => Ok(vec![PlanOp::Window(windows.build_window()?)]),
            Some(_) => windows.finish(),
        }
    }
}
