//! Steps over columns of numbers, some of which learn from all rows that they are fitted on.

use std::collections::BTreeMap;

use serde_json::Value as Json;

use super::columns::{cast_value, text_of};
use super::config::StepConfigReader;
use super::table::{CellKind, CellRow, CellTable, CellValue, INT32, TypedColumn, ValueExactness};

type ChainResult<T> = std::result::Result<T, String>;

/// The type of a column that has been scaled.
fn scaled(kind: &CellKind) -> CellKind {
    if matches!(kind, CellKind::F64 | CellKind::Decimal) {
        CellKind::F64
    } else {
        CellKind::F32
    }
}

/// Computes columns of numbers one after the other: `of` gets the doubles that were learned from, and gives
/// what becomes of one.
fn each_column(
    config: StepConfigReader<'_>,
    table: &CellTable,
    kind: impl Fn(&CellKind) -> CellKind,
    care: impl Fn(&[f64]) -> ValueExactness,
    of: impl Fn(Vec<f64>) -> ChainResult<Box<dyn Fn(f64) -> CellValue>>,
) -> ChainResult<CellTable> {
    let mut out = table.clone();
    for name in config.texts("columns") {
        let at = out.find(name)?;
        let from = out.columns[at].kind.clone();
        if !from.is_number() {
            return Err(format!("{name} is no number"));
        }
        let doubles = |row: &CellRow| row.cells[at].double(&from);
        let seen: Vec<f64> = out
            .rows
            .iter()
            .filter(|row| row.fitted)
            .filter_map(doubles)
            .collect();
        let all: Vec<f64> = out.rows.iter().filter_map(doubles).collect();
        let become_ = of(seen.into_iter().filter(|x| !x.is_nan()).collect())?;
        let to = kind(&from);
        let values: Vec<CellValue> = out
            .rows
            .iter()
            .map(|row| match doubles(row).map(&become_) {
                None => CellValue::Null,
                Some(CellValue::Float(x)) => CellValue::float(x, &to),
                Some(other) => other,
            })
            .collect();
        out.put(
            TypedColumn {
                name: config.output(name),
                kind: to,
                care: care(&all),
            },
            values,
        );
    }
    Ok(out)
}

fn near_largest(values: &[f64]) -> ValueExactness {
    ValueExactness::Near(
        values
            .iter()
            .filter(|x| x.is_finite())
            .fold(1.0, |size: f64, x| size.max(x.abs())),
    )
}

pub fn log1p(config: StepConfigReader<'_>, table: &CellTable) -> ChainResult<CellTable> {
    each_column(
        config,
        table,
        scaled,
        |_| ValueExactness::Near(1.0),
        |_| Ok(Box::new(|x| CellValue::Float(x.ln_1p()))),
    )
}

pub fn clip(config: StepConfigReader<'_>, table: &CellTable) -> ChainResult<CellTable> {
    let min = config.number("min");
    let max = config.number("max");
    if min
        .zip(max)
        .is_some_and(|(min, max)| min.ceil() > max.floor())
    {
        return Err("no whole number is inside the bounds".into());
    }
    let mut out = table.clone();
    for name in config.texts("columns") {
        let at = out.find(name)?;
        let column = out.columns[at].clone();
        let (least, greatest) = column.kind.range();
        let kind = if column.kind == CellKind::Decimal {
            CellKind::F64
        } else {
            column.kind.clone()
        };
        let clipped = |value: &CellValue| match value {
            CellValue::Int(x) if column.kind.is_int() => {
                let low = min.map_or(least, |min| min.ceil() as i128);
                let high = max.map_or(greatest, |max| max.floor() as i128);
                CellValue::Int((*x).max(low).min(high).clamp(least, greatest))
            }
            other => match other.double(&column.kind) {
                Some(x) if x.is_nan() => CellValue::Float(x),
                Some(x) => {
                    let x = max.map_or(x, |max| if x > max { max } else { x });
                    CellValue::float(min.map_or(x, |min| if x < min { min } else { x }), &kind)
                }
                None => CellValue::Null,
            },
        };
        let values = out.values(at).map(clipped).collect();
        out.put(
            TypedColumn {
                name: config.output(name),
                kind: kind.clone(),
                care: column.care,
            },
            values,
        );
    }
    Ok(out)
}

/// What a group of values comes to.
#[derive(Debug, Clone, Copy)]
pub struct GroupMoments {
    pub n: f64,
    pub mean: f64,
    pub min: f64,
    pub max: f64,
    /// The sum of squared distances from the mean.
    pub squares: f64,
}

