//! Windows by time of rows that tie: rows of a series with equal times.
//!
//! Rows that tie share the start of their windows. A window that ends before them is the same for all of them, and is
//! computed once. A window that ends at its own row holds one entry more than that of the row before, and is extended by
//! it. Many rows at one time therefore cost a constant each, instead of a window each.
//!
//! An extended window is a function of its values and of the number of its last entries that tie: the first of these is
//! the point from which deviations are measured. Batches and stored states do not change it.

use hashbrown::{HashMap, HashSet};

use crate::batch::{BatchRow, BoundPair, WindowBatch};
use crate::cumulative::QuantileHeaps;
use crate::kernels::{self, LaneSums};
use crate::rolling::{RollingBuffers, WindowEvaluator, WindowRequest, WindowView};
use crate::special_words::{NO_NUMBER, defined};
use crate::stats::{from_moments, moment_order};
use crate::{WindowStat, WordEncoding};

/// Words that the windows of tied rows may always keep, besides as many as the entries of all series take.
const KEPT_WORDS_MIN: usize = 1 << 20;

/// The last tied row of each series, for one evaluator.
#[derive(Debug, Default)]
pub(crate) struct TiedWindows {
    by_series: HashMap<u32, TiedWindow>,
    /// Estimated words of all of them.
    words: usize,
    /// Entries that were read for rows that tie.
    entries_read: u64,
}

/// The window of the last row of a series, which tied with the row before it.
#[derive(Debug)]
struct TiedWindow {
    /// Index of the row in its series.
    number: u64,
    /// Indices of the window's first entry and of the entry after its last.
    entries: (u64, u64),
    /// Outputs by request; only requested ones are set.
    outputs: Vec<Option<u64>>,
    /// The statistics to extend, where the window ends at its own row.
    growing: Option<GrowingWindow>,
}

/// Statistics of a window that grows by one entry a row.
#[derive(Debug)]
struct GrowingWindow {
    moments: GrowingMoments,
    others: Vec<GrowingStat>,
}

/// The row whose window is computed.
#[derive(Clone, Copy)]
struct TiedRow<'a> {
    batch: &'a WindowBatch<'a>,
    /// Index of the row in the batch.
    at: usize,
    /// Distances of the window's bounds.
    start: u32,
    end: u32,
    values: &'a [u64],
}

impl<'a> TiedRow<'a> {
    fn row(&self) -> &'a BatchRow {
        &self.batch.rows[self.at]
    }

    fn entries(&self) -> (u64, u64) {
        let entry_count = self.row().number + 1;
        let start = self.start.max(self.end);
        (
            entry_count - u64::from(start),
            entry_count - u64::from(self.end),
        )
    }

    fn view(&self) -> WindowView<'a> {
        WindowView::contiguous(self.at, self.values, self.start)
    }

    /// The time of an entry of the window.
    fn time(&self, index: usize) -> i64 {
        let distance = self.start - index as u32 - 1;
        self.batch.times.word(self.at, distance) as i64
    }
}

impl TiedWindows {
    /// Appends the outputs of a batch some of whose rows tie.
    pub fn run(
        &mut self,
        windows: &WindowEvaluator,
        span: BoundPair,
        batch: &WindowBatch<'_>,
        emit: &[bool],
        outputs: &mut [Vec<u64>],
        space: &mut RollingBuffers,
    ) {
        let input = &batch.inputs[windows.input];
        let mut words = Vec::new();
        for (at, (start, end)) in batch.spans(span).enumerate() {
            let row = TiedRow {
                batch,
                at,
                start,
                end,
                values: input.slice(at, start, end),
            };
            let ties = row.row().ties() as usize;
            words.clear();
            if ties == 0 {
                windows.single_row(batch, &row.view(), emit, space, &mut words);
            } else {
                self.tied_row(windows, row, ties, emit, space, &mut words);
            }
            for (request, word) in windows.asks.iter().zip(&words) {
                if let Some(word) = word {
                    outputs[request.function].push(*word);
                }
            }
        }
    }

    fn tied_row(
        &mut self,
        windows: &WindowEvaluator,
        row: TiedRow<'_>,
        ties: usize,
        emit: &[bool],
        space: &mut RollingBuffers,
        words: &mut Vec<Option<u64>>,
    ) {
        let series = row.row().series;
        if let Some(previous) = self.by_series.get_mut(&series) {
            let words_before = previous.words();
            if previous.advance(windows, row, emit) {
                self.entries_read += 1;
                words.extend_from_slice(&previous.outputs);
                self.words += previous.words() - words_before;
                return;
            }
        }
        self.entries_read += row.values.len() as u64;
        // The first entry that ties is part of the window, unless the window ends before it.
        let grows = row.end == 0 && ties < row.values.len();
        let growing = if grows {
            let from = row.values.len() - ties;
            Some(GrowingWindow::new(windows, row, from, emit))
        } else {
            None
        };
        match &growing {
            Some(growing) => growing.outputs(windows, row, emit, words),
            None => windows.single_row(row.batch, &row.view(), emit, space, words),
        }
        let tied = TiedWindow {
            number: row.row().number,
            entries: row.entries(),
            outputs: words.clone(),
            growing,
        };
        self.words += tied.words();
        if let Some(replaced) = self.by_series.insert(series, tied) {
            self.words = self.words.saturating_sub(replaced.words());
        }
    }

