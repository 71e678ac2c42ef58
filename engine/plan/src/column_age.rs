//! The age of columns: how far before its row its data ends.
//!
//! The age of a column is counted from the time until which its row's own data reaches: the row's time for rows of a
//! source, the end of the bucket for rows of an aggregate. What a row brings from another step is as old as it is
//! there, moved by the distance of both times. That distance is known where both are times of rows that were moved by
//! a known distance at most; other rows may be of any time.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};

use forebay_model::{GroupFunction, GroupResult, Pipeline, PredictionLabel};
use forebay_window::{GapHandling, SeriesLength, WindowFunction};

use crate::query_age::{QueryAge, QueryTables};
use crate::time_shift::{TimeShift, nanoseconds_per_tick};
use crate::{
    AsOf, BaseDataset, BoundPipeline, GatherBy, GatherOp, GroupByOp, JoinBy, JoinOp, MapOp,
    MatchDirection, NodeFlow, OpId, OpStream, PlanOp, QueryPlan, WindowOp,
};

/// Age of a column: how far before its row its data ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum DataAge {
    /// Known in advance: keys, the calendar, constants, columns listed as known.
    Ahead,
    /// Ends this much before the row, in nanoseconds (or ticks of an integer time column) and in rows. What is less than
    /// 0 ends after the row.
    Behind { time: i128, rows: i64 },
    /// Ends any time after the row.
    After,
}

/// Rows behind where a number of rows proves nothing.
const ROWS_UNPROVED: i64 = -(1 << 40);

/// The data of the row itself.
pub(crate) const NOW: DataAge = DataAge::Behind { time: 0, rows: 0 };

impl DataAge {
    /// True if the data ends after the row.
    pub fn is_later(self) -> bool {
        match self {
            DataAge::Ahead => false,
            DataAge::Behind { time, .. } => time < 0,
            DataAge::After => true,
        }
    }

    /// The younger of both.
    pub fn or_younger(self, other: DataAge) -> DataAge {
        match (self, other) {
            (DataAge::After, _) | (_, DataAge::After) => DataAge::After,
            (DataAge::Ahead, age) | (age, DataAge::Ahead) => age,
            (DataAge::Behind { time: a, rows: x }, DataAge::Behind { time: b, rows: y }) => {
                DataAge::Behind {
                    time: a.min(b),
                    rows: x.min(y),
                }
            }
        }
    }

    /// Behind a length.
    fn lagged(self, by: SeriesLength, window: Option<&WindowOp>) -> DataAge {
        let DataAge::Behind { time, rows } = self else {
            return self;
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
                rows: rows.saturating_add(i64::try_from(by).unwrap_or(i64::MAX)),
            },
            SeriesLength::Ticks(by) => DataAge::Behind {
                time: time + i128::from(by) * tick,
                rows,
            },
        }
    }

    /// Seen from a row that lies `ahead` before the row that has the data.
    pub fn moved(self, ahead: i128) -> DataAge {
        match self {
            DataAge::Behind { time, rows } => DataAge::Behind {
                time: time - ahead,
                rows: if ahead == 0 { rows } else { ROWS_UNPROVED },
            },
            other => other,
        }
    }

    /// Of rows that stand for several others: their number proves nothing of the rows before.
    pub fn of_group(self) -> DataAge {
        match self {
            DataAge::Ahead => NOW,
            DataAge::Behind { time, rows } => DataAge::Behind {
                time,
                rows: rows.min(0),
            },
            DataAge::After => DataAge::After,
        }
    }
}

/// Dependence of a column on the time of its row.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum TimeLink {
    /// Not at all.
    None,
    /// It is that time, moved by a distance within these bounds.
    Moved(TimeShift),
    /// In some other way.
    Unproved,
}

impl TimeLink {
    pub fn shift(self) -> Option<TimeShift> {
        match self {
            TimeLink::Moved(shift) => Some(shift),
            TimeLink::None | TimeLink::Unproved => None,
        }
    }

    pub fn moved(self, by: TimeShift) -> TimeLink {
        match self {
            TimeLink::Moved(shift) => TimeLink::Moved(shift.then(by)),
            other => other,
        }
    }
}

