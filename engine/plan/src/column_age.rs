//! The age of columns: how far before its row its data ends.
//!
//! The age of a column is counted from the time until which its row's own data reaches: the row's
//! time for rows of a source, the end of the bucket for rows of an aggregate. A value from a row of
//! another step is as old as it is there, moved by the distance of both times. That distance is
//! known where both are times of rows that were moved by a known distance at most; other rows may
//! be of any time.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};

use forebay_model::{GroupFunction, GroupResult, Pipeline, PredictionLabel};
use forebay_window::WindowFunction;

use crate::data_age::{AgeTrace, DataAge, MetTimes, NOW, TimeLink, has_clock_changes};
use crate::query_age::{QueryAge, QueryTables};
use crate::time_shift::{TimeShift, nanoseconds_per_tick};
use crate::{
    AsOf, BaseDataset, BoundPipeline, GatherBy, GatherOp, GroupByOp, JoinBy, JoinOp, MapOp,
    MatchDirection, NodeFlow, OpId, OpStream, PlanOp, QueryPlan, SeriesOp, WindowOp,
};

/// The ages of columns of a pipeline whose label is predicted.
pub(crate) struct ColumnAges<'a> {
    walk: AgeWalk<'a>,
}

impl<'a> ColumnAges<'a> {
    pub fn new(
        pipeline: &'a Pipeline,
        bound: &'a BoundPipeline,
        label: &'a PredictionLabel,
    ) -> ColumnAges<'a> {
        let focus = HorizonFocus {
            label: &label.column,
            known: label.known.iter().collect(),
            ..HorizonFocus::of_times(pipeline, bound)
        };
        let focus = WalkFocus::Horizon(focus);
        ColumnAges {
            walk: AgeWalk::new(bound, focus),
        }
    }

    pub fn trace(&self, stream: &OpStream, column: &str) -> AgeTrace {
        self.walk.column(stream, stream.ops.len(), column)
    }

    /// Distance from the end of the data of a column of a flow to its row.
    pub fn of(&self, flow: &NodeFlow, column: &str) -> DataAge {
        self.walk.of_flow(flow, column).ends
    }

    /// Reach of the data of a flow's rows beyond their times, in nanoseconds, or in ticks where
    /// times are whole numbers.
    pub fn extent(&self, flow: &NodeFlow) -> i128 {
        let extents = flow
            .streams
            .iter()
            .map(|stream| self.walk.extent(stream.base));
        extents.max().unwrap_or(0)
    }
}

/// True if a time of a pipeline is in a zone whose clocks change.
pub(crate) fn has_zone_with_clock_changes(pipeline: &Pipeline, bound: &BoundPipeline) -> bool {
    let declared = pipeline
        .sources
        .iter()
        .filter_map(|source| source.time.as_deref());
    let mut times: BTreeSet<&str> = declared.collect();
    times.extend(bound.ops.iter().flat_map(|op| times_of(&op.op)));
    let flow_schemas = bound.flows.values().map(|flow| &flow.schema);
    let mut fields = bound
        .base_schemas
        .iter()
        .chain(flow_schemas)
        .flat_map(|schema| schema.fields());
    fields
        .any(|field| times.contains(field.name().as_str()) && has_clock_changes(field.data_type()))
}

/// The columns of times that an operation names.
fn times_of(op: &PlanOp) -> Vec<&str> {
    match op {
        PlanOp::Window(window) => vec![&window.time],
        PlanOp::Series(series) => series.time.iter().map(String::as_str).collect(),
        PlanOp::Join(join) => join
            .as_of()
            .map(|as_of| vec![as_of.time.as_str(), as_of.other_time.as_str()])
            .unwrap_or_default(),
        PlanOp::Gather(GatherOp {
            lower: GatherBy::Future(future),
            ..
        }) => vec![&future.time],
        _ => Vec::new(),
    }
}

