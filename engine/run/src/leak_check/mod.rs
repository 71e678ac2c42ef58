//! The proof on data that no feature knows the future: everything after a time is scrambled, and
//! no row at or before it may move.

mod columns;
mod compare;
mod cutoff;
mod later_rows;
mod report;
mod root_cause;
mod scramble;
mod value_sampler;

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;

use forebay_commit::Artifact;
use forebay_execute::SourceInput;
use forebay_model::{Dataset, Fault, Pipeline, PipelineSink, Result, codes, tick_nanoseconds};
use forebay_plan::{
    BaseDataset, BoundPipeline, FUTURE_PART, KnownAhead, NodeFlow, PlanOp, ReaderFacts,
    known_ahead, row_extent, taken_columns,
};
use forebay_storage::ScratchDir;
use forebay_window::WindowReach;

use crate::intermediate_files::IntermediateFiles;
use crate::leak_check::columns::{TimedPipeline, fixed_columns, keys_of, time_of};
use crate::leak_check::compare::OutputComparison;
use crate::leak_check::later_rows::LaterRows;
use crate::leak_check::scramble::{ScramblePlan, ScramblingConnectors};
use crate::report::RunReport;
use crate::session::{Session, SessionOptions};

pub use crate::leak_check::cutoff::CutoffChoice;
pub(crate) use crate::leak_check::cutoff::{TimeRange, time_text, times};
pub use crate::leak_check::report::{
    CutoffReport, LeakReport, LeakedColumn, RowMismatch, ScrambledSource, SinkComparison,
};
pub(crate) use forebay_model::TimeCutoff;

impl Session {
    /// Runs the pipeline as it is, then once per cut with all rows after the cut scrambled, each
    /// time in a temporary directory, and compares what it writes for the rows up to the cut. Stops
    /// at the first cut at which rows changed.
    pub fn check_leakage(&self, pipeline: &Pipeline, cuts: &CutoffChoice) -> Result<LeakReport> {
        let judged = pipeline;
        let untrained = without_trainings(pipeline);
        let inputs = self.discover_inputs(&self.io, &untrained, None, None)?;
        let pipeline = &Pipeline {
            split: self.resolve_split(&untrained, &inputs, None)?,
            ..untrained
        };
        let datasets: BTreeMap<String, Dataset> = inputs
            .iter()
            .map(|(name, input)| (name.clone(), input.dataset.as_ref().clone()))
            .collect();
        self.bind_steps(judged, &datasets)?;
        // Rows in place of trainings have other columns than models take; those were checked.
        let unlabelled = Pipeline {
            label: None,
            ..pipeline.clone()
        };
        let bound = self.bind_steps(&unlabelled, &datasets)?;
        let readers = self.reader_facts(judged);
        let ahead = known_ahead_of_sinks(judged, &readers, pipeline, &bound)?;
        let model_columns = columns_of_trainings(judged, &readers, pipeline, &bound);
        let ranges = self.time_ranges(pipeline, &inputs)?;
        let Some(range) = pipeline
            .sources
            .iter()
            .find_map(|source| ranges.get(&source.name))
        else {
            return Err(Fault::new(
                codes::MISSING_FIELD,
                "no source declares its event time, so there is no future",
            )
            .hint("set `time` at the sources whose rows have one"));
        };
        let cuts = match cuts {
            CutoffChoice::At(text) => vec![TimeCutoff::after(text)],
            CutoffChoice::Count(count) => {
                let first = range
                    .split_end(pipeline, &self.sql)
                    .unwrap_or_else(|| range.middle())?;
                range.cuts_from(first, count.get(), longest_window(&bound))?
            }
        };
        let fixed: BTreeMap<String, BTreeSet<String>> = ranges
            .keys()
            .map(|source| (source.clone(), fixed_columns(pipeline, &bound, source)))
            .collect();
        let timed = TimedPipeline::new(pipeline, bound, &self.registry, &self.sql, &datasets);
        let mut times = Vec::new();
        for sink in &pipeline.sinks {
            let time = timed
                .bound
                .flows
                .get(&sink.from)
                .and_then(|flow| time_of(pipeline, flow));
            times.push(time.ok_or_else(|| {
                Fault::new(
                    codes::MISSING_FIELD,
                    format!("sink `{}` does not write the time of its rows", sink.name),
                )
                .hint("for this check, keep the event-time column in the sink")
                .at(sink.at.as_ref())
            })?);
        }
        let state = self.state()?;
        let scratch = ScratchDir::new(Some(&state), self.watch.clone())?;
        let check = LeakCheck {
            session: self,
            pipeline,
            inputs: &inputs,
            ranges: &ranges,
            range,
            fixed: &fixed,
            timed: &timed,
            times: &times,
            ahead: &ahead,
            model_columns: &model_columns,
            plain: self.run_trial(&timed.pipeline, &scratch.path().join("plain"), None)?,
        };
        let mut report = LeakReport { cuts: Vec::new() };
        for cut in &cuts {
            let scratch = ScratchDir::new(Some(&state), self.watch.clone())?;
            report.cuts.push(check.check_cutoff(cut, &scratch)?);
            if report.fault().is_some() {
                break;
            }
        }
        Ok(report)
    }

