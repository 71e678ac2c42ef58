//! Predictions as they are written: quantiles in ascending order, and all within the bounds.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, BooleanArray, Float32Array};

use super::model::Predictions;

/// Between which numbers predictions lie.
#[derive(Debug, Clone, Copy)]
pub(super) struct PredictionBounds {
    min: f32,
    max: f32,
}

impl PredictionBounds {
    /// Without a bound where one is left out.
    pub fn new(min: Option<f64>, max: Option<f64>) -> PredictionBounds {
        let min = min.map_or(f32::NEG_INFINITY, |min| min as f32);
        PredictionBounds {
            min,
            max: max.map_or(f32::INFINITY, |max| max as f32),
        }
    }

    /// Whether a prediction is within the bounds.
    pub fn holds(self, value: f32) -> bool {
        self.moved(value) == value
    }

    /// What is not a number stays so, for the contract to find it.
    fn moved(self, value: f32) -> f32 {
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
    /// Whether a prediction of the row was moved to a bound.
    pub clipped: BooleanArray,
    /// Whether the quantiles of the row were not in ascending order.
    pub crossed: BooleanArray,
}

/// Sorts the quantiles of each row (Chernozhukov, Fernandez-Val and Galichon, 2010: no loss grows by it), and moves
/// predictions to the bounds.
pub(super) fn bounded_columns(
    predictions: Predictions,
    bounds: PredictionBounds,
) -> BoundedColumns {
    let Predictions { point, quantiles } = predictions;
    let rows = point.len();
    let mut columns: Vec<Vec<Option<f32>>> = vec![Vec::with_capacity(rows); 1 + quantiles.len()];
    let (mut clipped, mut crossed) = (Vec::with_capacity(rows), Vec::with_capacity(rows));
    let mut values = Vec::with_capacity(quantiles.len());
    for row in 0..rows {
        let mut is_moved = false;
        let mut keep = |column: usize, value: Option<f32>| {
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
            values.sort_by(f32::total_cmp);
        }
        values.resize(quantiles.len(), f32::NAN);
        for (column, value) in values.iter().enumerate() {
            keep(1 + column, is_whole.then_some(*value));
        }
        clipped.push(is_moved);
    }
    let columns = columns
        .into_iter()
        .map(|column| Arc::new(Float32Array::from(column)) as ArrayRef)
        .collect();
    BoundedColumns {
        columns,
        clipped: clipped.into(),
        crossed: crossed.into(),
    }
}

#[cfg(test)]
mod tests {
    use arrow::array::AsArray;
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
        };
        let found = bounded_columns(predictions, PredictionBounds::new(Some(0.0), Some(10.0)));
        let column = |number: usize| {
            found.columns[number]
                .as_primitive::<Float32Type>()
                .iter()
                .collect::<Vec<_>>()
        };
        assert_eq!(column(0), [Some(1.0), Some(0.0), None, Some(9.0)]);
        assert_eq!(column(1), [Some(0.25), Some(0.0), None, Some(4.0)]);
        assert_eq!(column(2), [Some(0.5), Some(0.5), None, Some(4.0)]);
        assert_eq!(column(3), [Some(2.0), Some(1.0), None, Some(10.0)]);
        assert_eq!(
            found.clipped,
            BooleanArray::from(vec![false, true, false, true])
        );
        assert_eq!(
            found.crossed,
            BooleanArray::from(vec![true, true, false, false])
        );
    }
}
