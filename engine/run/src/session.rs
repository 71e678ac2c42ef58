//! The front door: discover, explain, fit, run, apply.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use forebay_model::{Dataset, Fault, Id, Pipeline, Result, codes};
use forebay_plan::{
    Base, Bound, Explain, PassWork, Program, Registry, SinkWork, Sql, Standing, base_column, bind, compile,
    unknown_column,
};
use forebay_storage::{Event, Interrupt, Io, Later, Memory, Notes, Place, ScratchDir, Sink, Source, Watch, notes_id};
use jiff::{Timestamp, Zoned};

use crate::artifact::Artifact;
use crate::attempt::Goal;
use crate::beside::Turn;
use crate::cancellable_source::Stoppable;
use crate::claim::Claim;
use crate::commit::Store;
use crate::drive::{Running, within_id};
use crate::interval::{Interval, Within, until};
use crate::lease::Lease;
use crate::output::Manifest;
use crate::pace::Moment;
use crate::pass::{Input, Known};
use crate::workers::Crew;
use crate::{Connectors, Report, Stretch};

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
    /// Names the run: in its lineage, and among its attempts.
    pub run_id: Option<String>,
}

/// Everything that a run needs.
#[derive(Clone)]
pub struct Session {
    pub(crate) io: Io,
    pub(crate) registry: Registry,
    pub(crate) connectors: Arc<dyn Connectors>,
    pub(crate) sql: Sql,
    pub(crate) options: Options,
    pub(crate) watch: Arc<dyn Watch>,
    pub(crate) interrupt: Interrupt,
    pub(crate) deadline: Option<Timestamp>,
    pub(crate) crew: Option<Arc<Crew>>,
    /// Its place among runs side by side.
    pub(crate) turn: Option<Turn>,
    /// Its attempt at a run that has an id.
    pub(crate) claim: Option<Arc<Claim>>,
    /// Keeps what it relies on from being collected, while it runs.
    pub(crate) lease: Option<Arc<Lease>>,
    /// Whether a whole output may lose all its rows.
    pub(crate) allow_empty: bool,
}