/// Columns that determine the ages of all data.
pub(crate) struct HorizonFocus<'a> {
    label: &'a str,
    /// Columns that are known ahead.
    known: BTreeSet<&'a String>,
    /// Columns that identify series.
    free: BTreeSet<&'a String>,
    /// The time of each source that declares one.
    declared: BTreeMap<&'a str, &'a str>,
    /// Names of times, for sources that declare none.
    times: BTreeSet<&'a str>,
}

impl<'a> HorizonFocus<'a> {
    /// The times and keys of a pipeline, without a label.
    fn of_times(pipeline: &'a Pipeline, bound: &'a BoundPipeline) -> HorizonFocus<'a> {
        let keys = pipeline.sources.iter().flat_map(|source| &source.keys);
        let declared: BTreeMap<&str, &str> = pipeline
            .sources
            .iter()
            .filter_map(|source| Some((source.name.as_str(), source.time.as_deref()?)))
            .collect();
        let mut times: BTreeSet<&str> = declared.values().copied().collect();
        times.extend(bound.ops.iter().flat_map(|op| times_of(&op.op)));
        HorizonFocus {
            label: "",
            known: BTreeSet::new(),
            free: keys.collect(),
            declared,
            times,
        }
    }

    fn is_time(&self, source: &str, column: &str) -> bool {
        match self.declared.get(source) {
            Some(time) => *time == column,
            None => self.times.contains(column),
        }
    }
}

/// Target of a walk.
pub(crate) enum WalkFocus<'a> {
    /// The age of everything.
    Horizon(HorizonFocus<'a>),
    /// A label alone, and the column of a source that it equals: the source's name and the column's.
    Label {
        column: &'a str,
        base: Option<(&'a str, &'a str)>,
    },
}

/// The columns that were followed already.
#[derive(Default)]
struct WalkMemo {
    streams: Vec<OpStream>,
    /// Traces by stream, operations before it, and column.
    traces: BTreeMap<(usize, usize, String), AgeTrace>,
    /// Reach of the data of rows beyond their times, by base.
    extents: BTreeMap<usize, i128>,
}

impl WalkMemo {
    fn stream(&mut self, stream: &OpStream) -> usize {
        let is_same = |other: &OpStream| other.base == stream.base && other.ops == stream.ops;
        let position = self.streams.iter().position(is_same);
        position.unwrap_or_else(|| {
            self.streams.push(stream.clone());
            self.streams.len() - 1
        })
    }
}

/// A walk from columns back to the origin of their data.
pub(crate) struct AgeWalk<'a> {
    bound: &'a BoundPipeline,
    focus: WalkFocus<'a>,
    memo: RefCell<WalkMemo>,
}

/// Key column that bounds the times of the rows of a group.
pub(crate) struct GroupClock {
    /// Index of the time among the keys.
    pub key: usize,
    /// Shift from the time of a row to the time of its group.
    pub shift: TimeShift,
    /// True if the key's values, before buckets replace them, are the times of the rows.
    pub is_of_times: bool,
}

