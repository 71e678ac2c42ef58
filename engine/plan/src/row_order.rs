//! Choice of the order in which rows reach a window, from the extents of the spans.

use std::collections::HashSet;

use arrow::datatypes::DataType;
use forebay_model::{BoundValue, ColumnExtent, Dataset};

use crate::slice::slice_for_columns;
use crate::{
    BaseDataset, BaseId, BoundPipeline, MatchDirection, NodeFlow, OpId, OpStream, PlanOp,
    WindowRowOrder,
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
    if bound.ops[op].op.is_over_series() && is_repeated(bound, op) {
        return RowOrderChoice {
            row_order: WindowRowOrder::Sorted,
            why: "reads rows that several inputs of a union have",
        };
    }
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
    if let PlanOp::Series(_) = &bound.ops[op].op {
        return RowOrderChoice {
            row_order: WindowRowOrder::Sorted,
            why: "is given whole series",
        };
    }
    let no_window = RowOrderChoice {
        row_order: WindowRowOrder::Time,
        why: "is not a window",
    };
    let PlanOp::Window(window) = &bound.ops[op].op else {
        return no_window;
    };
    let Some(flow) = bound.window_inputs.get(&op) else {
        return no_window;
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

/// True if rows pass an operation several times: inputs of a union share it. Its state would meet them again.
fn is_repeated(bound: &BoundPipeline, op: OpId) -> bool {
    let inputs = bound.gather_inputs.values().flatten();
    let mut flows = bound.flows.values().chain(inputs.map(|(_, flow)| flow));
    flows.any(|flow| repeats(flow, op))
}

/// True if two streams of a flow are the same up to an operation.
fn repeats(flow: &NodeFlow, op: OpId) -> bool {
    if flow.streams.len() < 2 {
        return false;
    }
    let mut beginnings: HashSet<(BaseId, &[OpId])> = HashSet::new();
    for stream in &flow.streams {
        let position = stream.ops.iter().position(|stream_op| *stream_op == op);
        let Some(position) = position else {
            continue;
        };
        if !beginnings.insert((stream.base, &stream.ops[..=position])) {
            return true;
        }
    }
    false
}

/// The times of both sides of a backward as-of join, by span.
pub struct JoinedExtents {
    /// Extents of this side, in the order of its spans.
    pub here: Vec<ColumnExtent>,
    /// The other side.
    pub there: Vec<ColumnExtent>,
}

impl JoinedExtents {
    /// Extents of both sides; `None` unless each row matches only rows at or before it, both sides
    /// are sources whose spans record their times in the same ticks, and the keys and times of a
    /// span are known from that span alone.
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
        let [own_stream, other_stream] = [sides[0].stream, sides[1].stream];
        let own_column = base_column(bound, own_stream, &as_of.time)?;
        let other_column = base_column(bound, other_stream, &as_of.other_time)?;
        let own_type = base_type(bound, own_stream, &own_column)?;
        let other_type = base_type(bound, other_stream, &other_column)?;
        if !sides.iter().all(|side| side.stands_alone(bound)) || own_type != other_type {
            return None;
        }
        let own_dataset = dataset(own_stream.base)?;
        let other_dataset = dataset(other_stream.base)?;
        Some(JoinedExtents {
            here: tick_extents(own_dataset, &own_column)?,
            there: tick_extents(other_dataset, &other_column)?,
        })
    }

    /// True if this side is a history, and the spans of both sides follow each other in time.
    fn follow(&self) -> bool {
        let follow =
            |extents: &[ColumnExtent]| extents.windows(2).all(|pair| pair[0].max <= pair[1].min);
        self.here.len() > 1 && follow(&self.here) && follow(&self.there)
    }
}

fn base_type(bound: &BoundPipeline, stream: &OpStream, column: &str) -> Option<DataType> {
    let schema = &bound.base_schemas[stream.base];
    let field = schema.field_with_name(column).ok()?;
    Some(field.data_type().clone())
}

/// Extents of a column in each span; `None` unless all of them are integers, as ticks are.
fn tick_extents(dataset: &Dataset, column: &str) -> Option<Vec<ColumnExtent>> {
    let extents = span_extents(dataset, column)?;
    let are_ticks = extents.iter().all(|extent| {
        matches!(
            (&extent.min, &extent.max),
            (BoundValue::Int(_), BoundValue::Int(_))
        )
    });
    are_ticks.then_some(extents)
}

/// One side of a join, if it is a single stream.
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
        let own_flow = bound.window_inputs.get(&op)?;
        let other_flow = bound.join_inputs.get(&op)?;
        let [own_stream] = own_flow.streams.as_slice() else {
            return None;
        };
        let [other_stream] = other_flow.streams.as_slice() else {
            return None;
        };
        let own_columns = join.columns_here().map(String::as_str).collect();
        let other_columns = join.columns_there().map(String::as_str).collect();
        Some([
            JoinSide::new(bound, own_stream, own_columns),
            JoinSide::new(bound, other_stream, other_columns),
        ])
    }

    fn new(bound: &'a BoundPipeline, stream: &'a OpStream, needed: Vec<&str>) -> JoinSide<'a> {
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
    }

    /// True if the rows of a span are known from that span of a source alone.
    fn stands_alone(&self, bound: &BoundPipeline) -> bool {
        let is_source = matches!(bound.bases[self.stream.base], BaseDataset::Source(_));
        let is_over_series = self.ops.iter().any(|op| bound.ops[*op].op.is_over_series());
        is_source && !is_over_series
    }
}

/// The base column that a column of a stream equals, possibly renamed; `None` if it is computed.
pub fn base_column(bound: &BoundPipeline, stream: &OpStream, column: &str) -> Option<String> {
    let mut name = column.to_owned();
    for op in stream.ops.iter().rev() {
        let op = &bound.ops[*op].op;
        if op.is_written(&name) {
            return None;
        }
        if let PlanOp::Project(columns) = op {
            let (from, _) = columns.iter().find(|(_, to)| *to == name)?;
            name.clone_from(from);
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

/// True if the extents of consecutive spans do not overlap; `None` if they are unknown.
fn follow_each_other(dataset: &Dataset, column: &str) -> Option<bool> {
    let extents = span_extents(dataset, column)?;
    Some(extents.windows(2).all(|pair| pair[0].max <= pair[1].min))
}
