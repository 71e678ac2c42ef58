//! Rolling and seasonal windows.

use forebay_model::between;

use crate::batch::Batch;
use crate::edge::Span;
use crate::kernels;
use crate::stats::{of_moments, order};
use crate::words::NO_NUMBER;
use crate::{Keep, Stat};

/// One output of a window.
#[derive(Debug, Clone)]
pub(crate) struct Ask {
    /// Index of the output's function.
    pub function: usize,
    pub stat: Stat,
    pub min_periods: u64,
}

/// The entries that a window covers.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Cover {
    /// All entries between two bounds.
    All(Span),
    /// The last entry of each pair of bounds, earliest first.
    Last(Vec<Span>),
}

/// All statistics of one input over one window; common intermediate results are computed once.
#[derive(Debug, Clone)]
pub(crate) struct Windows {
    pub input: usize,
    pub keep: Keep,
    pub cover: Cover,
    pub asks: Vec<Ask>,
}

/// Buffers reused between batches.
#[derive(Debug, Default)]
pub(crate) struct Workspace {
    counts: Vec<f64>,
    sums: Vec<f64>,
    squares: Vec<f64>,
    shapes: Vec<[f64; 3]>,
    values: Vec<u64>,
    distances: Vec<u32>,
    sorted: Vec<f64>,
    distinct: Vec<u64>,
}

/// The window of one row.
struct View<'a> {
    /// Index of the row in the batch.
    row: usize,
    values: &'a [u64],
    /// Distance of each value from the row, if the values are not contiguous.
    distances: Option<&'a [u32]>,
    start: u32,
}

impl View<'_> {
    /// Distance of a value from the row: number of entries from it up to and including the row.
    fn distance(&self, at: usize) -> u32 {
        self.distances.map_or_else(|| self.start - at as u32, |distances| distances[at])
    }
}

impl Windows {
    /// Appends the outputs of the requested functions.
    pub fn run(&self, batch: &Batch<'_>, emit: &[bool], outputs: &mut [Vec<u64>], space: &mut Workspace) {
        let wanted = || self.asks.iter().filter(|ask| emit[ask.function]);
        let Some(most) = wanted().map(|ask| order(ask.stat)).max() else { return };
        let (mut counts, mut sums) = (std::mem::take(&mut space.counts), std::mem::take(&mut space.sums));
        let (mut squares, mut shapes) = (std::mem::take(&mut space.squares), std::mem::take(&mut space.shapes));
        counts.clear();
        sums.clear();
        squares.clear();
        shapes.clear();
        // Both kernels give the same bits for count and sum. A window mostly has missing values if the previous one
        // had.
        let mut whole = true;
        match self.keep {
            Keep::Number if most > 1 => self.each(batch, space, |view, _| {
                let (count, sum, square) = kernels::spread(view.values, whole);
                whole = count == view.values.len() as f64;
                counts.push(count);
                sums.push(sum);
                squares.push(square);
            }),
            Keep::Number => self.each(batch, space, |view, _| {
                let (count, sum) = kernels::sums(view.values, whole);
                whole = count == view.values.len() as f64;
                counts.push(count);
                sums.push(sum);
            }),
            Keep::Bits => self.each(batch, space, |view, _| counts.push(kernels::count_bits(view.values))),
        }
        sums.resize(counts.len(), f64::NAN);
        squares.resize(counts.len(), f64::NAN);
        if most > 2 {
            let mut counts = counts.iter();
            self.each(batch, space, |view, _| {
                shapes.push(kernels::moments(view.values, counts.next().copied().unwrap_or_default()));
            });
        }
        for ask in wanted() {
            let output = &mut outputs[ask.function];
            let moments = Moments { counts: &counts, sums: &sums, squares: &squares, min: ask.min_periods as f64 };
            match (ask.stat, order(ask.stat)) {
                (_, 0) => self.other(ask, batch, &counts, output, space),
                // Common statistics have a loop of their own, without dispatch per row.
                (Stat::Mean, _) => moments.put(output, of_squares(Stat::Mean)),
                (Stat::Std { ddof }, _) => moments.put(output, of_squares(Stat::Std { ddof })),
                (stat, 1 | 2) => moments.put(output, of_squares(stat)),
                (stat, _) => {
                    let mut shapes = shapes.iter().copied();
                    moments
                        .put(output, |count, sum, _| of_moments(stat, count, sum, shapes.next().unwrap_or_default()));
                }
            }
        }
        (space.counts, space.sums, space.squares, space.shapes) = (counts, sums, squares, shapes);
    }