impl<'a> AgeWalk<'a> {
    pub fn new(bound: &'a BoundPipeline, focus: WalkFocus<'a>) -> AgeWalk<'a> {
        AgeWalk {
            bound,
            focus,
            memo: RefCell::default(),
        }
    }

    /// A walk that follows the times of rows.
    pub fn of_times(pipeline: &'a Pipeline, bound: &'a BoundPipeline) -> AgeWalk<'a> {
        let focus = HorizonFocus::of_times(pipeline, bound);
        AgeWalk::new(bound, WalkFocus::Horizon(focus))
    }

    /// Distance from the times of rows to those of their matches in a flow: `None` if that has no
    /// times, `Some(None)` if they are of any time.
    pub fn match_distance(
        &self,
        stream: &OpStream,
        keys: &[(String, String)],
        other: &NodeFlow,
    ) -> Option<Option<TimeShift>> {
        if !self.is_dated(other) {
            return None;
        }
        let mut pairs = Vec::new();
        for (column, other_column) in keys {
            let own_trace = self.column(stream, stream.ops.len(), column);
            pairs.push((own_trace, self.of_flow(other, other_column)));
        }
        let met = MetTimes {
            keys: pairs,
            extents: (0, 0),
        };
        Some(met.distance())
    }

    /// [`AgeWalk::match_distance`] of a gather that joins.
    pub fn join_distance(&self, op: OpId) -> Option<Option<TimeShift>> {
        let PlanOp::Gather(gather) = &self.bound.ops[op].op else {
            return None;
        };
        let GatherBy::Join { join, .. } = &gather.lower else {
            return None;
        };
        let flow = self.input(op, 0)?;
        let other = self.input(op, 1)?;
        let distances: Vec<Option<TimeShift>> = flow
            .streams
            .iter()
            .filter_map(|stream| self.match_distance(stream, &join.keys, other))
            .collect();
        if distances.is_empty() {
            return None;
        }
        let bounded = distances.into_iter().collect::<Option<Vec<_>>>();
        Some(bounded.and_then(|bounded| bounded.into_iter().reduce(TimeShift::or)))
    }

    /// Distance before a row at which a query reads other rows, in nanoseconds; `None` if it may
    /// read all.
    pub fn query_reach(&self, op: OpId, gather: &'a GatherOp) -> Option<i128> {
        let query = gather.query.as_ref()?;
        self.query(op, query).reach(&query.plan)
    }

    /// Age of a column after `op_count` of the stream's operations.
    pub fn column(&self, stream: &OpStream, op_count: usize, name: &str) -> AgeTrace {
        if let WalkFocus::Label { column, .. } = &self.focus
            && *column == name
        {
            return AgeTrace {
                path: vec![format!("`{name}`")],
                ..AgeTrace::of(NOW)
            };
        }
        let stream_index = self.memo.borrow_mut().stream(stream);
        let key = (stream_index, op_count, name.to_owned());
        if let Some(trace) = self.memo.borrow().traces.get(&key) {
            return trace.clone();
        }
        let mut trace = self.written(stream, op_count, name);
        if let WalkFocus::Horizon(focus) = &self.focus
            && focus.known.iter().any(|column| *column == name)
        {
            trace.ends = DataAge::Ahead;
            trace.path = Vec::new();
        }
        self.memo.borrow_mut().traces.insert(key, trace.clone());
        trace
    }

    fn of_flow(&self, flow: &NodeFlow, name: &str) -> AgeTrace {
        self.of_streams(&flow.streams, name)
    }

    fn of_streams(&self, streams: &[OpStream], name: &str) -> AgeTrace {
        let traces = streams
            .iter()
            .map(|stream| self.column(stream, stream.ops.len(), name));
        AgeTrace::of_streams(traces)
    }

    /// Reach of the data of a base's rows beyond their times.
    fn extent(&self, base: usize) -> i128 {
        if let Some(extent) = self.memo.borrow().extents.get(&base) {
            return *extent;
        }
        let extent = self.extent_of(base);
        self.memo.borrow_mut().extents.insert(base, extent);
        extent
    }

    fn extent_of(&self, base: usize) -> i128 {
        let BaseDataset::Gathered(op) = &self.bound.bases[base] else {
            return 0;
        };
        let PlanOp::Gather(gather) = &self.bound.ops[*op].op else {
            return 0;
        };
        match &gather.lower {
            GatherBy::Future(_) => {
                let streams = self.latest_streams(*op);
                self.extent_of_streams(streams)
            }
            GatherBy::OnePerKey { .. } | GatherBy::Join { .. } => self.extent_of_input(*op, 0),
            GatherBy::GroupBy(group) => {
                let clock = self.group_clock(*op, group);
                self.extent_of_input(*op, 0) - clock.map_or(0, |clock| clock.shift.least)
            }
            GatherBy::Query(_) => match &gather.query {
                Some(query) => self.query(*op, query).extent(&query.plan),
                None => 0,
            },
        }
    }

    fn extent_of_streams(&self, streams: &[OpStream]) -> i128 {
        let extents = streams.iter().map(|stream| self.extent(stream.base));
        extents.max().unwrap_or(0)
    }

    fn extent_of_input(&self, op: OpId, input_index: usize) -> i128 {
        self.input(op, input_index)
            .map_or(0, |flow| self.extent_of_streams(&flow.streams))
    }

    fn input(&self, op: OpId, input_index: usize) -> Option<&'a NodeFlow> {
        let inputs = self.bound.gather_inputs.get(&op)?;
        inputs.get(input_index).map(|(_, flow)| flow)
    }

    /// The streams whose last rows are continued.
    fn latest_streams(&self, op: OpId) -> &'a [OpStream] {
        let analyzer = self.bound.ops[op].asks.first();
        analyzer.map_or(&[], |analyzer| {
            self.bound.asks[*analyzer].streams.as_slice()
        })
    }

    fn query(&self, op: OpId, query: &'a QueryPlan) -> QueryAge<'_> {
        QueryAge::new(query, QueryInputs { walk: self, op })
    }

    /// Age of a column of a source or of a gathered table.
    fn base(&self, stream: &OpStream, name: &str) -> AgeTrace {
        match &self.bound.bases[stream.base] {
            BaseDataset::Source(source) => self.of_source(stream.base, source, name),
            BaseDataset::Gathered(op) => {
                let label = &self.bound.ops[*op].label;
                match &self.focus {
                    WalkFocus::Label { .. } => AgeTrace::ahead().through_step(name, label),
                    WalkFocus::Horizon(_) => {
                        let trace = self.gathered(*op, name);
                        trace.through_step(name, label)
                    }
                }
            }
        }
    }

    fn of_source(&self, base: usize, source: &str, name: &str) -> AgeTrace {
        let trace = match &self.focus {
            WalkFocus::Label { base, .. } => AgeTrace::of(if *base == Some((source, name)) {
                NOW
            } else {
                DataAge::Ahead
            }),
            WalkFocus::Horizon(focus) => {
                let is_time = focus.is_time(source, name);
                let is_key = focus.free.iter().any(|key| *key == name);
                AgeTrace {
                    ends: if is_time || is_key {
                        DataAge::Ahead
                    } else {
                        NOW
                    },
                    time: if is_time {
                        TimeLink::Moved(TimeShift::NONE)
                    } else {
                        TimeLink::None
                    },
                    dated: self.is_dated_source(focus, base, source),
                    ..AgeTrace::ahead()
                }
            }
        };
        trace.through_step(name, source)
    }

    /// True if the rows of a source have a time: it declares one, or it has the label, whose past and future differ.
    fn is_dated_source(&self, focus: &HorizonFocus<'_>, base: usize, source: &str) -> bool {
        let schema = &self.bound.base_schemas[base];
        focus.declared.contains_key(source) || schema.field_with_name(focus.label).is_ok()
    }

    fn is_dated(&self, flow: &NodeFlow) -> bool {
        let WalkFocus::Horizon(focus) = &self.focus else {
            return false;
        };
        flow.streams
            .iter()
            .any(|stream| match &self.bound.bases[stream.base] {
                BaseDataset::Source(source) => self.is_dated_source(focus, stream.base, source),
                BaseDataset::Gathered(op) => {
                    let inputs = self.bound.gather_inputs.get(op).into_iter().flatten();
                    !self.latest_streams(*op).is_empty()
                        || inputs.map(|(_, flow)| flow).any(|flow| self.is_dated(flow))
                }
            })
    }

    /// A column of rows that were gathered.
    fn gathered(&self, op: OpId, name: &str) -> AgeTrace {
        let PlanOp::Gather(gather) = &self.bound.ops[op].op else {
            return AgeTrace::of(DataAge::After);
        };
        match &gather.lower {
            GatherBy::Future(future) => {
                let is_time = future.time == name;
                AgeTrace {
                    ends: if is_time || future.keys.iter().any(|key| key == name) {
                        DataAge::Ahead
                    } else {
                        NOW
                    },
                    time: if is_time {
                        TimeLink::Moved(TimeShift::NONE)
                    } else {
                        TimeLink::None
                    },
                    dated: true,
                    ..AgeTrace::ahead()
                }
            }
            GatherBy::OnePerKey { keys, last } => {
                let Some(flow) = self.input(op, 0) else {
                    return AgeTrace::of(DataAge::After);
                };
                let mut trace = self.of_flow(flow, name);
                let is_of_one_time = keys
                    .iter()
                    .any(|key| self.of_flow(flow, key).time.shift().is_some());
                trace.chosen_late |= *last && !is_of_one_time && trace.dated;
                trace
            }
            GatherBy::GroupBy(group) => self.grouped(op, gather, group, name),
            GatherBy::Join { join, .. } => {
                let Some((flow, other)) = self.input(op, 0).zip(self.input(op, 1)) else {
                    return AgeTrace::of(DataAge::After);
                };
                let brought = join.columns.iter().find(|(_, field)| field.name() == name);
                let Some((other_column, _)) = brought else {
                    return self.of_flow(flow, name);
                };
                let keys = join.keys.iter().map(|(column, other_column)| {
                    (
                        self.of_flow(flow, column),
                        self.of_flow(other, other_column),
                    )
                });
                let met = MetTimes {
                    keys: keys.collect(),
                    extents: (
                        self.extent_of_streams(&flow.streams),
                        self.extent_of_streams(&other.streams),
                    ),
                };
                met.age(self.of_flow(other, other_column))
            }
            GatherBy::Query(_) => match &gather.query {
                Some(query) => self.query(op, query).output(name, gather),
                None => AgeTrace::of(DataAge::After),
            },
        }
    }

    /// Key column that bounds the times of the rows of a group most closely.
    pub fn group_clock(&self, op: OpId, group: &GroupByOp) -> Option<GroupClock> {
        let flow = self.input(op, 0)?;
        let mut best: Option<GroupClock> = None;
        for (key, name) in group.inputs.iter().take(group.spec.keys.len()).enumerate() {
            let Some(shift) = self.group_key(flow, group, key, name).time.shift() else {
                continue;
            };
            if best
                .as_ref()
                .is_none_or(|best| best.shift.least < shift.least)
            {
                let link = self.of_flow(flow, name).time;
                best = Some(GroupClock {
                    key,
                    shift,
                    is_of_times: link == TimeLink::Moved(TimeShift::NONE),
                });
            }
        }
        best
    }

    /// A key of groups, as seen from the rows that are grouped.
    fn group_key(&self, flow: &NodeFlow, group: &GroupByOp, key: usize, name: &str) -> AgeTrace {
        let mut trace = self.of_flow(flow, name);
        let key = &group.spec.keys[key];
        if let Some(bucket) = &key.bucket {
            let tick = nanoseconds_per_tick(&key.data_type);
            let floor = TimeShift::floor(bucket.most_ticks(tick) * tick, tick);
            trace.time = trace.time.moved(floor);
        }
        trace
    }

    fn grouped(&self, op: OpId, gather: &GatherOp, group: &GroupByOp, name: &str) -> AgeTrace {
        let Some(flow) = self.input(op, 0) else {
            return AgeTrace::of(DataAge::After);
        };
        let clock = self.group_clock(op, group);
        let keys = group.spec.keys.len();
        let index = gather.schema.index_of(name).unwrap_or(usize::MAX);
        if index < keys {
            let mut trace = self.group_key(flow, group, index, name);
            if let Some(clock) = &clock {
                // The time of a group is that of its clock.
                trace.time = if clock.key == index {
                    TimeLink::Moved(TimeShift::NONE)
                } else {
                    trace.time.moved(clock.shift.reversed())
                };
            }
            return trace;
        }
        let Some(result) = group.spec.results.get(index - keys) else {
            return AgeTrace::of(DataAge::After);
        };
        let inputs = result_inputs(result)
            .into_iter()
            .filter_map(|input| group.inputs.get(keys + input));
        let mut trace = AgeTrace::of_all(inputs.map(|input| self.of_flow(flow, input)));
        trace.dated |= self.is_dated(flow);
        if clock.is_none() {
            return trace.of_any_time();
        }
        trace.ends = trace.ends.of_group();
        trace.time = TimeLink::None;
        trace
    }

    /// A column that an as-of join brings.
    fn joined(
        &self,
        stream: &OpStream,
        position: usize,
        join: &JoinOp,
        as_of: &AsOf,
        name: &str,
    ) -> AgeTrace {
        let from = join
            .columns
            .iter()
            .find(|(_, field)| field.name() == name)
            .map_or(name, |(from, _)| from.as_str());
        let streams = self.join_streams(stream.ops[position]);
        let other_trace = self.of_streams(streams, from);
        let WalkFocus::Horizon(_) = &self.focus else {
            let mut trace = other_trace;
            if as_of.direction != MatchDirection::Backward && trace.ends != DataAge::Ahead {
                trace.ends = DataAge::After;
            }
            trace.time = TimeLink::None;
            return trace;
        };
        let is_backward = as_of.direction == MatchDirection::Backward;
        let mut trace = other_trace.clone();
        trace.time = TimeLink::None;
        if !trace.dated {
            if trace.ends == DataAge::Ahead {
                trace.ends = NOW;
            } else if !is_backward {
                trace.ends = DataAge::After;
            }
            return trace;
        }
        let own_time = self.column(stream, position, &as_of.time);
        let extents = (self.extent(stream.base), self.extent_of_streams(streams));
        let met = |time: &str| MetTimes {
            keys: vec![(own_time.clone(), self.of_streams(streams, time))],
            extents,
        };
        let by_time = met(&as_of.other_time);
        trace.ends = if !is_backward {
            DataAge::After
        } else {
            let mut ends = by_time.age(other_trace.clone()).ends;
            if let Some(known_at) = &as_of.known_at {
                let by_known = met(known_at);
                let when = &by_known.keys[0].1;
                let declared = match (when.time, own_time.time.shift()) {
                    // The data says itself when it was known.
                    (TimeLink::None, Some(own_shift)) => NOW.moved(own_shift.most - extents.0),
                    _ => by_known.age(other_trace).ends,
                };
                ends = older(ends, declared);
            }
            ends
        };
        trace
    }

    fn join_streams(&self, op: OpId) -> &'a [OpStream] {
        let flow = self.bound.join_inputs.get(&op);
        flow.map_or(&[], |flow| flow.streams.as_slice())
    }

    /// A column of rows of another step that have the same keys.
    fn met(
        &self,
        stream: &OpStream,
        position: usize,
        keys: &[(String, String)],
        streams: &[OpStream],
        column: Option<&str>,
    ) -> AgeTrace {
        let pairs = keys.iter().map(|(column, other_column)| {
            let own_trace = self.column(stream, position, column);
            (own_trace, self.of_streams(streams, other_column))
        });
        let met = MetTimes {
            keys: pairs.collect(),
            extents: (self.extent(stream.base), self.extent_of_streams(streams)),
        };
        // The choice of the matched row reveals the values of the keys.
        let other_trace =
            column.map_or_else(AgeTrace::ahead, |column| self.of_streams(streams, column));
        met.age(other_trace)
    }

    fn all(&self, stream: &OpStream, position: usize, names: &[String]) -> AgeTrace {
        let traces = names.iter().map(|name| self.column(stream, position, name));
        AgeTrace::of_all(traces)
    }

    fn mapped(&self, stream: &OpStream, position: usize, map: &MapOp) -> AgeTrace {
        let is_of_all = matches!(self.focus, WalkFocus::Horizon(_));
        let analyzers = &self.bound.ops[stream.ops[position]].asks;
        if let Some(met) = map.met.as_ref().filter(|_| is_of_all) {
            let other = analyzers
                .first()
                .map(|analyzer| &self.bound.asks[*analyzer]);
            let streams = other.map_or(&[][..], |other| other.streams.as_slice());
            return self.met(stream, position, &met.keys, streams, met.column.as_deref());
        }
        let mut trace = self.all(stream, position, &map.reads);
        if let Some(moved) = &map.moved {
            let link = self.column(stream, position, &moved.from).time;
            trace.time = link.moved(moved.shift);
        }
        if map.of_other_rows && is_of_all {
            return self.with_learned(stream, position, map, trace);
        }
        let Some(behind) = map.behind.filter(|_| is_of_all) else {
            return trace;
        };
        let values = map.asks.iter().flat_map(|analyzer| &analyzer.inputs);
        let values = values.filter(|input| !map.reads.contains(input));
        let mut values = AgeTrace::of_all(values.map(|name| self.column(stream, position, name)));
        let is_timed = map
            .reads
            .iter()
            .any(|read| self.column(stream, position, read).time.shift().is_some());
        values.ends = if is_timed {
            values.ends.or_younger(NOW).lagged(behind, None)
        } else {
            DataAge::After
        };
        values.time = TimeLink::None;
        trace.younger(values)
    }

    /// Adds columns that are learned from rows of any time and not read from the row itself, such as the labels of a
    /// category.
    fn with_learned(
        &self,
        stream: &OpStream,
        position: usize,
        map: &MapOp,
        trace: AgeTrace,
    ) -> AgeTrace {
        let requests = map.asks.iter();
        let of_rows = requests.filter(|request| request.of.is_none() && !request.per_run);
        let inputs = of_rows.flat_map(|request| &request.inputs);
        let learned = inputs.filter(|input| !map.reads.contains(input));
        let traces = learned.map(|name| self.column(stream, position, name));
        let mut values = AgeTrace::of_all(traces);
        if values.ends == DataAge::Ahead {
            return trace;
        }
        values.ends = DataAge::After;
        values.time = TimeLink::None;
        trace.younger(values)
    }

    fn windowed(
        &self,
        stream: &OpStream,
        position: usize,
        window: &WindowOp,
        output: usize,
    ) -> AgeTrace {
        let is_of_all = matches!(self.focus, WalkFocus::Horizon(_));
        let function = &window.plan.functions[output];
        let parent = match function.compute {
            WindowFunction::SeasonalIndex { parent, .. } => {
                parent.and_then(|parent| window.reads.get(parent))
            }
            _ => None,
        };
        let input = window.reads.get(function.input);
        let mut trace = match input {
            Some(input) => self.column(stream, position, input),
            None => AgeTrace::ahead(),
        };
        trace.ends = match window.backward {
            true if is_of_all || trace.ends != DataAge::Ahead => DataAge::After,
            true => DataAge::Ahead,
            false => trace.ends.lagged(function.compute.behind(), Some(window)),
        };
        trace.time = TimeLink::None;
        if is_of_all && trace.ends != DataAge::Ahead {
            let order = self.column(stream, position, &window.time).time;
            trace.ends = match order.shift() {
                Some(shift) => trace.ends.moved(shift.spread()),
                // Rows before this one in another order may be later in time.
                None => DataAge::After,
            };
        }
        match parent {
            Some(parent) => trace.younger(self.column(stream, position, parent)),
            None => trace,
        }
    }

    /// A column that a function returns of whole series.
    fn of_series(&self, stream: &OpStream, position: usize, series: &SeriesOp) -> AgeTrace {
        let is_of_all = matches!(self.focus, WalkFocus::Horizon(_));
        let mut trace = self.all(stream, position, &series.reads);
        if series.looks_ahead {
            if is_of_all || trace.ends != DataAge::Ahead {
                trace.ends = DataAge::After;
            }
            return trace;
        }
        if let Some(behind) = series.behind {
            trace.ends = trace.ends.lagged(behind, None);
        }
        if is_of_all && trace.ends != DataAge::Ahead {
            let time = series.time.as_ref();
            let order = time.and_then(|time| self.column(stream, position, time).time.shift());
            trace.ends = match order {
                Some(shift) => trace.ends.moved(shift.spread()),
                // What comes before in another order may come later in time.
                None => DataAge::After,
            };
        }
        trace
    }

    fn written(&self, stream: &OpStream, op_count: usize, name: &str) -> AgeTrace {
        let Some(position) = op_count.checked_sub(1) else {
            return self.base(stream, name);
        };
        let id = stream.ops[position];
        let op = &self.bound.ops[id];
        let trace = match &op.op {
            PlanOp::Map(map) if map.is_written(name) => self.mapped(stream, position, map),
            PlanOp::Expand(expand) if expand.is_written(name) => {
                self.all(stream, position, &expand.reads)
            }
            PlanOp::Join(join) if join.is_written(name) => match &join.by {
                JoinBy::Time(as_of) => self.joined(stream, position, join, as_of, name),
                JoinBy::Equality(_) => {
                    if matches!(self.focus, WalkFocus::Label { .. }) {
                        let keys: Vec<String> = join.columns_here().cloned().collect();
                        self.all(stream, position, &keys)
                    } else {
                        let brought = join.columns.iter().find(|(_, field)| field.name() == name);
                        let column = brought.map(|(from, _)| from.as_str());
                        let streams = self.join_streams(id);
                        self.met(stream, position, &join.keys, streams, column)
                    }
                }
            },
            PlanOp::Window(window) => {
                match window.writes.iter().position(|field| field.name() == name) {
                    None => return self.column(stream, position, name),
                    Some(output) => self.windowed(stream, position, window, output),
                }
            }
            PlanOp::Series(series) if series.is_written(name) => {
                self.of_series(stream, position, series)
            }
            PlanOp::Project(columns) => {
                let from = columns
                    .iter()
                    .find(|(_, to)| to == name)
                    .map_or(name, |(from, _)| from);
                return self.column(stream, position, from);
            }
            _ => return self.column(stream, position, name),
        };
        trace.through_step(name, &op.label)
    }
}

