//! Compilation of window plans: shared bounds, shared windows, cumulative statistics.

use arrow::datatypes::DataType;
use hashbrown::{HashMap, HashSet};

use crate::batch::{Batch, Row};
use crate::copies::{Copied, Made, is_unsigned};
use crate::edge::{Edge, Span};
use crate::history::{Fillable, Kept, Marks, Need};
use crate::running::*;
use crate::windows::{Ask, Cover, Windows};
use crate::{
    Closed, Compute, Decay, EwmStat, Fill, Frame, Function, Gaps, Keep, Length, Stat, WindowInput, WindowPlan,
};

/// The stateless part of a compiled plan.
#[derive(Debug, Clone, Default)]
pub(crate) struct Program {
    pub edges: Vec<Edge>,
    pub windows: Vec<Windows>,
    pub copies: Vec<Copied>,
    /// The inputs and the entries of them that future rows need.
    pub kept: Vec<Kept>,
    /// The times that future rows need; empty if times do not matter.
    pub time_needs: Vec<Need>,
    /// Whether statistics read the times of entries, not only bounds.
    pub reads_times: bool,
    /// Value of missing periods.
    pub fill: Option<Fill>,
    /// Number of missing periods before a row beyond which they have no effect.
    pub periods: Option<i128>,
}

/// The stateful part of a compiled plan.
#[derive(Debug, Clone, Default)]
pub(crate) struct Memories {
    pub frontiers: Vec<Frontier>,
    pub memories: Vec<Box<dyn Memory>>,
}

impl Memories {
    /// Whether there is no state.
    pub fn is_empty(&self) -> bool {
        self.frontiers.is_empty() && self.memories.is_empty()
    }

    /// Index of the first entry of a series that a frontier has not consumed.
    pub fn taken(&self, frontier: usize, series: usize) -> u64 {
        self.frontiers[frontier].taken.get(series).copied().unwrap_or(0)
    }

    /// Determines the entries that each row of a batch consumes.
    pub fn advance(&mut self, rows: &[Row], distances: &[Vec<u32>], series: usize) {
        self.frontiers.iter_mut().for_each(|frontier| frontier.advance(rows, distances, series));
    }

    /// Distances of the entries that a batch needs.
    pub fn marks<'a>(&'a self, distances: &'a [Vec<u32>]) -> Marks<'a> {
        Marks { distances, spans: self.frontiers.iter().map(|frontier| &frontier.spans[..]).collect() }
    }

    /// Consumes the entries of a batch and appends the requested outputs.
    pub fn run(&mut self, batch: &Batch<'_>, series: usize, emit: &[bool], outputs: &mut [Vec<u64>]) {
        for memory in &mut self.memories {
            memory.run(batch, &self.frontiers, series, emit, outputs);
        }
    }

    /// Ensures state for each of `series` series.
    pub fn grow(&mut self, series: usize) {
        self.frontiers.iter_mut().for_each(|frontier| frontier.taken.resize(series, 0));
        self.memories.iter_mut().for_each(|memory| memory.grow(series));
    }

    /// Removes a series; the last series takes its number.
    pub fn remove(&mut self, series: usize) {
        for frontier in &mut self.frontiers {
            frontier.taken.swap_remove(series);
        }
        self.memories.iter_mut().for_each(|memory| memory.remove(series));
    }

    /// Removes all series but one.
    pub fn keep_only(&mut self, series: usize) {
        for frontier in &mut self.frontiers {
            frontier.taken.swap(0, series);
            frontier.taken.truncate(1);
        }
        self.memories.iter_mut().for_each(|memory| memory.keep_only(series));
    }

    pub fn bytes(&self) -> usize {
        let frontiers =
            self.frontiers.iter().map(|frontier| frontier.taken.capacity() * 8 + frontier.spans.capacity() * 8);
        frontiers.sum::<usize>() + self.memories.iter().map(|memory| memory.bytes()).sum::<usize>()
    }
}

/// Compiles a plan.
pub(crate) fn compile(plan: &WindowPlan) -> (Program, Memories) {
    let mut compiler =
        Compiler { plan, indices: HashMap::new(), program: Program::default(), running: Groups::default() };
    let kept = |input: &WindowInput| Kept { keep: input.keep, fillable: fillable(&input.data_type), needs: Vec::new() };
    compiler.program.kept = plan.inputs.iter().map(kept).collect();
    for (number, function) in plan.functions.iter().enumerate() {
        compiler.add(number, function);
    }
    compiler.finish()
}

