//! Compilation of window plans: shared bounds, shared windows, cumulative statistics.

use arrow::datatypes::DataType;
use hashbrown::{HashMap, HashSet};

use crate::batch::{BatchRow, WindowBatch};
use crate::bounds::{BoundPair, WindowBound};
use crate::cumulative::*;
use crate::lag::{LagFunction, LagOutput, is_unsigned};
use crate::rolling::{WindowEvaluator, WindowKind, WindowRequest};
use crate::series_buffer::{BatchDistances, EntryRetention, FillSupport, InputRetention};
use crate::{
    ClosedEnds, EwmDecay, EwmStat, GapHandling, PeriodFill, SeriesFrame, SeriesLength,
    WindowFunction, WindowInput, WindowOutput, WindowPlan, WindowStat, WordEncoding,
};

/// The stateless part of a compiled plan.
#[derive(Debug, Clone, Default)]
pub(crate) struct CompiledPlan {
    pub edges: Vec<WindowBound>,
    pub windows: Vec<WindowEvaluator>,
    pub copies: Vec<LagFunction>,
    /// The inputs and the entries of them that future rows need.
    pub kept: Vec<InputRetention>,
    /// The times that future rows need; empty if times do not matter.
    pub time_needs: Vec<EntryRetention>,
    /// Whether statistics read the times of entries, not only bounds.
    pub reads_times: bool,
    /// Value of missing periods.
    pub fill: Option<PeriodFill>,
    /// Number of missing periods before a row beyond which they have no effect.
    pub periods: Option<i128>,
}

/// The stateful part of a compiled plan.
#[derive(Debug, Clone, Default)]
pub(crate) struct PlanAccumulators {
    pub frontiers: Vec<CumulativeFrontier>,
    pub memories: Vec<Box<dyn CumulativeState>>,
}

impl PlanAccumulators {
    /// Whether there is no state.
    pub fn is_empty(&self) -> bool {
        self.frontiers.is_empty() && self.memories.is_empty()
    }

    /// Index of the first entry of a series that a frontier has not consumed.
    pub fn next_unconsumed(&self, frontier: usize, series: usize) -> u64 {
        self.frontiers[frontier]
            .taken
            .get(series)
            .copied()
            .unwrap_or(0)
    }

    /// Determines the entries that each row of a batch consumes.
    pub fn advance(&mut self, rows: &[BatchRow], distances: &[Vec<u32>], series: usize) {
        self.frontiers
            .iter_mut()
            .for_each(|frontier| frontier.advance(rows, distances, series));
    }

    /// Distances of the entries that a batch needs.
    pub fn batch_distances<'a>(&'a self, distances: &'a [Vec<u32>]) -> BatchDistances<'a> {
        BatchDistances {
            distances,
            spans: self
                .frontiers
                .iter()
                .map(|frontier| &frontier.spans[..])
                .collect(),
        }
    }

    /// Consumes the entries of a batch and appends the requested outputs.
    pub fn run(
        &mut self,
        batch: &WindowBatch<'_>,
        series: usize,
        emit: &[bool],
        outputs: &mut [Vec<u64>],
    ) {
        for memory in &mut self.memories {
            memory.run(batch, &self.frontiers, series, emit, outputs);
        }
    }

    /// Ensures state for each of `series` series.
    pub fn grow(&mut self, series: usize) {
        self.frontiers
            .iter_mut()
            .for_each(|frontier| frontier.taken.resize(series, 0));
        self.memories
            .iter_mut()
            .for_each(|memory| memory.grow(series));
    }

    /// Removes a series; the last series takes its number.
    pub fn remove(&mut self, series: usize) {
        for frontier in &mut self.frontiers {
            frontier.taken.swap_remove(series);
        }
        self.memories
            .iter_mut()
            .for_each(|memory| memory.remove(series));
    }

    /// Removes all series but one.
    pub fn keep_only(&mut self, series: usize) {
        for frontier in &mut self.frontiers {
            frontier.taken.swap(0, series);
            frontier.taken.truncate(1);
        }
        self.memories
            .iter_mut()
            .for_each(|memory| memory.keep_only(series));
    }

