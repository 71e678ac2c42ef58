//! Choice of the order in which rows reach a window, from the extents of the spans.

use forebay_model::{ColumnExtent, Dataset};

use crate::{BaseId, BoundPipeline, MatchDirection, OpId, OpStream, PlanOp, WindowRowOrder};

/// A row order with its reason.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RowOrderChoice {
    /// The row order.
    pub row_order: WindowRowOrder,
    /// The reason, phrased to follow the window's name.
    pub why: &'static str,
}

/// Chooses the row order of a window. Extents say nothing about the order of rows inside a span. The time and key
/// orders therefore check every row, and a violation makes the pass fall back to sorting.
pub fn choose_row_order<'a>(
    bound: &BoundPipeline,
    op: OpId,
    dataset: &dyn Fn(BaseId) -> Option<&'a Dataset>,
) -> RowOrderChoice {
    if let PlanOp::Join(join) = &bound.ops[op].op {
        let why = match join.as_of() {
            Some(as_of) if as_of.direction == MatchDirection::Backward && as_of.known_at.is_none() => {
                "joins rows of another step, without a sort where both sides come in order of time"
            }
            _ => "joins rows of another step",
        };
        return RowOrderChoice { row_order: WindowRowOrder::Sorted, why };
    }
    let (PlanOp::Window(window), Some(flow)) = (&bound.ops[op].op, bound.window_inputs.get(&op)) else {
        return RowOrderChoice { row_order: WindowRowOrder::Time, why: "is not a window" };
    };
    if window.backward {
        return RowOrderChoice { row_order: WindowRowOrder::Sorted, why: "reads series backward" };
    }
    let [stream] = flow.streams.as_slice() else {
        return RowOrderChoice { row_order: WindowRowOrder::Time, why: "reads its inputs one after the other" };
    };
    let Some(dataset) = dataset(stream.base) else {
        return RowOrderChoice { row_order: WindowRowOrder::Time, why: "reads rows whose order is not known yet" };
    };
    let follow = |column: &String| follow_each_other(dataset, &base_column(bound, stream, column)?);
    match (follow(&window.time), window.keys.first().and_then(follow)) {
        (Some(true), _) => {
            RowOrderChoice { row_order: WindowRowOrder::Time, why: "reads spans that follow each other in time" }
        }
        (None, _) => RowOrderChoice { row_order: WindowRowOrder::Time, why: "reads spans whose times are not known" },
        (Some(false), Some(true)) => {
            RowOrderChoice { row_order: WindowRowOrder::Key, why: "reads spans that follow each other by key" }
        }
        (Some(false), _) => {
            RowOrderChoice { row_order: WindowRowOrder::Sorted, why: "reads spans that overlap in time" }
        }
    }
}

/// The base column that a column of a stream equals, possibly renamed; `None` if it is computed.
pub fn base_column(bound: &BoundPipeline, stream: &OpStream, column: &str) -> Option<String> {
    let mut name = column.to_owned();
    for op in stream.ops.iter().rev() {
        let writes = match &bound.ops[*op].op {
            PlanOp::Map(map) => map.writes.as_slice(),
            PlanOp::Expand(expand) => expand.writes.as_slice(),
            PlanOp::Window(window) => window.writes.as_slice(),
            PlanOp::Join(join) if join.is_written(&name) => return None,
            PlanOp::Project(columns) => {
                name = columns.iter().find(|(_, to)| *to == name)?.0.clone();
                &[]
            }
            PlanOp::Keep(_) | PlanOp::Join(_) | PlanOp::Gather(_) => &[],
        };
        if writes.iter().any(|field| *field.name() == name) {
            return None;
        }
    }
    Some(name)
}

/// Extents of a column per span; `None` if one is unknown.
pub fn span_extents(dataset: &Dataset, column: &str) -> Option<Vec<ColumnExtent>> {
    let watched = dataset.watched.iter().position(|name| name == column)?;
    dataset.spans.iter().map(|span| span.extent(watched)).collect()
}

/// Whether the extents of consecutive spans do not overlap; `None` if they are unknown.
fn follow_each_other(dataset: &Dataset, column: &str) -> Option<bool> {
    let extents = span_extents(dataset, column)?;
    Some(extents.windows(2).all(|pair| pair[0].max <= pair[1].min))
}
