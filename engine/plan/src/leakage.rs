//! Label leakage check. Every column has an age: how far before its row's time its data ends. Features written by a
//! sink must end before the label is predicted.

use std::collections::BTreeMap;

use arrow::datatypes::{DataType, TimeUnit};
use forebay_model::{Fault, Label, Pipeline, Result, codes};
use forebay_window::{Compute, Gaps, Length};

use crate::{Base, Bound, Direction, Op, Stream, Window};

/// Age of a column: how far before the row's time its data ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Ends {
    /// Known in advance: keys, the calendar, constants, columns listed as known.
    Ahead,
    /// Ends this much before the row's time, in nanoseconds (or ticks of an integer time column) and in rows.
    Behind { time: i128, rows: u64 },
    /// Ends after the row's time.
    After,
}

/// Age of a column, with its provenance.
#[derive(Debug, Clone)]
struct Trace {
    ends: Ends,
    /// Whether it contains the row's time: a lookup by it may return data of that time.
    timed: bool,
    /// From the column back to the origin of its data.
    path: Vec<String>,
}

impl Trace {
    fn ahead() -> Trace {
        Trace { ends: Ends::Ahead, timed: false, path: Vec::new() }
    }

    /// The younger of both.
    fn or_later(self, other: Trace) -> Trace {
        let timed = self.timed || other.timed;
        let (ends, path) = match (self.ends, other.ends) {
            (Ends::After, _) | (_, Ends::Ahead) => (self.ends, self.path),
            (_, Ends::After) | (Ends::Ahead, _) => (other.ends, other.path),
            (Ends::Behind { time: a, rows: x }, Ends::Behind { time: b, rows: y }) => {
                let path = if (b, y) < (a, x) { other.path } else { self.path };
                (Ends::Behind { time: a.min(b), rows: x.min(y) }, path)
            }
        };
        Trace { ends, timed, path }
    }

    fn at(mut self, column: &str, step: &str) -> Trace {
        self.path.insert(0, format!("`{column}` ({step})"));
        self
    }
}

/// Refuses sinks with features that are not known when the label is predicted.
pub(crate) fn check(pipeline: &Pipeline, bound: &Bound) -> Result<()> {
    let Some(label) = &pipeline.label else { return Ok(()) };
    let horizon = Horizon::parse(&label.horizon).map_err(|fault| fault.at(label.at.as_ref()))?;
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
                let mut walk = Walk { bound, label, free: &free, times: &times, seen: BTreeMap::new() };
                let trace = walk.column(stream, stream.ops.len(), field.name());
                if !horizon.allows(trace.ends) {
                    faults.push(fault(field.name(), &sink.name, label, &trace).at(sink.at.as_ref()));
                    break;
                }
            }
        }
    }
    Fault::all(faults).map_or(Ok(()), Err)
}

fn fault(column: &str, sink: &str, label: &Label, trace: &Trace) -> Fault {
    let until = match trace.ends {
        Ends::After => "from after its own row",
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

/// Time between a label's prediction and its row's time.
enum Horizon {
    Time(i128),
    Rows(u64),
}

impl Horizon {
    fn parse(text: &str) -> Result<Horizon> {
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
            (Ok(rows), None) => Ok(Horizon::Rows(rows.into())),
            (Ok(count), Some(unit)) if unit > 0 => Ok(Horizon::Time(i128::from(count) * unit)),
            _ => Err(Fault::new(codes::BAD_VALUE, format!("`{text}` is not a length"))
                .hint("write a whole number and a unit: 30m, 12h, 7d or 2w; or a number of rows")),
        }
    }

    fn allows(&self, ends: Ends) -> bool {
        match (self, ends) {
            (_, Ends::Ahead) => true,
            (_, Ends::After) => false,
            (Horizon::Time(horizon), Ends::Behind { time, .. }) => time >= *horizon,
            (Horizon::Rows(horizon), Ends::Behind { rows, .. }) => rows >= *horizon,
        }
    }
}

struct Walk<'a> {
    bound: &'a Bound,
    label: &'a Label,
    free: &'a [&'a String],
    times: &'a [&'a String],
    seen: BTreeMap<(usize, String), Trace>,
}

