//! One function through which tests enter: [`check`] runs a step over a table in memory and
//! compares the result with the table that is expected, in every layout of text and for several
//! batch sizes.

use std::collections::BTreeMap;
use std::sync::Arc;

use arrow::array::*;
use arrow::compute::{cast, concat, concat_batches, take, take_record_batch};
use arrow::datatypes::{DataType, Field, Float32Type, Float64Type, Int64Type, Schema, SchemaRef};
use arrow::row::{RowConverter, SortField};
use datafusion::prelude::{SessionConfig, SessionContext};
use forebay_analyze::GroupByState;
use forebay_model::*;
use forebay_plan::{
    BaseDataset, BoundPipeline, Carry, ChainContext, ColumnTap, GatherBy, GatherOp, GroupByOp,
    OpChain, OpStream, PlanOp, PrecomputedOutputs, ReaderFacts, SeriesOp, SqlCompiler,
    TakenOutputs, WindowRowOrder, bind,
};
use forebay_window::{InputRows, WindowEngine, WindowFunction};
use serde_json::Value;

/// A column for a table: name and values.
pub fn col(name: &str, values: impl Array + 'static) -> (String, ArrayRef) {
    (name.to_owned(), Arc::new(values))
}

pub type NamedColumns = Vec<(String, ArrayRef)>;

fn batch(table: &NamedColumns) -> RecordBatch {
    let columns = table
        .iter()
        .map(|(name, column)| (name.as_str(), column.clone(), true));
    RecordBatch::try_from_iter_with_nullable(columns).unwrap()
}

/// Runs `step` over `input` and compares with `expect`.
pub fn check(step: Value, input: NamedColumns, expect: NamedColumns) {
    check_nodes(
        vec![("out", "this", vec![step])],
        vec![("this", input)],
        expect,
    );
}

/// Runs several steps, one after the other.
pub fn check_steps(steps: Vec<Value>, input: NamedColumns, expect: NamedColumns) {
    check_nodes(vec![("out", "this", steps)], vec![("this", input)], expect);
}

/// Runs nodes over sources; the node `out` is compared.
pub fn check_nodes(
    nodes: Vec<(&str, &str, Vec<Value>)>,
    sources: Vec<(&str, NamedColumns)>,
    expect: NamedColumns,
) {
    let expect = batch(&expect);
    for layout in layouts() {
        for rows in [1, 3, usize::MAX] {
            let sources = sources
                .iter()
                .map(|(name, table)| (*name, with_text_layout(&batch(table), &layout)))
                .collect();
            let actual = run(&nodes, &sources, rows).unwrap();
            assert_same(
                &actual,
                &expect,
                &format!("{layout:?}, {rows} rows a batch, {nodes:?}"),
            );
        }
    }
}

/// Runs a step that has to fail with this code, and gives the fault.
pub fn check_fault(step: Value, input: NamedColumns, code: FaultCode) -> Fault {
    check_fault_nodes(
        vec![("out", "this", vec![step])],
        vec![("this", input)],
        code,
    )
}

pub fn check_fault_nodes(
    nodes: Vec<(&str, &str, Vec<Value>)>,
    sources: Vec<(&str, NamedColumns)>,
    code: FaultCode,
) -> Fault {
    let sources = sources
        .iter()
        .map(|(name, table)| (*name, batch(table)))
        .collect();
    let fault = run(&nodes, &sources, usize::MAX).expect_err("the step should have failed");
    assert_eq!(fault.code().name, code.name, "{fault}");
    fault
}

fn layouts() -> Vec<DataType> {
    let dictionary = |key| DataType::Dictionary(Box::new(key), Box::new(DataType::Utf8));
    vec![
        DataType::Utf8,
        DataType::LargeUtf8,
        DataType::Utf8View,
        dictionary(DataType::Int32),
        dictionary(DataType::UInt16),
    ]
}

fn with_text_layout(batch: &RecordBatch, layout: &DataType) -> RecordBatch {
    let columns = batch
        .columns()
        .iter()
        .map(|column| match column.data_type() {
            DataType::Utf8 => cast(column, layout).unwrap(),
            _ => column.clone(),
        });
    let columns: Vec<ArrayRef> = columns.collect();
    let fields = batch.schema_ref().fields().iter().zip(&columns);
    let fields: Vec<Field> = fields
        .map(|(f, c)| Field::new(f.name(), c.data_type().clone(), true))
        .collect();
    RecordBatch::try_new(Arc::new(Schema::new(fields)), columns).unwrap()
}

