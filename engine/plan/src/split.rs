//! The split as hidden Boolean columns, one per part.

use std::sync::Arc;

use arrow::array::{ArrayRef, BooleanArray};
use arrow::datatypes::{DataType, Field, Schema};
use forebay_model::{
    CalendarUnit, DataSplit, ExactUnit, Fault, Result, StringColumn, TimeLength, civil_length_hint,
    codes,
};
use xxhash_rust::xxh3::{xxh3_64, xxh3_64_with_seed};

use crate::{MapOp, SqlCompiler, sql_name};

/// Prefix of the hidden columns that mark the rows of a part.
pub const PART_PREFIX: &str = "__part_";

/// Name of the hidden column of a part.
pub fn part_column(part: &str) -> String {
    format!("{PART_PREFIX}{part}")
}

/// Name of the part of a hidden column.
pub fn part_name(column: &str) -> &str {
    column.strip_prefix(PART_PREFIX).unwrap_or(column)
}

/// The operation that computes the hidden columns. Fails with `UNKNOWN_COLUMN` if a column that the split reads is
/// missing.
pub fn split_operation(split: &DataSplit, schema: &Schema, sql: &SqlCompiler) -> Result<MapOp> {
    if let DataSplit::Hash { keys, parts, seed } = split {
        return by_hash(keys, parts, *seed, schema);
    }
    if split.is_relative() {
        return unresolved(split, schema, sql);
    }
    let parts = split_conditions(split)?.unwrap_or_default();
    conditions(parts.into_iter(), schema, sql)
}

/// The operation of a split whose boundaries no run has resolved: its columns bind, and its rows cannot be computed.
fn unresolved(split: &DataSplit, schema: &Schema, sql: &SqlCompiler) -> Result<MapOp> {
    let DataSplit::Time { column, parts, .. } = split else {
        return Err(Fault::internal("a split without boundaries"));
    };
    // Any times bind as those of a run do.
    let any_time = parts.iter().skip(1).map(|_| "1970-01-01");
    let placeholder = DataSplit::by_time(column, parts, any_time);
    let conditions = split_operation(&placeholder, schema, sql)?;
    Ok(MapOp::new(
        conditions.reads.clone(),
        conditions.writes.clone(),
        |_, _| Err(Fault::internal("a split whose boundaries are not resolved")),
    ))
}

/// The parts of a split with their conditions as SQL; `None` where a hash divides the rows, or where the boundaries are
/// not resolved.
pub(crate) fn split_conditions(split: &DataSplit) -> Result<Option<Vec<(String, String)>>> {
    match split {
        DataSplit::Expressions(parts) => Ok(Some(parts.clone())),
        DataSplit::Time {
            column,
            parts,
            ends,
            embargo,
        } if !split.is_relative() => {
            time_conditions(column, parts, ends, embargo.as_deref()).map(Some)
        }
        DataSplit::Time { .. } | DataSplit::Hash { .. } => Ok(None),
    }
}

/// Conditions of half-open time ranges as SQL. The embargo shortens each part at its end.
fn time_conditions(
    column: &str,
    parts: &[String],
    ends: &[String],
    embargo: Option<&str>,
) -> Result<Vec<(String, String)>> {
    if ends.len() + 1 != parts.len() {
        return Err(Fault::new(
            codes::BAD_VALUE,
            "a split by time has one boundary fewer than it has parts",
        ));
    }
    let quoted = sql_name(column);
    let gap = match embargo {
        None => String::new(),
        Some(length) => format!(" - INTERVAL '{}'", interval(length)?),
    };
    let mut conditions = Vec::new();
    for (i, part) in parts.iter().enumerate() {
        let from = (i > 0).then(|| {
            format!(
                "{quoted} >= TIMESTAMP '{}'",
                ends[i - 1].replace('\'', "''")
            )
        });
        let to = ends
            .get(i)
            .map(|end| format!("{quoted} < TIMESTAMP '{}'{gap}", end.replace('\'', "''")));
        let condition = from.into_iter().chain(to).collect::<Vec<_>>().join(" AND ");
        conditions.push((
            part.clone(),
            if condition.is_empty() {
                "TRUE".to_owned()
            } else {
                condition
            },
        ));
    }
    Ok(conditions)
}

