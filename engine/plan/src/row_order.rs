//! Choice of the order in which rows reach a window, from the extents of the spans.

use forebay_model::{BoundValue, ColumnExtent, Dataset};

use crate::slice::slice_for_columns;
use crate::{
    BaseDataset, BaseId, BoundPipeline, MatchDirection, OpId, OpStream, PlanOp, WindowRowOrder,
};

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
        if JoinedExtents::of(bound, op, dataset).is_some_and(|extents| extents.follow()) {
            let why = "joins a history of another step, with the last row of each key held";
            return RowOrderChoice {
                row_order: WindowRowOrder::Time,
                why,
            };
        }
        let why = match join.as_of() {
            Some(as_of)
                if as_of.direction == MatchDirection::Backward && as_of.known_at.is_none() =>
            {
                "joins rows of another step, without a sort where both sides come in order of time"
            }
            _ => "joins rows of another step",
        };
        return RowOrderChoice {
            row_order: WindowRowOrder::Sorted,
            why,
        };
    }
    let (PlanOp::Window(window), Some(flow)) = (&bound.ops[op].op, bound.window_inputs.get(&op))
    else {
        return RowOrderChoice {
            row_order: WindowRowOrder::Time,
            why: "is not a window",
        };
    };
    if window.backward {
        return RowOrderChoice {
            row_order: WindowRowOrder::Sorted,
            why: "reads series backward",
        };
    }
    let [stream] = flow.streams.as_slice() else {
        return RowOrderChoice {
            row_order: WindowRowOrder::Time,
            why: "reads its inputs one after the other",
        };
    };
    let Some(dataset) = dataset(stream.base) else {
        return RowOrderChoice {
            row_order: WindowRowOrder::Time,
            why: "reads rows whose order is not known yet",
        };
    };
    let follow = |column: &String| follow_each_other(dataset, &base_column(bound, stream, column)?);
    match (follow(&window.time), window.keys.first().and_then(follow)) {
        (Some(true), _) => RowOrderChoice {
            row_order: WindowRowOrder::Time,
            why: "reads spans that follow each other in time",
        },
        (None, _) => RowOrderChoice {
            row_order: WindowRowOrder::Time,
            why: "reads spans whose times are not known",
        },
        (Some(false), Some(true)) => RowOrderChoice {
            row_order: WindowRowOrder::Key,
            why: "reads spans that follow each other by key",
        },
        (Some(false), _) => RowOrderChoice {
            row_order: WindowRowOrder::Sorted,
            why: "reads spans that overlap in time",
        },
    }
}

/// The times of both sides of a backward as-of join, by span.
pub struct JoinedExtents {
    /// This side, in the order of its spans.
    pub here: Vec<ColumnExtent>,
    /// The other side.
    pub there: Vec<ColumnExtent>,
}

impl JoinedExtents {
    /// `None` unless each row may meet a row at or before it alone, both sides are sources whose spans tell their times
    /// in the same ticks, and the keys and times of a span are known from that span alone.
    pub fn of<'a>(
        bound: &BoundPipeline,
        op: OpId,
        dataset: &dyn Fn(BaseId) -> Option<&'a Dataset>,
    ) -> Option<JoinedExtents> {
        let PlanOp::Join(join) = &bound.ops[op].op else {
            return None;
        };
        let as_of = join.as_of()?;
        let is_backward = as_of.direction == MatchDirection::Backward && as_of.known_at.is_none();
        if !is_backward || join.keys.is_empty() {
            return None;
        }
        let sides = JoinSide::both(bound, op)?;
        let [here, there] = [sides[0].stream, sides[1].stream];
        let stands_alone = |side: &JoinSide<'_>| {
            let is_over_series = side.ops.iter().any(|op| bound.ops[*op].op.is_over_series());
            matches!(bound.bases[side.stream.base], BaseDataset::Source(_)) && !is_over_series
        };
        let times = [(here, &as_of.time), (there, &as_of.other_time)];
        let [own, other] = times.map(|(stream, time)| base_column(bound, stream, time));
        let (own, other) = (own?, other?);
        let data_type = |stream: &OpStream, column: &str| {
            let field = bound.base_schemas[stream.base].field_with_name(column);
            field.ok().map(|field| field.data_type().clone())
        };
        if !sides.iter().all(stands_alone) || data_type(here, &own)? != data_type(there, &other)? {
            return None;
        }
        let extents = |stream: &OpStream, column: &str| {
            let extents = span_extents(dataset(stream.base)?, column)?;
            let ticks = |extent: &ColumnExtent| {
                matches!(
                    (&extent.min, &extent.max),
                    (BoundValue::Int(_), BoundValue::Int(_))
                )
            };
            extents.iter().all(ticks).then_some(extents)
        };
        Some(JoinedExtents {
            here: extents(here, &own)?,
            there: extents(there, &other)?,
        })
    }

    /// Whether this side is a history, and the spans of both sides follow each other in time.
    fn follow(&self) -> bool {
        let follow =
            |extents: &[ColumnExtent]| extents.windows(2).all(|pair| pair[0].max <= pair[1].min);
        self.here.len() > 1 && follow(&self.here) && follow(&self.there)
    }
}

/// One side of a join, which is one stream.
pub(crate) struct JoinSide<'a> {
    pub stream: &'a OpStream,
    /// The operations that its keys, times and columns need.
    pub ops: Vec<OpId>,
    /// The columns of its base that these read.
    pub columns: Vec<String>,
}

impl<'a> JoinSide<'a> {
    /// This side and the other one; `None` unless each is one stream.
    pub fn both(bound: &'a BoundPipeline, op: OpId) -> Option<[JoinSide<'a>; 2]> {
        let PlanOp::Join(join) = &bound.ops[op].op else {
            return None;
        };
        let (here, there) = (bound.window_inputs.get(&op)?, bound.join_inputs.get(&op)?);
        let ([here], [there]) = (here.streams.as_slice(), there.streams.as_slice()) else {
            return None;
        };
        let side = |stream: &'a OpStream, needed: Vec<&str>| {
            let (positions, columns) = slice_for_columns(bound, stream, &needed);
            let ops = positions
                .into_iter()
                .map(|position| stream.ops[position])
                .collect();
            JoinSide {
                stream,
                ops,
                columns,
            }
        };
        let own = join.columns_here().map(String::as_str).collect();
        let other = join.columns_there().map(String::as_str).collect();
        Some([side(here, own), side(there, other)])
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
    dataset
        .spans
        .iter()
        .map(|span| span.extent(watched))
        .collect()
}

/// Whether the extents of consecutive spans do not overlap; `None` if they are unknown.
fn follow_each_other(dataset: &Dataset, column: &str) -> Option<bool> {
    let extents = span_extents(dataset, column)?;
    Some(extents.windows(2).all(|pair| pair[0].max <= pair[1].min))
}