/// Age of a column, with its provenance.
#[derive(Debug, Clone)]
pub(crate) struct AgeTrace {
    pub ends: DataAge,
    /// Its dependence on the row's time: a lookup by it may return data of that time.
    pub time: TimeLink,
    /// True if its data is of rows that have a time. Tables without one hold what does not change.
    pub dated: bool,
    /// True if which rows there are depends on later rows.
    pub chosen_late: bool,
    /// From the column back to the origin of its data.
    pub path: Vec<String>,
}

impl AgeTrace {
    pub fn ahead() -> AgeTrace {
        AgeTrace::of(DataAge::Ahead)
    }

    pub fn of(ends: DataAge) -> AgeTrace {
        AgeTrace {
            ends,
            time: TimeLink::None,
            dated: false,
            chosen_late: false,
            path: Vec::new(),
        }
    }

    fn merged(self, other: AgeTrace, time: TimeLink) -> AgeTrace {
        let ends = self.ends.or_younger(other.ends);
        let path = if ends == self.ends || self.ends == DataAge::After {
            self.path
        } else {
            other.path
        };
        AgeTrace {
            ends,
            time,
            dated: self.dated || other.dated,
            chosen_late: self.chosen_late || other.chosen_late,
            path,
        }
    }

    /// Computed of both.
    pub fn younger(self, other: AgeTrace) -> AgeTrace {
        let time = if self.time == TimeLink::None && other.time == TimeLink::None {
            TimeLink::None
        } else {
            TimeLink::Unproved
        };
        self.merged(other, time)
    }

    /// Of rows of which some have the one and some the other.
    pub fn either(self, other: AgeTrace) -> AgeTrace {
        let time = match (self.time, other.time) {
            (TimeLink::None, TimeLink::None) => TimeLink::None,
            (TimeLink::Moved(a), TimeLink::Moved(b)) => TimeLink::Moved(a.or(b)),
            _ => TimeLink::Unproved,
        };
        self.merged(other, time)
    }

    /// That of some columns of which one is computed.
    pub fn of_all(traces: impl IntoIterator<Item = AgeTrace>) -> AgeTrace {
        let mut traces = traces.into_iter();
        let Some(first) = traces.next() else {
            return AgeTrace::ahead();
        };
        let time = match first.time {
            TimeLink::None => TimeLink::None,
            _ => TimeLink::Unproved,
        };
        traces.fold(AgeTrace { time, ..first }, AgeTrace::younger)
    }

    /// That of a column of several streams.
    pub fn of_streams(traces: impl IntoIterator<Item = AgeTrace>) -> AgeTrace {
        let traces = traces.into_iter();
        traces
            .reduce(AgeTrace::either)
            .unwrap_or_else(AgeTrace::ahead)
    }

    /// Computed over rows of any time.
    pub fn of_any_time(mut self) -> AgeTrace {
        if self.dated {
            self.ends = DataAge::After;
        } else {
            self.ends = self.ends.of_group();
        }
        self.time = TimeLink::None;
        self
    }

    fn through_step(mut self, column: &str, step: &str) -> AgeTrace {
        self.path.insert(0, format!("`{column}` ({step})"));
        self
    }
}

/// The way in which rows of this step meet rows of another.
pub(crate) struct MetTimes {
    /// Each key here, and the key there.
    pub keys: Vec<(AgeTrace, AgeTrace)>,
    /// How far the data of a row here reaches beyond its time, and that of a row there.
    pub extents: (i128, i128),
}

impl MetTimes {
    /// The age of data there, as seen from the rows here.
    pub fn age(&self, there: AgeTrace) -> AgeTrace {
        let here = AgeTrace::of_all(self.keys.iter().map(|(here, _)| here.clone()));
        let is_timed = here.time != TimeLink::None;
        let of_keys = AgeTrace {
            time: TimeLink::None,
            dated: false,
            ..here
        };
        let AgeTrace {
            ends, dated, path, ..
        } = there.clone();
        let age = if !dated {
            // What a row meets by its time may be the newest of another table.
            if is_timed { NOW } else { DataAge::Ahead }
        } else if there.chosen_late {
            DataAge::After
        } else {
            match self.farthest_ahead() {
                // Which row is found depends on the row's time, whatever its columns hold.
                Some(ahead) if ends == DataAge::Ahead => NOW.moved(ahead.max(0)),
                Some(ahead) => {
                    let (here, there) = self.extents;
                    ends.moved(ahead + there - here).of_group()
                }
                None if ends == DataAge::Ahead && is_timed => NOW,
                None if ends == DataAge::Ahead => DataAge::Ahead,
                None => DataAge::After,
            }
        };
        let brought = AgeTrace {
            path,
            dated,
            ..AgeTrace::of(age)
        };
        brought.younger(of_keys)
    }