    /// The range of times of each source that declares one and has rows.
    fn time_ranges(
        &self,
        pipeline: &Pipeline,
        inputs: &BTreeMap<String, SourceInput>,
    ) -> Result<BTreeMap<String, TimeRange>> {
        let mut ranges = BTreeMap::new();
        for source in &pipeline.sources {
            let Some(time) = &source.time else {
                continue;
            };
            let Some(input) = inputs.get(&source.name) else {
                continue;
            };
            let range = TimeRange::of(&self.io, input, time)
                .map_err(|fault| fault.at(source.at.as_ref()))?;
            ranges.extend(range.map(|range| (source.name.clone(), range)));
        }
        Ok(ranges)
    }

    /// Runs the pipeline in a directory of its own.
    fn run_trial(
        &self,
        pipeline: &Pipeline,
        dir: &Path,
        scrambles: Option<BTreeMap<String, (String, Arc<ScramblePlan>)>>,
    ) -> Result<IsolatedRun> {
        let mut pipeline = pipeline.learning_anew();
        pipeline.deadline = None;
        // Sinks in place of trainings have other columns than sinks may have; these were checked before.
        pipeline.label = None;
        let path_in_dir = |name: &str| dir.join(name).display().to_string();
        let files = IntermediateFiles::new(self.connectors.as_ref());
        for (index, sink) in pipeline.sinks.iter_mut().enumerate() {
            sink.format = files.format();
            sink.config = files.exact_sink_config(&path_in_dir(&index.to_string()))?;
        }
        let mut connectors = self.connectors.clone();
        if let Some(scrambles) = scrambles {
            // No format is called so.
            let alias = |source: &str| format!("scrambled {source}");
            for source in pipeline
                .sources
                .iter_mut()
                .filter(|source| scrambles.contains_key(&source.name))
            {
                source.format = alias(&source.name);
            }
            let sources = scrambles
                .into_iter()
                .map(|(name, scramble)| (alias(&name), scramble))
                .collect();
            connectors = Arc::new(ScramblingConnectors {
                inner: connectors,
                sources,
            });
        }
        let options = SessionOptions {
            state: path_in_dir("state"),
            ..self.options.clone()
        };
        let session = Session::new(
            self.registry.clone(),
            connectors,
            self.sql.clone(),
            options,
            self.watch.clone(),
        )?;
        let session = session.allowing_empty(true);
        let report = session.run(&pipeline)?;
        let path = report
            .artifact_path
            .as_deref()
            .ok_or_else(|| Fault::internal("a run without an artifact"))?;
        let artifact = Artifact::load(&session.io, &session.io.resolve(path)?)?;
        Ok(IsolatedRun { report, artifact })
    }
}

