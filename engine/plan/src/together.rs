//! Windows that share one sort.

use std::collections::BTreeSet;

use arrow::datatypes::Field;

use crate::{Bound, Flow, Op, OpId, Stream, Window, needed};

/// Windows computed from one sort, and the window at whose position the rows are taken.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Together {
    /// The windows in step order.
    pub windows: Vec<OpId>,
    /// The window whose input rows are sorted.
    pub stand: OpId,
}

/// A window with those of `others` that can share its sort. They have the same series and order, nothing in between
/// changes rows or their inputs, and none reads another one's output.
pub fn sorted_together(bound: &Bound, first: OpId, others: &BTreeSet<OpId>) -> Together {
    let mut together = Together { windows: vec![first], stand: first };
    // Operation ids are in step order.
    for other in others.range(first + 1..) {
        let windows: Vec<OpId> = together.windows.iter().copied().chain([*other]).collect();
        // All windows move to the position of the other one, or it moves to theirs.
        let stands = [*other, together.stand];
        if let Some(stand) = stands.into_iter().find(|stand| can_share(bound, &windows, *stand)) {
            together = Together { windows, stand };
        }
    }
    together
}

/// Whether all windows of a group can be computed at the position of one of them.
fn can_share(bound: &Bound, group: &[OpId], stand: OpId) -> bool {
    let windows: Option<Vec<&Window>> = group.iter().map(|op| window(bound, *op)).collect();
    let Some(windows) = windows else { return false };
    let names: BTreeSet<&String> = windows.iter().flat_map(|window| &window.writes).map(Field::name).collect();
    let apart = names.len() == windows.iter().map(|window| window.writes.len()).sum::<usize>();
    let alike = windows.windows(2).all(|pair| pair[0].is_alike(pair[1]));
    let columns: Vec<&str> = windows.iter().flat_map(|window| window.columns()).map(String::as_str).collect();
    let flow = |op: OpId| bound.window_inputs.get(&op);
    let (Some(first), Some(stands)) = (group.first().and_then(|first| flow(*first)), flow(stand)) else { return false };
    let moves = |op: &OpId, window: &Window| {
        flow(*op).is_some_and(|own| {
            if *op < stand { keeps(bound, own, stands, window) } else { keeps(bound, stands, own, window) }
        })
    };
    let needs_none = |(from, to): (&Stream, &Stream)| {
        let (ops, _) = needed(bound, to, &columns);
        ops.iter().all(|position| *position < from.ops.len() || !bound.ops[to.ops[*position]].op.is_over_series())
    };
    apart
        && alike
        && group.iter().zip(&windows).all(|(op, window)| moves(op, window))
        && first.streams.iter().zip(&stands.streams).all(needs_none)
}

/// Whether the operations between a flow and a later one preserve the rows and the columns that a window reads.
fn keeps(bound: &Bound, from: &Flow, to: &Flow, window: &Window) -> bool {
    let reads = |name: &String| window.columns().any(|column| column == name);
    let keeps = |op: &OpId| match &bound.ops[*op].op {
        Op::Map(map) => !map.writes.iter().any(|field| reads(field.name())),
        Op::Window(window) => !window.writes.iter().any(|field| reads(field.name())),
        Op::AsOf(join) => !join.columns.iter().any(|(_, field)| reads(field.name())),
        Op::Project(columns) => {
            window.columns().all(|name| columns.iter().filter(|(_, to)| to == name).eq([&(name.clone(), name.clone())]))
        }
        Op::Keep(_) | Op::Expand(_) | Op::Gather(_) => false,
    };
    from.streams.len() == to.streams.len()
        && from.streams.iter().zip(&to.streams).all(|(from, to)| {
            from.base == to.base && to.ops.starts_with(&from.ops) && to.ops[from.ops.len()..].iter().all(keeps)
        })
}

fn window(bound: &Bound, op: OpId) -> Option<&Window> {
    match &bound.ops[op].op {
        Op::Window(window) => Some(window),
        _ => None,
    }
}
