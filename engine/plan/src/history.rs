//! The history that rows of a flow need: for each source, how far before a row its values are read.

use std::collections::{BTreeMap, BTreeSet};

use arrow::datatypes::DataType;
use forebay_model::{Pipeline, TimeBucket, tick_nanoseconds};
use forebay_window::{HistoryReach, WindowFunction};

use crate::column_age::AgeWalk;
use crate::slice::{ColumnKey, StreamIndexes, column_key};
use crate::time_shift::{TimeShift, nanoseconds_per_tick};
use crate::{
    AnalyzerId, BaseDataset, BoundPipeline, GatherBy, GatherOp, GroupByOp, JoinBy, JoinOp,
    MatchDirection, OpId, OpStream, PlanOp, WindowOp,
};

/// Buckets of time whose rows are computed of all rows in them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HistoryBuckets {
    /// The buckets.
    pub bucket: TimeBucket,
    /// The type of the times that they divide.
    pub time: DataType,
}

impl HistoryBuckets {
    /// The longest of them, in nanoseconds; in whole numbers where times are numbers.
    pub fn most(&self) -> i128 {
        let tick = nanoseconds_per_tick(&self.time);
        self.bucket.most_ticks(tick) * tick
    }
}

/// The distance before a row at which the rows of a source are read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SourceHistory {
    /// The name of the source.
    pub source: String,
    /// Buckets that the rows lie in: the reach is counted from the begin of a row's bucket.
    pub buckets: Option<HistoryBuckets>,
    /// Reach in nanoseconds instead of ticks; in whole numbers where times are numbers.
    pub reach: HistoryReach,
    /// The steps that look furthest back, such as `features.lag`.
    pub steps: BTreeSet<String>,
}

impl SourceHistory {
    fn none(source: &str) -> SourceHistory {
        SourceHistory {
            source: source.to_owned(),
            buckets: None,
            reach: HistoryReach::NONE,
            steps: BTreeSet::new(),
        }
    }

    /// True if earlier rows are read.
    pub fn looks_back(&self) -> bool {
        self.reach > HistoryReach::NONE || self.buckets.is_some()
    }

    /// Counts the reach from the begin of buckets.
    fn in_buckets(mut self, buckets: &HistoryBuckets) -> SourceHistory {
        let Some(inner) = self.buckets.replace(buckets.clone()) else {
            return self;
        };
        if inner == *buckets {
            return self;
        }
        // Shorter buckets begin before the longer one by less than their length.
        let shorter = if inner.most() > buckets.most() {
            self.buckets = Some(inner);
            buckets.most()
        } else {
            inner.most()
        };
        self.reach = ticks_reach(shorter).then(self.reach);
        self
    }
}

/// The greatest reach for each source and its buckets.
type Reaches = Vec<SourceHistory>;

/// Reach of the reads of each source that some columns of streams depend on, before their rows.
pub fn needed_history(
    pipeline: &Pipeline,
    bound: &BoundPipeline,
    streams: &[OpStream],
    columns: &[String],
) -> Vec<SourceHistory> {
    let mut walk = HistoryWalk {
        bound,
        ages: AgeWalk::of_times(pipeline, bound),
        indexes: StreamIndexes::default(),
        seen: BTreeMap::new(),
    };
    let mut reaches = Reaches::new();
    for stream in streams {
        let flow = walk.stream(stream, columns);
        merge(&mut reaches, flow);
    }
    reaches
}

/// Keeps the greater reach of each source and its buckets.
fn merge(reaches: &mut Reaches, other: Reaches) {
    for history in other {
        let known_history = reaches.iter_mut().find(|known_history| {
            known_history.source == history.source && known_history.buckets == history.buckets
        });
        let Some(known_history) = known_history else {
            reaches.push(history);
            continue;
        };
        if history.reach > known_history.reach {
            *known_history = history;
        } else if history.reach == known_history.reach {
            known_history.steps.extend(history.steps);
        }
    }
}

/// A reach of a distance in nanoseconds.
fn ticks_reach(distance: i128) -> HistoryReach {
    i64::try_from(distance.max(0)).map_or(HistoryReach::Everything, HistoryReach::Ticks)
}

/// Extends the reach of a step's inputs by the distance at which it looks them up.
fn look_back(values: Reaches, by: HistoryReach, step: &str) -> Reaches {
    if by == HistoryReach::NONE {
        return values;
    }
    let mut reaches = values;
    for history in &mut reaches {
        history.steps.insert(step.to_owned());
        history.reach = by.then(history.reach);
    }
    reaches
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
    /// The times by which rows of groups, queries and joins belong together.
    ages: AgeWalk<'a>,
    indexes: StreamIndexes<'a>,
    /// Reaches of columns. An entry is empty while it is being computed.
    seen: BTreeMap<ColumnKey, Reaches>,
}