/// Only the shape and the values count: text is plain, NaN equals itself, numbers may differ by rounding.
fn assert_same(actual: &RecordBatch, expect: &RecordBatch, place: &str) {
    let names = |batch: &RecordBatch| {
        batch
            .schema()
            .fields()
            .iter()
            .map(|f| format!("{} {}", f.name(), f.data_type()))
            .collect::<Vec<_>>()
    };
    assert_eq!(names(actual), names(expect), "{place}");
    assert_eq!(actual.num_rows(), expect.num_rows(), "{place}\n{actual:?}");
    for (index, field) in expect.schema().fields().iter().enumerate() {
        let a = actual.column(index);
        let e = expect.column(index);
        assert!(
            same(a, e),
            "{place}: `{}` is\n{a:?}\nnot\n{e:?}",
            field.name()
        );
    }
}

fn same(a: &ArrayRef, b: &ArrayRef) -> bool {
    fn close(a: Option<f64>, b: Option<f64>, tolerance: f64) -> bool {
        match (a, b) {
            (None, None) => true,
            (Some(a), Some(b)) => {
                a == b || (a.is_nan() && b.is_nan()) || (a - b).abs() <= tolerance * b.abs()
            }
            _ => false,
        }
    }
    if a.len() != b.len() {
        return false;
    }
    match a.data_type() {
        DataType::Float64 => {
            let a = a.as_primitive::<Float64Type>();
            let b = b.as_primitive::<Float64Type>();
            a.iter().zip(b.iter()).all(|(a, b)| close(a, b, 1e-12))
        }
        DataType::Float32 => {
            let a = a.as_primitive::<Float32Type>();
            let b = b.as_primitive::<Float32Type>();
            a.iter()
                .zip(b.iter())
                .all(|(a, b)| close(a.map(f64::from), b.map(f64::from), 1e-6))
        }
        DataType::FixedSizeList(..) => {
            let a = a.as_fixed_size_list();
            let b = b.as_fixed_size_list();
            (0..a.len()).all(|i| {
                a.is_null(i) == b.is_null(i) && (a.is_null(i) || same(&a.value(i), &b.value(i)))
            })
        }
        // Fields inside of types may differ in whether they say that there are nulls.
        _ => a == b || cast(a, b.data_type()).is_ok_and(|a| &a == b),
    }
}

fn step(config: &Value) -> Step {
    let (kind, config) = config.as_object().unwrap().iter().next().unwrap();
    let registry = forebay_transforms::registry();
    let canonical = registry.kind(kind).unwrap().canonical;
    let once = canonical(config.clone()).unwrap_or_else(|error| panic!("{error:?}"));
    assert_eq!(
        once,
        canonical(once.clone()).unwrap(),
        "the canonical form of `{kind}` is not stable"
    );
    Step {
        kind: kind.clone(),
        config: once,
        at: None,
    }
}

/// Ids of the operations of a step.
pub fn operation_identities(step: Value, input: NamedColumns) -> Vec<String> {
    let sources = BTreeMap::from([("this", batch(&input))]);
    let bound = bind_nodes(&[("out", "this", vec![step])], &sources).unwrap();
    let mut identities = Vec::new();
    for op in bound.flows["out"].streams[0].ops.iter() {
        identities.push(bound.ops[*op].identity.to_string());
    }
    identities
}

