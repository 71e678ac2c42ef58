//! Rows that served rows are joined with by time: for each key the last row as of the state, and all later ones.

use std::collections::{HashMap, VecDeque};
use std::ops::Range;
use std::sync::{Arc, Mutex};

use arrow::array::{Array, ArrayRef, Int64Array, RecordBatch, UInt32Array};
use arrow::compute::{cast, concat_batches, take};
use arrow::datatypes::{DataType, Field, Schema};
use arrow::row::{RowConverter, SortField};
use forebay_commit::{PieceWriter, ServingReference, StoredTable, read_table, write_table};
use forebay_model::{Fault, Pipeline, Result, canonical_keys, codes, ticks};
use forebay_plan::{AsOf, BoundPipeline, JoinOp, OpId, PlanOp, PrecomputedOutputs, TakenOutputs};
use forebay_storage::{ScratchDir, StorageClient};
use forebay_threads::lock;

use crate::session::Session;
use crate::step_rows::RowsRequest;

/// The time from which a row of the other side is visible.
const VISIBLE: &str = "visible";

/// The other side's own time.
const TIME: &str = "time";

/// An as-of join, and the types in which both sides are compared.
struct ComparedJoin<'a> {
    join: &'a JoinOp,
    as_of: &'a AsOf,
    keys: Vec<DataType>,
    time: DataType,
}

/// The rows of the other side, ready to be looked up.
pub(crate) struct JoinedTable {
    label: String,
    converter: RowConverter,
    keys: Vec<DataType>,
    time: DataType,
    exact: bool,
    by_time: bool,
    tolerance: Option<i64>,
    /// Earliest time of rows that the table answers.
    first: Option<i64>,
    /// The rows of each key, in order of visibility.
    rows: HashMap<Box<[u8]>, Range<usize>>,
    visible: Int64Array,
    times: Int64Array,
    columns: Vec<ArrayRef>,
}

/// Outputs of a join for the rows that come to it next, chunk by chunk.
#[derive(Clone, Default)]
pub(crate) struct NextOutputs(Arc<Mutex<VecDeque<TakenOutputs>>>);

impl NextOutputs {
    /// Adds the outputs of the rows of a chunk.
    pub fn push(&self, outputs: TakenOutputs) -> Result<()> {
        lock(&self.0)?.push_back(outputs);
        Ok(())
    }
}

impl PrecomputedOutputs for NextOutputs {
    fn take(&mut self, rows: usize, emit: &[bool]) -> Result<TakenOutputs> {
        let outputs = lock(&self.0)?.pop_front();
        let outputs = outputs
            .filter(|outputs| outputs.columns.iter().all(|column| column.len() == rows))
            .ok_or_else(|| Fault::internal("a join was reached before its rows were looked up"))?;
        let emitted = outputs.columns.into_iter().zip(emit);
        Ok(TakenOutputs {
            columns: emitted
                .filter(|(_, emit)| **emit)
                .map(|(column, _)| column)
                .collect(),
            unmatched: outputs.unmatched,
        })
    }
}

