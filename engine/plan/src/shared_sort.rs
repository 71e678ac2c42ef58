//! Windows that share one sort.

use std::collections::BTreeSet;

use arrow::datatypes::Field;

use crate::{BoundPipeline, NodeFlow, OpId, OpStream, PlanOp, WindowOp, slice_for_columns};

/// Windows computed from one sort, and the window at whose position the rows are taken.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SharedSort {
    /// The windows in step order.
    pub windows: Vec<OpId>,
    /// The window whose input rows are sorted.
    pub stand: OpId,
}

/// A window with those of `others` that can share its sort. They have the same series and order, nothing in between
/// changes rows or their inputs, and none reads another one's output.
pub fn find_shared_sort(bound: &BoundPipeline, first: OpId, others: &BTreeSet<OpId>) -> SharedSort {
    let mut shared_sort = SharedSort {
        windows: vec![first],
        stand: first,
    };
    // Operation ids are in step order.
    for other in others.range(first + 1..) {
        let windows: Vec<OpId> = shared_sort
            .windows
            .iter()
            .copied()
            .chain([*other])
            .collect();
        // All windows move to the position of the other one, or it moves to theirs.
        let stands = [*other, shared_sort.stand];
        if let Some(stand) = stands
            .into_iter()
            .find(|stand| can_share(bound, &windows, *stand))
        {
            shared_sort = SharedSort { windows, stand };
        }
    }
    shared_sort
}

/// True if all windows of a group can be computed at the position of one of them.
fn can_share(bound: &BoundPipeline, group: &[OpId], stand: OpId) -> bool {
    let windows: Option<Vec<&WindowOp>> = group.iter().map(|op| window(bound, *op)).collect();
    let Some(windows) = windows else { return false };
    let names: BTreeSet<&String> = windows
        .iter()
        .flat_map(|window| &window.writes)
        .map(Field::name)
        .collect();
    let are_distinct = names.len()
        == windows
            .iter()
            .map(|window| window.writes.len())
            .sum::<usize>();
    let alike = windows.windows(2).all(|pair| pair[0].is_alike(pair[1]));
    let columns: Vec<&str> = windows
        .iter()
        .flat_map(|window| window.columns())
        .map(String::as_str)
        .collect();
    let first_flow = group.first().and_then(|op| bound.window_inputs.get(op));
    let Some(first_flow) = first_flow else {
        return false;
    };
    let Some(stand_flow) = bound.window_inputs.get(&stand) else {
        return false;
    };
    if !are_distinct || !alike {
        return false;
    }
    for (op, window) in group.iter().zip(&windows) {
        if !can_move(bound, *op, window, stand, stand_flow) {
            return false;
        }
    }
    let mut streams = first_flow.streams.iter().zip(&stand_flow.streams);
    streams.all(|(from, to)| needs_no_window(bound, from, to, &columns))
}

/// True if a window has the same input rows at the position `stand`.
fn can_move(
    bound: &BoundPipeline,
    op: OpId,
    window: &WindowOp,
    stand: OpId,
    stand_flow: &NodeFlow,
) -> bool {
    let Some(window_flow) = bound.window_inputs.get(&op) else {
        return false;
    };
    if op < stand {
        preserves_window(bound, window_flow, stand_flow, window)
    } else {
        preserves_window(bound, stand_flow, window_flow, window)
    }
}

/// True if the columns at the end of `to` need no operation over series behind `from`.
fn needs_no_window(
    bound: &BoundPipeline,
    from: &OpStream,
    to: &OpStream,
    columns: &[&str],
) -> bool {
    let (positions, _) = slice_for_columns(bound, to, columns);
    positions.iter().all(|position| {
        *position < from.ops.len() || !bound.ops[to.ops[*position]].op.is_over_series()
    })
}

/// True if the operations between a flow and a later one preserve the rows and the columns that a
/// window reads.
fn preserves_window(
    bound: &BoundPipeline,
    from: &NodeFlow,
    to: &NodeFlow,
    window: &WindowOp,
) -> bool {
    if from.streams.len() != to.streams.len() {
        return false;
    }
    for (from, to) in from.streams.iter().zip(&to.streams) {
        if from.base != to.base || !to.ops.starts_with(&from.ops) {
            return false;
        }
        for op in &to.ops[from.ops.len()..] {
            if !preserves_inputs(&bound.ops[*op].op, window) {
                return false;
            }
        }
    }
    true
}

/// True if an operation preserves the rows and the columns that a window reads.
fn preserves_inputs(op: &PlanOp, window: &WindowOp) -> bool {
    match op {
        PlanOp::Map(_) | PlanOp::Window(_) | PlanOp::Join(_) => {
            !window.columns().any(|name| op.is_written(name))
        }
        PlanOp::Project(columns) => window.columns().all(|name| is_kept(columns, name)),
        PlanOp::Keep(_) | PlanOp::Expand(_) | PlanOp::Gather(_) => false,
    }
}

/// True if a projection keeps a column under its name.
fn is_kept(columns: &[(String, String)], name: &str) -> bool {
    let mut sources = columns.iter().filter(|(_, to)| to == name);
    matches!((sources.next(), sources.next()), (Some((from, _)), None) if from == name)
}

fn window(bound: &BoundPipeline, op: OpId) -> Option<&WindowOp> {
    match &bound.ops[op].op {
        PlanOp::Window(window) => Some(window),
        _ => None,
    }
}
