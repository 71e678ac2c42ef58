//! The front door: discover, explain, fit, run, apply.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use forebay_model::{Code, Dataset, Fault, Finding, Id, IdBuilder, Pipeline, Result, codes};
use forebay_plan::{
    Base, Bound, Explain, Flow, Op, OpId, Pass, PassWork, Program, Registry, RowCounts, Scan, SinkWork, Sql, Standing,
    Way, base_column, bind, choose_way, compile, shape, unknown_column,
};
use serde::Serialize;
use serde_json::{Value, json};

use crate::artifact::{Artifact, Learned};
use crate::commit::{Before, Store, texts};
use crate::events::{Event, Watch};
use crate::interrupt::{Interrupt, Stoppable};
use crate::interval::{Interval, Within, until};
use crate::memory::Memory;
use crate::notes::notes_id;
use crate::output::{Files, Manifest, Shard, Stretch, Written, lock};
use crate::pass::gather::GatherPass;
use crate::pass::learn::Learn;
use crate::pass::sorted::SortedPass;
use crate::pass::target::Target;
use crate::pass::write::Write;
use crate::pass::{Input, Known, poisoned};
use crate::scratch::ScratchDir;
use crate::{Connectors, Io, Notes, Place, Sink, Source};

/// The version that lineages name.
const VERSION: &str = env!("CARGO_PKG_VERSION");

/// Temporary directories of this age have lost their run: a run touches its own all the time.
const ABANDONED_AFTER: std::time::Duration = std::time::Duration::from_secs(24 * 3600);

/// What the user decides about a run.
#[derive(Clone)]
pub struct Options {
    /// Threads that read, compute and encode.
    pub threads: usize,
    /// The memory limit of the process.
    pub memory_bytes: u64,
    /// Rows per batch.
    pub batch_rows: usize,
    /// The state directory: a path or an `s3://` URL.
    pub state: String,
    /// Names the run in its lineage.
    pub run_id: Option<String>,
}

/// Everything that a run needs.
pub struct Session {
    pub(crate) io: Io,
    pub(crate) registry: Registry,
    pub(crate) connectors: Arc<dyn Connectors>,
    pub(crate) sql: Sql,
    pub(crate) options: Options,
    pub(crate) watch: Arc<dyn Watch>,
    pub(crate) interrupt: Interrupt,
}

/// What a run came to: printed as the summary, and as the last line of `--json`.
#[derive(Debug, Clone, Serialize)]
pub struct Report {
    /// The pipeline.
    pub pipeline: String,
    /// The artifact's id.
    pub artifact: Option<String>,
    /// Where the artifact is.
    pub artifact_path: Option<String>,
    /// Per sink.
    pub outputs: Vec<Output>,
    /// Per pass.
    pub passes: Vec<PassReport>,
    /// The interval that was written, if not everything.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub interval: Option<Interval>,
    /// Whether everything was known already.
    pub nothing_new: bool,
    /// Bytes spilled to disk.
    pub spilled_bytes: u64,
}

/// One committed output.
#[derive(Debug, Clone, Serialize)]
pub struct Output {
    /// The sink.
    pub sink: String,
    /// The output directory.
    pub path: String,
    /// The directory of its files.
    pub data: String,
    /// Rows written.
    pub rows: u64,
    /// Files written.
    pub files: usize,
    /// Bytes written.
    pub bytes: u64,
}

/// One pass as it went.
#[derive(Debug, Clone, Serialize)]
pub struct PassReport {
    /// The pass's id.
    pub id: String,
    /// `learn`, `gather` or `write`.
    pub work: &'static str,
    /// Whether a committed result made it unnecessary.
    pub reused: bool,
    /// Rows that went in.
    pub rows_in: u64,
    /// Those of them that were not read again, because what an earlier run made of them stands.
    pub rows_kept: u64,
    /// Rows that filters removed.
    pub rows_filtered: u64,
    /// Rows that expansions added.
    pub rows_expanded: i64,
    /// Rows that came out (writes and gathers).
    pub rows_out: u64,
}

impl PassReport {
    fn count(&mut self, counts: RowCounts) {
        self.rows_in = counts.input;
        self.rows_filtered = counts.filtered;
        self.rows_expanded = counts.expanded;
    }
}

/// A pipeline on its data, before anything ran.
struct Prepared {
    datasets: BTreeMap<String, Dataset>,
    known: Known,
    bound: Bound,
}

impl Session {
    /// A session over some transforms and connectors.
    pub fn new(
        registry: Registry,
        connectors: Arc<dyn Connectors>,
        sql: Sql,
        options: Options,
        watch: Arc<dyn Watch>,
    ) -> Result<Self> {
        Ok(Session { io: Io::new()?, registry, connectors, sql, options, watch, interrupt: Interrupt::default() })
    }

    /// Stops runs early: they fail after the batches that they are in.
    pub fn interrupt(&self) -> &Interrupt {
        &self.interrupt
    }

