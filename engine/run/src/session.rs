//! The front door: discover, explain, fit, run, apply.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use arrow::datatypes::Field;
use forebay_cluster::{Cluster, ClusterSize};
use forebay_commit::{
    Artifact, AttemptFence, IntervalEntry, Manifest, StateLease, StateStore, output_root,
};
use forebay_execute::{IntervalFilter, RunState, SourceInput, truncate_at};
use forebay_model::{
    BATCH_ROWS_DEFAULT, ContentId, Dataset, Fault, Interval, Pipeline, Result, TimeCutoff, codes,
};
use forebay_plan::{
    BaseDataset, BoundPipeline, ExplainProgram, FUTURE_PART, PassReuse, PassWork, Program,
    SinkWork, SqlCompiler, TransformRegistry, base_column, compile, unknown_column,
};
use forebay_setters::Setters;
use forebay_storage::{
    BackgroundTasks, CancellationToken, Event, EventListener, MemoryBudget, MetadataCache,
    ScratchDir, Sink, Source, StorageClient, StorageLocation, machine_bytes, metadata_cache_id,
};
use jiff::{Timestamp, Zoned};

use crate::backfill::BackfillTurn;
use crate::cancellable_source::CancellableSource;
use crate::carried::CarriedRun;
use crate::connector_registry::ConnectorRegistry;
use crate::deadline::{CostHistory, DeadlineSpec, planned_passes};
use crate::executor::{PassInterval, RunExecutor, interval_pass_id};
use crate::report::RunReport;
use crate::run::RunMode;
use crate::served_rows::ServedRows;
use crate::serving_inputs::OptionalColumns;
use crate::training_tracker::TrainingTracker;

/// What the user decides about a run.
///
/// ```
/// use forebay_run::SessionOptions;
///
/// let options = SessionOptions::default().memory_bytes(4 << 30).state("s3://bucket/state");
/// assert_eq!(options.batch_rows, 8192);
/// ```
#[derive(Debug, Clone, Setters)]
pub struct SessionOptions {
    /// Threads that read, compute and encode.
    pub threads: usize,
    /// The memory limit of the process.
    pub memory_bytes: u64,
    /// Rows per batch.
    pub batch_rows: usize,
    /// The state directory: a path or a URL such as `s3://bucket/key`.
    pub state: String,
    /// Names the run: in its lineage, and among its attempts.
    pub run_id: Option<String>,
}

/// Memory where the machine does not tell how much it has.
const MEMORY_BYTES_DEFAULT: u64 = 1 << 30;

/// The state directory where nothing names one.
const STATE_DEFAULT: &str = ".forebay";

/// All threads and half of the memory of the machine, and the state directory `.forebay`.
impl Default for SessionOptions {
    fn default() -> Self {
        SessionOptions {
            threads: std::thread::available_parallelism().map_or(1, usize::from),
            memory_bytes: machine_bytes().map_or(MEMORY_BYTES_DEFAULT, |bytes| bytes / 2),
            batch_rows: BATCH_ROWS_DEFAULT,
            state: STATE_DEFAULT.to_owned(),
            run_id: None,
        }
    }
}

/// Everything that a run needs.
#[derive(Clone)]
pub struct Session {
    pub(crate) io: StorageClient,
    pub(crate) registry: TransformRegistry,
    pub(crate) connectors: Arc<dyn ConnectorRegistry>,
    pub(crate) sql: SqlCompiler,
    pub(crate) options: SessionOptions,
    pub(crate) watch: Arc<dyn EventListener>,
    pub(crate) interrupt: CancellationToken,
    pub(crate) deadline: Option<Timestamp>,
    pub(crate) cluster: Option<Arc<Cluster>>,
    /// Its place among runs side by side.
    pub(crate) turn: Option<BackfillTurn>,
    /// Its attempt at a run that has an id.
    pub(crate) claim: Option<Arc<AttemptFence>>,
    /// Keeps what it relies on from being collected, while it runs.
    pub(crate) lease: Option<Arc<StateLease>>,
    /// Whether a whole output may lose all its rows.
    pub(crate) allow_empty: bool,
    /// True if tokens may get other ids than those that outputs show.
    pub(crate) renumbers: bool,
    /// Rows of the future of this time are not known, in all sources with a time; an interval comes before it.
    pub(crate) as_of: Option<TimeCutoff>,
    /// What the run goes on from.
    pub(crate) carried: Option<Arc<CarriedRun>>,
    /// What is told of trainings.
    pub(crate) tracker: Option<Arc<dyn TrainingTracker>>,
    /// The rows that applying an artifact writes.
    pub(crate) served: ServedRows,
    /// Columns that the sources may lack, while an artifact is applied.
    pub(crate) optional_columns: OptionalColumns,
}

