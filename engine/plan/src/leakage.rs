//! Label leakage check. Every column has an age: how far before its row's time its data ends. Features written by a
//! sink must end before the label is predicted.

use std::collections::BTreeMap;

use arrow::datatypes::{DataType, Field, Schema, TimeUnit};
use forebay_model::{Fault, Pipeline, PipelineSink, PredictionLabel, Result, codes};
use forebay_window::{GapHandling, SeriesLength, WindowFunction};

use crate::label_horizon::LabelHorizon;
use crate::step_columns::StepStrategy;
use crate::{
    BaseDataset, BoundPipeline, JoinBy, JoinOp, MatchDirection, NodeFlow, OpStream, PlanOp,
    WindowOp, base_column, unknown_column,
};

/// Age of a column: how far before the row's time its data ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum DataAge {
    /// Known in advance: keys, the calendar, constants, columns listed as known.
    Ahead,
    /// Ends this much before the row's time, in nanoseconds (or ticks of an integer time column) and in rows.
    Behind { time: i128, rows: u64 },
    /// Ends after the row's time.
    After,
}

/// Age of a column, with its provenance.
#[derive(Debug, Clone)]
struct AgeTrace {
    ends: DataAge,
    /// Whether it contains the row's time: a lookup by it may return data of that time.
    timed: bool,
    /// From the column back to the origin of its data.
    path: Vec<String>,
}

impl AgeTrace {
    fn ahead() -> AgeTrace {
        AgeTrace {
            ends: DataAge::Ahead,
            timed: false,
            path: Vec::new(),
        }
    }

    /// The younger of both.
    fn younger(self, other: AgeTrace) -> AgeTrace {
        let timed = self.timed || other.timed;
        let (ends, path) = match (self.ends, other.ends) {
            (DataAge::After, _) | (_, DataAge::Ahead) => (self.ends, self.path),
            (_, DataAge::After) | (DataAge::Ahead, _) => (other.ends, other.path),
            (DataAge::Behind { time: a, rows: x }, DataAge::Behind { time: b, rows: y }) => {
                let path = if (b, y) < (a, x) {
                    other.path
                } else {
                    self.path
                };
                (
                    DataAge::Behind {
                        time: a.min(b),
                        rows: x.min(y),
                    },
                    path,
                )
            }
        };
        AgeTrace { ends, timed, path }
    }

    fn through_step(mut self, column: &str, step: &str) -> AgeTrace {
        self.path.insert(0, format!("`{column}` ({step})"));
        self
    }
}

/// Refuses sinks with features that are not known when the label is predicted.
pub(crate) fn check_leakage(pipeline: &Pipeline, bound: &BoundPipeline) -> Result<()> {
    let Some(label) = &pipeline.label else {
        return Ok(());
    };
    let Some(horizon) = LabelHorizon::of(label)? else {
        return Ok(());
    };
    let ages = ColumnAges::new(pipeline, bound, label);
    let with_label = label.known.iter().chain([&label.column]).cloned().collect();
    let predicted_label = PredictionLabel {
        known: with_label,
        ..label.clone()
    };
    let predicted_ages = ColumnAges::new(pipeline, bound, &predicted_label);
    // A model for each step of the horizon takes what is known one step ahead.
    let one_step = PredictionLabel {
        horizon: Some("one step".to_owned()),
        ..label.clone()
    };
    let mut faults = Vec::new();
    // Rows that are written for a training may have columns that its own step drops: that step is checked.
    let sinks = pipeline
        .sinks
        .iter()
        .filter(|sink| !is_training_input(pipeline, sink));
    for sink in sinks.chain(&pipeline.trainings) {
        let Some(flow) = bound.flows.get(&sink.from) else {
            continue;
        };
        if flow.schema.field_with_name(&label.column).is_err() {
            continue;
        }
        let strategy = StepStrategy::of(sink);
        let steps = flow.future.as_deref().filter(|_| strategy.is_some());
        if steps.is_none() && strategy.is_some() {
            // Refused with its training: without rows of the future there are no steps.
            continue;
        }
        let own = if steps.is_some() { &one_step } else { label };
        let is_known = |ends| match steps {
            Some(future) => horizon.steps_ahead(ends, future) > 0,
            None => horizon.allows(ends),
        };
        let mut leaks = Vec::new();
        for field in flow
            .schema
            .fields()
            .iter()
            .filter(|field| *field.name() != label.column)
        {
            let mut traces = flow
                .streams
                .iter()
                .map(|stream| ages.trace(stream, field.name()));
            if let Some(trace) = traces.find(|trace| !is_known(trace.ends)) {
                leaks.push(ColumnLeak {
                    column: field.name().clone(),
                    trace,
                });
            }
        }
        let place = |fault: Fault| fault.at(sink.at.as_ref());
        let is_clean = leaks.is_empty();
        faults.extend(
            by_cause(leaks)
                .iter()
                .map(|group| place(leak_fault(&sink.name, own, group))),
        );
        let Some(future) = steps.filter(|_| is_clean && strategy == Some(StepStrategy::Recursive))
        else {
            continue;
        };
        // Predictions of the label are known; all else that features look back at has to be known as for one model of
        // the whole horizon.
        let mut leaks = Vec::new();
        for field in flow
            .schema
            .fields()
            .iter()
            .filter(|field| *field.name() != label.column)
        {
            let mut traces = future
                .rows
                .iter()
                .map(|stream| predicted_ages.trace(stream, field.name()));
            if let Some(trace) = traces.find(|trace| !horizon.allows(trace.ends)) {
                leaks.push(ColumnLeak {
                    column: field.name().clone(),
                    trace,
                });
            }
        }
        faults.extend(by_cause(leaks).iter().map(|group| {
            let note = format!(
                "`strategy: recursive` predicts `{}` alone for the steps between",
                label.column
            );
            place(leak_fault(&sink.name, label, group).note(note))
        }));
    }
    Fault::combine(faults).map_or(Ok(()), Err)
}