    fn stoppable(&self, inner: Arc<dyn Source>) -> Arc<dyn Source> {
        Arc::new(Stoppable { inner, interrupt: self.interrupt.clone() })
    }

    /// The way to storage.
    pub fn io(&self) -> &Io {
        &self.io
    }

    /// The state directory.
    pub fn state(&self) -> Result<Place> {
        self.io.place(&self.options.state)
    }

    fn memory(&self) -> Memory {
        Memory { limit_bytes: self.options.memory_bytes }
    }

    /// Lists the sources and compares their schemas.
    pub fn discover(&self, pipeline: &Pipeline) -> Result<BTreeMap<String, Dataset>> {
        Ok(self
            .inputs(pipeline, None, None)?
            .into_iter()
            .map(|(name, input)| (name, input.dataset.as_ref().clone()))
            .collect())
    }

    /// Discovers all sources. What they note is kept where `scratch` is given.
    pub(crate) fn inputs(
        &self,
        pipeline: &Pipeline,
        scratch: Option<&ScratchDir>,
        interval: Option<&Interval>,
    ) -> Result<BTreeMap<String, Input>> {
        let store = Store::new(self.io.clone(), self.state()?);
        let mut inputs = BTreeMap::new();
        let mut faults = Vec::new();
        for source in &pipeline.sources {
            let found = self.connectors.source(&source.format, &source.config).and_then(|reader| {
                let watch: Vec<String> = source.time.iter().chain(&source.keys).cloned().collect();
                let id = notes_id(source, &watch);
                let notes = Notes::new(store.get_notes(id)?);
                let mut dataset = reader.rediscover(&self.io, &watch, &notes)?;
                if let (Some(scratch), Some(notes)) = (scratch, notes.into_kept()) {
                    store.put_notes(id, &notes, scratch)?;
                }
                let in_time_order = source.time.as_ref().is_some_and(|time| dataset.in_time_order(time));
                let input = Input { dataset: Arc::new(dataset), source: self.stoppable(reader), in_time_order };
                match (interval, &source.time) {
                    (Some(interval), Some(time)) => until(input, time, interval),
                    _ => Ok(input),
                }
            });
            match found {
                Ok(input) => {
                    self.watch.event(Event::Discovered {
                        source: source.name.clone(),
                        spans: input.dataset.spans.len(),
                        rows: input.dataset.rows(),
                        bytes: input.dataset.bytes(),
                    });
                    inputs.insert(source.name.clone(), input);
                }
                Err(fault) => faults.push(fault.at(source.at.as_ref())),
            }
        }
        Fault::all(faults).map_or(Ok(inputs), Err)
    }

    fn prepare(
        &self,
        pipeline: &Pipeline,
        sinks: &[usize],
        scratch: Option<&ScratchDir>,
        interval: Option<&Interval>,
    ) -> Result<Prepared> {
        let sources = self.inputs(pipeline, scratch, interval)?;
        let datasets: BTreeMap<String, Dataset> =
            sources.iter().map(|(name, input)| (name.clone(), input.dataset.as_ref().clone())).collect();
        let places = sinks.iter().map(|sink| Ok((*sink, self.io.place(self.sink(pipeline, *sink)?.path())?)));
        crate::clash::check(&self.io, pipeline, &datasets, &places.collect::<Result<Vec<_>>>()?)?;
        let bound = bind(pipeline, &self.registry, &self.sql, &datasets)?;
        self.check_layouts(pipeline, sinks, &bound)?;
        Ok(Prepared { datasets, known: Known { sources, ..Known::default() }, bound })
    }

    /// Whether the columns by which sinks partition and sort are there.
    fn check_layouts(&self, pipeline: &Pipeline, sinks: &[usize], bound: &Bound) -> Result<()> {
        let mut faults = Vec::new();
        for index in sinks {
            let sink = &pipeline.sinks[*index];
            let (Some(flow), layout) = (bound.flows.get(&sink.from), self.sink(pipeline, *index)?.layout()) else {
                continue;
            };
            let columns = layout.partition_by.iter().chain(&layout.sort_by);
            let missing = columns.filter(|name| flow.schema.field_with_name(name).is_err());
            faults.extend(missing.map(|name| unknown_column(name, &flow.schema).at(sink.at.as_ref())));
        }
        Fault::all(faults).map_or(Ok(()), Err)
    }