impl GroupMoments {
    pub fn of(values: &[f64]) -> GroupMoments {
        let n = values.len() as f64;
        let mean = if values.is_empty() {
            0.0
        } else {
            values.iter().sum::<f64>() / n
        };
        let squares = values.iter().map(|x| (x - mean) * (x - mean)).sum();
        let min = values.iter().copied().fold(f64::INFINITY, f64::min);
        let max = values.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        GroupMoments {
            n,
            mean,
            min,
            max,
            squares,
        }
    }

    /// The variance; 0 where there are too few values, and no number beside infinities.
    pub fn variance(&self, ddof: f64) -> f64 {
        if self.squares.is_nan() {
            f64::NAN
        } else if self.n > ddof {
            self.squares / (self.n - ddof)
        } else {
            0.0
        }
    }
}

/// Scales columns by the moments of all values, or of those with the row's key.
fn scale_columns_by_moments(
    config: StepConfigReader<'_>,
    table: &CellTable,
    scale: impl Fn(Option<&GroupMoments>, f64) -> f64,
) -> ChainResult<CellTable> {
    let keys = config
        .texts("by")
        .into_iter()
        .map(|key| table.find(key))
        .collect::<ChainResult<Vec<_>>>()?;
    let key = |row: &CellRow| {
        keys.iter()
            .map(|at| row.cells[*at].clone())
            .collect::<Vec<_>>()
    };
    let mut out = table.clone();
    for name in config.texts("columns") {
        let at = table.find(name)?;
        let column = &table.columns[at];
        if !column.kind.is_number() || keys.contains(&at) {
            return Err(format!("{name} is no number"));
        }
        let mut groups: BTreeMap<Vec<CellValue>, Vec<f64>> = BTreeMap::new();
        if keys.is_empty() {
            groups.entry(Vec::new()).or_default();
        }
        for row in table.rows.iter().filter(|row| row.fitted) {
            // A key that occurs was seen, whether it has values or not.
            let group = groups.entry(key(row)).or_default();
            group.extend(row.cells[at].double(&column.kind).filter(|x| !x.is_nan()));
        }
        let groups: BTreeMap<_, _> = groups
            .into_iter()
            .map(|(key, values)| (key, GroupMoments::of(&values)))
            .collect();
        let kind = scaled(&column.kind);
        let each = table.rows.iter().map(|row| {
            let x = row.cells[at].double(&column.kind);
            x.map_or(CellValue::Null, |x| {
                CellValue::float(scale(groups.get(&key(row)), x), &kind)
            })
        });
        let values: Vec<CellValue> = each.collect();
        let doubles: Vec<f64> = values
            .iter()
            .filter_map(|value| value.double(&kind))
            .collect();
        out.put(
            TypedColumn {
                name: config.output(name),
                kind,
                care: near_largest(&doubles),
            },
            values,
        );
    }
    Ok(out)
}

pub fn standardize(config: StepConfigReader<'_>, table: &CellTable) -> ChainResult<CellTable> {
    let ddof = config.number("ddof").unwrap_or(0.0);
    let zero = config.text("zero_variance") == Some("zero");
    scale_columns_by_moments(config, table, |moments, x| {
        let Some(moments) = moments.filter(|moments| moments.n > 0.0) else {
            // Nothing seen: mean 0, variance 0.
            return if zero && moments.is_some() && !x.is_nan() {
                0.0
            } else {
                x
            };
        };
        match moments.variance(ddof) {
            0.0 if zero && !x.is_nan() => 0.0,
            0.0 => x - moments.mean,
            variance => (x - moments.mean) / variance.sqrt(),
        }
    })
}

pub fn min_max(config: StepConfigReader<'_>, table: &CellTable) -> ChainResult<CellTable> {
    let lo = config.number("lo").unwrap_or(0.0);
    let hi = config.number("hi").unwrap_or(1.0);
    scale_columns_by_moments(config, table, |moments, x| {
        let known = moments.filter(|moments| moments.n > 0.0);
        match known {
            Some(m) if m.min != m.max => (x - m.min) / (m.max - m.min) * (hi - lo) + lo,
            _ if x.is_nan() => x,
            _ => match config.text("zero_range") {
                Some("lower") => (x - known.map_or(0.0, |moments| moments.min)) * (hi - lo) + lo,
                Some("middle") => (lo + hi) / 2.0,
                _ => (hi - lo) / (1.0 + (-x).exp()) + lo,
            },
        }
    })
}

