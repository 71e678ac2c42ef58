//! Steps in which rows meet other rows: groups, duplicates, joins, unions.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value as Json;

use super::columns::{DAY, nanoseconds};
use super::config::StepConfigReader;
use super::interpreter::{InterpretedTables, SeriesDeclaration};
use super::numeric::{GroupMoments, at_rank};
use super::table::{CellKind, CellRow, CellTable, CellValue, INT64, TypedColumn, ValueExactness};
use super::windows::ticks;

type ChainResult<T> = std::result::Result<T, String>;

pub fn aggregate(config: StepConfigReader<'_>, table: &CellTable) -> ChainResult<CellTable> {
    let mut keys = config
        .texts("by")
        .into_iter()
        .map(|key| table.find(key))
        .collect::<ChainResult<Vec<_>>>()?;
    let bucket = match (config.text("time"), config.text("every")) {
        (Some(time), Some(every)) => {
            let at = table.find(time)?;
            let unit = match &table.columns[at].kind {
                CellKind::Date => DAY,
                CellKind::Time(unit) => nanoseconds(*unit),
                other => return Err(format!("{other:?} is no time")),
            };
            let length = ticks(every, &table.columns[at].kind)?;
            // Weeks begin on Mondays; the first one after 1970-01-01 is four days later.
            let origin = if every.ends_with('w') {
                4 * DAY / unit
            } else {
                0
            };
            keys.push(at);
            Some((at, length, origin))
        }
        (None, None) => None,
        _ => return Err("`every` and `time` go together".into()),
    };
    let key = |row: &CellRow| -> Vec<CellValue> {
        let each = keys.iter().map(|at| match (&row.cells[*at], &bucket) {
            (CellValue::Int(time), Some((bucketed, length, origin))) if bucketed == at => {
                CellValue::Int((time - origin).div_euclid(*length) * length + origin)
            }
            (value, _) => value.clone(),
        });
        each.collect()
    };
    let mut groups: BTreeMap<Vec<CellValue>, Vec<&CellRow>> = BTreeMap::new();
    table
        .rows
        .iter()
        .for_each(|row| groups.entry(key(row)).or_default().push(row));
    if keys.is_empty() {
        groups.entry(Vec::new()).or_default();
    }
    let mut out = CellTable {
        columns: keys.iter().map(|at| table.columns[*at].clone()).collect(),
        rows: Vec::new(),
    };
    out.rows = groups
        .keys()
        .map(|key| CellRow {
            cells: key.clone(),
            fitted: true,
        })
        .collect();
    for (name, compute) in config
        .get("compute")
        .and_then(Json::as_object)
        .ok_or("no compute")?
    {
        let (word, of) = compute
            .as_object()
            .and_then(|of| of.iter().next())
            .ok_or("no function")?;
        let of = of.as_str().ok_or("no column")?;
        if out.has(name) {
            return Err("two columns of one name".into());
        }
        let (column, values) = match of {
            "*" => {
                let counts = groups
                    .values()
                    .map(|rows| CellValue::Int(rows.len() as i128));
                (TypedColumn::new(name, INT64), counts.collect::<Vec<_>>())
            }
            of => {
                let at = table.find(of)?;
                let ddof = config.number("ddof").unwrap_or(1.0);
                let kind = &table.columns[at].kind;
                let each = groups.values().map(|rows| {
                    let values: Vec<&CellValue> = rows
                        .iter()
                        .map(|row| &row.cells[at])
                        .filter(|v| !v.is_missing())
                        .collect();
                    grouped(word, kind, &values, ddof)
                });
                let values = each.collect::<ChainResult<Vec<_>>>()?;
                (grouped_column(name, word, table, at), values)
            }
        };
        out.put(column, values);
    }
    Ok(out)
}