    /// What a run would do.
    pub fn explain(&self, pipeline: &Pipeline) -> Result<Explain> {
        let sinks: Vec<usize> = (0..pipeline.sinks.len()).collect();
        let prepared = self.prepare(pipeline, &sinks, None, None)?;
        let store = Store::new(self.io.clone(), self.state()?);
        let scratch = ScratchDir::new(None, self.watch.clone())?;
        let Prepared { datasets, mut known, bound } = prepared;
        let share = scratch.share(self.memory().states_bytes());
        let asks = bound.asks.clone();
        let program = compile(pipeline, bound, &datasets, &sinks, true, &mut |ask, state| {
            let analyzer = asks[ask].ask.analyzer.as_ref();
            let Some(found) = store.get_state(state, analyzer, &share)? else { return Ok(false) };
            known.findings.insert(state, Arc::new(analyzer.finish(found)?));
            Ok(true)
        })?;
        let mut run = Running {
            withins: BTreeMap::new(),
            session: self,
            pipeline,
            store,
            scratch,
            program,
            known,
            report: Vec::new(),
        };
        let mut standing: BTreeMap<Id, Standing> = BTreeMap::new();
        for pass in run.program.passes.clone() {
            standing.insert(pass.id, run.standing(&pass)?);
        }
        let names: Vec<String> = pipeline.sinks.iter().map(|sink| sink.name.clone()).collect();
        let states_bytes = self.memory().states_bytes();
        Ok(Explain::new(&run.program, &names, &datasets, states_bytes, &|id| {
            standing.get(&id).copied().unwrap_or_default()
        }))
    }

    /// Which rows of a sink lie in an interval: the column of times must still be there.
    fn within(&self, pipeline: &Pipeline, bound: &Bound, work: &SinkWork, interval: &Interval) -> Result<Within> {
        let sink = &pipeline.sinks[work.sink];
        let flow = bound.flows.get(&sink.from).ok_or_else(|| Fault::internal("a sink without rows"))?;
        let mut found: BTreeSet<(String, Option<String>)> = BTreeSet::new();
        let columns = || flow.schema.fields().iter().map(|field| field.name());
        for stream in &flow.streams {
            let source = match &bound.bases[stream.base] {
                Base::Source(name) => pipeline.source(name),
                Base::Gathered(_) => None,
            };
            match source.and_then(|source| source.time.clone()) {
                Some(time) => {
                    let is_time = |name: &&String| base_column(bound, stream, name).as_ref() == Some(&time);
                    found.extend(columns().find(is_time).map(|name| (name.clone(), Some(time.clone()))));
                }
                None => {
                    let is_time =
                        |name: &&String| pipeline.sources.iter().any(|source| source.time.as_ref() == Some(*name));
                    found.extend(columns().find(is_time).map(|name| (name.clone(), None)));
                }
            }
        }
        let only = found.pop_first().filter(|_| found.is_empty());
        let (column, base) = only.ok_or_else(|| {
            let message =
                format!("the rows of `{}` do not tell their time, so no interval of them can be written", sink.name);
            let hint = "keep the column that the source names as its `time`, unchanged";
            Fault::new(codes::UNSUPPORTED, message).hint(hint).at(sink.at.as_ref())
        })?;
        let (first, last) = interval.ticks(flow.schema.field_with_name(&column)?)?;
        Ok(Within { column, base, first, last })
    }

    /// Learns everything and commits the artifact.
    pub fn fit(&self, pipeline: &Pipeline) -> Result<Report> {
        self.drive(pipeline, &[], None, None)
    }

    /// Learns everything, commits the artifact, and writes all sinks.
    pub fn run(&self, pipeline: &Pipeline) -> Result<Report> {
        let sinks: Vec<usize> = (0..pipeline.sinks.len()).collect();
        self.drive(pipeline, &sinks, None, None)
    }

    /// Like [`Session::run`], as if time had come as far as the end of an interval; writes the rows
    /// inside it, beside those of other intervals.
    pub fn run_interval(&self, pipeline: &Pipeline, interval: &Interval) -> Result<Report> {
        if pipeline.sources.iter().all(|source| source.time.is_none()) {
            let fault = Fault::new(codes::MISSING_FIELD, "no source declares its `time`, so there are no intervals");
            return Err(fault.hint("name the column of times: `time: date`"));
        }
        let sinks: Vec<usize> = (0..pipeline.sinks.len()).collect();
        self.drive(pipeline, &sinks, None, Some(interval))
    }

