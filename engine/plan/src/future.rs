//! Rows of the future: a flow's history, continued by rows that `future_rows` makes.
//!
//! They are a branch of their own. Analyzers, splits, trainings, gathers and ordinary sinks read the history alone, so
//! that nothing learned or written changes because rows of the future exist. A sink with `split: future` reads the
//! history only to warm up window state, and gets the rows of the future through the same operations.

use std::sync::Arc;

use arrow::array::{ArrayRef, new_null_array};
use arrow::compute::is_not_null;
use arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use forebay_model::{ContentId, Fault, IdBuilder, Result, SpecLocation, codes, is_unsized_vector};
use forebay_window::SeriesLength;

use crate::bind::PipelineBinder;
use crate::{
    BaseDataset, BoundAnalyzer, BoundOp, BoundPipeline, FutureRowsOp, GatherBy, GatherOp, MapOp,
    NodeFlow, OpId, OpStream, PlanOp, slice_for_columns,
};

/// Name of the part that has the rows of the future.
pub const FUTURE_PART: &str = "future";

/// Hidden column of rows of the future: the time up to which their series is known.
pub const KNOWN_UNTIL: &str = "__future_known_until";

/// Hidden column of rows of the future: how many steps they lie beyond that time, `UInt32`.
pub const HORIZON_STEP: &str = "__future_step";

/// Hidden Boolean column that is true in rows of the future.
pub const FUTURE_ROW: &str = "__future_row";

/// Prefix of the hidden columns of rows of the future.
const FUTURE_PREFIX: &str = "__future_";

/// Hidden column that keeps a column as it was when `future_rows` made the rows.
pub fn source_column(name: &str) -> String {
    format!("{FUTURE_PREFIX}source_{name}")
}

/// Whether a column is hidden: steps neither see nor drop it.
pub(crate) fn is_hidden(column: &str) -> bool {
    column.starts_with(FUTURE_PREFIX) || column.starts_with(crate::PART_PREFIX)
}

/// The rows of the future of a flow.
#[derive(Debug, Clone)]
pub struct FutureFlow {
    /// Streams of the history. Their rows only warm up window state.
    pub history: Vec<OpStream>,
    /// Streams of the rows of the future.
    pub rows: Vec<OpStream>,
    /// The operations that make the rows.
    pub made_by: Vec<OpId>,
    /// The columns that rows had when they were made, under their own names. [`source_column`] names those that keep
    /// them.
    pub source: SchemaRef,
    /// The columns that identify a series.
    pub keys: Vec<String>,
    /// The event-time column.
    pub time: String,
    /// See [`FutureRowsOp::horizon`].
    pub horizon: SeriesLength,
    /// Rows per series.
    pub steps: u64,
}

impl FutureFlow {
    /// All streams in row order.
    pub fn streams(&self) -> Vec<OpStream> {
        self.history.iter().chain(&self.rows).cloned().collect()
    }

    /// Appends an operation to all streams.
    pub(crate) fn push(&mut self, op: OpId) {
        self.history
            .iter_mut()
            .chain(&mut self.rows)
            .for_each(|stream| stream.ops.push(op));
    }

    /// Appends an operation to the streams of the history.
    pub(crate) fn push_to_history(&mut self, op: OpId) {
        self.history
            .iter_mut()
            .for_each(|stream| stream.ops.push(op));
    }

    /// The rows of the future of a union, given those of its inputs. Inputs without any add their history.
    pub(crate) fn union(inputs: &[NodeFlow]) -> Result<Option<FutureFlow>> {
        let mut all: Option<FutureFlow> = None;
        for own in inputs.iter().filter_map(|flow| flow.future.as_deref()) {
            match &mut all {
                None => {
                    all = Some(FutureFlow {
                        history: Vec::new(),
                        ..own.clone()
                    })
                }
                Some(all)
                    if (&all.keys, &all.time, &all.source)
                        == (&own.keys, &own.time, &own.source) =>
                {
                    all.rows.extend(own.rows.iter().cloned());
                    all.made_by.extend(&own.made_by);
                }
                Some(_) => {
                    let message =
                        "the inputs of the union add rows of the future with different columns";
                    return Err(Fault::new(codes::UNSUPPORTED, message)
                        .hint("move `future_rows` behind the union"));
                }
            }
        }
        if let Some(all) = &mut all {
            let history = inputs.iter().flat_map(|flow| match &flow.future {
                Some(future) => future.history.clone(),
                None => flow.streams.clone(),
            });
            all.history = history.collect();
        }
        Ok(all)
    }
}

impl NodeFlow {
    /// The streams of a part, and the number of those that only warm up window state.
    pub fn streams_of(&self, part: Option<&str>) -> (Vec<OpStream>, usize) {
        match (&self.future, part) {
            (Some(future), Some(FUTURE_PART)) => (future.streams(), future.history.len()),
            _ => (self.streams.clone(), 0),
        }
    }
}