fn grouped_column(name: &str, word: &str, table: &CellTable, at: usize) -> TypedColumn {
    let column = &table.columns[at];
    let size = table
        .values(at)
        .filter_map(|value| value.double(&column.kind))
        .filter(|x| x.is_finite());
    let size = size.fold(1.0, |size: f64, x| size.max(x.abs()));
    let near = ValueExactness::Near(size * (1.0 + table.rows.len() as f64));
    let (kind, care) = match word {
        "count" | "n_unique" => (INT64, ValueExactness::Tame),
        "sum" if column.kind.is_int() => (INT64, column.care),
        "mean" | "sum" | "std" | "median" => (CellKind::F64, near),
        "var" => (
            CellKind::F64,
            ValueExactness::Near(size * size * (1.0 + table.rows.len() as f64)),
        ),
        _ => (column.kind.clone(), column.care),
    };
    TypedColumn {
        name: name.to_owned(),
        kind,
        care,
    }
}

/// A function of the values of a group that are there, in order.
fn grouped(
    word: &str,
    kind: &CellKind,
    values: &[&CellValue],
    ddof: f64,
) -> ChainResult<CellValue> {
    let doubles: Vec<f64> = values
        .iter()
        .filter_map(|value| value.double(kind))
        .collect();
    let moments = GroupMoments::of(&doubles);
    let of_numbers = ["sum", "mean", "std", "var", "median"].contains(&word);
    if kind.is_nested() || of_numbers && !kind.is_number() {
        return Err(format!("{word} of {kind:?}"));
    }
    Ok(match word {
        "count" => CellValue::Int(values.len() as i128),
        "n_unique" => CellValue::Int(values.iter().collect::<BTreeSet<_>>().len() as i128),
        _ if values.is_empty() => CellValue::Null,
        "sum" if kind.is_int() => {
            let sum: i128 = values.iter().filter_map(|value| value.int()).sum();
            CellValue::Int(
                i64::try_from(sum)
                    .map_err(|_| "the sum does not fit")?
                    .into(),
            )
        }
        "sum" => CellValue::Float(doubles.iter().sum()),
        "mean" => CellValue::Float(moments.mean),
        "median" => {
            let mut sorted = doubles.clone();
            sorted.sort_by(f64::total_cmp);
            CellValue::Float(at_rank(&sorted, (sorted.len() - 1) as f64 / 2.0))
        }
        "std" | "var" if moments.n <= ddof => CellValue::Null,
        "std" => CellValue::Float(moments.variance(ddof).sqrt()),
        "var" => CellValue::Float(moments.variance(ddof)),
        "min" => values.iter().min().map(|value| (*value).clone()).unwrap(),
        "max" => values.iter().max().map(|value| (*value).clone()).unwrap(),
        "first" => values[0].clone(),
        "last" => values[values.len() - 1].clone(),
        other => return Err(format!("no function {other}")),
    })
}

pub fn dedupe(config: StepConfigReader<'_>, table: &CellTable) -> ChainResult<CellTable> {
    let keys = match config.texts("keys") {
        keys if keys.is_empty() => (0..table.columns.len()).collect(),
        keys => keys
            .into_iter()
            .map(|key| table.find(key))
            .collect::<ChainResult<Vec<_>>>()?,
    };
    let key = |row: &CellRow| {
        keys.iter()
            .map(|at| row.cells[*at].clone())
            .collect::<Vec<_>>()
    };
    let mut chosen: BTreeMap<Vec<CellValue>, usize> = BTreeMap::new();
    for (place, row) in table.rows.iter().enumerate() {
        let known = chosen.entry(key(row)).or_insert(place);
        if config.text("keep") == Some("last") {
            *known = place;
        }
    }
    let chosen: BTreeSet<usize> = chosen.into_values().collect();
    Ok(CellTable {
        columns: table.columns.clone(),
        rows: chosen.iter().map(|at| table.rows[*at].clone()).collect(),
    })
}

