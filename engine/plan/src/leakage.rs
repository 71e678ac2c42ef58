//! Label leakage check. Every column has an age: how far before its row's time its data ends. Features written by a
//! sink must end before the label is predicted.

use std::collections::BTreeMap;

use arrow::datatypes::{DataType, TimeUnit};
use forebay_model::{Fault, Pipeline, PredictionLabel, Result, codes};
use forebay_window::{GapHandling, SeriesLength, WindowFunction};

use crate::{BaseDataset, BoundPipeline, FutureFlow, MatchDirection, OpStream, PlanOp, WindowOp};

/// Age of a column: how far before the row's time its data ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum DataAge {
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
        AgeTrace { ends: DataAge::Ahead, timed: false, path: Vec::new() }
    }

    /// The younger of both.
    fn younger(self, other: AgeTrace) -> AgeTrace {
        let timed = self.timed || other.timed;
        let (ends, path) = match (self.ends, other.ends) {
            (DataAge::After, _) | (_, DataAge::Ahead) => (self.ends, self.path),
            (_, DataAge::After) | (DataAge::Ahead, _) => (other.ends, other.path),
            (DataAge::Behind { time: a, rows: x }, DataAge::Behind { time: b, rows: y }) => {
                let path = if (b, y) < (a, x) { other.path } else { self.path };
                (DataAge::Behind { time: a.min(b), rows: x.min(y) }, path)
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
    let Some(label) = &pipeline.label else { return Ok(()) };
    let horizon = LabelHorizon::parse(&label.horizon).map_err(|fault| fault.at(label.at.as_ref()))?;
    let mut free: Vec<&String> = label.known.iter().collect();
    for source in &pipeline.sources {
        free.extend(source.keys.iter());
    }
    let times: Vec<&String> = pipeline.sources.iter().filter_map(|source| source.time.as_ref()).collect();
    let mut faults = Vec::new();
    for sink in pipeline.sinks.iter().chain(&pipeline.trainings) {
        let Some(flow) = bound.flows.get(&sink.from) else { continue };
        if flow.schema.field_with_name(&label.column).is_err() {
            continue;
        }
        for field in flow.schema.fields().iter().filter(|field| *field.name() != label.column) {
            for stream in &flow.streams {
                let mut walk = LeakageWalk { bound, label, free: &free, times: &times, seen: BTreeMap::new() };
                let trace = walk.column(stream, stream.ops.len(), field.name());
                if !horizon.allows(trace.ends) {
                    faults.push(fault(field.name(), &sink.name, label, &trace).at(sink.at.as_ref()));
                    break;
                }
            }
        }
    }
    Fault::combine(faults).map_or(Ok(()), Err)
}

fn fault(column: &str, sink: &str, label: &PredictionLabel, trace: &AgeTrace) -> Fault {
    let until = match trace.ends {
        DataAge::After => "from after its own row",
        _ => "that is known too late",
    };
    let message = format!(
        "`{column}` in sink `{sink}` uses data {until}: `{}` is predicted {} ahead; {}",
        label.column,
        label.horizon,
        trace.path.join(" <- ")
    );
    Fault::new(codes::LEAKAGE, message).column(column).hint(
        "let its window end earlier (`gap`), lag it, drop it before the sink, or list it under the label's `known`",
    )
}

/// Refuses to predict rows of the future beyond the label's horizon: their features would need values that are not
/// known.
pub fn check_horizon(future: &FutureFlow, horizon: Option<&str>) -> Result<()> {
    let Some(text) = horizon else {
        let message =
            "a model predicts rows of the future, and the pipeline does not say how far ahead its features look";
        let hint = "declare it: `label: { column: <target>, horizon: 28d }`; features that know more are then refused";
        return Err(Fault::new(codes::MISSING_FIELD, message).hint(hint));
    };
    let is_within = match (LabelHorizon::parse(text)?, future.horizon) {
        (LabelHorizon::Rows(rows), _) => future.steps <= rows,
        (LabelHorizon::Time(time), SeriesLength::Ticks(horizon)) => i128::from(horizon) <= time,
        (LabelHorizon::Time(_), SeriesLength::Rows(_)) => false,
    };
    if is_within {
        return Ok(());
    }
    let message = format!("`future_rows` adds rows beyond the horizon of {text} for which the model is trained");
    Err(Fault::new(codes::BAD_VALUE, message)
        .hint("let `future_rows` end there, or raise the label's `horizon` with the gaps of its features"))
}

/// Time between a label's prediction and its row's time.
enum LabelHorizon {
    Time(i128),
    Rows(u64),
}

impl LabelHorizon {
    fn parse(text: &str) -> Result<LabelHorizon> {
        let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
        let second: i128 = 1_000_000_000;
        let unit = match &text[digits.len()..] {
            "" => None,
            "w" => Some(7 * 86_400 * second),
            "d" => Some(86_400 * second),
            "h" => Some(3_600 * second),
            "m" | "min" => Some(60 * second),
            "s" => Some(second),
            "ms" => Some(1_000_000),
            "us" => Some(1_000),
            "ns" | "t" => Some(1),
            _ => Some(-1),
        };
        match (digits.parse::<u32>(), unit) {
            (Ok(rows), None) => Ok(LabelHorizon::Rows(rows.into())),
            (Ok(count), Some(unit)) if unit > 0 => Ok(LabelHorizon::Time(i128::from(count) * unit)),
            _ => Err(Fault::new(codes::BAD_VALUE, format!("`{text}` is not a length"))
                .hint("write a whole number and a unit: 30m, 12h, 7d or 2w; or a number of rows")),
        }
    }

    fn allows(&self, ends: DataAge) -> bool {
        match (self, ends) {
            (_, DataAge::Ahead) => true,
            (_, DataAge::After) => false,
            (LabelHorizon::Time(horizon), DataAge::Behind { time, .. }) => time >= *horizon,
            (LabelHorizon::Rows(horizon), DataAge::Behind { rows, .. }) => rows >= *horizon,
        }
    }
}

struct LeakageWalk<'a> {
    bound: &'a BoundPipeline,
    label: &'a PredictionLabel,
    free: &'a [&'a String],
    times: &'a [&'a String],
    seen: BTreeMap<(usize, String), AgeTrace>,
}