impl<'a> ComparedJoin<'a> {
    fn of(bound: &'a BoundPipeline, op: OpId) -> Result<ComparedJoin<'a>> {
        let broken = || Fault::internal("a served join without its sides");
        let PlanOp::Join(join) = &bound.ops[op].op else {
            return Err(broken());
        };
        let as_of = join.as_of().ok_or_else(broken)?;
        let input = &bound.window_inputs.get(&op).ok_or_else(broken)?.schema;
        let other_side = &bound.join_inputs.get(&op).ok_or_else(broken)?.schema;
        let mut keys = Vec::new();
        for (column, other_column) in &join.keys {
            let data_type = input.field_with_name(column)?.data_type();
            let other_type = other_side.field_with_name(other_column)?.data_type();
            keys.push(JoinOp::key_type(data_type, other_type).ok_or_else(broken)?);
        }
        let mut time = input.field_with_name(&as_of.time)?.data_type().clone();
        for name in [&as_of.other_time].into_iter().chain(&as_of.known_at) {
            let other = other_side.field_with_name(name)?.data_type();
            time = AsOf::time_type(&time, other).ok_or_else(broken)?;
        }
        Ok(ComparedJoin {
            join,
            as_of,
            keys,
            time,
        })
    }

    fn converter(&self) -> Result<RowConverter> {
        let fields = self.keys.iter().map(|key| SortField::new(key.clone()));
        Ok(RowConverter::new(fields.collect())?)
    }
}

impl JoinedTable {
    /// Reads the rows of a join.
    pub fn load(
        io: &StorageClient,
        reference: &ServingReference,
        stored: &StoredTable,
        bound: &BoundPipeline,
        op: OpId,
    ) -> Result<JoinedTable> {
        let compared = ComparedJoin::of(bound, op)?;
        let lost = || Fault::new(codes::CORRUPT, "the rows of a served join cannot be read");
        let file = stored.piece.file.as_ref().ok_or_else(lost)?;
        let batch = read_table(&reference.piece(io, file)?)?;
        let column = |name: &str| batch.column_by_name(name).cloned().ok_or_else(lost);
        let mut keys = Vec::new();
        for index in 0..compared.keys.len() {
            keys.push(column(&key_name(index))?);
        }
        let mut columns = Vec::new();
        for index in 0..compared.join.columns.len() {
            columns.push(column(&column_name(index))?);
        }
        let converter = compared.converter()?;
        let mut rows: HashMap<Box<[u8]>, Range<usize>> = HashMap::new();
        // Rows of one key follow each other.
        let encoded = row_keys(&converter, &keys, batch.num_rows())?;
        for (row, key) in encoded.into_iter().enumerate() {
            rows.entry(key)
                .and_modify(|range| range.end = row + 1)
                .or_insert(row..row + 1);
        }
        Ok(JoinedTable {
            label: bound.ops[op].label.clone(),
            exact: compared.as_of.exact,
            by_time: compared.as_of.known_at.is_some(),
            tolerance: compared.as_of.tolerance,
            first: stored.first,
            visible: ticks(&column(VISIBLE)?)?,
            times: ticks(&column(TIME)?)?,
            columns,
            keys: compared.keys,
            time: compared.time,
            converter,
            rows,
        })
    }

    /// The joined columns of some rows, given their keys and, last, their times.
    pub fn look_up(&self, inputs: &[ArrayRef], rows: usize) -> Result<TakenOutputs> {
        let Some((times, keys)) = inputs.split_last() else {
            return Err(Fault::internal("a served join without a time"));
        };
        let times = ticks(&cast(times, &self.time)?)?;
        let mut typed = Vec::with_capacity(keys.len());
        for (key, data_type) in keys.iter().zip(&self.keys) {
            typed.push(canonical_keys(&cast(key, data_type)?)?);
        }
        let encoded = row_keys(&self.converter, &typed, rows)?;
        let mut picks: Vec<Option<u32>> = Vec::with_capacity(rows);
        for (row, key) in encoded.iter().enumerate() {
            if times.is_null(row) || typed.iter().any(|key| key.is_null(row)) {
                picks.push(None);
                continue;
            }
            let time = times.value(row);
            if self.first.is_some_and(|first| time < first) {
                let message = format!(
                    "`{}` has the rows of the other side as of the serving state, \
                     and a row is earlier",
                    self.label
                );
                return Err(Fault::new(codes::OUT_OF_ORDER, message)
                    .step(&self.label)
                    .rows([row as u64])
                    .hint("give rows that are later than the state"));
            }
            let range = self.rows.get(key).cloned();
            picks.push(range.and_then(|range| self.row_at(range, time)));
        }
        let unmatched = picks.iter().filter(|pick| pick.is_none()).count() as u64;
        let picks = UInt32Array::from(picks);
        let mut columns = Vec::with_capacity(self.columns.len());
        for column in &self.columns {
            columns.push(take(column, &picks, None)?);
        }
        Ok(TakenOutputs {
            columns,
            unmatched: Some(unmatched),
        })
    }

