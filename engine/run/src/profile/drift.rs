//! Differences between two profiles.

use std::collections::BTreeMap;

use serde::Serialize;

use super::DatasetProfile;
use super::column::{ColumnProfile, NumericProfile};
use super::distribution::QuantileTable;

/// Maximum number of rows that quantiles are taken from: measures of them have the noise of a
/// sample of this size.
const SAMPLED_ROWS: f64 = 18_136.0;

/// Bins of the baseline, of equal share, in which distributions of numbers are compared.
const BINS: usize = 20;

/// Least share of a bin in the population stability index, which has no value for empty bins.
const PSI_SHARE_MIN: f64 = 1e-4;

/// The normal deviate that chance exceeds once in a thousand times.
const RARE: f64 = 3.09;

/// Thresholds of drift.
#[derive(Debug, Clone, Copy)]
pub struct DriftOptions {
    /// Greatest Jensen-Shannon divergence of a column, in bits: 0 to 1.
    pub js: f64,
    /// Greatest change of the share of rows without a value.
    pub missing: f64,
}

impl Default for DriftOptions {
    fn default() -> Self {
        DriftOptions {
            js: 0.1,
            missing: 0.05,
        }
    }
}

/// Differences between a dataset and a baseline.
#[derive(Debug, Clone, Serialize)]
pub struct DriftReport {
    /// Rows of the baseline.
    pub baseline_rows: u64,
    /// Rows of the dataset.
    pub rows: u64,
    /// True if any column has drifted.
    pub drifted: bool,
    /// Columns in the order of the baseline, then the new ones.
    pub columns: Vec<ColumnDrift>,
}

/// Difference between a column and its baseline. Shares are of rows, distributions of values that
/// are neither null nor NaN.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct ColumnDrift {
    /// The column.
    pub name: String,
    /// Reasons why the column counts as drifted; empty where it has not.
    pub reasons: Vec<String>,
    /// The Jensen-Shannon divergence of the two distributions, in bits: 0 where they are equal, 1 where they share no
    /// value (Lin, "Divergence measures based on the Shannon entropy", 1991). Numbers are compared in bins that each hold
    /// a twentieth of the baseline.
    pub js: Option<f64>,
    /// The divergence that samples of these sizes from one distribution exceed once in a thousand times.
    pub js_of_chance: Option<f64>,
    /// The greatest difference of the shares of a value: texts and booleans.
    pub l_infinity: Option<f64>,
    /// The greatest difference of the cumulative distributions (Kolmogorov and Smirnov): numbers.
    pub ks: Option<f64>,
    /// The population stability index, in bins that each hold a twentieth of the baseline: numbers.
    pub psi: Option<f64>,
    /// The share of rows without a value in the baseline and in the dataset.
    pub missing: Option<[f64; 2]>,
    /// The difference of these shares that samples of these sizes exceed once in a thousand times.
    pub missing_of_chance: Option<f64>,
    /// The share of rows whose value the baseline does not have. Known where the baseline has at most 100 values.
    pub new_values: Option<f64>,
}

/// Compares a profile with a baseline.
pub fn compare_profiles(
    baseline: &DatasetProfile,
    now: &DatasetProfile,
    options: &DriftOptions,
) -> DriftReport {
    let mut columns: Vec<ColumnDrift> = baseline
        .columns
        .iter()
        .map(|column| match now.column(&column.name) {
            Some(now) => compare_columns(column, now, options),
            None => only_reason(&column.name, "the column is gone"),
        })
        .collect();
    let is_new = |column: &&ColumnProfile| baseline.column(&column.name).is_none();
    columns.extend(
        now.columns
            .iter()
            .filter(is_new)
            .map(|column| only_reason(&column.name, "the column is new")),
    );
    let drifted = columns.iter().any(|column| !column.reasons.is_empty());
    DriftReport {
        baseline_rows: baseline.rows,
        rows: now.rows,
        drifted,
        columns,
    }
}

fn only_reason(name: &str, reason: &str) -> ColumnDrift {
    ColumnDrift {
        name: name.to_owned(),
        reasons: vec![reason.to_owned()],
        ..ColumnDrift::default()
    }
}

