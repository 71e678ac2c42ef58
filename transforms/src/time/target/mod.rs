//! `target`: transforms the target for a model, whose predictions undo it.

mod operation;
mod scale;
mod series_numbers;
mod stages;

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, BooleanArray};
use arrow::datatypes::{DataType, Field};
use forebay_contract::TARGET_PREFIX;
use forebay_model::{Fault, Result, RowChange, codes, type_words};
use forebay_plan::{BindScope, ConfiguredTransform, FilterOp, MapOp, PlanOp, Transform};
use forebay_setters::Setters;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::GapPolicy;
use super::windows::require_not_empty;

pub use operation::{
    AutoWord, BoxCoxExponent, BoxCoxFit, DifferenceLengths, SeasonalLength, SeriesScale,
    TargetOperation,
};

use stages::StageBuilder;

/// Transforms the target that a model learns. Forecasts and predictions are in the units of the rows: they undo it.
///
/// In: a column of numbers, behind `future_rows`. Out: the column itself, in doubles, and hidden columns with the
/// numbers that undo it. Steps before see the values of the rows, steps after it the transformed ones: put `lag` and
/// `rolling` of the target behind it, as mlforecast does, or before it for features in the units of the rows.
///
/// The operations of `do` follow each other:
///
/// - `difference: [1, 7d]`: the value less the one so many rows, or so long, before; one difference for each length.
///   `difference: auto`: from row to row, for series that a test of stationarity rejects (Kwiatkowski et al., 1992);
///   `difference: { auto: 2 }`: up to two.
/// - `seasonal_difference: 7d`: a difference by the length of the season. `seasonal_difference: { auto: 12 }`: by 12 rows,
///   for series whose seasonal strength is above 0.64 (Wang, Smith and Hyndman, 2006).
/// - `scale: standard | min_max | robust`: `(x - centre) / scale` with the mean and standard deviation (ddof 0), the least
///   value and range, or the median and distance of quartiles of each series. Statistics are learned as those of other steps: of all rows, or of the part `fit_on` names.
///   A series of one value gives 0. A series that was not learned takes the statistics of all rows.
/// - `log1p`: `ln(1 + x)`.
/// - `power: 0.5`: `x^0.5`, of values of at least 0.
/// - `box_cox: 0.3`: `(x^0.3 - 1) / 0.3`, `ln x` for 0 (Box and Cox, 1964). `box_cox: likelihood` and `box_cox: { guerrero: 12
///   }` choose the exponent of each series, from 0 to 2; a `scale` behind it makes their values alike.
///
/// A forecast undoes them in reverse order. A difference adds the value so long before: the one of the rows where it is
/// known, else the point forecast of that time; so predictions feed later rows of the future, one time after the other, in
/// one thread, unless every difference reaches back over the whole horizon. Quantiles are undone like the point forecast:
/// under a difference, they are those of the change of the step, around the point forecasts of the steps before. Bounds
/// (`min`, `max`) hold for what is undone.
///
/// Null stays null. Rows before the first difference of a series have no target: rows to learn from go without them,
/// counted as `filtered`. A value outside of the domain of an operation is a fault. State per series: 16 bytes for each
/// row that a difference reaches back over; for scales some 300 bytes; for `auto`, `robust` and fitted
/// exponents 60 bytes for each row while they are learned, spilled beyond the budget. Follows the target
/// transforms of mlforecast.
///
/// ```yaml
/// - target: { column: qty, do: [{ difference: [7d] }, { scale: standard }] }
/// ```
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema, Setters)]
#[serde(deny_unknown_fields)]
#[setters(
    fn target(column, operations),
    example = r#"target("qty", [TargetOperation::Log1p])"#
)]
pub struct TargetTransform {
    /// The column that is predicted.
    pub column: String,
    /// The operations, in order.
    #[serde(rename = "do")]
    pub operations: Vec<TargetOperation>,
    /// The event-time column, where the source does not declare it.
    #[serde(default)]
    pub time: Option<String>,
    /// The columns that tell series apart, where the source does not declare them.
    #[serde(default)]
    pub keys: Option<Vec<String>>,
    /// Meaning of missing periods; required where differences count rows.
    #[serde(default)]
    pub gaps: Option<GapPolicy>,
}

impl ConfiguredTransform for TargetTransform {
    const NAME: &'static str = "target";
}

impl Transform for TargetTransform {
    fn bind(&self, scope: &BindScope<'_>) -> Result<Vec<PlanOp>> {
        require_not_empty(&self.operations, "do")?;
        let field = scope.field(&self.column)?;
        if !field.data_type().is_numeric() {
            let words = type_words(field.data_type());
            let message = format!("`{}` is {words}, not a number", self.column);
            return Err(Fault::new(codes::COLUMN_TYPE, message).column(&self.column));
        }
        let first = scope.target.map_or(0, |chain| chain.stages.len());
        let copy = format!("{TARGET_PREFIX}{}_{first}_given", self.column);
        let has_differences = self.operations.iter().any(TargetOperation::is_difference);
        let mut stages = StageBuilder::new(scope, self, field, first);
        if has_differences {
            stages.push(copied(&self.column, &copy, field.data_type()));
        }
        for operation in &self.operations {
            stages.add(operation)?;
        }
        if has_differences {
            stages.push(learnable_rows(&self.column, copy));
        }
        Ok(stages.finish())
    }
}

/// Keeps the values of a column in a hidden one.
fn copied(column: &str, name: &str, data_type: &DataType) -> PlanOp {
    let copy = Field::new(name, data_type.clone(), true);
    PlanOp::Map(MapOp::new([column], [copy], |columns, _| {
        Ok(columns.to_vec())
    }))
}

/// Removes rows to learn from whose value is known and whose transformed value is not. Rows without a value stay: they
/// are scored, or the training reports them.
fn learnable_rows(column: &str, copy: String) -> PlanOp {
    PlanOp::Keep(FilterOp {
        reads: vec![copy, column.to_owned()],
        kernel: Arc::new(|columns: &[ArrayRef], rows: usize| {
            let [values, transformed] = columns else {
                return Err(Fault::internal("a target without its values"));
            };
            let values = values.logical_nulls();
            let transformed = transformed.logical_nulls();
            let learnable: BooleanArray = (0..rows)
                .map(|row| {
                    let is_given = values.as_ref().is_none_or(|nulls| nulls.is_valid(row));
                    let is_target = transformed.as_ref().is_none_or(|nulls| nulls.is_valid(row));
                    Some(!is_given || is_target)
                })
                .collect();
            Ok(vec![Arc::new(learnable) as ArrayRef])
        }),
        condition: None,
        learning: true,
        reason: RowChange::Filtered,
        valued: Vec::new(),
    })
}
