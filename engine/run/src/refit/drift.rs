//! How far statistics have drifted from those in force.
//!
//! The measure is that of `forebay drift`: the Jensen-Shannon divergence of two distributions in bits, 0 where they are
//! equal and 1 where they share no value (Lin, "Divergence measures based on the Shannon entropy", 1991). Which
//! distribution a finding describes depends on its analyzer:
//!
//! - a vocabulary: the counts of its tokens
//! - mean and variance: the normal distribution with these moments
//! - mean and variance by key: the same, averaged over the keys by their counts; and the counts of the keys
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

/// The divergence between the finding in force and the one of now.
pub(super) fn divergence(analyzer: &str, held: &Finding, now: &Finding) -> Result<f64> {
    if held == now {
        return Ok(0.0);
    }
    let measured = match analyzer {
        "vocabulary" => Some(jensen_shannon(&cells(counts(held, 1)?, counts(now, 1)?))),
        "moments" => {
            let moments = |finding: &Finding| -> Result<Option<Moments>> {
                let (mean, var) = (finding.number("mean")?, finding.number("var")?);
                Ok(mean.zip(var).map(|(mean, var)| Moments { mean, var }))
            };
            moments(held)?
                .zip(moments(now)?)
                .map(|(held, now)| normal_divergence(held, now))
        }
        "key_moments" => Some(grouped_divergence(held, now)?),
        "quantiles" | "exact_quantiles" => quantile_divergence(held, now)?,
        _ => None,
    };
    Ok(measured.unwrap_or(1.0))
}

/// The counts of a finding by the values of its first columns.
fn counts(finding: &Finding, keys: usize) -> Result<BTreeMap<String, f64>> {
    let names = key_texts(finding, keys)?;
    let counts = finding.column("count")?.as_primitive::<UInt64Type>();
    Ok(names
        .into_iter()
        .zip(counts.values().iter().map(|count| *count as f64))
        .collect())
}

fn key_texts(finding: &Finding, keys: usize) -> Result<Vec<String>> {
    let options = FormatOptions::default().with_null("\0");
    let columns = &finding.table().columns()[..keys];
    let columns = columns
        .iter()
        .map(|column| ArrayFormatter::try_new(column, &options));
    let columns = columns.collect::<std::result::Result<Vec<_>, _>>()?;
    let text = |row| {
        columns
            .iter()
            .map(|column| column.value(row).to_string())
            .collect::<Vec<_>>()
            .join("\u{1f}")
    };
    Ok((0..finding.rows()).map(text).collect())
}

/// The shares of both sides, name by name.
fn cells(before: BTreeMap<String, f64>, now: BTreeMap<String, f64>) -> Vec<[f64; 2]> {
    let sums: [f64; 2] = [before.values().sum(), now.values().sum()];
    let mut cells: BTreeMap<String, [f64; 2]> = BTreeMap::new();
    for (side, counts) in [before, now].into_iter().enumerate() {
        for (name, count) in counts {
            cells.entry(name).or_default()[side] = if sums[side] > 0.0 {
                count / sums[side]
            } else {
                0.0
            };
        }
    }
    let nothing = |side: usize| if sums[side] > 0.0 { 0.0 } else { 1.0 };
    cells
        .into_values()
        .chain([[nothing(0), nothing(1)]])
        .collect()
}

/// Mean and variance of a normal distribution.
#[derive(Clone, Copy, PartialEq)]
struct Moments {
    mean: f64,
    var: f64,
}

/// The divergence of two normal distributions.
fn normal_divergence(a: Moments, b: Moments) -> f64 {
    if a == b {
        return 0.0;
    }
    // A single value shares nothing with another distribution.
    if [a, b]
        .iter()
        .any(|side| !(side.var > 0.0 && side.var.is_finite()))
    {
        return 1.0;
    }
    ((one_side(a, b) + one_side(b, a)) / 2.0).clamp(0.0, 1.0)
}

/// The mean over `p` of `log2(p / m)`, where `m` is the mean of `p` and `q`.
fn one_side(p: Moments, q: Moments) -> f64 {
    let (std_p, std_q) = (p.var.sqrt(), q.var.sqrt());
    let step = 2.0 * DEVIATIONS / STEPS as f64;
    let term = |at: usize| {
        let z = at as f64 * step - DEVIATIONS;
        let other = (p.mean + std_p * z - q.mean) / std_q;
        // The logarithm of q / p at this point.
        let ratio = (std_p / std_q).ln() + (z * z - other * other) / 2.0;
        let softplus = ratio.max(0.0) + (-ratio.abs()).exp().ln_1p();
        (-z * z / 2.0).exp() * (1.0 - softplus / std::f64::consts::LN_2)
    };
    (0..=STEPS).map(term).sum::<f64>() * step / (2.0 * std::f64::consts::PI).sqrt()
}