/// A pipeline on its data, before anything ran.
pub(crate) struct PreparedRun {
    pub datasets: BTreeMap<String, Dataset>,
    pub state: RunState,
    pub bound: BoundPipeline,
    /// What the run goes on from.
    pub carried: Option<Arc<CarriedRun>>,
}

impl Session {
    /// A session over some transforms and connectors.
    pub fn new(
        registry: TransformRegistry,
        connectors: Arc<dyn ConnectorRegistry>,
        sql: SqlCompiler,
        options: SessionOptions,
        watch: Arc<dyn EventListener>,
    ) -> Result<Self> {
        let io = StorageClient::new()?;
        io.set_read_ahead_bytes(MemoryBudget::new(options.memory_bytes).read_ahead_bytes());
        let interrupt = io.cancellation().clone();
        let (deadline, cluster, turn, claim) = (None, None, None, None);
        let (lease, allow_empty, as_of, carried, tracker) = (None, false, None, None, None);
        Ok(Session {
            io,
            registry,
            connectors,
            sql,
            options,
            watch,
            interrupt,
            deadline,
            cluster,
            turn,
            claim,
            lease,
            allow_empty,
            renumbers: false,
            as_of,
            carried,
            tracker,
            served: ServedRows::default(),
            optional_columns: OptionalColumns::new(),
        })
    }

    /// This session, writing these rows where it applies an artifact.
    pub fn serving(self, served: ServedRows) -> Self {
        Session { served, ..self }
    }

    /// The same, that publishes outputs without a row, too. Else a run fails where a whole output would be empty,
    /// and rows were read for it, or readers see rows of it. Intervals may be empty anyway.
    pub fn allowing_empty(self, allow_empty: bool) -> Self {
        Session {
            allow_empty,
            ..self
        }
    }

    /// Where this session has no deadline, that of a pipeline, for everything that it does from now on.
    pub fn with_deadline_of(self, pipeline: &Pipeline) -> Result<Self> {
        let by = pipeline
            .deadline
            .as_ref()
            .and_then(|deadline| deadline.by.as_deref());
        match (self.deadline, by) {
            (None, Some(by)) => self.with_deadline(&DeadlineSpec::parse(by)?),
            _ => Ok(self),
        }
    }

    /// The deadline of everything that this session does from now on; it comes before those of specs.
    pub fn with_deadline(self, deadline: &DeadlineSpec) -> Result<Self> {
        Ok(Session {
            deadline: Some(deadline.resolve(&Zoned::now())?),
            ..self
        })
    }

    /// The same, with workers that do what they can do.
    pub fn with_cluster(self, cluster: Cluster) -> Result<Self> {
        cluster.publish_status(self.io.clone(), &self.state()?)?;
        Ok(Session {
            cluster: Some(Arc::new(cluster)),
            ..self
        })
    }

    /// The same, whose runs tell of their trainings.
    pub fn with_training_tracker(self, tracker: Arc<dyn TrainingTracker>) -> Self {
        Session {
            tracker: Some(tracker),
            ..self
        }
    }

    /// Stops runs early: they fail after the batches that they are in.
    pub fn interrupt(&self) -> &CancellationToken {
        &self.interrupt
    }

    /// Fails where another attempt has taken the run over, or where what it relies on may be gone.
    pub(crate) fn check_fence(&self) -> Result<()> {
        self.lease.as_ref().map_or(Ok(()), |lease| lease.check())?;
        self.claim.as_ref().map_or(Ok(()), |claim| claim.check())
    }

    pub(crate) fn cancellable(&self, inner: Arc<dyn Source>) -> Arc<dyn Source> {
        Arc::new(CancellableSource {
            inner,
            interrupt: self.interrupt.clone(),
            claim: self.claim.clone(),
        })
    }

    /// The memory limit of the process, in bytes.
    pub fn memory_bytes(&self) -> u64 {
        self.options.memory_bytes
    }

