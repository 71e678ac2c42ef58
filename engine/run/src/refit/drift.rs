//! Drift of statistics from those in use.
//!
//! The measure is that of `forebay drift`: the Jensen-Shannon divergence of two distributions in bits, 0 where they are
//! equal and 1 where they share no value (Lin, "Divergence measures based on the Shannon entropy", 1991). Which
//! distribution a finding describes depends on its analyzer:
//!
//! - a vocabulary: the counts of its tokens
//! - mean and variance: the normal distribution with these moments
//! - mean and variance by key: the same, averaged over the keys by their counts; and the counts of the keys
//! - counts of rows and nulls: the shares of nulls and of values
//! - the exponent of a power transformation: none, since its step learns the moments of the column as well
//! - quantiles: linear between them, with tails of the mean slope; those of equal probability are its cells
//! - all others have no distribution: they have drifted by 1 as soon as they are not equal

use std::collections::BTreeMap;

use arrow::array::{Array, ArrayRef, AsArray};
use arrow::compute::cast;
use arrow::datatypes::{DataType, Float64Type, UInt64Type};
use arrow::util::display::{ArrayFormatter, FormatOptions};
use forebay_model::{Finding, Result};

use crate::profile::jensen_shannon;

/// Standard deviations that normal distributions are integrated over, on either side.
const DEVIATIONS: f64 = 8.0;

/// Intervals of that integral. The integrand is smooth and vanishes at both ends, where equal steps are exact to
/// rounding.
const STEPS: usize = 400;

/// The divergence between the finding in use and the current one.
pub(super) fn divergence(analyzer: &str, held_finding: &Finding, now: &Finding) -> Result<f64> {
    if held_finding == now {
        return Ok(0.0);
    }
    let measured = match analyzer {
        "vocabulary" => Some(token_divergence(held_finding, now)?),
        "moments" => moment_divergence(held_finding, now)?,
        "key_moments" => Some(grouped_divergence(held_finding, now)?),
        "quantiles" | "exact_quantiles" | "weighted_quantiles" | "exact_weighted_quantiles" => {
            quantile_divergence(held_finding, now)?
        }
        "counts" => Some(null_share_divergence(held_finding, now)?),
        // The moments of the column measure it: `power` learns them as well.
        "power_fit" => Some(0.0),
        _ => None,
    };
    Ok(measured.unwrap_or(1.0))
}

/// The divergence of the counts of tokens.
fn token_divergence(held_finding: &Finding, now: &Finding) -> Result<f64> {
    let held_counts = counts(held_finding, 1)?;
    let current_counts = counts(now, 1)?;
    Ok(jensen_shannon(&cells(held_counts, current_counts)))
}

/// The divergence of normal distributions; `None` where a finding has no moments.
fn moment_divergence(held_finding: &Finding, now: &Finding) -> Result<Option<f64>> {
    let held_moments = Moments::of(held_finding)?;
    let current_moments = Moments::of(now)?;
    let Some((held_moments, current_moments)) = held_moments.zip(current_moments) else {
        return Ok(None);
    };
    Ok(Some(normal_divergence(held_moments, current_moments)))
}

/// The divergence of the shares of nulls.
fn null_share_divergence(held_finding: &Finding, now: &Finding) -> Result<f64> {
    let held_share = null_share(held_finding)?;
    let current_share = null_share(now)?;
    Ok(jensen_shannon(&[
        [held_share, current_share],
        [1.0 - held_share, 1.0 - current_share],
    ]))
}

/// The share of nulls among the rows, 0 without rows.
fn null_share(counts: &Finding) -> Result<f64> {
    let rows = counts.number("rows")?.unwrap_or(0.0);
    let nulls = counts.number("nulls")?.unwrap_or(0.0);
    Ok(if rows > 0.0 { nulls / rows } else { 0.0 })
}

/// The counts of a finding by the values of its first columns.
fn counts(finding: &Finding, keys: usize) -> Result<BTreeMap<String, f64>> {
    let names = key_texts(finding, keys)?;
    let counts = finding.column("count")?.as_primitive::<UInt64Type>();
    let mut counts_by_name = BTreeMap::new();
    for (name, count) in names.into_iter().zip(counts.values()) {
        counts_by_name.insert(name, *count as f64);
    }
    Ok(counts_by_name)
}

fn key_texts(finding: &Finding, keys: usize) -> Result<Vec<String>> {
    let options = FormatOptions::default().with_null("\0");
    let mut formatters = Vec::with_capacity(keys);
    for column in &finding.table().columns()[..keys] {
        formatters.push(ArrayFormatter::try_new(column, &options)?);
    }
    let mut texts = Vec::with_capacity(finding.rows());
    for row in 0..finding.rows() {
        let mut values = Vec::with_capacity(keys);
        for formatter in &formatters {
            values.push(formatter.value(row).to_string());
        }
        texts.push(values.join("\u{1f}"));
    }
    Ok(texts)
}