/// What a finding says of a key.
struct KeyMoments {
    count: f64,
    /// Where they are known.
    moments: Option<Moments>,
}

/// Moments by key.
fn grouped_divergence(held: &Finding, now: &Finding) -> Result<f64> {
    let moments = |finding: &Finding| -> Result<BTreeMap<String, KeyMoments>> {
        let schema = finding.table().schema();
        let keys = schema.index_of("count")?;
        let number = |name: &str| {
            Ok::<_, forebay_model::Fault>(finding.column(name)?.as_primitive::<Float64Type>())
        };
        let (means, vars) = (number("mean")?, number("var")?);
        let counts = finding.column("count")?.as_primitive::<UInt64Type>();
        let row = |at: usize| {
            let known = means.is_valid(at) && vars.is_valid(at);
            let moments = known.then(|| Moments {
                mean: means.value(at),
                var: vars.value(at),
            });
            KeyMoments {
                count: counts.value(at) as f64,
                moments,
            }
        };
        Ok(key_texts(finding, keys)?
            .into_iter()
            .enumerate()
            .map(|(at, key)| (key, row(at)))
            .collect())
    };
    let (before, now) = (moments(held)?, moments(now)?);
    let count = |side: &BTreeMap<String, KeyMoments>| {
        side.iter()
            .map(|(key, of)| (key.clone(), of.count))
            .collect()
    };
    let by_count = jensen_shannon(&cells(count(&before), count(&now)));
    let (mut sum, mut all) = (0.0, 0.0);
    for (key, KeyMoments { count, moments }) in &now {
        let held = before.get(key).and_then(|held| held.moments);
        if let Some((held, moments)) = held.zip(*moments) {
            sum += count * normal_divergence(held, moments);
            all += count;
        }
    }
    Ok(by_count.max(if all > 0.0 { sum / all } else { 0.0 }))
}

/// A distribution of which some quantiles are known.
struct KnownQuantiles {
    probabilities: Vec<f64>,
    values: Vec<f64>,
}

impl KnownQuantiles {
    /// `None` for fewer than two different values: they have no scale.
    fn of(finding: &Finding) -> Result<Option<KnownQuantiles>> {
        let doubles = |column: &ArrayRef| -> Result<Option<Vec<f64>>> {
            let column = cast(column, &DataType::Float64)?;
            let column = column.as_primitive::<Float64Type>();
            Ok((column.null_count() == 0).then(|| column.values().to_vec()))
        };
        let values =
            doubles(finding.table().column(finding.table().num_columns() - 1))?.unwrap_or_default();
        let probabilities = match finding.table().column_by_name("probability") {
            Some(column) => doubles(column)?.unwrap_or_default(),
            // Boundaries between buckets of equal counts.
            None => (1..=values.len())
                .map(|k| k as f64 / (values.len() + 1) as f64)
                .collect(),
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
        let (p, v) = (&self.probabilities, &self.values);
        let slope = (p[last] - p[0]) / (v[last] - v[0]);
        let place = v.partition_point(|value| *value <= x);
        let share = match place {
            0 => p[0] - slope * (v[0] - x),
            _ if place > last => p[last] + slope * (x - v[last]),
            _ => {
                p[place - 1]
                    + (p[place] - p[place - 1]) * (x - v[place - 1]) / (v[place] - v[place - 1])
            }
        };
        share.clamp(0.0, 1.0)
    }
}

fn quantile_divergence(held: &Finding, now: &Finding) -> Result<Option<f64>> {
    let (Some(before), Some(now)) = (KnownQuantiles::of(held)?, KnownQuantiles::of(now)?) else {
        return Ok(None);
    };
    let shares = |of: &KnownQuantiles| -> Vec<f64> {
        let inner = before.values.iter().map(|edge| of.share_up_to(*edge));
        let below: Vec<f64> = [0.0].into_iter().chain(inner).chain([1.0]).collect();
        below
            .windows(2)
            .map(|pair| (pair[1] - pair[0]).max(0.0))
            .collect()
    };
    let cells: Vec<[f64; 2]> = shares(&before)
        .into_iter()
        .zip(shares(&now))
        .map(|(p, q)| [p, q])
        .collect();
    Ok(Some(jensen_shannon(&cells)))
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
        let (a, b) = ((1e9, 1e-3), (1e9 + 1.0, 1e6));
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

    /// All of the second distribution lies in the last cell, which has a quarter of the first.
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