    /// Drops the kept windows, before the numbers of series change.
    pub fn clear(&mut self) {
        self.by_series.clear();
        self.words = 0;
    }

    pub fn entries_read(&self) -> u64 {
        self.entries_read
    }

    /// Drops the kept windows if they take more words than the entries of all series.
    pub fn limit(&mut self, entry_words: usize) {
        if self.words > KEPT_WORDS_MIN.max(entry_words) {
            self.clear();
        }
    }

    pub fn bytes(&self) -> usize {
        self.words * size_of::<u64>()
    }
}

impl TiedWindow {
    /// Advances to the next row of the series, which ties, too. False if the window has to be
    /// computed from the start.
    fn advance(&mut self, windows: &WindowEvaluator, row: TiedRow<'_>, emit: &[bool]) -> bool {
        let emitted = windows.asks.iter().map(|request| emit[request.function]);
        let has_wanted = self
            .outputs
            .iter()
            .zip(emitted)
            .all(|(output, is_emitted)| output.is_some() == is_emitted);
        let (first, end) = row.entries();
        let follows = self.number + 1 == row.row().number && self.entries.0 == first;
        if !has_wanted || !follows {
            return false;
        }
        self.number += 1;
        if self.entries.1 == end {
            self.shift_row_distances(windows);
            return true;
        }
        let Some(growing) = &mut self.growing else {
            return false;
        };
        growing.extend(windows, row, (self.entries.1 - first) as usize);
        self.entries.1 = end;
        self.outputs.clear();
        growing.outputs(windows, row, emit, &mut self.outputs);
        true
    }

    /// Moves distances in rows on by one: the window stays, and its row is the next one.
    fn shift_row_distances(&mut self, windows: &WindowEvaluator) {
        for (request, output) in windows.asks.iter().zip(&mut self.outputs) {
            if let (WindowStat::SinceNonzero { unit: None }, Some(word)) = (request.stat, output) {
                let distance = f64::from_bits(*word);
                if !distance.is_nan() {
                    *word = (distance + 1.0).to_bits();
                }
            }
        }
    }

    /// Words that it takes, about.
    fn words(&self) -> usize {
        let entries = (self.entries.1 - self.entries.0) as usize;
        let growing = self.growing.as_ref().map_or(0, |growing| {
            let stats = growing.others.iter().map(|stat| stat.words(entries));
            32 + stats.sum::<usize>()
        });
        16 + self.outputs.len() * 2 + growing
    }
}

impl GrowingWindow {
    /// The window of a row whose last entries, from place `tied` on, have the time of the entry before them.
    fn new(windows: &WindowEvaluator, row: TiedRow<'_>, tied: usize, emit: &[bool]) -> Self {
        let values = &row.values[..tied];
        let is_wanted = |request: &&WindowRequest| emit[request.function];
        let orders = windows
            .asks
            .iter()
            .filter(is_wanted)
            .map(|request| moment_order(request.stat));
        let mut growing = GrowingWindow {
            moments: GrowingMoments::new(values, windows.keep, orders.max().unwrap_or(0)),
            others: Vec::new(),
        };
        for request in &windows.asks {
            let mut stat = if emit[request.function] {
                GrowingStat::new(request.stat)
            } else {
                GrowingStat::Moments
            };
            for index in 0..tied {
                stat.add(windows.keep, row, index);
            }
            growing.others.push(stat);
        }
        growing.extend(windows, row, tied);
        growing
    }

    /// Adds the entries from a place on.
    fn extend(&mut self, windows: &WindowEvaluator, row: TiedRow<'_>, from: usize) {
        for index in from..row.values.len() {
            self.moments.add(row.values[index], windows.keep);
            for stat in &mut self.others {
                stat.add(windows.keep, row, index);
            }
        }
    }

