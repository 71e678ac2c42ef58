//! Windows whose rows come in no order: the query engine sorts what they read by series and time,
//! with spilling; the outputs are sorted back to the order of the rows and kept beside them.

use std::collections::BTreeMap;
use std::fmt;
use std::fs::File;
use std::io::{BufReader, BufWriter};
use std::ops::Range;
use std::sync::{Arc, Mutex};

use arrow::array::{Array, ArrayRef, AsArray, Int64Array, RecordBatch, RecordBatchOptions, new_empty_array};
use arrow::compute::{cast, concat};
use arrow::datatypes::{DataType, Field, Int64Type, Schema, SchemaRef, UInt64Type};
use arrow::ipc::CompressionType;
use arrow::ipc::reader::FileReader;
use arrow::ipc::writer::{FileWriter, IpcWriteOptions};
use datafusion::catalog::streaming::StreamingTable;
use datafusion::common::DataFusionError;
use datafusion::datasource::provider_as_source;
use datafusion::execution::TaskContext;
use datafusion::logical_expr::{LogicalPlan, LogicalPlanBuilder, SortExpr, ident};
use datafusion::physical_plan::SendableRecordBatchStream;
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion::physical_plan::streaming::PartitionStream;
use datafusion::prelude::SessionContext;
use forebay_model::{Fault, Result};
use forebay_plan::{Flow, Gather, Given, Op, OpId, Together, Window};
use forebay_window::{Compute, Engine, Rows, WindowPlan};
use futures::StreamExt;
use tempfile::TempPath;

use super::as_of::AsOfRows;
use super::gather::{GatherPass, ROW_BITS, engine_fault};
use super::lock;
use super::order::gaps_message;
use crate::events::Event;

/// The outputs of a window in the order of its rows: columns of a file whose batches end where
/// spans end.
#[derive(Debug, Clone)]
pub(crate) struct Sorted {
    path: Arc<TempPath>,
    schema: SchemaRef,
    columns: Range<usize>,
    /// Per stream and span: its first batch and how many there are.
    batches: Arc<BTreeMap<(usize, usize), (usize, usize)>>,
    kind: Kind,
}

/// What the outputs are.
#[derive(Debug, Clone)]
enum Kind {
    /// A window's.
    Window,
    /// An as-of join's, behind the distance to the row that was met.
    AsOf,
    /// The same, and those of the other direction.
    Nearest(Box<Sorted>),
}

/// The outputs for the rows of one span.
pub(crate) struct SortedRows {
    /// Opened at the first batch, if there is any.
    reader: Option<FileReader<BufReader<File>>>,
    schema: SchemaRef,
    left: usize,
    batch: Option<RecordBatch>,
}

impl Sorted {
    /// Together with the outputs of the other direction, of which the nearer ones count.
    pub fn or_nearer(self, after: Sorted) -> Sorted {
        Sorted { kind: Kind::Nearest(Box::new(after)), ..self }
    }

    /// Those of one of several windows.
    fn part(&self, columns: Range<usize>) -> Result<Sorted> {
        let schema = Arc::new(self.schema.project(&columns.clone().collect::<Vec<_>>())?);
        Ok(Sorted { schema, columns, ..self.clone() })
    }

    /// The outputs for the rows of a span of one of the streams that were sorted together.
    pub fn read(&self, stream: usize, span: usize) -> Result<Box<dyn Given>> {
        let rows = self.rows(stream, span)?;
        Ok(match &self.kind {
            Kind::Window => Box::new(rows),
            Kind::AsOf => Box::new(AsOfRows { before: rows, after: None }),
            Kind::Nearest(after) => Box::new(AsOfRows { before: rows, after: Some(after.rows(stream, span)?) }),
        })
    }

    fn rows(&self, stream: usize, span: usize) -> Result<SortedRows> {
        let (first, left) = self.batches.get(&(stream, span)).copied().unwrap_or((0, 0));
        let reader = match left {
            0 => None,
            _ => {
                let file = File::open(&*self.path).map_err(|error| Fault::disk("sorted rows cannot be read", error))?;
                let mut reader =
                    FileReader::try_new(BufReader::with_capacity(1 << 18, file), Some(self.columns.clone().collect()))?;
                reader.set_index(first)?;
                Some(reader)
            }
        };
        Ok(SortedRows { reader, schema: self.schema.clone(), left, batch: None })
    }
}

