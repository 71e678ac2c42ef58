//! Transformations of a target that predictions undo.
//!
//! A step changes the target stage by stage. Each stage leaves in hidden columns of a row the numbers that its inverse
//! needs there: the earlier value that was subtracted, the centre and scale of the series. Inverses so are functions of
//! single rows, for rows of the past and of the future alike.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, Float64Array};
use arrow::compute::cast;
use arrow::datatypes::{DataType, Float64Type};
use forebay_model::{Fault, Result, codes};
use forebay_window::SeriesLength;

/// Prefix of hidden columns with the numbers that inverses need.
pub const TARGET_PREFIX: &str = "__target_";

/// A function of one value with parameters of its row.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum TargetFunction {
    /// `ln(1 + x)`.
    Log1p,
    /// `x^exponent`, for values of at least 0.
    Power(f64),
    /// `(x^lambda - 1) / lambda`, or `ln x` where lambda is 0 (Box and Cox, 1964). The parameter is lambda.
    BoxCox,
    /// `x - earlier`. The parameter is the earlier value.
    Difference,
    /// `(x - centre) / scale`. The parameters are centre and scale.
    Scale,
}

impl TargetFunction {
    /// Number of parameters.
    pub fn parameters(self) -> usize {
        match self {
            TargetFunction::Log1p | TargetFunction::Power(_) => 0,
            TargetFunction::BoxCox | TargetFunction::Difference => 1,
            TargetFunction::Scale => 2,
        }
    }

    /// The transformed value; NaN outside of the domain.
    pub fn apply(self, x: f64, [first, second]: [f64; 2]) -> f64 {
        match self {
            TargetFunction::Log1p => x.ln_1p(),
            TargetFunction::Power(exponent) => x.powf(exponent),
            TargetFunction::BoxCox if x <= 0.0 && first <= 0.0 => f64::NAN,
            TargetFunction::BoxCox if x < 0.0 => f64::NAN,
            TargetFunction::BoxCox if first == 0.0 => x.ln(),
            // Without cancellation for exponents near 0.
            TargetFunction::BoxCox => (first * x.ln()).exp_m1() / first,
            TargetFunction::Difference => x - first,
            TargetFunction::Scale => (x - first) / second,
        }
    }

    /// The value whose transformation is `z`. A prediction beyond the range of the transformation gives the bound of its
    /// domain: -1 for `log1p` of -infinity, 0 for powers. All inverses are monotone, so that quantiles stay quantiles.
    pub fn invert(self, z: f64, [first, second]: [f64; 2]) -> f64 {
        match self {
            TargetFunction::Log1p => z.exp_m1(),
            TargetFunction::Power(exponent) => z.max(0.0).powf(exponent.recip()),
            TargetFunction::BoxCox if first == 0.0 => z.exp(),
            TargetFunction::BoxCox => {
                let base = first * z;
                if base <= -1.0 {
                    // Below the range for a positive lambda, above it for a negative one.
                    return if first > 0.0 { 0.0 } else { f64::MAX };
                }
                (base.ln_1p() / first).exp()
            }
            TargetFunction::Difference => z + first,
            TargetFunction::Scale => z * second + first,
        }
    }
}

/// One stage of the transformation of a target.
#[derive(Debug, Clone, PartialEq)]
pub struct TargetStage {
    /// The column that is transformed in place.
    pub column: String,
    /// The function.
    pub function: TargetFunction,
    /// Hidden columns of its parameters.
    pub parameters: Vec<String>,
    /// Distance of the value that a difference subtracts, in rows or in the units of the horizon; `None` for
    /// functions of single rows.
    pub lag: Option<SeriesLength>,
}

/// The transformation of a target, from the values of the rows to those that a model learns.
#[derive(Debug, Clone, PartialEq)]
pub struct TargetChain {
    /// The transformed column.
    pub column: String,
    /// The stages in the order of their application.
    pub stages: Vec<TargetStage>,
}

impl TargetChain {
    /// Adds a stage to a chain, or begins one; a fault if another column is transformed already.
    pub fn with_stage(
        chain: Option<&Arc<TargetChain>>,
        stage: &TargetStage,
    ) -> Result<Arc<TargetChain>> {
        let mut stages = Vec::new();
        if let Some(chain) = chain {
            if chain.column != stage.column {
                let message = format!(
                    "`{}` is the target that predictions are undone for, and `{}` another",
                    chain.column, stage.column
                );
                return Err(Fault::new(codes::DUPLICATE, message)
                    .column(&stage.column)
                    .hint(
                        "transform one column with `target`; use `standardize`, `diff` or `log1p` \
                         for features",
                    ));
            }
            stages.clone_from(&chain.stages);
        }
        stages.push(stage.clone());
        Ok(Arc::new(TargetChain {
            column: stage.column.clone(),
            stages,
        }))
    }

    /// The hidden columns that [`TargetChain::invert`] reads, in order.
    pub fn parameters(&self) -> Vec<String> {
        let names = self.stages.iter().flat_map(|stage| &stage.parameters);
        names.cloned().collect()
    }

