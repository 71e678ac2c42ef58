//! Joins whose rows multiply. The pairs are computed first, without the columns of this side. Then the rows of this side
//! are read in order, and each is repeated for its pairs.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use arrow::array::{AsArray, RecordBatch, UInt32Array};
use arrow::compute::cast;
use arrow::datatypes::{Field, Schema, SchemaRef, UInt64Type};
use forebay_model::{
    Fault, Result, RowChange, has_text_length, logical_type, take_rows, text_length,
};
use forebay_plan::{JoinOp, NodeFlow, OpId};

use crate::batch_iter::BatchIter;
use crate::hash_join::{HashJoin, RowsPerMatch};
use crate::join_keys::{distinct, typed_join_keys};
use crate::materialize::{GatheredCounts, MaterializePass, SpanRows};
use crate::sorted_pass::SortedPass;

/// Rows of an output batch at most.
const BATCH_ROWS: usize = 8192;

/// Approximate bytes of an output batch at most.
const BATCH_BYTES: usize = 1 << 20;

/// Bytes of texts of an output batch at most, unless it has one row.
const BATCH_TEXT_BYTES: usize = 4 << 20;

/// A flag that is never set: only the cancellation of its run stops a gather.
static NEVER: AtomicBool = AtomicBool::new(false);

impl MaterializePass<'_> {
    fn join_sides(&self, op: OpId) -> Result<(&NodeFlow, &NodeFlow)> {
        match self
            .context
            .program
            .bound
            .gather_inputs
            .get(&op)
            .map(Vec::as_slice)
        {
            Some([(_, own_side), (_, other_side)]) => Ok((own_side, other_side)),
            _ => Err(Fault::internal("a join of other than two sides")),
        }
    }

    /// The columns of this side, with the actual widths of vectors, followed by those of the other.
    pub fn joined_schema(&self, op: OpId, join: &JoinOp) -> Result<SchemaRef> {
        let (own_side, _) = self.join_sides(op)?;
        let spans = self.spans(own_side, &own_side.column_names())?;
        let own_fields = spans
            .schema
            .fields()
            .iter()
            .take(own_side.schema.fields().len())
            .map(|field| field.as_ref().clone());
        let fields = own_fields.chain(join.writes().map(|field| {
            let data_type = logical_type(field.data_type());
            field.clone().with_data_type(data_type).with_nullable(true)
        }));
        Ok(Arc::new(Schema::new(fields.collect::<Vec<Field>>())))
    }

    /// Passes one row for each pair to `take`, in the order of the rows here, then of those there; returns the
    /// counts of the rows here.
    pub fn join_pairs(
        &self,
        op: OpId,
        join: &JoinOp,
        unmatched: bool,
        schema: &SchemaRef,
        take: &mut dyn FnMut(RecordBatch) -> Result<()>,
    ) -> Result<GatheredCounts> {
        let (own_side, other_side) = self.join_sides(op)?;
        let keys = typed_join_keys(join, &own_side.schema, &other_side.schema)?;
        let sides = (
            self.input_table("here", own_side, &distinct(join.columns_here()))?,
            self.input_table("there", other_side, &distinct(join.columns_there()))?,
        );
        let pass = SortedPass {
            gather: self.clone(),
            keeps_rows: false,
            stop: &NEVER,
        };
        let rows = RowsPerMatch::Each { unmatched };
        let hash_join = HashJoin {
            pass: &pass,
            op,
            join,
            keys: &keys.0,
            other_keys: &keys.1,
            rows,
        };
        let mut pairs = Pairs {
            batches: hash_join.run(&sides.0, &sides.1)?,
            current: None,
            last: None,
            matched: 0,
            unmatched: 0,
        };
        let spans = self.spans(own_side, &own_side.column_names())?;
        let mut count = 0;
        self.scan_beside(&spans, &|rows| Ok(Some(rows)), &mut |rows: SpanRows| {
            while let Some(batch) = pairs.next_of(&rows, schema)? {
                count += batch.num_rows() as u64;
                self.context.memory.check()?;
                take(batch)?;
            }
            Ok(())
        })?;
        let label = &self.context.program.bound.ops[op].label;
        let mut counts = spans.tally().row_counts()?;
        let rows = u64::try_from(counts.output()).unwrap_or_default();
        counts.remove(
            label,
            RowChange::Unmatched,
            rows.saturating_sub(pairs.matched),
        );
        counts.append(label, RowChange::Multiplied, count - pairs.matched);
        counts
            .changes
            .record(label, RowChange::NoMatch, pairs.unmatched);
        Ok(GatheredCounts {
            rows: count,
            counts,
        })
    }
}