/// Inputs that are shared by all cuts of a check.
struct LeakCheck<'a> {
    session: &'a Session,
    pipeline: &'a Pipeline,
    inputs: &'a BTreeMap<String, SourceInput>,
    /// Time range of each source with a time.
    ranges: &'a BTreeMap<String, TimeRange>,
    /// Time range of the source by whose time the data is cut.
    range: &'a TimeRange,
    /// Columns of each source that are not scrambled.
    fixed: &'a BTreeMap<String, BTreeSet<String>>,
    timed: &'a TimedPipeline,
    /// The time column of each sink.
    times: &'a [String],
    /// Distance after a cut for which each column of a sink must still be known, by sink.
    ahead: &'a [BTreeMap<String, KnownAhead>],
    /// The columns that models take of each sink that stands for trainings.
    model_columns: &'a [Option<BTreeSet<String>>],
    /// The run on the data as they are.
    plain: IsolatedRun,
}

/// A run in a temporary directory.
struct IsolatedRun {
    report: RunReport,
    artifact: Artifact,
}

impl LeakCheck<'_> {
    /// The rows of the source of a flow after a tick, by series; `None` where no source has the time and the keys of the
    /// flow.
    fn later_rows(&self, flow: &NodeFlow, time: &str, last: i64) -> Result<Option<LaterRows>> {
        let mut candidates = Vec::new();
        for source in &self.pipeline.sources {
            let mut keys = source.keys.iter();
            let has_keys = keys.all(|key| flow.schema.field_with_name(key).is_ok());
            if source.time.as_deref() == Some(time) && has_keys {
                candidates.push(source);
            }
        }
        // A source that the rows come from is better than one that they are only joined with.
        let read = candidates
            .iter()
            .find(|source| self.reads_source(flow, &source.name));
        let Some(source) = read.or(candidates.first()) else {
            return Ok(None);
        };
        let Some(input) = self.inputs.get(&source.name) else {
            return Ok(None);
        };
        let keys = source.keys.clone();
        LaterRows::read(&self.session.io, input, keys, time, last).map(Some)
    }

    /// True if rows of a flow are rows of a source.
    fn reads_source(&self, flow: &NodeFlow, source: &str) -> bool {
        let mut streams = flow.streams.iter();
        streams.any(|stream| match &self.timed.bound.bases[stream.base] {
            BaseDataset::Source(name) => name == source,
            BaseDataset::Gathered(_) => false,
        })
    }

    /// The columns of a sink that count, where not all do: those that its node keeps, and that models take.
    fn compared_columns(&self, index: usize) -> Option<Vec<String>> {
        let kept_columns = self.timed.only.get(&self.pipeline.sinks[index].from);
        let Some(model_columns) = &self.model_columns[index] else {
            return kept_columns.cloned();
        };
        let mut columns: Vec<String> = model_columns.iter().cloned().collect();
        if let Some(kept_columns) = kept_columns {
            columns.retain(|column| kept_columns.contains(column));
        }
        Some(columns)
    }

    /// Compares the rows of a sink before a cut with those of a run on scrambled later rows.
    fn compare_sink(
        &self,
        index: usize,
        cut: &TimeCutoff,
        other: &RunReport,
    ) -> Result<SinkComparison> {
        let session = self.session;
        let pipeline = self.pipeline;
        let bound = &self.timed.bound;
        let sink = &pipeline.sinks[index];
        let time = &self.times[index];
        let fault = || Fault::internal(format!("sink `{}` was not written", sink.name));
        let flow = bound.flows.get(&sink.from).ok_or_else(fault)?;
        let plain_output = self.plain.report.outputs.get(index).ok_or_else(fault)?;
        let other_output = other.outputs.get(index).ok_or_else(fault)?;
        let field = flow.schema.field_with_name(time)?;
        let tick = tick_nanoseconds(field.data_type()).unwrap_or(1);
        let ticks = |length: i128| i64::try_from(length / tick).unwrap_or(i64::MAX);
        // A bucket is known at its end.
        let extent = ticks(row_extent(pipeline, bound, flow).max(0));
        let mut ahead = BTreeMap::new();
        let mut ahead_rows = BTreeMap::new();
        for (column, length) in &self.ahead[index] {
            match length {
                KnownAhead::Time(length) => {
                    ahead.insert(column.clone(), ticks(*length));
                }
                KnownAhead::Rows(rows) => {
                    ahead_rows.insert(column.clone(), *rows);
                }
            }
        }
        let last = cut.last_tick(field)?.saturating_sub(extent);
        let later_rows = if ahead_rows.is_empty() {
            None
        } else {
            self.later_rows(flow, time, last)?
        };
        let compared = OutputComparison {
            io: &session.io,
            connectors: session.connectors.as_ref(),
            last,
            ahead,
            ahead_rows,
            later_rows,
            time: time.clone(),
            keys: keys_of(pipeline, bound, flow),
            only: self.compared_columns(index),
            skip: pipeline.label.as_ref().map(|label| label.column.clone()),
        };
        let comparison = compared.run(&plain_output.data, &other_output.data)?;
        Ok(SinkComparison {
            sink: sink.name.clone(),
            ..comparison
        })
    }

    /// Scrambles all rows after a cut and compares those before it.
    fn check_cutoff(&self, cut: &TimeCutoff, scratch: &ScratchDir) -> Result<CutoffReport> {
        let session = self.session;
        let pipeline = self.pipeline;
        let bound = &self.timed.bound;
        let mut lasts = BTreeMap::new();
        for (name, range) in self.ranges {
            lasts.insert(name.as_str(), cut.last_tick(&range.field)?);
        }
        let mut ranges = self.ranges.iter();
        if !ranges.any(|(name, range)| range.max > lasts[name.as_str()]) {
            return Err(
                Fault::new(codes::EMPTY, format!("no row is {}", cut.future_text())).hint(format!(
                    "give an earlier time with `--at`; rows are between {}",
                    self.range.range_text()
                )),
            );
        }
        let mut scrambles = BTreeMap::new();
        let mut sources = Vec::new();
        for source in &pipeline.sources {
            let name = &source.name;
            if !self.ranges.contains_key(name) {
                continue;
            }
            let scramble = ScramblePlan::new(
                &session.io,
                source,
                &self.inputs[name],
                lasts[name.as_str()],
                &self.fixed[name],
            )?;
            sources.push(ScrambledSource {
                source: name.clone(),
                columns: scramble.columns(),
            });
            scrambles.insert(name.clone(), (source.format.clone(), Arc::new(scramble)));
        }
        let trial = session.run_trial(&self.timed.pipeline, scratch.path(), Some(scrambles));
        let other = trial.map_err(|fault| {
            fault.note(format!(
                "the pipeline runs on the data as they are, and failed when rows {} were scrambled",
                cut.future_text()
            ))
        })?;
        let learned = changed_asks(&self.plain.artifact, &other.artifact);
        let mut sinks = Vec::new();
        for index in 0..pipeline.sinks.len() {
            let mut comparison = self.compare_sink(index, cut, &other.report)?;
            let from = &pipeline.sinks[index].from;
            if let Some(flow) = bound.flows.get(from) {
                let future = cut.future_text();
                for moved in &mut comparison.moved {
                    root_cause::explain_leak(pipeline, bound, flow, &learned, &future, moved);
                }
            }
            sinks.push(comparison);
        }
        if sinks
            .iter()
            .all(|sink| sink.rows == 0 && sink.misplaced.is_none())
        {
            return Err(Fault::new(
                codes::EMPTY,
                format!("no sink writes a row {}", cut.past_text()),
            )
            .hint(format!(
                "give a later time with `--at`; rows are between {}",
                self.range.range_text()
            )));
        }
        Ok(CutoffReport {
            past: cut.past_text(),
            future: cut.future_text(),
            sources,
            sinks,
        })
    }
}

