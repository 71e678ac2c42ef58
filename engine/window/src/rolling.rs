//! Rolling and seasonal windows.

use forebay_model::lerp;

use crate::batch::{BoundPair, WindowBatch};
use crate::bounds::WindowBound;
use crate::kernels;
use crate::special_words::{NO_NUMBER, defined};
use crate::stats::{from_moments, moment_order};
use crate::{WindowStat, WordEncoding};

/// A requested output of a window.
#[derive(Debug, Clone)]
pub(crate) struct WindowRequest {
    /// Index of the output's function.
    pub function: usize,
    pub stat: WindowStat,
    pub min_periods: u64,
}

/// The entries that a window covers.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum WindowKind {
    /// All entries between two bounds.
    All(BoundPair),
    /// The last entry of each pair of bounds, earliest first.
    Last(Vec<BoundPair>),
}

/// All statistics of one input over one window; common intermediate results are computed once.
#[derive(Debug, Clone)]
pub(crate) struct WindowEvaluator {
    pub input: usize,
    pub keep: WordEncoding,
    pub cover: WindowKind,
    pub asks: Vec<WindowRequest>,
}

/// Buffers reused between batches.
#[derive(Debug, Default)]
pub(crate) struct RollingBuffers {
    moments: MomentBuffers,
    values: Vec<u64>,
    distances: Vec<u32>,
    sorted: Vec<f64>,
    distinct: Vec<u64>,
}

/// Moments of the windows of a batch.
#[derive(Debug, Default)]
struct MomentBuffers {
    counts: Vec<f64>,
    sums: Vec<f64>,
    squares: Vec<f64>,
    /// The units of the squares; empty if all are 1.
    units: Vec<f64>,
    shapes: Vec<[f64; 3]>,
}

/// The window of one row.
pub(crate) struct WindowView<'a> {
    /// Index of the row in the batch.
    row: usize,
    values: &'a [u64],
    /// Distance of each value from the row, if the values are not contiguous.
    distances: Option<&'a [u32]>,
    start: u32,
}

impl<'a> WindowView<'a> {
    /// A window of neighbouring entries that begins at a distance from its row.
    pub fn contiguous(row: usize, values: &'a [u64], start: u32) -> Self {
        WindowView {
            row,
            values,
            distances: None,
            start,
        }
    }

    /// Distance of a value from the row: number of entries from it up to and including the row.
    fn distance(&self, at: usize) -> u32 {
        self.distances
            .map_or_else(|| self.start - at as u32, |distances| distances[at])
    }
}

impl WindowEvaluator {
    /// The bounds of a window that begins at a time; `None` for other windows. More rows at one time make it longer.
    pub fn begins_at_time(&self, edges: &[WindowBound]) -> Option<BoundPair> {
        match self.cover {
            WindowKind::All(span) if edges[span.start].is_time() => Some(span),
            _ => None,
        }
    }

    /// Appends the outputs of the requested functions.
    pub fn run(
        &self,
        batch: &WindowBatch<'_>,
        emit: &[bool],
        outputs: &mut [Vec<u64>],
        space: &mut RollingBuffers,
    ) {
        let emitted = self.asks.iter().filter(|request| emit[request.function]);
        let Some(order) = emitted
            .clone()
            .map(|request| moment_order(request.stat))
            .max()
        else {
            return;
        };
        let mut moments = std::mem::take(&mut space.moments);
        self.measure(batch, order, space, &mut moments);
        for request in emitted {
            let output = &mut outputs[request.function];
            self.put(request, batch, &moments, output, space);
        }
        space.moments = moments;
    }

