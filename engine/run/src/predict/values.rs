//! The written form of predictions: in the units of the rows, quantiles in ascending order, all within bounds.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, BooleanArray, Float32Array, Float64Array};
use arrow::compute::cast;
use arrow::datatypes::{DataType, Float64Type};
use forebay_contract::{ModelClasses, Predictions, TargetChain};
use forebay_model::{Fault, Result};

/// Columns as `predict` writes them: the point forecast, then the quantiles, in ascending order in each row and within
/// the bounds.
pub fn bounded_predictions(
    predictions: Predictions,
    min: Option<f64>,
    max: Option<f64>,
) -> Result<Vec<ArrayRef>> {
    let columns = in_units_of_rows(predictions, None, &[])?;
    let bounds = PredictionBounds::new(min, max);
    Ok(bounded_columns(&columns, bounds, &DataType::Float32)?.columns)
}

/// Bounds of predictions.
#[derive(Debug, Clone, Copy)]
pub(super) struct PredictionBounds {
    min: f64,
    max: f64,
}

impl PredictionBounds {
    /// Creates bounds; a missing bound is infinite.
    pub fn new(min: Option<f64>, max: Option<f64>) -> PredictionBounds {
        PredictionBounds {
            min: min.unwrap_or(f64::NEG_INFINITY),
            max: max.unwrap_or(f64::INFINITY),
        }
    }

    /// Bounds that single-precision predictions can have.
    fn rounded(self) -> PredictionBounds {
        PredictionBounds {
            min: f64::from(self.min as f32),
            max: f64::from(self.max as f32),
        }
    }

    /// True if a prediction in single precision is within the bounds.
    pub fn holds(self, value: f32) -> bool {
        let value = f64::from(value);
        self.rounded().moved(value) == value
    }

    /// Moves a prediction to the nearest bound. NaN stays NaN, so that the contract finds it.
    pub fn moved(self, value: f64) -> f64 {
        if value < self.min {
            self.min
        } else if value > self.max {
            self.max
        } else {
            value
        }
    }
}

/// Columns of predictions.
pub(super) struct BoundedColumns {
    /// The point forecast, then the quantiles.
    pub columns: Vec<ArrayRef>,
    /// True for rows whose predictions were moved to a bound.
    pub clipped: BooleanArray,
    /// True for rows whose quantiles were not in ascending order.
    pub crossed: BooleanArray,
}

impl BoundedColumns {
    /// Columns of predicted classes: probabilities need no bounds.
    pub fn of_classes(predictions: Predictions, classes: &ModelClasses) -> BoundedColumns {
        let unchanged = BooleanArray::from(vec![false; predictions.point.len()]);
        BoundedColumns {
            columns: predictions.into_class_columns(classes),
            clipped: unchanged.clone(),
            crossed: unchanged,
        }
    }
}

/// The type of written predictions. Those of a target that was transformed are doubles: a sum of a small change and a
/// large value keeps its digits.
pub(super) fn prediction_type(is_transformed: bool) -> DataType {
    if is_transformed {
        DataType::Float64
    } else {
        DataType::Float32
    }
}

/// Undoes the transformation of the target, given the columns of its parameters.
pub(super) fn in_units_of_rows(
    predictions: Predictions,
    target: Option<&TargetChain>,
    parameters: &[ArrayRef],
) -> Result<Vec<Float64Array>> {
    let point_and_quantiles = std::iter::once(predictions.point).chain(predictions.quantiles);
    let mut columns = Vec::new();
    for column in point_and_quantiles {
        let column = doubles(column)?;
        columns.push(match target {
            Some(chain) => chain.invert(&column, parameters)?,
            None => column,
        });
    }
    Ok(columns)
}

fn doubles(column: Float32Array) -> Result<Float64Array> {
    let column = cast(&column, &DataType::Float64)?;
    Ok(column.as_primitive::<Float64Type>().clone())
}