    /// The output of each request.
    fn outputs(
        &self,
        windows: &WindowEvaluator,
        row: TiedRow<'_>,
        emit: &[bool],
        words: &mut Vec<Option<u64>>,
    ) {
        let kernels::Spread {
            count,
            sum,
            squares,
            unit,
        } = self.moments.sums.totals(row.values);
        for (request, stat) in windows.asks.iter().zip(&self.others) {
            let is_enough = count >= request.min_periods as f64;
            let word = || match moment_order(request.stat) {
                0 if is_enough => stat.word(windows.keep, row, request.stat, count),
                0 => missing_word(request.stat, windows.keep),
                order if is_enough => {
                    let moments = if order > 2 {
                        self.moments.powers(row.values, count)
                    } else {
                        [squares, 0.0, 0.0]
                    };
                    from_moments(request.stat, count, sum, moments, unit).to_bits()
                }
                _ => NO_NUMBER,
            };
            words.push(emit[request.function].then(word));
        }
    }
}

/// The output of a statistic without enough values.
fn missing_word(stat: WindowStat, keep: WordEncoding) -> u64 {
    match stat {
        WindowStat::First | WindowStat::Last => keep.missing(),
        _ => NO_NUMBER,
    }
}

/// Count, sum and moments of a window that grows.
#[derive(Debug)]
struct GrowingMoments {
    sums: LaneSums,
    /// Moments about the mean, where a statistic needs more than the second.
    shape: ShapeMoments,
    has_shape: bool,
}

impl GrowingMoments {
    fn new(values: &[u64], keep: WordEncoding, order: u8) -> Self {
        let sums = match keep {
            WordEncoding::Number => LaneSums::of(values),
            WordEncoding::Bits | WordEncoding::Values => {
                LaneSums::of_count(kernels::count_bits(values))
            }
        };
        let has_shape = order > 2;
        let shape = if has_shape {
            ShapeMoments::of(values, sums.count())
        } else {
            ShapeMoments::default()
        };
        GrowingMoments {
            sums,
            shape,
            has_shape,
        }
    }

    /// Sums of powers of the deviations of the values so far, which are `values`.
    fn powers(&self, values: &[u64], count: f64) -> [f64; 3] {
        let powers = self.shape.powers;
        if kernels::holds_powers(powers[2]) || !self.sums.has_finite_distances() {
            return powers;
        }
        kernels::measured_moments(values, count).unwrap_or(powers)
    }

    fn add(&mut self, word: u64, keep: WordEncoding) {
        if keep != WordEncoding::Number {
            self.sums.count_word(!keep.is_missing(word));
            return;
        }
        self.sums.add(f64::from_bits(word));
        if self.has_shape {
            self.shape.add(f64::from_bits(word));
        }
    }
}

/// Sums of powers of the deviations from the mean, updated value by value (Pébay, 2008).
#[derive(Debug, Default)]
struct ShapeMoments {
    /// The value from which all are measured, so that equal values give exactly zero.
    centre: Option<f64>,
    count: f64,
    mean: f64,
    /// Sums of squares, cubes and fourth powers.
    powers: [f64; 3],
}

impl ShapeMoments {
    fn of(values: &[u64], count: f64) -> Self {
        let Some((centre, mean, powers)) = kernels::centred_moments(values, count) else {
            return ShapeMoments::default();
        };
        ShapeMoments {
            centre: Some(centre),
            count,
            mean,
            powers,
        }
    }

    fn add(&mut self, value: f64) {
        if value.is_nan() {
            return;
        }
        let centre = *self.centre.get_or_insert(value);
        let count_before = self.count;
        self.count += 1.0;
        let count = self.count;
        let distance = value - centre - self.mean;
        let share = distance / count;
        let square = share * share;
        let growth = distance * share * count_before;
        let [squares, cubes, fourths] = self.powers;
        self.mean += share;
        self.powers = [
            squares + growth,
            cubes + growth * share * (count - 2.0) - 3.0 * share * squares,
            fourths
                + growth * square * (count * count - 3.0 * count + 3.0)
                + 6.0 * square * squares
                - 4.0 * share * cubes,
        ];
    }
}

/// A statistic of a window that grows, where count, sum and moments are not enough.
#[derive(Debug)]
enum GrowingStat {
    /// Count, sum and moments are enough.
    Moments,
    Least(f64),
    Greatest(f64),
    Zeros(f64),
    Quantile(Box<(f64, QuantileHeaps)>),
    Distinct(HashSet<u64>),
    First(Option<u64>),
    Last(Option<u64>),
    Slope(GrowingSlope),
    /// Place of the last nonzero value.
    Nonzero(Option<usize>),
}

impl GrowingStat {
    fn new(stat: WindowStat) -> Self {
        match stat {
            WindowStat::Min => GrowingStat::Least(f64::INFINITY),
            WindowStat::Max => GrowingStat::Greatest(f64::NEG_INFINITY),
            WindowStat::ZeroShare => GrowingStat::Zeros(0.0),
            WindowStat::Quantile(q) => {
                GrowingStat::Quantile(Box::new((q, QuantileHeaps::default())))
            }
            WindowStat::Unique => GrowingStat::Distinct(HashSet::new()),
            WindowStat::First => GrowingStat::First(None),
            WindowStat::Last => GrowingStat::Last(None),
            WindowStat::Slope { unit } => GrowingStat::Slope(GrowingSlope::new(unit)),
            WindowStat::SinceNonzero { .. } => GrowingStat::Nonzero(None),
            _ => GrowingStat::Moments,
        }
    }

