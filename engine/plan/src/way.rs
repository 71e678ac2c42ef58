//! Choice of the order in which rows reach a window, from the extents of the spans.

use forebay_model::{Dataset, Extent};

use crate::{BaseId, Bound, Op, OpId, Stream, Way};

/// A row order with its reason.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Choice {
    /// The row order.
    pub way: Way,
    /// The reason, phrased to follow the window's name.
    pub why: &'static str,
}

/// Chooses the row order of a window. Extents say nothing about the order of rows inside a span. The time and key
/// orders therefore check every row, and a violation makes the pass fall back to sorting.
pub fn choose_way<'a>(bound: &Bound, op: OpId, dataset: &dyn Fn(BaseId) -> Option<&'a Dataset>) -> Choice {
    if let Op::AsOf(_) = &bound.ops[op].op {
        return Choice { way: Way::Sorted, why: "joins rows of another step" };
    }
    let (Op::Window(window), Some(flow)) = (&bound.ops[op].op, bound.window_inputs.get(&op)) else {
        return Choice { way: Way::Time, why: "is not a window" };
    };
    if window.backward {
        return Choice { way: Way::Sorted, why: "reads series backward" };
    }
    let [stream] = flow.streams.as_slice() else {
        return Choice { way: Way::Time, why: "reads its inputs one after the other" };
    };
    let Some(dataset) = dataset(stream.base) else {
        return Choice { way: Way::Time, why: "reads rows whose order is not known yet" };
    };
    let follow = |column: &String| follow_each_other(dataset, &base_column(bound, stream, column)?);
    match (follow(&window.time), window.keys.first().and_then(follow)) {
        (Some(true), _) => Choice { way: Way::Time, why: "reads spans that follow each other in time" },
        (None, _) => Choice { way: Way::Time, why: "reads spans whose times are not known" },
        (Some(false), Some(true)) => Choice { way: Way::Key, why: "reads spans that follow each other by key" },
        (Some(false), _) => Choice { way: Way::Sorted, why: "reads spans that overlap in time" },
    }
}

/// The base column that a column of a stream equals, possibly renamed; `None` if it is computed.
pub fn base_column(bound: &Bound, stream: &Stream, column: &str) -> Option<String> {
    let mut name = column.to_owned();
    for op in stream.ops.iter().rev() {
        let writes = match &bound.ops[*op].op {
            Op::Map(map) => map.writes.as_slice(),
            Op::Expand(expand) => expand.writes.as_slice(),
            Op::Window(window) => window.writes.as_slice(),
            Op::AsOf(join) if join.columns.iter().any(|(_, field)| *field.name() == name) => return None,
            Op::Project(columns) => {
                name = columns.iter().find(|(_, to)| *to == name)?.0.clone();
                &[]
            }
            Op::Keep(_) | Op::AsOf(_) | Op::Gather(_) => &[],
        };
        if writes.iter().any(|field| *field.name() == name) {
            return None;
        }
    }
    Some(name)
}

/// Extents of a column per span; `None` if one is unknown.
pub fn span_extents(dataset: &Dataset, column: &str) -> Option<Vec<Extent>> {
    let watched = dataset.watched.iter().position(|name| name == column)?;
    dataset.spans.iter().map(|span| span.extent(watched)).collect()
}

/// Whether the extents of consecutive spans do not overlap; `None` if they are unknown.
fn follow_each_other(dataset: &Dataset, column: &str) -> Option<bool> {
    let extents = span_extents(dataset, column)?;
    Some(extents.windows(2).all(|pair| pair[0].max <= pair[1].min))
}