    /// Whether every output shows an interval.
    pub fn shows(&self, pipeline: &Pipeline, interval: &Interval) -> Result<bool> {
        for sink in 0..pipeline.sinks.len() {
            let out = self.io.place(self.sink(pipeline, sink)?.path())?;
            let visible = Manifest::read(&self.io, &out)?;
            let same = |known: &Stretch| (&known.from, &known.to) == (&interval.from, &interval.to);
            if !visible.is_some_and(|visible| visible.intervals.iter().any(same)) {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Whether the outputs are whole, or made of intervals, as this run is.
    fn check_outputs(&self, pipeline: &Pipeline, sinks: &[usize], interval: Option<&Interval>) -> Result<()> {
        let mut faults = Vec::new();
        for sink in sinks {
            let out = self.io.place(self.sink(pipeline, *sink)?.path())?;
            if let Some(visible) = Manifest::read(&self.io, &out)? {
                let suits = visible.suits(interval.is_some());
                faults.extend(suits.err().map(|fault| fault.file(&out.shown).at(pipeline.sinks[*sink].at.as_ref())));
            }
        }
        Fault::all(faults).map_or(Ok(()), Err)
    }

    /// Writes the sinks of a pipeline with what an artifact learned, learning nothing. The
    /// pipeline is the artifact's own, with the paths of this run.
    pub fn apply(&self, pipeline: &Pipeline, artifact: &Artifact) -> Result<Report> {
        let sinks: Vec<usize> = (0..pipeline.sinks.len()).collect();
        self.drive(pipeline, &sinks, Some(artifact), None)
    }

    fn sink(&self, pipeline: &Pipeline, sink: usize) -> Result<Arc<dyn Sink>> {
        let sink = &pipeline.sinks[sink];
        self.connectors.sink(&sink.format, &sink.config).map_err(|fault| fault.at(sink.at.as_ref()))
    }

    fn drive(
        &self,
        pipeline: &Pipeline,
        sinks: &[usize],
        artifact: Option<&Artifact>,
        interval: Option<&Interval>,
    ) -> Result<Report> {
        let store = Store::new(self.io.clone(), self.state()?);
        let scratch = ScratchDir::new(store.root().local.as_deref(), self.watch.clone())?;
        if let Some(local) = &store.root().local {
            crate::scratch::sweep(local, scratch.path(), ABANDONED_AFTER);
        }
        let Prepared { datasets, mut known, bound } = self.prepare(pipeline, sinks, Some(&scratch), interval)?;
        self.check_outputs(pipeline, sinks, interval)?;
        let share = scratch.share(self.memory().states_bytes());
        let mut found: BTreeMap<Id, Arc<Finding>> = BTreeMap::new();
        let asks = bound.asks.clone();
        let mut program = compile(pipeline, bound, &datasets, sinks, artifact.is_none(), &mut |ask, state| {
            if let Some(artifact) = artifact {
                let learned = artifact
                    .findings
                    .get(ask)
                    .ok_or_else(|| Fault::new(codes::STATE_VERSION, "the artifact was fitted by another pipeline"))?;
                found.insert(state, learned.finding.clone());
                return Ok(true);
            }
            let analyzer = asks[ask].ask.analyzer.as_ref();
            match store.get_state(state, analyzer, &share)? {
                None => Ok(false),
                Some(known) => {
                    found.insert(state, Arc::new(analyzer.finish(known)?));
                    Ok(true)
                }
            }
        })?;
        known.findings = found;
        let mut withins = BTreeMap::new();
        for pass in &mut program.passes {
            if let (Some(interval), PassWork::Write(work)) = (interval, &pass.work) {
                let within = self.within(pipeline, &program.bound, work, interval)?;
                pass.id = within_id(pass.id, &within);
                withins.insert(pass.id, (interval.clone(), within));
            }
        }
        let mut run = Running { withins, session: self, pipeline, store, scratch, program, known, report: Vec::new() };
        let outputs = run.passes()?;
        let (artifact, artifact_path) = match artifact {
            Some(artifact) => (Some(artifact.id), None),
            None => {
                let (id, place) = run.commit(&datasets)?;
                (Some(id), Some(place.shown))
            }
        };
        Ok(Report {
            pipeline: pipeline.name.clone(),
            artifact: artifact.map(|id| id.to_string()),
            artifact_path,
            outputs,
            interval: interval.cloned(),
            nothing_new: run.report.iter().all(|pass| pass.reused),
            spilled_bytes: run.scratch.spilled_bytes(),
            passes: run.report,
        })
    }
}

struct Running<'a> {
    /// By writing passes.
    withins: BTreeMap<Id, (Interval, Within)>,
    session: &'a Session,
    pipeline: &'a Pipeline,
    store: Store,
    scratch: ScratchDir,
    program: Program,
    known: Known,
    report: Vec<PassReport>,
}

impl Running<'_> {
    /// Runs all passes in order.
    fn passes(&mut self) -> Result<Vec<Output>> {
        let mut standing: BTreeMap<Id, (Before, Option<Value>)> = BTreeMap::new();
        for pass in &self.program.passes {
            if let PassWork::Write(work) = &pass.work {
                let out = self.session.io.place(self.session.sink(self.pipeline, work.sink)?.path())?;
                standing.insert(pass.id, self.store.pass(pass.id, |record| intact(&self.session.io, &out, record))?);
            }
        }
        let gathers =
            self.program.needed_gathers(&|id| standing.get(&id).is_none_or(|(before, _)| *before != Before::Reuse));
        let mut outputs = Vec::new();
        let total = self.program.passes.len();
        for (index, pass) in self.program.passes.clone().iter().enumerate() {
            self.session.interrupt.check()?;
            let number = index + 1;
            let label = self.label(&pass.work);
            let (bytes, work) = match &pass.work {
                PassWork::Learn(work) => (Some(work.lanes.iter().map(|lane| lane.bytes).sum()), "learn"),
                PassWork::Gather(_) => (None, "gather"),
                PassWork::Write(work) => (self.scan_bytes(work), "write"),
            };
            let id = pass.id.to_string();
            self.session.watch.event(Event::PassStarted { number, total, label: label.clone(), id, bytes });
            let mut report = PassReport {
                id: pass.id.to_string(),
                work,
                reused: false,
                rows_in: 0,
                rows_kept: 0,
                rows_filtered: 0,
                rows_expanded: 0,
                rows_out: 0,
            };
            let place = |fault: Fault| fault.pass(format!("{number} of {total} ({label})"));
            match &pass.work {
                PassWork::Learn(work) if work.lanes.is_empty() => report.reused = true,
                PassWork::Learn(work) => {
                    let windows = self.program.windows_of(work.lanes.iter().flat_map(|lane| &lane.scans));
                    self.attempt(&windows, |run| run.learner().run(&work.lanes))
                        .map(|answers| {
                            self.known.findings.extend(answers.findings);
                            report.count(answers.counts);
                            report.rows_kept = answers.rows_kept;
                            answers.kept
                        })
                        .and_then(|kept| self.store.put_learned(pass.id, &kept))
                        .map_err(place)?
                }
                PassWork::Gather(op) if gathers.contains(op) => {
                    self.gather(*op, pass.id, &mut report).map_err(place)?
                }
                PassWork::Gather(_) => report.reused = true,
                PassWork::Write(work) => {
                    let standing = standing.remove(&pass.id).unwrap_or((Before::Work, None));
                    outputs.push(self.write(work, pass.id, standing, &mut report).map_err(place)?);
                }
            }
            self.session.watch.event(Event::PassDone {
                number,
                reused: report.reused,
                rows: report.rows_in,
                filtered: report.rows_filtered,
            });
            self.report.push(report);
        }
        Ok(outputs)
    }

    fn label(&self, work: &PassWork) -> String {
        match work {
            PassWork::Learn(work) => {
                let count = work.lanes.iter().map(|lane| lane.asks.len()).sum::<usize>() + work.known.len();
                format!("learn {count} statistics")
            }
            PassWork::Gather(op) => format!("gather {}", self.program.bound.ops[*op].label),
            PassWork::Write(work) => format!("write {}", self.pipeline.sinks[work.sink].name),
        }
    }

    fn scan_bytes(&self, work: &SinkWork) -> Option<u64> {
        let bytes = |scan: &forebay_plan::Scan| Some(self.known.input(&self.program, scan.base).ok()?.dataset.bytes());
        work.scans.iter().map(bytes).sum()
    }

    /// Does work that runs through windows. Where rows turn out to come in another order than a
    /// window was told, or remember too much, it is done again after they were sorted.
    fn attempt<T>(&mut self, windows: &BTreeSet<OpId>, work: impl Fn(&Self) -> Result<T>) -> Result<T> {
        loop {
            for op in windows {
                self.open_way(*op)?;
            }
            let done = work(self);
            let fallen = self.known.fallen.lock().map_err(|_| poisoned())?.take();
            match (done, fallen) {
                (Err(_), Some((op, code))) if self.known.way(op) != Way::Sorted => self.fall(op, windows, code),
                (done, _) => return done,
            }
        }
    }

    /// Chooses the way of a window, and sorts its rows where that is the way.
    fn open_way(&mut self, op: OpId) -> Result<()> {
        let (program, known) = (&self.program, &self.known);
        let dataset = |base| known.input(program, base).ok().map(|input| input.dataset.as_ref());
        let way = known.ways.get(&op).copied().unwrap_or_else(|| choose_way(&program.bound, op, &dataset).way);
        self.known.ways.insert(op, way);
        if way != Way::Sorted || self.known.sorted.contains_key(&op) {
            return Ok(());
        }
        let upstream = {
            let bound = &self.program.bound;
            upstream_windows(&self.program, bound.window_inputs.get(&op).into_iter().chain(bound.as_of_inputs.get(&op)))
        };
        let sorted = self.attempt(&upstream, |run| SortedPass { gather: run.gather_pass() }.run(op))?;
        self.known.sorted.insert(op, Arc::new(sorted));
        Ok(())
    }

    /// The next way to try: rows may come by key, and can always be sorted. Windows over the same
    /// series go together.
    fn fall(&mut self, fallen: OpId, windows: &BTreeSet<OpId>, code: Code) {
        let ops = &self.program.bound.ops;
        let series = |op: OpId| match &ops[op].op {
            Op::Window(window) => Some((&window.time, &window.keys, self.known.way(op))),
            _ => None,
        };
        let together = windows.iter().filter(|op| **op == fallen || series(**op) == series(fallen));
        let together: Vec<OpId> = together.copied().collect();
        let way = match (self.known.way(fallen), code) {
            (Way::Time, codes::OUT_OF_ORDER) => Way::Key,
            _ => Way::Sorted,
        };
        if way == Way::Sorted {
            let labels: BTreeSet<String> = together.iter().map(|op| format!("`{}`", ops[*op].label)).collect();
            let labels = labels.into_iter().collect::<Vec<_>>().join(", ");
            let why = if code == codes::OUT_OF_ORDER { "rows come in no order" } else { "series outgrow the memory" };
            self.session.watch.event(Event::Warning { message: format!("{labels}: {why}, so they are sorted first") });
        }
        self.known.ways.extend(together.into_iter().map(|op| (op, way)));
    }

    /// What earlier runs left of a pass. What depends on statistics that are not known yet is not
    /// known either.
    fn standing(&mut self, pass: &Pass) -> Result<Standing> {
        let scans: Vec<&Scan> = match &pass.work {
            PassWork::Learn(work) => work.lanes.iter().flat_map(|lane| &lane.scans).collect(),
            PassWork::Write(work) => work.scans.iter().collect(),
            PassWork::Gather(_) => {
                let place = self.store.gathered_place(pass.id);
                let (before, _) = self.store.pass(pass.id, |record| intact(&self.session.io, &place, record))?;
                return Ok(Standing { done: before == Before::Reuse, to_read: None });
            }
        };
        for op in self.program.windows_of(scans) {
            let dataset = |base| self.known.input(&self.program, base).ok().map(|input| input.dataset.as_ref());
            let way = choose_way(&self.program.bound, op, &dataset).way;
            self.known.ways.insert(op, way);
        }
        match &pass.work {
            PassWork::Write(work) => {
                let sink = self.session.sink(self.pipeline, work.sink)?;
                let out = self.session.io.place(sink.path())?;
                let (before, _) = self.store.pass(pass.id, |record| intact(&self.session.io, &out, record))?;
                if before == Before::Reuse {
                    return Ok(Standing { done: true, to_read: None });
                }
                let write = self.writer(sink.as_ref());
                let prepared = write.prepare(&work.scans, &work.columns, work.part.as_ref());
                let to_read = prepared.and_then(|prepared| {
                    let target = self.target(work, pass.id, sink.as_ref(), &out)?;
                    write.to_read(&work.scans, &prepared, &target)
                });
                Ok(Standing { done: false, to_read: to_read.ok() })
            }
            PassWork::Learn(work) => Ok(Standing { done: false, to_read: self.learner().to_read(&work.lanes).ok() }),
            PassWork::Gather(_) => Ok(Standing::default()),
        }
    }

    fn gather_pass(&self) -> GatherPass<'_> {
        let session = self.session;
        GatherPass {
            io: &session.io,
            program: &self.program,
            known: &self.known,
            memory: session.memory(),
            threads: session.options.threads.max(1),
            batch_rows: session.options.batch_rows,
            watch: session.watch.clone(),
            scratch: &self.scratch,
        }
    }

