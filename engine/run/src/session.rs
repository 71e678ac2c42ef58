//! The front door: discover, fit, run, apply.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use arrow::datatypes::{DataType, Field};
use forebay_cluster::Cluster;
use forebay_commit::{
    Artifact, AttemptFence, Manifest, StateLease, StateStore, check_name_lengths, output_root,
    try_writing,
};
use forebay_contract::{ConnectorRegistry, Sink, Source};
use forebay_execute::{FOLDER_BYTES_MAX, IntervalFilter, RunState, SourceInput, truncate_at};
use forebay_model::{
    BATCH_ROWS_DEFAULT, ContentId, DataSplit, Dataset, Fault, Interval, Pipeline, PipelineSink,
    PipelineSource, Result, TimeCutoff, codes, encode_path_part, logical_type, type_words,
};
use forebay_plan::{
    BaseDataset, BoundPipeline, FUTURE_PART, NodeFlow, OpStream, PassWork, Program, SinkWork,
    SqlCompiler, TransformRegistry, base_column, unknown_column,
};
use forebay_setters::Setters;
use forebay_storage::{
    BackgroundTasks, CancellationToken, Event, EventListener, MemoryBudget, MetadataCache,
    ScratchDir, StorageClient, StorageLocation, machine_bytes, metadata_cache_id,
};
use jiff::{Timestamp, Zoned};

use crate::backfill_turn::BackfillTurn;
use crate::cancellable_source::CancellableSource;
use crate::carried_run::CarriedRun;
use crate::deadline::{CostHistory, DeadlineMonitor, DeadlineSpec};
use crate::output_overlap;
use crate::pass_interval::{PassInterval, interval_pass_id};
use crate::predict::{LoadedModel, LoadedModels, register_predict_step};
use crate::report::RunReport;
use crate::run_mode::RunMode;
use crate::served_columns::ServedInputs;
use crate::served_rows::ServedRows;
use crate::training_tracker::TrainingTracker;

/// Options of a session.
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
    /// Name of the run, in its lineage and among its attempts.
    pub run_id: Option<String>,
}

/// Memory limit where the memory of the machine is not known.
const MEMORY_BYTES_DEFAULT: u64 = 1 << 30;

/// The default state directory.
const STATE_DEFAULT: &str = ".forebay";

/// Defaults: all threads and half of the memory of the machine, and the state directory `.forebay`.
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
    /// Models that steps predict with.
    pub(crate) models: LoadedModels,
    pub(crate) connectors: Arc<dyn ConnectorRegistry>,
    pub(crate) sql: SqlCompiler,
    pub(crate) options: SessionOptions,
    pub(crate) watch: Arc<dyn EventListener>,
    pub(crate) interrupt: CancellationToken,
    pub(crate) deadline: Option<Timestamp>,
    pub(crate) cluster: Option<Arc<Cluster>>,
    /// True if a whole output may lose all its rows.
    pub(crate) allow_empty: bool,
    /// True if tokens may get other ids than those that outputs show.
    pub(crate) renumbers: bool,
    /// Rows of the future of this time are not known, in all sources with a time; an interval comes before it.
    pub(crate) as_of: Option<TimeCutoff>,
    /// False of a session within a run, which is a part of that run.
    pub(crate) records_runs: bool,
    /// File of the page that describes the run, for its record.
    pub(crate) page: Option<String>,
    /// Tracker that trainings are reported to.
    pub(crate) tracker: Option<Arc<dyn TrainingTracker>>,
    /// The rows that applying an artifact writes.
    pub(crate) served: ServedRows,
    pub(crate) attempt: AttemptState,
}

/// State of the attempt that a session carries out. A session outside of a run has none of it.
#[derive(Clone, Default)]
pub(crate) struct AttemptState {
    /// Position among concurrent runs of a backfill.
    pub backfill_turn: Option<BackfillTurn>,
    /// Fence of the attempt, for a run that has an id.
    pub fence: Option<Arc<AttemptFence>>,
    /// Protects the states that it uses from garbage collection, while it runs.
    pub lease: Option<Arc<StateLease>>,
    /// Findings of an earlier run that this run carries on.
    pub carried: Option<Arc<CarriedRun>>,
    /// The columns of the sources as the artifact says, while one is applied.
    pub served_inputs: ServedInputs,
}

