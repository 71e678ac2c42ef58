//! Whether columns hold values of another column in its own units: forecasts by different means are compared, and stand
//! in for each other, where they do.

use forebay_window::{WindowFunction, WindowStat};

use crate::{BoundPipeline, NodeFlow, OpId, PlanOp};

/// Kinds of steps that replace single values of a column, and leave its units as they are.
const UNIT_KEEPING_STEPS: [&str; 3] = ["impute", "clip", "cast"];

/// Why a column does not hold values of a label.
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
    let written = trace(bound, ops, column).written_by?;
    Some(bound.ops[ops[written]].label.as_str())
}

/// The name of the last of some operations that computed the values of a column; `None` where it has those that it had
/// before them, or those of another step.
pub fn computed_by<'b>(bound: &'b BoundPipeline, ops: &[OpId], column: &str) -> Option<&'b str> {
    let written = trace(bound, ops, column).written_by?;
    let operation = &bound.ops[ops[written]];
    let is_brought = match &operation.op {
        PlanOp::Join(_) => true,
        PlanOp::Map(map) => map.met.is_some(),
        _ => false,
    };
    (!is_brought).then_some(operation.label.as_str())
}

/// Why a column of a flow does not hold values of `label` at other times; `None` where it does.
pub fn unit_mismatch(
    bound: &BoundPipeline,
    flow: &NodeFlow,
    column: &str,
    label: &str,
) -> Option<UnitMismatch> {
    flow.streams.iter().find_map(|stream| {
        let own = trace(bound, &stream.ops, column);
        let Some(at) = own.written_by else {
            return Some(UnitMismatch::NotOfLabel);
        };
        let operation = &bound.ops[stream.ops[at]];
        let PlanOp::Window(window) = &operation.op else {
            return Some(UnitMismatch::Changed(operation.label.clone()));
        };
        let place = window
            .writes
            .iter()
            .position(|field| field.name() == &own.name)?;
        let function = &window.plan.functions[place];
        if !keeps_units(&function.compute) {
            return Some(UnitMismatch::Changed(operation.label.clone()));
        }
        let of_label = trace(bound, &stream.ops[at..], label);
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
    /// Its name before the last operation that was looked at.
    name: String,
    /// The place of the operation that wrote its values.
    written_by: Option<usize>,
}

fn trace(bound: &BoundPipeline, ops: &[OpId], column: &str) -> ColumnTrace {
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
                let keeps = UNIT_KEEPING_STEPS.contains(&kind) && map.reads.contains(&name);
                !keeps && map.writes.iter().any(|field| *field.name() == name)
            }
            PlanOp::Expand(expand) => expand.writes.iter().any(|field| *field.name() == name),
            PlanOp::Window(window) => window.writes.iter().any(|field| *field.name() == name),
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
