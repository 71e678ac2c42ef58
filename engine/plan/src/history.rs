//! The history that rows of a flow need: for each source, how far before a row its values are read.

use std::collections::{BTreeMap, BTreeSet};

use forebay_model::tick_nanoseconds;
use forebay_window::{HistoryReach, WindowFunction};

use crate::{
    AnalyzerId, BaseDataset, BoundPipeline, GatherBy, JoinBy, JoinOp, MatchDirection, OpId,
    OpStream, PlanOp, WindowOp,
};

/// The distance before a row at which the rows of a source are read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SourceHistory {
    /// In nanoseconds instead of ticks; in whole numbers where times are numbers.
    pub reach: HistoryReach,
    /// The steps that look furthest back, such as `features.lag`.
    pub steps: BTreeSet<String>,
}

impl SourceHistory {
    fn none() -> SourceHistory {
        SourceHistory {
            reach: HistoryReach::NONE,
            steps: BTreeSet::new(),
        }
    }
}

/// By source.
type Reaches = BTreeMap<String, SourceHistory>;

/// For each source that some columns of streams depend on, how far before their rows it is read. `queries` are the
/// gathers whose SQL looks at other rows; windows in SQL tell no reach.
pub fn needed_history(
    bound: &BoundPipeline,
    streams: &[OpStream],
    columns: &[String],
    queries: &dyn Fn(&str) -> bool,
) -> BTreeMap<String, SourceHistory> {
    let mut walk = HistoryWalk {
        bound,
        queries,
        seen: BTreeMap::new(),
    };
    let mut found = Reaches::new();
    for stream in streams {
        let flow = walk.stream(stream, columns);
        merge(&mut found, flow);
    }
    found
}

/// Keeps the greater reach of each source.
fn merge(found: &mut Reaches, other: Reaches) {
    for (source, history) in other {
        let known = found.entry(source).or_insert_with(SourceHistory::none);
        if history.reach > known.reach {
            *known = history;
        } else if history.reach == known.reach {
            known.steps.extend(history.steps);
        }
    }
}

/// The reach of values that a step looks up so far before the row.
fn look_back(values: Reaches, by: HistoryReach, step: &str) -> Reaches {
    if by == HistoryReach::NONE {
        return values;
    }
    let shift = |(source, history): (String, SourceHistory)| {
        let mut steps = history.steps;
        steps.insert(step.to_owned());
        let reach = by.then(history.reach);
        (source, SourceHistory { reach, steps })
    };
    values.into_iter().map(shift).collect()
}

/// A reach in nanoseconds.
fn in_nanoseconds(reach: HistoryReach, tick: i128) -> HistoryReach {
    match reach {
        HistoryReach::Ticks(ticks) => i64::try_from(i128::from(ticks) * tick)
            .map_or(HistoryReach::Everything, HistoryReach::Ticks),
        reach => reach,
    }
}

struct HistoryWalk<'a> {
    bound: &'a BoundPipeline,
    queries: &'a dyn Fn(&str) -> bool,
    /// By base and operations of the stream, and column. An entry is empty while it is being computed.
    seen: BTreeMap<(usize, Vec<OpId>, String), Reaches>,
}