/// The columns of the other table that come, with their new names.
fn joined_columns(
    config: StepConfigReader<'_>,
    other: &CellTable,
    passing: &[&str],
) -> ChainResult<Vec<(usize, String)>> {
    let names: Vec<&str> = match config.get("columns") {
        Some(_) => config.texts("columns"),
        None => other
            .columns
            .iter()
            .map(|c| c.name.as_str())
            .filter(|name| !passing.contains(name))
            .collect(),
    };
    let prefix = config.text("prefix").unwrap_or("");
    let suffix = config.text("suffix").unwrap_or("");
    names
        .into_iter()
        .map(|name| Ok((other.find(name)?, format!("{prefix}{name}{suffix}"))))
        .collect()
}

/// Puts columns of the other table behind: for each row that of `met`.
fn append_joined_columns(
    table: &CellTable,
    other: &CellTable,
    met: &[Option<usize>],
    brought: Vec<(usize, String)>,
) -> ChainResult<CellTable> {
    let mut out = table.clone();
    for (at, name) in brought {
        if out.has(&name) {
            return Err(format!("{name} exists"));
        }
        let values = met
            .iter()
            .map(|row| row.map_or(CellValue::Null, |row| other.rows[row].cells[at].clone()))
            .collect();
        out.put(
            TypedColumn {
                name,
                ..other.columns[at].clone()
            },
            values,
        );
    }
    Ok(out)
}

/// The places of key columns on both sides, whose types have to be equal.
fn key_column_pairs(
    table: &CellTable,
    other: &CellTable,
    here: &[&str],
    there: &[&str],
    ints: bool,
) -> ChainResult<Vec<(usize, usize)>> {
    let each = here.iter().zip(there).map(|(here, there)| {
        let here = table.find(here)?;
        let there = other.find(there)?;
        let a = &table.columns[here].kind;
        let b = &other.columns[there].kind;
        if a == b || ints && a.is_int() && b.is_int() {
            Ok((here, there))
        } else {
            Err("keys of two types".into())
        }
    });
    each.collect()
}

pub fn join(
    config: StepConfigReader<'_>,
    table: &CellTable,
    world: &InterpretedTables,
) -> ChainResult<CellTable> {
    let other = world
        .tables
        .get(config.text("with").ok_or("no with")?)
        .ok_or("no such step")?;
    let here = config.texts("on");
    let there = if config.get("right_on").is_some() {
        config.texts("right_on")
    } else {
        here.clone()
    };
    let pairs = key_column_pairs(table, other, &here, &there, true)?;
    let how = config.text("how").unwrap_or("left");
    let brings = how == "left" || how == "inner";
    let multiplies = config.text("cardinality") == Some("many_to_many");
    let mut index: BTreeMap<Vec<&CellValue>, Vec<usize>> = BTreeMap::new();
    for (place, row) in other.rows.iter().enumerate() {
        let key: Vec<&CellValue> = pairs.iter().map(|(_, at)| &row.cells[*at]).collect();
        if !key.iter().any(|value| value.is_null()) {
            let known = index.entry(key).or_default();
            known.push(place);
            if known.len() > 1 && brings && !multiplies {
                return Err("two rows of one key".into());
            }
        }
    }
    let mut rows = Vec::new();
    let mut met = Vec::new();
    for row in &table.rows {
        let key: Vec<&CellValue> = pairs.iter().map(|(at, _)| &row.cells[*at]).collect();
        let found = index.get(&key).map_or(&[][..], Vec::as_slice);
        let places: Vec<Option<usize>> = match (how, found.is_empty()) {
            ("inner" | "left", false) => found.iter().map(|place| Some(*place)).collect(),
            ("left" | "anti", true) | ("semi", false) => vec![None],
            _ => Vec::new(),
        };
        rows.extend(places.iter().map(|_| row.clone()));
        met.extend(places);
    }
    let brought = if brings {
        joined_columns(config, other, &there)?
    } else {
        Vec::new()
    };
    append_joined_columns(
        &CellTable {
            columns: table.columns.clone(),
            rows,
        },
        other,
        &met,
        brought,
    )
}