fn bind_nodes(
    nodes: &[(&str, &str, Vec<Value>)],
    sources: &BTreeMap<&str, RecordBatch>,
) -> Result<BoundPipeline> {
    let source = |name: &str| PipelineSource {
        name: name.to_owned(),
        format: "memory".to_owned(),
        config: Value::Null,
        time: None,
        keys: Vec::new(),
        ready: None,
        duplicates: Some(DuplicateRows::Allow),
        lookback: None,
        days: Default::default(),
        at: None,
    };
    let node = |(name, from, steps): &(&str, &str, Vec<Value>)| PipelineNode {
        name: (*name).to_owned(),
        input: NodeInput::From((*from).to_owned()),
        fit_on: None,
        allow_empty: false,
        refit: None,
        data_age: Default::default(),
        steps: steps.iter().map(step).collect(),
        optional: false,
        at: None,
    };
    let pipeline = Pipeline {
        name: "test".to_owned(),
        sources: sources.keys().map(|name| source(name)).collect(),
        nodes: nodes.iter().map(node).collect(),
        ..Pipeline::default()
    };
    let dataset = |batch: &RecordBatch| Dataset {
        schema: batch.schema(),
        spans: Vec::new(),
        column_bytes: None,
        null_counts: Vec::new(),
        watched: Vec::new(),
        version: None,
        left_out: LeftOutFiles::default(),
        files: Vec::new(),
    };
    let datasets = sources
        .iter()
        .map(|(name, batch)| ((*name).to_owned(), dataset(batch)))
        .collect();
    bind(
        &pipeline,
        &forebay_transforms::registry(),
        &SqlCompiler::default(),
        &datasets,
        &ReaderFacts::default(),
    )
}

/// Binds and runs; gives the rows of the node `out`.
pub fn run(
    nodes: &[(&str, &str, Vec<Value>)],
    sources: &BTreeMap<&str, RecordBatch>,
    batch_rows: usize,
) -> Result<RecordBatch> {
    let bound = bind_nodes(nodes, sources)?;
    let mut machine = PipelineInterpreter {
        bound: &bound,
        sources,
        batch_rows,
        findings: Vec::new(),
        gathered: BTreeMap::new(),
    };
    for ask in 0..bound.asks.len() {
        let finding = machine.learn(ask)?;
        machine.findings.push(Arc::new(finding));
    }
    let flow = &bound.flows["out"];
    machine.rows(&flow.streams, &flow.schema)
}

struct PipelineInterpreter<'a> {
    bound: &'a BoundPipeline,
    sources: &'a BTreeMap<&'a str, RecordBatch>,
    batch_rows: usize,
    findings: Vec<Arc<Finding>>,
    gathered: BTreeMap<usize, RecordBatch>,
}