/// Cumulative statistics by kind.
#[derive(Default)]
struct Groups {
    frontiers: Vec<Frontier>,
    sums: Vec<Running<Sums>>,
    spreads: Vec<Running<Spread>>,
    shapes: Vec<Running<Shape>>,
    ranges: Vec<Running<Range>>,
    ends: Vec<Running<Ends>>,
    zeros: Vec<Running<Zeros>>,
    since: Vec<Running<Since>>,
    lines: Vec<Running<Line>>,
    halves: Vec<Running<Halves>>,
    distinct: Vec<Running<Distinct>>,
    ewms: Vec<Running<Ewm>>,
    latest: Vec<Running<Latest>>,
    seasons: Vec<Seasons>,
}

struct Compiler<'a> {
    plan: &'a WindowPlan,
    indices: HashMap<Edge, usize>,
    program: Program,
    running: Groups,
}

impl Compiler<'_> {
    fn add(&mut self, number: usize, function: &Function) {
        let input = function.input;
        let keep = self.plan.inputs[input].keep;
        let copied = |compiler: &mut Self, span: Span, made| {
            let unsigned = is_unsigned(&compiler.plan.inputs[input].data_type);
            compiler.need(input, Need::Latest(span.start, span.end), false);
            compiler.program.copies.push(Copied { function: number, input, keep, unsigned, span, made });
        };
        match function.compute {
            Compute::Lag { by, as_of } => {
                let span = self.one(by, as_of.unwrap_or(0));
                copied(self, span, Made::Copy);
            }
            Compute::Diff { by } => {
                let span = self.one(by, 0);
                copied(self, span, Made::Difference);
            }
            Compute::PctChange { by } => {
                let span = self.one(by, 0);
                copied(self, span, Made::Change);
            }
            Compute::Window { frame: Frame::Expanding { gap }, stat, min_periods } => {
                let frontier = self.frontier(gap, input, reads_time(stat));
                self.expanding(number, input, frontier, stat, min_periods);
            }
            Compute::Window { frame: Frame::Rolling { over, gap, closed }, stat, min_periods } => {
                let span = self.rolling(over, gap, closed);
                self.need(input, Need::From(span.start), reads_time(stat));
                self.window(input, Cover::All(span), Ask { function: number, stat, min_periods });
            }
            Compute::Window { frame: Frame::Seasonal { season, over, gap }, stat, min_periods } => {
                let spans: Vec<Span> = (0..over).rev().map(|turn| self.one(turns(gap, season, turn), 0)).collect();
                for span in &spans {
                    self.need(input, Need::Latest(span.start, span.end), reads_time(stat));
                }
                self.window(input, Cover::Last(spans), Ask { function: number, stat, min_periods });
            }
            Compute::Ewm { decay, adjust, ignore_na, stat, gap, min_periods } => {
                let frontier = self.frontier(gap, input, matches!(decay, Decay::HalfLife(_)));
                let config = Fading { decay, adjust, ignore_na };
                let asked: Asked<EwmStat> = Asked { function: number, question: stat, min_periods };
                share(&mut self.running.ewms, input, keep, frontier, config, asked);
            }
            Compute::SeasonalIndex { slot, gap, min_periods, strength, parent } => {
                // The slot of a missing period is unknown.
                self.program.kept[slot].fillable = Fillable::Never;
                let frontier = self.frontier(gap, input, false);
                self.need(slot, Need::Frontier(frontier), false);
                let ask = IndexAsk { function: number, min_periods, strength, parent };
                let same = |other: &&mut Seasons| (other.input, other.slot, other.frontier) == (input, slot, frontier);
                match self.running.seasons.iter_mut().find(same) {
                    Some(seasons) => seasons.asks.push(ask),
                    None => {
                        let mut seasons = Seasons::new(input, slot, frontier);
                        seasons.asks.push(ask);
                        self.running.seasons.push(seasons);
                    }
                }
            }
            Compute::LastValid { limit } => self.latest(number, input, limit, false),
            Compute::LastValidTime { limit } => self.latest(number, input, limit, true),
        }
    }

    fn latest(&mut self, function: usize, input: usize, limit: Option<u64>, time: bool) {
        let keep = self.plan.inputs[input].keep;
        let frontier = self.frontier(Length::ZERO, input, time);
        let question = Wanted { limit: limit.unwrap_or(u64::MAX), time };
        share(&mut self.running.latest, input, keep, frontier, (), Asked { function, question, min_periods: 0 });
    }

    fn window(&mut self, input: usize, cover: Cover, ask: Ask) {
        let windows = &mut self.program.windows;
        match windows.iter_mut().find(|windows| windows.input == input && windows.cover == cover) {
            Some(windows) => windows.asks.push(ask),
            None => windows.push(Windows { input, keep: self.plan.inputs[input].keep, cover, asks: vec![ask] }),
        }
    }

    fn expanding(&mut self, function: usize, input: usize, frontier: usize, stat: Stat, min_periods: u64) {
        let keep = self.plan.inputs[input].keep;
        let asked = Asked { function, question: stat, min_periods };
        let groups = &mut self.running;
        match stat {
            Stat::Count | Stat::Sum | Stat::Mean => share(&mut groups.sums, input, keep, frontier, (), asked),
            Stat::Var { .. } | Stat::Std { .. } => share(&mut groups.spreads, input, keep, frontier, (), asked),
            Stat::Skew | Stat::Kurtosis => share(&mut groups.shapes, input, keep, frontier, (), asked),
            Stat::Min | Stat::Max => share(&mut groups.ranges, input, keep, frontier, (), asked),
            Stat::First | Stat::Last => share(&mut groups.ends, input, keep, frontier, (), asked),
            Stat::ZeroShare => share(&mut groups.zeros, input, keep, frontier, (), asked),
            Stat::SinceNonzero { .. } => share(&mut groups.since, input, keep, frontier, (), asked),
            Stat::Slope { unit } => share(&mut groups.lines, input, keep, frontier, unit.is_some(), asked),
            Stat::Quantile(q) => share(&mut groups.halves, input, keep, frontier, q, asked),
            Stat::Unique => share(&mut groups.distinct, input, keep, frontier, keep == Keep::Number, asked),
        }
    }

    /// The bounds of the entries exactly `by` before the row, or up to `as_of` ticks older.
    fn one(&mut self, by: Length, as_of: i64) -> Span {
        let end = Edge::back(by, same_kind(by));
        if end.is_own() {
            // The row's own entry, whatever its time.
            return Span { start: self.edge(Edge::Rows(1)), end: self.edge(end) };
        }
        let older = if matches!(end, Edge::Ticks(_)) { as_of.saturating_add(1) } else { 1 };
        Span { start: self.edge(end.further(older)), end: self.edge(end) }
    }

    fn rolling(&mut self, over: Length, gap: Length, closed: Closed) -> Span {
        let (start, end) = (Edge::back(gap, over), Edge::back(gap, same_kind(over)));
        let start = if closed.has_first() { start.further(1) } else { start };
        let end = if closed.has_last() { end } else { end.further(1) };
        // A window of length zero may end before it starts: it is empty.
        let end = if end.is_before(start) { start } else { end };
        Span { start: self.edge(start), end: self.edge(end) }
    }

    /// The frontier `gap` before each row, for statistics of an input.
    fn frontier(&mut self, gap: Length, input: usize, reads_time: bool) -> usize {
        let edge = self.edge(Edge::back(gap, same_kind(gap)));
        let frontiers = &mut self.running.frontiers;
        let frontier = frontiers.iter().position(|frontier| frontier.edge == edge).unwrap_or_else(|| {
            frontiers.push(Frontier { edge, taken: Vec::new(), spans: Vec::new() });
            frontiers.len() - 1
        });
        self.need(input, Need::Frontier(frontier), reads_time);
        if matches!(self.program.edges[edge], Edge::Ticks(_)) {
            self.program.time_needs.push(Need::From(edge));
        }
        frontier
    }

    /// Records what future rows need of an input, and whether they need its times.
    fn need(&mut self, input: usize, need: Need, reads_time: bool) {
        self.program.kept[input].needs.push(need);
        self.program.reads_times |= reads_time;
        let by_time = match need {
            Need::From(edge) | Need::Latest(_, edge) => matches!(self.program.edges[edge], Edge::Ticks(_)),
            Need::Frontier(_) => false,
        };
        if by_time || reads_time {
            self.program.time_needs.push(need);
        }
    }

    fn edge(&mut self, edge: Edge) -> usize {
        // Zero ticks back is the row itself.
        let edge = if edge == Edge::Ticks(0) { Edge::Rows(0) } else { edge };
        let edges = &mut self.program.edges;
        *self.indices.entry(edge).or_insert_with(|| {
            edges.push(edge);
            edges.len() - 1
        })
    }

    fn finish(mut self) -> (Program, Memories) {
        fn boxed<M: Memory + 'static>(memories: Vec<M>) -> impl Iterator<Item = Box<dyn Memory>> {
            memories.into_iter().map(|memory| Box::new(memory) as Box<dyn Memory>)
        }
        if let Gaps::Complete { fill, .. } = self.plan.gaps {
            self.program.fill = Some(fill);
        }
        if self.program.fill == Some(Fill::Forward) {
            let before = Need::From(self.edge(Edge::Rows(2)));
            self.program.kept.iter_mut().for_each(|kept| kept.needs.push(before));
        }
        if let (Gaps::Complete { every, .. }, []) = (self.plan.gaps, &self.running.frontiers[..]) {
            let periods = self.program.edges.iter().map(|edge| match *edge {
                Edge::Rows(rows) => i128::from(rows),
                Edge::Ticks(ticks) => i128::from(ticks) / i128::from(every.max(1)) + 1,
            });
            self.program.periods = periods.max().map(|periods| periods + 1);
        }
        let groups = self.running;
        if self.program.reads_times {
            // Cumulative statistics read the times of the entries they consume.
            self.program.time_needs.extend((0..groups.frontiers.len()).map(Need::Frontier));
        }
        let memories = boxed(groups.sums)
            .chain(boxed(groups.spreads))
            .chain(boxed(groups.shapes))
            .chain(boxed(groups.ranges))
            .chain(boxed(groups.ends))
            .chain(boxed(groups.zeros))
            .chain(boxed(groups.since))
            .chain(boxed(groups.lines))
            .chain(boxed(groups.halves))
            .chain(boxed(groups.distinct))
            .chain(boxed(groups.ewms))
            .chain(boxed(groups.latest))
            .chain(boxed(groups.seasons))
            .collect();
        let needs = self.program.kept.iter_mut().map(|kept| &mut kept.needs);
        for needs in needs.chain([&mut self.program.time_needs]) {
            let mut seen = HashSet::new();
            needs.retain(|need| seen.insert(*need));
        }
        (self.program, Memories { frontiers: groups.frontiers, memories })
    }
}

