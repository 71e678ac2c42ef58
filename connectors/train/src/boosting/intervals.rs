//! Conformal intervals around point forecasts: their widths are ranks of errors on validation rows.

use forebay_feed::FeatureField;
use forebay_model::{ConfigError, ConfigResult, Fault, Result, codes};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::loss::Objective;
use super::table::{FeatureTable, RowFeatures, number_index};
use super::tree::TreeEnsemble;

/// Hides digits that binary numbers add to shares of whole percentages.
const ROUNDING: f64 = 1e-9;

/// The most levels of a model.
const LEVELS_MAX: usize = 49;

/// Intervals around the point forecast, which hold as large a share of the values as they say.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ForecastIntervals {
    /// Percentages of the values that should lie inside, in ascending order, such as `[80, 95]`. The ends of 80 are the
    /// columns `prediction_q10` and `prediction_q90`.
    pub levels: Vec<f64>,
    /// The method that finds the widths.
    #[serde(default, skip_serializing_if = "IntervalMethod::is_default")]
    pub by: IntervalMethod,
    /// A column among `dense` that tells how widely a row varies, such as `qty_std_28d`: errors are divided by it, and
    /// widths multiplied, so that small series have narrow intervals. A row where it is missing or not above 0 takes the
    /// median of the validation rows. All intervals of a model have the same width when left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scale: Option<String>,
}

/// A method that finds the widths of intervals.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum IntervalMethod {
    /// Split conformal prediction (Lei et al., 2018): of the absolute errors of a model on its `n` validation rows, that
    /// with the rank `ceil((n + 1) * level)` is the distance of both ends from the point forecast. With `scale`, it is
    /// that of the errors by the scale, times the scale of the row (section 5.2 there).
    #[default]
    Conformal,
}

impl IntervalMethod {
    fn is_default(&self) -> bool {
        *self == IntervalMethod::default()
    }
}

/// The scale of rows, by which errors are divided and widths multiplied.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct IntervalScale {
    /// Index of its column among the numbers of a row.
    pub number: usize,
    /// The scale of rows where the column has no value above 0.
    pub default: f64,
}

/// An end of an interval. It has no trees: the base of its ensemble is its distance to the point forecast.
#[derive(Debug, Clone, Copy)]
pub(super) struct IntervalBound {
    /// Its place among the outputs, counted from that of the point forecast.
    pub position: usize,
    /// Percentage of the values that should lie inside the interval.
    pub level: f64,
    pub is_upper: bool,
    /// Validation rows from which all intervals of the model can be found.
    pub rows_min: u64,
    /// The objective of the point forecast.
    pub point: Objective,
}

/// Point forecasts of the validation rows of a model, and their errors.
pub(super) struct PointErrors {
    pub predicted: Vec<f32>,
    /// The scale by which the errors are divided, if they are.
    pub scale: Option<IntervalScale>,
    /// Absolute errors of the rows that count, in ascending order.
    ascending: Vec<f64>,
}

impl ForecastIntervals {
    /// Checks the configuration. The error names the wrong field of the training.
    pub fn check(&self) -> ConfigResult<()> {
        let is_inside = |level: f64| level > 0.0 && level < 100.0;
        if let Some(level) = self.levels.iter().find(|level| !is_inside(**level)) {
            let message = format!("{level} is no percentage between 0 and 100, such as 80");
            return Err(ConfigError::at("intervals", message));
        }
        let is_ascending = self.levels.is_sorted_by(|low, high| low < high);
        if self.levels.is_empty() || self.levels.len() > LEVELS_MAX || !is_ascending {
            let message = format!("`levels` takes 1 to {LEVELS_MAX} in ascending order, each once");
            return Err(ConfigError::at("intervals", message));
        }
        Ok(())
    }

    /// The quantiles that the ends of the intervals stand for, in ascending order.
    pub fn quantiles(&self) -> Vec<f64> {
        let lower_ends = self.levels.iter().rev().map(|level| quantile(-*level));
        let upper_ends = self.levels.iter().map(|level| quantile(*level));
        lower_ends.chain(upper_ends).collect()
    }

    /// The ends of the intervals around a point forecast, in the order of their quantiles.
    pub(super) fn bounds(&self, point: Objective) -> Vec<IntervalBound> {
        let rows_min = self.rows_min();
        let lower_ends = self.levels.iter().rev().map(|level| (*level, false));
        let upper_ends = self.levels.iter().map(|level| (*level, true));
        let ends = lower_ends.chain(upper_ends).enumerate();
        ends.map(|(number, (level, is_upper))| IntervalBound {
            position: number + 1,
            level,
            is_upper,
            rows_min,
            point,
        })
        .collect()
    }

