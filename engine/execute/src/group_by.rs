//! Computes one row per key. Threads accumulate the groups of their spans; the states are merged and read in the order of
//! keys.

use std::sync::Arc;

use arrow::array::RecordBatch;
use arrow::datatypes::{DataType, Schema, SchemaRef};
use forebay_analyze::GroupByState;
use forebay_model::{Fault, GroupBy, GroupFunction, Result, RowChange, count_not_finite};
use forebay_plan::{GatherBy, GroupByOp, NodeFlow, OpId, RowCounts};
use forebay_threads::parallel_map;

use crate::materialize::{FlowSpans, GatheredCounts, MaterializePass, SpanRows};

/// A computation per key whose types are all known.
pub struct ResolvedGroupBy {
    spans: FlowSpans,
    /// Columns that are read: those of the spec, or any column if the spec has none and rows are
    /// only counted.
    pub columns: Vec<String>,
    pub spec: Arc<GroupBy>,
    /// Schema of the result.
    pub schema: SchemaRef,
}

/// True for a function that computes a number of several. All others count or copy values.
fn is_computed(function: GroupFunction) -> bool {
    matches!(
        function,
        GroupFunction::Sum
            | GroupFunction::Mean
            | GroupFunction::Var { .. }
            | GroupFunction::Std { .. }
            | GroupFunction::Quantile { .. }
            | GroupFunction::WeightedMean { .. }
            | GroupFunction::WeightedQuantile { .. }
    )
}

/// Drops the rows of a fault that are counted from the begin of some input, which says nothing about their file.
fn without_input_rows(fault: Fault) -> Fault {
    if fault.has_input_rows() {
        return fault.map_rows(|_| None);
    }
    fault
}

