//! Looks rows up in a table, and computes their outputs.

use std::sync::Arc;

use arrow::array::{
    Array, ArrayRef, AsArray, BooleanArray, RecordBatch, RecordBatchOptions, UInt64Array,
    new_null_array,
};
use arrow::compute::{cast, interleave};
use arrow::datatypes::{DataType, Field, Schema, SchemaRef, UInt64Type};
use forebay_model::{Fault, Result, has_text_length, text_length};
use forebay_plan::{GatherOp, met_twice_fault};
use forebay_storage::Event;

use super::join::{HashJoin, MATCH, RowsPerMatch};
use super::schema::join_schema;
use super::table::JoinTable;
use crate::batch_iter::BatchIter;
use crate::join_keys::{EncodedKeys, JoinKeys};

/// Rows of an output batch at most.
const BATCH_ROWS: usize = 8192;

/// Entry of a row whose match may be in an earlier block: only its flag is output.
const EARLIER_BLOCK: u32 = u32::MAX;

/// Approximate bytes of an output batch at most.
const BATCH_BYTES: usize = 256 << 10;

/// Bytes of texts after which an output batch ends: one long text may be met by all rows.
const BATCH_TEXT_BYTES: usize = 4 << 20;

/// Output columns of a join.
pub struct JoinOutputs {
    pub schema: SchemaRef,
    /// The columns of the other side that a table holds, and their types.
    values: Vec<(usize, DataType)>,
    value_schema: SchemaRef,
    /// One row of nulls for each column of a table.
    nulls: Vec<ArrayRef>,
    /// True if the output has a flag for matched rows.
    flag: bool,
}

impl JoinOutputs {
    pub fn new(join: &HashJoin<'_>, other_schema: &SchemaRef) -> Result<JoinOutputs> {
        let mut values = Vec::new();
        for (name, field) in &join.join.columns {
            values.push((other_schema.index_of(name)?, field.data_type().clone()));
        }
        let mut schema = join_schema(join.join);
        if let RowsPerMatch::Each { .. } = join.rows {
            values.push((other_schema.index_of(GatherOp::ROW)?, DataType::UInt64));
            let mut fields = schema.fields().to_vec();
            fields.insert(
                fields.len() - 1,
                Arc::new(Field::new(MATCH, DataType::UInt64, true)),
            );
            schema = Arc::new(Schema::new(fields));
        }
        let fields = values.iter().enumerate();
        let fields = fields.map(|(number, (_, data_type))| {
            Field::new(number.to_string(), data_type.clone(), true)
        });
        let value_schema = Arc::new(Schema::new(fields.collect::<Vec<_>>()));
        let nulls = values
            .iter()
            .map(|(_, data_type)| new_null_array(data_type, 1))
            .collect();
        Ok(JoinOutputs {
            schema,
            values,
            value_schema,
            nulls,
            flag: join.join.matched.is_some(),
        })
    }

    /// The columns that a table holds.
    pub fn values(&self, batch: &RecordBatch) -> Result<RecordBatch> {
        let columns = self
            .values
            .iter()
            .map(|(index, data_type)| Ok(cast(batch.column(*index), data_type)?));
        let options = RecordBatchOptions::new().with_row_count(Some(batch.num_rows()));
        Ok(RecordBatch::try_new_with_options(
            self.value_schema.clone(),
            columns.collect::<Result<_>>()?,
            &options,
        )?)
    }
}

/// Outputs of rows, batch by batch.
pub struct ProbeRows<'p, K> {
    join: &'p HashJoin<'p>,
    keys: &'p JoinKeys,
    table: &'p JoinTable,
    outputs: &'p JoinOutputs,
    rows: BatchIter,
    keep: K,
    batch_rows: usize,
    /// The columns of the table that are texts.
    text_columns: Vec<usize>,
    current: Option<CurrentBatch>,
    matches: Option<MatchMemory<'p>>,
    failed: bool,
}

/// The batch whose rows are looked up.
struct CurrentBatch {
    positions: UInt64Array,
    batch: RecordBatch,
    keys: EncodedKeys,
    row: usize,
    /// Next match of the row, if some have been output already.
    next: Option<u32>,
}

