//! Steps that a feed applies to rows that a run has written for a step before.
//!
//! Learned transforms change every row when what they learned changes. Where a step only adds operations that look at
//! one row at a time, its feed reads the output of the step before, which stands, and applies them on the way.

use std::sync::Arc;

use arrow::datatypes::{Field, Schema};
use forebay_model::{IdBuilder, Result, logical_type};
use forebay_plan::{
    BaseDataset, BoundPipeline, ChainContext, ColumnTap, OpChain, OpId, OpStream, PlanOp,
    slice_for_columns,
};
use forebay_storage::ScanRequest;

use crate::feed::output_blocks::{CommittedOutput, PartCondition};
use crate::feed::source_blocks::{RowTransform, ScanPlan};
use crate::feed::{FeedPlanner, READ_ROWS_MAX, distinct};

/// The operations that a step adds to the rows of a step before.
pub(super) struct LateSteps {
    /// The pipeline with the output as one more base.
    bound: BoundPipeline,
    /// What is applied to it.
    stream: OpStream,
    /// The hidden column of the part that is wanted.
    part: Option<String>,
}

/// How many operations of its only stream a step shares with a step before it, if all others look at one row at a time.
pub(crate) fn shared_operations(bound: &BoundPipeline, from: &str, before: &str) -> Option<usize> {
    let (flow, written) = (bound.flows.get(from)?, bound.flows.get(before)?);
    let ([stream], [head]) = (flow.streams.as_slice(), written.streams.as_slice()) else {
        return None;
    };
    let is_row_wise = |op: &usize| match &bound.ops[*op].op {
        PlanOp::Map(_) | PlanOp::Keep(_) | PlanOp::Expand(_) | PlanOp::Project(_) => true,
        PlanOp::Window(_) | PlanOp::Join(_) | PlanOp::Gather(_) => false,
    };
    let follows = stream.base == head.base && stream.ops.starts_with(&head.ops);
    (follows && stream.ops[head.ops.len()..].iter().all(is_row_wise)).then_some(head.ops.len())
}

/// A part of the split that is wanted of an output that does not tell parts.
pub(super) struct UntoldPart {
    /// The hidden column of its rows.
    pub column: String,
    /// What makes this column, where the split was applied before the rows were written.
    pub condition: Option<PartCondition>,
}

impl LateSteps {
    /// Those of `from` after the rows of `before`, of which an output holds the visible columns; `None` where they
    /// cannot be applied late.
    pub fn new(
        bound: &BoundPipeline,
        from: &str,
        before: &str,
        part: Option<UntoldPart>,
    ) -> Option<LateSteps> {
        let shared = shared_operations(bound, from, before)?;
        let written = bound.flows.get(before)?.schema.clone();
        let mut bound = bound.clone();
        let mut ops = bound.flows.get(from)?.streams.first()?.ops[shared..].to_vec();
        let part = match part {
            None => None,
            Some(UntoldPart {
                column: hidden,
                condition,
            }) => {
                ops.splice(0..0, condition.map(|condition| condition.op));
                let makes = |op: &usize| match &bound.ops[*op].op {
                    PlanOp::Map(map) => map.writes.iter().any(|field| *field.name() == hidden),
                    _ => false,
                };
                ops.iter().any(makes).then_some(())?;
                Some(hidden)
            }
        };
        bound.bases.push(BaseDataset::Source(before.to_owned()));
        bound.base_schemas.push(written);
        let stream = OpStream {
            base: bound.bases.len() - 1,
            ops,
        };
        Some(LateSteps {
            bound,
            stream,
            part,
        })
    }

    /// Whether the columns of an output have the types that they had when they were written.
    pub fn suits(&self, output: &Schema) -> bool {
        let mut fields = self.bound.base_schemas[self.stream.base].fields().iter();
        let same = |field: &Arc<Field>| {
            let there = output.field_with_name(field.name());
            there.is_ok_and(|there| {
                logical_type(there.data_type()) == logical_type(field.data_type())
            })
        };
        fields.all(same)
    }

    /// Whether it decides which rows there are.
    fn changes_rows(&self) -> bool {
        self.part.is_some()
            || self
                .stream
                .ops
                .iter()
                .any(|op| self.bound.ops[*op].op.changes_rows())
    }
}

impl FeedPlanner<'_> {
    /// Adds everything that late steps depend on to an id. Rules and profiles change no row: what they learn is neither
    /// needed nor known here.
    pub(super) fn add_late_steps(&self, late: &LateSteps, id: &mut IdBuilder) -> Result<()> {
        let changes = |op: &&OpId| !matches!(&late.bound.ops[**op].op, PlanOp::Map(map) if map.writes.is_empty());
        for op in late.stream.ops.iter().filter(changes) {
            id.id(late.bound.ops[*op].identity);
            for ask in &late.bound.ops[*op].asks {
                id.id(self.state.digest(self.program, *ask)?);
            }
        }
        Ok(())
    }

    /// How columns are read from an output, with late steps applied; where there are sequences, with the rows of other
    /// parts.
    pub(super) fn late_plan(
        &self,
        committed: &CommittedOutput,
        late: &LateSteps,
        columns: &[String],
        flagged: bool,
    ) -> Result<ScanPlan> {
        let (mut columns, places) = distinct(columns);
        let flagged = flagged && late.part.is_some();
        let part = if flagged { None } else { late.part.clone() };
        if flagged {
            columns.extend(late.part.clone());
        }
        let wanted: Vec<&str> = columns
            .iter()
            .chain(&late.part)
            .map(String::as_str)
            .collect();
        let (ops, base_columns) = slice_for_columns(&late.bound, &late.stream, &wanted);
        let want = ColumnTap {
            after: late.stream.ops.len(),
            columns,
            part,
            marks_unfound: false,
        };
        let finding = |ask| self.state.finding(self.program, ask);
        let told = ChainContext {
            finding: &finding,
            row_order: &|op| self.state.row_order(op),
        };
        let chain = OpChain::new(
            &late.bound,
            &late.stream,
            &ops,
            &base_columns,
            &[want],
            told,
        )?;
        let request = ScanRequest {
            columns: base_columns,
            schema: committed.input.dataset.schema.clone(),
            pruning: Vec::new(),
            batch_rows: self.session.options.batch_rows.min(READ_ROWS_MAX),
            row_keys: false,
        };
        let transform = RowTransform::Chain(Box::new(chain));
        Ok(ScanPlan {
            input: committed.input.clone(),
            request,
            transform,
            places,
            flagged,
        })
    }

    /// The same with nothing but what decides which rows there are; `None` where nothing does.
    pub(super) fn late_counting_plans(
        &self,
        committed: &CommittedOutput,
        late: &LateSteps,
    ) -> Result<Option<Vec<ScanPlan>>> {
        match late.changes_rows() {
            true => Ok(Some(vec![self.late_plan(committed, late, &[], false)?])),
            false => Ok(None),
        }
    }
}