/// The ages of columns of a pipeline whose label is predicted.
pub(crate) struct ColumnAges<'a> {
    bound: &'a BoundPipeline,
    known: &'a [String],
    free: Vec<&'a String>,
    times: Vec<&'a String>,
}

impl<'a> ColumnAges<'a> {
    pub fn new(
        pipeline: &'a Pipeline,
        bound: &'a BoundPipeline,
        label: &'a PredictionLabel,
    ) -> ColumnAges<'a> {
        let keys = pipeline.sources.iter().flat_map(|source| &source.keys);
        let times = pipeline
            .sources
            .iter()
            .filter_map(|source| source.time.as_ref())
            .collect();
        ColumnAges {
            bound,
            known: &label.known,
            free: label.known.iter().chain(keys).collect(),
            times,
        }
    }

    fn trace(&self, stream: &OpStream, column: &str) -> AgeTrace {
        let focus = WalkFocus::Horizon {
            known: self.known,
            free: &self.free,
            times: &self.times,
        };
        let mut walk = LeakageWalk {
            bound: self.bound,
            focus: &focus,
            seen: BTreeMap::new(),
        };
        walk.column(stream, stream.ops.len(), column)
    }

    /// How far before a row's time the data of a column of a flow ends.
    pub fn of(&self, flow: &NodeFlow, column: &str) -> DataAge {
        let traces = flow.streams.iter().map(|stream| self.trace(stream, column));
        traces.fold(AgeTrace::ahead(), AgeTrace::younger).ends
    }
}

/// The name of a sink that a run adds for the rows of a training; no spec can give it.
pub fn training_input_name(training: &PipelineSink, part: Option<&str>) -> String {
    format!("{}.{}", training.name, part.unwrap_or("all"))
}

fn is_training_input(pipeline: &Pipeline, sink: &PipelineSink) -> bool {
    let rest = |training: &PipelineSink| sink.name.strip_prefix(&training.name);
    pipeline
        .trainings
        .iter()
        .filter_map(rest)
        .any(|rest| rest.starts_with('.'))
}

/// A label that no step has, and known columns that match none.
pub fn check_label_names(pipeline: &Pipeline, bound: &BoundPipeline) -> Result<()> {
    let Some(label) = &pipeline.label else {
        return Ok(());
    };
    let mut fields: Vec<Field> = Vec::new();
    for field in bound.flows.values().flat_map(|flow| flow.schema.fields()) {
        if !fields.iter().any(|known| known.name() == field.name()) {
            fields.push(field.as_ref().clone());
        }
    }
    let all = Schema::new(fields);
    let named = std::iter::once(&label.column).chain(&label.known);
    let missing = named.filter(|name| all.field_with_name(name).is_err());
    let faults = missing.map(|name| unknown_column(name, &all).at(label.at.as_ref()));
    Fault::combine(faults.collect()).map_or(Ok(()), Err)
}

