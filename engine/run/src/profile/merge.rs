//! Merges several profiles into one of all rows.

use std::collections::BTreeMap;

use forebay_analyze::{PROFILE_FREQUENT_VALUES, PROFILE_QUANTILE_PARTS};

use super::column::{ColumnProfile, FrequentValue, NumericProfile};
use super::distribution::QuantileTable;

/// The profile of the rows of all these, as far as a comparison reads it. Profiles of another type than the last one are
/// left out. A value that is not among the frequent ones of a profile counts with the rows that it may have there.
pub(crate) fn merge_columns(profiles: &[&ColumnProfile]) -> Option<ColumnProfile> {
    let last = profiles.last()?;
    let same: Vec<&ColumnProfile> = profiles
        .iter()
        .copied()
        .filter(|profile| profile.r#type == last.r#type)
        .collect();
    let mut frequent = merge_frequent(&same);
    let is_exact = same.iter().all(|profile| profile.distinct_is_exact)
        && frequent.len() <= PROFILE_FREQUENT_VALUES;
    frequent.truncate(PROFILE_FREQUENT_VALUES);
    let numbers: Vec<&NumericProfile> = same
        .iter()
        .filter_map(|profile| profile.numeric.as_ref())
        .collect();
    Some(ColumnProfile {
        rows: same.iter().map(|profile| profile.rows).sum(),
        nulls: same.iter().map(|profile| profile.nulls).sum(),
        distinct: is_exact.then_some(frequent.len() as u64),
        distinct_is_exact: is_exact,
        numeric: (!numbers.is_empty()).then(|| merge_numbers(&numbers)),
        frequent,
        ..ColumnProfile::empty(&last.name, &last.r#type)
    })
}

/// The frequent values of all profiles with the rows that they may have, the most frequent first.
fn merge_frequent(profiles: &[&ColumnProfile]) -> Vec<FrequentValue> {
    let unlisted: u64 = profiles.iter().map(|profile| profile.unlisted_max()).sum();
    let mut counts: BTreeMap<&str, u64> = BTreeMap::new();
    for profile in profiles {
        for value in &profile.frequent {
            // It gains its rows here, and loses those that it might have had.
            *counts.entry(&value.value).or_insert(unlisted) += value.count - profile.unlisted_max();
        }
    }
    let mut frequent = Vec::with_capacity(counts.len());
    for (value, count) in counts {
        frequent.push(FrequentValue {
            value: value.to_owned(),
            count,
        });
    }
    // Stable: values of one count stay in order.
    frequent.sort_by_key(|value| std::cmp::Reverse(value.count));
    frequent
}

fn merge_numbers(numbers: &[&NumericProfile]) -> NumericProfile {
    let mut merged = NumericProfile {
        count: 0,
        nans: 0,
        infinities: 0,
        zeros: 0,
        negatives: 0,
        mean: None,
        std: None,
        min: None,
        max: None,
        quantiles: merge_quantiles(numbers),
        histogram: Vec::new(),
    };
    for numeric in numbers {
        merged.count += numeric.count;
        merged.nans += numeric.nans;
        merged.infinities += numeric.infinities;
        merged.zeros += numeric.zeros;
        merged.negatives += numeric.negatives;
        let least = merged.min.into_iter().chain(numeric.min);
        merged.min = least.min_by(f64::total_cmp);
        let greatest = merged.max.into_iter().chain(numeric.max);
        merged.max = greatest.max_by(f64::total_cmp);
    }
    merged.mean = merge_means(numbers, merged.count);
    merged
}

/// The mean of all values; `None` where a profile with values has none.
fn merge_means(numbers: &[&NumericProfile], count: u64) -> Option<f64> {
    if count == 0 {
        return None;
    }
    let with_values = numbers.iter().filter(|numeric| numeric.count > 0);
    let sums = with_values.map(|numeric| Some(numeric.mean? * numeric.count as f64));
    let total = sums.sum::<Option<f64>>()?;
    Some(total / count as f64)
}

/// Quantiles of all values: the points at which the weighted sum of the distributions reaches each
/// probability.
fn merge_quantiles(numbers: &[&NumericProfile]) -> Vec<f64> {
    let mut tables: Vec<(QuantileTable<'_>, f64)> = Vec::new();
    let mut points: Vec<f64> = Vec::new();
    for numeric in numbers {
        if !numeric.quantiles.is_empty() {
            tables.push((QuantileTable(&numeric.quantiles), numeric.count as f64));
            points.extend(&numeric.quantiles);
        }
    }
    let total_count: f64 = tables.iter().map(|(_, count)| count).sum();
    points.sort_by(f64::total_cmp);
    points.dedup();
    let Some(&first) = points.first() else {
        return Vec::new();
    };
    let last = points.last().copied().unwrap_or(first);
    let mut shares = Vec::with_capacity(points.len());
    for point in &points {
        shares.push(shares_at(&tables, total_count, *point));
    }
    let mut quantiles = Vec::with_capacity(PROFILE_QUANTILE_PARTS + 1);
    quantiles.push(first);
    for part in 1..PROFILE_QUANTILE_PARTS {
        let probability = part as f64 / PROFILE_QUANTILE_PARTS as f64;
        quantiles.push(quantile_between(&points, &shares, probability));
    }
    quantiles.push(last);
    quantiles
}

/// Shares of all values below a point, and up to it.
fn shares_at(tables: &[(QuantileTable<'_>, f64)], total_count: f64, point: f64) -> [f64; 2] {
    let mut shares = [0.0; 2];
    for (table, count) in tables {
        let weight = count / total_count;
        shares[0] += weight * table.share_below(point);
        shares[1] += weight * table.share_up_to(point);
    }
    shares
}

/// The value at which a distribution reaches a probability, given its shares below and up to some points.
fn quantile_between(points: &[f64], shares: &[[f64; 2]], probability: f64) -> f64 {
    let at = shares
        .partition_point(|[_, up_to]| *up_to < probability)
        .min(points.len() - 1);
    let below = shares[at][0];
    // Values repeat at the point, or it is the first.
    if at == 0 || below <= probability {
        return points[at];
    }
    let lower = points[at - 1];
    let reached = shares[at - 1][1];
    let width = points[at] - lower;
    if !width.is_finite() || below <= reached {
        return points[at];
    }
    lower + width * ((probability - reached) / (below - reached)).clamp(0.0, 1.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn numbers(mut values: Vec<f64>) -> ColumnProfile {
        values.sort_by(f64::total_cmp);
        let quantiles = (0..=100)
            .map(|part| values[(values.len() - 1) * part / 100])
            .collect();
        let count = values.len() as u64;
        let [nans, infinities, zeros, negatives] = [0; 4];
        let mean = Some(values.iter().sum::<f64>() / count as f64);
        let min = values.first().copied();
        let max = values.last().copied();
        let std = None;
        let histogram = Vec::new();
        let numeric = NumericProfile {
            count,
            nans,
            infinities,
            zeros,
            negatives,
            mean,
            std,
            min,
            max,
            quantiles,
            histogram,
        };
        ColumnProfile {
            rows: count,
            numeric: Some(numeric),
            ..ColumnProfile::empty("c", "Float64")
        }
    }

    fn texts(values: &[(&str, u64)], nulls: u64, distinct_is_exact: bool) -> ColumnProfile {
        let value = |(value, count): &(&str, u64)| FrequentValue {
            value: (*value).to_owned(),
            count: *count,
        };
        let frequent: Vec<FrequentValue> = values.iter().map(value).collect();
        let rows = nulls + values.iter().map(|(_, count)| count).sum::<u64>();
        ColumnProfile {
            rows,
            nulls,
            distinct_is_exact,
            frequent,
            ..ColumnProfile::empty("c", "Utf8")
        }
    }

    #[test]
    fn numbers_of_several_profiles_are_those_of_all_rows() {
        // Days of different sizes and places; a third of the values is 0.
        let day = |day: u32| -> Vec<f64> {
            let value = |row: u32| {
                if row.is_multiple_of(3) {
                    0.0
                } else {
                    f64::from(day * 10 + row % 500)
                }
            };
            (0..500 * day).map(value).collect()
        };
        let days: Vec<ColumnProfile> = (1..=7).map(|number| numbers(day(number))).collect();
        let merged = merge_columns(&days.iter().collect::<Vec<_>>()).unwrap();
        let mut all: Vec<f64> = (1..=7).flat_map(day).collect();
        let merged = merged.numeric.unwrap();
        let whole = numbers(all.clone()).numeric.unwrap();
        assert_eq!(
            (merged.count, merged.min, merged.max),
            (whole.count, whole.min, whole.max)
        );
        assert!(
            (merged.mean.unwrap() - whole.mean.unwrap()).abs() < 1e-9,
            "{:?} {:?}",
            merged.mean,
            whole.mean
        );
        all.sort_by(f64::total_cmp);
        for (part, quantile) in merged.quantiles.iter().enumerate() {
            let [below, up_to] = [
                all.partition_point(|x| x < quantile),
                all.partition_point(|x| x <= quantile),
            ];
            let [below, up_to] = [below, up_to].map(|rank| rank as f64 / all.len() as f64);
            let probability = part as f64 / 100.0;
            assert!(
                below - 0.015 <= probability && probability <= up_to + 0.015,
                "{part}: {quantile} {below} {up_to}"
            );
        }
    }

    #[test]
    fn one_profile_stays_as_it_is() {
        let constant = numbers(vec![2.5; 9]);
        let merged = merge_columns(&[&constant]).unwrap();
        assert_eq!(merged.numeric.unwrap().quantiles, vec![2.5; 101]);
        let edges = numbers(vec![f64::MIN, 0.0, 0.0, f64::MAX]);
        let quantiles = merge_columns(&[&edges, &edges])
            .unwrap()
            .numeric
            .unwrap()
            .quantiles;
        assert!(
            quantiles
                .iter()
                .all(|x| [f64::MIN, 0.0, f64::MAX].contains(x)),
            "{quantiles:?}"
        );
        assert!(merge_columns(&[]).is_none());
    }

    #[test]
    fn values_are_added_up_and_other_types_left_out() {
        let first = texts(&[("a", 5), ("b", 2)], 1, true);
        let second = texts(&[("b", 6)], 3, true);
        let merged = merge_columns(&[&numbers(vec![1.0]), &first, &second]).unwrap();
        let values: Vec<(&str, u64)> = merged
            .frequent
            .iter()
            .map(|value| (&*value.value, value.count))
            .collect();
        assert_eq!(
            (merged.rows, merged.nulls, values),
            (17, 4, vec![("b", 8), ("a", 5)])
        );
        assert!(merged.distinct_is_exact && merged.distinct == Some(2));
        // In the second, `a` and `b` may have 2 rows each.
        let merged = merge_columns(&[&first, &texts(&[("c", 4), ("d", 2)], 0, false)]).unwrap();
        let values: Vec<(&str, u64)> = merged
            .frequent
            .iter()
            .map(|value| (&*value.value, value.count))
            .collect();
        assert_eq!(values, [("a", 7), ("b", 4), ("c", 4), ("d", 2)]);
        assert!(!merged.distinct_is_exact && merged.rows == 14, "{merged:?}");
    }
}