    fn learner(&self) -> Learn<'_> {
        let session = self.session;
        Learn {
            io: &session.io,
            pipeline: self.pipeline,
            program: &self.program,
            known: &self.known,
            store: &self.store,
            scratch: &self.scratch,
            memory: session.memory(),
            threads: session.options.threads.max(1),
            batch_rows: session.options.batch_rows,
            watch: session.watch.as_ref(),
        }
    }

    fn writer<'w>(&'w self, sink: &'w dyn Sink) -> Write<'w> {
        let session = self.session;
        Write {
            io: &session.io,
            program: &self.program,
            known: &self.known,
            memory: session.memory(),
            threads: session.options.threads.max(1),
            batch_rows: session.options.batch_rows,
            watch: session.watch.as_ref(),
            sink,
        }
    }

    fn target<'w>(&'w self, work: &SinkWork, pass: Id, sink: &'w dyn Sink, out: &'w Place) -> Result<Target<'w>> {
        let shape = self.shape(work)?.unwrap_or(pass);
        let within = self.withins.get(&pass).map(|(_, within)| within.clone());
        let shards = within.as_ref().map_or(shape, |within| within_id(shape, within));
        let (io, store, scratch) = (&self.session.io, &self.store, &self.scratch);
        Ok(Target { io, sink, out, store, scratch, pass, shape, shards, within })
    }

    fn gather(&mut self, op: OpId, id: Id, report: &mut PassReport) -> Result<()> {
        let session = self.session;
        let place = self.store.gathered_place(id);
        let check = |record: &Value| intact(&session.io, &place, record);
        let (before, record) = self.store.pass(id, check)?;
        let path = json!({ "path": place.join(&format!("_data/{id}")).shown });
        if before != Before::Reuse {
            let sink = session.connectors.sink("parquet", &session.connectors.canonical("parquet", path.clone())?)?;
            let schema = self.gather_pass().schema(op)?;
            let inputs = self.program.bound.gather_inputs.get(&op).into_iter().flatten();
            let windows = upstream_windows(&self.program, inputs.map(|(_, flow)| flow));
            let (files, rows) = self.attempt(&windows, |run| {
                let data = place.join(&format!("_data/{id}"));
                let mut files =
                    Files::begin(&session.io, sink.as_ref(), schema.clone(), Vec::new(), data, &run.scratch)?;
                let mut waiting = Vec::new();
                let mut rows = 0;
                let total = run.gather_pass().each(op, &mut |batch| {
                    session.interrupt.check()?;
                    rows += batch.num_rows();
                    waiting.push(batch);
                    if rows >= sink.layout().group_rows_max {
                        files.append("", sink.encode(&schema, &std::mem::take(&mut waiting))?, false)?;
                        rows = 0;
                    }
                    Ok(())
                })?;
                if !waiting.is_empty() {
                    files.append("", sink.encode(&schema, &waiting)?, false)?;
                }
                Ok((files.finish(true)?, total))
            })?;
            report.rows_out = rows;
            let placed = |file: Written| Written { path: format!("_data/{id}/{}", file.path), ..file };
            let shard =
                Shard { id: id.to_string(), files: files.into_iter().map(placed).collect(), ..Shard::default() };
            let manifest = Manifest::new(id, &place, &schema, vec![shard]);
            self.store.put_pass(id, before, to_json(&manifest)?, check)?;
        } else {
            report.reused = true;
            report.rows_out = record.and_then(|record| record["rows"].as_u64()).unwrap_or(0);
        }
        let source = session.connectors.source("parquet", &path)?;
        let dataset = Arc::new(source.discover(&session.io, &gathered_watch(&self.program, op))?);
        self.known.gathered.insert(op, Input { dataset, source: session.stoppable(source), in_time_order: false });
        Ok(())
    }

    fn write(
        &mut self,
        work: &SinkWork,
        id: Id,
        (before, record): (Before, Option<Value>),
        report: &mut PassReport,
    ) -> Result<Output> {
        let session = self.session;
        let sink = session.sink(self.pipeline, work.sink)?;
        let out = session.io.place(sink.path())?;
        let name = self.pipeline.sinks[work.sink].name.clone();
        let manifest = match (before, record) {
            (Before::Reuse, Some(record)) => {
                report.reused = true;
                serde_json::from_value(record["manifest"].clone())
                    .map_err(|error| Fault::new(codes::STATE_VERSION, "a pass record cannot be read").cause(error))?
            }
            _ => {
                let windows = self.program.windows_of(&work.scans);
                let (schema, made) = self.attempt(&windows, |run| {
                    let write = run.writer(sink.as_ref());
                    let prepared = write.prepare(&work.scans, &work.columns, work.part.as_ref())?;
                    let target = run.target(work, id, sink.as_ref(), &out)?;
                    Ok((prepared.schema.clone(), write.run(&work.scans, &prepared, &target)?))
                })?;
                report.rows_kept = made.rows_kept;
                let manifest = Manifest::new(id, &out, &schema, made.shards);
                let carries = texts(&made.carry.into_iter().collect());
                let record = json!({ "out": out.shown, "manifest": to_json(&manifest)?, "carries": carries });
                self.store.put_pass(id, before, record, |record| intact(&session.io, &out, record))?;
                manifest
            }
        };
        let sums = manifest.shards.iter().fold(RowCounts::default(), |mut sums, shard| {
            sums.add(RowCounts { input: shard.rows_in, filtered: shard.rows_filtered, expanded: shard.rows_expanded });
            sums
        });
        report.count(sums);
        if report.reused {
            report.rows_kept = report.rows_in;
        }
        report.rows_out = manifest.rows;
        let expected = sums.input as i64 - sums.filtered as i64 + sums.expanded;
        if work.part.is_none() && expected != manifest.rows as i64 {
            return Err(Fault::internal(format!("{expected} rows became {}", manifest.rows)));
        }
        // Rows of other parts count as filtered, so that in = out + filtered.
        report.rows_filtered += (expected - manifest.rows as i64).max(0) as u64;
        let (rows, files) = (manifest.rows, manifest.files().count());
        let bytes = manifest.files().map(|file| file.bytes).sum();
        let (manifest, lock) = match self.withins.get(&id) {
            None => (manifest, None),
            Some((interval, Within { first, last, .. })) => {
                let stretch = Stretch {
                    from: interval.from.clone(),
                    to: interval.to.clone(),
                    first: *first,
                    last: *last,
                    pass: id.to_string(),
                    shards: manifest.shards.len(),
                };
                let lock = lock(&out)?;
                (manifest.among(stretch, Manifest::read(&session.io, &out)?, &out)?, lock)
            }
        };
        let data = out.join(&manifest.data).shown;
        if !manifest.is_visible(&session.io, &out)? {
            manifest.publish(&session.io, &out)?;
        }
        drop(lock);
        Ok(Output { sink: name, path: out.shown.clone(), data, rows, files, bytes })
    }

    /// Names what a sink's pass does with the rows of each span, if the spans are all that matters.
    fn shape(&self, work: &SinkWork) -> Result<Option<Id>> {
        let sink = &self.pipeline.sinks[work.sink];
        let mut id = IdBuilder::new("shards");
        id.text(&sink.format).json(&sink.config).json(&json!([work.columns, work.part]));
        let digest = |ask| self.known.digest(&self.program, ask);
        for scan in &work.scans {
            match shape(&self.program.bound, self.pipeline, scan, &digest)? {
                Some(shape) => id.id(shape),
                None => return Ok(None),
            };
        }
        Ok(Some(id.finish()))
    }

    /// Puts the artifact together and commits it.
    fn commit(&self, datasets: &BTreeMap<String, Dataset>) -> Result<(Id, Place)> {
        let bound = &self.program.bound;
        let mut findings = Vec::new();
        for (index, ask) in bound.asks.iter().enumerate() {
            findings.push(Learned {
                step: bound.ops[ask.op].label.clone(),
                analyzer: ask.ask.analyzer.kind().to_owned(),
                columns: ask.ask.inputs.clone(),
                part: ask.part.as_deref().map(|part| part.trim_start_matches(forebay_plan::PART_PREFIX).to_owned()),
                finding: self.known.finding(&self.program, index)?,
            });
        }
        let schemas = bound
            .bases
            .iter()
            .zip(&bound.base_schemas)
            .filter_map(|(base, schema)| match base {
                Base::Source(name) => Some((name.clone(), schema.clone())),
                Base::Gathered(_) => None,
            })
            .collect();
        let artifact = Artifact::new(self.pipeline, schemas, findings)?;
        let sources: BTreeMap<&String, Value> = datasets
            .iter()
            .map(|(name, dataset)| {
                let spans: Vec<Value> = dataset
                    .spans
                    .iter()
                    .map(|span| {
                        json!({ "span": span.label(), "rows": span.rows(), "fingerprint": span.fingerprint().to_string() })
                    })
                    .collect();
                (name, json!({ "fingerprint": dataset.fingerprint().to_string(), "spans": spans }))
            })
            .collect();
        let lineage = json!({
            "forebay": VERSION,
            "run_id": self.session.options.run_id,
            "sources": sources,
            "states": self.program.state_ids.iter().map(Id::to_string).collect::<Vec<_>>(),
            "passes": self.program.passes.iter().map(|pass| pass.id.to_string()).collect::<Vec<_>>(),
        });
        let place = artifact.commit(&self.session.io, self.store.root(), &lineage)?;
        Ok((artifact.id, place))
    }
}