    /// The row among those of a key that is valid at a time.
    fn row_at(&self, rows: Range<usize>, time: i64) -> Option<u32> {
        let mut best: Option<usize> = None;
        for row in rows {
            let visible = self.visible.value(row);
            if visible > time || (visible == time && !self.exact) {
                break;
            }
            best = newer_of(best, row, self.by_time, &self.times);
        }
        let best = best?;
        let distance = time.abs_diff(self.times.value(best));
        let is_near = self
            .tolerance
            .is_none_or(|most| distance <= most.unsigned_abs());
        u32::try_from(best).ok().filter(|_| is_near)
    }
}

/// The row that matches, of the best one so far and the next one in order of visibility.
fn newer_of(best: Option<usize>, row: usize, by_time: bool, times: &Int64Array) -> Option<usize> {
    match best {
        Some(best) if by_time && times.value(row) < times.value(best) => Some(best),
        _ => Some(row),
    }
}

/// The keys of rows as bytes that are equal where the keys are.
pub(super) fn row_keys(
    converter: &RowConverter,
    keys: &[ArrayRef],
    rows: usize,
) -> Result<Vec<Box<[u8]>>> {
    if keys.is_empty() {
        return Ok(vec![Box::default(); rows]);
    }
    let encoded = converter.convert_columns(keys)?;
    Ok(encoded.iter().map(|key| Box::from(key.as_ref())).collect())
}

fn key_name(index: usize) -> String {
    format!("key{index}")
}

fn column_name(index: usize) -> String {
    format!("column{index}")
}

/// A join whose other side is stored.
pub(super) struct TableRequest<'a> {
    pub pipeline: &'a Pipeline,
    pub bound: &'a BoundPipeline,
    pub op: OpId,
    /// The earliest time of rows that are served, in a column of the type of this side's times; `None` where rows of any
    /// time are.
    pub first: Option<ArrayRef>,
}

impl Session {
    /// Stores the rows of the other side of a join that rows from a time on are joined with.
    pub(super) fn store_joined(
        &self,
        writer: &PieceWriter<'_>,
        request: &TableRequest<'_>,
    ) -> Result<StoredTable> {
        let compared = ComparedJoin::of(request.bound, request.op)?;
        let join = compared.join;
        let first = match &request.first {
            Some(first) => Some(ticks(&cast(first, &compared.time)?)?.value(0)),
            None => None,
        };
        let rows = self.other_rows(request.pipeline, &compared)?;
        let latest = latest_rows(&compared, &rows, first)?;
        let mut columns = Vec::with_capacity(rows.num_columns());
        for column in rows.columns() {
            columns.push(take(column, &latest, None)?);
        }
        let table = RecordBatch::try_new(rows.schema(), columns)?;
        let count = table.num_rows() as u64;
        Ok(StoredTable {
            step: request.bound.ops[request.op].label.clone(),
            other: join.other.clone(),
            rows: count,
            first,
            piece: writer.write(write_table(&table)?, count)?,
        })
    }

    /// The rows of the other side that can match: keys and times in the types in which they are compared, and the joined
    /// columns.
    fn other_rows(&self, pipeline: &Pipeline, compared: &ComparedJoin<'_>) -> Result<RecordBatch> {
        let scratch = ScratchDir::new(Some(&self.state()?), self.watch.clone())?;
        let request = RowsRequest {
            step: &compared.join.other,
            condition: None,
            connectors: self.connectors.clone(),
            artifact: None,
            enforces_rules: false,
            uses_state: false,
        };
        let bytes_max = self.memory().states_bytes();
        let mut bytes = 0;
        let mut batches = Vec::new();
        for batch in self.compute_rows(pipeline, request, scratch)? {
            let batch = compared_columns(compared, &batch?)?;
            bytes += batch.get_array_memory_size();
            if bytes > bytes_max {
                let message = format!(
                    "the rows of `{}` take more than {} MiB, \
                     the memory for those that served rows are joined with",
                    compared.join.other,
                    bytes_max >> 20
                );
                return Err(Fault::new(codes::MEMORY, message)
                    .hint("raise --memory, or serve a step before the join"));
            }
            batches.push(batch);
        }
        Ok(concat_batches(&compared_schema(compared), &batches)?)
    }
}

