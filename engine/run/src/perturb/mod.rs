//! The proof on data that no feature knows the future: everything after a time is scrambled, and
//! no row at or before it may move.

mod columns;
mod compare;
mod culprit;
mod cut;
mod pool;
mod report;
mod scramble;

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;

use forebay_model::{Dataset, Fault, Pipeline, Result, Sink, codes};
use forebay_plan::bind;
use forebay_storage::ScratchDir;
use serde_json::json;

use self::columns::{Timed, fixed_columns, keys_of, time_of};
use self::compare::Compared;
use self::cut::TimeRange;
pub(crate) use self::cut::{Cut, ticks};
pub use self::report::{Misplaced, Moved, Perturbed, PerturbedSink, ScrambledSource};
use self::scramble::{Scramble, Scrambling};
use crate::pass::Input;
use crate::{Artifact, Options, Report, Session};

impl Session {
    /// Runs the pipeline twice in a temporary directory, as it is and with all rows after a time
    /// scrambled, and compares what it writes for the rows up to then. `at` is a date, a timestamp
    /// or a number; where left out, the end of the part of the split that is fitted on, or the
    /// middle of the data.
    pub fn perturb_future(&self, pipeline: &Pipeline, at: Option<&str>) -> Result<Perturbed> {
        let pipeline = &without_trainings(pipeline);
        let inputs = self.inputs(&self.io, pipeline, None, None)?;
        let datasets: BTreeMap<String, Dataset> =
            inputs.iter().map(|(name, input)| (name.clone(), input.dataset.as_ref().clone())).collect();
        let bound = bind(pipeline, &self.registry, &self.sql, &datasets)?;
        let ranges = self.time_ranges(pipeline, &inputs)?;
        let Some(range) = pipeline.sources.iter().find_map(|source| ranges.get(&source.name)) else {
            return Err(Fault::new(codes::MISSING_FIELD, "no source declares its event time, so there is no future")
                .hint("set `time` at the sources whose rows have one"));
        };
        let cut = match at {
            Some(text) => Cut::after(text),
            None => Cut::of_split(pipeline, &self.sql, range).unwrap_or_else(|| range.middle())?,
        };
        let mut lasts = BTreeMap::new();
        for (name, range) in &ranges {
            lasts.insert(name.clone(), cut.last(&range.field)?);
        }
        if !ranges.iter().any(|(name, range)| range.max > lasts[name]) {
            return Err(Fault::new(codes::EMPTY, format!("no row is {}", cut.future()))
                .hint(format!("give an earlier time with `--at`; rows are between {}", range.words())));
        }
        let mut scrambles = BTreeMap::new();
        let mut scrambled = Vec::new();
        for source in pipeline.sources.iter().filter(|source| ranges.contains_key(&source.name)) {
            let fixed = fixed_columns(pipeline, &bound, &source.name);
            let input = &inputs[&source.name];
            let scramble = Scramble::new(&self.io, source, input, lasts[&source.name], &fixed)?;
            scrambled.push(ScrambledSource { source: source.name.clone(), columns: scramble.columns() });
            scrambles.insert(source.name.clone(), (source.format.clone(), Arc::new(scramble)));
        }

        let timed = Timed::new(pipeline, bound, &self.registry, &self.sql, &datasets);
        let bound = &timed.bound;
        let mut times = Vec::new();
        for sink in &pipeline.sinks {
            let time = bound.flows.get(&sink.from).and_then(|flow| time_of(pipeline, flow));
            times.push(time.ok_or_else(|| {
                Fault::new(codes::MISSING_FIELD, format!("sink `{}` does not write the time of its rows", sink.name))
                    .hint("for this check, keep the event-time column in the sink")
                    .at(sink.at.as_ref())
            })?);
        }
        let state = self.state()?;
        let scratch = ScratchDir::new(Some(&state), self.watch.clone())?;
        let plain = self.trial(&timed.pipeline, &scratch.path().join("plain"), None)?;
        let other =
            self.trial(&timed.pipeline, &scratch.path().join("scrambled"), Some(scrambles)).map_err(|fault| {
                fault.note(format!(
                    "the pipeline runs on the data as they are, and failed when rows {} were scrambled",
                    cut.future()
                ))
            })?;
        let learned = moved_asks(&plain.1, &other.1);
        let mut sinks = Vec::new();
        for (index, (sink, time)) in pipeline.sinks.iter().zip(times).enumerate() {
            let fault = || Fault::internal(format!("sink `{}` was not written", sink.name));
            let flow = bound.flows.get(&sink.from).ok_or_else(fault)?;
            let data = |run: &Report| run.outputs.get(index).map(|output| output.data.clone()).ok_or_else(fault);
            let compared = Compared {
                io: &self.io,
                connectors: self.connectors.as_ref(),
                last: cut.last(flow.schema.field_with_name(&time)?)?,
                time,
                keys: keys_of(pipeline, bound, flow),
                only: timed.only.get(&sink.from).cloned(),
                skip: pipeline.label.as_ref().map(|label| label.column.clone()),
            };
            let mut found = compared.run(&data(&plain.0)?, &data(&other.0)?)?;
            found.sink.clone_from(&sink.name);
            for moved in &mut found.moved {
                culprit::explain(pipeline, bound, flow, &learned, &cut.future(), moved);
            }
            sinks.push(found);
        }
        if sinks.iter().all(|sink| sink.rows == 0 && sink.misplaced.is_none()) {
            return Err(Fault::new(codes::EMPTY, format!("no sink writes a row {}", cut.past()))
                .hint(format!("give a later time with `--at`; rows are between {}", range.words())));
        }
        Ok(Perturbed { past: cut.past(), future: cut.future(), sources: scrambled, sinks })
    }

