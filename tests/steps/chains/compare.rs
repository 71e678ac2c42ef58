//! Whether two tables hold the same.

use arrow::datatypes::TimeUnit;

use super::chain::ChainFailure;
use super::table::{CellKind, CellTable, CellValue, TypedColumn, ValueExactness};

/// What is off at most, as a share of the numbers that a value was made of.
const SHARE: f64 = 1e-9;

/// Half the distance between neighbours among `float32`, and a little.
const SINGLE: f64 = 1.3e-7;

/// What an execution gave against what the interpreter expects.
pub fn compare_tables(found: &CellTable, expected: &CellTable) -> Result<(), ChainFailure> {
    let expected = &as_stored(expected);
    shapes(found, expected)?;
    for (at, column) in expected.columns.iter().enumerate() {
        for (row, (found, wanted)) in found.values(at).zip(expected.values(at)).enumerate() {
            if !near(found, wanted, column) {
                let message = format!("row {row}, `{}`: {found:?}, not {wanted:?}", column.name);
                return Err(ChainFailure::new("value", message));
            }
        }
    }
    Ok(())
}

/// A table as Parquet holds it, which has no seconds.
fn as_stored(table: &CellTable) -> CellTable {
    let mut stored = table.clone();
    for (at, column) in stored.columns.iter_mut().enumerate() {
        let Some(kind) = stored_kind(&column.kind) else {
            continue;
        };
        column.kind = kind;
        for row in &mut stored.rows {
            to_milliseconds(&mut row.cells[at]);
        }
    }
    stored
}

/// The kind in which times of seconds are stored; `None` for all others.
fn stored_kind(kind: &CellKind) -> Option<CellKind> {
    match kind {
        CellKind::Time(TimeUnit::Second) => Some(CellKind::Time(TimeUnit::Millisecond)),
        CellKind::List(element) => {
            let element = stored_kind(element)?;
            Some(CellKind::List(Box::new(element)))
        }
        _ => None,
    }
}

fn to_milliseconds(value: &mut CellValue) {
    match value {
        CellValue::Int(seconds) => *seconds *= 1_000,
        CellValue::List(values) => values.iter_mut().for_each(to_milliseconds),
        _ => {}
    }
}

/// Two executions against each other: the same bits.
pub fn same_bits(found: &CellTable, expected: &CellTable) -> Result<(), ChainFailure> {
    shapes(found, expected)?;
    for (at, column) in expected.columns.iter().enumerate() {
        for (row, (found, wanted)) in found.values(at).zip(expected.values(at)).enumerate() {
            if !equal_bits(found, wanted) {
                let message = format!(
                    "row {row}, `{}`: {found:?} here and {wanted:?} there",
                    column.name
                );
                return Err(ChainFailure::new("bits", message));
            }
        }
    }
    Ok(())
}

fn shapes(found: &CellTable, expected: &CellTable) -> Result<(), ChainFailure> {
    let names = |table: &CellTable| {
        table
            .columns
            .iter()
            .map(|c| (c.name.clone(), c.kind.clone()))
            .collect::<Vec<_>>()
    };
    if names(found) != names(expected) {
        let message = format!("columns {:?}, not {:?}", names(found), names(expected));
        return Err(ChainFailure::new("columns", message));
    }
    if found.rows.len() != expected.rows.len() {
        let message = format!("{} rows, not {}", found.rows.len(), expected.rows.len());
        return Err(ChainFailure::new("rows", message));
    }
    Ok(())
}

fn near(found: &CellValue, expected: &CellValue, column: &TypedColumn) -> bool {
    match (found, expected, column.care) {
        (CellValue::Float(a), CellValue::Float(b), ValueExactness::Near(size))
            if a.is_finite() && b.is_finite() =>
        {
            let share = if column.kind == CellKind::F32 {
                SINGLE
            } else {
                SHARE
            };
            (a - b).abs() <= share * (a.abs() + b.abs()) + SHARE * size
        }
        _ => found == expected,
    }
}

fn equal_bits(a: &CellValue, b: &CellValue) -> bool {
    match (a, b) {
        (CellValue::Float(a), CellValue::Float(b)) => a.to_bits() == b.to_bits(),
        (CellValue::List(a), CellValue::List(b)) => {
            a.len() == b.len() && a.iter().zip(b).all(|(a, b)| equal_bits(a, b))
        }
        _ => a == b,
    }
}
