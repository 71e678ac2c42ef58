//! The worker's side of distributed queries: stages of other plans than its own, over tables that it reads itself.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, Weak};

use arrow::array::RecordBatch;
use datafusion::error::DataFusionError;
use datafusion::execution::{SendableRecordBatchStream, SessionState, TaskContext};
use datafusion_distributed::{DistributedExt, WorkerQueryContext};
use forebay_cluster::{
    AdmittedInputCodec, ExchangeChannels, QueryHeader, ScannedSpans, SpanScanCodec, SpanScanner,
    TaskExecCodec, wire_error,
};
use forebay_execute::{columns_to_read, fallible_batch_stream, stage_config, stage_runtime};
use forebay_model::{ContentId, Fault, Result, TRACE_HEADER, catch_panic};
use forebay_plan::{OpId, PassWork, slice_for_columns};
use forebay_storage::ScratchDir;
use forebay_storage::failpoint::step;
use forebay_threads::lock;

use super::WorkerState;
use super::stage_session::{compile_run, load_dependencies, other};
use super::worker_query::{OpenTable, TableKey, WorkerQuery};

/// Partitions that share the memory at most: the number comes from the network.
const PARTITIONS_MAX: usize = 1 << 10;

impl WorkerState {
    /// The engine's session of a plan from a coordinator.
    pub(super) fn plan_session(
        self: &Arc<Self>,
        context: WorkerQueryContext,
    ) -> Result<SessionState, DataFusionError> {
        let external = |fault: Fault| wire_error(&fault, None);
        let WorkerQueryContext { builder, headers } = context;
        // The same codecs in the same order as on the coordinator.
        let trace = headers
            .get(TRACE_HEADER)
            .and_then(|header| header.to_str().ok()?.parse().ok());
        let builder = builder
            .with_distributed_user_codec(TaskExecCodec {
                host: Some(self.clone()),
                trace,
            })
            .with_distributed_user_codec(SpanScanCodec(Some(self.clone())))
            .with_distributed_user_codec(AdmittedInputCodec);
        // Messages are short, and compressing rows would take CPU time from trainings.
        let mut builder = builder.with_distributed_compression(None)?;
        let Some(header) = QueryHeader::of(&headers).map_err(external)? else {
            return Ok(builder.build());
        };
        let query = self.query(&header).map_err(external)?;
        let config = builder.config().take().unwrap_or_default();
        let partitions = header.partitions.clamp(1, PARTITIONS_MAX);
        let config =
            stage_config(config, self.session.memory(), partitions).with_extension(query.clone());
        let builder = builder
            .with_config(config)
            .with_runtime_env(query.runtime.clone());
        let mut state = builder
            .with_distributed_channel_resolver(query.channels.clone())
            .build();
        self.session.sql.register_functions(&mut state)?;
        Ok(state)
    }

    /// Resources that the stages of an attempt share; created by the first of them.
    fn query(&self, header: &QueryHeader) -> Result<Arc<WorkerQuery>> {
        let mut queries = lock(&self.queries)?;
        if let Some(query) = queries.get(&header.id).and_then(Weak::upgrade) {
            return Ok(query);
        }
        queries.retain(|_, query| query.strong_count() > 0);
        let session =
            self.session
                .for_request(&header.state, &header.base, self.session.options.batch_rows);
        let scratch = ScratchDir::new(Some(&session.state()?), session.watch.clone())?;
        let query = Arc::new(WorkerQuery {
            channels: ExchangeChannels::new(
                self.security.clone().with_tls_name(header.tls_name.clone()),
            ),
            runtime: stage_runtime(session.memory(), scratch.path())?,
            tables: Mutex::default(),
            scratch,
        });
        queries.insert(header.id.clone(), Arc::downgrade(&query));
        Ok(query)
    }

    fn read_spans(
        &self,
        query: &WorkerQuery,
        scanned: &ScannedSpans,
        send: &mut dyn FnMut(RecordBatch) -> bool,
    ) -> Result<(), DataFusionError> {
        if scanned.spans.is_empty() {
            return Ok(());
        }
        step("read", "spans of a query");
        let table = self
            .table(query, scanned)
            .map_err(|fault| wire_error(&fault, None))?;
        let read = table.reader.read(scanned.spans.clone(), &mut |batch| {
            step("have read", "rows of a query");
            send(batch)
        });
        read.and_then(|()| table.leave_counts(query, scanned))
            .map_err(|fault| wire_error(&fault, table.reader.order_failure()))
    }