    /// The range of times of each source that declares one and has rows.
    fn time_ranges(
        &self,
        pipeline: &Pipeline,
        inputs: &BTreeMap<String, Input>,
    ) -> Result<BTreeMap<String, TimeRange>> {
        let mut ranges = BTreeMap::new();
        for source in &pipeline.sources {
            let (Some(time), Some(input)) = (&source.time, inputs.get(&source.name)) else { continue };
            let range = TimeRange::of(&self.io, input, time).map_err(|fault| fault.at(source.at.as_ref()))?;
            ranges.extend(range.map(|range| (source.name.clone(), range)));
        }
        Ok(ranges)
    }

    /// One run in a directory of its own.
    fn trial(
        &self,
        pipeline: &Pipeline,
        dir: &Path,
        scrambles: Option<BTreeMap<String, (String, Arc<Scramble>)>>,
    ) -> Result<(Report, Artifact)> {
        let mut pipeline = pipeline.clone();
        pipeline.deadline = None;
        let place = |name: &str| dir.join(name).display().to_string();
        for (index, sink) in pipeline.sinks.iter_mut().enumerate() {
            sink.format = "parquet".to_owned();
            sink.config = self.connectors.canonical("parquet", json!({ "path": place(&index.to_string()) }))?;
        }
        let mut connectors = self.connectors.clone();
        if let Some(scrambles) = scrambles {
            // No format is called so.
            let alias = |source: &str| format!("scrambled {source}");
            for source in pipeline.sources.iter_mut().filter(|source| scrambles.contains_key(&source.name)) {
                source.format = alias(&source.name);
            }
            let sources = scrambles.into_iter().map(|(name, scramble)| (alias(&name), scramble)).collect();
            connectors = Arc::new(Scrambling { inner: connectors, sources });
        }
        let options = Options { state: place("state"), ..self.options.clone() };
        let session = Session::new(self.registry.clone(), connectors, self.sql.clone(), options, self.watch.clone())?;
        let session = session.allowing_empty(true);
        let report = session.run(&pipeline)?;
        let path = report.artifact_path.as_deref().ok_or_else(|| Fault::internal("a run without an artifact"))?;
        let artifact = Artifact::load(&session.io, &session.io.place(path)?)?;
        Ok((report, artifact))
    }
}

/// The pipeline without its trainings, whose models must stay as they are. The rows that a training reads are
/// compared instead, as those of a sink of its name.
fn without_trainings(pipeline: &Pipeline) -> Pipeline {
    let mut rows_only = pipeline.clone();
    for training in std::mem::take(&mut rows_only.trainings) {
        let is_written = |sink: &Sink| sink.from == training.from && sink.split.is_none();
        if !rows_only.sinks.iter().any(is_written) {
            rows_only.sinks.push(Sink { split: None, ..training });
        }
    }
    rows_only
}

/// The questions whose answers depend on the future.
fn moved_asks(plain: &Artifact, other: &Artifact) -> BTreeSet<usize> {
    let both = plain.findings.iter().zip(&other.findings).enumerate();
    both.filter(|(_, (a, b))| a.finding != b.finding).map(|(index, _)| index).collect()
}