    /// From the time of a row here to that of the row that it meets, where a key binds both.
    pub fn distance(&self) -> Option<TimeShift> {
        let of_pair = |(here, there): &(AgeTrace, AgeTrace)| {
            let back = there.time.shift()?.reversed();
            Some(here.time.shift()?.then(back))
        };
        let distances = self.keys.iter().filter_map(of_pair);
        distances.min_by_key(|distance| distance.most)
    }

    /// How far after a row here the time of the row that it meets lies at most; `None` where it may be any.
    fn farthest_ahead(&self) -> Option<i128> {
        self.distance().map(|distance| distance.most)
    }
}

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
        let keys = pipeline.sources.iter().flat_map(|source| &source.keys);
        let declared: BTreeMap<&str, &str> = pipeline
            .sources
            .iter()
            .filter_map(|source| Some((source.name.as_str(), source.time.as_deref()?)))
            .collect();
        let mut times: BTreeSet<&str> = declared.values().copied().collect();
        times.extend(bound.ops.iter().flat_map(|op| times_of(&op.op)));
        let focus = WalkFocus::Horizon(HorizonFocus {
            label: &label.column,
            known: label.known.iter().collect(),
            free: keys.collect(),
            declared,
            times,
        });
        ColumnAges {
            walk: AgeWalk::new(bound, focus),
        }
    }

    pub fn trace(&self, stream: &OpStream, column: &str) -> AgeTrace {
        self.walk.column(stream, stream.ops.len(), column)
    }

    /// How far before its row the data of a column of a flow ends.
    pub fn of(&self, flow: &NodeFlow, column: &str) -> DataAge {
        self.walk.of_flow(flow, column).ends
    }

    /// How far the data of the rows of a flow reaches beyond their times, in nanoseconds, or in ticks where times are
    /// whole numbers.
    pub fn extent(&self, flow: &NodeFlow) -> i128 {
        let extents = flow
            .streams
            .iter()
            .map(|stream| self.walk.extent(stream.base));
        extents.max().unwrap_or(0)
    }
}

/// The columns of times that an operation names.
fn times_of(op: &PlanOp) -> Vec<&str> {
    match op {
        PlanOp::Window(window) => vec![&window.time],
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

/// What the ages of everything are found by.
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

impl HorizonFocus<'_> {
    fn is_time(&self, source: &str, column: &str) -> bool {
        match self.declared.get(source) {
            Some(time) => *time == column,
            None => self.times.contains(column),
        }
    }
}

/// What a walk looks for.
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
    /// By stream, operations before it, and column.
    traces: BTreeMap<(usize, usize, String), AgeTrace>,
    /// How far the data of rows reaches beyond their times, by base.
    extents: BTreeMap<usize, i128>,
}

