//! Compilation of window plans: shared bounds, shared windows, cumulative statistics.

use arrow::datatypes::DataType;
use forebay_model::{CalendarSpan, ColumnClock, TimeDistance};
use hashbrown::{HashMap, HashSet};

use crate::batch::{BatchRow, BoundPair, WindowBatch};
use crate::bounds::WindowBound;
use crate::cumulative::*;
use crate::lag::{LagFunction, LagOutput, is_unsigned};
use crate::retention::{BatchDistances, EntryRetention, FillSupport, InputRetention};
use crate::rolling::{WindowEvaluator, WindowKind, WindowRequest};
use crate::{
    ClosedEnds, EwmDecay, EwmStat, GapHandling, PeriodFill, SeriesFrame, SeriesLength,
    WindowFunction, WindowOutput, WindowPlan, WindowStat, WordEncoding,
};

/// The stateless part of a compiled plan.
#[derive(Debug, Clone, Default)]
pub(crate) struct CompiledPlan {
    pub edges: Vec<WindowBound>,
    /// The clock of the time column; `None` where nothing is by the calendar.
    pub clock: Option<ColumnClock>,
    pub windows: Vec<WindowEvaluator>,
    pub copies: Vec<LagFunction>,
    /// The inputs and the entries of them that future rows need.
    pub kept: Vec<InputRetention>,
    /// The times that future rows need; empty if times do not matter.
    pub time_needs: Vec<EntryRetention>,
    /// True if statistics read the times of entries, not only bounds.
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
    /// True if there is no state.
    pub fn is_empty(&self) -> bool {
        self.frontiers.is_empty() && self.memories.is_empty()
    }

    /// Index of the first entry of a series that a frontier has not consumed.
    pub fn next_unconsumed(&self, frontier: usize, series: usize) -> u64 {
        match self.frontiers[frontier].taken.get(series) {
            Some(next) => *next,
            None => 0,
        }
    }

    /// Determines the entries that each row of a batch consumes.
    pub fn advance(&mut self, rows: &[BatchRow], distances: &[Vec<u32>], series: usize) {
        for frontier in &mut self.frontiers {
            frontier.advance(rows, distances, series);
        }
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
        for frontier in &mut self.frontiers {
            frontier.taken.resize(series, 0);
        }
        for memory in &mut self.memories {
            memory.grow(series);
        }
    }

    /// Removes a series; the last series takes its number.
    pub fn remove(&mut self, series: usize) {
        for frontier in &mut self.frontiers {
            frontier.taken.swap_remove(series);
        }
        for memory in &mut self.memories {
            memory.remove(series);
        }
    }

    /// Removes all series but one.
    pub fn keep_only(&mut self, series: usize) {
        for frontier in &mut self.frontiers {
            frontier.taken.swap(0, series);
            frontier.taken.truncate(1);
        }
        for memory in &mut self.memories {
            memory.keep_only(series);
        }
    }