/// The tables of a query, by the inputs of its gather.
struct QueryInputs<'w> {
    walk: &'w AgeWalk<'w>,
    op: OpId,
}

impl QueryInputs<'_> {
    fn flow(&self, table: &str) -> Option<&NodeFlow> {
        let inputs = self.walk.bound.gather_inputs.get(&self.op)?;
        let input = inputs.iter().find(|(name, _)| name == table);
        input.map(|(_, flow)| flow)
    }
}

impl QueryTables for QueryInputs<'_> {
    fn column(&self, table: &str, column: &str) -> AgeTrace {
        match self.flow(table) {
            Some(flow) => self.walk.of_flow(flow, column),
            None => AgeTrace::of(DataAge::After),
        }
    }

    fn extent(&self, table: &str) -> i128 {
        self.flow(table)
            .map_or(0, |flow| self.walk.extent_of_streams(&flow.streams))
    }

    fn is_dated(&self, table: &str) -> bool {
        self.flow(table).is_none_or(|flow| self.walk.is_dated(flow))
    }
}

/// The places of the value columns that a result of groups is computed of.
fn result_inputs(result: &GroupResult) -> Vec<usize> {
    match result.function {
        GroupFunction::CountRows | GroupFunction::FirstRow | GroupFunction::LastRow => Vec::new(),
        GroupFunction::WeightedMean { weight } | GroupFunction::WeightedQuantile { weight, .. } => {
            vec![result.value, weight]
        }
        GroupFunction::FirstBy { time } | GroupFunction::LastBy { time } => {
            vec![result.value, time]
        }
        _ => vec![result.value],
    }
}

/// The older of two ages that are both proved.
fn older(a: DataAge, b: DataAge) -> DataAge {
    match (a, b) {
        (DataAge::After, age) | (age, DataAge::After) => age,
        (DataAge::Ahead, _) | (_, DataAge::Ahead) => DataAge::Ahead,
        (DataAge::Behind { time: x, .. }, DataAge::Behind { time: y, .. }) => {
            if x.is_at_least(y) {
                a
            } else {
                b
            }
        }
    }
}
