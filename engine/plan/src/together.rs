//! Windows whose rows are sorted once for all of them.

use std::collections::BTreeSet;

use arrow::datatypes::Field;

use crate::{Bound, Flow, Op, OpId, Stream, Window, needed};

/// Windows that are computed from one sort, and the one of them whose rows are sorted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Together {
    /// The windows in the order of their steps.
    pub windows: Vec<OpId>,
    /// Where the rows are taken.
    pub stand: OpId,
}

/// A window and those of `others` that can be computed with it from one sort: they are alike, nothing
/// in between changes rows or what they read, and none reads what another one gives.
pub fn sorted_together(bound: &Bound, first: OpId, others: &BTreeSet<OpId>) -> Together {
    let mut together = Together { windows: vec![first], stand: first };
    // Windows are numbered in the order of their steps.
    for other in others.range(first + 1..) {
        let windows: Vec<OpId> = together.windows.iter().copied().chain([*other]).collect();
        // All come down to the other one, or it goes up to them.
        let stands = [*other, together.stand];
        if let Some(stand) = stands.into_iter().find(|stand| can_share(bound, &windows, *stand)) {
            together = Together { windows, stand };
        }
    }
    together
}

/// Whether windows can all be computed where one of them stands.
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

/// Whether the operations from one flow to another that goes on from it leave the rows as they are,
/// and the columns of a window.
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