    pub fn bytes(&self) -> usize {
        let mut bytes = 0;
        for frontier in &self.frontiers {
            bytes += frontier.taken.capacity() * 8 + frontier.spans.capacity() * 8;
        }
        for memory in &self.memories {
            bytes += memory.bytes();
        }
        bytes
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
    for input in &plan.inputs {
        compiler.program.kept.push(InputRetention {
            keep: input.keep.of_words(),
            fillable: fillable(&input.data_type),
            needs: Vec::new(),
        });
    }
    if plan.has_calendar() {
        // A zone that is not known is a fault of `WindowPlan::check`, which each push calls.
        compiler.program.clock = ColumnClock::of(&plan.time).ok().flatten();
    }
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

impl StatisticGroups {
    fn into_accumulators(self) -> PlanAccumulators {
        let mut memories = Vec::new();
        add_boxed(&mut memories, self.sums);
        add_boxed(&mut memories, self.spreads);
        add_boxed(&mut memories, self.shapes);
        add_boxed(&mut memories, self.ranges);
        add_boxed(&mut memories, self.ends);
        add_boxed(&mut memories, self.zeros);
        add_boxed(&mut memories, self.since);
        add_boxed(&mut memories, self.lines);
        add_boxed(&mut memories, self.halves);
        add_boxed(&mut memories, self.distinct);
        add_boxed(&mut memories, self.ewms);
        add_boxed(&mut memories, self.latest);
        add_boxed(&mut memories, self.seasons);
        PlanAccumulators {
            frontiers: self.frontiers,
            memories,
        }
    }
}

struct PlanCompiler<'a> {
    plan: &'a WindowPlan,
    indices: HashMap<WindowBound, usize>,
    program: CompiledPlan,
    running: StatisticGroups,
}

impl PlanCompiler<'_> {
    /// Compiles the function of an output.
    fn add(&mut self, number: usize, function: &WindowOutput) {
        let input = function.input;
        let exact = CalendarSpan::default();
        match function.compute {
            WindowFunction::Lag { by, as_of } => {
                let tolerance = as_of.map_or(exact, TimeDistance::span);
                self.copy(number, input, by, tolerance, LagOutput::Copy);
            }
            WindowFunction::Diff { by } => {
                self.copy(number, input, by, exact, LagOutput::Difference);
            }
            WindowFunction::PctChange { by } => {
                self.copy(number, input, by, exact, LagOutput::Change);
            }
            WindowFunction::Window {
                frame,
                stat,
                min_periods,
            } => {
                let request = WindowRequest {
                    function: number,
                    stat,
                    min_periods,
                };
                self.framed(input, frame, request);
            }
            WindowFunction::Ewm {
                decay,
                adjust,
                ignore_na,
                stat,
                gap,
                min_periods,
            } => {
                let weights = EwmWeights {
                    decay,
                    adjust,
                    ignore_na,
                };
                let request = StatRequest {
                    function: number,
                    question: stat,
                    min_periods,
                };
                self.ewm(input, gap, weights, request);
            }
            WindowFunction::SeasonalIndex {
                slot,
                gap,
                min_periods,
                strength,
                parent,
            } => {
                let request = SeasonalRequest {
                    function: number,
                    min_periods,
                    strength,
                    parent,
                };
                self.seasonal_index(input, slot, gap, request);
            }
            WindowFunction::LastValid { limit } => self.latest(number, input, limit, false),
            WindowFunction::LastValidTime { limit } => self.latest(number, input, limit, true),
        }
    }

    /// Adds an output that copies the value of the row `by` before, or compares with it.
    fn copy(
        &mut self,
        function: usize,
        input: usize,
        by: SeriesLength,
        tolerance: CalendarSpan,
        output: LagOutput,
    ) {
        let span = self.one(by, tolerance);
        self.need(input, EntryRetention::Latest(span.start, span.end), false);
        let column = &self.plan.inputs[input];
        self.program.copies.push(LagFunction {
            function,
            input,
            keep: column.keep.of_words(),
            unsigned: is_unsigned(&column.data_type),
            span,
            made: output,
        });
    }

    /// Adds an exponentially weighted statistic.
    fn ewm(
        &mut self,
        input: usize,
        gap: SeriesLength,
        weights: EwmWeights,
        request: StatRequest<EwmStat>,
    ) {
        let reads_time = matches!(weights.decay, EwmDecay::HalfLife(_));
        let frontier = self.frontier(gap, input, reads_time);
        let source = self.source(input, frontier);
        add_to_group(&mut self.running.ewms, source, weights, request);
    }

