//! Values of the future that a request gives, such as prices and events that are planned: they take the place of those
//! that joins find, and of the nulls of rows of the future.

use std::collections::hash_map::Entry;
use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use arrow::array::{Array, ArrayRef, RecordBatch, RecordBatchOptions, UInt32Array, new_null_array};
use arrow::compute::kernels::zip::zip;
use arrow::compute::{cast, is_not_null, take};
use arrow::datatypes::{Field, FieldRef, Schema};
use forebay_contract::HORIZON_STEP;
use forebay_model::{AnalyzerInput, Fault, IdBuilder, Result, TextRules, codes, ticks};
use forebay_plan::{
    BoundOp, BoundPipeline, FutureRowsOp, KNOWN_UNTIL, MapOp, OpId, OpList, OpStream, PlanOp,
    live_columns, request_column, source_column,
};

use super::fitted_column::fit_type;
use crate::leak_check::time_text;
use crate::predict::{last_written, missing_values};

/// Rows of the future of a step, and the columns that their forecasts are computed to.
pub(super) struct FutureScope<'a> {
    pub bound: &'a BoundPipeline,
    pub stream: &'a OpStream,
    /// Number of operations of the step: those behind them predict.
    pub step_ops: usize,
    pub outputs: &'a [String],
    pub future: &'a FutureRowsOp,
    /// Predicted columns.
    pub labels: &'a BTreeSet<String>,
    /// Columns that forecasts need in advance.
    pub known_columns: &'a BTreeSet<String>,
}

/// A column whose values a request may give.
#[derive(Debug, Clone)]
pub(super) struct RequestColumn {
    pub field: Field,
    /// Number of operations before the values of requests take the place of others.
    op_index: usize,
}

/// A column that forecasts need in advance.
#[derive(Debug, Clone)]
pub(super) struct NeededColumn {
    pub name: String,
    /// Number of operations before its values are judged.
    pub op_index: usize,
}

impl FutureScope<'_> {
    /// The columns that requests may give: those of the source, those of tables that are joined by time, and those that
    /// forecasts need in advance, as far as forecasts depend on them.
    pub fn request_columns(&self) -> Vec<RequestColumn> {
        let base = &self.bound.base_schemas[self.stream.base];
        let mut names: BTreeSet<&String> = self.known_columns.iter().collect();
        names.extend(base.fields().iter().map(|field| field.name()));
        for op in self.stream.ops.iter().take(self.step_ops) {
            if let PlanOp::Join(join) = &self.bound.ops[*op].op {
                names.extend(join.writes().map(Field::name));
            }
        }
        let mut columns = Vec::new();
        for name in names {
            if self.is_fixed(name) {
                continue;
            }
            let Some((op_index, field)) = self.first_written(name) else {
                continue;
            };
            if !field.data_type().is_nested() && self.is_live(op_index, name) {
                columns.push(RequestColumn { field, op_index });
            }
        }
        columns
    }

    /// The columns without whose values a forecast is refused. Those that are carried on are what the last row of a series
    /// has.
    pub fn needed_columns(&self) -> Vec<NeededColumn> {
        let time = source_column(&self.future.time);
        let mut columns = Vec::new();
        for name in self.known_columns {
            if self.future.latest.inputs.contains(name) {
                continue;
            }
            let Some(written) = last_written(self.bound, self.stream, name) else {
                continue;
            };
            let time_written = last_written(self.bound, self.stream, &time);
            let op_index = time_written.map_or(written, |time| written.max(time));
            if self.is_live(op_index, name) {
                let name = name.clone();
                columns.push(NeededColumn { name, op_index });
            }
        }
        columns
    }

    /// True for columns that say which row it is, or that are predicted.
    fn is_fixed(&self, name: &str) -> bool {
        self.future.keys.iter().any(|key| key == name)
            || self.future.time == name
            || self.labels.contains(name)
            || [KNOWN_UNTIL, HORIZON_STEP].contains(&name)
    }

    fn is_live(&self, op_index: usize, name: &str) -> bool {
        let outputs: Vec<&str> = self.outputs.iter().map(String::as_str).collect();
        live_columns(self.bound, self.stream, op_index, &outputs).contains(name)
    }

    /// The number of operations after which a column has its first values, and the column there. Later operations may
    /// scale it.
    fn first_written(&self, name: &str) -> Option<(usize, Field)> {
        let base = &self.bound.base_schemas[self.stream.base];
        if let Ok(field) = base.field_with_name(name) {
            return Some((0, field.clone()));
        }
        for (position, op) in self.stream.ops.iter().enumerate().take(self.step_ops) {
            let field = match &self.bound.ops[*op].op {
                PlanOp::Map(map) => map.writes.iter().find(|field| field.name() == name),
                PlanOp::Join(join) => join.writes().find(|field| field.name() == name),
                _ => None,
            };
            if let Some(field) = field {
                return Some((position + 1, field.clone()));
            }
        }
        None
    }
}