    pub fn bytes(&self) -> usize {
        let frontiers = self
            .frontiers
            .iter()
            .map(|frontier| frontier.taken.capacity() * 8 + frontier.spans.capacity() * 8);
        frontiers.sum::<usize>()
            + self
                .memories
                .iter()
                .map(|memory| memory.bytes())
                .sum::<usize>()
    }
}

/// Compiles a plan.
pub(crate) fn compile_plan(plan: &WindowPlan) -> (CompiledPlan, PlanAccumulators) {
    let mut compiler = PlanCompiler {
        plan,
        indices: HashMap::new(),
        program: CompiledPlan::default(),
        running: StatisticGroups::default(),
    };
    let kept = |input: &WindowInput| InputRetention {
        keep: input.keep,
        fillable: fillable(&input.data_type),
        needs: Vec::new(),
    };
    compiler.program.kept = plan.inputs.iter().map(kept).collect();
    for (number, function) in plan.functions.iter().enumerate() {
        compiler.add(number, function);
    }
    compiler.finish()
}

/// Cumulative statistics by kind.
#[derive(Default)]
struct StatisticGroups {
    frontiers: Vec<CumulativeFrontier>,
    sums: Vec<CumulativeStat<SumAccumulator>>,
    spreads: Vec<CumulativeStat<VarianceAccumulator>>,
    shapes: Vec<CumulativeStat<ShapeAccumulator>>,
    ranges: Vec<CumulativeStat<ExtremesAccumulator>>,
    ends: Vec<CumulativeStat<FirstLastAccumulator>>,
    zeros: Vec<CumulativeStat<ZeroShareAccumulator>>,
    since: Vec<CumulativeStat<LastNonzeroAccumulator>>,
    lines: Vec<CumulativeStat<SlopeAccumulator>>,
    halves: Vec<CumulativeStat<QuantileHeaps>>,
    distinct: Vec<CumulativeStat<DistinctValues>>,
    ewms: Vec<CumulativeStat<EwmAccumulator>>,
    latest: Vec<CumulativeStat<LastValidAccumulator>>,
    seasons: Vec<SeasonalSums>,
}

struct PlanCompiler<'a> {
    plan: &'a WindowPlan,
    indices: HashMap<WindowBound, usize>,
    program: CompiledPlan,
    running: StatisticGroups,
}