    /// Index of the column with the scale among the numbers of a row; a fault where it is none of these.
    pub(super) fn scale_number(&self, dense: &[FeatureField]) -> Result<Option<usize>> {
        let Some(column) = &self.scale else {
            return Ok(None);
        };
        let number = number_index(dense, column).ok_or_else(|| {
            let message =
                format!("`scale` names `{column}`, which is no number that the model takes");
            Fault::new(codes::UNKNOWN_NAME, message)
                .column(column)
                .hint("name it under `dense`, too")
        })?;
        Ok(Some(number))
    }

    /// Validation rows that the widest interval needs.
    pub fn rows_min(&self) -> u64 {
        let widest = self.levels.iter().copied().fold(0.0, f64::max);
        (widest / (100.0 - widest) - ROUNDING).ceil().max(1.0) as u64
    }
}

/// The quantile at an end of a central interval; that of a lower end has its percentage negated.
fn quantile(signed_level: f64) -> f64 {
    ((100.0 + signed_level) / 200.0 * 1e12).round() / 1e12
}

/// The end of an interval for a point forecast: `offset` scales away. Other runtimes compute it alike.
pub(super) fn bound_value(
    point: f32,
    offset: f64,
    scale: Option<IntervalScale>,
    row: RowFeatures<'_>,
) -> f32 {
    let distance = offset * scale.map_or(1.0, |scale| scale.of(row));
    (f64::from(point) + distance) as f32
}

impl IntervalScale {
    /// The scale by a column of numbers. Its default is the median of the rows that count: the lower one of two; 1 where
    /// no row has a value above 0, so that all have the same.
    fn new(number: usize, rows: &FeatureTable) -> IntervalScale {
        let mut values = Vec::new();
        for row in (0..rows.rows()).filter(|row| rows.weight(*row) > 0.0) {
            values.extend(scale_value(rows.row(row), number));
        }
        values.sort_unstable_by(f64::total_cmp);
        let middle = values.len().saturating_sub(1) / 2;
        IntervalScale {
            number,
            default: values.get(middle).copied().unwrap_or(1.0),
        }
    }

    /// The scale of a row.
    fn of(&self, row: RowFeatures<'_>) -> f64 {
        scale_value(row, self.number).unwrap_or(self.default)
    }
}

/// The value of a row's column, if it can be a scale.
fn scale_value(row: RowFeatures<'_>, number: usize) -> Option<f64> {
    let value = f64::from(*row.dense.get(number)?);
    (value > 0.0 && value.is_finite()).then_some(value)
}

impl IntervalBound {
    /// Distance to the point forecast in scales, negative for a lower end; `None` where there are too few errors.
    pub fn offset(&self, errors: &PointErrors) -> Option<f64> {
        let count = errors.count();
        if count < self.rows_min {
            return None;
        }
        let rank = ((count + 1) as f64 * self.level / 100.0 - ROUNDING).ceil();
        let index = (rank as usize).saturating_sub(1);
        let distance = *errors.ascending.get(index)?;
        Some(if self.is_upper { distance } else { -distance })
    }
}

impl PointErrors {
    /// The point forecasts of an ensemble for rows. Rows with weight 0 do not count, and all others count once.
    /// `scale_number` is the index of the column by which errors are divided.
    pub fn new(
        objective: Objective,
        ensemble: &TreeEnsemble,
        rows: &FeatureTable,
        scale_number: Option<usize>,
    ) -> PointErrors {
        let scale = scale_number.map(|number| IntervalScale::new(number, rows));
        let mut predicted = Vec::with_capacity(rows.rows());
        let mut ascending = Vec::with_capacity(rows.rows());
        for row in 0..rows.rows() {
            let prediction = objective.prediction(ensemble.predict(rows.row(row)));
            predicted.push(prediction);
            if rows.weight(row) > 0.0 {
                let error = f64::from(prediction) - f64::from(rows.labels[row]);
                let scale = scale.map_or(1.0, |scale| scale.of(rows.row(row)));
                ascending.push(error.abs() / scale);
            }
        }
        ascending.sort_unstable_by(f64::total_cmp);
        PointErrors {
            predicted,
            scale,
            ascending,
        }
    }