/// The rows that matched in some blocks of the other side.
struct MatchMemory<'p> {
    /// True for matched rows, by the number of the row among those that are read.
    matched: &'p mut Vec<bool>,
    /// The number of the current batch's first row.
    first: usize,
    /// True for the last block: rows without any match are then output.
    is_last: bool,
}

/// Table in which rows are looked up, and the output columns.
#[derive(Clone, Copy)]
pub struct ProbedTable<'p> {
    pub table: &'p JoinTable,
    pub outputs: &'p JoinOutputs,
}

/// An output row: the entry that it takes its columns from, and its position.
#[derive(Default)]
struct PickedRows {
    entries: Vec<Option<u32>>,
    positions: Vec<u64>,
    /// Bytes of the texts that the entries bring.
    text_bytes: usize,
}

impl<'p, K: Fn(u64) -> bool> ProbeRows<'p, K> {
    pub fn new(
        join: &'p HashJoin<'p>,
        keys: &'p JoinKeys,
        probed: ProbedTable<'p>,
        rows: BatchIter,
        keep: K,
    ) -> Self {
        let ProbedTable { table, outputs } = probed;
        let (bytes, count) = table
            .batches()
            .iter()
            .fold((0, 0), |(bytes, count), batch| {
                (
                    bytes + batch.get_array_memory_size(),
                    count + batch.num_rows(),
                )
            });
        let row_bytes = size_of::<u64>() + bytes.checked_div(count).unwrap_or(0);
        let batch_rows = (BATCH_BYTES / row_bytes).clamp(1, BATCH_ROWS);
        let mut text_columns = Vec::new();
        for (column, (_, data_type)) in outputs.values.iter().enumerate() {
            if has_text_length(data_type) {
                text_columns.push(column);
            }
        }
        let current = None;
        let matches = None;
        let failed = false;
        ProbeRows {
            join,
            keys,
            table,
            outputs,
            rows,
            keep,
            batch_rows,
            text_columns,
            current,
            matches,
            failed,
        }
    }

    /// The table holds one of several blocks of the other side: a row without a match is output
    /// with the last one.
    pub fn remember_matches(&mut self, matched: &'p mut Vec<bool>, is_last: bool) {
        self.matches = Some(MatchMemory {
            matched,
            first: 0,
            is_last,
        });
    }

    fn next_outputs(&mut self) -> Result<Option<RecordBatch>> {
        let mut picked = PickedRows::default();
        while !self.is_full(&picked) {
            let mut current = match self.current.take() {
                Some(current) => current,
                None => match self.rows.next() {
                    None => break,
                    Some(batch) => self.begin(batch?)?,
                },
            };
            self.look_up(&mut current, &mut picked)?;
            if current.row < current.batch.num_rows() {
                self.current = Some(current);
            } else if let Some(matches) = &mut self.matches {
                matches.first += current.batch.num_rows();
            }
        }
        if picked.positions.is_empty() {
            return Ok(None);
        }
        let done = picked.positions.len() as u64;
        let listener = &self.join.pass.gather.watch;
        listener.on_event(Event::Worked { done, planned: 0 });
        self.outputs_of(picked).map(Some)
    }

    fn begin(&mut self, batch: RecordBatch) -> Result<CurrentBatch> {
        self.join.pass.gather.context.memory.check()?;
        self.join.pass.check_cancelled()?;
        if let Some(matches) = &mut self.matches {
            let rows = matches.first + batch.num_rows();
            if matches.matched.len() < rows {
                matches.matched.resize(rows, false);
            }
        }
        let positions = batch
            .column(batch.num_columns() - 1)
            .as_primitive::<UInt64Type>()
            .clone();
        Ok(CurrentBatch {
            positions,
            keys: self.keys.encode(&batch)?,
            batch,
            row: 0,
            next: None,
        })
    }

    /// True if rows are enough for a batch.
    fn is_full(&self, picked: &PickedRows) -> bool {
        picked.positions.len() >= self.batch_rows || picked.text_bytes >= BATCH_TEXT_BYTES
    }