impl PipelineInterpreter<'_> {
    fn learn(&mut self, ask: usize) -> Result<Finding> {
        let ask = &self.bound.asks[ask];
        let scratch: Arc<dyn ScratchSpace> = Arc::new(MemoryScratch::default());
        let analyzer = &ask.ask.analyzer;
        let mut state = analyzer.zero(&scratch)?;
        for stream in &ask.streams {
            self.chain(stream, &ask.ask.inputs, &mut |_, input| {
                // Each batch has a state of its own, which is merged.
                let mut part = analyzer.zero(&scratch)?;
                analyzer.update(&mut part, &input)?;
                let mut bytes = Vec::new();
                analyzer.encode(&mut part, &mut bytes)?;
                analyzer.merge(
                    &mut state,
                    analyzer.decode(&mut bytes.as_slice(), &scratch)?,
                )
            })?;
        }
        analyzer.finish(state)
    }

    fn chain(
        &mut self,
        stream: &OpStream,
        columns: &[String],
        give: &mut dyn FnMut(&[Field], AnalyzerInput<'_>) -> Result<()>,
    ) -> Result<()> {
        let whole = self.base(stream.base)?;
        let needed: Vec<usize> = (0..stream.ops.len()).collect();
        let names: Vec<String> = whole
            .schema()
            .fields()
            .iter()
            .map(|field| field.name().clone())
            .collect();
        let wants = [ColumnTap {
            after: stream.ops.len(),
            columns: columns.to_vec(),
            part: None,
            marks_unfound: false,
        }];
        let chain = {
            let findings = &self.findings;
            let finding = |ask: usize| Ok(findings[ask].clone());
            let way = |op: usize| {
                if self.is_backward(op) {
                    WindowRowOrder::Sorted
                } else {
                    WindowRowOrder::Time
                }
            };
            let told = ChainContext {
                finding: &finding,
                row_order: &way,
                admit: None,
                check_stop: None,
            };
            OpChain::new(self.bound, stream, &needed, &names, &wants, told)?
        };
        let fields = chain.fields(0).to_vec();
        let mut carry = Carry::default();
        let sorted: Vec<usize> = chain
            .windows()
            .iter()
            .filter(|window| window.row_order == WindowRowOrder::Sorted)
            .map(|window| window.op)
            .collect();
        let bound = self.bound;
        for op in sorted {
            let outputs = match &bound.ops[op].op {
                PlanOp::Series(series) => self.outputs_of_series(op, series)?,
                _ => self.outputs_backward(op)?,
            };
            carry.set_precomputed(op, Box::new(outputs));
        }
        let mut row = 0;
        while row < whole.num_rows() || row == 0 {
            let length = self.batch_rows.min(whole.num_rows() - row);
            let mut chunk = Chunk::of(whole.slice(row, length));
            chunk.keys = Some(RowKeys::sequence(7, row as u64, length));
            chain.run(&[chunk], &mut carry, &mut |_, input| give(&fields, input))?;
            row += length;
            if length == 0 {
                break;
            }
        }
        Ok(())
    }

    /// The outputs of a function that is given whole series.
    fn outputs_of_series(&mut self, op: usize, series: &SeriesOp) -> Result<BackwardOutputs> {
        let flow = &self.bound.window_inputs[&op];
        let rows = self.rows(&flow.streams, &flow.schema)?;
        let encoded = |names: Vec<&String>| {
            let columns: Vec<ArrayRef> = names
                .into_iter()
                .map(|name| rows.column_by_name(name).unwrap().clone())
                .collect();
            let fields = columns
                .iter()
                .map(|column| SortField::new(column.data_type().clone()));
            let converter = RowConverter::new(fields.collect()).unwrap();
            converter.convert_columns(&columns).unwrap()
        };
        let keys = encoded(series.keys.iter().collect());
        let places = encoded(series.keys.iter().chain(&series.time).collect());
        let mut order: Vec<usize> = (0..rows.num_rows()).collect();
        order.sort_by(|a, b| places.row(*a).cmp(&places.row(*b)));
        let mut computed: Vec<Vec<ArrayRef>> = Vec::new();
        for group in order.chunk_by(|a, b| keys.row(*a) == keys.row(*b)) {
            let picks = UInt64Array::from_iter_values(group.iter().map(|row| *row as u64));
            let inputs: Vec<ArrayRef> = series
                .reads
                .iter()
                .map(|name| take(rows.column_by_name(name).unwrap(), &picks, None).unwrap())
                .collect();
            computed.push((series.kernel)(&inputs, group.len())?);
        }
        let mut back = vec![0; order.len()];
        for (place, row) in order.iter().enumerate() {
            back[*row] = place as u64;
        }
        let back = UInt64Array::from(back);
        let mut outputs = Vec::new();
        for output in 0..series.writes.len() {
            let parts: Vec<&dyn Array> = computed
                .iter()
                .map(|columns| columns[output].as_ref())
                .collect();
            outputs.push(take(&concat(&parts)?, &back, None)?);
        }
        Ok(BackwardOutputs { outputs, row: 0 })
    }

    fn is_backward(&self, op: usize) -> bool {
        matches!(&self.bound.ops[op].op, PlanOp::Window(window) if window.backward)
    }

    /// The outputs of a window that reads series from their end.
    fn outputs_backward(&mut self, op: usize) -> Result<BackwardOutputs> {
        let PlanOp::Window(window) = &self.bound.ops[op].op else {
            panic!("not a window")
        };
        let flow = &self.bound.window_inputs[&op];
        let rows = self.rows(&flow.streams, &flow.schema)?;
        let last_first = UInt64Array::from_iter_values((0..rows.num_rows() as u64).rev());
        let turned = |column: &ArrayRef| take(column, &last_first, None).unwrap();
        let negated = |ticks: &ArrayRef| -> ArrayRef {
            let ticks = cast(ticks, &DataType::Int64).unwrap();
            Arc::new(
                ticks
                    .as_primitive::<Int64Type>()
                    .unary::<_, Int64Type>(i64::wrapping_neg),
            )
        };
        let column = |name: &String| turned(rows.column_by_name(name).unwrap());
        let mut plan = window.plan.as_ref().clone();
        plan.time = DataType::Int64;
        let keys = window.keys.iter().map(column).collect::<Vec<_>>();
        let inputs = window.reads.iter().map(column);
        let time = negated(&column(&window.time));
        let inputs = inputs.collect::<Vec<_>>();
        let pushed = InputRows {
            keys: &keys,
            time: &time,
            inputs: &inputs,
            rows: rows.num_rows(),
        };
        let emit = vec![true; plan.functions.len()];
        let outputs = WindowEngine::new(Arc::new(plan)).push(&pushed, &emit)?;
        let each = outputs
            .iter()
            .zip(&window.plan.functions)
            .map(|(output, function)| match function.compute {
                WindowFunction::LastValidTime { .. } => negated(&turned(output)),
                _ => turned(output),
            });
        Ok(BackwardOutputs {
            outputs: each.collect(),
            row: 0,
        })
    }

    fn rows(&mut self, streams: &[OpStream], schema: &SchemaRef) -> Result<RecordBatch> {
        let names: Vec<String> = schema
            .fields()
            .iter()
            .map(|field| field.name().clone())
            .collect();
        let mut batches = Vec::new();
        for stream in streams {
            self.chain(stream, &names, &mut |fields, input| {
                let columns: Vec<ArrayRef> = input
                    .columns
                    .iter()
                    .zip(fields)
                    .map(|(c, f)| to_declared_type(c, f))
                    .collect();
                let fields = fields
                    .iter()
                    .map(|f| f.clone().with_nullable(true))
                    .collect::<Vec<_>>();
                batches.push(RecordBatch::try_new(Arc::new(Schema::new(fields)), columns).unwrap());
                Ok(())
            })?;
        }
        Ok(concat_batches(&batches[0].schema(), &batches)?)
    }

    fn base(&mut self, base: usize) -> Result<RecordBatch> {
        let op = match &self.bound.bases[base] {
            BaseDataset::Source(name) => return Ok(self.sources[name.as_str()].clone()),
            BaseDataset::Gathered(op) => *op,
        };
        if let Some(known) = self.gathered.get(&op) {
            return Ok(known.clone());
        }
        let PlanOp::Gather(gather) = &self.bound.ops[op].op else {
            panic!("not a gather")
        };
        let lower = match &gather.lower {
            GatherBy::Query(lower) => lower,
            GatherBy::Future(_) => panic!("rows of the future have passes of their own"),
            GatherBy::Join { .. } => panic!("joins that multiply rows are tested with whole runs"),
            GatherBy::GroupBy(own) => {
                let (_, flow) = &self.bound.gather_inputs[&op][0];
                let whole = group_by(
                    &self.rows(&flow.streams, &flow.schema)?,
                    own,
                    &gather.schema,
                )?;
                self.gathered.insert(op, whole.clone());
                return Ok(whole);
            }
            GatherBy::OnePerKey { keys, last } => {
                let (_, flow) = &self.bound.gather_inputs[&op][0];
                let kept = one_per_key(&self.rows(&flow.streams, &flow.schema)?, keys, *last);
                let fields = gather.schema.fields().iter();
                let columns = fields
                    .map(|field| {
                        to_declared_type(kept.column_by_name(field.name()).unwrap(), field)
                    })
                    .collect();
                let whole = RecordBatch::try_new(gather.schema.clone(), columns).unwrap();
                self.gathered.insert(op, whole.clone());
                return Ok(whole);
            }
        };
        let mut inputs = Vec::new();
        // Several partitions, so that results may depend on them if they can.
        let context =
            SessionContext::new_with_config(SessionConfig::new().with_target_partitions(3));
        for (_, flow) in &self.bound.gather_inputs[&op] {
            let rows = self.rows(&flow.streams, &flow.schema)?;
            let mut columns = vec![];
            for (field, column) in rows.schema().fields().iter().zip(rows.columns()) {
                columns.push((field.name().clone(), column.clone(), true));
            }
            let positions: ArrayRef =
                Arc::new(UInt64Array::from_iter_values(0..rows.num_rows() as u64));
            columns.push((GatherOp::ROW.to_owned(), positions, false));
            let rows = RecordBatch::try_from_iter_with_nullable(columns).unwrap();
            let parts: Vec<Vec<RecordBatch>> = (0..3)
                .map(|part| {
                    let from = rows.num_rows() * part / 3;
                    let to = rows.num_rows() * (part + 1) / 3;
                    vec![rows.slice(from, to - from)]
                })
                .collect();
            let table = datafusion::datasource::MemTable::try_new(rows.schema(), parts).unwrap();
            inputs.push(
                context
                    .read_table(Arc::new(table))
                    .unwrap()
                    .into_unoptimized_plan(),
            );
        }
        let plan = lower(inputs)?;
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(2)
            .build()
            .unwrap();
        let batches = runtime.block_on(async {
            let frame = context.execute_logical_plan(plan).await.unwrap();
            let schema: SchemaRef = Arc::new(frame.schema().as_arrow().clone());
            (schema, frame.collect().await)
        });
        let schema = batches.0;
        let batches = batches
            .1
            .map_err(|error| Fault::new(codes::BAD_ROW, "the plan failed").cause(error))?;
        let batches = if batches.is_empty() {
            vec![RecordBatch::new_empty(schema)]
        } else {
            batches
        };
        let whole = concat_batches(&batches[0].schema(), &batches)?;
        let fields = gather.schema.fields().iter();
        let columns = fields
            .map(|field| to_declared_type(whole.column_by_name(field.name()).unwrap(), field))
            .collect();
        let whole = RecordBatch::try_new(gather.schema.clone(), columns).unwrap();
        self.gathered.insert(op, whole.clone());
        Ok(whole)
    }
}

