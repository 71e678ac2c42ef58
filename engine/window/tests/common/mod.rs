//! Common parts of the window tests: tables, engines, and a naive oracle.

#![allow(clippy::unwrap_used, dead_code)] // Helpers of tests are tests; each test uses some.

pub mod oracle;
pub mod random;

use std::sync::Arc;

use arrow::array::*;
use arrow::compute::{cast, concat};
use arrow::datatypes::DataType;
use forebay_model::{Fault, Result};
use forebay_window::{
    DuplicateCheck, GapHandling, InputRows, WindowEngine, WindowFunction, WindowInput,
    WindowOutput, WindowPlan, WindowStat, WordEncoding,
};

/// One row of test data.
#[derive(Debug, Clone)]
pub struct SeriesTestRow {
    pub series: (Option<u8>, i64),
    pub time: i64,
    pub number: Option<f64>,
    pub small: Option<i32>,
    pub bits: Option<i64>,
    pub slot: Option<i64>,
}

/// Columns of test rows; on request the first key is a dictionary.
pub struct SeriesTestTable {
    pub keys: Vec<ArrayRef>,
    pub time: ArrayRef,
    pub inputs: Vec<ArrayRef>,
}

pub const NUMBER: usize = 0;
pub const SMALL: usize = 1;
pub const BITS: usize = 2;
pub const SLOT: usize = 3;
pub const PARENT: usize = 4;

pub fn inputs() -> Vec<WindowInput> {
    let input = |data_type, keep| WindowInput { data_type, keep };
    vec![
        input(DataType::Float64, WordEncoding::Number),
        input(DataType::Int32, WordEncoding::Number),
        input(DataType::Int64, WordEncoding::Bits),
        input(DataType::Int64, WordEncoding::Bits),
        input(DataType::Float64, WordEncoding::Number),
    ]
}

pub fn plan(functions: Vec<WindowOutput>, gaps: GapHandling) -> WindowPlan {
    WindowPlan {
        time: DataType::Int64,
        keys: vec![DataType::Utf8, DataType::Int64],
        inputs: inputs(),
        functions,
        gaps,
        duplicates: DuplicateCheck::default(),
    }
}

/// A function with a matching output type.
pub fn function(input: usize, compute: WindowFunction) -> WindowOutput {
    let copies = match &compute {
        WindowFunction::Lag { .. }
        | WindowFunction::Diff { .. }
        | WindowFunction::LastValid { .. } => true,
        WindowFunction::LastValidTime { .. } => {
            return WindowOutput {
                input,
                compute,
                data_type: DataType::Int64,
            };
        }
        WindowFunction::Window {
            stat: WindowStat::Count | WindowStat::Unique,
            ..
        } => {
            return WindowOutput {
                input,
                compute,
                data_type: DataType::Int64,
            };
        }
        WindowFunction::Window { stat, .. } => matches!(stat, WindowStat::First | WindowStat::Last),
        _ => false,
    };
    let data_type = if copies {
        inputs()[input].data_type.clone()
    } else {
        DataType::Float64
    };
    WindowOutput {
        input,
        compute,
        data_type,
    }
}

pub fn table(rows: &[SeriesTestRow], dictionary: bool) -> SeriesTestTable {
    let names: ArrayRef = Arc::new(StringArray::from_iter(
        rows.iter()
            .map(|row| row.series.0.map(|name| format!("name {name}"))),
    ));
    let coded = DataType::Dictionary(Box::new(DataType::Int32), Box::new(DataType::Utf8));
    let names = if dictionary {
        cast(&names, &coded).unwrap()
    } else {
        names
    };
    SeriesTestTable {
        keys: vec![
            names,
            Arc::new(Int64Array::from_iter_values(
                rows.iter().map(|row| row.series.1),
            )),
        ],
        time: Arc::new(Int64Array::from_iter_values(
            rows.iter().map(|row| row.time),
        )),
        inputs: vec![
            Arc::new(Float64Array::from_iter(rows.iter().map(|row| row.number))),
            Arc::new(Int32Array::from_iter(rows.iter().map(|row| row.small))),
            Arc::new(Int64Array::from_iter(rows.iter().map(|row| row.bits))),
            Arc::new(Int64Array::from_iter(rows.iter().map(|row| row.slot))),
            Arc::new(Float64Array::from_iter(
                rows.iter()
                    .map(|row| row.small.map(|value| f64::from(value) / 4.0)),
            )),
        ],
    }
}

impl SeriesTestTable {
    pub fn slice(&self, start: usize, length: usize) -> SeriesTestTable {
        let slices = |columns: &[ArrayRef]| {
            columns
                .iter()
                .map(|column| column.slice(start, length))
                .collect()
        };
        SeriesTestTable {
            keys: slices(&self.keys),
            time: self.time.slice(start, length),
            inputs: slices(&self.inputs),
        }
    }

    pub fn push(&self, engine: &mut WindowEngine, emit: &[bool]) -> Result<Vec<ArrayRef>> {
        let outputs =
            push_all(std::slice::from_ref(self), engine, emit).map_err(|(_, fault)| fault)?;
        Ok(outputs.into_iter().flatten().collect())
    }
}

/// Pushes several tables as consecutive batches.
pub fn push_all(
    tables: &[SeriesTestTable],
    engine: &mut WindowEngine,
    emit: &[bool],
) -> Result<Vec<Vec<ArrayRef>>, (usize, Fault)> {
    let rows = |table: &'_ SeriesTestTable| table.time.len();
    let batches: Vec<InputRows<'_>> = tables
        .iter()
        .map(|table| InputRows {
            keys: &table.keys,
            time: &table.time,
            inputs: &table.inputs,
            rows: rows(table),
        })
        .collect();
    let together = |pieces: usize, work: Arc<dyn Fn(usize) + Send + Sync>| {
        std::thread::scope(|scope| {
            for piece in 0..pieces {
                let work = work.clone();
                scope.spawn(move || work(piece));
            }
        });
    };
    engine.push_all(&batches, emit, &together)
}

pub fn encoded(engine: &WindowEngine) -> Vec<u8> {
    let mut bytes = Vec::new();
    engine.encode(&mut bytes).unwrap();
    bytes
}

/// All outputs of rows pushed at once.
pub fn outputs(plan: &WindowPlan, rows: &[SeriesTestRow]) -> Vec<ArrayRef> {
    let mut engine = WindowEngine::new(Arc::new(plan.clone()));
    table(rows, false)
        .push(&mut engine, &vec![true; plan.functions.len()])
        .unwrap()
}

pub fn joined(parts: &[Vec<ArrayRef>]) -> Vec<ArrayRef> {
    let columns = parts.first().map_or(0, Vec::len);
    (0..columns)
        .map(|at| concat(&parts.iter().map(|part| &*part[at]).collect::<Vec<_>>()).unwrap())
        .collect()
}

/// A column as doubles.
pub fn doubles(column: &ArrayRef) -> Vec<Option<f64>> {
    cast(column, &DataType::Float64)
        .unwrap()
        .as_primitive::<arrow::datatypes::Float64Type>()
        .iter()
        .collect()
}

/// One series of numbers with one entry per tick.
pub fn one_series(values: &[Option<f64>]) -> Vec<SeriesTestRow> {
    let row = |(time, &number): (usize, &Option<f64>)| SeriesTestRow {
        series: (Some(0), 0),
        time: time as i64,
        number,
        small: number.map(|value| value as i32),
        // The smallest number stands for a missing value in states.
        bits: number.map(|value| (value as i64).max(-i64::MAX)),
        slot: Some(time as i64 % 7),
    };
    values.iter().enumerate().map(row).collect()
}