    /// The way to storage.
    pub fn io(&self) -> &StorageClient {
        &self.io
    }

    /// The state directory.
    pub fn state(&self) -> Result<StorageLocation> {
        self.io.resolve(&self.options.state)
    }

    pub(crate) fn memory(&self) -> MemoryBudget {
        MemoryBudget::new(self.options.memory_bytes)
            .one_of(self.turn.as_ref().map_or(1, |turn| turn.beside))
    }

    /// Lists the sources and compares their schemas.
    pub fn discover(&self, pipeline: &Pipeline) -> Result<BTreeMap<String, Dataset>> {
        Ok(datasets(
            &self.discover_inputs(&self.io, pipeline, None, None)?,
        ))
    }

    /// Discovers all sources. What they note is kept `later`, where that is given.
    pub(crate) fn discover_inputs(
        &self,
        io: &StorageClient,
        pipeline: &Pipeline,
        later: Option<(&ScratchDir, &mut BackgroundTasks)>,
        interval: Option<&Interval>,
    ) -> Result<BTreeMap<String, SourceInput>> {
        let (inputs, faults) = self.discover_each(io, pipeline, later, interval);
        Fault::combine(faults).map_or(Ok(inputs), Err)
    }

    /// The same, with those that were found beside the faults of the others.
    pub(crate) fn discover_each(
        &self,
        io: &StorageClient,
        pipeline: &Pipeline,
        mut later: Option<(&ScratchDir, &mut BackgroundTasks)>,
        interval: Option<&Interval>,
    ) -> (BTreeMap<String, SourceInput>, Vec<Fault>) {
        let mut inputs = BTreeMap::new();
        let mut faults = Vec::new();
        let store = match self.state() {
            Ok(state) => StateStore::new(self.io.clone(), state),
            Err(fault) => return (inputs, vec![fault]),
        };
        for source in &pipeline.sources {
            let found = self
                .connectors
                .source(&source.format, &source.config)
                .and_then(|reader| {
                    let watch: Vec<String> =
                        source.time.iter().chain(&source.keys).cloned().collect();
                    let id = metadata_cache_id(source, &watch);
                    let kept = store.clone();
                    let notes = MetadataCache::new(move || kept.get_metadata(id));
                    let (reader, mut dataset) =
                        self.discover_served(io, source, reader, &watch, &notes)?;
                    if let (Some((scratch, later)), Some(notes)) = (&mut later, notes.into_stored())
                    {
                        let (store, scratch) = (store.clone(), scratch.clone());
                        later.spawn(move || store.put_metadata(id, &notes, &scratch));
                    }
                    let in_time_order = source
                        .time
                        .as_ref()
                        .is_some_and(|time| dataset.sort_spans_by_time(time));
                    let input = SourceInput {
                        dataset: Arc::new(dataset),
                        source: self.cancellable(reader),
                        in_time_order,
                    };
                    let input = self.with_absent_columns(source, input);
                    let Some(time) = &source.time else {
                        return Ok(input);
                    };
                    if let Some(interval) = interval {
                        interval.ticks(input.dataset.schema.field_with_name(time)?)?;
                    }
                    let end = interval
                        .map(|interval| TimeCutoff::before(&interval.to))
                        .or_else(|| self.as_of.clone());
                    end.map_or(Ok(input.clone()), |end| truncate_at(input, time, &end))
                });
            match found {
                Ok(input) => {
                    self.watch.on_event(Event::Discovered {
                        source: source.name.clone(),
                        spans: input.dataset.spans.len(),
                        rows: input.dataset.rows(),
                        bytes: input.dataset.bytes(),
                        folder: input.dataset.folder(),
                    });
                    if let Some(left_out) = input.dataset.left_out.text() {
                        let message = format!("source `{}`: {left_out}", source.name);
                        self.watch.on_event(Event::Warning { message });
                    }
                    inputs.insert(source.name.clone(), input);
                }
                Err(fault) => faults.push(
                    self.with_format_hint(fault, &source.format)
                        .at(source.at.as_ref()),
                ),
            }
        }
        (inputs, faults)
    }