fn fillable(data_type: &DataType) -> Fillable {
    match data_type {
        other if other.is_temporal() => Fillable::Forward,
        _ => Fillable::Zero,
    }
}

/// Adds an output to the statistic that computes it; creates the statistic if there is none.
fn share<A: Accumulator>(
    groups: &mut Vec<Running<A>>,
    input: usize,
    keep: Keep,
    frontier: usize,
    config: A::Config,
    asked: Asked<A::Question>,
) {
    let same = |other: &&mut Running<A>| (other.input, other.frontier) == (input, frontier) && other.config == config;
    if let Some(group) = groups.iter_mut().find(same) {
        group.asked.push(asked);
        return;
    }
    let mut group = Running::new(input, keep, frontier, config);
    group.asked.push(asked);
    groups.push(group);
}

/// Whether a statistic reads the times of entries.
fn reads_time(stat: Stat) -> bool {
    matches!(stat, Stat::Slope { unit: Some(_) } | Stat::SinceNonzero { unit: Some(_) })
}

/// Zero, of the same kind as a length.
fn same_kind(length: Length) -> Length {
    match length {
        Length::Rows(_) => Length::Rows(0),
        Length::Ticks(_) => Length::Ticks(0),
    }
}

/// `gap` plus `turn` seasons.
fn turns(gap: Length, season: Length, turn: u64) -> Length {
    match (gap, season) {
        (Length::Rows(gap), Length::Rows(season)) => Length::Rows(season.saturating_mul(turn).saturating_add(gap)),
        (Length::Ticks(_), Length::Rows(season)) => Length::Rows(season.saturating_mul(turn)),
        (Length::Ticks(gap), Length::Ticks(season)) => {
            Length::Ticks(season.saturating_mul(turn as i64).saturating_add(gap))
        }
        (Length::Rows(_), Length::Ticks(season)) => Length::Ticks(season.saturating_mul(turn as i64)),
    }
}