impl<'a> HistoryWalk<'a> {
    /// Reach of columns at the end of a stream, and of the conditions that select its rows.
    fn stream(&mut self, stream: &OpStream, columns: &[String]) -> Reaches {
        let mut reaches = Reaches::new();
        for (position, op) in stream.ops.iter().enumerate() {
            let reads = match &self.bound.ops[*op].op {
                PlanOp::Keep(keep) => keep.reads.clone(),
                PlanOp::Expand(expand) => expand.reads.clone(),
                _ => continue,
            };
            let earlier = stream.first(position);
            let reads = self.columns(&earlier, reads.iter());
            merge(&mut reaches, reads);
        }
        let columns = self.columns(stream, columns.iter());
        merge(&mut reaches, columns);
        reaches
    }

    fn columns<'n>(
        &mut self,
        stream: &OpStream,
        names: impl Iterator<Item = &'n String>,
    ) -> Reaches {
        let mut reaches = Reaches::new();
        for name in names {
            let column = self.column(stream, name);
            merge(&mut reaches, column);
        }
        reaches
    }

    /// The reach of a column at the end of a stream.
    fn column(&mut self, stream: &OpStream, name: &str) -> Reaches {
        // Most operations of a wide table do not affect the column.
        let index = self.indexes.of(self.bound, stream);
        let op_count = index.changes(stream.ops.len(), name);
        let key = column_key(stream, op_count, name);
        if let Some(cached) = self.seen.get(&key) {
            return cached.clone();
        }
        self.seen.insert(key.clone(), Reaches::new());
        let reaches = match op_count.checked_sub(1) {
            None => self.of_base(stream.base, name),
            Some(last) => self.written(&stream.first(last), stream.ops[last], name),
        };
        self.seen.insert(key, reaches.clone());
        reaches
    }

    fn of_base(&mut self, base: usize, name: &str) -> Reaches {
        let bound = self.bound;
        let op = match &bound.bases[base] {
            BaseDataset::Source(source) => return vec![SourceHistory::none(source)],
            BaseDataset::Gathered(op) => *op,
        };
        let mut reaches = Reaches::new();
        // Rows of the future are made of the last rows.
        for analyzer in &bound.ops[op].asks {
            let latest = self.asked(*analyzer);
            merge(&mut reaches, latest);
        }
        let inputs = bound.gather_inputs.get(&op).into_iter().flatten();
        for (position, (_, flow)) in inputs.enumerate() {
            let mut columns = flow.column_names();
            // A column that the gather passes on depends on the column of that name alone.
            if is_passed_on(bound, op, name) && columns.iter().any(|column| column == name) {
                columns = vec![name.to_owned()];
            }
            let mut input = Reaches::new();
            for stream in &flow.streams {
                let values = self.stream(stream, &columns);
                merge(&mut input, values);
            }
            let input = self.gathered(op, position, input);
            merge(&mut reaches, input);
        }
        reaches
    }

    /// Reach of the rows that a gather makes of an input.
    fn gathered(&self, op: OpId, input_index: usize, values: Reaches) -> Reaches {
        let PlanOp::Gather(gather) = &self.bound.ops[op].op else {
            return values;
        };
        let label = &self.bound.ops[op].label;
        let reach = match &gather.lower {
            GatherBy::GroupBy(group) => return self.grouped(op, group, values),
            GatherBy::Query(_) => self.query_reach(op, gather),
            GatherBy::Join { .. } if input_index > 0 => reach_of_match(self.ages.join_distance(op)),
            GatherBy::Join { .. } | GatherBy::OnePerKey { .. } | GatherBy::Future(_) => {
                HistoryReach::NONE
            }
        };
        look_back(values, reach, label)
    }

    /// Reach of groups: that of all rows with equal keys.
    fn grouped(&self, op: OpId, group: &GroupByOp, values: Reaches) -> Reaches {
        let label = &self.bound.ops[op].label;
        let Some(clock) = self.ages.group_clock(op, group) else {
            return look_back(values, HistoryReach::Everything, label);
        };
        let key = &group.spec.keys[clock.key];
        let floor = key.bucket.map(|bucket| HistoryBuckets {
            bucket,
            time: key.data_type.clone(),
        });
        match floor {
            Some(buckets) if clock.is_of_times => {
                let mut reaches = Reaches::new();
                for mut history in values {
                    history.steps.insert(label.clone());
                    merge(&mut reaches, vec![history.in_buckets(&buckets)]);
                }
                reaches
            }
            _ => look_back(values, ticks_reach(clock.shift.spread()), label),
        }
    }

    fn query_reach(&self, op: OpId, gather: &'a GatherOp) -> HistoryReach {
        match self.ages.query_reach(op, gather) {
            Some(distance) => ticks_reach(distance),
            None => HistoryReach::Everything,
        }
    }

    /// The reach of the inputs of an analyzer that reads the rows of each run.
    fn asked(&mut self, analyzer: AnalyzerId) -> Reaches {
        let bound = self.bound;
        let analyzer = &bound.asks[analyzer];
        let mut reaches = Reaches::new();
        for stream in &analyzer.streams {
            let input = self.stream(stream, &analyzer.ask.inputs);
            merge(&mut reaches, input);
        }
        reaches
    }

    fn written(&mut self, earlier: &OpStream, last: OpId, name: &str) -> Reaches {
        let bound = self.bound;
        match &bound.ops[last].op {
            PlanOp::Map(map) => {
                let mut reaches = self.columns(earlier, map.reads.iter());
                for analyzer in &bound.ops[last].asks {
                    // Findings of a fit, tables of joins among them, stay as they are.
                    if bound.asks[*analyzer].ask.per_run {
                        let input = self.asked(*analyzer);
                        merge(&mut reaches, input);
                    }
                }
                reaches
            }
            PlanOp::Expand(expand) => self.columns(earlier, expand.reads.iter()),
            PlanOp::Window(window) => self.window(earlier, last, window, name),
            PlanOp::Series(series) if series.is_written(name) => {
                let values = self.columns(earlier, series.reads.iter());
                look_back(values, HistoryReach::Everything, &bound.ops[last].label)
            }
            PlanOp::Join(join) => self.join(earlier, last, join, name),
            PlanOp::Project(columns) => {
                let from = columns
                    .iter()
                    .find(|(_, to)| to == name)
                    .map_or(name, |(from, _)| from);
                self.column(earlier, from)
            }
            PlanOp::Series(_) | PlanOp::Keep(_) | PlanOp::Gather(_) => self.column(earlier, name),
        }
    }

    fn window(&mut self, earlier: &OpStream, op: OpId, window: &WindowOp, name: &str) -> Reaches {
        let Some(output) = window.writes.iter().position(|field| field.name() == name) else {
            return self.column(earlier, name);
        };
        let function = &window.plan.functions[output];
        let parent = match function.compute {
            WindowFunction::SeasonalIndex { parent, .. } => parent,
            _ => None,
        };
        let inputs = [Some(function.input), parent].into_iter().flatten();
        let inputs = inputs.filter_map(|input| window.reads.get(input));
        let values = self.columns(earlier, inputs);
        if window.backward {
            return values;
        }
        let tick = tick_nanoseconds(&window.plan.time).unwrap_or(1);
        let reach = in_nanoseconds(window.plan.history_of(&function.compute), tick);
        look_back(values, reach, &self.bound.ops[op].label)
    }

    fn join(&mut self, earlier: &OpStream, op: OpId, join: &JoinOp, name: &str) -> Reaches {
        let bound = self.bound;
        let mut reaches = self.columns(earlier, join.columns_here());
        let Some(flow) = bound.join_inputs.get(&op) else {
            return reaches;
        };
        let other_column = join
            .columns
            .iter()
            .find(|(_, field)| field.name() == name)
            .map(|(other_column, _)| other_column.clone());
        let columns: Vec<String> = other_column
            .into_iter()
            .chain(
                join.keys
                    .iter()
                    .map(|(_, other_column)| other_column.clone()),
            )
            .collect();
        let mut other = Reaches::new();
        for stream in &flow.streams {
            let values = self.stream(stream, &columns);
            merge(&mut other, values);
        }
        let reach = match &join.by {
            JoinBy::Equality(_) => {
                let pairs = self.ages.match_distance(earlier, &join.keys, flow);
                reach_of_match(pairs)
            }
            JoinBy::Time(as_of) if as_of.direction == MatchDirection::Forward => HistoryReach::NONE,
            JoinBy::Time(as_of) => match (as_of.tolerance, time_tick(bound, earlier, op, as_of)) {
                (Some(tolerance), Some(tick)) => {
                    in_nanoseconds(HistoryReach::Ticks(tolerance), tick)
                }
                _ => HistoryReach::Everything,
            },
        };
        let other = look_back(other, reach, &bound.ops[op].label);
        merge(&mut reaches, other);
        reaches
    }
}

/// Reach of a match: `None` of rows that hold no time, `Some(None)` of rows of any time.
fn reach_of_match(distance: Option<Option<TimeShift>>) -> HistoryReach {
    match distance {
        None => HistoryReach::NONE,
        Some(Some(shift)) => ticks_reach(-shift.least),
        Some(None) => HistoryReach::Everything,
    }
}

/// Nanoseconds of a tick in which the tolerance of an as-of join is counted.
fn time_tick(
    bound: &BoundPipeline,
    stream_before: &OpStream,
    op: OpId,
    as_of: &crate::AsOf,
) -> Option<i128> {
    let other_flow = bound.join_inputs.get(&op)?;
    let flow = bound.window_inputs.get(&op).filter(|flow| {
        flow.streams
            .iter()
            .any(|stream| stream.base == stream_before.base)
    })?;
    let field = flow.schema.field_with_name(&as_of.time).ok()?;
    let other_field = other_flow.schema.field_with_name(&as_of.other_time).ok()?;
    let common = crate::AsOf::time_type(field.data_type(), other_field.data_type())?;
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
