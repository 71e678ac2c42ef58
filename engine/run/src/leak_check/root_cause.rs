//! Finds the step that looked ahead behind a column that changed.

use std::collections::BTreeSet;

use forebay_model::Pipeline;
use forebay_plan::{
    BaseDataset, BoundPipeline, MatchDirection, NodeFlow, OpId, OpStream, PlanOp, part_name,
};

use crate::leak_check::report::LeakedColumn;

/// State of the search through the columns behind one column.
struct LookaheadSearch<'a> {
    bound: &'a BoundPipeline,
    /// The analyzers whose findings depend on the future.
    learned: &'a BTreeSet<usize>,
    seen: BTreeSet<(usize, String)>,
    /// The nearest operation that surely looks ahead.
    sure: Option<OpId>,
    /// The nearest one that may: tables by time or key hold the future, and look it up rightly.
    perhaps: Option<OpId>,
}

/// Names the step that wrote a column and the step that looked ahead, with a remedy.
pub(super) fn explain_leak(
    pipeline: &Pipeline,
    bound: &BoundPipeline,
    flow: &NodeFlow,
    learned: &BTreeSet<usize>,
    future: &str,
    moved: &mut LeakedColumn,
) {
    let mut search = LookaheadSearch {
        bound,
        learned,
        seen: BTreeSet::new(),
        sure: None,
        perhaps: None,
    };
    let mut writer = None;
    for stream in &flow.streams {
        let column_writer = search.trace_column(stream, stream.ops.len(), &moved.column);
        writer = writer.or(column_writer);
    }
    moved.step = writer.map(|op| bound.ops[op].label.clone());
    let culprit = search.sure.or(search.perhaps);
    moved.at = culprit.or(writer).and_then(|op| bound.ops[op].at.clone());
    let Some(culprit) = culprit else {
        moved.hint = "compute it from rows at or before its own".to_owned();
        return;
    };
    let label = &bound.ops[culprit].label;
    let learned_asks = bound.ops[culprit]
        .asks
        .iter()
        .filter(|ask| learned.contains(ask));
    let part = learned_asks
        .filter_map(|ask| bound.asks[*ask].part.as_deref())
        .next();
    let (cause, hint) = match &bound.ops[culprit].op {
        PlanOp::Map(_) => match part.map(part_name) {
            Some(part) => (
                format!("`{label}` learned from `{part}`, which has rows {future}"),
                format!("let `{part}` end earlier, or check a later time with `--at`"),
            ),
            None if pipeline.split.is_some() => (
                format!("`{label}` learned from all rows, those {future} too"),
                "set `fit_on` to a part of the split that ends before".to_owned(),
            ),
            None => (
                format!("`{label}` learned from all rows, those {future} too"),
                "divide the rows with `split`, and set `fit_on` to the part that comes first"
                    .to_owned(),
            ),
        },
        PlanOp::Window(_) => (
            format!("`{label}` reads the rows that follow"),
            "fill from the past: `fill_forward`, or a lag".to_owned(),
        ),
        PlanOp::Series(_) => (
            format!("`{label}` is given whole series, and uses the rows that follow"),
            "let the function compute each value from rows up to its own".to_owned(),
        ),
        PlanOp::Join(join) if join.as_of().is_some() => (
            format!("`{label}` meets rows of a later time"),
            "join with `direction: backward`".to_owned(),
        ),
        _ => (
            format!("`{label}` computes from rows of any time"),
            "let it use rows up to each row's own time only: \
             a window that ends at the current row, or a `lag`"
                .to_owned(),
        ),
    };
    moved.cause = Some(cause);
    moved.hint = hint;
}

impl LookaheadSearch<'_> {
    /// Traces a column of a stream, after `after` operations, to its origin; returns the operation
    /// that wrote it.
    fn trace_column(&mut self, stream: &OpStream, end: usize, name: &str) -> Option<OpId> {
        let bound = self.bound;
        let mut name = name.to_owned();
        for position in (0..end).rev() {
            let id = stream.ops[position];
            let mut reads: Vec<&String> = Vec::new();
            match &bound.ops[id].op {
                PlanOp::Project(columns) => {
                    if let Some((from, _)) = columns.iter().find(|(_, to)| *to == name) {
                        name.clone_from(from);
                    }
                    continue;
                }
                PlanOp::Map(map) if map.is_written(&name) => {
                    let moved = bound.ops[id]
                        .asks
                        .iter()
                        .any(|ask| self.learned.contains(ask));
                    if moved && map.behind.is_none() && map.asks.iter().all(|ask| ask.of.is_none())
                    {
                        self.sure.get_or_insert(id);
                    } else if moved {
                        self.perhaps.get_or_insert(id);
                    }
                    reads.extend(&map.reads);
                }
                PlanOp::Expand(expand) if expand.is_written(&name) => {
                    reads.extend(&expand.reads);
                }
                PlanOp::Window(window) if window.is_written(&name) => {
                    if window.backward {
                        self.sure.get_or_insert(id);
                    }
                    reads.extend(window.columns());
                }
                PlanOp::Series(series) if series.is_written(&name) => {
                    if series.looks_ahead {
                        self.sure.get_or_insert(id);
                    } else {
                        self.perhaps.get_or_insert(id);
                    }
                    reads.extend(series.columns());
                }
                PlanOp::Join(join) if join.is_written(&name) => {
                    match join.as_of().map(|as_of| as_of.direction) {
                        Some(MatchDirection::Backward) => drop(self.perhaps.get_or_insert(id)),
                        Some(_) => drop(self.sure.get_or_insert(id)),
                        None => {}
                    }
                    reads.extend(join.columns_here());
                }
                _ => continue,
            }
            for read in reads {
                if self.seen.insert((position, read.clone())) {
                    self.trace_column(stream, position, read);
                }
            }
            return Some(id);
        }
        match &bound.bases[stream.base] {
            BaseDataset::Gathered(op) => {
                self.sure.get_or_insert(*op);
                Some(*op)
            }
            BaseDataset::Source(_) => None,
        }
    }
}
