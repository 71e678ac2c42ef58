//! Keeps one row of each key. The keys are read first, which decides the rows to keep; then the rows are read in order.
//! Only keys and positions are held or spilled, and nothing is sorted back. Where the keys are whole rows and stay in memory,
//! they are the rows to keep, and nothing is read again.

use std::sync::Arc;

use arrow::array::{ArrayRef, AsArray, RecordBatch};
use arrow::datatypes::{SchemaRef, UInt64Type};
use forebay_analyze::GroupByState;
use forebay_model::{Fault, GroupBy, GroupFunction, GroupKey, GroupResult, Result, RowChange};
use forebay_plan::{NodeFlow, OpId};

use crate::kept_rows::{KeptRows, batch_of};
use crate::materialize::{FlowSpans, GatheredCounts, MaterializePass};

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
            &|read| stays.filter(read, schema),
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
        let spec = placed_key_spec(spans, last);
        self.group_rows(spans, &spec, spec.keys.len())
    }

    /// The rows to keep, by the positions of a state.
    fn select_rows(&self, state: GroupByState) -> Result<KeptRows> {
        let mut stays = KeptRows::default();
        state
            .for_each_unordered(|results| stays.add(placed_rows(results)?, self.context.memory))?;
        Ok(stays)
    }
}

/// The specification of the row of each key, for spans that read the keys alone.
pub fn placed_key_spec(spans: &FlowSpans, last: bool) -> Arc<GroupBy> {
    let function = if last {
        GroupFunction::LastRow
    } else {
        GroupFunction::FirstRow
    };
    // The last column is the position of the row.
    let key_count = spans.schema.fields().len() - 1;
    let mut keys = Vec::with_capacity(key_count);
    for field in spans.schema.fields().iter().take(key_count) {
        keys.push(GroupKey {
            data_type: field.data_type().clone(),
            bucket: None,
        });
    }
    Arc::new(GroupBy {
        keys,
        values: Vec::new(),
        value_names: Vec::new(),
        results: vec![GroupResult { function, value: 0 }],
    })
}

/// The positions of rows among the results of groups by [`placed_key_spec`].
pub fn placed_rows(results: &[ArrayRef]) -> Result<&[u64]> {
    let positions = results
        .first()
        .and_then(|column| column.as_primitive_opt::<UInt64Type>());
    let positions = positions.ok_or_else(|| Fault::internal("groups without positions"))?;
    Ok(positions.values())
}