/// Compares the profile of a column with a baseline.
pub(crate) fn compare_columns(
    baseline: &ColumnProfile,
    now: &ColumnProfile,
    options: &DriftOptions,
) -> ColumnDrift {
    if baseline.r#type != now.r#type {
        return only_reason(
            &baseline.name,
            &format!(
                "the type was {} and is {}",
                baseline.type_label(),
                now.type_label()
            ),
        );
    }
    let mut drift = ColumnDrift {
        name: baseline.name.clone(),
        ..ColumnDrift::default()
    };
    if baseline.rows == 0 || now.rows == 0 {
        return drift;
    }
    let p = baseline.missing_share();
    let q = now.missing_share();
    drift.missing = Some([p, q]);
    let n = baseline.rows as f64;
    let m = now.rows as f64;
    let joint_share = (p * n + q * m) / (n + m);
    let chance = RARE * (joint_share * (1.0 - joint_share) * (1.0 / n + 1.0 / m)).sqrt();
    drift.missing_of_chance = Some(chance);
    if (p - q).abs() > options.missing.max(chance) {
        drift.reasons.push(format!(
            "rows without a value: {:.1} % before, {:.1} % now",
            100.0 * p,
            100.0 * q
        ));
    }
    if !baseline.frequent.is_empty() || !now.frequent.is_empty() {
        compare_values(baseline, now, &mut drift);
    } else if let (Some(baseline), Some(now)) = (&baseline.numeric, &now.numeric) {
        compare_numbers(baseline, now, &mut drift);
    }
    if let (Some(js), Some(chance)) = (drift.js, drift.js_of_chance)
        && js > options.js.max(chance)
    {
        drift
            .reasons
            .push(format!("the Jensen-Shannon divergence is {js:.3}"));
    }
    drift
}

/// Values with names. Those that are not among the frequent ones of either side count as one. One that a side does not
/// list may still be there, with at most as many rows as the last of its list: where chance explains that the other side
/// lists it, it counts with those.
fn compare_values(baseline: &ColumnProfile, now: &ColumnProfile, drift: &mut ColumnDrift) {
    let n = value_count(baseline);
    let m = value_count(now);
    if n == 0.0 || m == 0.0 {
        return;
    }
    let mut shares: BTreeMap<&str, [f64; 2]> = BTreeMap::new();
    for (side, (column, rows)) in [(baseline, n), (now, m)].into_iter().enumerate() {
        for value in &column.frequent {
            shares.entry(&value.value).or_default()[side] = value.count as f64 / rows;
        }
    }
    let possible = [
        baseline.unlisted_max() as f64 / n,
        now.unlisted_max() as f64 / m,
    ];
    let mut cells: Vec<[f64; 2]> = Vec::with_capacity(shares.len() + 1);
    for shares in shares.values() {
        let mut cell = *shares;
        if let Some(side) = (0..2).find(|side| shares[*side] == 0.0 && possible[*side] > 0.0) {
            cell[side] = possible[side];
            let noise = RARE * (possible[side] / [m, n][side]).sqrt();
            if shares[1 - side] <= possible[side] + noise {
                continue;
            }
        }
        cells.push(cell);
    }
    let others = [unlisted_share(&cells, 0), unlisted_share(&cells, 1)];
    cells.push(others);
    drift.js = Some(jensen_shannon(&cells));
    drift.js_of_chance = Some(js_of_chance(&cells, n, m));
    drift.l_infinity = cells
        .iter()
        .map(|[p, q]| (p - q).abs())
        .max_by(f64::total_cmp);
    if baseline.distinct_is_exact {
        let is_known = |value: &str| shares.get(value).is_some_and(|shares| shares[0] > 0.0);
        let old: f64 = now
            .frequent
            .iter()
            .filter(|value| is_known(&value.value))
            .map(|value| value.count as f64)
            .sum();
        drift.new_values = Some((1.0 - old / m).max(0.0));
    }
}

/// Rows that have a value.
fn value_count(column: &ColumnProfile) -> f64 {
    (column.rows - column.nulls.min(column.rows)) as f64
}

/// The share of a side that its cells leave.
fn unlisted_share(cells: &[[f64; 2]], side: usize) -> f64 {
    let listed: f64 = cells.iter().map(|shares| shares[side]).sum();
    (1.0 - listed).max(0.0)
}

/// The share of a distribution below each edge, from 0 to 1.
fn shares_below(table: &QuantileTable<'_>, edges: &[f64]) -> Vec<f64> {
    let mut shares = vec![0.0];
    for edge in edges {
        shares.push(table.share_below(*edge));
    }
    shares.push(1.0);
    shares
}

/// The summand of a cell in the population stability index.
fn stability_of_cell([p, q]: &[f64; 2]) -> f64 {
    let p = p.max(PSI_SHARE_MIN);
    let q = q.max(PSI_SHARE_MIN);
    if p == q { 0.0 } else { (q - p) * (q / p).ln() }
}