impl WalkMemo {
    fn stream(&mut self, stream: &OpStream) -> usize {
        let is_same = |other: &OpStream| other.base == stream.base && other.ops == stream.ops;
        let place = self.streams.iter().position(is_same);
        place.unwrap_or_else(|| {
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

/// The key of groups that says when their rows are.
struct GroupClock {
    /// Its place among the keys.
    key: usize,
    /// From the time of a row to the time of its group.
    shift: TimeShift,
}

impl<'a> AgeWalk<'a> {
    pub fn new(bound: &'a BoundPipeline, focus: WalkFocus<'a>) -> AgeWalk<'a> {
        AgeWalk {
            bound,
            focus,
            memo: RefCell::default(),
        }
    }

    /// Age of a column after `after` of the stream's operations.
    pub fn column(&self, stream: &OpStream, after: usize, name: &str) -> AgeTrace {
        if let WalkFocus::Label { column, .. } = &self.focus
            && *column == name
        {
            return AgeTrace {
                path: vec![format!("`{name}`")],
                ..AgeTrace::of(NOW)
            };
        }
        let place = self.memo.borrow_mut().stream(stream);
        let key = (place, after, name.to_owned());
        if let Some(trace) = self.memo.borrow().traces.get(&key) {
            return trace.clone();
        }
        let mut trace = self.written(stream, after, name);
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

    /// How far the data of rows of a base reaches beyond their times.
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

    fn extent_of_input(&self, op: OpId, place: usize) -> i128 {
        self.input(op, place)
            .map_or(0, |flow| self.extent_of_streams(&flow.streams))
    }

    fn input(&self, op: OpId, place: usize) -> Option<&'a NodeFlow> {
        let inputs = self.bound.gather_inputs.get(&op)?;
        inputs.get(place).map(|(_, flow)| flow)
    }

    /// The streams whose last rows are continued.
    fn latest_streams(&self, op: OpId) -> &'a [OpStream] {
        let ask = self.bound.ops[op].asks.first();
        ask.map_or(&[], |ask| self.bound.asks[*ask].streams.as_slice())
    }

    fn query(&self, op: OpId, query: &'a QueryPlan) -> QueryAge<'_> {
        QueryAge::new(query, QueryInputs { walk: self, op })
    }

    /// A column of a source, or of what was gathered.
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
                let Some((there, _)) = brought else {
                    return self.of_flow(flow, name);
                };
                let keys = join
                    .keys
                    .iter()
                    .map(|(here, there)| (self.of_flow(flow, here), self.of_flow(other, there)));
                let met = MetTimes {
                    keys: keys.collect(),
                    extents: (
                        self.extent_of_streams(&flow.streams),
                        self.extent_of_streams(&other.streams),
                    ),
                };
                met.age(self.of_flow(other, there))
            }
            GatherBy::Query(_) => match &gather.query {
                Some(query) => self.query(op, query).output(name, gather),
                None => AgeTrace::of(DataAge::After),
            },
        }
    }