impl PipelineBinder<'_> {
    /// Starts the branch of a flow that has the rows of the future.
    pub(crate) fn start_future(
        &mut self,
        flow: &mut NodeFlow,
        gather: GatherOp,
        future: FutureRowsOp,
        label: &str,
        identity: ContentId,
        at: Option<&SpecLocation>,
    ) -> Result<()> {
        if flow.future.is_some() {
            let fault = Fault::new(codes::DUPLICATE, "the rows have rows of the future already");
            return Err(fault.hint("leave one `future_rows` out"));
        }
        if self
            .pipeline
            .split
            .as_ref()
            .is_some_and(|split| split.parts().contains(&FUTURE_PART))
        {
            let message = format!(
                "a part of the split is called `{FUTURE_PART}`, which names the rows of the future"
            );
            return Err(Fault::new(codes::DUPLICATE, message).hint("give that part another name"));
        }
        if let Some(field) = flow
            .schema
            .fields()
            .iter()
            .find(|field| is_unsized_vector(field.data_type()))
        {
            let message = format!("`{}` is a vector whose width is learned", field.name());
            let hint = "put `future_rows` before the step that makes it";
            return Err(Fault::new(codes::UNSUPPORTED, message)
                .column(field.name())
                .hint(hint));
        }
        let op = self.bound.ops.len();
        let ask = self.bound.asks.len();
        let (streams, latest) = (flow.streams.clone(), future.latest.clone());
        self.bound.asks.push(BoundAnalyzer {
            op,
            ask: latest,
            streams,
            part: None,
            carried: None,
            held: None,
        });
        let (keys, time) = (future.keys.clone(), future.time.clone());
        let (horizon, steps) = (future.horizon, future.steps);
        let (schema, lower) = (gather.schema.clone(), GatherBy::Future(future));
        let (label, at) = (label.to_owned(), at.cloned());
        let made = PlanOp::Gather(GatherOp { lower, ..gather });
        self.bound.ops.push(BoundOp {
            label: label.clone(),
            identity,
            op: made,
            asks: vec![ask],
            at: at.clone(),
        });
        self.bound.gather_inputs.insert(op, Vec::new());
        self.bound.bases.push(BaseDataset::Gathered(op));
        self.bound.base_schemas.push(schema.clone());
        let base = self.bound.bases.len() - 1;
        let mut branch = FutureFlow {
            history: flow.streams.clone(),
            rows: vec![OpStream {
                base,
                ops: Vec::new(),
            }],
            made_by: vec![op],
            source: flow.schema.clone(),
            keys,
            time,
            horizon,
            steps,
        };
        let mut branch_op = |map: MapOp| -> Result<OpId> {
            let op = PlanOp::Map(map);
            let mut id = IdBuilder::new("rows of the future");
            id.id(identity).json(&op.identity()?);
            let (label, at, identity) = (label.clone(), at.clone(), id.finish());
            self.bound.ops.push(BoundOp {
                label,
                identity,
                op,
                asks: Vec::new(),
                at,
            });
            Ok(self.bound.ops.len() - 1)
        };
        let hidden = hidden_fields(&schema)?;
        let unknown = branch_op(unknown_columns(hidden))?;
        branch
            .history
            .iter_mut()
            .for_each(|stream| stream.ops.push(unknown));
        let mark = Field::new(FUTURE_ROW, DataType::Boolean, true);
        branch.push(branch_op(MapOp::new(
            [HORIZON_STEP],
            [mark],
            |columns, _| {
                let marks = columns.iter().map(|steps| is_not_null(steps));
                let marks = marks.map(|mark| Ok(Arc::new(mark?) as ArrayRef));
                marks.collect()
            },
        ))?);
        for field in flow.schema.fields() {
            let kept = field
                .as_ref()
                .clone()
                .with_name(source_column(field.name()))
                .with_nullable(true);
            branch.push(branch_op(MapOp::new(
                [field.name()],
                [kept],
                |columns, _| Ok(columns.to_vec()),
            ))?);
        }
        flow.future = Some(Arc::new(branch));
        Ok(())
    }
}

/// The streams that have columns of the rows of the future, and the column that tells these rows from others. The history
/// comes first where a window or an as-of join needs it.
pub fn future_streams(
    bound: &BoundPipeline,
    future: &FutureFlow,
    columns: &[String],
) -> (Vec<OpStream>, Option<String>) {
    let columns: Vec<&str> = columns.iter().map(String::as_str).collect();
    let needs_history = future.rows.iter().any(|stream| {
        let (needed, _) = slice_for_columns(bound, stream, &columns);
        let mut ops = needed.into_iter().map(|place| stream.ops[place]);
        ops.any(|op| bound.ops[op].op.is_over_series())
    });
    if needs_history {
        (future.streams(), Some(FUTURE_ROW.to_owned()))
    } else {
        (future.rows.clone(), None)
    }
}

fn hidden_fields(schema: &Schema) -> Result<Vec<Field>> {
    let field = |name| {
        schema
            .field_with_name(name)
            .cloned()
            .map_err(|_| Fault::internal("rows of the future without steps"))
    };
    [KNOWN_UNTIL, HORIZON_STEP].into_iter().map(field).collect()
}

/// The hidden columns of rows of the history.
fn unknown_columns(fields: Vec<Field>) -> MapOp {
    let types: Vec<DataType> = fields
        .iter()
        .map(|field| field.data_type().clone())
        .collect();
    MapOp::new(Vec::<String>::new(), fields, move |_, rows| {
        Ok(types
            .iter()
            .map(|own| new_null_array(own, rows))
            .collect::<Vec<ArrayRef>>())
    })
}
