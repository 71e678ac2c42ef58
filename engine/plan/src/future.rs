//! Rows of the future: a flow's history, continued by rows that `future_rows` makes.
//!
//! They are a separate branch. Analyzers, splits, trainings, gathers and ordinary sinks read the
//! history alone, so that nothing learned or written changes because rows of the future exist. A
//! sink with `split: future` reads the history only to warm up window state, and gets the rows of
//! the future through the same operations.

use std::sync::Arc;

use arrow::array::{ArrayRef, new_null_array};
use arrow::compute::is_not_null;
use arrow::datatypes::{DataType, Field, Schema};
use forebay_contract::HORIZON_STEP;
use forebay_model::{ContentId, Fault, IdBuilder, Result, SpecLocation, codes, is_unsized_vector};

use crate::bind::PipelineBinder;
use crate::hidden_columns::{FUTURE_ROW, KNOWN_UNTIL, source_column};
use crate::{
    BaseDataset, BoundAnalyzer, BoundOp, BoundPipeline, FutureFlow, FutureRowsOp, GatherBy,
    GatherOp, MapOp, NodeFlow, OpId, OpList, OpStream, PlanOp, slice_for_columns,
};

/// Name of the part that has the rows of the future.
pub const FUTURE_PART: &str = "future";

impl FutureFlow {
    /// All streams in row order.
    pub fn streams(&self) -> Vec<OpStream> {
        self.history.iter().chain(&self.rows).cloned().collect()
    }

    /// Appends an operation to all streams.
    pub(crate) fn push(&mut self, op: OpId) {
        self.push_to_history(op);
        for stream in &mut self.rows {
            stream.ops.push(op);
        }
    }

    /// Appends an operation to the streams of the history.
    pub(crate) fn push_to_history(&mut self, op: OpId) {
        for stream in &mut self.history {
            stream.ops.push(op);
        }
    }

    /// The rows of the future of a union, given those of its inputs. There are none if an input has none: its series would
    /// end without a word where those of the others go on.
    pub(crate) fn union(inputs: &[NodeFlow]) -> Result<Option<FutureFlow>> {
        let mut union: Option<FutureFlow> = None;
        for flow in inputs {
            let Some(future) = flow.future.as_deref() else {
                return Ok(None);
            };
            let Some(union) = &mut union else {
                union = Some(future.clone());
                continue;
            };
            let is_alike = union.keys == future.keys
                && union.time == future.time
                && union.source == future.source;
            if !is_alike {
                let message =
                    "the inputs of the union add rows of the future with different columns";
                return Err(Fault::new(codes::UNSUPPORTED, message)
                    .hint("move `future_rows` behind the union"));
            }
            union.history.extend(future.history.iter().cloned());
            union.rows.extend(future.rows.iter().cloned());
            union.made_by.extend(&future.made_by);
        }
        Ok(union)
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

/// A `future_rows` step, as the operations of its branch name it.
struct FutureStep<'a> {
    label: &'a str,
    identity: ContentId,
    at: Option<&'a SpecLocation>,
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
        self.check_future(flow)?;
        let step = FutureStep {
            label,
            identity,
            at,
        };
        let schema = gather.schema.clone();
        let mut branch = self.gather_future(&step, flow, gather, future);
        let unknown = unknown_columns(hidden_fields(&schema)?);
        branch.push_to_history(self.branch_op(&step, unknown)?);
        branch.push(self.branch_op(&step, future_mark())?);
        for field in flow.schema.fields() {
            branch.push(self.branch_op(&step, source_copy(field))?);
        }
        flow.future = Some(Arc::new(branch));
        flow.windows.end();
        Ok(())
    }

    /// Refuses rows of the future where their columns or their part would not be clear.
    fn check_future(&self, flow: &NodeFlow) -> Result<()> {
        if flow.future.is_some() {
            let fault = Fault::new(codes::DUPLICATE, "the rows have rows of the future already");
            return Err(fault.hint("leave one `future_rows` out"));
        }
        if let Some(chain) = &flow.target {
            let message = format!(
                "`target` transforms `{}` before `future_rows`, so that rows of the future would \
                 begin with transformed values",
                chain.column
            );
            let fault = Fault::new(codes::BAD_VALUE, message).column(&chain.column);
            return Err(fault.hint("move `target` behind `future_rows`"));
        }
        if let Some(split) = &self.pipeline.split
            && split.parts().contains(&FUTURE_PART)
        {
            let message = format!(
                "a part of the split is called `{FUTURE_PART}`, which names the rows of the future"
            );
            return Err(Fault::new(codes::DUPLICATE, message).hint("give that part another name"));
        }
        for field in flow.schema.fields() {
            if is_unsized_vector(field.data_type()) {
                let message = format!("`{}` is a vector whose width is learned", field.name());
                let hint = "put `future_rows` before the step that makes it";
                return Err(Fault::new(codes::UNSUPPORTED, message)
                    .column(field.name())
                    .hint(hint));
            }
        }
        Ok(())
    }

