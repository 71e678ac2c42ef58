//! Backward slices: the least that must be read and computed for some columns.

use std::collections::BTreeSet;

use datafusion::logical_expr::Expr;

use crate::split::PART_PREFIX;
use crate::{Bound, BoundAsk, Op, Scan, Stream};

/// Columns wanted at a point of a stream.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Wanted<'a> {
    /// After how many of the stream's operations.
    pub after: usize,
    /// Which.
    pub columns: Vec<&'a str>,
}

impl BoundAsk {
    /// What the question wants after so many operations.
    pub(crate) fn wanted(&self, after: usize) -> Wanted<'_> {
        Wanted { after, columns: self.ask.inputs.iter().chain(&self.part).map(String::as_str).collect() }
    }
}

/// What a stream has to do for what is wanted of it.
#[derive(Debug, Clone, Default)]
pub(crate) struct Slice {
    /// Positions in the stream's operations, ascending.
    pub ops: Vec<usize>,
    /// Columns of the base that are read, in the order of its schema.
    pub columns: Vec<String>,
    /// Those of them that decide which rows there are.
    pub row_columns: BTreeSet<String>,
}

/// Walks the stream backward: an operation is needed when it changes which rows there are, or
/// when something that it writes is wanted after it.
pub(crate) fn slice(bound: &Bound, stream: &Stream, wanted: &[Wanted<'_>]) -> Slice {
    let last = wanted.iter().map(|want| want.after).max().unwrap_or(0);
    let mut live: BTreeSet<String> = BTreeSet::new();
    let mut live_rows: BTreeSet<String> = BTreeSet::new();
    let mut ops = Vec::new();
    for position in (0..=last).rev() {
        for want in wanted.iter().filter(|want| want.after == position) {
            live.extend(want.columns.iter().map(|column| (*column).to_owned()));
            live_rows.extend(want.columns.iter().filter(|c| c.starts_with(PART_PREFIX)).map(|c| (*c).to_owned()));
        }
        let Some(before) = position.checked_sub(1) else { break };
        match &bound.ops[stream.ops[before]].op {
            Op::Map(map) => {
                let writes = |set: &BTreeSet<String>| map.writes.iter().any(|field| set.contains(field.name()));
                if writes(&live) {
                    ops.push(before);
                    for set in [&mut live, &mut live_rows] {
                        if writes(set) {
                            set.retain(|name| !map.writes.iter().any(|field| field.name() == name));
                            set.extend(map.reads.iter().cloned());
                        }
                    }
                }
            }
            Op::Keep(keep) => {
                ops.push(before);
                live.extend(keep.reads.iter().cloned());
                live_rows.extend(keep.reads.iter().cloned());
            }
            Op::Expand(expand) => {
                ops.push(before);
                for set in [&mut live, &mut live_rows] {
                    set.retain(|name| !expand.writes.iter().any(|field| field.name() == name));
                    set.extend(expand.reads.iter().cloned());
                }
            }
            Op::Project(columns) => {
                ops.push(before);
                for set in [&mut live, &mut live_rows] {
                    let renamed = set.iter().map(|name| {
                        let back = columns.iter().find(|(_, to)| to == name);
                        back.map_or_else(|| name.clone(), |(from, _)| from.clone())
                    });
                    *set = renamed.collect();
                }
            }
            // Its outputs are wanted one by one, what it reads is read as a whole: its state must
            // not depend on who wants what.
            Op::Window(window) => {
                let writes = |set: &BTreeSet<String>| window.writes.iter().any(|field| set.contains(field.name()));
                if writes(&live) {
                    ops.push(before);
                    for set in [&mut live, &mut live_rows] {
                        if writes(set) {
                            set.retain(|name| !window.writes.iter().any(|field| field.name() == name));
                            set.extend(window.columns().cloned());
                        }
                    }
                }
            }
            // Read by the sorts before; nothing of it is needed where the outputs are given.
            Op::AsOf(join) => {
                let writes = |set: &BTreeSet<String>| join.columns.iter().any(|(_, field)| set.contains(field.name()));
                if writes(&live) {
                    ops.push(before);
                    for set in [&mut live, &mut live_rows] {
                        set.retain(|name| !join.columns.iter().any(|(_, field)| field.name() == name));
                    }
                }
            }
            Op::Gather(_) => {}
        }
    }
    ops.reverse();
    let names = bound.base_schemas[stream.base].fields().iter().map(|field| field.name());
    let columns = names.filter(|name| live.contains(*name)).cloned().collect();
    Slice { ops, columns, row_columns: live_rows }
}

/// Conditions that hold for every row that matters to a scan, over columns of its base: those at
/// the head of its one stream, before anything else changes a column.
pub fn pruning(bound: &Bound, scan: &Scan) -> Vec<Expr> {
    let [stream] = scan.streams.as_slice() else { return Vec::new() };
    let mut written: BTreeSet<&str> = BTreeSet::new();
    let mut conditions = Vec::new();
    for (position, op) in stream.stream.ops.iter().enumerate() {
        // Questions asked before a condition see the rows that it removes.
        if stream.taps.iter().any(|(_, after)| *after <= position) {
            break;
        }
        match &bound.ops[*op].op {
            Op::Keep(keep) => {
                if keep.reads.iter().all(|column| !written.contains(column.as_str())) {
                    conditions.extend(keep.condition.clone());
                }
            }
            Op::Map(map) => written.extend(map.writes.iter().map(|field| field.name().as_str())),
            // A window needs the rows that a later condition removes.
            Op::Window(_) | Op::AsOf(_) | Op::Expand(_) | Op::Project(_) | Op::Gather(_) => break,
        }
    }
    conditions
}

/// What a stream has to do for columns wanted at its end: positions of its operations, and the
/// base's columns that are read.
pub fn needed(bound: &Bound, stream: &Stream, columns: &[&str]) -> (Vec<usize>, Vec<String>) {
    let slice = slice(bound, stream, &[Wanted { after: stream.ops.len(), columns: columns.to_vec() }]);
    (slice.ops, slice.columns)
}