impl Given for SortedRows {
    fn take(&mut self, rows: usize, emit: &[bool]) -> Result<Vec<ArrayRef>> {
        let mut parts: Vec<RecordBatch> = Vec::new();
        let mut missing = rows;
        let few = || Fault::internal("there are fewer sorted rows than rows");
        while missing > 0 {
            let batch = match self.batch.take() {
                Some(batch) => batch,
                None if self.left > 0 => {
                    self.left -= 1;
                    self.reader.as_mut().and_then(Iterator::next).ok_or_else(few)??
                }
                None => return Err(few()),
            };
            let taken = missing.min(batch.num_rows());
            parts.push(batch.slice(0, taken));
            if taken < batch.num_rows() {
                self.batch = Some(batch.slice(taken, batch.num_rows() - taken));
            }
            missing -= taken;
        }
        let wanted = emit.iter().enumerate().filter(|(_, emit)| **emit);
        wanted
            .map(|(index, _)| match parts.as_slice() {
                [part] => Ok(part.column(index).clone()),
                [] => Ok(new_empty_array(self.schema.field(index).data_type())),
                parts => {
                    let columns: Vec<&dyn Array> = parts.iter().map(|part| part.column(index).as_ref()).collect();
                    Ok(concat(&columns)?)
                }
            })
            .collect()
    }
}

/// Makes outputs of the next sorted rows.
pub(super) type Step = Box<dyn FnMut(&RecordBatch) -> Result<RecordBatch> + Send>;

/// What is computed over sorted rows.
pub(super) trait Over: Send + Sync {
    /// The outputs, and behind them the row's position.
    fn schema(&self) -> &SchemaRef;

    /// A run over all rows in order.
    fn start(&self) -> Step;
}

/// Computes outputs over sorted rows and sorts them back.
pub(crate) struct SortedPass<'a> {
    pub gather: GatherPass<'a>,
}

impl SortedPass<'_> {
    /// The outputs of each operation beside its rows.
    pub fn run(&self, Together { windows, stand }: &Together) -> Result<Vec<Sorted>> {
        let bound = &self.gather.program.bound;
        let missing = || Fault::internal("an operation without its rows");
        let flow = bound.window_inputs.get(stand).ok_or_else(missing)?;
        if let Op::AsOf(join) = &bound.ops[*stand].op {
            return Ok(vec![self.as_of(*stand, join, flow)?]);
        }
        let mut together: Option<Window> = None;
        let mut parts = Vec::new();
        for op in windows {
            let Op::Window(window) = &bound.ops[*op].op else {
                return Err(Fault::internal("not an operation over series"));
            };
            let both = match together {
                None => window.clone(),
                Some(together) => together.with(window),
            };
            parts.push(both.writes.len() - window.writes.len()..both.writes.len());
            together = Some(both);
        }
        let sorted = self.window(*stand, &together.ok_or_else(missing)?, flow)?;
        parts.into_iter().map(|columns| sorted.part(columns)).collect()
    }

    fn window(&self, op: OpId, window: &Window, flow: &Flow) -> Result<Sorted> {
        let mut columns: Vec<String> = Vec::new();
        for column in window.columns() {
            if !columns.contains(column) {
                columns.push(column.clone());
            }
        }
        let context = self.gather.context()?;
        let forward = !window.backward;
        let rows = self.gather.input("rows", flow, &columns)?;
        let keys = window.keys.iter().map(|key| ident(key.as_str()).sort(true, true));
        let by = keys.chain([ident(window.time.as_str()).sort(forward, true), ident(Gather::ROW).sort(forward, true)]);
        let over = Arc::new(OverWindow::new(window, &columns)?);
        let sorted = self.through(op, &context, (rows, by.collect()), over.clone(), flow)?;
        let gaps = *lock(&over.gaps)?;
        if gaps > 0 {
            self.gather.watch.event(Event::Warning { message: gaps_message(gaps) });
        }
        Ok(sorted)
    }

    /// Sorts rows, computes over them, and sorts the outputs back to the order of the flow's rows.
    pub(super) fn through(
        &self,
        op: OpId,
        context: &SessionContext,
        (rows, by): (LogicalPlan, Vec<SortExpr>),
        over: Arc<dyn Over>,
        flow: &Flow,
    ) -> Result<Sorted> {
        let gather = &self.gather;
        let place = |error: DataFusionError| engine_fault(error, &gather.program.bound.ops[op].label);
        let order = |plan: LogicalPlan, by: Vec<SortExpr>| LogicalPlanBuilder::from(plan).sort(by)?.build();
        let plan = order(rows, by).map_err(place)?;
        let schema = over.schema().clone();
        let computed = Computed { over, plan, context: context.clone() };
        let table = StreamingTable::try_new(schema.clone(), vec![Arc::new(computed)]).map_err(place)?;
        let outputs = LogicalPlanBuilder::scan("outputs", provider_as_source(Arc::new(table)), None)
            .and_then(LogicalPlanBuilder::build)
            .map_err(place)?;
        let back = order(outputs, vec![ident(Gather::ROW).sort(true, true)]).map_err(place)?;
        let state = context.state();
        let physical = gather.io.wait(state.create_physical_plan(&back)).map_err(place)?;
        let mut stream = gather
            .io
            .wait(async { datafusion::physical_plan::execute_stream(physical, state.task_ctx()) })
            .map_err(place)?;
        let mut writer = SortedWriter::new(gather, &schema)?;
        while let Some(batch) = gather.io.wait(stream.next()) {
            writer.write(&batch.map_err(place)?)?;
            gather.memory.check()?;
        }
        let spans =
            flow.streams.iter().map(|stream| Ok(gather.known.input(gather.program, stream.base)?.dataset.spans.len()));
        let kind = match &gather.program.bound.ops[op].op {
            Op::AsOf(_) => Kind::AsOf,
            _ => Kind::Window,
        };
        writer.finish(&spans.collect::<Result<Vec<usize>>>()?, kind)
    }
}

