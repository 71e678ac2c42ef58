//! Keeps one row of each key. The keys are read first, which decides the rows to keep; then the rows are read in order.
//! Only keys and positions are held or spilled, and nothing is sorted back.

use std::collections::BTreeMap;
use std::sync::Arc;

use arrow::array::{AsArray, BooleanArray, RecordBatch};
use arrow::buffer::BooleanBuffer;
use arrow::compute::{cast, filter};
use arrow::datatypes::{SchemaRef, UInt64Type};
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
        let stays = self.select_rows(&self.spans(flow, keys)?, last)?;
        let spans = self.spans(flow, &flow.column_names())?;
        let mut rows = 0;
        self.scan_beside(
            &spans,
            &|read| filter_kept(read, &stays, schema),
            &mut |batch: RecordBatch| {
                rows += batch.num_rows() as u64;
                self.context.memory.check()?;
                take(batch)
            },
        )?;
        let changes = (RowChange::Duplicate, RowChange::Queried);
        Ok(self.settled(op, spans.tally().row_counts()?, rows, changes))
    }

    /// Reads the keys of all rows and decides which rows to keep.
    fn select_rows(&self, spans: &FlowSpans, last: bool) -> Result<KeptRows> {
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
        let mut stays = KeptRows::new();
        self.group_rows(spans, &spec, keys)?
            .for_each_unordered(|results| {
                let positions = results
                    .first()
                    .and_then(|column| column.as_primitive_opt::<UInt64Type>());
                let positions =
                    positions.ok_or_else(|| Fault::internal("groups without positions"))?;
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
    let columns = read
        .columns
        .iter()
        .zip(schema.fields())
        .map(|(column, field)| {
            let column = if mask.true_count() == read.rows {
                column
            } else {
                &filter(column, &mask)?
            };
            Ok(cast(column, field.data_type())?)
        });
    Ok(Some(RecordBatch::try_new(
        schema.clone(),
        columns.collect::<Result<Vec<_>>>()?,
    )?))
}