    /// Calls `take` with the window of each row.
    #[inline(always)]
    fn each(&self, batch: &Batch<'_>, space: &mut Workspace, mut take: impl FnMut(View<'_>, &mut Workspace)) {
        let input = &batch.inputs[self.input];
        let spans = match &self.cover {
            Cover::All(span) => {
                for (row, (start, end)) in batch.spans(*span).enumerate() {
                    take(View { row, values: input.slice(row, start, end), distances: None, start }, space);
                }
                return;
            }
            Cover::Last(spans) => spans,
        };
        let (mut values, mut distances) = (std::mem::take(&mut space.values), std::mem::take(&mut space.distances));
        for row in 0..batch.rows.len() {
            values.clear();
            distances.clear();
            for span in spans {
                let (start, end) = (batch.distances[span.start][row], batch.distances[span.end][row]);
                if start > end {
                    distances.push(end + 1);
                    values.push(input.word(row, end));
                }
            }
            take(View { row, values: &values, distances: Some(&distances), start: 0 }, space);
        }
        (space.values, space.distances) = (values, distances);
    }

    /// Computes a statistic that needs a pass of its own.
    fn other(&self, ask: &Ask, batch: &Batch<'_>, counts: &[f64], output: &mut Vec<u64>, space: &mut Workspace) {
        let keep = self.keep;
        let rows = Rows { batch, counts, min: ask.min_periods as f64 };
        match ask.stat {
            Stat::Min => self.number(rows, output, space, |view, _, _| kernels::least(view.values)),
            Stat::Max => self.number(rows, output, space, |view, _, _| kernels::greatest(view.values)),
            Stat::ZeroShare => {
                self.number(rows, output, space, |view, _, count| kernels::zeros(view.values) / count);
            }
            Stat::Quantile(q) => {
                self.number(rows, output, space, |view, space, _| quantile(view.values, q, &mut space.sorted));
            }
            Stat::Slope { unit } => self.number(rows, output, space, |view, _, count| slope(batch, view, unit, count)),
            Stat::SinceNonzero { unit } => {
                self.number(rows, output, space, |view, _, _| since_nonzero(batch, view, unit));
            }
            Stat::Unique => self.word(rows, output, NO_NUMBER, space, |view, space| {
                distinct(view.values, keep, &mut space.distinct).to_bits()
            }),
            Stat::First => self.word(rows, output, keep.missing(), space, |view, _| {
                let first = view.values.iter().copied().find(|&word| !keep.is_missing(word));
                first.unwrap_or(keep.missing())
            }),
            Stat::Last => self.word(rows, output, keep.missing(), space, |view, _| {
                let last = view.values.iter().copied().rfind(|&word| !keep.is_missing(word));
                last.unwrap_or(keep.missing())
            }),
            _ => output.resize(output.len() + batch.rows.len(), NO_NUMBER),
        }
    }

    /// Appends a number per window; requires at least one value.
    #[inline(always)]
    fn number(
        &self,
        rows: Rows<'_>,
        output: &mut Vec<u64>,
        space: &mut Workspace,
        value: impl Fn(&View<'_>, &mut Workspace, f64) -> f64,
    ) {
        let mut counts = rows.counts.iter();
        self.each(rows.batch, space, |view, space| {
            let count = counts.next().copied().unwrap_or_default();
            let enough = count >= rows.min && count > 0.0;
            output.push(if enough { value(&view, space, count).to_bits() } else { NO_NUMBER });
        });
    }

    /// Appends a word per window, also for windows without values.
    #[inline(always)]
    fn word(
        &self,
        rows: Rows<'_>,
        output: &mut Vec<u64>,
        missing: u64,
        space: &mut Workspace,
        word: impl Fn(&View<'_>, &mut Workspace) -> u64,
    ) {
        let mut counts = rows.counts.iter();
        self.each(rows.batch, space, |view, space| {
            let enough = counts.next().is_some_and(|&count| count >= rows.min);
            output.push(if enough { word(&view, space) } else { missing });
        });
    }
}

/// A statistic of count, sum and sum of squares.
#[inline(always)]
fn of_squares(stat: Stat) -> impl Fn(f64, f64, f64) -> f64 {
    move |count, sum, m2| of_moments(stat, count, sum, [m2, 0.0, 0.0])
}

/// Counts, sums and squares of the windows of a batch.
struct Moments<'a> {
    counts: &'a [f64],
    sums: &'a [f64],
    squares: &'a [f64],
    min: f64,
}