/// The columns among `columns` that are made from a label of the same row, in one warning; none where there are none.
pub fn label_in_features(
    bound: &BoundPipeline,
    sink: &PipelineSink,
    label: &str,
    columns: &[String],
) -> Option<Fault> {
    let flow = bound.flows.get(&sink.from)?;
    let mut leaks = Vec::new();
    for column in columns.iter().filter(|column| *column != label) {
        for stream in &flow.streams {
            let source = match &bound.bases[stream.base] {
                BaseDataset::Source(source) => Some(source.as_str()),
                BaseDataset::Gathered(_) => None,
            };
            let base = base_column(bound, stream, label);
            let focus = WalkFocus::Label {
                column: label,
                base: source.zip(base.as_deref()),
            };
            let mut walk = LeakageWalk {
                bound,
                focus: &focus,
                seen: BTreeMap::new(),
            };
            let trace = walk.column(stream, stream.ops.len(), column);
            if matches!(
                trace.ends,
                DataAge::After
                    | DataAge::Behind {
                        time: ..=0,
                        rows: 0
                    }
            ) {
                leaks.push(ColumnLeak {
                    column: column.clone(),
                    trace,
                });
                break;
            }
        }
    }
    let names: Vec<&str> = leaks.iter().map(|leak| leak.column.as_str()).collect();
    let message = format!(
        "`{}` learns `{label}` from {}, made from `{label}` of the same row",
        sink.name,
        listed_columns(&names)
    );
    let notes = leaks
        .iter()
        .take(COLUMNS_EXPLAINED_MAX)
        .map(|leak| leak.trace.path.join(" <- "));
    let fault = Fault::new(codes::LEAKAGE, message).hint(
        "lag it or let its window end earlier (`gap`), drop it, or declare `label: { column: ..., horizon: 1d }`, \
         which refuses such columns",
    );
    (!leaks.is_empty()).then(|| notes.fold(fault, Fault::note).at(sink.at.as_ref()))
}

/// Columns of one cause that a fault explains one by one.
const COLUMNS_EXPLAINED_MAX: usize = 8;

/// A column that knows too much.
struct ColumnLeak {
    column: String,
    trace: AgeTrace,
}

/// Columns whose data comes from the same column, is of the same age and went the same way.
fn by_cause(leaks: Vec<ColumnLeak>) -> Vec<Vec<ColumnLeak>> {
    let mut groups: Vec<Vec<ColumnLeak>> = Vec::new();
    for leak in leaks {
        let cause = |leak: &ColumnLeak| {
            (
                leak.trace.path.last().cloned(),
                leak.trace.ends == DataAge::After,
            )
        };
        match groups.iter_mut().find(|group| {
            group
                .first()
                .is_some_and(|first| cause(first) == cause(&leak))
        }) {
            Some(group) => group.push(leak),
            None => groups.push(vec![leak]),
        }
    }
    groups
}

/// `a`, `b` and 3 more.
fn listed_columns(names: &[&str]) -> String {
    let shown: Vec<String> = names
        .iter()
        .take(COLUMNS_EXPLAINED_MAX)
        .map(|name| format!("`{name}`"))
        .collect();
    match names.len() - shown.len() {
        0 => shown.join(", "),
        more => format!("{} and {more} more", shown.join(", ")),
    }
}

fn leak_fault(sink: &str, label: &PredictionLabel, group: &[ColumnLeak]) -> Fault {
    let names: Vec<&str> = group.iter().map(|leak| leak.column.as_str()).collect();
    let ends = group.first().map_or(DataAge::After, |leak| leak.trace.ends);
    let until = match ends {
        DataAge::After => "from after its own row",
        _ => "that is known too late",
    };
    let (uses, columns) = match names.as_slice() {
        [only] => ("uses", format!("`{only}`")),
        _ => ("use", format!("{} columns", names.len())),
    };
    let path = match group {
        [only] => format!("; {}", only.trace.path.join(" <- ")),
        _ => format!(": {}", listed_columns(&names)),
    };
    let message = format!(
        "{columns} in sink `{sink}` {uses} data {until}: `{}` is predicted {} ahead{path}",
        label.column,
        horizon_text(label),
    );
    let fault = Fault::new(codes::LEAKAGE, message);
    let fault = match names.as_slice() {
        [only] => fault.column(*only),
        _ => fault,
    };
    let fault = fault.hint(
        "let its window end earlier (`gap`), lag it, drop it before the sink, or list it under the label's `known`",
    );
    let shown = group.iter().take(COLUMNS_EXPLAINED_MAX);
    shown.fold(fault, |fault, leak| {
        let age = describe_age(leak.trace.ends);
        match group.len() {
            1 => fault.note(format!(
                "its data {age}, and has to end {} before",
                horizon_text(label)
            )),
            _ => fault.note(format!(
                "`{}` {age}: {}",
                leak.column,
                leak.trace.path.join(" <- ")
            )),
        }
    })
}