    /// Rows that count.
    pub fn count(&self) -> u64 {
        self.ascending.len() as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn intervals(levels: &[f64]) -> ForecastIntervals {
        ForecastIntervals {
            levels: levels.to_vec(),
            by: IntervalMethod::Conformal,
            scale: None,
        }
    }

    fn errors(absolute: &[f64]) -> PointErrors {
        PointErrors {
            predicted: Vec::new(),
            scale: None,
            ascending: absolute.to_vec(),
        }
    }

    fn offsets(levels: &[f64], absolute: &[f64]) -> Vec<Option<f64>> {
        let bounds = intervals(levels).bounds(Objective::SquaredError);
        let errors = errors(absolute);
        bounds.iter().map(|bound| bound.offset(&errors)).collect()
    }

    #[test]
    fn the_ends_of_levels_are_quantiles_in_ascending_order() {
        let wide = intervals(&[50.0, 80.0, 95.0, 99.9]);
        let expected = [0.0005, 0.025, 0.1, 0.25, 0.75, 0.9, 0.975, 0.9995];
        assert_eq!(wide.quantiles(), expected);
        let positions: Vec<usize> = wide
            .bounds(Objective::SquaredError)
            .iter()
            .map(|bound| bound.position)
            .collect();
        assert_eq!(positions, [1, 2, 3, 4, 5, 6, 7, 8]);
    }

    #[test]
    fn a_width_is_the_error_of_the_rank_of_split_conformal_prediction() {
        // ceil((n + 1) * level): 4 of 4, 9 of 10, 16 of 19 for 80 %; 19 of 19 for 95 %.
        let ascending: Vec<f64> = (1..=19).map(f64::from).collect();
        assert_eq!(offsets(&[80.0], &ascending[..4]), [Some(-4.0), Some(4.0)]);
        assert_eq!(offsets(&[80.0], &ascending[..10]), [Some(-9.0), Some(9.0)]);
        assert_eq!(
            offsets(&[80.0, 95.0], &ascending),
            [Some(-19.0), Some(-16.0), Some(16.0), Some(19.0)]
        );
    }

    #[test]
    fn too_few_errors_give_no_interval_of_any_level() {
        let ascending: Vec<f64> = (1..=18).map(f64::from).collect();
        assert_eq!(offsets(&[80.0], &ascending[..3]), [None, None]);
        assert_eq!(offsets(&[80.0, 95.0], &ascending), [None; 4]);
        let needed = [
            (50.0, 1),
            (80.0, 4),
            (90.0, 9),
            (95.0, 19),
            (99.0, 99),
            (99.9, 999),
        ];
        for (level, rows) in needed {
            assert_eq!(intervals(&[level]).rows_min(), rows, "{level}");
        }
    }

    /// A new value lies inside with a probability of at least the level, and of `1 / (n + 1)` more at most (Lei et al.,
    /// 2018, theorem 2.2): of `n + 1` equally likely places of its error among the others.
    #[test]
    fn coverage_is_within_the_bounds_of_the_theorem() {
        for count in 4..200_u32 {
            let ascending: Vec<f64> = (1..=count).map(f64::from).collect();
            let width = offsets(&[80.0], &ascending)[1].unwrap();
            // The error of a new value lies between those of the ranks 0 to n, each with the same probability.
            let inside = (0..=count)
                .filter(|rank| f64::from(*rank) + 0.5 <= width)
                .count();
            let coverage = inside as f64 / f64::from(count + 1);
            let most = 0.8 + 1.0 / f64::from(count + 1);
            assert!(
                coverage >= 0.8 - 1e-12 && coverage <= most + 1e-12,
                "{count}: {coverage}"
            );
        }
    }

    #[test]
    fn rows_of_weight_zero_do_not_count() {
        let ensemble = TreeEnsemble {
            base: 10.0,
            trees: Vec::new(),
        };
        let rows = FeatureTable {
            labels: vec![7.0, 10.5, 30.0],
            weights: vec![2.0, 1.0, 0.0],
            ..FeatureTable::new(0, 0)
        };
        let errors = PointErrors::new(Objective::SquaredError, &ensemble, &rows, None);
        assert_eq!(errors.ascending, [0.5, 3.0]);
        assert_eq!(errors.predicted, [10.0; 3]);
    }

    #[test]
    fn errors_are_divided_by_the_scale_of_their_row() {
        let ensemble = TreeEnsemble {
            base: 10.0,
            trees: Vec::new(),
        };
        let rows = FeatureTable {
            dense: vec![2.0, 0.5, f32::NAN, 0.0, 8.0],
            labels: vec![7.0, 10.5, 14.0, 9.0, 26.0],
            ..FeatureTable::new(1, 0)
        };
        let errors = PointErrors::new(Objective::SquaredError, &ensemble, &rows, Some(0));
        let scale = errors.scale.unwrap();
        // Of 0.5, 2 and 8; the others have none.
        assert_eq!(scale.default, 2.0);
        assert_eq!(errors.ascending, [0.5, 1.0, 1.5, 2.0, 2.0]);
        let ends = [0, 1, 2, 4].map(|row| bound_value(10.0, -1.5, Some(scale), rows.row(row)));
        assert_eq!(ends, [7.0, 9.25, 7.0, -2.0]);
        assert_eq!(bound_value(10.0, -1.5, None, rows.row(4)), 8.5);
    }

    #[test]
    fn levels_that_are_no_percentages_or_out_of_order_are_refused() {
        let refused = [
            vec![],
            vec![0.0],
            vec![100.0],
            vec![f64::NAN],
            vec![95.0, 80.0],
            vec![80.0, 80.0],
        ];
        for levels in refused {
            assert!(intervals(&levels).check().is_err(), "{levels:?}");
        }
        assert!(intervals(&[80.0, 99.5]).check().is_ok());
    }
}