impl Moments<'_> {
    /// Appends a statistic of count, sum and squares; missing if there are too few values.
    #[inline(always)]
    fn put(&self, output: &mut Vec<u64>, mut value: impl FnMut(f64, f64, f64) -> f64) {
        let rows = self.counts.iter().zip(self.sums).zip(self.squares);
        output.extend(rows.map(|((&count, &sum), &square)| {
            let value = value(count, sum, square);
            if count >= self.min { value.to_bits() } else { NO_NUMBER }
        }));
    }
}

/// The batch and the number of values per window.
struct Rows<'a> {
    batch: &'a Batch<'a>,
    counts: &'a [f64],
    min: f64,
}

fn quantile(values: &[u64], q: f64, sorted: &mut Vec<f64>) -> f64 {
    sorted.clear();
    sorted.extend(values.iter().map(|&word| f64::from_bits(word)).filter(|value| !value.is_nan()));
    let rank = q * (sorted.len() - 1) as f64;
    let below = (rank.floor() as usize).min(sorted.len() - 1);
    let share = rank - below as f64;
    let (_, &mut lower, above) = sorted.select_nth_unstable_by(below, f64::total_cmp);
    let upper = above.iter().copied().reduce(f64::min).unwrap_or(lower);
    between(lower, upper, share) + 0.0
}

fn distinct(values: &[u64], keep: Keep, sorted: &mut Vec<u64>) -> f64 {
    sorted.clear();
    sorted.extend(values.iter().filter(|&&word| !keep.is_missing(word)).map(|&word| match keep {
        // Normalizes -0.0 to 0.0.
        Keep::Number => (f64::from_bits(word) + 0.0).to_bits(),
        Keep::Bits => word,
    }));
    sorted.sort_unstable();
    sorted.dedup();
    sorted.len() as f64
}

fn slope(batch: &Batch<'_>, view: &View<'_>, unit: Option<i64>, count: f64) -> f64 {
    let time = |at: usize| batch.times.word(view.row, view.distance(at) - 1);
    // Places count from the first entry of the window, so that they are small and exact.
    let place = |at: usize| match unit {
        None => f64::from(view.distance(0) - view.distance(at)),
        Some(unit) => (time(at).wrapping_sub(time(0)) as i64) as f64 / unit as f64,
    };
    let points = || {
        let values = view.values.iter().map(|&word| f64::from_bits(word)).enumerate();
        values.filter(|(_, value)| !value.is_nan()).map(|(at, value)| (place(at), value))
    };
    let (places, values) = points().fold((0.0, 0.0), |(x, y), (place, value)| (x + place, y + value));
    let (place_mean, value_mean) = (places / count, values / count);
    let (mut both, mut squares) = (0.0, 0.0);
    for (place, value) in points() {
        both += (place - place_mean) * (value - value_mean);
        squares += (place - place_mean) * (place - place_mean);
    }
    if squares > 0.0 { both / squares } else { f64::NAN }
}

fn since_nonzero(batch: &Batch<'_>, view: &View<'_>, unit: Option<i64>) -> f64 {
    let nonzero = |word: &u64| {
        let value = f64::from_bits(*word);
        !value.is_nan() && value != 0.0
    };
    let Some(at) = view.values.iter().rposition(nonzero) else { return f64::NAN };
    match unit {
        None => f64::from(view.distance(at) - 1),
        Some(unit) => {
            let time = batch.times.word(view.row, view.distance(at) - 1) as i64;
            batch.rows[view.row].time.wrapping_sub(time) as f64 / unit as f64
        }
    }
}