    /// Computes the moments of each window up to an order.
    fn measure(
        &self,
        batch: &WindowBatch<'_>,
        order: u8,
        space: &mut RollingBuffers,
        moments: &mut MomentBuffers,
    ) {
        let MomentBuffers {
            counts,
            sums,
            squares,
            units,
            shapes,
        } = moments;
        counts.clear();
        sums.clear();
        squares.clear();
        units.clear();
        shapes.clear();
        // Both kernels give the same bits for count and sum. A window mostly has missing values if the previous one
        // had.
        let mut whole = true;
        match self.keep {
            WordEncoding::Number if order > 1 => self.each(batch, space, |view, _| {
                let spread = kernels::spread(view.values, whole);
                whole = spread.count == view.values.len() as f64;
                counts.push(spread.count);
                sums.push(spread.sum);
                squares.push(spread.squares);
                if spread.unit != 1.0 {
                    units.resize(squares.len() - 1, 1.0);
                    units.push(spread.unit);
                }
            }),
            WordEncoding::Number => self.each(batch, space, |view, _| {
                let (count, sum) = kernels::sums(view.values, whole);
                whole = count == view.values.len() as f64;
                counts.push(count);
                sums.push(sum);
            }),
            WordEncoding::Bits | WordEncoding::Values => self.each(batch, space, |view, _| {
                counts.push(kernels::count_bits(view.values))
            }),
        }
        sums.resize(counts.len(), f64::NAN);
        squares.resize(counts.len(), f64::NAN);
        if !units.is_empty() {
            units.resize(counts.len(), 1.0);
        }
        if order > 2 {
            let mut counts = counts.iter();
            self.each(batch, space, |view, _| {
                let count = counts.next().copied().unwrap_or_default();
                shapes.push(kernels::moments(view.values, count));
            });
        }
    }

    /// Appends the output of a request for each window.
    fn put(
        &self,
        request: &WindowRequest,
        batch: &WindowBatch<'_>,
        buffers: &MomentBuffers,
        output: &mut Vec<u64>,
        space: &mut RollingBuffers,
    ) {
        let moments = WindowMoments {
            counts: &buffers.counts,
            sums: &buffers.sums,
            squares: &buffers.squares,
            units: &buffers.units,
            min: request.min_periods as f64,
        };
        match (request.stat, moment_order(request.stat)) {
            (_, 0) => self.other(request, batch, &buffers.counts, output, space),
            // Common statistics have a loop of their own, without dispatch per row.
            (WindowStat::Mean, _) => moments.put(output, from_squares(WindowStat::Mean)),
            (WindowStat::Std { ddof }, _) => {
                moments.put(output, from_squares(WindowStat::Std { ddof }))
            }
            (stat, 1 | 2) => moments.put(output, from_squares(stat)),
            (stat, _) => {
                let mut shapes = buffers.shapes.iter().copied();
                moments.put(output, |count, sum, _, unit| {
                    from_moments(stat, count, sum, shapes.next().unwrap_or_default(), unit)
                });
            }
        }
    }

    /// Appends the output of each request for one window; `None` for outputs that are not
    /// requested. The bits are those of [`WindowEvaluator::run`].
    pub fn single_row(
        &self,
        batch: &WindowBatch<'_>,
        view: &WindowView<'_>,
        emit: &[bool],
        space: &mut RollingBuffers,
        words: &mut Vec<Option<u64>>,
    ) {
        let emitted = self.asks.iter().filter(|request| emit[request.function]);
        let order = emitted
            .map(|request| moment_order(request.stat))
            .max()
            .unwrap_or(0);
        let mut spread = kernels::Spread {
            count: f64::NAN,
            sum: f64::NAN,
            squares: f64::NAN,
            unit: 1.0,
        };
        match self.keep {
            WordEncoding::Number if order > 1 => spread = kernels::spread(view.values, true),
            WordEncoding::Number => {
                let (count, sum) = kernels::sums(view.values, true);
                spread.count = count;
                spread.sum = sum;
            }
            WordEncoding::Bits | WordEncoding::Values => {
                spread.count = kernels::count_bits(view.values);
            }
        }
        let kernels::Spread {
            count,
            sum,
            squares,
            unit,
        } = spread;
        let powers = if order > 2 {
            kernels::moments(view.values, count)
        } else {
            [squares, 0.0, 0.0]
        };
        for request in &self.asks {
            if !emit[request.function] {
                words.push(None);
                continue;
            }
            let word = match moment_order(request.stat) {
                0 => self.single_other(request, batch, view, count, space),
                _ if count < request.min_periods as f64 => NO_NUMBER,
                1 | 2 => {
                    from_moments(request.stat, count, sum, [squares, 0.0, 0.0], unit).to_bits()
                }
                _ => from_moments(request.stat, count, sum, powers, unit).to_bits(),
            };
            words.push(Some(word));
        }
    }