    /// Says so where a file that cannot be read is named like one of another format.
    fn with_format_hint(&self, fault: Fault, format: &str) -> Fault {
        let unreadable = [codes::CORRUPT, codes::BAD_ROW].contains(&fault.code());
        let named = fault
            .site()
            .file
            .as_deref()
            .and_then(|file| self.connectors.format_of_name(file));
        match named.filter(|named| unreadable && *named != format) {
            Some(named) => {
                let hint = format!(
                    "the name is that of a {named} file: write `{named}:` instead of `{format}:`"
                );
                fault.hint(hint).fragment(format, 0)
            }
            None => fault,
        }
    }

    pub(crate) fn prepare(
        &self,
        pipeline: &Pipeline,
        sinks: &[usize],
        later: Option<(&ScratchDir, &mut BackgroundTasks)>,
        interval: Option<&Interval>,
    ) -> Result<PreparedRun> {
        let place = |sink: &usize| {
            Ok((
                &pipeline.sinks[*sink],
                self.io.resolve(self.sink(pipeline, *sink)?.path())?,
            ))
        };
        // Before anything is read.
        self.io.require_bucket(&self.state()?)?;
        let places = sinks.iter().map(place).collect::<Result<Vec<_>>>()?;
        for (sink, place) in &places {
            self.io
                .require_bucket(place)
                .map_err(|fault| fault.at(sink.at.as_ref()))?;
        }
        let sources = self.discover_inputs(&self.io, pipeline, later, interval)?;
        crate::output_overlap::check_overlap(&self.io, pipeline, &datasets(&sources), &places)?;
        for sink in sinks {
            let checked = Manifest::check_place(&self.io, &self.output(pipeline, *sink)?);
            checked.map_err(|fault| fault.at(pipeline.sinks[*sink].at.as_ref()))?;
        }
        let mut prepared = self.prepare_with(pipeline, sinks, sources)?;
        prepared.carried =
            self.carried_run(pipeline, &prepared.bound, &prepared.state.sources, interval)?;
        prepared
            .carried
            .iter()
            .try_for_each(|carried| carried.apply(pipeline, &mut prepared.bound))?;
        Ok(prepared)
    }

    /// The same, over sources that were discovered, for places that were looked at.
    pub(crate) fn prepare_with(
        &self,
        pipeline: &Pipeline,
        sinks: &[usize],
        sources: BTreeMap<String, SourceInput>,
    ) -> Result<PreparedRun> {
        let datasets = datasets(&sources);
        let bound = self.bind(pipeline, &datasets)?;
        self.check_layouts(pipeline, sinks, &bound)?;
        let state = RunState {
            sources,
            ..RunState::default()
        };
        Ok(PreparedRun {
            datasets,
            state,
            bound,
            carried: None,
        })
    }

    /// Whether the columns by which sinks partition and sort are there.
    pub(crate) fn check_layouts(
        &self,
        pipeline: &Pipeline,
        sinks: &[usize],
        bound: &BoundPipeline,
    ) -> Result<()> {
        let mut faults = Vec::new();
        for index in sinks {
            let sink = &pipeline.sinks[*index];
            let (Some(flow), layout) = (
                bound.flows.get(&sink.from),
                self.sink(pipeline, *index)?.layout(),
            ) else {
                continue;
            };
            let columns = layout.partition_by.iter().chain(&layout.sort_by);
            let missing = columns.filter(|name| flow.schema.field_with_name(name).is_err());
            faults.extend(
                missing.map(|name| unknown_column(name, &flow.schema).at(sink.at.as_ref())),
            );
        }
        Fault::combine(faults).map_or(Ok(()), Err)
    }

    /// What a run would do, over everything or for an interval.
    pub fn explain(
        &self,
        pipeline: &Pipeline,
        interval: Option<&Interval>,
    ) -> Result<ExplainProgram> {
        self.explain_on(pipeline, interval, None)
    }

