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
    let mut together = SharedSort {
        windows: vec![first],
        stand: first,
    };
    // Operation ids are in step order.
    for other in others.range(first + 1..) {
        let windows: Vec<OpId> = together.windows.iter().copied().chain([*other]).collect();
        // All windows move to the position of the other one, or it moves to theirs.
        let stands = [*other, together.stand];
        if let Some(stand) = stands
            .into_iter()
            .find(|stand| can_share(bound, &windows, *stand))
        {
            together = SharedSort { windows, stand };
        }
    }
    together
}

/// Whether all windows of a group can be computed at the position of one of them.
fn can_share(bound: &BoundPipeline, group: &[OpId], stand: OpId) -> bool {
    let windows: Option<Vec<&WindowOp>> = group.iter().map(|op| window(bound, *op)).collect();
    let Some(windows) = windows else { return false };
    let names: BTreeSet<&String> = windows
        .iter()
        .flat_map(|window| &window.writes)
        .map(Field::name)
        .collect();
    let apart = names.len()
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
    let flow = |op: OpId| bound.window_inputs.get(&op);
    let (Some(first), Some(stands)) = (group.first().and_then(|first| flow(*first)), flow(stand))
    else {
        return false;
    };
    let moves = |op: &OpId, window: &WindowOp| {
        flow(*op).is_some_and(|own| {
            if *op < stand {
                preserves_window(bound, own, stands, window)
            } else {
                preserves_window(bound, stands, own, window)
            }
        })
    };
    let needs_none = |(from, to): (&OpStream, &OpStream)| {
        let (ops, _) = slice_for_columns(bound, to, &columns);
        ops.iter().all(|position| {
            *position < from.ops.len() || !bound.ops[to.ops[*position]].op.is_over_series()
        })
    };
    apart
        && alike
        && group
            .iter()
            .zip(&windows)
            .all(|(op, window)| moves(op, window))
        && first.streams.iter().zip(&stands.streams).all(needs_none)
}

/// Whether the operations between a flow and a later one preserve the rows and the columns that a window reads.
fn preserves_window(
    bound: &BoundPipeline,
    from: &NodeFlow,
    to: &NodeFlow,
    window: &WindowOp,
) -> bool {
    let reads = |name: &String| window.columns().any(|column| column == name);
    let keeps = |op: &OpId| match &bound.ops[*op].op {
        PlanOp::Map(map) => !map.writes.iter().any(|field| reads(field.name())),
        PlanOp::Window(window) => !window.writes.iter().any(|field| reads(field.name())),
        PlanOp::Join(join) => !join.writes().any(|field| reads(field.name())),
        PlanOp::Project(columns) => window.columns().all(|name| {
            columns
                .iter()
                .filter(|(_, to)| to == name)
                .eq([&(name.clone(), name.clone())])
        }),
        PlanOp::Keep(_) | PlanOp::Expand(_) | PlanOp::Gather(_) => false,
    };
    from.streams.len() == to.streams.len()
        && from.streams.iter().zip(&to.streams).all(|(from, to)| {
            from.base == to.base
                && to.ops.starts_with(&from.ops)
                && to.ops[from.ops.len()..].iter().all(keeps)
        })
}

fn window(bound: &BoundPipeline, op: OpId) -> Option<&WindowOp> {
    match &bound.ops[op].op {
        PlanOp::Window(window) => Some(window),
        _ => None,
    }
}