/// One row per key, of states of three parts of the rows with little memory, merged backwards.
fn group_by(rows: &RecordBatch, op: &GroupByOp, schema: &SchemaRef) -> Result<RecordBatch> {
    let scratch: Arc<dyn ScratchSpace> = Arc::new(MemoryScratch { budget_bytes: 4096 });
    let columns: Vec<ArrayRef> = op
        .inputs
        .iter()
        .map(|name| rows.column_by_name(name).unwrap().clone())
        .collect();
    let mut whole: Option<GroupByState> = None;
    for part in (0..3).rev() {
        let from = rows.num_rows() * part / 3;
        let to = rows.num_rows() * (part + 1) / 3;
        let mut state = GroupByState::new(&op.spec, &scratch)?;
        let columns: Vec<ArrayRef> = columns
            .iter()
            .map(|column| column.slice(from, to - from))
            .collect();
        state.update(&columns, to - from, from as u64)?;
        match &mut whole {
            None => whole = Some(state),
            Some(whole) => whole.merge(state)?,
        }
    }
    let mut groups = whole.unwrap().into_sorted()?;
    let mut batches = Vec::new();
    while let Some(columns) = groups.next_columns()? {
        batches.push(RecordBatch::try_new(schema.clone(), columns)?);
    }
    Ok(concat_batches(schema, &batches)?)
}