impl Walk<'_> {
    /// Age of a column after `after` of the stream's operations.
    fn column(&mut self, stream: &Stream, after: usize, name: &str) -> Trace {
        if self.label.known.iter().any(|known| known == name) {
            return Trace::ahead();
        }
        let key = (after, name.to_owned());
        if let Some(known) = self.seen.get(&key) {
            return known.clone();
        }
        let trace = self.written(stream, after, name);
        self.seen.insert(key, trace.clone());
        trace
    }

    fn written(&mut self, stream: &Stream, after: usize, name: &str) -> Trace {
        let bound = self.bound;
        let now = Ends::Behind { time: 0, rows: 0 };
        let Some(before) = after.checked_sub(1) else {
            let timed = self.times.iter().any(|time| *time == name);
            let from = match &bound.bases[stream.base] {
                Base::Source(source) => source.clone(),
                Base::Gathered(op) => bound.ops[*op].label.clone(),
            };
            let ends = if timed || self.free.iter().any(|free| *free == name) { Ends::Ahead } else { now };
            return Trace { ends, timed, path: Vec::new() }.at(name, &from);
        };
        let op = &bound.ops[stream.ops[before]];
        let mut all = |names: &[String]| {
            let traces = names.iter().map(|read| self.column(stream, before, read));
            traces.fold(Trace::ahead(), Trace::or_later)
        };
        let trace = match &op.op {
            Op::Map(map) if map.writes.iter().any(|field| field.name() == name) => {
                let mut trace = all(&map.reads);
                if let Some(behind) = map.behind {
                    trace = trace.or_later(Trace { ends: shifted(now, behind, None), timed: false, path: Vec::new() });
                } else if trace.timed && map.asks.iter().any(|ask| ask.of.is_some()) {
                    trace = trace.or_later(Trace { ends: now, timed: false, path: Vec::new() });
                }
                trace
            }
            Op::Expand(expand) if expand.writes.iter().any(|field| field.name() == name) => all(&expand.reads),
            Op::AsOf(join) if join.columns.iter().any(|(_, field)| field.name() == name) => {
                let ends = if join.direction == Direction::Backward { now } else { Ends::After };
                Trace { ends, timed: false, path: Vec::new() }
            }
            Op::Window(window) => match window.writes.iter().position(|field| field.name() == name) {
                None => return self.column(stream, before, name),
                Some(output) => {
                    let function = &window.plan.functions[output];
                    let input = window.reads.get(function.input).cloned().into_iter();
                    let parent = match function.compute {
                        Compute::SeasonalIndex { parent, .. } => parent.and_then(|parent| window.reads.get(parent)),
                        _ => None,
                    };
                    let mut trace = all(&input.collect::<Vec<_>>());
                    trace.ends = match window.backward {
                        true => Ends::After,
                        false => shifted(trace.ends, function.compute.behind(), Some(window)),
                    };
                    trace.timed = false;
                    trace.or_later(all(&parent.cloned().into_iter().collect::<Vec<_>>()))
                }
            },
            Op::Project(columns) => {
                let from = columns.iter().find(|(_, to)| to == name).map_or(name, |(from, _)| from);
                return self.column(stream, before, from);
            }
            _ => return self.column(stream, before, name),
        };
        trace.at(name, &op.label)
    }
}

/// Shifts an age back by a length.
fn shifted(ends: Ends, by: Length, window: Option<&Window>) -> Ends {
    let Ends::Behind { time, rows } = ends else { return ends };
    let tick = window.map_or(1, |window| tick(&window.plan.time));
    // Rows convert to time only if no period is missing.
    let every = match window.map(|window| window.plan.gaps) {
        Some(Gaps::Error { every } | Gaps::Complete { every, .. }) => i128::from(every) * tick,
        _ => 0,
    };
    match by {
        Length::Rows(by) => Ends::Behind { time: time + i128::from(by) * every, rows: rows + by },
        Length::Ticks(by) => Ends::Behind { time: time + i128::from(by) * tick, rows },
    }
}

/// Nanoseconds per tick; integer time columns count in their own unit.
fn tick(time: &DataType) -> i128 {
    match time {
        DataType::Date32 => 86_400_000_000_000,
        DataType::Date64 | DataType::Timestamp(TimeUnit::Millisecond, _) => 1_000_000,
        DataType::Timestamp(TimeUnit::Second, _) => 1_000_000_000,
        DataType::Timestamp(TimeUnit::Microsecond, _) => 1_000,
        _ => 1,
    }
}