/// A pipeline on its data, before anything ran.
pub(crate) struct PreparedRun {
    pub datasets: BTreeMap<String, Dataset>,
    pub state: RunState,
    pub bound: BoundPipeline,
    /// The split, with times in place of boundaries that are counted from the newest one.
    pub split: Option<DataSplit>,
    /// Findings of an earlier run that this run carries on.
    pub carried: Option<Arc<CarriedRun>>,
}

impl Session {
    /// A session over some transforms and connectors.
    pub fn new(
        mut registry: TransformRegistry,
        connectors: Arc<dyn ConnectorRegistry>,
        sql: SqlCompiler,
        options: SessionOptions,
        listener: Arc<dyn EventListener>,
    ) -> Result<Self> {
        let models = LoadedModels::default();
        register_predict_step(&mut registry, &models);
        let io = StorageClient::new()?;
        io.set_memory(MemoryBudget::new(options.memory_bytes), options.threads);
        let cancellation = io.cancellation().clone();
        Ok(Session {
            io,
            registry,
            models,
            connectors,
            sql,
            options,
            watch: listener,
            interrupt: cancellation,
            deadline: None,
            cluster: None,
            allow_empty: false,
            renumbers: false,
            as_of: None,
            records_runs: true,
            page: None,
            tracker: None,
            served: ServedRows::default(),
            attempt: AttemptState::default(),
        })
    }

    /// A session for a run of its own within a run, such as one that computes rows in a temporary directory. It
    /// has nothing of the attempt around it, and no workers: the run within must neither wait for its turn nor be
    /// fenced twice.
    pub(crate) fn for_inner_run(&self, options: SessionOptions) -> Session {
        Session {
            options,
            cluster: None,
            records_runs: false,
            attempt: AttemptState::default(),
            ..self.clone()
        }
    }

    /// A session that learns more in an attempt: on this machine, without waiting for the turn of a backfill, and
    /// without findings of an earlier run.
    pub(crate) fn for_extra_learning(&self) -> Session {
        Session {
            cluster: None,
            attempt: AttemptState {
                backfill_turn: None,
                carried: None,
                ..self.attempt.clone()
            },
            ..self.clone()
        }
    }

    /// A session that reports its events to another listener.
    pub(crate) fn with_listener(&self, listener: Arc<dyn EventListener>) -> Session {
        Session {
            watch: listener,
            ..self.clone()
        }
    }

    /// A session of an attempt that is fenced, and whose states are not collected.
    pub(crate) fn with_fence(
        &self,
        fence: Option<Arc<AttemptFence>>,
        lease: Arc<StateLease>,
    ) -> Session {
        Session {
            attempt: AttemptState {
                fence,
                lease: Some(lease),
                ..self.attempt.clone()
            },
            ..self.clone()
        }
    }

    /// A session whose events a monitor hears, and which the monitor can cancel.
    pub(crate) fn monitored(
        &self,
        monitor: &DeadlineMonitor,
        listener: Arc<dyn EventListener>,
    ) -> Session {
        let cancellation = monitor.interrupt();
        let io = self.io.with_read_cache(self.memory().recent_bytes());
        Session {
            io: io.for_run(cancellation.clone(), listener.clone()),
            watch: listener,
            interrupt: cancellation,
            ..self.clone()
        }
    }

    /// A session that carries on the findings of an earlier run.
    pub(crate) fn with_carried(&self, carried: Option<Arc<CarriedRun>>) -> Session {
        Session {
            attempt: AttemptState {
                carried,
                ..self.attempt.clone()
            },
            ..self.clone()
        }
    }

    /// A session whose sources have the columns of an artifact.
    pub(crate) fn with_served_inputs(&self, served_inputs: ServedInputs) -> Session {
        Session {
            attempt: AttemptState {
                served_inputs,
                ..self.attempt.clone()
            },
            ..self.clone()
        }
    }

    /// Lets steps of this session and of its clones predict with a model, as long as it is held.
    pub fn add_model(&self, model: &Arc<LoadedModel>) {
        self.models.add(model);
    }

    /// Selects the rows to write when the session applies an artifact.
    pub fn serving(self, served: ServedRows) -> Self {
        Session { served, ..self }
    }

    /// Names the file of a page in the records of runs, so that readers of records find it.
    pub fn with_page(self, page: Option<String>) -> Self {
        Session { page, ..self }
    }

