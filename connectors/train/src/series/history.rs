//! The values of each series, in steps of equal length.

use std::collections::HashMap;
use std::ops::ControlFlow;

use arrow::array::{Array, ArrayRef, AsArray, Float64Array, RecordBatch};
use arrow::compute::cast;
use arrow::datatypes::{DataType, Float64Type};
use forebay_contract::{FeedSource, TrainingContext};
use forebay_model::{Fault, Result, codes, ticks, type_words};

use super::config::SeriesModelConfig;
use super::grid::StepGrid;
use crate::group_names::{GroupName, group_columns, group_name, series_text};

/// Bytes of a row in memory, and of its step.
const ROW_BYTES: u64 = 64;

/// Bytes of a step: its value, and what fits of all kinds keep of each step of one series.
const STEP_BYTES: u64 = 48;

/// Steps of a series at most for each of its rows: more are a sign of a step that is too short.
const STEPS_PER_ROW_MAX: u64 = 100;

/// A row of a series.
struct SeriesPoint {
    time: i64,
    value: f64,
    /// True of a row to validate on.
    validates: bool,
}

/// All rows of a training, by series.
struct HistoryReader<'a> {
    context: &'a TrainingContext<'a>,
    numbers: HashMap<GroupName, usize>,
    series: Vec<(GroupName, Vec<SeriesPoint>)>,
    time_type: Option<DataType>,
}

/// The values of one series, one for each step.
#[derive(Debug)]
pub struct SeriesValues {
    /// The values that name it.
    pub name: GroupName,
    /// Number of its rows.
    pub rows: u64,
    /// One value for each step from the first row to the last one.
    pub values: Vec<f64>,
    /// Number of the steps to learn from, which come first. A series that has none of these is learned as a whole.
    pub learned: usize,
    /// Positions of rows to validate on.
    pub validated: Vec<usize>,
    /// The time of the last row, in ticks of its column.
    pub last: i64,
    /// Number of steps without a row.
    pub filled: u64,
}

/// All series, ordered by name, and the type of their times.
pub struct SeriesHistories {
    /// The values of each series.
    pub series: Vec<SeriesValues>,
    /// Type of the column of times.
    pub time_type: DataType,
    /// Number of rows to learn from, as they were read.
    pub rows_learned: u64,
    /// Number of rows to validate on, as they were read.
    pub rows_validated: u64,
}

impl SeriesHistories {
    /// Reads all rows once.
    pub fn read(
        config: &SeriesModelConfig,
        context: &TrainingContext<'_>,
    ) -> Result<SeriesHistories> {
        let rows = context.rows.rows() + context.validation.map_or(0, |fed| fed.rows());
        check_memory(context, rows * ROW_BYTES)?;
        let mut reader = HistoryReader {
            context,
            numbers: HashMap::new(),
            series: Vec::new(),
            time_type: None,
        };
        let rows_learned = reader.read_feed(context.rows, false)?;
        let mut rows_validated = 0;
        if let Some(validation) = context.validation {
            rows_validated = reader.read_feed(validation, true)?;
        }
        let time_type = reader.time_type.ok_or_else(too_few)?;
        let length = config
            .step_length()
            .map_err(|error| error.into_fault("train"))?;
        let grid = StepGrid::new(length, &config.time, &time_type)?;
        let mut series = Vec::with_capacity(reader.series.len());
        let mut steps = 0;
        for (name, mut points) in reader.series {
            points.sort_by_key(|point| point.time);
            let values = in_steps(config, &grid, name, &points)?;
            // Steps without a row take memory, too.
            steps += values.values.len() as u64;
            check_memory(context, steps * STEP_BYTES)?;
            series.push(values);
        }
        series.sort_by(|first, second| first.name.cmp(&second.name));
        Ok(SeriesHistories {
            series,
            time_type,
            rows_learned,
            rows_validated,
        })
    }
}

impl HistoryReader<'_> {
    /// Reads the rows of a part, and counts them.
    fn read_feed(&mut self, fed: &FeedSource, validates: bool) -> Result<u64> {
        let columns = fed.features.columns();
        let label = fed.features.label.as_ref();
        let label = label.map_or("", |label| label.column.as_str());
        let mut rows = 0;
        for blocks in &fed.blocks {
            for block in 0..blocks.dataset().blocks() {
                self.context.check()?;
                let block = block as u32;
                let mut failed = None;
                blocks.read(block, &columns, &mut |batch| {
                    rows += batch.num_rows() as u64;
                    match self.add_batch(&batch, label, validates) {
                        Ok(()) => ControlFlow::Continue(()),
                        Err(fault) => {
                            failed = Some(blocks.locate_fault(block, fault));
                            ControlFlow::Break(())
                        }
                    }
                })?;
                failed.map_or(Ok(()), Err)?;
            }
        }
        Ok(rows)
    }

    /// Adds rows, whose columns are the label, the keys and the time.
    fn add_batch(&mut self, batch: &RecordBatch, label: &str, validates: bool) -> Result<()> {
        let (label_column, others) = batch.columns().split_first().ok_or_else(too_few)?;
        let (time, keys) = others.split_last().ok_or_else(too_few)?;
        let values = label_values(label, label_column)?;
        let names = group_columns(keys)?;
        self.time_type
            .get_or_insert_with(|| time.data_type().clone());
        let times = ticks(time)?;
        if let Some(row) = (0..times.len()).find(|row| times.is_null(*row)) {
            return Err(Fault::new(codes::BAD_ROW, "a row of a series has no time")
                .rows([row as u64])
                .hint("take such rows out with a `filter`"));
        }
        for row in 0..times.len() {
            let name = group_name(&names, row);
            let point = SeriesPoint {
                time: times.value(row),
                value: values.value(row),
                validates,
            };
            if let Some(number) = self.numbers.get(&name) {
                self.series[*number].1.push(point);
            } else {
                self.numbers.insert(name.clone(), self.series.len());
                self.series.push((name, vec![point]));
            }
        }
        Ok(())
    }
}