    /// The output of a statistic that needs a pass of its own, for one window.
    fn single_other(
        &self,
        request: &WindowRequest,
        batch: &WindowBatch<'_>,
        view: &WindowView<'_>,
        count: f64,
        space: &mut RollingBuffers,
    ) -> u64 {
        let is_enough = count >= request.min_periods as f64;
        let number = match request.stat {
            WindowStat::First | WindowStat::Last if !is_enough => return self.keep.missing(),
            _ if !is_enough => return NO_NUMBER,
            WindowStat::First => return first_word(view.values, self.keep),
            WindowStat::Last => return last_word(view.values, self.keep),
            WindowStat::Unique => distinct(view.values, self.keep, &mut space.distinct),
            _ if count == 0.0 => return NO_NUMBER,
            WindowStat::Min => kernels::minimum(view.values),
            WindowStat::Max => kernels::maximum(view.values),
            WindowStat::ZeroShare => kernels::zeros(view.values) / count,
            WindowStat::Quantile(q) => quantile(view.values, q, &mut space.sorted),
            WindowStat::Slope { unit } => slope(batch, view, unit, count),
            WindowStat::SinceNonzero { unit } => since_nonzero(batch, view, unit),
            _ => return NO_NUMBER,
        };
        number.to_bits()
    }