    /// The same, with the stages of queries on so many workers.
    pub fn explain_on(
        &self,
        pipeline: &Pipeline,
        interval: Option<&Interval>,
        workers: Option<ClusterSize>,
    ) -> Result<ExplainProgram> {
        let sinks: Vec<usize> = (0..pipeline.sinks.len()).collect();
        let mut prepared = self.prepare(pipeline, &sinks, None, interval)?;
        let store = StateStore::new(self.io.clone(), self.state()?);
        let scratch = ScratchDir::new(None, self.watch.clone())?;
        self.measure_drift(pipeline, &mut prepared, &store, &scratch, false)?;
        let session = Session {
            carried: prepared.carried.clone(),
            ..self.clone()
        };
        let bounded = session.rebind_bounded(pipeline, &prepared.datasets, &mut prepared.bound)?;
        let pipeline = bounded.as_ref().unwrap_or(pipeline);
        let extended = self.with_training_inputs(pipeline, &prepared.bound)?;
        let pipeline = extended.as_ref().unwrap_or(pipeline);
        if extended.is_some() {
            prepared.bound = session.bind(pipeline, &prepared.datasets)?;
        }
        let sinks: Vec<usize> = (0..pipeline.sinks.len()).collect();
        let PreparedRun {
            datasets,
            mut state,
            bound,
            ..
        } = prepared;
        let share = scratch.scratch_with_budget(self.memory(), self.memory().states_bytes());
        let asks = bound.asks.clone();
        let mut program = compile(pipeline, bound, &datasets, &sinks, true, &mut |ask, id| {
            store.load_finding(
                id,
                asks[ask].ask.analyzer.as_ref(),
                &share,
                &mut state.findings,
            )
        })?;
        let intervals = self.restrict_to_interval(pipeline, &mut program, interval, None)?;
        let mut run = RunExecutor {
            intervals,
            ..RunExecutor::new(self, pipeline, store, scratch, program, state)
        };
        let mut standing: BTreeMap<ContentId, PassReuse> = BTreeMap::new();
        for pass in run.program.passes.clone() {
            standing.insert(pass.id, run.inspect_pass(&pass)?);
        }
        let names: Vec<String> = pipeline
            .sinks
            .iter()
            .map(|sink| sink.name.clone())
            .collect();
        let states_bytes = self.memory().states_bytes();
        let standing = |id| standing.get(&id).copied().unwrap_or_default();
        let mut explain =
            ExplainProgram::new(&run.program, &names, &datasets, states_bytes, &standing);
        self.estimate_seconds(&run, &datasets, &mut explain)?;
        if let Some(workers) = workers {
            let spec = self.explained_run(pipeline)?;
            for (explained, pass) in explain.passes.iter_mut().zip(&run.program.passes) {
                if let PassWork::Gather(op) = &pass.work {
                    explained.stages = run.materialize_pass().explain_query(*op, &spec, workers)?;
                }
            }
        }
        explain.trainings =
            self.explain_trainings(pipeline, &run.program.bound, explain.passes.len())?;
        explain.continues = session.continued_id().map(|id| id.to_string());
        explain.refits = session
            .carried
            .as_ref()
            .map(|carried| carried.refits.steps.clone())
            .unwrap_or_default();
        Ok(explain)
    }

    /// Tells for each pass how long it should take, by what earlier runs of the pipeline took.
    fn estimate_seconds(
        &self,
        run: &RunExecutor<'_>,
        datasets: &BTreeMap<String, Dataset>,
        explain: &mut ExplainProgram,
    ) -> Result<()> {
        let costs = self.cost_history(&run.pipeline.name)?;
        let planned = planned_passes(&run.program, run.pipeline, datasets, None, &run.state);
        for (pass, mut planned) in explain.passes.iter_mut().zip(planned) {
            planned.read = match pass.spans_to_read {
                _ if pass.reused => Some(0),
                Some((read, all)) => {
                    Some((planned.total as f64 * read as f64 / all.max(1) as f64) as u64)
                }
                None => None,
            };
            pass.seconds =
                (costs.is_known() && !pass.reused).then(|| costs.estimate(&planned).seconds);
        }
        Ok(())
    }

    /// What earlier runs of a pipeline cost.
    pub(crate) fn cost_history(&self, pipeline: &str) -> Result<CostHistory> {
        let history = self.io.get(&self.cost_location(pipeline)?)?;
        Ok(history
            .map(|bytes| CostHistory::from_json(&bytes))
            .unwrap_or_default())
    }

    /// Where that is kept.
    pub(crate) fn cost_location(&self, pipeline: &str) -> Result<StorageLocation> {
        Ok(self.state()?.join(&format!("costs/{pipeline}.json")))
    }