/// The value at a rank between 0 and n - 1, on the line between its neighbours.
pub fn at_rank(sorted: &[f64], rank: f64) -> f64 {
    let low = sorted[rank.floor() as usize];
    let high = sorted[rank.ceil() as usize];
    match low == high {
        true => low,
        // Between a number and an infinity lies that infinity.
        false if low.is_infinite() || high.is_infinite() => low + high,
        false => low + (high - low) * (rank - rank.floor()),
    }
}

fn sorted(mut values: Vec<f64>) -> Vec<f64> {
    values.sort_by(f64::total_cmp);
    values
}

pub fn robust_scale(config: StepConfigReader<'_>, table: &CellTable) -> ChainResult<CellTable> {
    let lower = config.number("lower").unwrap_or(0.25);
    let upper = config.number("upper").unwrap_or(0.75);
    each_column(config, table, scaled, near_largest, |seen| {
        let seen = sorted(seen);
        if seen.is_empty() {
            return Ok(Box::new(CellValue::Float));
        }
        let quantile = |q: f64| at_rank(&seen, q * (seen.len() - 1) as f64);
        let low = quantile(lower);
        let median = quantile(0.5);
        let high = quantile(upper);
        let range = if low == high { 1.0 } else { high - low };
        Ok(Box::new(move |x| CellValue::Float((x - median) / range)))
    })
}

/// The boundaries of `q` buckets of about equal size.
fn boundaries(seen: Vec<f64>, q: usize) -> Vec<f64> {
    let seen = sorted(seen);
    if seen.is_empty() {
        Vec::new()
    } else {
        (1..q).map(|k| seen[seen.len() * k / q]).collect()
    }
}

/// The number of boundaries that are not above x; all for NaN.
fn bucket(boundaries: &[f64], x: f64) -> CellValue {
    let below = boundaries
        .iter()
        .filter(|boundary| x.is_nan() || **boundary <= x)
        .count();
    CellValue::Int(below as i128)
}

pub fn bucketize(config: StepConfigReader<'_>, table: &CellTable) -> ChainResult<CellTable> {
    let q = config.whole("q").ok_or("no q")? as usize;
    each_column(
        config,
        table,
        |_| INT32,
        |_| ValueExactness::Tame,
        |seen| {
            let boundaries = boundaries(seen, q);
            Ok(Box::new(move |x| bucket(&boundaries, x)))
        },
    )
}

pub fn apply_buckets(config: StepConfigReader<'_>, table: &CellTable) -> ChainResult<CellTable> {
    each_column(
        config,
        table,
        |_| INT32,
        |_| ValueExactness::Tame,
        |_| {
            let boundaries: Vec<f64> = config
                .list("boundaries")
                .into_iter()
                .filter_map(Json::as_f64)
                .collect();
            Ok(Box::new(move |x| bucket(&boundaries, x)))
        },
    )
}

pub fn quantiles(config: StepConfigReader<'_>, table: &CellTable) -> ChainResult<CellTable> {
    let q = config.whole("q").unwrap_or(100) as usize;
    each_column(
        config,
        table,
        scaled,
        |_| ValueExactness::Near(1.0),
        |seen| {
            let bounds = boundaries(seen, q);
            Ok(Box::new(move |x| {
                let (Some(first), Some(last)) = (bounds.first(), bounds.last()) else {
                    return CellValue::Float(0.5);
                };
                CellValue::Float(if x.is_nan() {
                    0.5
                } else if x < *first {
                    0.0
                } else if x >= *last {
                    1.0
                } else {
                    let at = bounds.iter().filter(|boundary| **boundary <= x).count() - 1;
                    let low = bounds[at];
                    let high = bounds[at + 1];
                    // Beside an infinite boundary there is no line.
                    let line = low.is_finite() && high.is_finite();
                    let share = if line { (x - low) / (high - low) } else { 0.0 };
                    (at as f64 + share) / (bounds.len() - 1) as f64
                })
            }))
        },
    )
}