/// A pipeline on its data, before anything ran.
pub(crate) struct Prepared {
    pub datasets: BTreeMap<String, Dataset>,
    pub known: Known,
    pub bound: Bound,
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
        let io = Io::new()?;
        let interrupt = io.interrupt().clone();
        let (deadline, crew, turn, claim) = (None, None, None, None);
        let (lease, allow_empty) = (None, false);
        Ok(Session {
            io,
            registry,
            connectors,
            sql,
            options,
            watch,
            interrupt,
            deadline,
            crew,
            turn,
            claim,
            lease,
            allow_empty,
        })
    }

    /// The same, that publishes outputs without a row, too. Else a run fails where a whole output would be empty,
    /// and rows were read for it, or readers see rows of it. Intervals may be empty anyway.
    pub fn allowing_empty(self, allow_empty: bool) -> Self {
        Session { allow_empty, ..self }
    }

    /// The deadline of everything that this session does from now on; it comes before those of specs.
    pub fn with_deadline(self, deadline: &Moment) -> Result<Self> {
        Ok(Session { deadline: Some(deadline.resolve(&Zoned::now())?), ..self })
    }

    /// The same, with workers that do what they can do.
    pub fn with_crew(self, crew: Crew) -> Result<Self> {
        crew.show_in(self.io.clone(), &self.state()?)?;
        Ok(Session { crew: Some(Arc::new(crew)), ..self })
    }

    /// Stops runs early: they fail after the batches that they are in.
    pub fn interrupt(&self) -> &Interrupt {
        &self.interrupt
    }

    /// Fails where another attempt has taken the run over, or where what it relies on may be gone.
    pub(crate) fn check_claim(&self) -> Result<()> {
        self.lease.as_ref().map_or(Ok(()), |lease| lease.check())?;
        self.claim.as_ref().map_or(Ok(()), |claim| claim.check())
    }

    pub(crate) fn stoppable(&self, inner: Arc<dyn Source>) -> Arc<dyn Source> {
        Arc::new(Stoppable { inner, interrupt: self.interrupt.clone(), claim: self.claim.clone() })
    }

    /// The way to storage.
    pub fn io(&self) -> &Io {
        &self.io
    }

    /// The state directory.
    pub fn state(&self) -> Result<Place> {
        self.io.place(&self.options.state)
    }

    pub(crate) fn memory(&self) -> Memory {
        Memory::new(self.options.memory_bytes).one_of(self.turn.as_ref().map_or(1, |turn| turn.beside))
    }

    /// Lists the sources and compares their schemas.
    pub fn discover(&self, pipeline: &Pipeline) -> Result<BTreeMap<String, Dataset>> {
        Ok(datasets(&self.inputs(&self.io, pipeline, None, None)?))
    }

    /// Discovers all sources. What they note is kept `later`, where that is given.
    pub(crate) fn inputs(
        &self,
        io: &Io,
        pipeline: &Pipeline,
        mut later: Option<(&ScratchDir, &mut Later)>,
        interval: Option<&Interval>,
    ) -> Result<BTreeMap<String, Input>> {
        let store = Store::new(self.io.clone(), self.state()?);
        let mut inputs = BTreeMap::new();
        let mut faults = Vec::new();
        for source in &pipeline.sources {
            let found = self.connectors.source(&source.format, &source.config).and_then(|reader| {
                let watch: Vec<String> = source.time.iter().chain(&source.keys).cloned().collect();
                let id = notes_id(source, &watch);
                let kept = store.clone();
                let notes = Notes::new(move || kept.get_notes(id));
                let mut dataset = reader.rediscover(io, &watch, &notes)?;
                if let (Some((scratch, later)), Some(notes)) = (&mut later, notes.into_kept()) {
                    let (store, scratch) = (store.clone(), scratch.clone());
                    later.begin(move || store.put_notes(id, &notes, &scratch));
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

    pub(crate) fn prepare(
        &self,
        pipeline: &Pipeline,
        sinks: &[usize],
        later: Option<(&ScratchDir, &mut Later)>,
        interval: Option<&Interval>,
    ) -> Result<Prepared> {
        let place = |sink: &usize| Ok((&pipeline.sinks[*sink], self.io.place(self.sink(pipeline, *sink)?.path())?));
        // Before anything is read.
        self.io.require_bucket(&self.state()?)?;
        let places = sinks.iter().map(place).collect::<Result<Vec<_>>>()?;
        for (sink, place) in &places {
            self.io.require_bucket(place).map_err(|fault| fault.at(sink.at.as_ref()))?;
        }
        let sources = self.inputs(&self.io, pipeline, later, interval)?;
        crate::clash::check(&self.io, pipeline, &datasets(&sources), &places)?;
        self.prepare_with(pipeline, sinks, sources)
    }

    /// The same, over sources that were discovered, for places that were looked at.
    pub(crate) fn prepare_with(
        &self,
        pipeline: &Pipeline,
        sinks: &[usize],
        sources: BTreeMap<String, Input>,
    ) -> Result<Prepared> {
        let datasets = datasets(&sources);
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

    /// What a run would do, over everything or for an interval.
    pub fn explain(&self, pipeline: &Pipeline, interval: Option<&Interval>) -> Result<Explain> {
        let sinks: Vec<usize> = (0..pipeline.sinks.len()).collect();
        let mut prepared = self.prepare(pipeline, &sinks, None, interval)?;
        let extended = self.with_trained_rows(pipeline, &prepared.bound)?;
        let pipeline = extended.as_ref().unwrap_or(pipeline);
        if extended.is_some() {
            prepared.bound = bind(pipeline, &self.registry, &self.sql, &prepared.datasets)?;
        }
        let sinks: Vec<usize> = (0..pipeline.sinks.len()).collect();
        let store = Store::new(self.io.clone(), self.state()?);
        let scratch = ScratchDir::new(None, self.watch.clone())?;
        let Prepared { datasets, mut known, bound } = prepared;
        let share = scratch.share(self.memory(), self.memory().states_bytes());
        let asks = bound.asks.clone();
        let mut program = compile(pipeline, bound, &datasets, &sinks, true, &mut |ask, state| {
            store.recall(state, asks[ask].ask.analyzer.as_ref(), &share, &mut known.findings)
        })?;
        let withins = self.withins(pipeline, &mut program, interval)?;
        let mut run = Running { withins, ..Running::new(self, pipeline, store, scratch, program, known) };
        let mut standing: BTreeMap<Id, Standing> = BTreeMap::new();
        for pass in run.program.passes.clone() {
            standing.insert(pass.id, run.standing(&pass)?);
        }
        let names: Vec<String> = pipeline.sinks.iter().map(|sink| sink.name.clone()).collect();
        let states_bytes = self.memory().states_bytes();
        let standing = |id| standing.get(&id).copied().unwrap_or_default();
        let mut explain = Explain::new(&run.program, &names, &datasets, states_bytes, &standing);
        explain.trainings = self.explain_trainings(pipeline, explain.passes.len())?;
        Ok(explain)
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

    /// Gives the writing passes of an interval names of their own, and tells what each writes.
    pub(crate) fn withins(
        &self,
        pipeline: &Pipeline,
        program: &mut Program,
        interval: Option<&Interval>,
    ) -> Result<BTreeMap<Id, (Interval, Within)>> {
        let mut withins = BTreeMap::new();
        for pass in &mut program.passes {
            if let (Some(interval), PassWork::Write(work)) = (interval, &pass.work) {
                let within = self.within(pipeline, &program.bound, work, interval)?;
                pass.id = within_id(pass.id, &within);
                withins.insert(pass.id, (interval.clone(), within));
            }
        }
        Ok(withins)
    }

    /// Learns everything and commits the artifact.
    pub fn fit(&self, pipeline: &Pipeline) -> Result<Report> {
        self.drive(pipeline, Goal::Fit, None)
    }

    /// Learns everything, commits the artifact, and writes all sinks.
    pub fn run(&self, pipeline: &Pipeline) -> Result<Report> {
        self.drive(pipeline, Goal::Run, None)
    }

    /// Like [`Session::run`], as if time had come as far as the end of an interval; writes the rows
    /// inside it, beside those of other intervals. Those that the lookback reaches are done again before.
    pub fn run_interval(&self, pipeline: &Pipeline, interval: &Interval) -> Result<Report> {
        let again = self.within_lookback(pipeline, &interval.from)?;
        let mut nothing_new = true;
        for earlier in &again {
            nothing_new &= self.run_only(pipeline, earlier)?.nothing_new;
        }
        let report = self.run_only(pipeline, interval)?;
        Ok(Report { nothing_new: nothing_new && report.nothing_new, again, ..report })
    }

    /// Like [`Session::run_interval`], without a look back.
    pub fn run_only(&self, pipeline: &Pipeline, interval: &Interval) -> Result<Report> {
        if pipeline.sources.iter().all(|source| source.time.is_none()) {
            let fault = Fault::new(codes::MISSING_FIELD, "no source declares its `time`, so there are no intervals");
            return Err(fault.hint("name the column of times: `time: date`"));
        }
        self.drive(pipeline, Goal::Run, Some(interval))
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
    pub(crate) fn check_outputs(
        &self,
        pipeline: &Pipeline,
        sinks: &[usize],
        interval: Option<&Interval>,
    ) -> Result<()> {
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
        self.drive(pipeline, Goal::Apply(artifact), None)
    }

    pub(crate) fn sink(&self, pipeline: &Pipeline, sink: usize) -> Result<Arc<dyn Sink>> {
        let sink = &pipeline.sinks[sink];
        self.connectors.sink(&sink.format, &sink.config).map_err(|fault| fault.at(sink.at.as_ref()))
    }
}

/// The datasets of sources.
pub(crate) fn datasets(inputs: &BTreeMap<String, Input>) -> BTreeMap<String, Dataset> {
    inputs.iter().map(|(name, input)| (name.clone(), input.dataset.as_ref().clone())).collect()
}