    /// Adds a statistic over a frame.
    fn framed(&mut self, input: usize, frame: SeriesFrame, request: WindowRequest) {
        let reads_time = reads_time(request.stat);
        match frame {
            SeriesFrame::Expanding { gap } => {
                let frontier = self.frontier(gap, input, reads_time);
                self.expanding(input, frontier, request);
            }
            SeriesFrame::Rolling { over, gap, closed } => {
                let span = self.rolling(over, gap, closed);
                self.need(input, EntryRetention::From(span.start), reads_time);
                self.window(input, WindowKind::All(span), request);
            }
            SeriesFrame::Seasonal { season, over, gap } => {
                let mut spans: Vec<BoundPair> = Vec::new();
                for season_index in (0..over).rev() {
                    let distance = seasonal_distance(gap, season, season_index);
                    spans.push(self.one(distance, CalendarSpan::default()));
                }
                for span in &spans {
                    let retention = EntryRetention::Latest(span.start, span.end);
                    self.need(input, retention, reads_time);
                }
                self.window(input, WindowKind::Last(spans), request);
            }
        }
    }

    /// Adds a seasonal index to the sums of its slots.
    fn seasonal_index(
        &mut self,
        input: usize,
        slot: usize,
        gap: SeriesLength,
        request: SeasonalRequest,
    ) {
        // The slot of a missing period is unknown.
        self.program.kept[slot].fillable = FillSupport::Never;
        let frontier = self.frontier(gap, input, false);
        self.need(slot, EntryRetention::Frontier(frontier), false);
        for seasons in &mut self.running.seasons {
            if (seasons.input, seasons.slot, seasons.frontier) == (input, slot, frontier) {
                seasons.asks.push(request);
                return;
            }
        }
        let mut seasons = SeasonalSums::new(input, slot, frontier);
        seasons.asks.push(request);
        self.running.seasons.push(seasons);
    }

    fn source(&self, input: usize, frontier: usize) -> StatSource {
        StatSource {
            input,
            keep: self.plan.inputs[input].keep.of_words(),
            frontier,
        }
    }

    /// Adds the last value that is not missing, or its time.
    fn latest(&mut self, function: usize, input: usize, limit: Option<u64>, time: bool) {
        let frontier = self.frontier(SeriesLength::ZERO, input, time);
        let source = self.source(input, frontier);
        let question = LastValidRequest {
            limit: limit.unwrap_or(u64::MAX),
            time,
        };
        let request = StatRequest {
            function,
            question,
            min_periods: 0,
        };
        add_to_group(&mut self.running.latest, source, (), request);
    }

    /// Adds a statistic to the window that covers the same entries.
    fn window(&mut self, input: usize, cover: WindowKind, request: WindowRequest) {
        for window in &mut self.program.windows {
            if window.input == input && window.cover == cover {
                window.asks.push(request);
                return;
            }
        }
        self.program.windows.push(WindowEvaluator {
            input,
            keep: self.plan.inputs[input].keep.of_words(),
            cover,
            asks: vec![request],
        });
    }

    /// Adds a statistic of all entries up to a frontier.
    fn expanding(&mut self, input: usize, frontier: usize, request: WindowRequest) {
        let source = self.source(input, frontier);
        let WindowRequest {
            function,
            stat,
            min_periods,
        } = request;
        let request = StatRequest {
            function,
            question: stat,
            min_periods,
        };
        let groups = &mut self.running;
        match stat {
            WindowStat::Count | WindowStat::Sum | WindowStat::Mean => {
                add_to_group(&mut groups.sums, source, (), request)
            }
            WindowStat::Var { .. } | WindowStat::Std { .. } => {
                add_to_group(&mut groups.spreads, source, (), request)
            }
            WindowStat::Skew | WindowStat::Kurtosis => {
                add_to_group(&mut groups.shapes, source, (), request)
            }
            WindowStat::Min | WindowStat::Max => {
                add_to_group(&mut groups.ranges, source, (), request)
            }
            WindowStat::First | WindowStat::Last => {
                add_to_group(&mut groups.ends, source, (), request)
            }
            WindowStat::ZeroShare => add_to_group(&mut groups.zeros, source, (), request),
            WindowStat::SinceNonzero { .. } => add_to_group(&mut groups.since, source, (), request),
            WindowStat::Slope { unit } => {
                add_to_group(&mut groups.lines, source, unit.is_some(), request)
            }
            WindowStat::Quantile(q) => add_to_group(&mut groups.halves, source, q, request),
            WindowStat::Unique => {
                let is_number = source.keep == WordEncoding::Number;
                add_to_group(&mut groups.distinct, source, is_number, request)
            }
        }
    }