pub fn as_of_join(
    config: StepConfigReader<'_>,
    table: &CellTable,
    world: &InterpretedTables,
    series: &SeriesDeclaration,
) -> ChainResult<CellTable> {
    let other = world
        .tables
        .get(config.text("with").ok_or("no with")?)
        .ok_or("no such step")?;
    let declared: Vec<&str> = series.keys.iter().map(String::as_str).collect();
    let here = if config.get("on").is_some() {
        config.texts("on")
    } else {
        declared
    };
    if here.is_empty() && config.get("on").is_none() {
        return Err("no keys".into());
    }
    let there = if config.get("right_on").is_some() {
        config.texts("right_on")
    } else {
        here.clone()
    };
    let keys = key_column_pairs(table, other, &here, &there, false)?;
    let time = config
        .text("time")
        .or(series.time.as_deref())
        .ok_or("no time")?;
    let right_time = config.text("right_time").unwrap_or(time);
    let times = key_column_pairs(table, other, &[time], &[right_time], false)?[0];
    let kind = table.columns[times.0].kind.clone();
    if !kind.is_time() {
        return Err("no type of times".into());
    }
    let known = config
        .text("known_at")
        .map(|name| other.find(name))
        .transpose()?;
    let tolerance = config
        .text("tolerance")
        .map(|length| ticks(length, &kind))
        .transpose()?;
    let exact = config.get("exact") != Some(&Json::Bool(false));
    let direction = config.text("direction").unwrap_or("backward");
    let back = direction != "forward";
    let forward = direction != "backward";
    let meets = |row: &CellRow| -> Option<usize> {
        let now = row.cells[times.0].int()?;
        if keys.iter().any(|(at, _)| row.cells[*at].is_null()) {
            return None;
        }
        let mut best: Option<(i128, bool, usize)> = None;
        for (place, candidate) in other.rows.iter().enumerate() {
            let same = keys
                .iter()
                .all(|(here, there)| row.cells[*here] == candidate.cells[*there]);
            let Some(time) = candidate.cells[times.1].int().filter(|_| same) else {
                continue;
            };
            let distance = (now - time).abs();
            let is_later = time > now;
            let seen =
                known.is_none_or(|at| candidate.cells[at].int().is_some_and(|known| known <= now));
            let allowed = (exact || time != now) && tolerance.is_none_or(|most| distance <= most);
            let directed = time == now || if is_later { forward } else { back };
            // Of rows as near the earlier one, of those of one time the last.
            let better = best.is_none_or(|(least, was_later, _)| {
                distance < least || distance == least && (is_later == was_later || !is_later)
            });
            if seen && allowed && directed && better {
                best = Some((distance, is_later, place));
            }
        }
        best.map(|(_, _, place)| place)
    };
    let met: Vec<Option<usize>> = table.rows.iter().map(meets).collect();
    let mut passing = there.clone();
    passing.push(right_time);
    passing.extend(config.text("known_at"));
    append_joined_columns(table, other, &met, joined_columns(config, other, &passing)?)
}

/// The rows of several tables with equal columns, one after the other.
pub fn union(tables: &[&CellTable]) -> ChainResult<CellTable> {
    let mut out = tables[0].clone();
    for table in &tables[1..] {
        let same = |a: &TypedColumn, b: &TypedColumn| a.name == b.name && a.kind == b.kind;
        if table.columns.len() != out.columns.len()
            || !table
                .columns
                .iter()
                .zip(&out.columns)
                .all(|(a, b)| same(a, b))
        {
            return Err("other columns".into());
        }
        out.rows.extend(table.rows.iter().cloned());
        for (column, more) in out.columns.iter_mut().zip(&table.columns) {
            if column.care == ValueExactness::Tame {
                column.care = more.care;
            }
        }
    }
    Ok(out)
}