impl PlanCompiler<'_> {
    fn add(&mut self, number: usize, function: &WindowOutput) {
        let input = function.input;
        let keep = self.plan.inputs[input].keep;
        let copied = |compiler: &mut Self, span: BoundPair, made| {
            let unsigned = is_unsigned(&compiler.plan.inputs[input].data_type);
            compiler.need(input, EntryRetention::Latest(span.start, span.end), false);
            compiler.program.copies.push(LagFunction {
                function: number,
                input,
                keep,
                unsigned,
                span,
                made,
            });
        };
        match function.compute {
            WindowFunction::Lag { by, as_of } => {
                let span = self.one(by, as_of.unwrap_or(0));
                copied(self, span, LagOutput::Copy);
            }
            WindowFunction::Diff { by } => {
                let span = self.one(by, 0);
                copied(self, span, LagOutput::Difference);
            }
            WindowFunction::PctChange { by } => {
                let span = self.one(by, 0);
                copied(self, span, LagOutput::Change);
            }
            WindowFunction::Window {
                frame: SeriesFrame::Expanding { gap },
                stat,
                min_periods,
            } => {
                let frontier = self.frontier(gap, input, reads_time(stat));
                self.expanding(number, input, frontier, stat, min_periods);
            }
            WindowFunction::Window {
                frame: SeriesFrame::Rolling { over, gap, closed },
                stat,
                min_periods,
            } => {
                let span = self.rolling(over, gap, closed);
                self.need(input, EntryRetention::From(span.start), reads_time(stat));
                self.window(
                    input,
                    WindowKind::All(span),
                    WindowRequest {
                        function: number,
                        stat,
                        min_periods,
                    },
                );
            }
            WindowFunction::Window {
                frame: SeriesFrame::Seasonal { season, over, gap },
                stat,
                min_periods,
            } => {
                let spans: Vec<BoundPair> = (0..over)
                    .rev()
                    .map(|turn| self.one(seasonal_distance(gap, season, turn), 0))
                    .collect();
                for span in &spans {
                    self.need(
                        input,
                        EntryRetention::Latest(span.start, span.end),
                        reads_time(stat),
                    );
                }
                self.window(
                    input,
                    WindowKind::Last(spans),
                    WindowRequest {
                        function: number,
                        stat,
                        min_periods,
                    },
                );
            }
            WindowFunction::Ewm {
                decay,
                adjust,
                ignore_na,
                stat,
                gap,
                min_periods,
            } => {
                let frontier = self.frontier(gap, input, matches!(decay, EwmDecay::HalfLife(_)));
                let config = EwmWeights {
                    decay,
                    adjust,
                    ignore_na,
                };
                let asked: StatRequest<EwmStat> = StatRequest {
                    function: number,
                    question: stat,
                    min_periods,
                };
                add_to_group(&mut self.running.ewms, input, keep, frontier, config, asked);
            }
            WindowFunction::SeasonalIndex {
                slot,
                gap,
                min_periods,
                strength,
                parent,
            } => {
                // The slot of a missing period is unknown.
                self.program.kept[slot].fillable = FillSupport::Never;
                let frontier = self.frontier(gap, input, false);
                self.need(slot, EntryRetention::Frontier(frontier), false);
                let ask = SeasonalRequest {
                    function: number,
                    min_periods,
                    strength,
                    parent,
                };
                let same = |other: &&mut SeasonalSums| {
                    (other.input, other.slot, other.frontier) == (input, slot, frontier)
                };
                match self.running.seasons.iter_mut().find(same) {
                    Some(seasons) => seasons.asks.push(ask),
                    None => {
                        let mut seasons = SeasonalSums::new(input, slot, frontier);
                        seasons.asks.push(ask);
                        self.running.seasons.push(seasons);
                    }
                }
            }
            WindowFunction::LastValid { limit } => self.latest(number, input, limit, false),
            WindowFunction::LastValidTime { limit } => self.latest(number, input, limit, true),
        }
    }

    fn latest(&mut self, function: usize, input: usize, limit: Option<u64>, time: bool) {
        let keep = self.plan.inputs[input].keep;
        let frontier = self.frontier(SeriesLength::ZERO, input, time);
        let question = LastValidRequest {
            limit: limit.unwrap_or(u64::MAX),
            time,
        };
        add_to_group(
            &mut self.running.latest,
            input,
            keep,
            frontier,
            (),
            StatRequest {
                function,
                question,
                min_periods: 0,
            },
        );
    }

    fn window(&mut self, input: usize, cover: WindowKind, ask: WindowRequest) {
        let windows = &mut self.program.windows;
        match windows
            .iter_mut()
            .find(|windows| windows.input == input && windows.cover == cover)
        {
            Some(windows) => windows.asks.push(ask),
            None => windows.push(WindowEvaluator {
                input,
                keep: self.plan.inputs[input].keep,
                cover,
                asks: vec![ask],
            }),
        }
    }

    fn expanding(
        &mut self,
        function: usize,
        input: usize,
        frontier: usize,
        stat: WindowStat,
        min_periods: u64,
    ) {
        let keep = self.plan.inputs[input].keep;
        let asked = StatRequest {
            function,
            question: stat,
            min_periods,
        };
        let groups = &mut self.running;
        match stat {
            WindowStat::Count | WindowStat::Sum | WindowStat::Mean => {
                add_to_group(&mut groups.sums, input, keep, frontier, (), asked)
            }
            WindowStat::Var { .. } | WindowStat::Std { .. } => {
                add_to_group(&mut groups.spreads, input, keep, frontier, (), asked)
            }
            WindowStat::Skew | WindowStat::Kurtosis => {
                add_to_group(&mut groups.shapes, input, keep, frontier, (), asked)
            }
            WindowStat::Min | WindowStat::Max => {
                add_to_group(&mut groups.ranges, input, keep, frontier, (), asked)
            }
            WindowStat::First | WindowStat::Last => {
                add_to_group(&mut groups.ends, input, keep, frontier, (), asked)
            }
            WindowStat::ZeroShare => {
                add_to_group(&mut groups.zeros, input, keep, frontier, (), asked)
            }
            WindowStat::SinceNonzero { .. } => {
                add_to_group(&mut groups.since, input, keep, frontier, (), asked)
            }
            WindowStat::Slope { unit } => add_to_group(
                &mut groups.lines,
                input,
                keep,
                frontier,
                unit.is_some(),
                asked,
            ),
            WindowStat::Quantile(q) => {
                add_to_group(&mut groups.halves, input, keep, frontier, q, asked)
            }
            WindowStat::Unique => add_to_group(
                &mut groups.distinct,
                input,
                keep,
                frontier,
                keep == WordEncoding::Number,
                asked,
            ),
        }
    }

    /// The bounds of the entries exactly `by` before the row, or up to `as_of` ticks older.
    fn one(&mut self, by: SeriesLength, as_of: i64) -> BoundPair {
        let end = WindowBound::back(by, same_kind(by));
        if end.is_own() {
            // The row's own entry, whatever its time.
            return BoundPair {
                start: self.edge(WindowBound::Rows(1)),
                end: self.edge(end),
            };
        }
        let older = if matches!(end, WindowBound::Ticks(_)) {
            as_of.saturating_add(1)
        } else {
            1
        };
        BoundPair {
            start: self.edge(end.further(older)),
            end: self.edge(end),
        }
    }

    fn rolling(&mut self, over: SeriesLength, gap: SeriesLength, closed: ClosedEnds) -> BoundPair {
        let (start, end) = (
            WindowBound::back(gap, over),
            WindowBound::back(gap, same_kind(over)),
        );
        let start = if closed.has_first() {
            start.further(1)
        } else {
            start
        };
        let end = if closed.has_last() {
            end
        } else {
            end.further(1)
        };
        // A window of length zero may end before it starts: it is empty.
        let end = if end.is_before(start) { start } else { end };
        BoundPair {
            start: self.edge(start),
            end: self.edge(end),
        }
    }

    /// The frontier `gap` before each row, for statistics of an input.
    fn frontier(&mut self, gap: SeriesLength, input: usize, reads_time: bool) -> usize {
        let edge = self.edge(WindowBound::back(gap, same_kind(gap)));
        let frontiers = &mut self.running.frontiers;
        let frontier = frontiers
            .iter()
            .position(|frontier| frontier.edge == edge)
            .unwrap_or_else(|| {
                frontiers.push(CumulativeFrontier {
                    edge,
                    taken: Vec::new(),
                    spans: Vec::new(),
                });
                frontiers.len() - 1
            });
        self.need(input, EntryRetention::Frontier(frontier), reads_time);
        if matches!(self.program.edges[edge], WindowBound::Ticks(_)) {
            self.program.time_needs.push(EntryRetention::From(edge));
        }
        frontier
    }

    /// Records what future rows need of an input, and whether they need its times.
    fn need(&mut self, input: usize, need: EntryRetention, reads_time: bool) {
        self.program.kept[input].needs.push(need);
        self.program.reads_times |= reads_time;
        let by_time = match need {
            EntryRetention::From(edge) | EntryRetention::Latest(_, edge) => {
                matches!(self.program.edges[edge], WindowBound::Ticks(_))
            }
            EntryRetention::Frontier(_) => false,
        };
        if by_time || reads_time {
            self.program.time_needs.push(need);
        }
    }

    fn edge(&mut self, edge: WindowBound) -> usize {
        // Zero ticks back is the row itself.
        let edge = if edge == WindowBound::Ticks(0) {
            WindowBound::Rows(0)
        } else {
            edge
        };
        let edges = &mut self.program.edges;
        *self.indices.entry(edge).or_insert_with(|| {
            edges.push(edge);
            edges.len() - 1
        })
    }

    fn finish(mut self) -> (CompiledPlan, PlanAccumulators) {
        fn boxed<M: CumulativeState + 'static>(
            memories: Vec<M>,
        ) -> impl Iterator<Item = Box<dyn CumulativeState>> {
            memories
                .into_iter()
                .map(|memory| Box::new(memory) as Box<dyn CumulativeState>)
        }
        if let GapHandling::Complete { fill, .. } = self.plan.gaps {
            self.program.fill = Some(fill);
        }
        if self.program.fill == Some(PeriodFill::Forward) {
            let before = EntryRetention::From(self.edge(WindowBound::Rows(2)));
            self.program
                .kept
                .iter_mut()
                .for_each(|kept| kept.needs.push(before));
        }
        if let (GapHandling::Complete { every, .. }, []) =
            (self.plan.gaps, &self.running.frontiers[..])
        {
            let periods = self.program.edges.iter().map(|edge| match *edge {
                WindowBound::Rows(rows) => i128::from(rows),
                WindowBound::Ticks(ticks) => i128::from(ticks) / i128::from(every.max(1)) + 1,
            });
            self.program.periods = periods.max().map(|periods| periods + 1);
        }
        let groups = self.running;
        if self.program.reads_times {
            // Cumulative statistics read the times of the entries they consume.
            self.program
                .time_needs
                .extend((0..groups.frontiers.len()).map(EntryRetention::Frontier));
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
        (
            self.program,
            PlanAccumulators {
                frontiers: groups.frontiers,
                memories,
            },
        )
    }
}

