//! Keeps one row of each key. The keys are read first, which decides the rows to keep; then the rows are read in order.
//! Only keys and positions are held or spilled, and nothing is sorted back. Where the keys are whole rows and stay in memory,
//! they are the rows to keep, and nothing is read again.

use std::collections::BTreeMap;
use std::sync::Arc;

use arrow::array::{ArrayRef, AsArray, BooleanArray, RecordBatch};
use arrow::buffer::BooleanBuffer;
use arrow::compute::{cast, filter};
use arrow::datatypes::{SchemaRef, UInt64Type};
use forebay_analyze::GroupByState;
use forebay_model::{
    Fault, GroupBy, GroupFunction, GroupKey, GroupResult, MemoryRequest, Result, RowChange,
};
use forebay_plan::{NodeFlow, OpId};

use crate::materialize::{FlowSpans, GatheredCounts, MaterializePass, SpanRows};
use crate::row_position::ROW_BITS;

/// Masks the row of a position, without the span's number.
const ROW_MASK: u64 = (1 << ROW_BITS) - 1;

/// Bitmaps of the kept rows by the number of their span.
type KeptRows = BTreeMap<u64, Vec<u64>>;

impl MaterializePass<'_> {
    /// The columns of a flow's rows, once all findings are known.
    pub fn one_per_key_schema(&self, flow: &NodeFlow) -> Result<SchemaRef> {
        let spans = self.spans(flow, &flow.column_names())?;
        let columns: Vec<usize> = (0..spans.schema.fields().len() - 1).collect();
        Ok(Arc::new(spans.schema.project(&columns)?))
    }

    /// Passes the kept rows of a gather's input to `take`, in order; returns the counts of its rows.
    pub fn one_per_key(
        &self,
        op: OpId,
        keys: &[String],
        last: bool,
        schema: &SchemaRef,
        take: &mut dyn FnMut(RecordBatch) -> Result<()>,
    ) -> Result<GatheredCounts> {
        let flow = self.only_flow(op)?;
        let column_names = flow.column_names();
        let mut spans = self.spans(flow, keys)?;
        let state = self.placed_keys(&spans, last)?;
        let rows = if keys == column_names && state.holds_first_rows()? {
            self.take_keys(&state, schema, take)?
        } else {
            let stays = self.select_rows(state)?;
            spans = self.spans(flow, &column_names)?;
            self.take_kept(&spans, &stays, schema, take)?
        };
        let changes = (RowChange::Duplicate, RowChange::Queried);
        Ok(self.settled(op, spans.tally().row_counts()?, rows, changes))
    }

    /// Passes keys that are rows to `take`; returns their number.
    fn take_keys(
        &self,
        state: &GroupByState,
        schema: &SchemaRef,
        take: &mut dyn FnMut(RecordBatch) -> Result<()>,
    ) -> Result<u64> {
        let mut rows = 0;
        state.for_each_key(|columns| {
            let batch = batch_of(&columns, schema)?;
            rows += batch.num_rows() as u64;
            self.context.memory.check()?;
            take(batch)
        })?;
        Ok(rows)
    }

    /// Reads all rows and passes those to keep to `take`; returns their number.
    fn take_kept(
        &self,
        spans: &FlowSpans,
        stays: &KeptRows,
        schema: &SchemaRef,
        take: &mut dyn FnMut(RecordBatch) -> Result<()>,
    ) -> Result<u64> {
        let mut rows = 0;
        self.scan_beside(
            spans,
            &|read| filter_kept(read, stays, schema),
            &mut |batch: RecordBatch| {
                rows += batch.num_rows() as u64;
                self.context.memory.check()?;
                take(batch)
            },
        )?;
        Ok(rows)
    }

    /// Reads the keys of all rows, and the position of the row to keep of each.
    fn placed_keys(&self, spans: &FlowSpans, last: bool) -> Result<GroupByState> {
        let keys = spans.schema.fields().len() - 1;
        let function = if last {
            GroupFunction::LastRow
        } else {
            GroupFunction::FirstRow
        };
        let types = spans
            .schema
            .fields()
            .iter()
            .take(keys)
            .map(|field| field.data_type().clone());
        let spec = Arc::new(GroupBy {
            keys: types
                .map(|data_type| GroupKey {
                    data_type,
                    bucket: None,
                })
                .collect(),
            values: Vec::new(),
            results: vec![GroupResult { function, value: 0 }],
        });
        self.group_rows(spans, &spec, keys)
    }

    /// The rows to keep, by the positions of a state.
    fn select_rows(&self, state: GroupByState) -> Result<KeptRows> {
        let mut stays = KeptRows::new();
        state.for_each_unordered(|results| {
            let positions = results
                .first()
                .and_then(|column| column.as_primitive_opt::<UInt64Type>());
            let positions = positions.ok_or_else(|| Fault::internal("groups without positions"))?;
            let mut words_max: BTreeMap<u64, usize> = BTreeMap::new();
            for position in positions.values() {
                let words = words_max.entry(position >> ROW_BITS).or_default();
                *words = (*words).max((position & ROW_MASK) as usize / 64 + 1);
            }
            for (span, words) in words_max {
                let bits = stays.entry(span).or_default();
                if words > bits.len() {
                    let words_allocated = words.max(2 * bits.len());
                    let _admitted = self.context.memory.admit(
                        MemoryRequest {
                            now: words_allocated * size_of::<u64>(),
                            later: 0,
                        },
                        0,
                    )?;
                    bits.resize(words_allocated, 0);
                }
            }
            for position in positions.values() {
                let word = stays.get_mut(&(position >> ROW_BITS));
                let word =
                    word.and_then(|words| words.get_mut((position & ROW_MASK) as usize / 64));
                *word.ok_or_else(|| Fault::internal("a row that was not read"))? |=
                    1 << (position % 64);
            }
            Ok(())
        })?;
        Ok(stays)
    }
}

/// The kept rows, in the types of the schema; `None` if there are none.
fn filter_kept(
    read: SpanRows,
    stays: &KeptRows,
    schema: &SchemaRef,
) -> Result<Option<RecordBatch>> {
    let Some(words) = stays.get(&(read.first >> ROW_BITS)) else {
        return Ok(None);
    };
    let first = (read.first & ROW_MASK) as usize;
    let is_staying = |row: usize| {
        words
            .get(row / 64)
            .is_some_and(|word| word >> (row % 64) & 1 == 1)
    };
    let mask = BooleanBuffer::collect_bool(read.rows, |row| is_staying(first + row));
    let mask = BooleanArray::new(mask, None);
    if mask.true_count() == 0 {
        return Ok(None);
    }
    if mask.true_count() == read.rows {
        return batch_of(&read.columns, schema).map(Some);
    }
    let mut columns = Vec::with_capacity(read.columns.len());
    for column in &read.columns {
        columns.push(filter(column, &mask)?);
    }
    batch_of(&columns, schema).map(Some)
}

/// Columns in the types of the schema.
fn batch_of(columns: &[ArrayRef], schema: &SchemaRef) -> Result<RecordBatch> {
    let mut typed = Vec::with_capacity(columns.len());
    for (column, field) in columns.iter().zip(schema.fields()) {
        typed.push(cast(column, field.data_type())?);
    }
    Ok(RecordBatch::try_new(schema.clone(), typed)?)
}