/// A window over rows sorted by series and time.
struct OverWindow {
    backward: bool,
    plan: Arc<WindowPlan>,
    /// Positions of the keys, the time and the inputs in a batch; the row's position comes last.
    keys: Vec<usize>,
    time: usize,
    inputs: Vec<usize>,
    /// The outputs and the row's position.
    schema: SchemaRef,
    gaps: Arc<Mutex<u64>>,
}

impl OverWindow {
    fn new(window: &Window, columns: &[String]) -> Result<Self> {
        let place = |name: &String| {
            let found = columns.iter().position(|column| column == name);
            found.ok_or_else(|| Fault::internal("a window's column is missing"))
        };
        let mut plan = window.plan.as_ref().clone();
        if window.backward {
            plan.time = DataType::Int64;
        }
        let mut fields: Vec<Field> = window.writes.iter().map(|field| field.clone().with_nullable(true)).collect();
        fields.push(Field::new(Gather::ROW, DataType::UInt64, false));
        Ok(OverWindow {
            keys: window.keys.iter().map(place).collect::<Result<_>>()?,
            time: place(&window.time)?,
            inputs: window.reads.iter().map(place).collect::<Result<_>>()?,
            backward: window.backward,
            plan: Arc::new(plan),
            schema: Arc::new(Schema::new(fields)),
            gaps: Arc::default(),
        })
    }
}

impl Over for OverWindow {
    fn schema(&self) -> &SchemaRef {
        &self.schema
    }

    fn start(&self) -> Step {
        let mut engine = Engine::new(self.plan.clone());
        let (keys, time, inputs) = (self.keys.clone(), self.time, self.inputs.clone());
        let (plan, schema, gaps) = (self.plan.clone(), self.schema.clone(), self.gaps.clone());
        let backward = self.backward;
        Box::new(move |batch| {
            let columns =
                |places: &[usize]| places.iter().map(|place| batch.column(*place).clone()).collect::<Vec<_>>();
            let (keys, inputs) = (columns(&keys), columns(&inputs));
            let mut time = batch.column(time).clone();
            if backward {
                time = negated(&cast(&time, &DataType::Int64)?);
            }
            let rows = Rows { keys: &keys, time: &time, inputs: &inputs, rows: batch.num_rows() };
            let mut outputs = engine.push(&rows, &vec![true; plan.functions.len()])?;
            engine.keep_last();
            *lock(&gaps)? = engine.gaps();
            if backward {
                for (output, function) in outputs.iter_mut().zip(&plan.functions) {
                    if matches!(function.compute, Compute::LastValidTime { .. }) {
                        *output = cast(&negated(&cast(output, &DataType::Int64)?), output.data_type())?;
                    }
                }
            }
            outputs.push(batch.column(batch.num_columns() - 1).clone());
            let options = RecordBatchOptions::new().with_row_count(Some(batch.num_rows()));
            Ok(RecordBatch::try_new_with_options(schema.clone(), outputs, &options)?)
        })
    }
}