/// Names the part of something that lies in an interval.
fn within_id(of: Id, within: &Within) -> Id {
    let mut id = IdBuilder::new("within");
    id.id(of).text(&within.column).bytes(&within.first.to_le_bytes()).bytes(&within.last.to_le_bytes());
    id.finish()
}

/// The windows before an operation over whole flows, upstream first.
fn upstream_windows<'a>(program: &Program, flows: impl Iterator<Item = &'a Flow>) -> BTreeSet<OpId> {
    let ops = flows.flat_map(|flow| &flow.streams).flat_map(|stream| stream.ops.iter().copied());
    ops.filter(|op| program.bound.ops[*op].op.is_over_series()).collect()
}

/// The columns of a gathered dataset whose extents tell in which order windows get its rows.
fn gathered_watch(program: &Program, op: OpId) -> Vec<String> {
    let bound = &program.bound;
    let over = |flow: &Flow| {
        flow.streams.iter().any(|stream| matches!(bound.bases[stream.base], Base::Gathered(base) if base == op))
    };
    let windows = bound.window_inputs.iter().filter(|(_, flow)| over(flow));
    let mut columns = BTreeSet::new();
    for (window, _) in windows {
        if let Op::Window(window) = &bound.ops[*window].op {
            columns.extend(window.keys.first().into_iter().chain([&window.time]).cloned());
        }
    }
    columns.into_iter().collect()
}

fn to_json(manifest: &Manifest) -> Result<Value> {
    serde_json::to_value(manifest).map_err(|error| Fault::internal("a manifest cannot be written").cause(error))
}

/// Whether the data that a pass's record names is whole.
fn intact(io: &Io, out: &Place, record: &Value) -> Result<bool> {
    let manifest = record.get("manifest").unwrap_or(record);
    match serde_json::from_value::<Manifest>(manifest.clone()) {
        Ok(manifest) => manifest.intact(io, out),
        Err(_) => Ok(false),
    }
}