/// The shares of both sides, name by name.
fn cells(held_counts: BTreeMap<String, f64>, counts: BTreeMap<String, f64>) -> Vec<[f64; 2]> {
    let sums: [f64; 2] = [held_counts.values().sum(), counts.values().sum()];
    let mut cells: BTreeMap<String, [f64; 2]> = BTreeMap::new();
    for (side, counts) in [held_counts, counts].into_iter().enumerate() {
        for (name, count) in counts {
            cells.entry(name).or_default()[side] = if sums[side] > 0.0 {
                count / sums[side]
            } else {
                0.0
            };
        }
    }
    // A side without rows is in a cell of its own.
    let of_none = sums.map(|sum| if sum > 0.0 { 0.0 } else { 1.0 });
    let mut shares: Vec<[f64; 2]> = cells.into_values().collect();
    shares.push(of_none);
    shares
}

/// Mean and variance of a normal distribution.
#[derive(Clone, Copy, PartialEq)]
struct Moments {
    mean: f64,
    var: f64,
}

impl Moments {
    /// Moments of a finding; `None` where it has none.
    fn of(finding: &Finding) -> Result<Option<Moments>> {
        let mean = finding.number("mean")?;
        let var = finding.number("var")?;
        Ok(mean.zip(var).map(|(mean, var)| Moments { mean, var }))
    }

    /// True if the distribution has a density.
    fn has_spread(self) -> bool {
        self.var > 0.0 && self.var.is_finite()
    }
}

/// The divergence of two normal distributions.
fn normal_divergence(a: Moments, b: Moments) -> f64 {
    if a == b {
        return 0.0;
    }
    // A single value shares nothing with another distribution.
    if !a.has_spread() || !b.has_spread() {
        return 1.0;
    }
    ((one_side(a, b) + one_side(b, a)) / 2.0).clamp(0.0, 1.0)
}

/// The mean over `p` of `log2(p / m)`, where `m` is the mean of `p` and `q`.
fn one_side(p: Moments, q: Moments) -> f64 {
    let step = 2.0 * DEVIATIONS / STEPS as f64;
    let terms = (0..=STEPS).map(|at| integrand(p, q, at as f64 * step - DEVIATIONS));
    terms.sum::<f64>() * step / (2.0 * std::f64::consts::PI).sqrt()
}

/// The density of `p`, but for its constant, times `log2(p / m)`, at `z` standard deviations from its mean.
fn integrand(p: Moments, q: Moments, z: f64) -> f64 {
    let std_p = p.var.sqrt();
    let std_q = q.var.sqrt();
    let other = (p.mean + std_p * z - q.mean) / std_q;
    // The logarithm of q / p at this point.
    let ratio = (std_p / std_q).ln() + (z * z - other * other) / 2.0;
    let softplus = ratio.max(0.0) + (-ratio.abs()).exp().ln_1p();
    (-z * z / 2.0).exp() * (1.0 - softplus / std::f64::consts::LN_2)
}

/// Count and moments of a key in a finding.
struct KeyMoments {
    count: f64,
    /// Moments of the key, where they are known.
    moments: Option<Moments>,
}

fn moments_by_key(finding: &Finding) -> Result<BTreeMap<String, KeyMoments>> {
    let means = finding.column("mean")?.as_primitive::<Float64Type>();
    let vars = finding.column("var")?.as_primitive::<Float64Type>();
    let counts = finding.column("count")?.as_primitive::<UInt64Type>();
    // The columns before the counts are the keys.
    let key_columns = finding.table().schema().index_of("count")?;
    let mut by_key = BTreeMap::new();
    for (row, key) in key_texts(finding, key_columns)?.into_iter().enumerate() {
        let has_moments = means.is_valid(row) && vars.is_valid(row);
        let moments = has_moments.then(|| Moments {
            mean: means.value(row),
            var: vars.value(row),
        });
        let key_moments = KeyMoments {
            count: counts.value(row) as f64,
            moments,
        };
        by_key.insert(key, key_moments);
    }
    Ok(by_key)
}

fn counts_by_key(by_key: &BTreeMap<String, KeyMoments>) -> BTreeMap<String, f64> {
    let counts = by_key.iter();
    counts
        .map(|(key, moments)| (key.clone(), moments.count))
        .collect()
}