pub fn k_bins(config: StepConfigReader<'_>, table: &CellTable) -> ChainResult<CellTable> {
    let bins = config.whole("bins").ok_or("no bins")? as usize;
    let by_size = config.text("strategy") == Some("quantile");
    each_column(
        config,
        table,
        |_| INT32,
        |_| ValueExactness::Tame,
        |seen| {
            let seen = sorted(seen);
            let (Some(min), Some(max)) = (seen.first().copied(), seen.last().copied()) else {
                return Ok(Box::new(|_| CellValue::Int(0)));
            };
            if !by_size && (min.is_infinite() || max.is_infinite()) {
                return Err("bins of an infinite width".into());
            }
            let mut edges: Vec<f64> = (0..=bins)
                .map(|k| {
                    if by_size {
                        at_rank(&seen, k as f64 / bins as f64 * (seen.len() - 1) as f64)
                    } else {
                        min + k as f64 * ((max - min) / bins as f64)
                    }
                })
                .collect();
            edges.dedup();
            let inner = if edges.len() < 3 {
                Vec::new()
            } else {
                edges[1..edges.len() - 1].to_vec()
            };
            Ok(Box::new(move |x| bucket(&inner, x)))
        },
    )
}

pub fn impute(config: StepConfigReader<'_>, table: &CellTable) -> ChainResult<CellTable> {
    let mut out = table.clone();
    let with = config.get("with").ok_or("no with")?;
    for name in config.texts("columns") {
        let at = out.find(name)?;
        let column = out.columns[at].clone();
        if config.flag("indicator") {
            if out.find(&format!("{name}_missing")).is_ok() {
                return Err(format!("{name} has an indicator already"));
            }
            let missing = out
                .values(at)
                .map(|value| CellValue::Bool(value.is_missing()))
                .collect();
            out.put(
                TypedColumn::new(format!("{name}_missing"), CellKind::Bool),
                missing,
            );
        }
        let learned = || {
            out.rows
                .iter()
                .filter(|row| row.fitted)
                .map(|row| &row.cells[at])
        };
        let seen: Vec<&CellValue> = learned().filter(|value| !value.is_missing()).collect();
        let doubles: Vec<f64> = seen
            .iter()
            .filter_map(|value| value.double(&column.kind))
            .collect();
        let (kind, filling) = match with.as_str() {
            Some("mean" | "median") if !column.kind.is_number() => {
                return Err(format!("{name} is no number"));
            }
            Some(word @ ("mean" | "median")) => {
                let kind = if column.kind.is_int() {
                    CellKind::F64
                } else {
                    column.kind.clone()
                };
                let doubles = sorted(doubles.clone());
                let rank = doubles.len().saturating_sub(1) as f64 / 2.0;
                let value = match (doubles.is_empty(), word) {
                    (true, _) => CellValue::Null,
                    (_, "mean") => CellValue::float(GroupMoments::of(&doubles).mean, &kind),
                    _ => CellValue::float(at_rank(&doubles, rank), &kind),
                };
                (kind, value)
            }
            Some(_) => {
                let mut counts: BTreeMap<String, (i64, CellValue)> = BTreeMap::new();
                for value in seen {
                    counts
                        .entry(text_of(value, &column.kind)?)
                        .or_insert((0, value.clone()))
                        .0 += 1;
                }
                let first = counts
                    .into_iter()
                    .min_by_key(|(text, (count, _))| (-count, text.clone()));
                (
                    column.kind.clone(),
                    first.map_or(CellValue::Null, |(_, (_, value))| value),
                )
            }
            None => (
                column.kind.clone(),
                constant(&with["constant"], &column.kind)?,
            ),
        };
        let filled = |value: &CellValue| match value.is_missing() {
            // NaN stays NaN where there is nothing to fill with.
            true if filling.is_null() => value.clone(),
            true => filling.clone(),
            false if kind != column.kind => CellValue::Float(value.double(&column.kind).unwrap()),
            false => value.clone(),
        };
        let values = out.values(at).map(filled).collect();
        let care = if with == "mean" || with == "median" {
            near_largest(&doubles)
        } else {
            column.care
        };
        out.put(
            TypedColumn {
                name: config.output(name),
                kind: kind.clone(),
                care,
            },
            values,
        );
    }
    Ok(out)
}

fn constant(value: &Json, kind: &CellKind) -> ChainResult<CellValue> {
    let wrong = || format!("{value} is no {kind:?}");
    match (value, kind) {
        (Json::Bool(x), CellKind::Bool) => Ok(CellValue::Bool(*x)),
        (Json::Number(x), CellKind::Int { .. }) => {
            let x = CellValue::Int(x.as_i64().ok_or_else(wrong)?.into());
            cast_value(&x, &super::table::INT64, kind)?.ok_or_else(wrong)
        }
        (Json::Number(x), CellKind::F32 | CellKind::F64) => {
            Ok(CellValue::float(x.as_f64().ok_or_else(wrong)?, kind))
        }
        (Json::String(x), CellKind::Text) => Ok(CellValue::Text(x.clone())),
        _ => Err(wrong()),
    }
}