    /// True if rows of a horizon need earlier values of the same horizon: predictions then feed back.
    pub fn reaches_into(&self, horizon: SeriesLength, steps: u64) -> bool {
        self.stages
            .iter()
            .filter_map(|stage| stage.lag)
            .any(|lag| !is_known_ahead(lag, horizon, steps))
    }

    /// Undoes the transformation of values. `parameters` are the columns of [`TargetChain::parameters`]; a row whose
    /// parameters are missing gets null.
    pub fn invert(&self, values: &Float64Array, parameters: &[ArrayRef]) -> Result<Float64Array> {
        let parameters = parameter_columns(parameters)?;
        let mut inverted: Vec<Option<f64>> = values.iter().collect();
        let mut end = parameters.len();
        for stage in self.stages.iter().rev() {
            let begin = end.saturating_sub(stage.parameters.len());
            let stage_parameters = parameters.get(begin..end).unwrap_or_default();
            for (row, value) in inverted.iter_mut().enumerate() {
                *value = match (*value, row_parameters(stage_parameters, row)) {
                    (Some(z), Some(numbers)) => Some(stage.function.invert(z, numbers)),
                    _ => None,
                };
            }
            end = begin;
        }
        Ok(inverted.into())
    }
}

/// True if the value this long before a row is known in all rows of a horizon.
fn is_known_ahead(lag: SeriesLength, horizon: SeriesLength, steps: u64) -> bool {
    if let SeriesLength::Rows(rows) = lag {
        return rows >= steps;
    }
    match (lag.span(), horizon.span()) {
        (Some(lag), Some(horizon)) if (lag.months, lag.days) == (0, 0) && horizon.months == 0 => {
            horizon.days == 0 && lag.ticks >= horizon.ticks
        }
        (Some(lag), Some(horizon)) => {
            lag.months >= horizon.months && lag.days >= horizon.days && lag.ticks >= horizon.ticks
        }
        _ => false,
    }
}

/// Columns of parameters as doubles.
pub fn parameter_columns(parameters: &[ArrayRef]) -> Result<Vec<Float64Array>> {
    let mut columns = Vec::with_capacity(parameters.len());
    for column in parameters {
        let column = cast(column, &DataType::Float64)?;
        columns.push(column.as_primitive::<Float64Type>().clone());
    }
    Ok(columns)
}

/// The parameters of a row; `None` if one is missing.
pub fn row_parameters(columns: &[Float64Array], row: usize) -> Option<[f64; 2]> {
    let mut numbers = [0.0; 2];
    for (number, column) in numbers.iter_mut().zip(columns) {
        if column.is_null(row) {
            return None;
        }
        *number = column.value(row);
    }
    Some(numbers)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn inverses_give_back_the_values() {
        let functions: [(TargetFunction, [f64; 2]); 9] = [
            (TargetFunction::Log1p, [0.0; 2]),
            (TargetFunction::Power(0.5), [0.0; 2]),
            (TargetFunction::BoxCox, [0.0, 0.0]),
            (TargetFunction::BoxCox, [0.5, 0.0]),
            (TargetFunction::BoxCox, [1e-9, 0.0]),
            (TargetFunction::BoxCox, [-0.294_705, 0.0]),
            (TargetFunction::Difference, [37.25, 0.0]),
            (TargetFunction::Scale, [8.0, 6.572_671]),
            (TargetFunction::Scale, [5.0, 1.0]),
        ];
        for (function, parameters) in functions {
            for x in [1e-3, 0.7, 1.0, 4.0, 112.0, 622.0, 1.5e6, 3e9] {
                let z = function.apply(x, parameters);
                let back = function.invert(z, parameters);
                // A subtraction of numbers of other magnitudes loses the bits of the smaller one.
                let magnitude = x.max(parameters[0].abs());
                let error = (back - x).abs() / magnitude;
                let bound = if parameters[0] < 0.0 { 1e-11 } else { 1e-12 };
                assert!(error < bound, "{function:?} {parameters:?} of {x}: {back}");
            }
        }
    }

    #[test]
    fn box_cox_has_the_values_of_its_paper() {
        let half = |x| TargetFunction::BoxCox.apply(x, [0.5, 0.0]);
        let close = |x: f64, y: f64| (x - y).abs() < 1e-12;
        assert!(close(half(1.0), 0.0) && close(half(4.0), 2.0) && close(half(9.0), 4.0));
        assert!(TargetFunction::BoxCox.apply(-1.0, [0.5, 0.0]).is_nan());
        assert!(TargetFunction::BoxCox.apply(0.0, [0.0, 0.0]).is_nan());
        assert!(close(TargetFunction::BoxCox.apply(0.0, [0.5, 0.0]), -2.0));
        assert_eq!(TargetFunction::BoxCox.invert(-5.0, [0.5, 0.0]), 0.0);
    }

    #[test]
    fn lags_of_the_horizon_need_no_feedback() {
        let ticks = SeriesLength::Ticks;
        assert!(is_known_ahead(ticks(28), ticks(28), 28));
        assert!(!is_known_ahead(ticks(27), ticks(28), 28));
        assert!(is_known_ahead(SeriesLength::Rows(4), ticks(28), 4));
        assert!(!is_known_ahead(SeriesLength::Rows(1), ticks(28), 4));
    }
}