fn compared_schema(compared: &ComparedJoin<'_>) -> Arc<Schema> {
    let mut fields = Vec::new();
    for (index, key) in compared.keys.iter().enumerate() {
        fields.push(Field::new(key_name(index), key.clone(), true));
    }
    fields.push(Field::new(VISIBLE, DataType::Int64, true));
    fields.push(Field::new(TIME, DataType::Int64, true));
    for (index, (_, field)) in compared.join.columns.iter().enumerate() {
        fields.push(Field::new(
            column_name(index),
            field.data_type().clone(),
            true,
        ));
    }
    Arc::new(Schema::new(fields))
}

fn compared_columns(compared: &ComparedJoin<'_>, batch: &RecordBatch) -> Result<RecordBatch> {
    let column = |name: &String| {
        let column = batch.column_by_name(name).cloned();
        column.ok_or_else(|| Fault::internal("a column of a joined step is missing"))
    };
    let time = |name: &String| ticks(&cast(&column(name)?, &compared.time)?);
    let mut columns: Vec<ArrayRef> = Vec::new();
    for ((_, name), data_type) in compared.join.keys.iter().zip(&compared.keys) {
        columns.push(canonical_keys(&cast(&column(name)?, data_type)?)?);
    }
    let times = time(&compared.as_of.other_time)?;
    let visible: Int64Array = match &compared.as_of.known_at {
        None => times.clone(),
        Some(known_at) => {
            let known_times = time(known_at)?;
            let pairs = times.iter().zip(&known_times);
            pairs
                .map(|(time, known_time)| Some(time?.max(known_time?)))
                .collect()
        }
    };
    columns.push(Arc::new(visible));
    columns.push(Arc::new(times));
    for (name, field) in &compared.join.columns {
        columns.push(cast(&column(name)?, field.data_type())?);
    }
    Ok(RecordBatch::try_new(compared_schema(compared), columns)?)
}

/// The rows that can match rows from a time on, by key and visibility.
fn latest_rows(
    compared: &ComparedJoin<'_>,
    rows: &RecordBatch,
    first: Option<i64>,
) -> Result<UInt32Array> {
    let (keys, others) = rows.columns().split_at(compared.keys.len());
    let [visible, times, ..] = others else {
        return Err(Fault::internal("a joined step without a time"));
    };
    let visible = ticks(visible)?;
    let times = ticks(times)?;
    let encoded = row_keys(&compared.converter()?, keys, rows.num_rows())?;
    let count = u32::try_from(rows.num_rows())
        .map_err(|_| Fault::new(codes::LIMIT, "a joined step has more rows than 2^32"))?;
    let can_match = |row: &u32| {
        let row = *row as usize;
        visible.is_valid(row) && times.is_valid(row) && keys.iter().all(|key| key.is_valid(row))
    };
    let mut order: Vec<u32> = (0..count).filter(can_match).collect();
    order.sort_by(|a, b| {
        let a = *a as usize;
        let b = *b as usize;
        let by_key = encoded[a].cmp(&encoded[b]);
        by_key.then_with(|| visible.value(a).cmp(&visible.value(b)))
    });
    let by_time = compared.as_of.known_at.is_some();
    let mut matching = Vec::new();
    // The row that matches just before the first served time, for the key at hand.
    let mut best: Option<usize> = None;
    for row in order {
        let row = row as usize;
        if best.is_some_and(|best| encoded[best] != encoded[row]) {
            matching.extend(best.take());
        }
        if first.is_some_and(|first| visible.value(row) < first) {
            best = newer_of(best, row, by_time, &times);
            continue;
        }
        matching.extend(best.take());
        matching.push(row);
    }
    matching.extend(best);
    Ok(matching.into_iter().map(|row| row as u32).collect())
}