    /// The bounds of the entries exactly `by` before the row, or up to `tolerance` older.
    fn one(&mut self, by: SeriesLength, tolerance: CalendarSpan) -> BoundPair {
        let end = WindowBound::back(by, same_kind(by));
        if end.is_own() {
            // The row's own entry, independent of its time.
            return BoundPair {
                start: self.edge(WindowBound::Rows(1)),
                end: self.edge(end),
            };
        }
        BoundPair {
            start: self.edge(end.further_in_time(tolerance).further(1)),
            end: self.edge(end),
        }
    }

    /// The bounds of the entries within `over`, which ends `gap` before the row.
    fn rolling(&mut self, over: SeriesLength, gap: SeriesLength, closed: ClosedEnds) -> BoundPair {
        let mut start = WindowBound::back(gap, over);
        let mut end = WindowBound::back(gap, same_kind(over));
        if closed.has_first() {
            start = start.further(1);
        }
        if !closed.has_last() {
            end = end.further(1);
        }
        // A window of length zero may end before it starts: it is empty.
        if end.is_before(start) {
            end = start;
        }
        BoundPair {
            start: self.edge(start),
            end: self.edge(end),
        }
    }

    /// The frontier `gap` before each row, for statistics of an input.
    fn frontier(&mut self, gap: SeriesLength, input: usize, reads_time: bool) -> usize {
        let edge = self.edge(WindowBound::back(gap, same_kind(gap)));
        let frontiers = &mut self.running.frontiers;
        let frontier = match frontiers.iter().position(|frontier| frontier.edge == edge) {
            Some(frontier) => frontier,
            None => {
                frontiers.push(CumulativeFrontier {
                    edge,
                    taken: Vec::new(),
                    spans: Vec::new(),
                });
                frontiers.len() - 1
            }
        };
        self.need(input, EntryRetention::Frontier(frontier), reads_time);
        if self.program.edges[edge].is_time() {
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
                self.program.edges[edge].is_time()
            }
            EntryRetention::Frontier(_) => false,
        };
        if by_time || reads_time {
            self.program.time_needs.push(need);
        }
    }

    fn edge(&mut self, mut edge: WindowBound) -> usize {
        // Zero ticks back is the row itself.
        if edge == WindowBound::Ticks(0) {
            edge = WindowBound::Rows(0);
        }
        let edges = &mut self.program.edges;
        *self.indices.entry(edge).or_insert_with(|| {
            edges.push(edge);
            edges.len() - 1
        })
    }

    fn finish(mut self) -> (CompiledPlan, PlanAccumulators) {
        for edge in &self.program.edges {
            // Bounds of the calendar are no multiple of a series' step: they are searched among the times.
            if matches!(edge, WindowBound::Calendar { .. }) {
                self.program.reads_times = true;
            }
        }
        if let GapHandling::Complete { every, fill } = self.plan.gaps {
            self.complete_periods(every, fill);
        }
        let mut program = self.program;
        if program.reads_times {
            // Cumulative statistics read the times of the entries they consume.
            for frontier in 0..self.running.frontiers.len() {
                let retention = EntryRetention::Frontier(frontier);
                program.time_needs.push(retention);
            }
        }
        for retention in &mut program.kept {
            remove_duplicates(&mut retention.needs);
        }
        remove_duplicates(&mut program.time_needs);
        (program, self.running.into_accumulators())
    }

    /// Prepares for missing periods, which count as rows.
    fn complete_periods(&mut self, every: TimeDistance, fill: PeriodFill) {
        self.program.fill = Some(fill);
        if fill == PeriodFill::Forward {
            let newest_rows = EntryRetention::From(self.edge(WindowBound::Rows(2)));
            for retention in &mut self.program.kept {
                retention.needs.push(newest_rows);
            }
        }
        if !self.running.frontiers.is_empty() {
            return;
        }
        let tick = self.program.clock.as_ref().map_or(1, ColumnClock::tick);
        let least = i128::from(every.span().tick_bounds(tick).0.max(1));
        let mut periods_max: Option<i128> = None;
        for edge in &self.program.edges {
            let periods = match *edge {
                WindowBound::Rows(rows) => i128::from(rows),
                WindowBound::Ticks(ticks) => i128::from(ticks) / least + 1,
                WindowBound::Calendar { span, older } => {
                    let most = span.tick_bounds(tick).1;
                    (i128::from(most) + i128::from(older)) / least + 1
                }
            };
            periods_max = periods_max.max(Some(periods));
        }
        self.program.periods = periods_max.map(|periods| periods + 1);
    }
}