    /// Allows outputs without rows to be published, and files of text that have a header alone, whose columns are then
    /// texts. Otherwise a run fails if a whole output would be empty although rows were read for it or readers see rows of it. Intervals may be empty
    /// anyway.
    pub fn allowing_empty(self, allow_empty: bool) -> Self {
        Session {
            io: self.io.allowing_empty(allow_empty),
            allow_empty,
            ..self
        }
    }

    /// Uses the deadline of a pipeline from now on, if this session has none.
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

    /// Sets the deadline of the session; it takes precedence over those of specs.
    pub fn with_deadline(self, deadline: &DeadlineSpec) -> Result<Self> {
        Ok(Session {
            deadline: Some(deadline.resolve(&Zoned::now())?),
            ..self
        })
    }

    /// Adds workers, which do all work that can be distributed.
    pub fn with_cluster(self, cluster: Cluster) -> Result<Self> {
        cluster.publish_status(self.io.clone(), &self.state()?)?;
        Ok(Session {
            cluster: Some(Arc::new(cluster)),
            ..self
        })
    }

    /// Adds a tracker that trainings are reported to.
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

    /// A session whose runs this token stops, and which else is that of this one.
    pub fn with_interrupt(&self, interrupt: CancellationToken) -> Session {
        Session {
            interrupt,
            ..self.clone()
        }
    }

    /// Fails if another attempt has taken the run over, or if the lease has expired.
    pub(crate) fn check_fence(&self) -> Result<()> {
        if let Some(lease) = &self.attempt.lease {
            lease.check()?;
        }
        match &self.attempt.fence {
            Some(fence) => fence.check(),
            None => Ok(()),
        }
    }