impl MaterializePass<'_> {
    /// Sets the widths of vectors, which were not known when the steps were bound.
    pub fn resolve_group_by(
        &self,
        flow: &NodeFlow,
        op: &GroupByOp,
        declared: &SchemaRef,
    ) -> Result<ResolvedGroupBy> {
        let mut columns = op.inputs.clone();
        if columns.is_empty() {
            // Rows are counted by some column.
            columns.extend(
                flow.schema
                    .fields()
                    .first()
                    .map(|field| field.name().clone()),
            );
        }
        let spans = self.spans(flow, &columns)?;
        let mut spec = (*op.spec).clone();
        let types = spec
            .keys
            .iter_mut()
            .map(|key| &mut key.data_type)
            .chain(&mut spec.values);
        for (data_type, field) in types.zip(spans.schema.fields()) {
            data_type.clone_from(field.data_type());
        }
        let keys = spec.keys.iter().map(|key| key.data_type.clone());
        let results = spec.results.iter().map(|result| {
            result
                .function
                .result_type(spec.values.get(result.value).unwrap_or(&DataType::Null))
        });
        let fields = keys.chain(results).zip(declared.fields());
        let fields = fields.map(|(data_type, field)| {
            field
                .as_ref()
                .clone()
                .with_data_type(data_type)
                .with_nullable(true)
        });
        let schema = Arc::new(Schema::new(fields.collect::<Vec<_>>()));
        Ok(ResolvedGroupBy {
            spans,
            columns,
            spec: Arc::new(spec),
            schema,
        })
    }

    /// Passes one row per key to `take`, in the order of keys; returns the counts of its rows.
    pub fn group_by(
        &self,
        op: OpId,
        ResolvedGroupBy {
            spans,
            spec,
            schema,
            ..
        }: ResolvedGroupBy,
        take: &mut dyn FnMut(RecordBatch) -> Result<()>,
    ) -> Result<GatheredCounts> {
        let inputs = spec.keys.len() + spec.values.len();
        let groups = self.group_rows(&spans, &spec, inputs)?;
        let counts = spans.tally().row_counts()?;
        self.take_groups(op, &schema, groups, counts, take)
    }

    /// Passes the groups of a state to `take`, in the order of keys; returns the counts of the rows. `counts` are those of
    /// the rows that the groups were made of.
    pub fn take_groups(
        &self,
        op: OpId,
        schema: &SchemaRef,
        state: GroupByState,
        counts: RowCounts,
        take: &mut dyn FnMut(RecordBatch) -> Result<()>,
    ) -> Result<GatheredCounts> {
        let results = self.computed_results(op)?;
        let mut not_finite = vec![0; results.len()];
        let mut groups = state.into_sorted()?;
        let mut rows = 0;
        while let Some(columns) = groups.next_columns()? {
            for (result, count) in results.iter().zip(&mut not_finite) {
                *count += columns.get(*result).map_or(0, count_not_finite);
            }
            let batch = RecordBatch::try_new(schema.clone(), columns)?;
            rows += batch.num_rows() as u64;
            self.context.memory.check()?;
            take(batch)?;
        }
        // Only an aggregate without keys gives more rows than it read: one for no rows.
        let changes = (RowChange::Grouped, RowChange::EmptyTotal);
        let mut gathered = self.settled(op, counts, rows, changes);
        let label = &self.context.program.bound.ops[op].label;
        for (result, count) in results.into_iter().zip(not_finite) {
            let column = schema.field(result).name();
            let ledger = &mut gathered.counts.changes;
            ledger.record_values(label, Some(column), RowChange::MadeNotFinite, count);
        }
        // The results follow the keys.
        let fields = schema.fields().iter().rev().take(groups.lost().len()).rev();
        for (field, lost) in fields.zip(groups.lost()) {
            let column = Some(field.name().as_str());
            let ledger = &mut gathered.counts.changes;
            ledger.record_values(label, column, RowChange::BeyondLimit, lost.beyond_limit);
            ledger.record_values(label, column, RowChange::Nulled, lost.undefined);
        }
        Ok(gathered)
    }

    /// The columns of an aggregate that are computed of numbers, and may leave the doubles: an infinity among the values
    /// takes those of a group with it.
    fn computed_results(&self, op: OpId) -> Result<Vec<usize>> {
        let GatherBy::GroupBy(group_by) = &self.gather(op)?.lower else {
            return Ok(Vec::new());
        };
        let spec = &group_by.spec;
        let mut columns = Vec::new();
        for (number, result) in spec.results.iter().enumerate() {
            if is_computed(result.function) {
                columns.push(spec.keys.len() + number);
            }
        }
        Ok(columns)
    }

    /// The groups of all rows; the first `inputs` columns of the spans are those of the spec.
    pub fn group_rows(
        &self,
        spans: &FlowSpans,
        spec: &Arc<GroupBy>,
        inputs: usize,
    ) -> Result<GroupByState> {
        let threads = if spans.is_ordered() {
            1
        } else {
            self.context.threads.clamp(1, spans.len().max(1))
        };
        let budget = self.context.memory.engine_bytes();
        let scratch = self
            .scratch
            .scratch_with_budget(self.context.memory, budget / threads);
        let share = spans.len().div_ceil(threads).max(1);
        let read = |number: usize| {
            let mut state = GroupByState::new(spec, &scratch)?;
            let range = number * share..((number + 1) * share).min(spans.len());
            self.scan(
                spans,
                range,
                &mut |SpanRows {
                          columns,
                          rows,
                          first,
                      }| {
                    let updated = state.update(&columns[..inputs], rows, first);
                    updated.map_err(without_input_rows)?;
                    self.context.memory.check()?;
                    Ok(true)
                },
            )?;
            Ok(state)
        };
        let states = parallel_map(threads, spans.len().div_ceil(share), &read)?;
        let whole = self
            .scratch
            .scratch_with_budget(self.context.memory, budget);
        let mut merged: Option<GroupByState> = None;
        for state in states {
            match &mut merged {
                None => merged = Some(state.with_scratch(&whole)),
                Some(merged) => merged.merge(state)?,
            }
            self.context.memory.check()?;
        }
        match merged {
            Some(merged) => Ok(merged),
            None => GroupByState::new(spec, &whole),
        }
    }
}