/// Divergence of moments that are learned by key: of the counts of keys, or of the moments of common keys.
fn grouped_divergence(held_finding: &Finding, now: &Finding) -> Result<f64> {
    let held_moments = moments_by_key(held_finding)?;
    let now = moments_by_key(now)?;
    let by_count = jensen_shannon(&cells(counts_by_key(&held_moments), counts_by_key(&now)));
    let mut sum = 0.0;
    let mut counted = 0.0;
    for (key, KeyMoments { count, moments }) in &now {
        let held_key = held_moments.get(key);
        let held_key_moments = held_key.and_then(|key_moments| key_moments.moments);
        if let Some((held_key_moments, moments)) = held_key_moments.zip(*moments) {
            sum += count * normal_divergence(held_key_moments, moments);
            counted += count;
        }
    }
    Ok(by_count.max(if counted > 0.0 { sum / counted } else { 0.0 }))
}

/// The values of a column; none where it has nulls.
fn doubles(column: &ArrayRef) -> Result<Vec<f64>> {
    let column = cast(column, &DataType::Float64)?;
    let column = column.as_primitive::<Float64Type>();
    if column.null_count() > 0 {
        return Ok(Vec::new());
    }
    Ok(column.values().to_vec())
}

/// Probabilities that divide a distribution into parts of equal share, from the lowest up.
fn equal_shares(count: usize) -> Vec<f64> {
    let mut probabilities = Vec::with_capacity(count);
    for number in 1..=count {
        probabilities.push(number as f64 / (count + 1) as f64);
    }
    probabilities
}

/// A distribution of which some quantiles are known.
struct KnownQuantiles {
    probabilities: Vec<f64>,
    values: Vec<f64>,
}

impl KnownQuantiles {
    /// `None` for fewer than two different values: they have no scale.
    fn of(finding: &Finding) -> Result<Option<KnownQuantiles>> {
        let table = finding.table();
        let values = doubles(table.column(table.num_columns() - 1))?;
        let probabilities = match table.column_by_name("probability") {
            Some(column) => doubles(column)?,
            // Boundaries between buckets of equal counts.
            None => equal_shares(values.len()),
        };
        let mut pairs: Vec<(f64, f64)> = probabilities.into_iter().zip(values).collect();
        pairs.sort_by(|a, b| a.0.total_cmp(&b.0));
        let (probabilities, values): (Vec<f64>, Vec<f64>) = pairs.into_iter().unzip();
        let spread = values
            .first()
            .zip(values.last())
            .is_some_and(|(first, last)| last > first);
        Ok(spread.then_some(KnownQuantiles {
            probabilities,
            values,
        }))
    }

    /// The share of values at or below `x`.
    fn share_up_to(&self, x: f64) -> f64 {
        let last = self.values.len() - 1;
        let p = &self.probabilities;
        let v = &self.values;
        let slope = (p[last] - p[0]) / (v[last] - v[0]);
        let position = v.partition_point(|value| *value <= x);
        let share = match position {
            0 => p[0] - slope * (v[0] - x),
            _ if position > last => p[last] + slope * (x - v[last]),
            _ => {
                p[position - 1]
                    + (p[position] - p[position - 1]) * (x - v[position - 1])
                        / (v[position] - v[position - 1])
            }
        };
        share.clamp(0.0, 1.0)
    }
}

fn quantile_divergence(held_finding: &Finding, now: &Finding) -> Result<Option<f64>> {
    let held_quantiles = KnownQuantiles::of(held_finding)?;
    let quantiles = KnownQuantiles::of(now)?;
    let Some((held_quantiles, quantiles)) = held_quantiles.zip(quantiles) else {
        return Ok(None);
    };
    // Both are divided at the quantiles of the held one.
    let mut cells = Vec::with_capacity(held_quantiles.values.len() + 1);
    let mut lower = [0.0, 0.0];
    for edge in &held_quantiles.values {
        let upper = [
            held_quantiles.share_up_to(*edge),
            quantiles.share_up_to(*edge),
        ];
        cells.push(shares_between(lower, upper));
        lower = upper;
    }
    cells.push(shares_between(lower, [1.0, 1.0]));
    Ok(Some(jensen_shannon(&cells)))
}