/// The farthest entry before a row that a window with a bounded reach reads, in nanoseconds; in
/// ticks where times are whole numbers.
fn longest_window(bound: &BoundPipeline) -> Option<i128> {
    let reach = |op: &PlanOp| match op {
        PlanOp::Window(window) => match window.plan.reach() {
            WindowReach::Ticks(ranges) => {
                let tick = tick_nanoseconds(&window.plan.time).unwrap_or(1);
                ranges.last().map(|range| i128::from(*range.end()) * tick)
            }
            WindowReach::Unbounded => None,
        },
        _ => None,
    };
    bound.ops.iter().filter_map(|bound| reach(&bound.op)).max()
}

/// Time after a cut for which each column must still be known, for each sink of a pipeline without
/// trainings: a sink stands for the trainings on its rows.
fn known_ahead_of_sinks(
    judged: &Pipeline,
    readers: &ReaderFacts,
    rows_only: &Pipeline,
    bound: &BoundPipeline,
) -> Result<Vec<BTreeMap<String, KnownAhead>>> {
    let mut of_sinks = Vec::new();
    for sink in &rows_only.sinks {
        let mut ahead: BTreeMap<String, KnownAhead> = BTreeMap::new();
        let same_rows = judged
            .trainings
            .iter()
            .filter(|training| training.from == sink.from);
        let same_name = judged.sinks.iter().filter(|other| other.name == sink.name);
        for taker in same_name.chain(same_rows) {
            for (column, length) in known_ahead(judged, bound, readers, taker)? {
                let longest = ahead.entry(column).or_insert(length);
                *longest = length.max(*longest);
            }
        }
        of_sinks.push(ahead);
    }
    Ok(of_sinks)
}