    /// Which rows of a sink lie in an interval, or from a time on: the column of times must still be there.
    fn interval_filter(
        &self,
        pipeline: &Pipeline,
        bound: &BoundPipeline,
        work: &SinkWork,
        range: WrittenRange<'_>,
    ) -> Result<IntervalFilter> {
        let sink = &pipeline.sinks[work.sink];
        let flow = bound
            .flows
            .get(&sink.from)
            .ok_or_else(|| Fault::internal("a sink without rows"))?;
        let mut found: BTreeSet<(String, Option<String>)> = BTreeSet::new();
        let columns = || flow.schema.fields().iter().map(|field| field.name());
        for stream in &flow.streams {
            let source = match &bound.bases[stream.base] {
                BaseDataset::Source(name) => pipeline.source(name),
                BaseDataset::Gathered(_) => None,
            };
            match source.and_then(|source| source.time.clone()) {
                Some(time) => {
                    let is_time =
                        |name: &&String| base_column(bound, stream, name).as_ref() == Some(&time);
                    found.extend(
                        columns()
                            .find(is_time)
                            .map(|name| (name.clone(), Some(time.clone()))),
                    );
                }
                None => {
                    let is_time = |name: &&String| {
                        pipeline
                            .sources
                            .iter()
                            .any(|source| source.time.as_ref() == Some(*name))
                    };
                    found.extend(columns().find(is_time).map(|name| (name.clone(), None)));
                }
            }
        }
        let only = found.pop_first().filter(|_| found.is_empty());
        let (column, base) = only.ok_or_else(|| {
            let message = format!(
                "the rows of `{}` do not tell their time, so no {} of them can be written",
                sink.name,
                match range {
                    WrittenRange::Interval(_) => "interval",
                    WrittenRange::From(_) => "part",
                }
            );
            let hint = "keep the column that the source names as its `time`, unchanged";
            Fault::new(codes::UNSUPPORTED, message)
                .hint(hint)
                .at(sink.at.as_ref())
        })?;
        let time = flow.schema.field_with_name(&column)?;
        let (first, last) = match range {
            WrittenRange::Interval(interval) => interval.ticks(time)?,
            WrittenRange::From(from) => (first_tick(from, time)?, i64::MAX),
        };
        Ok(IntervalFilter {
            column,
            base,
            first,
            last,
        })
    }

    /// Restricts the write passes of a program to an interval, or to the rows from a time on: gives them ids of their
    /// own, and returns the rows that each writes.
    pub(crate) fn restrict_to_interval(
        &self,
        pipeline: &Pipeline,
        program: &mut Program,
        interval: Option<&Interval>,
        rows_from: Option<&str>,
    ) -> Result<BTreeMap<ContentId, PassInterval>> {
        let mut intervals = BTreeMap::new();
        let range = interval
            .map(WrittenRange::Interval)
            .or(rows_from.map(WrittenRange::From));
        for pass in &mut program.passes {
            // Future rows lie after every interval: outputs of them are replaced as a whole.
            if let (Some(range), PassWork::Write(work)) = (range, &pass.work)
                && work.first_scan == 0
            {
                let filter = self.interval_filter(pipeline, &program.bound, work, range)?;
                pass.id = interval_pass_id(pass.id, &filter);
                intervals.insert(
                    pass.id,
                    PassInterval {
                        interval: interval.cloned(),
                        filter,
                    },
                );
            }
        }
        Ok(intervals)
    }

    /// Learns everything and commits the artifact.
    pub fn fit(&self, pipeline: &Pipeline) -> Result<RunReport> {
        self.run_with_deadline(pipeline, RunMode::Fit, None)
    }

    /// Learns everything, commits the artifact, and writes all sinks.
    pub fn run(&self, pipeline: &Pipeline) -> Result<RunReport> {
        self.run_with_deadline(pipeline, RunMode::Run, None)
    }

    /// Like [`Session::run`], as if time had come as far as the end of an interval; writes the rows
    /// inside it, beside those of other intervals. Those that the lookback reaches are done again before.
    pub fn run_interval(&self, pipeline: &Pipeline, interval: &Interval) -> Result<RunReport> {
        let again = self.intervals_in_lookback(pipeline, &interval.from)?;
        let mut nothing_new = true;
        for earlier in &again {
            nothing_new &= self.run_one_interval(pipeline, earlier)?.nothing_new;
        }
        let report = self.run_one_interval(pipeline, interval)?;
        Ok(RunReport {
            nothing_new: nothing_new && report.nothing_new,
            again,
            ..report
        })
    }

