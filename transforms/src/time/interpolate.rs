//! `interpolate`: missing values between two that are there.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, Float64Array};
use arrow::datatypes::{DataType, Field, Float64Type, Int64Type};
use forebay_model::{Result, RowChange, lerp, ticks};
use forebay_plan::{
    BindScope, ColumnSelector, ConfiguredTransform, MapOp, PlanOp, Transform, ValueCount, WindowOp,
};
use forebay_setters::Setters;
use forebay_window::{DuplicateCheck, WindowFunction, WindowPlan, WordEncoding};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::windows::{WindowOpBuilder, hide_helper_columns};
use super::{FloatType, GapPolicy};
use crate::numeric::count_filled;
use crate::shared::{bad_value, doubles, output_name, to_float_type};

/// Fills missing values (null and NaN) on the straight line, by time, between the value of the
/// series before them and the one after them.
///
/// It looks ahead: a value that was filled in knows a later one. Use it for covariates that are
/// known in advance and for cleaning, not for features of what is forecast; `fill_forward` does
/// not look ahead. In: columns of numbers. Out: `dtype`. What comes before the first value of a
/// series and after its last stays missing, as null. Values of equal time are not averaged: the
/// last one before the row and the first one after it count. Beside an infinity the line is infinite; between
/// infinities of either sign there is none, and the value stays missing. Rows are filled only where they are;
/// none are added. State per series: some 32 bytes per column; the series are read twice, forward
/// and backward. Follows pandas' `interpolate(method="time", limit_area="inside")`.
///
/// ```yaml
/// - interpolate: { columns: [price] }
/// ```
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema, Setters)]
#[serde(deny_unknown_fields)]
#[setters(fn interpolate(columns), example = r#"interpolate(["price"]).suffix("_filled")"#)]
pub struct Interpolate {
    /// Columns of numbers.
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
    /// The type that comes out.
    #[serde(default)]
    pub dtype: FloatType,
}

impl ConfiguredTransform for Interpolate {
    const NAME: &'static str = "interpolate";
}

impl Transform for Interpolate {
    fn bind(&self, scope: &BindScope<'_>) -> Result<Vec<PlanOp>> {
        if self.limit == Some(0) {
            return Err(bad_value("`limit: 0` fills nothing"));
        }
        let fields = scope.numeric_columns(&self.columns)?;
        let before_op =
            self.neighbours(scope, &fields, "before", self.limit, self.gaps.as_ref())?;
        let after_op = self.neighbours(scope, &fields, "after", None, None)?;
        // Those before count duplicates.
        let plan = WindowPlan {
            duplicates: DuplicateCheck::default(),
            ..after_op.plan.as_ref().clone()
        };
        let time = before_op.time.clone();
        let mut ops = vec![
            PlanOp::Window(before_op),
            PlanOp::Window(WindowOp {
                backward: true,
                plan: Arc::new(plan),
                ..after_op
            }),
        ];
        let mut names = Vec::new();
        for field in fields {
            let output = output_name(field.name(), &self.suffix);
            let data_type = self.dtype.data_type();
            let hidden = ["before", "after"]
                .map(|side| [hidden_name(side, field), hidden_time_name(side, field)]);
            let reads: Vec<String> = [field.name().clone(), time.clone()]
                .into_iter()
                .chain(hidden.into_iter().flatten())
                .collect();
            names.push(output.clone());
            let line = MapOp::new(
                reads,
                [Field::new(output, data_type.clone(), true)],
                move |inputs, _| {
                    let [column, time, previous, previous_time, next, next_time] = inputs else {
                        return Ok(Vec::new());
                    };
                    let line = interpolate_linearly(
                        column,
                        time,
                        [previous, previous_time],
                        [next, next_time],
                    )?;
                    Ok(vec![to_float_type(line, &data_type)])
                },
            );
            let filled = ValueCount::new(RowChange::Imputed, count_filled);
            ops.push(PlanOp::Map(line.counting(filled)));
        }
        ops.push(hide_helper_columns(scope, names));
        Ok(ops)
    }
}

fn hidden_name(side: &str, field: &Field) -> String {
    format!("__{side}_{}", field.name())
}

fn hidden_time_name(side: &str, field: &Field) -> String {
    format!("__{side}_time_{}", field.name())
}

impl Interpolate {
    /// The last value at or before each row and its time, for each column.
    fn neighbours(
        &self,
        scope: &BindScope<'_>,
        fields: &[&Field],
        side: &str,
        limit: Option<u64>,
        gaps: Option<&GapPolicy>,
    ) -> Result<WindowOp> {
        let mut windows = WindowOpBuilder::new(scope, Self::NAME, &self.time, &self.keys, gaps)?;
        if limit.is_some() {
            windows.count_rows();
        }
        for field in fields {
            let input = windows.add_input(field, WordEncoding::Number);
            windows.add_output(
                input,
                WindowFunction::LastValid { limit },
                hidden_name(side, field),
                DataType::Float64,
            );
            let time = WindowFunction::LastValidTime { limit };
            windows.add_output(input, time, hidden_time_name(side, field), DataType::Int64);
        }
        windows.build_window()
    }
}

fn interpolate_linearly(
    column: &ArrayRef,
    time: &ArrayRef,
    previous: [&ArrayRef; 2],
    next: [&ArrayRef; 2],
) -> Result<Float64Array> {
    let values = doubles(column)?;
    let times = ticks(time)?;
    let of = |[value, time]: [&ArrayRef; 2], row: usize| {
        let value = value.as_primitive::<Float64Type>();
        let time = time.as_primitive::<Int64Type>();
        (value.is_valid(row) && time.is_valid(row)).then(|| (value.value(row), time.value(row)))
    };
    let each = (0..values.len()).map(|row| {
        if values.is_valid(row) && !values.value(row).is_nan() {
            return Some(values.value(row));
        }
        let (from, start) = of(previous, row)?;
        let (to, end) = of(next, row)?;
        let now = times.is_valid(row).then(|| times.value(row))?;
        let passed = now as f64 - start as f64;
        let whole = end as f64 - start as f64;
        let line = if whole > 0.0 {
            lerp(from, to, passed / whole)
        } else {
            from
        };
        // As numpy's `interp`: an infinite start leaves no slope, the end decides then.
        let is_line = !line.is_nan() || !to.is_infinite();
        is_line.then_some(if line.is_nan() { from } else { line })
    });
    Ok(each.collect())
}
