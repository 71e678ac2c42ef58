//! Steps that a feed applies to rows that a run has written for a step before.
//!
//! Learned transforms change every row when their findings change. If a step only adds row-wise
//! operations, its feed reads the unchanged output of the step before, and applies them while
//! reading.

use std::sync::Arc;

use arrow::datatypes::{Field, Schema};
use forebay_contract::ScanRequest;
use forebay_execute::{SourceInput, stop_check_of};
use forebay_model::{IdBuilder, Result, logical_type};
use forebay_plan::{
    BaseDataset, BoundPipeline, ChainContext, ColumnTap, OpChain, OpStream, PlanOp,
    slice_for_columns,
};

use crate::feed::planner::{FeedPlanner, READ_ROWS_MAX, distinct};
use crate::feed::source_blocks::{RowTransform, ScanPlan};

/// The operations that a step adds to the rows of a step before.
pub(super) struct LateSteps {
    /// The pipeline with the output as one more base.
    bound: BoundPipeline,
    /// Operations that are applied to the rows of the output.
    stream: OpStream,
    /// The hidden column of the selected part.
    part: Option<String>,
}

/// Number of operations of its only stream that a step shares with a step before it, if all others
/// are row-wise.
pub(crate) fn shared_operations(
    bound: &BoundPipeline,
    from: &str,
    output_step: &str,
) -> Option<usize> {
    let flow = bound.flows.get(from)?;
    let written = bound.flows.get(output_step)?;
    let [stream] = flow.streams.as_slice() else {
        return None;
    };
    let [head] = written.streams.as_slice() else {
        return None;
    };
    let is_row_wise = |op: &usize| match &bound.ops[*op].op {
        PlanOp::Map(_) | PlanOp::Keep(_) | PlanOp::Expand(_) | PlanOp::Project(_) => true,
        PlanOp::Window(_) | PlanOp::Series(_) | PlanOp::Join(_) | PlanOp::Gather(_) => false,
    };
    let follows = stream.base == head.base && stream.ops.starts_with(&head.ops);
    (follows && stream.ops[head.ops.len()..].iter().all(is_row_wise)).then_some(head.ops.len())
}

/// A selected part of the split in an output that does not mark parts.
pub(super) struct UntoldPart {
    /// The hidden column of its rows.
    pub column: String,
    /// Operation that computes this column, where the split was applied before the rows were
    /// written.
    pub split_op: Option<usize>,
}

impl LateSteps {
    /// Steps of `from` after the rows of `before`, of which an output holds the visible columns;
    /// `None` where they cannot be applied late.
    pub fn new(
        bound: &BoundPipeline,
        from: &str,
        output_step: &str,
        part: Option<UntoldPart>,
    ) -> Option<LateSteps> {
        let shared = shared_operations(bound, from, output_step)?;
        let written = bound.flows.get(output_step)?.schema.clone();
        let mut bound = bound.clone();
        let mut ops = bound.flows.get(from)?.streams.first()?.ops[shared..].to_vec();
        let part = match part {
            None => None,
            Some(UntoldPart {
                column: hidden,
                split_op,
            }) => {
                ops.splice(0..0, split_op);
                let makes = |op: &usize| match &bound.ops[*op].op {
                    PlanOp::Map(map) => map.is_written(&hidden),
                    _ => false,
                };
                ops.iter().any(makes).then_some(())?;
                Some(hidden)
            }
        };
        bound
            .bases
            .push(BaseDataset::Source(output_step.to_owned()));
        bound.base_schemas.push(written);
        let stream = OpStream {
            base: bound.bases.len() - 1,
            ops: ops.into(),
        };
        Some(LateSteps {
            bound,
            stream,
            part,
        })
    }

    /// True if the columns of an output have the types that they had when they were written.
    pub fn suits(&self, output: &Schema) -> bool {
        let mut fields = self.bound.base_schemas[self.stream.base].fields().iter();
        let same = |field: &Arc<Field>| {
            let output_field = output.field_with_name(field.name());
            output_field.is_ok_and(|output_field| {
                logical_type(output_field.data_type()) == logical_type(field.data_type())
            })
        };
        fields.all(same)
    }

    /// True if a step, or the selection of a part, can drop or add rows.
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
    /// Adds everything that late steps depend on to an id. Rules and profiles change no row: their
    /// findings are neither needed nor known here.
    pub(super) fn add_late_steps(&self, late: &LateSteps, id: &mut IdBuilder) -> Result<()> {
        for op in &late.stream.ops {
            let op = &late.bound.ops[*op];
            if let PlanOp::Map(map) = &op.op
                && map.writes.is_empty()
            {
                continue;
            }
            id.id(op.identity);
            for ask in &op.asks {
                id.id(self.state.digest(self.program, *ask)?);
            }
        }
        Ok(())
    }

    /// Plan that reads columns from an output with late steps applied; for sequences, with the rows
    /// of other parts.
    pub(super) fn late_plan(
        &self,
        output: &SourceInput,
        late: &LateSteps,
        columns: &[String],
        flagged: bool,
    ) -> Result<ScanPlan> {
        let (mut columns, positions) = distinct(columns);
        let flagged = flagged && late.part.is_some();
        let part = if flagged { None } else { late.part.clone() };
        if flagged {
            columns.extend(late.part.clone());
        }
        let tapped: Vec<&str> = columns
            .iter()
            .chain(&late.part)
            .map(String::as_str)
            .collect();
        let (ops, base_columns) = slice_for_columns(&late.bound, &late.stream, &tapped);
        let want = ColumnTap {
            after: late.stream.ops.len(),
            columns,
            part,
            marks_unfound: false,
        };
        let finding = |ask| self.state.finding(self.program, ask);
        let check_stop = stop_check_of(&self.io);
        let context = ChainContext {
            finding: &finding,
            row_order: &|op| self.state.row_order(op),
            admit: None,
            check_stop: Some(&check_stop),
        };
        let chain = OpChain::new(
            &late.bound,
            &late.stream,
            &ops,
            &base_columns,
            &[want],
            context,
        )?;
        let request = ScanRequest {
            columns: base_columns,
            schema: output.dataset.schema.clone(),
            pruning: Vec::new(),
            batch_rows: self.session.options.batch_rows.min(READ_ROWS_MAX),
            row_keys: false,
        };
        let transform = RowTransform::Chain(Box::new(chain));
        Ok(ScanPlan {
            input: output.clone(),
            request,
            transform,
            positions,
            flagged,
        })
    }

    /// Plans that read only the columns that decide which rows there are; `None` if the steps keep
    /// all rows.
    pub(super) fn late_counting_plans(
        &self,
        output: &SourceInput,
        late: &LateSteps,
    ) -> Result<Option<Vec<ScanPlan>>> {
        if late.changes_rows() {
            Ok(Some(vec![self.late_plan(output, late, &[], false)?]))
        } else {
            Ok(None)
        }
    }
}