fn fillable(data_type: &DataType) -> FillSupport {
    match data_type {
        other if other.is_temporal() => FillSupport::Forward,
        _ => FillSupport::Zero,
    }
}

/// Adds an output to the statistic that computes it; creates the statistic if there is none.
fn add_to_group<A: StatAccumulator>(
    groups: &mut Vec<CumulativeStat<A>>,
    input: usize,
    keep: WordEncoding,
    frontier: usize,
    config: A::Config,
    asked: StatRequest<A::Question>,
) {
    let same = |other: &&mut CumulativeStat<A>| {
        (other.input, other.frontier) == (input, frontier) && other.config == config
    };
    if let Some(group) = groups.iter_mut().find(same) {
        group.asked.push(asked);
        return;
    }
    let mut group = CumulativeStat::new(input, keep, frontier, config);
    group.asked.push(asked);
    groups.push(group);
}

/// Whether a statistic reads the times of entries.
fn reads_time(stat: WindowStat) -> bool {
    matches!(
        stat,
        WindowStat::Slope { unit: Some(_) } | WindowStat::SinceNonzero { unit: Some(_) }
    )
}

/// Zero, of the same kind as a length.
fn same_kind(length: SeriesLength) -> SeriesLength {
    match length {
        SeriesLength::Rows(_) => SeriesLength::Rows(0),
        SeriesLength::Ticks(_) => SeriesLength::Ticks(0),
    }
}

/// `gap` plus `turn` seasons.
fn seasonal_distance(gap: SeriesLength, season: SeriesLength, turn: u64) -> SeriesLength {
    match (gap, season) {
        (SeriesLength::Rows(gap), SeriesLength::Rows(season)) => {
            SeriesLength::Rows(season.saturating_mul(turn).saturating_add(gap))
        }
        (SeriesLength::Ticks(_), SeriesLength::Rows(season)) => {
            SeriesLength::Rows(season.saturating_mul(turn))
        }
        (SeriesLength::Ticks(gap), SeriesLength::Ticks(season)) => {
            SeriesLength::Ticks(season.saturating_mul(turn as i64).saturating_add(gap))
        }
        (SeriesLength::Rows(_), SeriesLength::Ticks(season)) => {
            SeriesLength::Ticks(season.saturating_mul(turn as i64))
        }
    }
}