    pub(crate) fn cancellable(&self, inner: Arc<dyn Source>) -> Arc<dyn Source> {
        Arc::new(CancellableSource {
            inner,
            interrupt: self.interrupt.clone(),
            fence: self.attempt.fence.clone(),
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
        let turn = self.attempt.backfill_turn.as_ref();
        let concurrent_runs = turn.map_or(1, |turn| turn.concurrent_runs);
        MemoryBudget::new(self.options.memory_bytes).one_of(concurrent_runs)
    }

    /// Lists the sources and compares their schemas.
    pub fn discover(&self, pipeline: &Pipeline) -> Result<BTreeMap<String, Dataset>> {
        Ok(datasets(
            &self.discover_inputs(&self.io, pipeline, None, None)?,
        ))
    }

    /// Discovers all sources. The metadata of their files is stored by the background tasks, where there are some.
    pub(crate) fn discover_inputs(
        &self,
        io: &StorageClient,
        pipeline: &Pipeline,
        background: Option<(&ScratchDir, &mut BackgroundTasks)>,
        interval: Option<&Interval>,
    ) -> Result<BTreeMap<String, SourceInput>> {
        let (inputs, faults) = self.discover_each(io, pipeline, background, interval);
        Fault::combine(faults).map_or(Ok(inputs), Err)
    }

    /// Discovers each source; returns the inputs that were found and the faults of the others.
    pub(crate) fn discover_each(
        &self,
        io: &StorageClient,
        pipeline: &Pipeline,
        mut background: Option<(&ScratchDir, &mut BackgroundTasks)>,
        interval: Option<&Interval>,
    ) -> (BTreeMap<String, SourceInput>, Vec<Fault>) {
        let mut inputs = BTreeMap::new();
        let mut faults = Vec::new();
        let store = match self.state() {
            Ok(state) => StateStore::new(self.io.clone(), state),
            Err(fault) => return (inputs, vec![fault]),
        };
        for source in &pipeline.sources {
            let tasks = background
                .as_mut()
                .map(|(scratch, tasks)| (*scratch, &mut **tasks));
            match self.discover_source(io, source, &store, tasks, interval) {
                Ok(input) => {
                    self.report_discovery(source, &input.dataset);
                    inputs.insert(source.name.clone(), input);
                }
                Err(fault) => {
                    let fault = self.with_format_hint(fault, &source.format);
                    faults.push(fault.at(source.at.as_ref()));
                }
            }
        }
        (inputs, faults)
    }

    fn discover_source(
        &self,
        io: &StorageClient,
        source: &PipelineSource,
        store: &StateStore,
        background: Option<(&ScratchDir, &mut BackgroundTasks)>,
        interval: Option<&Interval>,
    ) -> Result<SourceInput> {
        let reader = self.connectors.source(&source.format, &source.config)?;
        let watched: Vec<String> = source.time.iter().chain(&source.keys).cloned().collect();
        let id = metadata_cache_id(source, &watched);
        let metadata_store = store.clone();
        let metadata_cache = MetadataCache::new(move || metadata_store.get_metadata(id));
        let (reader, mut dataset) =
            self.discover_served(io, source, reader, &watched, &metadata_cache)?;
        let metadata = metadata_cache.into_stored();
        if let (Some((scratch, tasks)), Some(metadata)) = (background, metadata) {
            let store = store.clone();
            let scratch = scratch.clone();
            tasks.spawn(move || store.put_metadata(id, &metadata, &scratch));
        }
        let in_time_order = match &source.time {
            Some(time) => dataset.sort_spans_by_time(time),
            None => false,
        };
        let input = SourceInput {
            dataset: Arc::new(dataset),
            source: self.cancellable(reader),
            in_time_order,
        };
        let input = self.with_types_of_fit(source, input);
        let input = self.with_absent_columns(source, input);
        let Some(time) = &source.time else {
            return Ok(input);
        };
        if let Some(interval) = interval {
            // The ends of the interval must be values of the column.
            interval.ticks(input.dataset.schema.field_with_name(time)?)?;
        }
        let end = match interval {
            Some(interval) => Some(TimeCutoff::before(&interval.to)),
            None => self.as_of.clone(),
        };
        match end {
            Some(end) => truncate_at(input, time, &end),
            None => Ok(input),
        }
    }

    fn report_discovery(&self, source: &PipelineSource, dataset: &Dataset) {
        self.watch.on_event(Event::Discovered {
            source: source.name.clone(),
            spans: dataset.spans.len(),
            rows: dataset.rows(),
            bytes: dataset.bytes(),
            folder: dataset.folder(),
        });
        if let Some(left_out) = dataset.left_out.text() {
            let message = format!("source `{}`: {left_out}", source.name);
            self.watch.on_event(Event::Warning { message });
        }
    }

    /// Adds a hint if an unreadable file has the ending of another format.
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

    /// Paths that each source names. A source that cannot be configured has been reported.
    pub(crate) fn source_paths(&self, pipeline: &Pipeline) -> BTreeMap<String, Vec<String>> {
        let mut paths = BTreeMap::new();
        for source in &pipeline.sources {
            if let Ok(reader) = self.connectors.source(&source.format, &source.config) {
                paths.insert(source.name.clone(), reader.paths());
            }
        }
        paths
    }

    pub(crate) fn prepare(
        &self,
        pipeline: &Pipeline,
        sinks: &[usize],
        background: Option<(&ScratchDir, &mut BackgroundTasks)>,
        interval: Option<&Interval>,
    ) -> Result<PreparedRun> {
        // Before anything is read.
        self.io.require_bucket(&self.state()?)?;
        let mut locations = Vec::new();
        for index in sinks {
            let location = self.io.resolve(self.sink(pipeline, *index)?.path())?;
            locations.push((&pipeline.sinks[*index], location));
        }
        for (sink, location) in &locations {
            self.io
                .require_bucket(location)
                .map_err(|fault| fault.at(sink.at.as_ref()))?;
        }
        let sources = self.discover_inputs(&self.io, pipeline, background, interval)?;
        let paths = self.source_paths(pipeline);
        let source_datasets = datasets(&sources);
        output_overlap::check_overlap(&self.io, pipeline, &paths, &source_datasets, &locations)?;
        for index in sinks {
            let output = self.output(pipeline, *index)?;
            let checked = Manifest::check_place(&self.io, &output);
            checked.map_err(|fault| fault.at(pipeline.sinks[*index].at.as_ref()))?;
        }
        let split = self.resolve_split(pipeline, &sources, interval)?;
        let pipeline = &Pipeline {
            split,
            ..pipeline.clone()
        };
        let mut prepared = self.prepare_with(pipeline, sinks, sources)?;
        prepared.carried =
            self.carried_run(pipeline, &prepared.bound, &prepared.state.sources, interval)?;
        if let Some(carried) = &prepared.carried {
            carried.apply(pipeline, &mut prepared.bound)?;
        }
        Ok(prepared)
    }

    /// Prepares a run over discovered sources; the locations of outputs have been checked.
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
            split: pipeline.split.clone(),
            carried: None,
        })
    }

    /// Checks that the columns by which sinks partition and sort exist, and that folders can be named after them.
    pub(crate) fn check_layouts(
        &self,
        pipeline: &Pipeline,
        sinks: &[usize],
        bound: &BoundPipeline,
    ) -> Result<()> {
        let mut faults = Vec::new();
        for index in sinks {
            let sink = &pipeline.sinks[*index];
            let layout = self.sink(pipeline, *index)?.layout();
            let Some(flow) = bound.flows.get(&sink.from) else {
                continue;
            };
            let long = layout.partition_by.iter().filter(|name| {
                // The name of the folder of the shortest value.
                encode_path_part(name).len() + "=1".len() > FOLDER_BYTES_MAX
            });
            faults.extend(long.map(|name| long_folder_fault(name).at(sink.at.as_ref())));
            for name in &layout.partition_by {
                if let Ok(field) = flow.schema.field_with_name(name)
                    && !names_folders(field.data_type())
                {
                    faults.push(unnamed_folder_fault(field).at(sink.at.as_ref()));
                }
            }
            let columns = layout.partition_by.iter().chain(&layout.sort_by);
            let missing = columns.filter(|name| flow.schema.field_with_name(name).is_err());
            faults.extend(
                missing.map(|name| unknown_column(name, &flow.schema).at(sink.at.as_ref())),
            );
        }
        Fault::combine(faults).map_or(Ok(()), Err)
    }

    /// Costs of earlier runs of a pipeline.
    pub(crate) fn cost_history(&self, pipeline: &str) -> Result<CostHistory> {
        let history = self.io.get(&self.cost_location(pipeline)?)?;
        Ok(history
            .map(|bytes| CostHistory::from_json(&bytes))
            .unwrap_or_default())
    }

    /// Location of the cost history of a pipeline.
    pub(crate) fn cost_location(&self, pipeline: &str) -> Result<StorageLocation> {
        Ok(self.state()?.join(&format!("costs/{pipeline}.json")))
    }

    /// Filter of the rows of a sink that lie in an interval, or from a time on. The time column
    /// must still be present.
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
        let mut time_columns: BTreeSet<(String, Option<String>)> = BTreeSet::new();
        for stream in &flow.streams {
            time_columns.extend(time_of_stream(pipeline, bound, flow, stream));
        }
        // All streams must have one column of times: a filter is made of one column.
        let only = time_columns.pop_first().filter(|_| time_columns.is_empty());
        let (column, base) = only.ok_or_else(|| no_time_fault(sink, range))?;
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

    /// Like [`Session::run`], with the end of the interval as the current time; writes the rows
    /// inside the interval and keeps those of other intervals. Intervals that the lookback reaches
    /// are run again before.
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

    /// Like [`Session::run_interval`], without the lookback.
    pub fn run_one_interval(&self, pipeline: &Pipeline, interval: &Interval) -> Result<RunReport> {
        require_time(pipeline)?;
        self.run_with_deadline(pipeline, RunMode::Run, Some(interval))
    }

    /// True if every output shows the interval.
    pub fn has_interval(&self, pipeline: &Pipeline, interval: &Interval) -> Result<bool> {
        for sink in 0..pipeline.sinks.len() {
            if is_future(pipeline, sink) {
                continue;
            }
            let out = self.output(pipeline, sink)?;
            let Some(visible) = Manifest::read(&self.io, &out)? else {
                return Ok(false);
            };
            let mut entries = visible.intervals.iter();
            if !entries.any(|entry| entry.from == interval.from && entry.to == interval.to) {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Checks that the outputs can be written, and are whole, or made of intervals, as this run is.
    pub(crate) fn check_outputs(
        &self,
        pipeline: &Pipeline,
        sinks: &[usize],
        interval: Option<&Interval>,
    ) -> Result<()> {
        let mut faults = Vec::new();
        for sink in sinks {
            let out = self.output(pipeline, *sink)?;
            let at = pipeline.sinks[*sink].at.as_ref();
            faults.extend(try_writing(&self.io, &out).err().map(|fault| fault.at(at)));
            let interval = interval.filter(|_| !is_future(pipeline, *sink));
            if let Some(visible) = Manifest::read(&self.io, &out)? {
                let suits = visible.check_interval_mode(interval.is_some());
                faults.extend(suits.err().map(|fault| fault.file(&out.shown).at(at)));
            }
        }
        Fault::combine(faults).map_or(Ok(()), Err)
    }

    /// Writes the sinks of a pipeline with the findings of an artifact, and learns nothing. The
    /// pipeline is the artifact's own, with the paths of this run.
    pub fn apply(&self, pipeline: &Pipeline, artifact: &Artifact) -> Result<RunReport> {
        if let Some(report) = self.apply_from_state(pipeline, artifact)? {
            return Ok(report);
        }
        self.run_with_deadline(pipeline, RunMode::Apply(artifact), None)
    }

    /// Like [`Session::apply`], with the end of the interval as the current time; writes the rows
    /// inside the interval and keeps those of other intervals.
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
            Some(_) => {
                let table = self.io.resolve(sink.path())?;
                check_name_lengths(&table).map(|()| table)
            }
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
    /// Rows from a time on; the rows before it are history.
    From(&'a str),
}

/// The column of a flow that holds the times of a stream's rows. Behind it stands the column of the stream's source
/// that it is unchanged; there is none where the stream does not come from a source with a time.
fn time_of_stream(
    pipeline: &Pipeline,
    bound: &BoundPipeline,
    flow: &NodeFlow,
    stream: &OpStream,
) -> Option<(String, Option<String>)> {
    let source = match &bound.bases[stream.base] {
        BaseDataset::Source(name) => pipeline.source(name),
        BaseDataset::Gathered(_) => None,
    };
    let source_time = source.and_then(|source| source.time.as_ref());
    for field in flow.schema.fields() {
        let name = field.name();
        let is_time = match source_time {
            Some(time) => base_column(bound, stream, name).as_ref() == Some(time),
            None => is_time_of_source(pipeline, name),
        };
        if is_time {
            return Some((name.clone(), source_time.cloned()));
        }
    }
    None
}

/// True if some source names a column as its time.
fn is_time_of_source(pipeline: &Pipeline, column: &str) -> bool {
    let mut times = pipeline.sources.iter().map(|source| &source.time);
    times.any(|time| time.as_deref() == Some(column))
}

/// The fault of a sink whose rows have no column of times, or several.
fn no_time_fault(sink: &PipelineSink, range: WrittenRange<'_>) -> Fault {
    let unit = match range {
        WrittenRange::Interval(_) => "interval",
        WrittenRange::From(_) => "part",
    };
    let message = format!(
        "the rows of `{}` do not tell their time, so no {unit} of them can be written",
        sink.name
    );
    Fault::new(codes::UNSUPPORTED, message)
        .hint("keep the column that the source names as its `time`, unchanged")
        .at(sink.at.as_ref())
}

/// The first tick at or after a time.
pub(crate) fn first_tick(from: &str, time: &Field) -> Result<i64> {
    Ok(TimeCutoff::before(from).last_tick(time)?.saturating_add(1))
}

/// True if the values of a type have texts, as the names of folders, that are no other values when they are read.
fn names_folders(data_type: &DataType) -> bool {
    let data_type = logical_type(data_type);
    let is_without_text = matches!(
        data_type,
        DataType::Binary
            | DataType::FixedSizeBinary(_)
            | DataType::Duration(_)
            | DataType::Interval(_)
    );
    !is_without_text && !data_type.is_nested()
}

fn unnamed_folder_fault(field: &Field) -> Fault {
    let message = format!(
        "folders cannot be named after `{}`, which is {}: its values are not read back",
        field.name(),
        type_words(field.data_type())
    );
    Fault::new(codes::COLUMN_TYPE, message)
        .column(field.name())
        .hint("partition by a column of texts, numbers, booleans, dates or times")
}

/// The fault of a column whose name is too long for that of a folder.
fn long_folder_fault(column: &str) -> Fault {
    let start: String = column.chars().take(40).collect();
    let message = format!(
        "folders are named after the column `{start}...`, \
         whose name has {} bytes, and {FOLDER_BYTES_MAX} is the most",
        column.len()
    );
    Fault::new(codes::BAD_VALUE, message)
        .column(column)
        .hint("rename the column in a step before")
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

/// True if a sink gets rows of the future.
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