impl HistoryWalk<'_> {
    /// The reach of columns at the end of a stream, and of what selects its rows.
    fn stream(&mut self, stream: &OpStream, columns: &[String]) -> Reaches {
        let mut found = Reaches::new();
        for (position, op) in stream.ops.iter().enumerate() {
            let reads = match &self.bound.ops[*op].op {
                PlanOp::Keep(keep) => keep.reads.clone(),
                PlanOp::Expand(expand) => expand.reads.clone(),
                _ => continue,
            };
            let reads = self.columns(stream.base, &stream.ops[..position], reads.iter());
            merge(&mut found, reads);
        }
        let columns = self.columns(stream.base, &stream.ops, columns.iter());
        merge(&mut found, columns);
        found
    }

    fn columns<'n>(
        &mut self,
        base: usize,
        ops: &[OpId],
        names: impl Iterator<Item = &'n String>,
    ) -> Reaches {
        let mut found = Reaches::new();
        for name in names {
            let column = self.column(base, ops, name);
            merge(&mut found, column);
        }
        found
    }

    /// The reach of a column after some operations.
    fn column(&mut self, base: usize, ops: &[OpId], name: &str) -> Reaches {
        // Most operations of a wide table do not affect the column.
        let ops = self.bound.through_last_change(ops, name);
        let key = (base, ops.to_vec(), name.to_owned());
        if let Some(found) = self.seen.get(&key) {
            return found.clone();
        }
        self.seen.insert(key.clone(), Reaches::new());
        let found = match ops.split_last() {
            None => self.of_base(base, name),
            Some((last, before)) => self.written(base, *last, before, name),
        };
        self.seen.insert(key, found.clone());
        found
    }

    fn of_base(&mut self, base: usize, name: &str) -> Reaches {
        let bound = self.bound;
        let op = match &bound.bases[base] {
            BaseDataset::Source(source) => {
                return Reaches::from([(source.clone(), SourceHistory::none())]);
            }
            BaseDataset::Gathered(op) => *op,
        };
        let mut found = Reaches::new();
        // Rows of the future are made of the last rows.
        for ask in &bound.ops[op].asks {
            let latest = self.asked(*ask);
            merge(&mut found, latest);
        }
        let inputs = bound.gather_inputs.get(&op).into_iter().flatten();
        for (_, flow) in inputs {
            let mut columns: Vec<String> = flow
                .schema
                .fields()
                .iter()
                .map(|field| field.name().clone())
                .collect();
            // A column that the gather passes on depends on the column of that name alone.
            if is_passed_on(bound, op, name) && columns.iter().any(|column| column == name) {
                columns = vec![name.to_owned()];
            }
            for stream in &flow.streams {
                let input = self.stream(stream, &columns);
                merge(&mut found, input);
            }
        }
        let label = &bound.ops[op].label;
        if (self.queries)(label) {
            found = look_back(found, HistoryReach::Everything, label);
        }
        found
    }

    /// The reach of the inputs of an analyzer that reads the rows of each run.
    fn asked(&mut self, ask: AnalyzerId) -> Reaches {
        let bound = self.bound;
        let analyzer = &bound.asks[ask];
        let mut found = Reaches::new();
        for stream in &analyzer.streams {
            let input = self.stream(stream, &analyzer.ask.inputs);
            merge(&mut found, input);
        }
        found
    }

    fn written(&mut self, base: usize, last: OpId, before: &[OpId], name: &str) -> Reaches {
        let bound = self.bound;
        match &bound.ops[last].op {
            PlanOp::Map(map) => {
                let mut found = self.columns(base, before, map.reads.iter());
                for ask in &bound.ops[last].asks {
                    let request = &bound.asks[*ask].ask;
                    if request.of.is_some() || request.per_run {
                        let input = self.asked(*ask);
                        merge(&mut found, input);
                    }
                }
                found
            }
            PlanOp::Expand(expand) => self.columns(base, before, expand.reads.iter()),
            PlanOp::Window(window) => self.window(base, last, before, window, name),
            PlanOp::Join(join) => self.join(base, last, before, join, name),
            PlanOp::Project(columns) => {
                let from = columns
                    .iter()
                    .find(|(_, to)| to == name)
                    .map_or(name, |(from, _)| from);
                self.column(base, before, from)
            }
            PlanOp::Keep(_) | PlanOp::Gather(_) => self.column(base, before, name),
        }
    }

    fn window(
        &mut self,
        base: usize,
        op: OpId,
        before: &[OpId],
        window: &WindowOp,
        name: &str,
    ) -> Reaches {
        let Some(output) = window.writes.iter().position(|field| field.name() == name) else {
            return self.column(base, before, name);
        };
        let function = &window.plan.functions[output];
        let parent = match function.compute {
            WindowFunction::SeasonalIndex { parent, .. } => parent,
            _ => None,
        };
        let inputs = [Some(function.input), parent].into_iter().flatten();
        let inputs = inputs.filter_map(|input| window.reads.get(input));
        let values = self.columns(base, before, inputs);
        if window.backward {
            return values;
        }
        let tick = tick_nanoseconds(&window.plan.time).unwrap_or(1);
        let reach = in_nanoseconds(window.plan.history_of(&function.compute), tick);
        look_back(values, reach, &self.bound.ops[op].label)
    }

    fn join(
        &mut self,
        base: usize,
        op: OpId,
        before: &[OpId],
        join: &JoinOp,
        name: &str,
    ) -> Reaches {
        let bound = self.bound;
        let mut found = self.columns(base, before, join.columns_here());
        let Some(flow) = bound.join_inputs.get(&op) else {
            return found;
        };
        let there = join
            .columns
            .iter()
            .find(|(_, field)| field.name() == name)
            .map(|(there, _)| there.clone());
        let columns: Vec<String> = there
            .into_iter()
            .chain(join.keys.iter().map(|(_, there)| there.clone()))
            .collect();
        let mut other = Reaches::new();
        for stream in &flow.streams {
            let values = self.stream(stream, &columns);
            merge(&mut other, values);
        }
        if let JoinBy::Time(as_of) = &join.by
            && as_of.direction != MatchDirection::Forward
        {
            let before = OpStream {
                base,
                ops: before.to_vec(),
            };
            let reach = match (as_of.tolerance, time_tick(bound, &before, op, as_of)) {
                (Some(tolerance), Some(tick)) => {
                    in_nanoseconds(HistoryReach::Ticks(tolerance), tick)
                }
                _ => HistoryReach::Everything,
            };
            other = look_back(other, reach, &bound.ops[op].label);
        }
        merge(&mut found, other);
        found
    }
}

/// Nanoseconds of a tick in which the tolerance of an as-of join is counted.
fn time_tick(
    bound: &BoundPipeline,
    here: &OpStream,
    op: OpId,
    as_of: &crate::AsOf,
) -> Option<i128> {
    let there = bound.join_inputs.get(&op)?;
    let here = bound
        .window_inputs
        .get(&op)
        .filter(|flow| flow.streams.iter().any(|stream| stream.base == here.base))?;
    let here = here.schema.field_with_name(&as_of.time).ok()?;
    let there = there.schema.field_with_name(&as_of.other_time).ok()?;
    let common = crate::AsOf::time_type(here.data_type(), there.data_type())?;
    Some(tick_nanoseconds(&common).unwrap_or(1))
}

/// True where a gather passes a column of an input on unchanged.
fn is_passed_on(bound: &BoundPipeline, op: OpId, name: &str) -> bool {
    match &bound.ops[op].op {
        PlanOp::Gather(gather) => match &gather.lower {
            GatherBy::OnePerKey { .. } => true,
            GatherBy::Join { join, .. } => !join.is_written(name),
            GatherBy::Query(_) | GatherBy::GroupBy(_) | GatherBy::Future(_) => false,
        },
        _ => false,
    }
}