    /// Bytes of the texts of an entry.
    fn text_bytes(&self, entry: Option<u32>) -> usize {
        let Some(entry) = entry.filter(|_| !self.text_columns.is_empty()) else {
            return 0;
        };
        let (batch, row) = self.table.place(entry);
        let batch = &self.table.batches()[batch];
        let mut bytes = 0;
        for column in &self.text_columns {
            bytes += text_length(batch.column(*column), row);
        }
        bytes
    }

    /// Looks up rows until the output batch is full.
    fn look_up(&mut self, current: &mut CurrentBatch, picked: &mut PickedRows) -> Result<()> {
        while current.row < current.batch.num_rows() && !self.is_full(picked) {
            let row = current.row;
            if !(self.keep)(current.keys.hashes[row]) {
                current.row += 1;
                continue;
            }
            let entry = current
                .next
                .take()
                .or_else(|| self.table.find(&current.keys, row));
            let text_bytes = self.text_bytes(entry);
            let mut push = |entry| {
                picked.text_bytes += text_bytes;
                picked.entries.push(entry);
                picked.positions.push(current.positions.value(row));
            };
            match (self.join.rows, entry) {
                (RowsPerMatch::One, entry) => {
                    match &mut self.matches {
                        None => push(entry),
                        Some(matches) => {
                            let matched = &mut matches.matched[matches.first + row];
                            *matched |= entry.is_some();
                            if matches.is_last {
                                push(matched.then_some(EARLIER_BLOCK));
                            }
                        }
                    }
                    if entry.is_some_and(|entry| self.table.meet(entry)) {
                        let key = self.keys.text(&current.batch, row);
                        return Err(met_twice_fault(&self.join.join.other, &key));
                    }
                    current.row += 1;
                }
                (RowsPerMatch::Each { .. }, Some(entry)) => {
                    push(Some(entry));
                    current.next = self.table.next(entry);
                    if let Some(matches) = &mut self.matches {
                        matches.matched[matches.first + row] = true;
                    }
                    current.row += usize::from(current.next.is_none());
                }
                (RowsPerMatch::Each { unmatched }, None) => {
                    let never = match &self.matches {
                        None => true,
                        Some(matches) => matches.is_last && !matches.matched[matches.first + row],
                    };
                    if unmatched && never {
                        push(None);
                    }
                    current.row += 1;
                }
            }
        }
        Ok(())
    }

    fn outputs_of(&self, picked: PickedRows) -> Result<RecordBatch> {
        let mut columns: Vec<ArrayRef> = Vec::new();
        if self.outputs.flag {
            columns.push(Arc::new(
                picked
                    .entries
                    .iter()
                    .map(|entry| Some(entry.is_some()))
                    .collect::<BooleanArray>(),
            ));
        }
        if !self.outputs.values.is_empty() {
            let pick_of = |entry: &Option<u32>| {
                entry.map_or((0, 0), |entry| {
                    let (batch, row) = self.table.place(entry);
                    (batch + 1, row)
                })
            };
            let picks: Vec<(usize, usize)> = picked.entries.iter().map(pick_of).collect();
            for (column, null) in self.outputs.nulls.iter().enumerate() {
                let stored_columns = self
                    .table
                    .batches()
                    .iter()
                    .map(|batch| batch.column(column).as_ref());
                let arrays: Vec<&dyn Array> = std::iter::once(null.as_ref())
                    .chain(stored_columns)
                    .collect();
                columns.push(interleave(&arrays, &picks)?);
            }
        }
        columns.push(Arc::new(UInt64Array::from(picked.positions)));
        Ok(RecordBatch::try_new(self.outputs.schema.clone(), columns)?)
    }
}

impl<K: Fn(u64) -> bool> Iterator for ProbeRows<'_, K> {
    type Item = Result<RecordBatch>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.failed {
            return None;
        }
        let next = self
            .next_outputs()
            .map_err(|fault: Fault| self.join.place(fault))
            .transpose();
        self.failed = matches!(next, Some(Err(_)));
        next
    }
}