    fn table(&self, query: &WorkerQuery, scanned: &ScannedSpans) -> Result<Arc<OpenTable>> {
        let ScannedSpans { table, columns, .. } = scanned;
        let key = TableKey {
            pass: table.pass,
            input: table.input,
            columns: columns.clone(),
        };
        let cell = lock(&query.tables)?.entry(key).or_default().clone();
        let mut cell = lock(&cell)?;
        if let Some(open) = cell.as_ref() {
            return Ok(open.clone());
        }
        let open = Arc::new(self.open_table(query, scanned)?);
        *cell = Some(open.clone());
        Ok(open)
    }

    /// Compiles the run that a table belongs to, as far as its rows need it.
    fn open_table(&self, query: &WorkerQuery, scanned: &ScannedSpans) -> Result<OpenTable> {
        let ScannedSpans {
            table,
            columns,
            schema,
            ..
        } = scanned;
        table.check()?;
        let run_spec = &table.job;
        let id =
            serde_json::to_vec(run_spec).map_err(|error| Fault::internal("a job").cause(error))?;
        let session =
            self.session
                .for_request(&run_spec.state, &run_spec.base, run_spec.batch_rows);
        let inputs = self.run_inputs(ContentId::of(&id), &session, run_spec)?;
        let session = session.carrying(run_spec.continues, &run_spec.held, &run_spec.numbering)?;
        let models = session.load_models(run_spec)?;
        let mut run = compile_run(
            &session,
            run_spec,
            &table.row_orders,
            &inputs,
            query.scratch.clone(),
        )?;
        let other_program = || other("another program");
        let op = match run.program.passes.get(table.pass).map(|pass| &pass.work) {
            Some(PassWork::Gather(op)) => *op,
            _ => return Err(other_program()),
        };
        let flow = run
            .program
            .bound
            .gather_inputs
            .get(&op)
            .and_then(|flows| flows.get(table.input));
        let (_, flow) = flow.ok_or_else(other_program)?;
        let streams = flow.streams.clone();
        let names = columns_to_read(flow, columns);
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        let mut ops: BTreeSet<OpId> = BTreeSet::new();
        for stream in &streams {
            let (needed, _) = slice_for_columns(&run.program.bound, stream, &names);
            ops.extend(needed.iter().map(|position| stream.ops[*position]));
        }
        load_dependencies(
            &mut run,
            ops.clone(),
            streams.iter().map(|stream| stream.base).collect(),
            self.attached,
        )?;
        table
            .shuffles
            .iter()
            .try_for_each(|shuffle| run.open_shuffle(shuffle))?;
        ops.iter().try_for_each(|op| run.open_time_join(*op))?;
        let flow = run
            .program
            .bound
            .gather_inputs
            .get(&op)
            .and_then(|flows| flows.get(table.input));
        let (_, flow) = flow.ok_or_else(other_program)?;
        let pass = run.materialize_pass();
        if pass.rows_id(flow)? != table.rows {
            return Err(other("other rows"));
        }
        let reader = pass.reader(flow, columns)?;
        if reader.schema() != schema {
            return Err(other("other columns"));
        }
        Ok(OpenTable {
            reader,
            store: run.store.clone(),
            _models: models,
        })
    }
}

impl SpanScanner for WorkerState {
    fn scan(
        self: Arc<Self>,
        scanned: ScannedSpans,
        context: &TaskContext,
    ) -> Result<SendableRecordBatchStream, DataFusionError> {
        let query = context.session_config().get_extension::<WorkerQuery>();
        let query = query
            .ok_or_else(|| DataFusionError::Internal("a table outside of a query".to_owned()))?;
        let schema = scanned.schema.clone();
        Ok(fallible_batch_stream(&schema, move |send| {
            // A panic, too, goes to the coordinator as a fault.
            let read = catch_panic(|| Ok(self.read_spans(&query, &scanned, send)));
            read.unwrap_or_else(|fault| Err(wire_error(&fault, None)))
        }))
    }
}
