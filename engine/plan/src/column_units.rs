//! Checks that columns hold values of another column in its own units: forecasts by different means
//! are compared, and replace each other, only then.

use forebay_window::{WindowFunction, WindowStat};

use crate::{BoundPipeline, NodeFlow, OpId, PlanOp};

/// Kinds of steps that replace single values of a column, and leave its units as they are.
const UNIT_KEEPING_STEPS: [&str; 4] = ["impute", "knn_impute", "clip", "cast"];

/// Reason why a column does not hold values of a label.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum UnitMismatch {
    /// No window took its values from the label.
    NotOfLabel,
    /// The operation of this name changed its values.
    Changed(String),
    /// The operation of this name changed the values of the label.
    LabelChanged(String),
}

/// The name of the last of some operations that changed the values of a column; `None` where it has those that it had
/// before them.
pub fn changed_by<'b>(bound: &'b BoundPipeline, ops: &[OpId], column: &str) -> Option<&'b str> {
    let written = trace(bound, ops, column, Targets::Undone).written_by?;
    Some(bound.ops[ops[written]].label.as_str())
}

/// The name of the last of some operations that computed the values of a column; `None` if the
/// values come from before these operations or from another step.
pub fn computed_by<'b>(bound: &'b BoundPipeline, ops: &[OpId], column: &str) -> Option<&'b str> {
    let written = trace(bound, ops, column, Targets::Undone).written_by?;
    let operation = &bound.ops[ops[written]];
    let is_brought = match &operation.op {
        PlanOp::Join(_) => true,
        PlanOp::Map(map) => map.met.is_some(),
        _ => false,
    };
    (!is_brought).then_some(operation.label.as_str())
}

/// Reason why a column of a flow does not hold values of `label` at other times; `None` if it does.
pub fn unit_mismatch(
    bound: &BoundPipeline,
    flow: &NodeFlow,
    column: &str,
    label: &str,
) -> Option<UnitMismatch> {
    flow.streams.iter().find_map(|stream| {
        let own_trace = trace(bound, &stream.ops, column, Targets::Changed);
        let Some(at) = own_trace.written_by else {
            return Some(UnitMismatch::NotOfLabel);
        };
        let operation = &bound.ops[stream.ops[at]];
        let PlanOp::Window(window) = &operation.op else {
            return Some(UnitMismatch::Changed(operation.label.clone()));
        };
        let index = window
            .writes
            .iter()
            .position(|field| field.name() == &own_trace.name)?;
        let function = &window.plan.functions[index];
        if !keeps_units(&function.compute) {
            return Some(UnitMismatch::Changed(operation.label.clone()));
        }
        let of_label = trace(bound, &stream.ops[at..], label, Targets::Changed);
        match of_label.written_by {
            Some(changed) => Some(UnitMismatch::LabelChanged(
                bound.ops[stream.ops[at + changed]].label.clone(),
            )),
            None if window.reads.get(function.input) == Some(&of_label.name) => None,
            None => Some(UnitMismatch::NotOfLabel),
        }
    })
}

fn keeps_units(function: &WindowFunction) -> bool {
    match function {
        WindowFunction::Lag { .. } => true,
        WindowFunction::Window { stat, .. } => {
            matches!(
                stat,
                WindowStat::Mean
                    | WindowStat::Min
                    | WindowStat::Max
                    | WindowStat::First
                    | WindowStat::Last
            )
        }
        _ => false,
    }
}

/// A column, followed back through operations.
struct ColumnTrace {
    /// Name of the column before the last operation that was visited.
    name: String,
    /// The place of the operation that wrote its values.
    written_by: Option<usize>,
}

/// Meaning of a transformation of a target for its units.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Targets {
    /// Predictions undo it.
    Undone,
    /// It changes the values that models see.
    Changed,
}

fn trace(bound: &BoundPipeline, ops: &[OpId], column: &str, targets: Targets) -> ColumnTrace {
    let mut name = column.to_owned();
    for at in (0..ops.len()).rev() {
        let operation = &bound.ops[ops[at]];
        let is_written = match &operation.op {
            PlanOp::Project(columns) => {
                if let Some((from, _)) = columns.iter().find(|(_, to)| *to == name) {
                    name.clone_from(from);
                }
                false
            }
            PlanOp::Map(map) => {
                let kind = operation.label.rsplit('.').next().unwrap_or_default();
                let is_undone = targets == Targets::Undone && map.target.is_some();
                let keeps =
                    is_undone || UNIT_KEEPING_STEPS.contains(&kind) && map.reads.contains(&name);
                !keeps && map.is_written(&name)
            }
            PlanOp::Expand(expand) => expand.is_written(&name),
            PlanOp::Window(window) => window.is_written(&name),
            PlanOp::Series(series) => series.is_written(&name),
            PlanOp::Join(join) => join.is_written(&name),
            PlanOp::Keep(_) | PlanOp::Gather(_) => false,
        };
        if is_written {
            return ColumnTrace {
                name,
                written_by: Some(at),
            };
        }
    }
    ColumnTrace {
        name,
        written_by: None,
    }
}
