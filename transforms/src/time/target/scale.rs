//! The centre and scale of each series, as hidden columns of its rows.

use arrow::datatypes::Field;
use forebay_analyze::{GroupedMoments, SeriesStatistic};
use forebay_model::Result;
use forebay_plan::{AnalyzerRequest, BindScope, PlanOp};

use super::series_numbers::{
    SeriesNumbers, fitted_numbers, key_types, request_fit, series_columns, series_keys,
};
use super::{SeriesScale, TargetTransform};
use crate::shared::{KeyedMoments, keyed_moments};

/// Centre and scale.
#[derive(Debug, Clone, Copy, PartialEq)]
struct CentreScale {
    centre: f64,
    scale: f64,
}

impl CentreScale {
    /// Of a group of values. Values that are all equal are only centred.
    fn of(moments: &KeyedMoments, kind: SeriesScale) -> CentreScale {
        let (centre, scale) = match kind {
            SeriesScale::Standard | SeriesScale::Robust => {
                (moments.mean, moments.var.map(f64::sqrt))
            }
            SeriesScale::MinMax => {
                let range = moments.max.zip(moments.min).map(|(max, min)| max - min);
                (moments.min, range)
            }
        };
        CentreScale {
            centre: centre.unwrap_or(0.0),
            scale: positive_or_one(scale.unwrap_or(1.0)),
        }
    }

    fn pair(self) -> [f64; 2] {
        [self.centre, self.scale]
    }

    /// Of the values of all groups together.
    fn of_all(groups: &[KeyedMoments], kind: SeriesScale) -> CentreScale {
        let count: f64 = groups.iter().map(|group| group.count as f64).sum();
        let divisor = count.max(1.0);
        let sums = groups
            .iter()
            .map(|group| group.count as f64 * group.mean.unwrap_or(0.0));
        let mean = sums.sum::<f64>() / divisor;
        let squares = groups
            .iter()
            .map(|group| group.count as f64 * mean_square(group, mean));
        let moments = KeyedMoments {
            count: count as u64,
            mean: Some(mean),
            var: Some(squares.sum::<f64>() / divisor),
            min: groups.iter().filter_map(|group| group.min).reduce(f64::min),
            max: groups.iter().filter_map(|group| group.max).reduce(f64::max),
        };
        CentreScale::of(&moments, kind)
    }
}

/// The mean square of the distances of a group's values from a mean.
fn mean_square(group: &KeyedMoments, mean: f64) -> f64 {
    let distance = group.mean.unwrap_or(mean) - mean;
    group.var.unwrap_or(0.0) + distance * distance
}

/// Writes the centre and the scale of each row's series.
pub(super) fn scale_parameters(
    scope: &BindScope<'_>,
    step: &TargetTransform,
    field: &Field,
    kind: SeriesScale,
    names: &[String],
) -> Result<PlanOp> {
    let keys = series_keys(scope, step)?;
    if kind == SeriesScale::Robust {
        let request = request_fit(scope, step, field, SeriesStatistic::MedianRange)?;
        return Ok(series_columns(keys, names, request, |finding| {
            let mut numbers = fitted_numbers(finding)?;
            for [_, range] in &mut numbers.of_series {
                *range = positive_or_one(*range);
            }
            numbers.of_others[1] = positive_or_one(numbers.of_others[1]);
            Ok(numbers)
        }));
    }
    let inputs: Vec<String> = std::iter::once(field.name()).chain(keys).cloned().collect();
    let analyzer = GroupedMoments {
        keys: key_types(scope, keys)?,
    };
    let request = AnalyzerRequest::new(analyzer, inputs);
    Ok(series_columns(keys, names, request, move |finding| {
        let groups = keyed_moments(finding)?;
        let of_others = CentreScale::of_all(&groups, kind);
        let of_series = groups.iter().map(|group| CentreScale::of(group, kind));
        Ok(SeriesNumbers {
            of_series: of_series.map(CentreScale::pair).collect(),
            of_others: of_others.pair(),
        })
    }))
}

/// A scale of 0 is that of values that are all equal, which are only centred.
fn positive_or_one(scale: f64) -> f64 {
    if scale > 0.0 { scale } else { 1.0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Values of coreforecast 0.0.20 for [2, 4, 4, 10, 20].
    #[test]
    fn scales_are_those_of_coreforecast() {
        let moments = KeyedMoments {
            count: 5,
            mean: Some(8.0),
            var: Some(43.2),
            min: Some(2.0),
            max: Some(20.0),
        };
        let standard = CentreScale::of(&moments, SeriesScale::Standard);
        assert_eq!(standard.centre, 8.0);
        assert!((standard.scale - 6.572_671).abs() < 1e-6);
        let range = CentreScale::of(&moments, SeriesScale::MinMax);
        assert_eq!((range.centre, range.scale), (2.0, 18.0));
        let constant = KeyedMoments {
            var: Some(0.0),
            ..moments
        };
        assert_eq!(CentreScale::of(&constant, SeriesScale::Standard).scale, 1.0);
    }

    #[test]
    fn all_groups_together_are_one() {
        let group = |count, mean, var, min, max| KeyedMoments {
            count,
            mean: Some(mean),
            var: Some(var),
            min: Some(min),
            max: Some(max),
        };
        // [2, 4] and [4, 10, 20].
        let groups = [
            group(2, 3.0, 1.0, 2.0, 4.0),
            group(3, 34.0 / 3.0, 392.0 / 9.0, 4.0, 20.0),
        ];
        let all = CentreScale::of_all(&groups, SeriesScale::Standard);
        assert!((all.centre - 8.0).abs() < 1e-12);
        assert!((all.scale - 6.572_671).abs() < 1e-6);
    }
}