    /// The key of groups that says most of the time of their rows.
    fn group_clock(&self, op: OpId, group: &GroupByOp) -> Option<GroupClock> {
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
                best = Some(GroupClock { key, shift });
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
            let floor = TimeShift::floor(bucket.length * tick, tick);
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
        let place = gather.schema.index_of(name).unwrap_or(usize::MAX);
        if place < keys {
            let mut trace = self.group_key(flow, group, place, name);
            if let Some(clock) = &clock {
                // The time of a group is that of its clock.
                trace.time = if clock.key == place {
                    TimeLink::Moved(TimeShift::NONE)
                } else {
                    trace.time.moved(clock.shift.reversed())
                };
            }
            return trace;
        }
        let Some(result) = group.spec.results.get(place - keys) else {
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
        before: usize,
        join: &JoinOp,
        as_of: &AsOf,
        name: &str,
    ) -> AgeTrace {
        let from = join
            .columns
            .iter()
            .find(|(_, field)| field.name() == name)
            .map_or(name, |(from, _)| from.as_str());
        let streams = self.join_streams(stream.ops[before]);
        let there = self.of_streams(streams, from);
        let WalkFocus::Horizon(_) = &self.focus else {
            let mut trace = there;
            if as_of.direction != MatchDirection::Backward && trace.ends != DataAge::Ahead {
                trace.ends = DataAge::After;
            }
            trace.time = TimeLink::None;
            return trace;
        };
        let is_backward = as_of.direction == MatchDirection::Backward;
        let mut trace = there.clone();
        trace.time = TimeLink::None;
        if !trace.dated {
            if trace.ends == DataAge::Ahead {
                trace.ends = NOW;
            } else if !is_backward {
                trace.ends = DataAge::After;
            }
            return trace;
        }
        let here = self.column(stream, before, &as_of.time);
        let extents = (self.extent(stream.base), self.extent_of_streams(streams));
        let met = |time: &str| MetTimes {
            keys: vec![(here.clone(), self.of_streams(streams, time))],
            extents,
        };
        let by_time = met(&as_of.other_time);
        trace.ends = if !is_backward {
            DataAge::After
        } else {
            let mut ends = by_time.age(there.clone()).ends;
            if let Some(known_at) = &as_of.known_at {
                let by_known = met(known_at);
                let when = &by_known.keys[0].1;
                let declared = match (when.time, here.time.shift()) {
                    // The data says itself when it was known.
                    (TimeLink::None, Some(here)) => NOW.moved(here.most - extents.0),
                    _ => by_known.age(there).ends,
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
        before: usize,
        keys: &[(String, String)],
        streams: &[OpStream],
        column: Option<&str>,
    ) -> AgeTrace {
        let pairs = keys.iter().map(|(here, there)| {
            let here = self.column(stream, before, here);
            (here, self.of_streams(streams, there))
        });
        let met = MetTimes {
            keys: pairs.collect(),
            extents: (self.extent(stream.base), self.extent_of_streams(streams)),
        };
        // Which row is found tells what the keys tell.
        let there = column.map_or_else(AgeTrace::ahead, |column| self.of_streams(streams, column));
        met.age(there)
    }

    fn all(&self, stream: &OpStream, before: usize, names: &[String]) -> AgeTrace {
        let traces = names.iter().map(|name| self.column(stream, before, name));
        AgeTrace::of_all(traces)
    }

    fn mapped(&self, stream: &OpStream, before: usize, map: &MapOp) -> AgeTrace {
        let is_of_all = matches!(self.focus, WalkFocus::Horizon(_));
        let asks = &self.bound.ops[stream.ops[before]].asks;
        if let Some(met) = map.met.as_ref().filter(|_| is_of_all) {
            let other = asks.first().map(|ask| &self.bound.asks[*ask]);
            let streams = other.map_or(&[][..], |other| other.streams.as_slice());
            return self.met(stream, before, &met.keys, streams, met.column.as_deref());
        }
        let mut trace = self.all(stream, before, &map.reads);
        if let Some(moved) = &map.moved {
            let link = self.column(stream, before, &moved.from).time;
            trace.time = link.moved(moved.shift);
        }
        let Some(behind) = map.behind.filter(|_| is_of_all) else {
            return trace;
        };
        let values = map.asks.iter().flat_map(|ask| &ask.inputs);
        let values = values.filter(|input| !map.reads.contains(input));
        let mut values = AgeTrace::of_all(values.map(|name| self.column(stream, before, name)));
        let is_timed = map
            .reads
            .iter()
            .any(|read| self.column(stream, before, read).time.shift().is_some());
        values.ends = if is_timed {
            values.ends.or_younger(NOW).lagged(behind, None)
        } else {
            DataAge::After
        };
        values.time = TimeLink::None;
        trace.younger(values)
    }

    fn windowed(
        &self,
        stream: &OpStream,
        before: usize,
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
            Some(input) => self.column(stream, before, input),
            None => AgeTrace::ahead(),
        };
        trace.ends = match window.backward {
            true if is_of_all || trace.ends != DataAge::Ahead => DataAge::After,
            true => DataAge::Ahead,
            false => trace.ends.lagged(function.compute.behind(), Some(window)),
        };
        trace.time = TimeLink::None;
        if is_of_all && trace.ends != DataAge::Ahead {
            let order = self.column(stream, before, &window.time).time;
            trace.ends = match order.shift() {
                Some(shift) => trace.ends.moved(shift.spread()),
                // What comes before in another order may come later in time.
                None => DataAge::After,
            };
        }
        match parent {
            Some(parent) => trace.younger(self.column(stream, before, parent)),
            None => trace,
        }
    }

    fn written(&self, stream: &OpStream, after: usize, name: &str) -> AgeTrace {
        let Some(before) = after.checked_sub(1) else {
            return self.base(stream, name);
        };
        let id = stream.ops[before];
        let op = &self.bound.ops[id];
        let trace = match &op.op {
            PlanOp::Map(map) if map.writes.iter().any(|field| field.name() == name) => {
                self.mapped(stream, before, map)
            }
            PlanOp::Expand(expand) if expand.writes.iter().any(|field| field.name() == name) => {
                self.all(stream, before, &expand.reads)
            }
            PlanOp::Join(join) if join.is_written(name) => match &join.by {
                JoinBy::Time(as_of) => self.joined(stream, before, join, as_of, name),
                JoinBy::Equality(_) => {
                    if matches!(self.focus, WalkFocus::Label { .. }) {
                        let keys: Vec<String> = join.columns_here().cloned().collect();
                        self.all(stream, before, &keys)
                    } else {
                        let brought = join.columns.iter().find(|(_, field)| field.name() == name);
                        let column = brought.map(|(from, _)| from.as_str());
                        let streams = self.join_streams(id);
                        self.met(stream, before, &join.keys, streams, column)
                    }
                }
            },
            PlanOp::Window(window) => {
                match window.writes.iter().position(|field| field.name() == name) {
                    None => return self.column(stream, before, name),
                    Some(output) => self.windowed(stream, before, window, output),
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
        GroupFunction::WeightedMean { weight } => vec![result.value, weight],
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
            if x < y {
                b
            } else {
                a
            }
        }
    }
}