fn negated(column: &ArrayRef) -> ArrayRef {
    let negated: Int64Array = column.as_primitive::<Int64Type>().unary(i64::wrapping_neg);
    Arc::new(negated)
}

/// The outputs as a stream, in the order of series and time.
struct Computed {
    over: Arc<dyn Over>,
    plan: LogicalPlan,
    context: SessionContext,
}

impl fmt::Debug for Computed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Computed({:?})", self.over.schema())
    }
}

impl PartitionStream for Computed {
    fn schema(&self) -> &SchemaRef {
        self.over.schema()
    }

    fn execute(&self, _context: Arc<TaskContext>) -> SendableRecordBatchStream {
        let (over, plan, context) = (self.over.clone(), self.plan.clone(), self.context.clone());
        let opened = async move {
            let state = context.state();
            let physical = state.create_physical_plan(&plan).await?;
            datafusion::physical_plan::execute_stream(physical, state.task_ctx())
        };
        let outputs = futures::stream::once(opened).flat_map(move |opened| match opened {
            Err(error) => futures::stream::once(async { Err(error) }).left_stream(),
            Ok(rows) => {
                let mut run = over.start();
                let external = |fault: Fault| DataFusionError::External(Box::new(fault));
                rows.map(move |batch| run(&batch?).map_err(external)).right_stream()
            }
        });
        Box::pin(RecordBatchStreamAdapter::new(self.over.schema().clone(), outputs))
    }
}

/// Writes outputs in the order of rows.
struct SortedWriter {
    writer: FileWriter<BufWriter<File>>,
    path: TempPath,
    schema: SchemaRef,
    /// Batches of each task so far, by the number of the task among all spans of all streams.
    batches: BTreeMap<usize, (usize, usize)>,
    count: usize,
}

impl SortedWriter {
    fn new(gather: &GatherPass<'_>, schema: &SchemaRef) -> Result<Self> {
        let outputs = schema.fields().len() - 1;
        let schema = Arc::new(schema.project(&(0..outputs).collect::<Vec<_>>())?);
        let (file, path) = gather.scratch.file()?.into_parts();
        let options = IpcWriteOptions::default().try_with_compression(Some(CompressionType::LZ4_FRAME))?;
        let writer = FileWriter::try_new_with_options(BufWriter::with_capacity(1 << 20, file), &schema, options)?;
        Ok(SortedWriter { writer, path, schema, batches: BTreeMap::new(), count: 0 })
    }

    fn write(&mut self, batch: &RecordBatch) -> Result<()> {
        let positions = batch.column(batch.num_columns() - 1).as_primitive::<UInt64Type>().values();
        let outputs = batch.project(&(0..self.schema.fields().len()).collect::<Vec<_>>())?;
        let mut from = 0;
        while from < positions.len() {
            let task = positions[from] >> ROW_BITS;
            let length = positions[from..].partition_point(|row| row >> ROW_BITS == task);
            self.writer.write(&outputs.slice(from, length))?;
            self.batches.entry(task as usize).or_insert((self.count, 0)).1 += 1;
            self.count += 1;
            from += length;
        }
        Ok(())
    }

    /// `spans` are those of each stream.
    fn finish(mut self, spans: &[usize], kind: Kind) -> Result<Sorted> {
        self.writer.finish()?;
        let mut batches = BTreeMap::new();
        for (task, place) in self.batches {
            let (mut stream, mut span) = (0, task);
            while span >= spans.get(stream).copied().unwrap_or(usize::MAX) {
                span -= spans[stream];
                stream += 1;
            }
            batches.insert((stream, span), place);
        }
        let columns = 0..self.schema.fields().len();
        Ok(Sorted { path: Arc::new(self.path), schema: self.schema, columns, batches: Arc::new(batches), kind })
    }
}
