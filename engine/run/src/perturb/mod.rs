//! The proof on data that no feature knows the future: everything after a time is scrambled, and
//! no row at or before it may move.

mod compare;
mod culprit;
mod cut;
mod pool;
mod scramble;

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;

use arrow::datatypes::Schema;
use forebay_model::{Fault, Location, Pipeline, Result, codes};
use forebay_plan::{Base, Bound, Flow, Op, PART_PREFIX, base_column, bind};
use serde::Serialize;
use serde_json::json;

use self::compare::Compared;
use self::cut::{Cut, TimeRange};
use self::scramble::{Scramble, Scrambling};
use crate::pass::Input;
use crate::scratch::ScratchDir;
use crate::{Artifact, Options, Report, Session};

/// What became of rows when their future was scrambled.
#[derive(Debug, Clone, Serialize)]
pub struct Perturbed {
    /// The time, in words: `at or before 2016-04-24`.
    pub past: String,
    /// The rest: `after 2016-04-24`.
    pub future: String,
    /// Per source with a time.
    pub sources: Vec<ScrambledSource>,
    /// Per sink.
    pub sinks: Vec<PerturbedSink>,
}

/// A source whose future was scrambled.
#[derive(Debug, Clone, Serialize)]
pub struct ScrambledSource {
    /// The source.
    pub source: String,
    /// The columns that were scrambled.
    pub columns: Vec<String>,
}

/// A sink's rows in both runs.
#[derive(Debug, Clone, Serialize)]
pub struct PerturbedSink {
    /// The sink.
    pub sink: String,
    /// Rows of the past that were compared.
    pub rows: u64,
    /// Columns that were compared.
    pub columns: usize,
    /// The columns that moved.
    pub moved: Vec<Moved>,
    /// Where rows came or went, or changed their order: the first place at which they differ.
    pub misplaced: Option<Misplaced>,
}

/// A column that moved.
#[derive(Debug, Clone, Serialize)]
pub struct Moved {
    /// The column.
    pub column: String,
    /// How many rows have another value.
    pub rows: u64,
    /// The first of them: its keys and its time.
    pub first: String,
    /// The value there.
    pub value: String,
    /// The value that another future gives.
    pub other: String,
    /// The step that wrote the column.
    pub step: Option<String>,
    /// What looked ahead, in words, if it is known.
    pub cause: Option<String>,
    /// What to do about it.
    #[serde(skip)]
    pub hint: String,
    /// The place of what looked ahead.
    #[serde(skip)]
    pub at: Option<Location>,
}

/// The first place at which the rows of both runs differ.
#[derive(Debug, Clone, Serialize)]
pub struct Misplaced {
    /// The row's number among those of the past.
    pub row: u64,
    /// Its keys and time, if there is a row.
    pub found: Option<String>,
    /// Those that another future gives.
    pub other: Option<String>,
}

impl Perturbed {
    /// The fault for everything that moved; `None` if nothing did.
    pub fn fault(&self) -> Option<Fault> {
        let mut faults = Vec::new();
        for sink in &self.sinks {
            if let Some(misplaced) = &sink.misplaced {
                let row = |row: &Option<String>| row.clone().unwrap_or_else(|| "no row".to_owned());
                let message = format!(
                    "rows {} in sink `{}` come or go when later rows are scrambled: row {} is {}, and was {}",
                    self.past,
                    sink.sink,
                    misplaced.row,
                    row(&misplaced.other),
                    row(&misplaced.found)
                );
                let hint = "a filter, join or query looks at later rows: let it use columns of its own row only";
                faults.push(Fault::new(codes::LOOKAHEAD, message).hint(hint));
            }
            for moved in &sink.moved {
                let message = format!("`{}` in sink `{}` moves when later rows are scrambled", moved.column, sink.sink);
                let mut fault = Fault::new(codes::LOOKAHEAD, message).column(&moved.column).hint(&moved.hint);
                if let Some(step) = &moved.step {
                    fault = fault.step(step);
                }
                let rows = format!(
                    "{} of {} rows {} moved, first {}: {} became {}",
                    moved.rows, sink.rows, self.past, moved.first, moved.value, moved.other
                );
                let cause = moved.cause.iter().cloned();
                fault = cause.chain([rows]).fold(fault, Fault::note);
                faults.push(fault.at(moved.at.as_ref()));
            }
        }
        Fault::all(faults)
    }
}