impl RequestColumn {
    /// The operation that prefers values of a request.
    fn map(&self) -> MapOp {
        let name = self.field.name();
        let data_type = self.field.data_type().clone();
        let written = self.field.clone().with_nullable(true);
        let reads = [name.clone(), request_column(name)];
        MapOp::new(reads, [written], move |inputs, _| match inputs {
            [column, requested] => {
                let is_requested = is_not_null(requested)?;
                let column = cast(column, &data_type)?;
                let requested = cast(requested, &data_type)?;
                Ok(vec![zip(&is_requested, &requested, &column)?])
            }
            _ => Err(Fault::internal("a column without the values of a request")),
        })
    }

    /// The column of rows of the future with the values of a request.
    fn hidden_field(&self) -> Field {
        let name = request_column(self.field.name());
        Field::new(name, self.field.data_type().clone(), true)
    }
}

/// Adds the operations that prefer values of requests to streams over rows of the future, which begin alike.
pub(super) fn add_request_columns(
    bound: &mut BoundPipeline,
    streams: [&mut OpStream; 2],
    columns: &[RequestColumn],
    label: &str,
) {
    let base = streams[0].base;
    let mut fields: Vec<FieldRef> = bound.base_schemas[base].fields().to_vec();
    let mut by_position: Vec<&RequestColumn> = columns.iter().collect();
    by_position.sort_by_key(|column| column.op_index);
    let mut added = Vec::with_capacity(columns.len());
    // The last ones first: the places of the others stay.
    for column in by_position.iter().rev() {
        let mut identity = IdBuilder::new("values of a request");
        identity.text(column.field.name());
        added.push((column.op_index, bound.ops.len()));
        bound.ops.push(BoundOp {
            label: label.to_owned(),
            identity: identity.finish(),
            op: PlanOp::Map(column.map()),
            asks: Vec::new(),
            at: None,
        });
        fields.push(Arc::new(column.hidden_field()));
    }
    bound.base_schemas[base] = Arc::new(Schema::new(fields));
    for stream in streams {
        for (op_index, op) in &added {
            stream.ops = with_op(&stream.ops, *op_index, *op);
        }
    }
}

/// A list with one more operation at a place.
fn with_op(ops: &OpList, position: usize, op: OpId) -> OpList {
    let mut extended = ops.first(position);
    extended.push(op);
    for following in ops.iter().skip(position) {
        extended.push(*following);
    }
    extended
}

/// True if the rows of a request give values of some columns. Those without a time are refused.
pub(super) fn gives_values(
    columns: &[RequestColumn],
    time: &Field,
    rows: &RecordBatch,
) -> Result<bool> {
    let mut columns = columns.iter();
    let Some(column) = columns.find(|column| has_values(rows, &column.field)) else {
        return Ok(false);
    };
    if rows.column_by_name(time.name()).is_some() {
        return Ok(true);
    }
    let message = format!(
        "the request gives `{}`, and has no column `{}` that says of which time the values are",
        column.field.name(),
        time.name()
    );
    Err(Fault::new(codes::UNKNOWN_COLUMN, message)
        .column(time.name())
        .hint("give a row for each time of the future: keys, time, and the values that are known"))
}

fn has_values(rows: &RecordBatch, field: &Field) -> bool {
    let values = rows.column_by_name(field.name());
    values.is_some_and(|values| values.logical_null_count() < values.len())
}

/// Values that a request gives for rows of the future.
pub(super) struct RequestValues<'a> {
    columns: &'a [RequestColumn],
    /// The values of the columns; null where the request has none.
    values: Vec<ArrayRef>,
    /// The row of each series and time.
    rows: HashMap<(u32, i64), u32>,
}