/// Numbers, in bins of the baseline.
fn compare_numbers(baseline: &NumericProfile, now: &NumericProfile, drift: &mut ColumnDrift) {
    if baseline.quantiles.is_empty() || now.quantiles.is_empty() {
        return;
    }
    let p = QuantileTable(&baseline.quantiles);
    let q = QuantileTable(&now.quantiles);
    let step = (baseline.quantiles.len() / BINS).max(1);
    let mut edges: Vec<f64> = baseline.quantiles.iter().copied().step_by(step).collect();
    edges.dedup();
    let below_p = shares_below(&p, &edges);
    let below_q = shares_below(&q, &edges);
    let bins = below_p.windows(2).zip(below_q.windows(2));
    let cells: Vec<[f64; 2]> = bins
        .map(|(p, q)| [(p[1] - p[0]).max(0.0), (q[1] - q[0]).max(0.0)])
        .collect();
    let rows = |count: u64| (count as f64).min(SAMPLED_ROWS);
    drift.js = Some(jensen_shannon(&cells));
    drift.js_of_chance = Some(js_of_chance(&cells, rows(baseline.count), rows(now.count)));
    drift.psi = Some(cells.iter().map(stability_of_cell).sum());
    let points = baseline.quantiles.iter().chain(&now.quantiles);
    let distance = |x: &f64| {
        let up_to = (p.share_up_to(*x) - q.share_up_to(*x)).abs();
        up_to.max((p.share_below(*x) - q.share_below(*x)).abs())
    };
    drift.ks = points.map(distance).max_by(f64::total_cmp);
}

/// Jensen-Shannon divergence in bits, of shares that add up to 1 on each side.
pub(crate) fn jensen_shannon(cells: &[[f64; 2]]) -> f64 {
    let part = |share: f64, middle: f64| {
        if share > 0.0 {
            share * (share / middle).log2()
        } else {
            0.0
        }
    };
    let cell = |[p, q]: &[f64; 2]| {
        let middle = (p + q) / 2.0;
        (part(*p, middle) + part(*q, middle)) / 2.0
    };
    cells.iter().map(cell).sum::<f64>().clamp(0.0, 1.0)
}