fn fillable(data_type: &DataType) -> FillSupport {
    if data_type.is_numeric() || *data_type == DataType::Boolean {
        FillSupport::Zero
    } else {
        FillSupport::Forward
    }
}

/// The entries that a cumulative statistic consumes.
#[derive(Clone, Copy)]
struct StatSource {
    input: usize,
    keep: WordEncoding,
    frontier: usize,
}

/// Adds an output to the statistic that computes it; creates the statistic if there is none.
fn add_to_group<A: StatAccumulator>(
    groups: &mut Vec<CumulativeStat<A>>,
    source: StatSource,
    config: A::Config,
    request: StatRequest<A::Question>,
) {
    let StatSource {
        input,
        keep,
        frontier,
    } = source;
    for group in groups.iter_mut() {
        if group.input == input && group.frontier == frontier && group.config == config {
            group.asked.push(request);
            return;
        }
    }
    let mut group = CumulativeStat::new(input, keep, frontier, config);
    group.asked.push(request);
    groups.push(group);
}

/// Adds statistics of one kind to those of all kinds.
fn add_boxed<M: CumulativeState + 'static>(
    memories: &mut Vec<Box<dyn CumulativeState>>,
    group: Vec<M>,
) {
    for memory in group {
        memories.push(Box::new(memory));
    }
}

fn remove_duplicates(needs: &mut Vec<EntryRetention>) {
    let mut seen = HashSet::new();
    needs.retain(|need| seen.insert(*need));
}

/// True if a statistic reads the times of entries.
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
        SeriesLength::Ticks(_) | SeriesLength::Calendar(_) => SeriesLength::Ticks(0),
    }
}

/// `gap` plus `season_count` seasons.
fn seasonal_distance(gap: SeriesLength, season: SeriesLength, season_count: u64) -> SeriesLength {
    let count = season_count as i64;
    let seasons = match season {
        SeriesLength::Rows(season) => {
            let rows = season.saturating_mul(season_count);
            return match gap {
                SeriesLength::Rows(gap) => SeriesLength::Rows(rows.saturating_add(gap)),
                SeriesLength::Ticks(_) | SeriesLength::Calendar(_) => SeriesLength::Rows(rows),
            };
        }
        SeriesLength::Ticks(season) => CalendarSpan::ticks(season.saturating_mul(count)),
        SeriesLength::Calendar(season) => season.times(count),
    };
    let distance = match gap {
        SeriesLength::Rows(_) => seasons,
        SeriesLength::Ticks(gap) => seasons.plus(CalendarSpan::ticks(gap)),
        SeriesLength::Calendar(gap) => seasons.plus(gap),
    };
    if distance.is_calendar() {
        SeriesLength::Calendar(distance)
    } else {
        SeriesLength::Ticks(distance.ticks)
    }
}