/// How far ahead a label is predicted, in words.
fn horizon_text(label: &PredictionLabel) -> &str {
    label.horizon.as_deref().unwrap_or_default()
}

/// How young data is.
fn describe_age(ends: DataAge) -> String {
    let DataAge::Behind { time, rows } = ends else {
        return "ends after its row".to_owned();
    };
    let units: [(i128, &str); 4] = [
        (86_400_000_000_000, "d"),
        (3_600_000_000_000, "h"),
        (60_000_000_000, "m"),
        (1_000_000_000, "s"),
    ];
    let length = match units
        .iter()
        .find(|(unit, _)| time >= *unit && time % unit == 0)
    {
        Some((unit, word)) => format!("{}{word}", time / unit),
        None if time > 0 => format!("{time}ns"),
        None if rows == 1 => "1 row".to_owned(),
        None if rows > 0 => format!("{rows} rows"),
        None => return "ends with its row".to_owned(),
    };
    format!("ends {length} before its row")
}

/// What a walk looks for.
enum WalkFocus<'a> {
    /// The age of everything: columns that are known ahead, those of keys and those of time.
    Horizon {
        known: &'a [String],
        free: &'a [&'a String],
        times: &'a [&'a String],
    },
    /// A label alone, and the column of a source that it equals: the source's name and the column's.
    Label {
        column: &'a str,
        base: Option<(&'a str, &'a str)>,
    },
}

struct LeakageWalk<'a> {
    bound: &'a BoundPipeline,
    focus: &'a WalkFocus<'a>,
    seen: BTreeMap<(usize, String), AgeTrace>,
}

const NOW: DataAge = DataAge::Behind { time: 0, rows: 0 };