impl LeakageWalk<'_> {
    /// Age of a column after `after` of the stream's operations.
    fn column(&mut self, stream: &OpStream, after: usize, name: &str) -> AgeTrace {
        if self.label.known.iter().any(|known| known == name) {
            return AgeTrace::ahead();
        }
        let key = (after, name.to_owned());
        if let Some(known) = self.seen.get(&key) {
            return known.clone();
        }
        let trace = self.written(stream, after, name);
        self.seen.insert(key, trace.clone());
        trace
    }

    fn written(&mut self, stream: &OpStream, after: usize, name: &str) -> AgeTrace {
        let bound = self.bound;
        let now = DataAge::Behind { time: 0, rows: 0 };
        let Some(before) = after.checked_sub(1) else {
            let timed = self.times.iter().any(|time| *time == name);
            let from = match &bound.bases[stream.base] {
                BaseDataset::Source(source) => source.clone(),
                BaseDataset::Gathered(op) => bound.ops[*op].label.clone(),
            };
            let ends = if timed || self.free.iter().any(|free| *free == name) { DataAge::Ahead } else { now };
            return AgeTrace { ends, timed, path: Vec::new() }.through_step(name, &from);
        };
        let op = &bound.ops[stream.ops[before]];
        let mut all = |names: &[String]| {
            let traces = names.iter().map(|read| self.column(stream, before, read));
            traces.fold(AgeTrace::ahead(), AgeTrace::younger)
        };
        let trace = match &op.op {
            PlanOp::Map(map) if map.writes.iter().any(|field| field.name() == name) => {
                let mut trace = all(&map.reads);
                if let Some(behind) = map.behind {
                    trace = trace.younger(AgeTrace {
                        ends: age_shifted(now, behind, None),
                        timed: false,
                        path: Vec::new(),
                    });
                } else if trace.timed && map.asks.iter().any(|ask| ask.of.is_some()) {
                    trace = trace.younger(AgeTrace { ends: now, timed: false, path: Vec::new() });
                }
                trace
            }
            PlanOp::Expand(expand) if expand.writes.iter().any(|field| field.name() == name) => all(&expand.reads),
            PlanOp::AsOf(join) if join.columns.iter().any(|(_, field)| field.name() == name) => {
                let ends = if join.direction == MatchDirection::Backward { now } else { DataAge::After };
                AgeTrace { ends, timed: false, path: Vec::new() }
            }
            PlanOp::Window(window) => match window.writes.iter().position(|field| field.name() == name) {
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
                        true => DataAge::After,
                        false => age_shifted(trace.ends, function.compute.behind(), Some(window)),
                    };
                    trace.timed = false;
                    trace.younger(all(&parent.cloned().into_iter().collect::<Vec<_>>()))
                }
            },
            PlanOp::Project(columns) => {
                let from = columns.iter().find(|(_, to)| to == name).map_or(name, |(from, _)| from);
                return self.column(stream, before, from);
            }
            _ => return self.column(stream, before, name),
        };
        trace.through_step(name, &op.label)
    }
}

/// Shifts an age back by a length.
fn age_shifted(ends: DataAge, by: SeriesLength, window: Option<&WindowOp>) -> DataAge {
    let DataAge::Behind { time, rows } = ends else { return ends };
    let tick = window.map_or(1, |window| nanoseconds_per_tick(&window.plan.time));
    // Rows convert to time only if no period is missing.
    let every = match window.map(|window| window.plan.gaps) {
        Some(GapHandling::Error { every } | GapHandling::Complete { every, .. }) => i128::from(every) * tick,
        _ => 0,
    };
    match by {
        SeriesLength::Rows(by) => DataAge::Behind { time: time + i128::from(by) * every, rows: rows + by },
        SeriesLength::Ticks(by) => DataAge::Behind { time: time + i128::from(by) * tick, rows },
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