    /// Calls `take` with the window of each row.
    #[inline(always)]
    fn each(
        &self,
        batch: &WindowBatch<'_>,
        space: &mut RollingBuffers,
        mut take: impl FnMut(WindowView<'_>, &mut RollingBuffers),
    ) {
        let input = &batch.inputs[self.input];
        let spans = match &self.cover {
            WindowKind::All(span) => {
                for (row, (start, end)) in batch.spans(*span).enumerate() {
                    take(
                        WindowView {
                            row,
                            values: input.slice(row, start, end),
                            distances: None,
                            start,
                        },
                        space,
                    );
                }
                return;
            }
            WindowKind::Last(spans) => spans,
        };
        let mut values = std::mem::take(&mut space.values);
        let mut distances = std::mem::take(&mut space.distances);
        for row in 0..batch.rows.len() {
            values.clear();
            distances.clear();
            for span in spans {
                let start = batch.distances[span.start][row];
                let end = batch.distances[span.end][row];
                if start > end {
                    distances.push(end + 1);
                    values.push(input.word(row, end));
                }
            }
            take(
                WindowView {
                    row,
                    values: &values,
                    distances: Some(&distances),
                    start: 0,
                },
                space,
            );
        }
        (space.values, space.distances) = (values, distances);
    }

    /// Computes a statistic that needs a pass of its own.
    fn other(
        &self,
        request: &WindowRequest,
        batch: &WindowBatch<'_>,
        counts: &[f64],
        output: &mut Vec<u64>,
        space: &mut RollingBuffers,
    ) {
        let keep = self.keep;
        let rows = WindowCounts {
            batch,
            counts,
            min: request.min_periods as f64,
        };
        match request.stat {
            WindowStat::Min => self.number(rows, output, space, |view, _, _| {
                kernels::minimum(view.values)
            }),
            WindowStat::Max => self.number(rows, output, space, |view, _, _| {
                kernels::maximum(view.values)
            }),
            WindowStat::ZeroShare => {
                self.number(rows, output, space, |view, _, count| {
                    kernels::zeros(view.values) / count
                });
            }
            WindowStat::Quantile(q) => {
                self.number(rows, output, space, |view, space, _| {
                    quantile(view.values, q, &mut space.sorted)
                });
            }
            WindowStat::Slope { unit } => self.number(rows, output, space, |view, _, count| {
                slope(batch, view, unit, count)
            }),
            WindowStat::SinceNonzero { unit } => {
                self.number(rows, output, space, |view, _, _| {
                    since_nonzero(batch, view, unit)
                });
            }
            WindowStat::Unique => self.word(rows, output, NO_NUMBER, space, |view, space| {
                distinct(view.values, keep, &mut space.distinct).to_bits()
            }),
            WindowStat::First => self.word(rows, output, keep.missing(), space, |view, _| {
                first_word(view.values, keep)
            }),
            WindowStat::Last => self.word(rows, output, keep.missing(), space, |view, _| {
                last_word(view.values, keep)
            }),
            _ => output.resize(output.len() + batch.rows.len(), NO_NUMBER),
        }
    }

    /// Appends a number per window; requires at least one value.
    #[inline(always)]
    fn number(
        &self,
        rows: WindowCounts<'_>,
        output: &mut Vec<u64>,
        space: &mut RollingBuffers,
        value: impl Fn(&WindowView<'_>, &mut RollingBuffers, f64) -> f64,
    ) {
        let mut counts = rows.counts.iter();
        self.each(rows.batch, space, |view, space| {
            let count = counts.next().copied().unwrap_or_default();
            let enough = count >= rows.min && count > 0.0;
            output.push(if enough {
                value(&view, space, count).to_bits()
            } else {
                NO_NUMBER
            });
        });
    }

    /// Appends a word per window, also for windows without values.
    #[inline(always)]
    fn word(
        &self,
        rows: WindowCounts<'_>,
        output: &mut Vec<u64>,
        missing: u64,
        space: &mut RollingBuffers,
        word: impl Fn(&WindowView<'_>, &mut RollingBuffers) -> u64,
    ) {
        let mut counts = rows.counts.iter();
        self.each(rows.batch, space, |view, space| {
            let enough = counts.next().is_some_and(|&count| count >= rows.min);
            output.push(if enough { word(&view, space) } else { missing });
        });
    }
}

/// A statistic of count, sum and sum of squares in a unit.
#[inline(always)]
fn from_squares(stat: WindowStat) -> impl Fn(f64, f64, f64, f64) -> f64 {
    move |count, sum, m2, unit| from_moments(stat, count, sum, [m2, 0.0, 0.0], unit)
}

/// Counts, sums and squares of the windows of a batch.
struct WindowMoments<'a> {
    counts: &'a [f64],
    sums: &'a [f64],
    squares: &'a [f64],
    units: &'a [f64],
    min: f64,
}

impl WindowMoments<'_> {
    /// Appends a statistic of count, sum, squares and their unit; missing if there are too few values.
    #[inline(always)]
    fn put(&self, output: &mut Vec<u64>, mut value: impl FnMut(f64, f64, f64, f64) -> f64) {
        let rows = self.counts.iter().zip(self.sums).zip(self.squares);
        if self.units.is_empty() {
            output.extend(rows.map(|((&count, &sum), &square)| {
                self.word_if_enough(count, value(count, sum, square, 1.0))
            }));
            return;
        }
        let rows = rows.zip(self.units);
        output.extend(rows.map(|(((&count, &sum), &square), &unit)| {
            self.word_if_enough(count, value(count, sum, square, unit))
        }));
    }

    #[inline(always)]
    fn word_if_enough(&self, count: f64, value: f64) -> u64 {
        if count >= self.min {
            value.to_bits()
        } else {
            NO_NUMBER
        }
    }
}

/// The batch and the number of values per window.
struct WindowCounts<'a> {
    batch: &'a WindowBatch<'a>,
    counts: &'a [f64],
    min: f64,
}