/// The columns that models take of each sink of a pipeline without trainings that stands for trainings on its rows.
/// Columns that no model takes may know the future.
fn columns_of_trainings(
    judged: &Pipeline,
    readers: &ReaderFacts,
    rows_only: &Pipeline,
    bound: &BoundPipeline,
) -> Vec<Option<BTreeSet<String>>> {
    let mut of_sinks = Vec::new();
    for sink in &rows_only.sinks {
        let is_written = judged.sinks.iter().any(|other| other.name == sink.name);
        let flow = bound.flows.get(&sink.from).filter(|_| !is_written);
        of_sinks.push(flow.map(|flow| {
            let mut columns = BTreeSet::new();
            for training in &judged.trainings {
                if training.from != sink.from {
                    continue;
                }
                if let Some(facts) = readers.trainings.get(&training.name) {
                    columns.extend(taken_columns(judged, bound, &flow.schema, facts));
                }
            }
            columns
        }));
    }
    of_sinks
}

/// The pipeline without its trainings, whose models must stay as they are, and without forecasts. The rows that a
/// training reads are compared instead, as those of a sink of its name.
fn without_trainings(pipeline: &Pipeline) -> Pipeline {
    let mut rows_only = pipeline.clone();
    rows_only.predictions.clear();
    // Rows of the future are made of the last rows, which are scrambled.
    rows_only
        .sinks
        .retain(|sink| sink.split.as_deref() != Some(FUTURE_PART));
    for training in std::mem::take(&mut rows_only.trainings) {
        let is_written = |sink: &PipelineSink| sink.from == training.from && sink.split.is_none();
        if !rows_only.sinks.iter().any(is_written) {
            rows_only.sinks.push(PipelineSink {
                split: None,
                ..training
            });
        }
    }
    rows_only
}

/// The analyzers whose findings depend on the future.
fn changed_asks(plain: &Artifact, other: &Artifact) -> BTreeSet<usize> {
    let pairs = plain.findings.iter().zip(&other.findings).enumerate();
    pairs
        .filter(|(_, (a, b))| a.finding != b.finding)
        .map(|(index, _)| index)
        .collect()
}