/// Fails where series of this many bytes would take more than half of the memory.
pub fn check_memory(context: &TrainingContext<'_>, bytes: u64) -> Result<()> {
    let limit = context.memory_bytes / 2;
    if bytes <= limit {
        return Ok(());
    }
    let message = format!(
        "the series would hold {} MiB, and may hold {}",
        bytes.div_ceil(1 << 20),
        limit >> 20
    );
    Err(Fault::new(codes::MEMORY, message)
        .hint("let the models see a shorter history, or raise --memory"))
}

/// The values of a label, which must all be finite.
fn label_values(name: &str, label: &ArrayRef) -> Result<Float64Array> {
    let data_type = label.data_type();
    if !data_type.is_numeric() && *data_type != DataType::Boolean {
        let message = format!("`{name}` is {}, which is no number", type_words(data_type));
        return Err(Fault::new(codes::COLUMN_TYPE, message).column(name));
    }
    let values = cast(label, &DataType::Float64)?
        .as_primitive::<Float64Type>()
        .clone();
    let mut bad_rows = Vec::new();
    for row in 0..values.len() {
        if values.is_null(row) || !values.value(row).is_finite() {
            bad_rows.push(row as u64);
        }
    }
    if bad_rows.is_empty() {
        return Ok(values);
    }
    let message = format!(
        "`{name}` has {} values that are null or not finite",
        bad_rows.len()
    );
    let hint = format!(
        "take such rows out, as by `filter: {{ sql: \"{name} IS NOT NULL\", when: learning }}`: \
         their steps then get a value between their neighbours"
    );
    Err(Fault::new(codes::NOT_FINITE, message)
        .column(name)
        .rows(bad_rows)
        .hint(hint))
}

/// The values of a series with one for each step. `points` are in the order of their times.
fn in_steps(
    config: &SeriesModelConfig,
    grid: &StepGrid,
    name: GroupName,
    points: &[SeriesPoint],
) -> Result<SeriesValues> {
    let first = points.first().ok_or_else(too_few)?;
    let last = points.last().ok_or_else(too_few)?;
    let mut series = SeriesValues {
        name,
        rows: points.len() as u64,
        values: Vec::with_capacity(points.len()),
        learned: 0,
        validated: Vec::new(),
        last: last.time,
        filled: 0,
    };
    let steps_max = STEPS_PER_ROW_MAX * points.len() as u64;
    for point in points {
        let Some(position) = grid.steps(first.time, point.time) else {
            return Err(off_grid_fault(config, &series.name));
        };
        if position >= steps_max {
            return Err(sparse_fault(config, &series.name));
        }
        let position = position as usize;
        if position < series.values.len() {
            return Err(duplicate_fault(config, &series.name));
        }
        fill_up_to(&mut series, position, point.value);
        series.values.push(point.value);
        if point.validates {
            series.validated.push(position);
        } else if series.validated.is_empty() {
            series.learned = position + 1;
        } else {
            return Err(validation_order_fault(&series.name));
        }
    }
    if series.learned == 0 {
        series.learned = series.values.len();
        series.validated.clear();
    }
    Ok(series)
}

/// Adds values on the line from the last one to the next, which has this position.
fn fill_up_to(series: &mut SeriesValues, position: usize, next: f64) {
    let Some(last) = series.values.last().copied() else {
        return;
    };
    let first_missing = series.values.len();
    let steps = (position + 1 - first_missing) as f64;
    for missing in first_missing..position {
        let share = (missing + 1 - first_missing) as f64 / steps;
        series.values.push(last + (next - last) * share);
        series.filled += 1;
    }
}

fn off_grid_fault(config: &SeriesModelConfig, name: &GroupName) -> Fault {
    let message = format!(
        "a row of {} is no whole number of steps of `every: {}` after its first one",
        series_text(name),
        config.every
    );
    Fault::new(codes::BAD_ROW, message)
        .column(&config.time)
        .hint("give the distance between rows as `every`, or `aggregate` to one row of each step")
}

fn duplicate_fault(config: &SeriesModelConfig, name: &GroupName) -> Fault {
    let message = format!("{} has two rows of the same time", series_text(name));
    Fault::new(codes::DUPLICATE, message)
        .column(&config.time)
        .hint("name all columns that tell series apart under `by`, or `dedupe` the rows")
}

fn sparse_fault(config: &SeriesModelConfig, name: &GroupName) -> Fault {
    let message = format!(
        "{} has a row in fewer than 1 of {STEPS_PER_ROW_MAX} steps of `every: {}`",
        series_text(name),
        config.every
    );
    Fault::new(codes::BAD_VALUE, message)
        .field("every")
        .hint("give the distance between rows as `every`")
}

fn validation_order_fault(name: &GroupName) -> Fault {
    let message = format!(
        "{} has rows to learn from after rows to validate on",
        series_text(name)
    );
    Fault::new(codes::BAD_ROW, message)
        .hint("split by time: `split: { train: \"date < ...\", validation: \"date >= ...\" }`")
}

fn too_few() -> Fault {
    Fault::internal("the source gave fewer columns than it was asked for")
}