    /// Like [`Session::run_interval`], without a look back.
    pub fn run_one_interval(&self, pipeline: &Pipeline, interval: &Interval) -> Result<RunReport> {
        require_time(pipeline)?;
        self.run_with_deadline(pipeline, RunMode::Run, Some(interval))
    }

    /// Whether every output shows an interval.
    pub fn has_interval(&self, pipeline: &Pipeline, interval: &Interval) -> Result<bool> {
        for sink in 0..pipeline.sinks.len() {
            if is_future(pipeline, sink) {
                continue;
            }
            let out = self.output(pipeline, sink)?;
            let visible = Manifest::read(&self.io, &out)?;
            let same =
                |known: &IntervalEntry| (&known.from, &known.to) == (&interval.from, &interval.to);
            if !visible.is_some_and(|visible| visible.intervals.iter().any(same)) {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Whether the outputs are whole, or made of intervals, as this run is.
    pub(crate) fn check_outputs(
        &self,
        pipeline: &Pipeline,
        sinks: &[usize],
        interval: Option<&Interval>,
    ) -> Result<()> {
        let mut faults = Vec::new();
        for sink in sinks {
            let out = self.output(pipeline, *sink)?;
            let interval = interval.filter(|_| !is_future(pipeline, *sink));
            if let Some(visible) = Manifest::read(&self.io, &out)? {
                let suits = visible.check_interval_mode(interval.is_some());
                faults.extend(
                    suits
                        .err()
                        .map(|fault| fault.file(&out.shown).at(pipeline.sinks[*sink].at.as_ref())),
                );
            }
        }
        Fault::combine(faults).map_or(Ok(()), Err)
    }

    /// Writes the sinks of a pipeline with what an artifact learned, learning nothing. The
    /// pipeline is the artifact's own, with the paths of this run.
    pub fn apply(&self, pipeline: &Pipeline, artifact: &Artifact) -> Result<RunReport> {
        self.run_with_deadline(pipeline, RunMode::Apply(artifact), None)
    }

    /// Like [`Session::apply`], as if time had come as far as the end of an interval; writes the rows inside it, beside
    /// those of other intervals.
    pub fn apply_interval(
        &self,
        pipeline: &Pipeline,
        artifact: &Artifact,
        interval: &Interval,
    ) -> Result<RunReport> {
        require_time(pipeline)?;
        self.run_with_deadline(pipeline, RunMode::Apply(artifact), Some(interval))
    }

    /// The root of a sink's output.
    pub(crate) fn output(&self, pipeline: &Pipeline, sink: usize) -> Result<StorageLocation> {
        let sink = self.sink(pipeline, sink)?;
        match sink.table() {
            Some(_) => self.io.resolve(sink.path()),
            None => output_root(&self.io, sink.path()),
        }
    }

    pub(crate) fn sink(&self, pipeline: &Pipeline, sink: usize) -> Result<Arc<dyn Sink>> {
        let sink = &pipeline.sinks[sink];
        self.connectors
            .sink(&sink.format, &sink.config)
            .map_err(|fault| fault.at(sink.at.as_ref()))
    }
}

/// The rows that write passes are restricted to.
#[derive(Clone, Copy)]
enum WrittenRange<'a> {
    Interval(&'a Interval),
    /// From a time on; the rows before it are history.
    From(&'a str),
}

/// The first tick at or after a time.
pub(crate) fn first_tick(from: &str, time: &Field) -> Result<i64> {
    Ok(TimeCutoff::before(from).last_tick(time)?.saturating_add(1))
}

/// Refuses intervals of pipelines whose rows do not tell their time.
fn require_time(pipeline: &Pipeline) -> Result<()> {
    if pipeline.sources.iter().all(|source| source.time.is_none()) {
        let fault = Fault::new(
            codes::MISSING_FIELD,
            "no source declares its `time`, so there are no intervals",
        );
        return Err(fault.hint("name the column of times: `time: date`"));
    }
    Ok(())
}

/// Whether a sink gets rows of the future.
fn is_future(pipeline: &Pipeline, sink: usize) -> bool {
    pipeline.sinks[sink].split.as_deref() == Some(FUTURE_PART)
}

/// The datasets of sources.
pub(crate) fn datasets(inputs: &BTreeMap<String, SourceInput>) -> BTreeMap<String, Dataset> {
    inputs
        .iter()
        .map(|(name, input)| (name.clone(), input.dataset.as_ref().clone()))
        .collect()
}
