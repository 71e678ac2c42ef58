//! Joins whose rows multiply. The pairs are computed first, without the columns of this side. Then the rows of this side
//! are read in order, and each is repeated for its pairs.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use arrow::array::{AsArray, RecordBatch, UInt32Array};
use arrow::compute::cast;
use arrow::datatypes::{Field, Schema, SchemaRef, UInt64Type};
use forebay_model::{Fault, Result, RowChange, logical_type, take_rows};
use forebay_plan::{JoinOp, NodeFlow, OpId};

use crate::external_sort::BatchIter;
use crate::hash_join::{HashJoin, RowsPerMatch};
use crate::materialize::{GatheredCounts, MaterializePass, SpanRows, column_names};
use crate::sorted_pass::{SortedPass, distinct, typed_join_keys};

/// Rows of an output batch at most.
const BATCH_ROWS: usize = 8192;

/// Approximate bytes of an output batch at most.
const BATCH_BYTES: usize = 1 << 20;

/// Nothing cancels a gather but the interrupt of its run.
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
            Some([(_, here), (_, there)]) => Ok((here, there)),
            _ => Err(Fault::internal("a join of other than two sides")),
        }
    }

    /// The columns of this side, with the actual widths of vectors, followed by those of the other.
    pub fn joined_schema(&self, op: OpId, join: &JoinOp) -> Result<SchemaRef> {
        let (here, _) = self.join_sides(op)?;
        let spans = self.spans(here, &column_names(here))?;
        let own = spans
            .schema
            .fields()
            .iter()
            .take(here.schema.fields().len())
            .map(|field| field.as_ref().clone());
        let fields = own.chain(join.writes().map(|field| {
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
        let (here, there) = self.join_sides(op)?;
        let keys = typed_join_keys(join, &here.schema, &there.schema)?;
        let sides = (
            self.input_table("here", here, &distinct(join.columns_here()))?,
            self.input_table("there", there, &distinct(join.columns_there()))?,
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
        };
        let spans = self.spans(here, &column_names(here))?;
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
    /// Rows here of which there were pairs.
    matched: u64,
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
        let before = |position: &u64| {
            position
                .checked_sub(rows.first)
                .and_then(|row| u32::try_from(row).ok())
        };
        let picks: Option<UInt32Array> = positions[from..until]
            .iter()
            .map(|position| before(position).map(Some))
            .collect();
        let picks = picks.ok_or_else(|| Fault::internal("a pair of a row that was read before"))?;
        for position in &positions[from..until] {
            self.matched += u64::from(self.last != Some(*position));
            self.last = Some(*position);
        }
        let own = rows.columns.iter().map(|column| take_rows(column, &picks));
        // The position of the other side's row, and that of this side's, come last.
        let brought = schema.fields().len() - rows.columns.len();
        let brought = batch.columns()[..brought]
            .iter()
            .map(|column| Ok(column.slice(from, until - from)));
        let columns = own
            .chain(brought)
            .zip(schema.fields())
            .map(|(column, field)| Ok(cast(&column?, field.data_type())?));
        let columns = columns.collect::<Result<Vec<_>>>()?;
        self.current = Some((batch, until));
        Ok(Some(RecordBatch::try_new(schema.clone(), columns)?))
    }
}