/// The first or last row of each key, in order.
fn one_per_key(rows: &RecordBatch, keys: &[String], last: bool) -> RecordBatch {
    let columns: Vec<ArrayRef> = keys
        .iter()
        .map(|key| canonical_keys(rows.column_by_name(key).unwrap()).unwrap())
        .collect();
    let fields = columns
        .iter()
        .map(|column| SortField::new(column.data_type().clone()))
        .collect();
    let encoded = RowConverter::new(fields)
        .unwrap()
        .convert_columns(&columns)
        .unwrap();
    let mut kept: BTreeMap<Vec<u8>, u32> = BTreeMap::new();
    for (row, key) in (0..).zip(&encoded) {
        let kept = kept.entry(key.as_ref().to_vec()).or_insert(row);
        *kept = if last { row } else { *kept };
    }
    let mut kept: Vec<u32> = kept.into_values().collect();
    kept.sort_unstable();
    take_record_batch(rows, &UInt32Array::from(kept)).unwrap()
}

struct BackwardOutputs {
    outputs: Vec<ArrayRef>,
    row: usize,
}

impl PrecomputedOutputs for BackwardOutputs {
    fn take(&mut self, rows: usize, emit: &[bool]) -> Result<TakenOutputs> {
        self.row += rows;
        let wanted = self.outputs.iter().zip(emit).filter(|(_, emit)| **emit);
        let columns = wanted
            .map(|(output, _)| output.slice(self.row - rows, rows))
            .collect();
        Ok(TakenOutputs::of_columns(columns))
    }
}

/// The column in the layout of its logical type, which has to be the declared one.
fn to_declared_type(column: &ArrayRef, field: &Field) -> ArrayRef {
    let logical = logical_type(column.data_type());
    assert_eq!(
        &logical,
        field.data_type(),
        "`{}` is of another type than declared",
        field.name()
    );
    assert!(
        field.is_nullable() || column.logical_null_count() == 0,
        "`{}` has nulls, though declared without",
        field.name()
    );
    cast(column, &logical).unwrap()
}
