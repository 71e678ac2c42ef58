//! Windows that share one sort.

use std::collections::BTreeSet;

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
        let mut windows = shared_sort.windows.clone();
        windows.push(*other);
        // All windows move to the position of the other one, or it moves to theirs.
        for stand in [*other, shared_sort.stand] {
            if can_share(bound, &windows, stand) {
                shared_sort = SharedSort { windows, stand };
                break;
            }
        }
    }
    shared_sort
}

/// True if all windows of a group can be computed at the position of one of them.
fn can_share(bound: &BoundPipeline, group: &[OpId], stand: OpId) -> bool {
    let mut windows = Vec::with_capacity(group.len());
    for op in group {
        let Some(window) = window(bound, *op) else {
            return false;
        };
        windows.push(window);
    }
    let first_flow = group.first().and_then(|op| bound.window_inputs.get(op));
    let Some(first_flow) = first_flow else {
        return false;
    };
    let Some(stand_flow) = bound.window_inputs.get(&stand) else {
        return false;
    };
    let are_alike = windows.windows(2).all(|pair| pair[0].is_alike(pair[1]));
    if !are_alike || !writes_distinct_columns(&windows) {
        return false;
    }
    let mut columns: Vec<&str> = Vec::new();
    for window in &windows {
        columns.extend(window.columns().map(String::as_str));
    }
    for (op, window) in group.iter().zip(&windows) {
        if !can_move(bound, *op, window, stand, stand_flow) {
            return false;
        }
    }
    let mut streams = first_flow.streams.iter().zip(&stand_flow.streams);
    streams.all(|(from, to)| needs_no_window(bound, from, to, &columns))
}

fn writes_distinct_columns(windows: &[&WindowOp]) -> bool {
    let mut names = BTreeSet::new();
    for window in windows {
        for field in &window.writes {
            if !names.insert(field.name()) {
                return false;
            }
        }
    }
    true
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
    for position in positions {
        if position >= from.ops.len() && bound.ops[to.ops[position]].op.is_over_series() {
            return false;
        }
    }
    true
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
        PlanOp::Map(_) | PlanOp::Window(_) | PlanOp::Series(_) | PlanOp::Join(_) => {
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
