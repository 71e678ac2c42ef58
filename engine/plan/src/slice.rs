//! Backward slices: the fewest columns to read and operations to run for some columns.

use std::collections::BTreeSet;

use datafusion::logical_expr::Expr;

use crate::split::PART_PREFIX;
use crate::{BoundAnalyzer, BoundPipeline, ColumnScan, OpStream, PlanOp};

/// Columns requested at a point of a stream.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct SliceTarget<'a> {
    /// Number of the stream's operations before the point.
    pub after: usize,
    /// Column names.
    pub columns: Vec<&'a str>,
}

impl BoundAnalyzer {
    /// The columns that the analyzer reads after `after` operations.
    pub(crate) fn slice_target(&self, after: usize) -> SliceTarget<'_> {
        SliceTarget {
            after,
            columns: self
                .ask
                .inputs
                .iter()
                .chain(&self.part)
                .map(String::as_str)
                .collect(),
        }
    }
}

/// The slice of a stream.
#[derive(Debug, Clone, Default)]
pub(crate) struct StreamSlice {
    /// Indices into the stream's operations, ascending.
    pub ops: Vec<usize>,
    /// Columns of the base to read, in the order of its schema.
    pub columns: Vec<String>,
    /// Columns that select rows.
    pub row_columns: BTreeSet<String>,
    /// All columns that are read before the first operation, those of the base or not.
    pub live: BTreeSet<String>,
}

/// Slices a stream backward. An operation is needed if it selects rows, or if one of its outputs is needed after
/// it.
pub(crate) fn slice_stream(
    bound: &BoundPipeline,
    stream: &OpStream,
    wanted: &[SliceTarget<'_>],
) -> StreamSlice {
    let last = wanted.iter().map(|want| want.after).max().unwrap_or(0);
    let mut live: BTreeSet<String> = BTreeSet::new();
    let mut live_rows: BTreeSet<String> = BTreeSet::new();
    let mut ops = Vec::new();
    for position in (0..=last).rev() {
        for want in wanted.iter().filter(|want| want.after == position) {
            live.extend(want.columns.iter().map(|column| (*column).to_owned()));
            live_rows.extend(
                want.columns
                    .iter()
                    .filter(|c| c.starts_with(PART_PREFIX))
                    .map(|c| (*c).to_owned()),
            );
        }
        let Some(before) = position.checked_sub(1) else {
            break;
        };
        match &bound.ops[stream.ops[before]].op {
            PlanOp::Map(map) => {
                let writes = |set: &BTreeSet<String>| {
                    map.writes.iter().any(|field| set.contains(field.name()))
                };
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
            PlanOp::Keep(keep) => {
                ops.push(before);
                live.extend(keep.reads.iter().cloned());
                live_rows.extend(keep.reads.iter().cloned());
            }
            PlanOp::Expand(expand) => {
                ops.push(before);
                for set in [&mut live, &mut live_rows] {
                    set.retain(|name| !expand.writes.iter().any(|field| field.name() == name));
                    set.extend(expand.reads.iter().cloned());
                }
            }
            PlanOp::Project(columns) => {
                ops.push(before);
                for set in [&mut live, &mut live_rows] {
                    let renamed = set.iter().map(|name| {
                        let back = columns.iter().find(|(_, to)| to == name);
                        back.map_or_else(|| name.clone(), |(from, _)| from.clone())
                    });
                    *set = renamed.collect();
                }
            }
            // Outputs are sliced one by one, but inputs are read as a whole: the window state must not depend on
            // which outputs are requested.
            PlanOp::Window(window) => {
                let writes = |set: &BTreeSet<String>| {
                    window.writes.iter().any(|field| set.contains(field.name()))
                };
                if writes(&live) {
                    ops.push(before);
                    for set in [&mut live, &mut live_rows] {
                        if writes(set) {
                            set.retain(|name| {
                                !window.writes.iter().any(|field| field.name() == name)
                            });
                            set.extend(window.columns().cloned());
                        }
                    }
                }
            }
            // The sorts before have read its inputs; with precomputed outputs none of them is needed.
            PlanOp::Join(join) => {
                let writes =
                    |set: &BTreeSet<String>| join.writes().any(|field| set.contains(field.name()));
                if writes(&live) {
                    ops.push(before);
                    for set in [&mut live, &mut live_rows] {
                        set.retain(|name| !join.is_written(name));
                    }
                }
            }
            PlanOp::Gather(_) => {}
        }
    }
    ops.reverse();
    let names = bound.base_schemas[stream.base]
        .fields()
        .iter()
        .map(|field| field.name());
    let columns = names.filter(|name| live.contains(*name)).cloned().collect();
    StreamSlice {
        ops,
        columns,
        row_columns: live_rows,
        live,
    }
}

/// Pruning conditions: they hold for every row that a scan needs, over columns of its base. Taken from the filters
/// at the start of its only stream, before anything else changes a column.
pub fn pruning_conditions(bound: &BoundPipeline, scan: &ColumnScan) -> Vec<Expr> {
    let [stream] = scan.streams.as_slice() else {
        return Vec::new();
    };
    let mut written: BTreeSet<&str> = BTreeSet::new();
    let mut conditions = Vec::new();
    for (position, op) in stream.stream.ops.iter().enumerate() {
        // An analyzer before a filter also reads the rows that the filter removes.
        if stream.taps.iter().any(|(_, after)| *after <= position) {
            break;
        }
        match &bound.ops[*op].op {
            PlanOp::Keep(keep) => {
                if keep
                    .reads
                    .iter()
                    .all(|column| !written.contains(column.as_str()))
                {
                    conditions.extend(keep.condition.clone());
                }
            }
            PlanOp::Map(map) => {
                written.extend(map.writes.iter().map(|field| field.name().as_str()))
            }
            // A window needs the rows that a later filter removes.
            PlanOp::Window(_)
            | PlanOp::Join(_)
            | PlanOp::Expand(_)
            | PlanOp::Project(_)
            | PlanOp::Gather(_) => break,
        }
    }
    conditions
}

/// The columns after `after` operations of a stream that columns at its end are computed of.
pub fn live_columns(
    bound: &BoundPipeline,
    stream: &OpStream,
    after: usize,
    columns: &[&str],
) -> BTreeSet<String> {
    let behind = OpStream {
        base: stream.base,
        ops: stream.ops[after..].to_vec(),
    };
    let wanted = SliceTarget {
        after: behind.ops.len(),
        columns: columns.to_vec(),
    };
    slice_stream(bound, &behind, &[wanted]).live
}

/// Slices a stream for columns at its end. Returns the indices of the operations and the columns of the base.
pub fn slice_for_columns(
    bound: &BoundPipeline,
    stream: &OpStream,
    columns: &[&str],
) -> (Vec<usize>, Vec<String>) {
    let slice = slice_stream(
        bound,
        stream,
        &[SliceTarget {
            after: stream.ops.len(),
            columns: columns.to_vec(),
        }],
    );
    (slice.ops, slice.columns)
}