/// Pairs in the order of the rows here.
struct Pairs {
    batches: BatchIter,
    current: Option<(RecordBatch, usize)>,
    /// The position of the row here of the last pair.
    last: Option<u64>,
    /// Rows here of which there were pairs, with nulls or without.
    matched: u64,
    /// Rows here without a match, which stay with nulls.
    unmatched: u64,
}

/// The number of pairs, at least one, whose rows here bring texts of limited bytes. Each pair has a copy of the texts.
fn rows_of_text(rows: &SpanRows, positions: &[u64]) -> usize {
    let mut text_columns = rows.columns.clone();
    text_columns.retain(|column| has_text_length(column.data_type()));
    if text_columns.is_empty() {
        return positions.len();
    }
    let mut bytes = 0;
    for (number, position) in positions.iter().enumerate() {
        let Some(row) = position.checked_sub(rows.first) else {
            continue;
        };
        for column in &text_columns {
            bytes += text_length(column, row as usize);
        }
        if bytes > BATCH_TEXT_BYTES {
            return number.max(1);
        }
    }
    positions.len()
}

impl Pairs {
    /// The next pairs of some rows; `None` if there are no more of these.
    fn next_of(&mut self, rows: &SpanRows, schema: &SchemaRef) -> Result<Option<RecordBatch>> {
        let end = rows.first + rows.rows as u64;
        let (batch, from) = loop {
            match self.current.take() {
                Some((batch, from)) if from < batch.num_rows() => break (batch, from),
                _ => match self.batches.next() {
                    None => return Ok(None),
                    Some(batch) => self.current = Some((batch?, 0)),
                },
            }
        };
        let positions = batch
            .column(batch.num_columns() - 1)
            .as_primitive::<UInt64Type>()
            .values()
            .clone();
        let bytes: usize = rows
            .columns
            .iter()
            .map(|column| column.get_array_memory_size())
            .sum();
        let most = (BATCH_BYTES / (bytes / rows.rows.max(1)).max(1)).clamp(1, BATCH_ROWS);
        let until = positions[from..]
            .partition_point(|position| *position < end)
            .min(most)
            + from;
        if until == from {
            self.current = Some((batch, from));
            return Ok(None);
        }
        let until = from + rows_of_text(rows, &positions[from..until]);
        let previous_of = |position: &u64| {
            position
                .checked_sub(rows.first)
                .and_then(|row| u32::try_from(row).ok())
        };
        let picks: Option<UInt32Array> = positions[from..until]
            .iter()
            .map(|position| previous_of(position).map(Some))
            .collect();
        let picks = picks.ok_or_else(|| Fault::internal("a pair of a row that was read before"))?;
        for position in &positions[from..until] {
            self.matched += u64::from(self.last != Some(*position));
            self.last = Some(*position);
        }
        let own_columns = rows.columns.iter().map(|column| take_rows(column, &picks));
        // The position of the other side's row, and that of this side's, come last.
        let other = batch.column(batch.num_columns() - 2);
        self.unmatched += other.slice(from, until - from).null_count() as u64;
        let brought = schema.fields().len() - rows.columns.len();
        let brought = batch.columns()[..brought]
            .iter()
            .map(|column| Ok(column.slice(from, until - from)));
        let columns = own_columns
            .chain(brought)
            .zip(schema.fields())
            .map(|(column, field)| Ok(cast(&column?, field.data_type())?));
        let columns = columns.collect::<Result<Vec<_>>>()?;
        self.current = Some((batch, until));
        Ok(Some(RecordBatch::try_new(schema.clone(), columns)?))
    }
}