/// Shares of two distributions between two edges.
fn shares_between(lower: [f64; 2], upper: [f64; 2]) -> [f64; 2] {
    [
        (upper[0] - lower[0]).max(0.0),
        (upper[1] - lower[1]).max(0.0),
    ]
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow::array::{Float64Array, StringArray, UInt64Array};

    use super::*;

    fn close(found: f64, expected: f64) {
        assert!((found - expected).abs() < 1e-9, "{found}, not {expected}");
    }

    #[test]
    fn normal_distributions() {
        let divergence = |a: (f64, f64), b: (f64, f64)| {
            normal_divergence(
                Moments {
                    mean: a.0,
                    var: a.1,
                },
                Moments {
                    mean: b.0,
                    var: b.1,
                },
            )
        };
        close(divergence((3.0, 2.0), (3.0, 2.0)), 0.0);
        // Riemann sums of 400,000 steps over the densities from -36 to 36, in Python.
        close(divergence((0.0, 1.0), (1.0, 1.0)), 0.160747219796417);
        close(divergence((0.0, 1.0), (0.0, 4.0)), 0.133785989854997);
        close(divergence((0.0, 1.0), (100.0, 1.0)), 1.0);
        close(divergence((5.0, 0.0), (5.0, 1.0)), 1.0);
        let a = (1e9, 1e-3);
        let b = (1e9 + 1.0, 1e6);
        close(divergence(a, b), divergence(b, a));
    }

    fn vocabulary(tokens: &[(&str, u64)]) -> Finding {
        let names: StringArray = tokens.iter().map(|(token, _)| Some(*token)).collect();
        let counts: UInt64Array = tokens.iter().map(|(_, count)| *count).collect();
        Finding::of([
            ("token", Arc::new(names) as ArrayRef),
            ("count", Arc::new(counts)),
        ])
        .unwrap()
    }

    #[test]
    fn token_counts() {
        let before = vocabulary(&[("a", 8), ("b", 2)]);
        let check = |now: &[(&str, u64)], expected| {
            close(
                divergence("vocabulary", &before, &vocabulary(now)).unwrap(),
                expected,
            );
        };
        check(&[("b", 20), ("a", 80)], 0.0);
        check(&[("c", 1)], 1.0);
        check(&[], 1.0);
        // scipy.spatial.distance.jensenshannon([0.2, 0.8], [0.6, 0.4], base=2) ** 2
        check(&[("a", 4), ("b", 6)], 0.124_511_249_783_653);
    }

    #[test]
    fn shares_of_nulls() {
        let counts = |rows: u64, nulls: u64| {
            Finding::of([
                ("rows", Arc::new(UInt64Array::from(vec![rows])) as ArrayRef),
                ("nulls", Arc::new(UInt64Array::from(vec![nulls]))),
            ])
            .unwrap()
        };
        let before = counts(10, 2);
        close(
            divergence("counts", &before, &counts(100, 20)).unwrap(),
            0.0,
        );
        close(
            divergence("counts", &counts(5, 0), &counts(7, 7)).unwrap(),
            1.0,
        );
        // scipy.spatial.distance.jensenshannon([0.2, 0.8], [0.6, 0.4], base=2) ** 2
        let expected = 0.124_511_249_783_653;
        close(
            divergence("counts", &before, &counts(5, 3)).unwrap(),
            expected,
        );
    }

    #[test]
    fn quantiles_by_cells() {
        let table = |values: Vec<f64>| {
            let probabilities = Float64Array::from(vec![0.25, 0.5, 0.75]);
            let values = Float64Array::from(values);
            Finding::of([
                ("probability", Arc::new(probabilities) as ArrayRef),
                ("value", Arc::new(values)),
            ])
            .unwrap()
        };
        let drift =
            |a: Vec<f64>, b: Vec<f64>| divergence("quantiles", &table(a), &table(b)).unwrap();
        close(drift(vec![1.0, 2.0, 3.0], vec![1.0, 2.0, 3.0]), 0.0);
        assert!(drift(vec![1.0, 2.0, 3.0], vec![1.0, 2.0 + 1e-6, 3.0]) < 1e-9);
        assert!(drift(vec![1.0, 2.0, 3.0], vec![1.0 - 1e-6, 2.0, 3.0]) < 1e-9);
        close(drift(vec![1.0, 2.0, 3.0], vec![101.0, 102.0, 103.0]), FAR);
        // Without a scale, any change is a drift.
        close(drift(vec![0.0, 0.0, 0.0], vec![0.0, 0.0, 1.0]), 1.0);
    }

    /// Divergence if all of the second distribution lies in the last cell, which has a quarter of
    /// the first.
    const FAR: f64 = 0.548794940695399;

    #[test]
    fn what_has_no_distribution_drifts_at_once() {
        let number = |value: f64| {
            Finding::of([(
                "estimate",
                Arc::new(Float64Array::from(vec![value])) as ArrayRef,
            )])
            .unwrap()
        };
        close(
            divergence("distinct_count", &number(1.0), &number(1.0)).unwrap(),
            0.0,
        );
        close(
            divergence("distinct_count", &number(1.0), &number(2.0)).unwrap(),
            1.0,
        );
    }
}