/// Converts `7d`, `12h`, `30m`, `2w` or `1mo` to the text of a SQL interval.
fn interval(text: &str) -> Result<String> {
    let length: TimeLength = text.parse().map_err(|wrong: String| {
        Fault::new(codes::BAD_VALUE, wrong).hint(civil_length_hint(text))
    })?;
    let count = length.count();
    Ok(match length {
        TimeLength::Calendar { unit, .. } => match unit {
            CalendarUnit::Year => format!("{count} years"),
            CalendarUnit::Quarter => format!("{} months", u64::from(count) * 3),
            CalendarUnit::Month => format!("{count} months"),
            CalendarUnit::Week => format!("{count} weeks"),
            CalendarUnit::Day => format!("{count} days"),
        },
        TimeLength::Exact { unit, .. } => match unit {
            ExactUnit::Hour => format!("{count} hours"),
            ExactUnit::Minute => format!("{count} minutes"),
            ExactUnit::Second => format!("{count} seconds"),
            ExactUnit::Millisecond => format!("{count} milliseconds"),
            ExactUnit::Microsecond => format!("{count} microseconds"),
            ExactUnit::Nanosecond => format!("{count} nanoseconds"),
        },
    })
}

fn conditions(
    parts: impl Iterator<Item = (String, String)>,
    schema: &Schema,
    sql: &SqlCompiler,
) -> Result<MapOp> {
    let mut reads: Vec<String> = Vec::new();
    let mut writes = Vec::new();
    let mut kernels = Vec::new();
    for (name, text) in parts {
        let expression = sql.condition(&text, schema)?;
        let inputs = expression.reads.iter().map(|read| {
            reads
                .iter()
                .position(|column| column == read)
                .unwrap_or_else(|| {
                    reads.push(read.clone());
                    reads.len() - 1
                })
        });
        kernels.push((inputs.collect::<Vec<usize>>(), expression.kernel));
        writes.push(Field::new(part_column(&name), DataType::Boolean, true));
    }
    Ok(MapOp::new(reads, writes, move |inputs, rows| {
        let mut outputs = Vec::with_capacity(kernels.len());
        for (indices, kernel) in &kernels {
            let columns: Vec<ArrayRef> =
                indices.iter().map(|index| inputs[*index].clone()).collect();
            outputs.extend(kernel(&columns, rows)?);
        }
        Ok(outputs)
    }))
}

/// Assigns rows by the hash of the keys' text to a million slots. A key never changes its slot.
fn by_hash(keys: &[String], parts: &[(String, u32)], seed: u64, schema: &Schema) -> Result<MapOp> {
    for key in keys {
        schema
            .field_with_name(key)
            .map_err(|_| crate::column_selector::unknown_column(key, schema))?;
    }
    let mut slot = 0;
    let ranges: Vec<(u64, u64)> = parts
        .iter()
        .map(|(_, share)| {
            let from = slot;
            slot += u64::from(*share);
            (from, slot)
        })
        .collect();
    let writes: Vec<Field> = parts
        .iter()
        .map(|(name, _)| Field::new(part_column(name), DataType::Boolean, false))
        .collect();
    Ok(MapOp::new(keys.to_vec(), writes, move |inputs, rows| {
        let mut hashes = vec![seed; rows];
        for column in inputs {
            let of_value = |text: Option<&str>| text.map_or(1, |text| xxh3_64(text.as_bytes()));
            for (hash, value) in hashes
                .iter_mut()
                .zip(StringColumn::of(column)?.map(of_value)?)
            {
                *hash = xxh3_64_with_seed(&value.to_le_bytes(), *hash);
            }
        }
        // Multiplication maps 64 bits to slots without the bias of a remainder.
        let slots: Vec<u64> = hashes
            .iter()
            .map(|hash| ((u128::from(*hash) * 1_000_000) >> 64) as u64)
            .collect();
        Ok(ranges
            .iter()
            .map(|(from, to)| {
                Arc::new(
                    slots
                        .iter()
                        .map(|slot| Some(from <= slot && slot < to))
                        .collect::<BooleanArray>(),
                ) as ArrayRef
            })
            .collect())
    }))
}