impl Session {
    /// Runs the pipeline twice in a temporary directory, as it is and with all rows after a time
    /// scrambled, and compares what it writes for the rows up to then. `at` is a date, a timestamp
    /// or a number; where left out, the end of the part of the split that is fitted on, or the
    /// middle of the data.
    pub fn perturb_future(&self, pipeline: &Pipeline, at: Option<&str>) -> Result<Perturbed> {
        let inputs = self.inputs(pipeline)?;
        let datasets = inputs.iter().map(|(name, input)| (name.clone(), input.dataset.as_ref().clone())).collect();
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

        let state = self.state()?;
        let scratch = ScratchDir::new(state.local.as_deref(), self.watch.clone())?;
        let plain = self.trial(pipeline, &scratch.path().join("plain"), None)?;
        let other = self.trial(pipeline, &scratch.path().join("scrambled"), Some(scrambles)).map_err(|fault| {
            fault.note(format!(
                "the pipeline runs on the data as they are, and failed when rows {} were scrambled",
                cut.future()
            ))
        })?;
        let learned = moved_asks(&plain.1, &other.1);
        let mut sinks = Vec::new();
        for (index, sink) in pipeline.sinks.iter().enumerate() {
            let fault = || Fault::internal(format!("sink `{}` was not written", sink.name));
            let flow = bound.flows.get(&sink.from).ok_or_else(fault)?;
            let time = time_of(pipeline, &flow.schema, flow.series.time.as_ref()).ok_or_else(|| {
                Fault::new(codes::MISSING_FIELD, format!("sink `{}` does not write the time of its rows", sink.name))
                    .hint("for this check, keep the event-time column in the sink")
                    .at(sink.at.as_ref())
            })?;
            let data = |run: &Report| run.outputs.get(index).map(|output| output.data.clone()).ok_or_else(fault);
            let compared = Compared {
                io: &self.io,
                connectors: self.connectors.as_ref(),
                last: cut.last(flow.schema.field_with_name(&time)?)?,
                time,
                keys: keys_of(pipeline, &bound, flow),
                skip: pipeline.label.as_ref().map(|label| label.column.clone()),
            };
            let mut found = compared.run(&data(&plain.0)?, &data(&other.0)?)?;
            found.sink.clone_from(&sink.name);
            for moved in &mut found.moved {
                culprit::explain(pipeline, &bound, flow, &learned, &cut.future(), moved);
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
        let report = session.run(&pipeline)?;
        let path = report.artifact_path.as_deref().ok_or_else(|| Fault::internal("a run without an artifact"))?;
        let artifact = Artifact::load(&session.io, &session.io.place(path)?)?;
        Ok((report, artifact))
    }
}

/// The columns of a source that keep their values: who the rows are, when they are, which part
/// they belong to, and what the spec calls known.
fn fixed_columns(pipeline: &Pipeline, bound: &Bound, source: &str) -> BTreeSet<String> {
    let declared = pipeline.source(source).into_iter().flat_map(|source| source.keys.iter().chain(&source.time));
    let known = pipeline.label.iter().flat_map(|label| &label.known);
    let mut fixed: BTreeSet<String> = declared.chain(known).cloned().collect();
    let mut trace = |flow: Option<&Flow>, columns: &[&String]| {
        for stream in flow.into_iter().flat_map(|flow| &flow.streams) {
            if matches!(&bound.bases[stream.base], Base::Source(name) if name == source) {
                fixed.extend(columns.iter().filter_map(|column| base_column(bound, stream, column)));
            }
        }
    };
    for (id, op) in bound.ops.iter().enumerate() {
        match &op.op {
            Op::Window(window) => {
                let columns: Vec<&String> = window.keys.iter().chain([&window.time]).collect();
                trace(bound.window_inputs.get(&id), &columns);
            }
            Op::AsOf(join) => {
                trace(bound.window_inputs.get(&id), &[&join.time]);
                let there: Vec<&String> = [&join.other_time].into_iter().chain(&join.known_at).collect();
                trace(bound.as_of_inputs.get(&id), &there);
            }
            Op::Map(map) if map.writes.iter().any(|field| field.name().starts_with(PART_PREFIX)) => {
                let columns: Vec<&String> = map.reads.iter().collect();
                bound.flows.values().for_each(|flow| trace(Some(flow), &columns));
            }
            _ => {}
        }
    }
    fixed
}

/// The column that tells the time of a sink's rows.
fn time_of(pipeline: &Pipeline, schema: &Schema, known: Option<&String>) -> Option<String> {
    let declared = pipeline.sources.iter().filter_map(|source| source.time.as_ref());
    known.into_iter().chain(declared).find(|time| schema.field_with_name(time).is_ok()).cloned()
}

/// The columns that tell a sink's rows apart, as far as they are written as they were read.
fn keys_of(pipeline: &Pipeline, bound: &Bound, flow: &Flow) -> Vec<String> {
    let read = |key: &String| flow.streams.iter().all(|stream| base_column(bound, stream, key).is_some());
    let mut keys: Vec<String> = Vec::new();
    for key in pipeline.sources.iter().flat_map(|source| &source.keys) {
        if flow.schema.field_with_name(key).is_ok() && !keys.contains(key) && read(key) {
            keys.push(key.clone());
        }
    }
    keys
}

/// The questions whose answers depend on the future.
fn moved_asks(plain: &Artifact, other: &Artifact) -> BTreeSet<usize> {
    let both = plain.findings.iter().zip(&other.findings).enumerate();
    both.filter(|(_, (a, b))| a.finding != b.finding).map(|(index, _)| index).collect()
}