/// Sorts the quantiles of each row (Chernozhukov, Fernandez-Val and Galichon, 2010: no loss grows by it), and moves
/// predictions to the bounds. The first column is the point forecast, the others are the quantiles; columns of the type
/// `written` are returned.
pub(super) fn bounded_columns(
    predictions: &[Float64Array],
    bounds: PredictionBounds,
    written: &DataType,
) -> Result<BoundedColumns> {
    let bounds = if *written == DataType::Float32 {
        bounds.rounded()
    } else {
        bounds
    };
    let Some((point, quantiles)) = predictions.split_first() else {
        return Err(Fault::internal("a model without predictions"));
    };
    let rows = point.len();
    let mut columns: Vec<Vec<Option<f64>>> = vec![Vec::with_capacity(rows); predictions.len()];
    let mut clipped = Vec::with_capacity(rows);
    let mut crossed = Vec::with_capacity(rows);
    let mut values = Vec::with_capacity(quantiles.len());
    for row in 0..rows {
        let mut is_moved = false;
        let mut keep = |column: usize, value: Option<f64>| {
            let bounded = value.map(|value| bounds.moved(value));
            is_moved |= bounded.is_some_and(|bounded| Some(bounded) != value && !bounded.is_nan());
            columns[column].push(bounded);
        };
        keep(0, point.is_valid(row).then(|| point.value(row)));
        values.clear();
        values.extend(
            quantiles
                .iter()
                .filter(|column| column.is_valid(row))
                .map(|column| column.value(row)),
        );
        let is_whole = values.len() == quantiles.len();
        let crosses = is_whole && !values.is_sorted_by(|a, b| a.total_cmp(b).is_le());
        crossed.push(crosses);
        if crosses {
            values.sort_by(f64::total_cmp);
        }
        values.resize(quantiles.len(), f64::NAN);
        for (column, value) in values.iter().enumerate() {
            keep(1 + column, is_whole.then_some(*value));
        }
        clipped.push(is_moved);
    }
    let mut written_columns = Vec::with_capacity(columns.len());
    for column in columns {
        let column: ArrayRef = Arc::new(Float64Array::from(column));
        written_columns.push(cast(&column, written)?);
    }
    Ok(BoundedColumns {
        columns: written_columns,
        clipped: clipped.into(),
        crossed: crossed.into(),
    })
}

#[cfg(test)]
mod tests {
    use arrow::datatypes::Float32Type;

    use super::*;

    #[test]
    fn quantiles_are_sorted_and_bounded_row_by_row() {
        let predictions = Predictions {
            point: Float32Array::from(vec![Some(1.0), Some(-1.0), None, Some(9.0)]),
            quantiles: vec![
                Float32Array::from(vec![Some(0.5), Some(-3.0), None, Some(4.0)]),
                Float32Array::from(vec![Some(0.25), Some(1.0), Some(2.0), Some(4.0)]),
                Float32Array::from(vec![Some(2.0), Some(0.5), Some(1.0), Some(12.0)]),
            ],
            probabilities: Vec::new(),
        };
        let predictions = in_units_of_rows(predictions, None, &[]).unwrap();
        let bounds = PredictionBounds::new(Some(0.0), Some(10.0));
        let bounded = bounded_columns(&predictions, bounds, &DataType::Float32).unwrap();
        let column = |number: usize| {
            bounded.columns[number]
                .as_primitive::<Float32Type>()
                .iter()
                .collect::<Vec<_>>()
        };
        assert_eq!(column(0), [Some(1.0), Some(0.0), None, Some(9.0)]);
        assert_eq!(column(1), [Some(0.25), Some(0.0), None, Some(4.0)]);
        assert_eq!(column(2), [Some(0.5), Some(0.5), None, Some(4.0)]);
        assert_eq!(column(3), [Some(2.0), Some(1.0), None, Some(10.0)]);
        assert_eq!(
            bounded.clipped,
            BooleanArray::from(vec![false, true, false, true])
        );
        assert_eq!(
            bounded.crossed,
            BooleanArray::from(vec![true, true, false, false])
        );
    }
}