impl LeakageWalk<'_> {
    /// Age of a column after `after` of the stream's operations.
    fn column(&mut self, stream: &OpStream, after: usize, name: &str) -> AgeTrace {
        match self.focus {
            WalkFocus::Horizon { known, .. } if known.iter().any(|known| known == name) => {
                return AgeTrace::ahead();
            }
            WalkFocus::Label { column, .. } if *column == name => {
                return AgeTrace {
                    ends: NOW,
                    timed: false,
                    path: vec![format!("`{name}`")],
                };
            }
            _ => {}
        }
        let key = (after, name.to_owned());
        if let Some(known) = self.seen.get(&key) {
            return known.clone();
        }
        let trace = self.written(stream, after, name);
        self.seen.insert(key, trace.clone());
        trace
    }

    /// A column of a source, or of what was gathered.
    fn base(&self, stream: &OpStream, name: &str) -> AgeTrace {
        let bound = self.bound;
        let (from, is_source) = match &bound.bases[stream.base] {
            BaseDataset::Source(source) => (source.clone(), true),
            BaseDataset::Gathered(op) => (bound.ops[*op].label.clone(), false),
        };
        let (ends, timed) = match self.focus {
            WalkFocus::Horizon { free, times, .. } => {
                let timed = times.iter().any(|time| *time == name);
                let ahead = timed || free.iter().any(|free| *free == name);
                (if ahead { DataAge::Ahead } else { NOW }, timed)
            }
            WalkFocus::Label { base, .. } => (
                if is_source && *base == Some((from.as_str(), name)) {
                    NOW
                } else {
                    DataAge::Ahead
                },
                false,
            ),
        };
        AgeTrace {
            ends,
            timed,
            path: Vec::new(),
        }
        .through_step(name, &from)
    }

    /// A column that an as-of join brings: as old as it is on its own side.
    fn joined(&self, op: usize, join: &JoinOp, direction: MatchDirection, name: &str) -> AgeTrace {
        let from = join
            .columns
            .iter()
            .find(|(_, field)| field.name() == name)
            .map(|(from, _)| from.as_str());
        let streams = self
            .bound
            .join_inputs
            .get(&op)
            .map(|flow| flow.streams.as_slice())
            .unwrap_or_default();
        let traces = streams.iter().map(|other| {
            let mut walk = LeakageWalk {
                bound: self.bound,
                focus: self.focus,
                seen: BTreeMap::new(),
            };
            walk.column(other, other.ops.len(), from.unwrap_or(name))
        });
        let mut trace = traces.fold(AgeTrace::ahead(), AgeTrace::younger);
        let all = matches!(self.focus, WalkFocus::Horizon { .. });
        // Which row is found depends on the row's time, whatever its columns hold.
        if all && trace.ends == DataAge::Ahead {
            trace.ends = NOW;
        }
        if direction != MatchDirection::Backward && trace.ends != DataAge::Ahead {
            trace.ends = DataAge::After;
        }
        trace.timed = false;
        trace
    }

    fn written(&mut self, stream: &OpStream, after: usize, name: &str) -> AgeTrace {
        let bound = self.bound;
        let now = NOW;
        let all_data = matches!(self.focus, WalkFocus::Horizon { .. });
        let Some(before) = after.checked_sub(1) else {
            return self.base(stream, name);
        };
        let op = &bound.ops[stream.ops[before]];
        let mut all = |names: &[String]| {
            let traces = names.iter().map(|read| self.column(stream, before, read));
            traces.fold(AgeTrace::ahead(), AgeTrace::younger)
        };
        // What a row meets by its keys may be the newest of another table.
        let met_with_all = |trace: AgeTrace| match all_data && trace.timed {
            true => trace.younger(AgeTrace {
                ends: now,
                timed: false,
                path: Vec::new(),
            }),
            false => trace,
        };
        let trace = match &op.op {
            PlanOp::Map(map) if map.writes.iter().any(|field| field.name() == name) => {
                let mut trace = all(&map.reads);
                if let Some(behind) = map.behind.filter(|_| all_data) {
                    trace = trace.younger(AgeTrace {
                        ends: age_shifted(now, behind, None),
                        timed: false,
                        path: Vec::new(),
                    });
                } else if map.asks.iter().any(|ask| ask.of.is_some()) {
                    trace = met_with_all(trace);
                }
                trace
            }
            PlanOp::Expand(expand) if expand.writes.iter().any(|field| field.name() == name) => {
                all(&expand.reads)
            }
            PlanOp::Join(join) if join.is_written(name) => match &join.by {
                JoinBy::Time(as_of) => self.joined(stream.ops[before], join, as_of.direction, name),
                JoinBy::Equality(_) => {
                    let keys: Vec<String> = join.columns_here().cloned().collect();
                    met_with_all(all(&keys))
                }
            },
            PlanOp::Window(window) => {
                match window.writes.iter().position(|field| field.name() == name) {
                    None => return self.column(stream, before, name),
                    Some(output) => {
                        let function = &window.plan.functions[output];
                        let input = window.reads.get(function.input).cloned().into_iter();
                        let parent = match function.compute {
                            WindowFunction::SeasonalIndex { parent, .. } => {
                                parent.and_then(|parent| window.reads.get(parent))
                            }
                            _ => None,
                        };
                        let mut trace = all(&input.collect::<Vec<_>>());
                        trace.ends = match window.backward {
                            true if all_data || trace.ends != DataAge::Ahead => DataAge::After,
                            true => DataAge::Ahead,
                            false => {
                                age_shifted(trace.ends, function.compute.behind(), Some(window))
                            }
                        };
                        trace.timed = false;
                        trace.younger(all(&parent.cloned().into_iter().collect::<Vec<_>>()))
                    }
                }
            }
            PlanOp::Project(columns) => {
                let from = columns
                    .iter()
                    .find(|(_, to)| to == name)
                    .map_or(name, |(from, _)| from);
                return self.column(stream, before, from);
            }
            _ => return self.column(stream, before, name),
        };
        trace.through_step(name, &op.label)
    }
}

/// Shifts an age back by a length.
fn age_shifted(ends: DataAge, by: SeriesLength, window: Option<&WindowOp>) -> DataAge {
    let DataAge::Behind { time, rows } = ends else {
        return ends;
    };
    let tick = window.map_or(1, |window| nanoseconds_per_tick(&window.plan.time));
    // Rows convert to time only if no period is missing.
    let every = match window.map(|window| window.plan.gaps) {
        Some(GapHandling::Error { every } | GapHandling::Complete { every, .. }) => {
            i128::from(every) * tick
        }
        _ => 0,
    };
    match by {
        SeriesLength::Rows(by) => DataAge::Behind {
            time: time + i128::from(by) * every,
            rows: rows + by,
        },
        SeriesLength::Ticks(by) => DataAge::Behind {
            time: time + i128::from(by) * tick,
            rows,
        },
    }
}

/// Nanoseconds per tick; integer time columns count in their own unit.
fn nanoseconds_per_tick(time: &DataType) -> i128 {
    match time {
        DataType::Date32 => 86_400_000_000_000,
        DataType::Date64 | DataType::Timestamp(TimeUnit::Millisecond, _) => 1_000_000,
        DataType::Timestamp(TimeUnit::Second, _) => 1_000_000_000,
        DataType::Timestamp(TimeUnit::Microsecond, _) => 1_000,
        _ => 1,
    }
}