impl<'a> RequestValues<'a> {
    /// The values of rows of these series. Rows without a time only name their series.
    pub fn of(
        columns: &'a [RequestColumn],
        time: &Field,
        series: &[u32],
        request: &RecordBatch,
    ) -> Result<RequestValues<'a>> {
        let mut values = Vec::with_capacity(columns.len());
        for column in columns {
            let field = &column.field;
            values.push(match request.column_by_name(field.name()) {
                Some(values) => {
                    let values = fit_type(values, field, None, TextRules::inferred())?;
                    cast(&values, field.data_type())?
                }
                None => new_null_array(field.data_type(), request.num_rows()),
            });
        }
        let mut rows = HashMap::new();
        if let Some(times) = request.column_by_name(time.name()) {
            let times = fit_type(times, time, None, TextRules::inferred())?;
            let times = ticks(&cast(&times, time.data_type())?)?;
            for ((row, series), time_of_row) in (0u32..).zip(series).zip(times.iter()) {
                let Some(time_of_row) = time_of_row else {
                    continue;
                };
                match rows.entry((*series, time_of_row)) {
                    Entry::Vacant(entry) => {
                        entry.insert(row);
                    }
                    Entry::Occupied(_) => return repeated_time(time, time_of_row, row),
                }
            }
        }
        Ok(RequestValues {
            columns,
            values,
            rows,
        })
    }

    /// Rows of the future with the hidden columns of the values.
    pub fn add_to(
        &self,
        batch: &RecordBatch,
        series: &[Option<u32>],
        times: &ArrayRef,
    ) -> Result<RecordBatch> {
        let times = ticks(times)?;
        let mut picks: Vec<Option<u32>> = Vec::with_capacity(batch.num_rows());
        for (series, time) in series.iter().zip(times.iter()) {
            let row = series.zip(time).and_then(|key| self.rows.get(&key));
            picks.push(row.copied());
        }
        let picks = UInt32Array::from(picks);
        let mut fields: Vec<FieldRef> = batch.schema_ref().fields().to_vec();
        let mut columns = batch.columns().to_vec();
        for (column, values) in self.columns.iter().zip(&self.values) {
            fields.push(Arc::new(column.hidden_field()));
            columns.push(take(values, &picks, None)?);
        }
        let options = RecordBatchOptions::new().with_row_count(Some(batch.num_rows()));
        let schema = Arc::new(Schema::new(fields));
        Ok(RecordBatch::try_new_with_options(
            schema, columns, &options,
        )?)
    }
}

fn repeated_time<T>(time: &Field, tick: i64, row: u32) -> Result<T> {
    let message = format!(
        "the request has two rows of one series for {}",
        time_text(tick, time)?
    );
    Err(Fault::new(codes::DUPLICATE, message)
        .rows([u64::from(row)])
        .hint("give one row for each time of a series"))
}

/// Rows of the future that lack a needed column.
#[derive(Debug, Clone, Default)]
pub(super) struct MissingRows {
    rows: u64,
    missing: u64,
    /// The earliest time without a value.
    first: Option<i64>,
}

impl MissingRows {
    /// Counts rows, given the column and the times.
    pub fn add(&mut self, input: &AnalyzerInput<'_>) -> Result<()> {
        let [column, times] = input.columns else {
            return Err(Fault::internal("a known column without its time"));
        };
        self.rows += input.rows as u64;
        for (is_missing, time) in missing_values(column)?.iter().zip(ticks(times)?.iter()) {
            if is_missing != Some(true) {
                continue;
            }
            self.missing += 1;
            self.first = match (self.first, time) {
                (Some(first), Some(time)) => Some(first.min(time)),
                (first, time) => first.or(time),
            };
        }
        Ok(())
    }

    /// Refuses a forecast whose rows lack the column.
    pub fn check(&self, column: &NeededColumn, time: &Field) -> Result<()> {
        if self.missing == 0 {
            return Ok(());
        }
        let first = match self.first {
            Some(first) => format!("the first of them is of {}", time_text(first, time)?),
            None => "they have no time".to_owned(),
        };
        let name = &column.name;
        let message = format!(
            "`{name}` is known in advance, and has no value in {} of {} rows of the future: \
             {first}",
            self.missing, self.rows
        );
        let hint = format!(
            "give it with the request, in rows of keys, time and `{name}`; or run the pipeline \
             with a plan that reaches as far as `future_rows`"
        );
        Err(Fault::new(codes::BAD_ROW, message).column(name).hint(hint))
    }
}