    /// Adds the gather that makes the rows of the future from the last rows of the history.
    fn gather_future(
        &mut self,
        step: &FutureStep<'_>,
        flow: &NodeFlow,
        gather: GatherOp,
        future: FutureRowsOp,
    ) -> FutureFlow {
        let op = self.bound.ops.len();
        let analyzer = self.bound.asks.len();
        self.bound.asks.push(BoundAnalyzer {
            op,
            ask: future.latest.clone(),
            streams: flow.streams.clone(),
            part: None,
            carried: None,
            held: None,
        });
        let base = self.bound.bases.len();
        self.bound.bases.push(BaseDataset::Gathered(op));
        self.bound.base_schemas.push(gather.schema.clone());
        self.bound.gather_inputs.insert(op, Vec::new());
        let rows = OpStream {
            base,
            ops: OpList::default(),
        };
        let branch = FutureFlow {
            history: flow.streams.clone(),
            rows: vec![rows],
            made_by: vec![op],
            source: flow.schema.clone(),
            keys: future.keys.clone(),
            time: future.time.clone(),
            horizon: future.horizon,
            steps: future.steps,
        };
        let lower = GatherBy::Future(future);
        self.bound.ops.push(BoundOp {
            label: step.label.to_owned(),
            identity: step.identity,
            op: PlanOp::Gather(GatherOp { lower, ..gather }),
            asks: vec![analyzer],
            at: step.at.cloned(),
        });
        branch
    }

    /// Adds an operation of the branch.
    fn branch_op(&mut self, step: &FutureStep<'_>, map: MapOp) -> Result<OpId> {
        let op = PlanOp::Map(map);
        let mut id = IdBuilder::new("rows of the future");
        id.id(step.identity).json(&op.identity()?);
        self.bound.ops.push(BoundOp {
            label: step.label.to_owned(),
            identity: id.finish(),
            op,
            asks: Vec::new(),
            at: step.at.cloned(),
        });
        Ok(self.bound.ops.len() - 1)
    }
}

/// The streams that have columns of the rows of the future, and the column that marks these rows.
/// The history comes first if a window or an as-of join needs it.
pub fn future_streams(
    bound: &BoundPipeline,
    future: &FutureFlow,
    columns: &[String],
) -> (Vec<OpStream>, Option<String>) {
    let columns: Vec<&str> = columns.iter().map(String::as_str).collect();
    let needs_history = future.rows.iter().any(|stream| {
        let (needed, _) = slice_for_columns(bound, stream, &columns);
        let mut ops = needed.into_iter().map(|position| stream.ops[position]);
        ops.any(|op| bound.ops[op].op.is_over_series())
    });
    if needs_history {
        (future.streams(), Some(FUTURE_ROW.to_owned()))
    } else {
        (future.rows.clone(), None)
    }
}

fn hidden_fields(schema: &Schema) -> Result<Vec<Field>> {
    let mut fields = Vec::new();
    for name in [KNOWN_UNTIL, HORIZON_STEP] {
        let Ok(field) = schema.field_with_name(name) else {
            return Err(Fault::internal("rows of the future without steps"));
        };
        fields.push(field.clone());
    }
    Ok(fields)
}

/// Marks the rows of the future, which alone have a step.
fn future_mark() -> MapOp {
    let mark = Field::new(FUTURE_ROW, DataType::Boolean, true);
    MapOp::new([HORIZON_STEP], [mark], |columns, _| {
        let mut marks: Vec<ArrayRef> = Vec::with_capacity(columns.len());
        for steps in columns {
            marks.push(Arc::new(is_not_null(steps)?));
        }
        Ok(marks)
    })
}

/// Keeps a column as it is before the steps behind `future_rows`.
fn source_copy(field: &Field) -> MapOp {
    let copy = field
        .clone()
        .with_name(source_column(field.name()))
        .with_nullable(true);
    MapOp::new([field.name()], [copy], |columns, _| Ok(columns.to_vec()))
}

/// The hidden columns of rows of the history.
fn unknown_columns(fields: Vec<Field>) -> MapOp {
    let types: Vec<DataType> = fields
        .iter()
        .map(|field| field.data_type().clone())
        .collect();
    MapOp::new(Vec::<String>::new(), fields, move |_, rows| {
        let mut columns = Vec::with_capacity(types.len());
        for data_type in &types {
            columns.push(new_null_array(data_type, rows));
        }
        Ok(columns)
    })
}
