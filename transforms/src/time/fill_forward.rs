//! `fill_forward`: the last value that a series had.

use arrow::datatypes::Field;
use forebay_model::{Result, RowChange};
use forebay_plan::{
    BindScope, ColumnSelector, ConfiguredTransform, MapOp, PlanOp, Transform, ValueCount,
    WrittenNulls,
};
use forebay_setters::Setters;
use forebay_window::WindowFunction;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::GapPolicy;
use super::windows::{WindowOpBuilder, hide_helper_columns};
use crate::numeric::count_filled;
use crate::shared::{bad_value, output_name};

/// Fills missing values (null and NaN) with the last value of the series before them.
///
/// In: columns of any type. Out: the same types. What comes before the
/// first value of a series stays missing, as null. Rows are filled only where they are; none are
/// added. State per series: some 16 bytes per column; texts, decimals and nested values are held once each besides.
///
/// ```yaml
/// - fill_forward: { columns: [price] }
/// ```
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema, Setters)]
#[serde(deny_unknown_fields)]
#[setters(fn fill_forward(columns), example = r#"fill_forward(["price"])"#)]
pub struct FillForward {
    /// Columns of any type.
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
    /// Meaning of missing periods; required where there is a `limit`.
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
        let mut filled = Vec::new();
        let mut names = Vec::new();
        for field in windows.copyable_columns(&self.columns)? {
            let output = output_name(field.name(), &self.suffix);
            if output != *field.name() {
                windows.refuse_clash(&output)?;
            }
            let last = hidden_name(field);
            windows.add_copy(
                field,
                last.clone(),
                WindowFunction::LastValid { limit: self.limit },
            );
            filled.push(take_filled(field, last, output.clone()));
            names.push(output);
        }
        windows.refuse_series_columns(&names)?;
        let mut ops = vec![PlanOp::Window(windows.build_window()?)];
        ops.extend(filled);
        ops.push(hide_helper_columns(scope, names));
        Ok(ops)
    }
}

fn hidden_name(field: &Field) -> String {
    format!("__last_{}", field.name())
}

/// Takes the last values for a column, and counts those that were missing.
fn take_filled(field: &Field, last: String, output: String) -> PlanOp {
    let output = Field::new(output, field.data_type().clone(), true);
    let nulls = WrittenNulls::Of(last.clone());
    let map = MapOp::new([field.name().clone(), last], [output], |inputs, _| {
        Ok(inputs.iter().skip(1).cloned().collect())
    });
    let filled = ValueCount::new(RowChange::Imputed, count_filled);
    PlanOp::Map(map.written_nulls(nulls).counting(filled))
}