    /// Approximate number of words that it takes for a window of `entries` entries.
    fn words(&self, entries: usize) -> usize {
        match self {
            GrowingStat::Quantile(_) | GrowingStat::Distinct(_) => 2 * entries,
            _ => 8,
        }
    }

    /// Adds the entry at a place of the window.
    fn add(&mut self, keep: WordEncoding, row: TiedRow<'_>, index: usize) {
        let word = row.values[index];
        if keep.is_missing(word) {
            return;
        }
        let value = f64::from_bits(word);
        match self {
            GrowingStat::Moments => {}
            GrowingStat::Least(least) => {
                if value < *least {
                    *least = value;
                }
            }
            GrowingStat::Greatest(greatest) => {
                if value > *greatest {
                    *greatest = value;
                }
            }
            GrowingStat::Zeros(zeros) => *zeros += f64::from(u8::from(value == 0.0)),
            GrowingStat::Quantile(quantile) => {
                let (q, heaps) = quantile.as_mut();
                heaps.push(*q, value);
            }
            GrowingStat::Distinct(words) => {
                words.insert(keep.normal_word(word));
            }
            GrowingStat::First(first) => {
                first.get_or_insert(word);
            }
            GrowingStat::Last(last) => *last = Some(word),
            GrowingStat::Slope(slope) => slope.add(row, index, value),
            GrowingStat::Nonzero(last) => {
                if value != 0.0 {
                    *last = Some(index);
                }
            }
        }
    }

    /// The output for a row; `count` is the number of values, at least as many as required.
    fn word(&self, keep: WordEncoding, row: TiedRow<'_>, stat: WindowStat, count: f64) -> u64 {
        let number = match self {
            GrowingStat::First(word) | GrowingStat::Last(word) => {
                return word.unwrap_or(keep.missing());
            }
            GrowingStat::Distinct(words) => return (words.len() as f64).to_bits(),
            _ if count == 0.0 => return NO_NUMBER,
            GrowingStat::Moments => f64::NAN,
            // Normalizes -0.0 to 0.0.
            GrowingStat::Least(value) | GrowingStat::Greatest(value) => value + 0.0,
            GrowingStat::Zeros(zeros) => zeros / count,
            GrowingStat::Quantile(quantile) => {
                let (q, heaps) = quantile.as_ref();
                heaps
                    .quantile(*q)
                    .map_or(f64::NAN, |value| defined(value + 0.0))
            }
            GrowingStat::Slope(slope) => slope.value(),
            GrowingStat::Nonzero(None) => f64::NAN,
            GrowingStat::Nonzero(Some(index)) => since(row, *index, stat),
        };
        number.to_bits()
    }
}

/// The distance of a row from a place of its window, in the units of the statistic.
fn since(row: TiedRow<'_>, index: usize, stat: WindowStat) -> f64 {
    match stat {
        WindowStat::SinceNonzero { unit: Some(unit) } => {
            row.row().time.wrapping_sub(row.time(index)) as f64 / unit as f64
        }
        _ => f64::from(row.start - index as u32 - 1),
    }
}

/// A least-squares slope, updated point by point.
#[derive(Debug)]
struct GrowingSlope {
    /// Ticks per unit of time; `None` for rows.
    unit: Option<i64>,
    count: f64,
    place_mean: f64,
    value_mean: f64,
    both: f64,
    squares: f64,
}

impl GrowingSlope {
    fn new(unit: Option<i64>) -> Self {
        GrowingSlope {
            unit,
            count: 0.0,
            place_mean: 0.0,
            value_mean: 0.0,
            both: 0.0,
            squares: 0.0,
        }
    }

    fn add(&mut self, row: TiedRow<'_>, index: usize, value: f64) {
        let abscissa = match self.unit {
            None => index as f64,
            Some(unit) => row.time(index).wrapping_sub(row.time(0)) as f64 / unit as f64,
        };
        self.count += 1.0;
        let distance = abscissa - self.place_mean;
        self.place_mean += distance / self.count;
        self.value_mean += (value - self.value_mean) / self.count;
        self.both += distance * (value - self.value_mean);
        self.squares += distance * (abscissa - self.place_mean);
    }

    fn value(&self) -> f64 {
        if self.squares > 0.0 {
            defined(self.both / self.squares)
        } else {
            f64::NAN
        }
    }
}