/// The first word that is not missing.
fn first_word(values: &[u64], keep: WordEncoding) -> u64 {
    let mut words = values.iter().copied();
    words
        .find(|&word| !keep.is_missing(word))
        .unwrap_or(keep.missing())
}

/// The last word that is not missing.
fn last_word(values: &[u64], keep: WordEncoding) -> u64 {
    let mut words = values.iter().copied();
    words
        .rfind(|&word| !keep.is_missing(word))
        .unwrap_or(keep.missing())
}

fn quantile(values: &[u64], q: f64, sorted: &mut Vec<f64>) -> f64 {
    sorted.clear();
    sorted.extend(
        values
            .iter()
            .map(|&word| f64::from_bits(word))
            .filter(|value| !value.is_nan()),
    );
    let rank = q * (sorted.len() - 1) as f64;
    let below = (rank.floor() as usize).min(sorted.len() - 1);
    let share = rank - below as f64;
    let (_, &mut lower, above) = sorted.select_nth_unstable_by(below, f64::total_cmp);
    let upper = above.iter().copied().reduce(f64::min).unwrap_or(lower);
    defined(lerp(lower, upper, share) + 0.0)
}

fn distinct(values: &[u64], keep: WordEncoding, sorted: &mut Vec<u64>) -> f64 {
    sorted.clear();
    sorted.extend(
        values
            .iter()
            .filter(|&&word| !keep.is_missing(word))
            .map(|&word| keep.normal_word(word)),
    );
    sorted.sort_unstable();
    sorted.dedup();
    sorted.len() as f64
}

fn slope(batch: &WindowBatch<'_>, view: &WindowView<'_>, unit: Option<i64>, count: f64) -> f64 {
    let mut position_sum = 0.0;
    let mut value_sum = 0.0;
    for (position, value) in points(batch, view, unit) {
        position_sum += position;
        value_sum += value;
    }
    let position_mean = position_sum / count;
    let value_mean = value_sum / count;
    let mut covariance = 0.0;
    let mut squares = 0.0;
    for (position, value) in points(batch, view, unit) {
        covariance += (position - position_mean) * (value - value_mean);
        squares += (position - position_mean) * (position - position_mean);
    }
    if squares > 0.0 {
        defined(covariance / squares)
    } else {
        f64::NAN
    }
}

/// Positions and values of the entries that have a value. Positions count from the first entry of
/// the window, so that they are small and exact.
fn points<'a>(
    batch: &'a WindowBatch<'_>,
    view: &'a WindowView<'_>,
    unit: Option<i64>,
) -> impl Iterator<Item = (f64, f64)> + 'a {
    let time = |at: usize| batch.times.word(view.row, view.distance(at) - 1);
    let position_of = move |at: usize| match unit {
        None => f64::from(view.distance(0) - view.distance(at)),
        Some(unit) => (time(at).wrapping_sub(time(0)) as i64) as f64 / unit as f64,
    };
    let values = view.values.iter().map(|&word| f64::from_bits(word));
    values
        .enumerate()
        .filter(|(_, value)| !value.is_nan())
        .map(move |(at, value)| (position_of(at), value))
}

fn since_nonzero(batch: &WindowBatch<'_>, view: &WindowView<'_>, unit: Option<i64>) -> f64 {
    let nonzero = |word: &u64| {
        let value = f64::from_bits(*word);
        !value.is_nan() && value != 0.0
    };
    let Some(at) = view.values.iter().rposition(nonzero) else {
        return f64::NAN;
    };
    match unit {
        None => f64::from(view.distance(at) - 1),
        Some(unit) => {
            let time = batch.times.word(view.row, view.distance(at) - 1) as i64;
            batch.rows[view.row].time.wrapping_sub(time) as f64 / unit as f64
        }
    }
}