/// The divergence that two samples of one distribution exceed once in a thousand times: near 0 it is
/// `chi2 (1/n + 1/m) / (8 ln 2)` with a chi-squared variable of one degree less than cells, whose quantile follows Wilson
/// and Hilferty (1931).
fn js_of_chance(cells: &[[f64; 2]], n: f64, m: f64) -> f64 {
    let filled = cells.iter().filter(|[p, q]| p + q > 0.0).count();
    let freedom = filled.saturating_sub(1).max(1) as f64;
    let part = 2.0 / (9.0 * freedom);
    let chi_squared = freedom * (1.0 - part + RARE * part.sqrt()).powi(3);
    (chi_squared * (1.0 / n.max(1.0) + 1.0 / m.max(1.0)) / (8.0 * std::f64::consts::LN_2)).min(1.0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::profile::column::FrequentValue;

    #[test]
    fn divergences_of_known_distributions() {
        assert_eq!(jensen_shannon(&[[0.5, 0.5], [0.5, 0.5]]), 0.0);
        assert_eq!(jensen_shannon(&[[1.0, 0.0], [0.0, 1.0]]), 1.0);
        // scipy.spatial.distance.jensenshannon([0.2, 0.8], [0.6, 0.4], base=2) ** 2
        assert!((jensen_shannon(&[[0.2, 0.6], [0.8, 0.4]]) - 0.124_511_249_783_653).abs() < 1e-12);
    }

    fn texts(values: &[(&str, u64)], nulls: u64) -> ColumnProfile {
        let frequent: Vec<FrequentValue> = values
            .iter()
            .map(|(value, count)| FrequentValue {
                value: (*value).to_owned(),
                count: *count,
            })
            .collect();
        ColumnProfile {
            name: "c".to_owned(),
            r#type: "Utf8".to_owned(),
            rows: values.iter().map(|(_, count)| count).sum::<u64>() + nulls,
            nulls,
            distinct: Some(frequent.len() as u64),
            distinct_is_exact: true,
            numeric: None,
            time: None,
            length: None,
            examples: Vec::new(),
            frequent,
        }
    }

    /// A number from 0 to 1 that looks like chance.
    fn uniform(seed: u64) -> f64 {
        let mixed = (seed + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let mixed = (mixed ^ (mixed >> 29)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        ((mixed ^ (mixed >> 32)) >> 11) as f64 / (1u64 << 53) as f64
    }

    fn numbers(mut values: Vec<f64>) -> ColumnProfile {
        values.sort_by(f64::total_cmp);
        let quantile = |part: usize| values[(values.len() - 1) * part / 100];
        let quantiles: Vec<f64> = (0..=100).map(quantile).collect();
        let count = values.len() as u64;
        let min = values.first().copied();
        let max = values.last().copied();
        let [nans, infinities, zeros, negatives] = [0; 4];
        let mean = None;
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
        let column = texts(&[], 0);
        ColumnProfile {
            rows: count,
            numeric: Some(numeric),
            r#type: "Float64".to_owned(),
            frequent: Vec::new(),
            ..column
        }
    }

    /// Exponential values, a third of them 0.
    fn sample(seed: u64, rows: u64, scale: f64) -> Vec<f64> {
        let value = |row: u64| match uniform(seed * 1_000_003 + row) {
            u if u < 1.0 / 3.0 => 0.0,
            _ => -scale * (1.0 - uniform(seed * 7_919 + row * 31 + 17)).ln(),
        };
        (0..rows).map(value).collect()
    }

    #[test]
    fn planted_drift_is_found_and_chance_is_not() {
        let options = DriftOptions {
            js: 0.0,
            missing: 0.0,
        };
        let baseline = numbers(sample(0, 20_000, 1.0));
        let mut alarms = 0;
        for seed in 1..=100 {
            let rows = [50, 500, 5_000][seed as usize % 3];
            alarms += compare_columns(&baseline, &numbers(sample(seed, rows, 1.0)), &options)
                .reasons
                .len();
        }
        // With the threshold at 0, chance alone decides: about one in a thousand.
        assert!(alarms <= 1, "{alarms} of 100 resamples alarm");
        let usual = DriftOptions::default();
        let planted: Vec<(&str, Vec<f64>)> = vec![
            ("scaled", sample(1, 2_000, 5.0)),
            (
                "moved",
                sample(2, 2_000, 1.0).iter().map(|x| x + 1.0).collect(),
            ),
            ("constant", vec![0.4; 500]),
            ("all zero", vec![0.0; 500]),
            (
                "no zero",
                sample(3, 2_000, 1.0)
                    .into_iter()
                    .filter(|x| *x > 0.0)
                    .collect(),
            ),
            (
                "negative",
                sample(4, 2_000, 1.0).iter().map(|x| -x).collect(),
            ),
            (
                "in other units",
                sample(5, 2_000, 1.0).iter().map(|x| x * 100.0).collect(),
            ),
        ];
        for (name, values) in planted {
            let found = compare_columns(&baseline, &numbers(values), &usual);
            assert_eq!(found.reasons.len(), 1, "{name}: {found:?}");
            assert!(
                found.ks > Some(0.2) && found.psi > Some(0.2),
                "{name}: {found:?}"
            );
        }
    }

    #[test]
    fn values_that_are_not_listed_are_no_drift_and_new_frequent_ones_are() {
        // The hundred most frequent of 800 values, each as frequent as the others.
        let sampled = |seed: u64, rows: u64, replaced: u64| {
            let mut counts: BTreeMap<String, u64> = BTreeMap::new();
            for row in 0..rows {
                let value = (800.0 * uniform(seed * 1_000_003 + row)) as u64;
                let value = if row % 10 < replaced {
                    "unknown".to_owned()
                } else {
                    format!("v{value}")
                };
                *counts.entry(value).or_default() += 1;
            }
            let mut values: Vec<(&str, u64)> = counts
                .iter()
                .map(|(value, count)| (value.as_str(), *count))
                .collect();
            values.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
            let listed = texts(&values[..values.len().min(100)], 0);
            ColumnProfile {
                rows,
                distinct_is_exact: values.len() <= 100,
                ..listed
            }
        };
        let options = DriftOptions {
            js: 0.01,
            missing: 0.0,
        };
        let baseline = sampled(0, 6_000, 0);
        for seed in 1..=50 {
            let rows = [30, 90, 200, 1_000, 20_000][seed as usize % 5];
            let quiet = compare_columns(&baseline, &sampled(seed, rows, 0), &options);
            assert!(quiet.reasons.is_empty(), "{seed}: {quiet:?}");
            let drifted = compare_columns(&baseline, &sampled(seed, rows, 6), &options);
            assert!(
                rows < 1_000 || drifted.reasons.len() == 1,
                "{seed}: {drifted:?}"
            );
        }
    }

    #[test]
    fn small_samples_do_not_alarm() {
        let options = DriftOptions::default();
        let before = texts(&[("a", 5_000), ("b", 5_000)], 0);
        let compare = |now: &ColumnProfile| compare_columns(&before, now, &options);
        // 9 of 12: not rare for a coin.
        assert!(compare(&texts(&[("a", 9), ("b", 3)], 0)).reasons.is_empty());
        let many = compare(&texts(&[("a", 9_000), ("b", 1_000)], 0));
        assert_eq!(
            (many.reasons.len(), many.l_infinity),
            (1, Some(0.4)),
            "{many:?}"
        );
        // Rows without a value, and values that are new.
        let other = compare(&texts(&[("a", 4_000), ("b", 4_000), ("c", 1_000)], 1_000));
        assert_eq!(other.missing, Some([0.0, 0.1]));
        assert!((other.new_values.unwrap_or(0.0) - 1.0 / 9.0).abs() < 1e-12);
        assert!(
            other.reasons[0].contains("0.0 % before, 10.0 % now"),
            "{other:?}"
        );
    }
}
