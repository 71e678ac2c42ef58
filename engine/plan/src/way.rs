//! Which way rows reach a window: chosen by the extents of the spans that they come from.

use forebay_model::{Dataset, Extent};

use crate::{BaseId, Bound, Op, OpId, Stream, Way};

/// A way, and the reason in a few words.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Choice {
    /// The way.
    pub way: Way,
    /// Why, to follow the window's name.
    pub why: &'static str,
}

/// Chooses the way of a window. Spans tell nothing of the order of rows inside them, so whoever
/// goes the way of time or of keys checks every row, and sorts when one is out of order.
pub fn choose_way<'a>(bound: &Bound, op: OpId, dataset: &dyn Fn(BaseId) -> Option<&'a Dataset>) -> Choice {
    if let Op::AsOf(_) = &bound.ops[op].op {
        return Choice { way: Way::Sorted, why: "meets rows of another step" };
    }
    let (Op::Window(window), Some(flow)) = (&bound.ops[op].op, bound.window_inputs.get(&op)) else {
        return Choice { way: Way::Time, why: "is no window" };
    };
    if window.backward {
        return Choice { way: Way::Sorted, why: "reads series from their end" };
    }
    let [stream] = flow.streams.as_slice() else {
        return Choice { way: Way::Time, why: "reads its inputs one after the other" };
    };
    let Some(dataset) = dataset(stream.base) else {
        return Choice { way: Way::Time, why: "reads rows whose order shows when they are there" };
    };
    let follow = |column: &String| follow_each_other(dataset, &base_column(bound, stream, column)?);
    match (follow(&window.time), window.keys.first().and_then(follow)) {
        (Some(true), _) => Choice { way: Way::Time, why: "reads spans that follow each other in time" },
        (None, _) => Choice { way: Way::Time, why: "reads spans that do not tell their times" },
        (Some(false), Some(true)) => Choice { way: Way::Key, why: "reads spans that follow each other by key" },
        (Some(false), _) => Choice { way: Way::Sorted, why: "reads spans that overlap in time" },
    }
}

/// The column of the base that a column of a stream is, renamed or not; `None` if it is computed.
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

/// The extents of a column in the spans, where all of them tell.
pub fn span_extents(dataset: &Dataset, column: &str) -> Option<Vec<Extent>> {
    let watched = dataset.watched.iter().position(|name| name == column)?;
    dataset.spans.iter().map(|span| span.extent(watched)).collect()
}

/// Whether no span begins before the one before it ended; `None` where they do not tell.
fn follow_each_other(dataset: &Dataset, column: &str) -> Option<bool> {
    let extents = span_extents(dataset, column)?;
    Some(extents.windows(2).all(|pair| pair[0].max <= pair[1].min))
}
