//! Window bounds: positions in a series relative to a row.

use forebay_model::{CalendarSpan, ColumnClock};

use crate::SeriesLength;
use crate::batch::BatchRow;

/// A position between two entries of a series, relative to a row. Its distance is the number of entries after it,
/// up to and including the row's own entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum WindowBound {
    /// Directly after the entry this many rows back.
    Rows(u64),
    /// Directly after the last entry at least this many ticks back.
    Ticks(i64),
    /// Directly after the last entry at least this many ticks before a span of the calendar back.
    Calendar { span: CalendarSpan, older: i64 },
}

/// Entries before a bound of the calendar that decide which entry counts as the bound.
pub(crate) const ANCHOR_ENTRIES: u64 = 2;

impl WindowBound {
    /// The bound `gap + over` before the row.
    pub fn back(gap: SeriesLength, over: SeriesLength) -> Self {
        match (gap, over) {
            (SeriesLength::Rows(gap), SeriesLength::Rows(over)) => {
                WindowBound::Rows(gap.saturating_add(over))
            }
            (SeriesLength::Ticks(gap), SeriesLength::Ticks(over)) => {
                WindowBound::Ticks(gap.saturating_add(over))
            }
            (SeriesLength::Rows(_), SeriesLength::Ticks(ticks)) => WindowBound::Ticks(ticks),
            (SeriesLength::Rows(_), SeriesLength::Calendar(span)) => WindowBound::of_span(span),
            (SeriesLength::Ticks(_) | SeriesLength::Calendar(_), SeriesLength::Rows(rows)) => {
                WindowBound::Rows(rows)
            }
            (SeriesLength::Calendar(gap), SeriesLength::Calendar(over)) => {
                WindowBound::of_span(gap.plus(over))
            }
            (SeriesLength::Calendar(span), SeriesLength::Ticks(ticks))
            | (SeriesLength::Ticks(ticks), SeriesLength::Calendar(span)) => {
                WindowBound::of_span(span.plus(CalendarSpan::ticks(ticks)))
            }
        }
    }

    fn of_span(span: CalendarSpan) -> Self {
        if span.is_calendar() {
            WindowBound::Calendar { span, older: 0 }
        } else {
            WindowBound::Ticks(span.ticks)
        }
    }

    /// True if it is a time before the row.
    pub fn is_time(self) -> bool {
        matches!(self, WindowBound::Ticks(_) | WindowBound::Calendar { .. })
    }

    /// A bound further back by a span of time; rows stay as they are.
    pub fn further_in_time(self, by: CalendarSpan) -> Self {
        match self {
            WindowBound::Rows(_) => self,
            WindowBound::Ticks(ticks) => WindowBound::of_span(CalendarSpan::ticks(ticks).plus(by)),
            WindowBound::Calendar { span, older } => {
                WindowBound::of_span(span.plus(by)).further(older)
            }
        }
    }

    /// A bound further back by `by` rows or ticks.
    pub fn further(self, by: i64) -> Self {
        match self {
            WindowBound::Rows(rows) => WindowBound::Rows(rows.saturating_add(by as u64)),
            WindowBound::Ticks(ticks) => WindowBound::Ticks(ticks.saturating_add(by)),
            WindowBound::Calendar { span, older } => WindowBound::Calendar {
                span,
                older: older.saturating_add(by),
            },
        }
    }

    /// True if it lies before another bound of the same kind.
    pub fn is_before(self, other: Self) -> bool {
        match (self, other) {
            (WindowBound::Rows(rows), WindowBound::Rows(other)) => rows > other,
            (WindowBound::Ticks(ticks), WindowBound::Ticks(other)) => ticks > other,
            (
                WindowBound::Calendar { span, older },
                WindowBound::Calendar {
                    span: other,
                    older: other_older,
                },
            ) => (span, older) > (other, other_older),
            (WindowBound::Calendar { .. }, WindowBound::Ticks(_)) => true,
            _ => false,
        }
    }

    /// True if it is the position directly after the row.
    pub fn is_own(self) -> bool {
        matches!(self, WindowBound::Rows(0) | WindowBound::Ticks(0))
    }

    /// Computes the distance for each row. `times` returns the times of a row's series up to the row; `pace` is the
    /// step pattern of the rows.
    pub fn distances<'a>(
        self,
        rows: &[BatchRow],
        pace: &StepPattern,
        clock: Option<&ColumnClock>,
        times: impl Fn(usize) -> &'a [u64],
        distances: &mut Vec<u32>,
    ) {
        distances.clear();
        match self {
            WindowBound::Rows(back) => {
                distances.extend(rows.iter().map(|row| back.min(row.number + 1) as u32))
            }
            WindowBound::Ticks(back) => match pace.distance(back.max(0)) {
                Some(distance) => distances.resize(rows.len(), distance),
                None => distances_by_time(back.max(0), rows, times, distances),
            },
            WindowBound::Calendar { span, older } => {
                CalendarBound { clock, span }.distances(older, rows, times, distances);
            }
        }
    }

    /// Distance from a future row at the time of the last entry. `times` are the last of the `count` entries of the
    /// series.
    pub fn distance_of_next(self, clock: Option<&ColumnClock>, times: &[u64], count: u64) -> u64 {
        match (self, times.last()) {
            (WindowBound::Rows(back), _) => back.saturating_sub(1).min(count),
            (WindowBound::Ticks(_) | WindowBound::Calendar { .. }, None) => 0,
            (WindowBound::Calendar { span, older }, Some(&last)) => {
                let period_before = CalendarBound { clock, span }.time_before(last as i64);
                let target = period_before.saturating_sub(older);
                let distance = times.len() - times.partition_point(|&time| time as i64 <= target);
                distance as u64 + ANCHOR_ENTRIES
            }
            (WindowBound::Ticks(back), Some(&last)) => {
                let target = (last as i64).saturating_sub(back);
                (times.len() - times.partition_point(|&time| time as i64 <= target)) as u64
            }
        }
    }
}

/// A bound by a span of the calendar.
///
/// A month before a row is the same day of the month before, or its end where that month is shorter. That alone would
/// part a series of month ends: a month before 30 April is 30 March. So where the series has no row at the bound, the
/// row next to it is the bound if it lies a whole span before the row, and all rows since are whole months (or days)
/// after it. For days, this happens where the clock skips the time of day of a series.
#[derive(Debug, Clone, Copy)]
struct CalendarBound<'a> {
    clock: Option<&'a ColumnClock>,
    span: CalendarSpan,
}

impl CalendarBound<'_> {
    /// The time a span before another.
    fn time_before(self, time: i64) -> i64 {
        let earlier = self.clock.and_then(|clock| clock.earlier(time, self.span));
        // Beyond the calendar, days have 24 hours and months 31 days.
        earlier.unwrap_or_else(|| {
            let tick = self.clock.map_or(1, ColumnClock::tick);
            time.saturating_sub(self.span.tick_bounds(tick).1)
        })
    }

    /// Computes the distance for each row of a bound that lies `older` ticks before this one.
    fn distances<'a>(
        self,
        older: i64,
        rows: &[BatchRow],
        times: impl Fn(usize) -> &'a [u64],
        distances: &mut Vec<u32>,
    ) {
        let mut distance = 0u32;
        // Rows of a panel mostly have few times.
        let mut latest: Option<(i64, i64)> = None;
        distances.extend(rows.iter().enumerate().map(|(at, row)| {
            let bound = match latest {
                Some((time, bound)) if time == row.time => bound,
                _ => self.time_before(row.time),
            };
            latest = Some((row.time, bound));
            let times = times(at);
            let guess = times.len().saturating_sub(distance as usize);
            let count = count_up_to(times, bound, guess);
            let bound = self.anchor(times, count, bound).unwrap_or(bound);
            let entries = count_up_to(times, bound.saturating_sub(older), count);
            distance = (times.len() - entries) as u32;
            distance
        }));
    }

    /// The time of the entry next to the bound that counts as the bound: the first one after it, else the last one before
    /// it. `count` entries are at or before the bound.
    fn anchor(self, times: &[u64], count: usize, bound: i64) -> Option<i64> {
        let clock = self.clock?;
        let is_at_bound = count > 0 && times[count - 1] as i64 == bound;
        // A bound that hours move as well is no step of the calendar.
        if is_at_bound || self.span.ticks != 0 {
            return None;
        }
        if let Some(first) = self.anchor_at(clock, times, count) {
            return Some(first);
        }
        // A day before a time that the clock skipped is later than that of the row before.
        if clock.has_even_days() {
            return None;
        }
        self.anchor_at(clock, times, count.checked_sub(1)?)
    }

    /// The time of an entry that lies a whole span before the last one, where all since are whole steps after it.
    fn anchor_at(self, clock: &ColumnClock, times: &[u64], index: usize) -> Option<i64> {
        let entries = times.get(index..)?;
        let first = *entries.first()? as i64;
        let row = *entries.last()? as i64;
        if clock.later(first, self.span) != Some(row) {
            return None;
        }
        let unit = if self.span.months > 0 {
            CalendarSpan::months(1)
        } else {
            CalendarSpan::days(1)
        };
        let is_step = |time: &u64| {
            let time = *time as i64;
            let steps = clock.steps(first, time, unit);
            steps.is_some_and(|steps| clock.later(first, unit.times(steps)) == Some(time))
        };
        // The bounds of two rows are at most two entries apart from those of the calendar.
        let is_other = |entry: Option<&u64>| entry.is_none_or(|entry| *entry as i64 != first);
        let previous = index.checked_sub(1).and_then(|at| times.get(at));
        let is_alone = is_other(previous) && is_other(entries.get(1));
        (is_alone && entries.iter().all(is_step)).then_some(first)
    }
}

/// Common step pattern of the rows of a batch. In a panel all series have the same steps, so one distance holds for
/// all rows.
#[derive(Debug)]
pub(crate) struct StepPattern {
    /// Ticks since the previous entry, if equal for all rows.
    step: Option<i64>,
    /// Least and greatest number of consecutive equal steps before a row.
    runs: (u32, u32),
    /// Least and greatest index of a row in its series.
    numbers: (u64, u64),
}

impl StepPattern {
    pub fn of(rows: &[BatchRow]) -> Self {
        let step = rows.first().map(|row| row.step).filter(|step| *step > 0);
        let mut pace = StepPattern {
            step,
            runs: (u32::MAX, 0),
            numbers: (u64::MAX, 0),
        };
        let mut are_alike = true;
        for row in rows {
            are_alike &= Some(row.step) == step;
            pace.runs = (pace.runs.0.min(row.run), pace.runs.1.max(row.run));
            pace.numbers = (
                pace.numbers.0.min(row.number),
                pace.numbers.1.max(row.number),
            );
        }
        pace.step = pace.step.filter(|_| are_alike);
        pace
    }

    /// Distance of a bound `back` ticks before the row, if equal for all rows.
    fn distance(&self, back: i64) -> Option<u32> {
        let steps = (back as u64).div_ceil(self.step? as u64);
        if steps <= u64::from(self.runs.0) {
            return Some(steps as u32);
        }
        // The bound lies before all entries.
        let (least, most) = self.numbers;
        let is_all = least == most
            && least > 0
            && u64::from(self.runs.0) >= most
            && steps > u64::from(self.runs.1);
        is_all.then_some((most + 1) as u32)
    }
}

/// Computes distances row by row. In a series with equal steps the distance is a quotient, which is the same for
/// all series with that step. Otherwise the times are searched, starting at the distance of the previous row.
fn distances_by_time<'a>(
    back: i64,
    rows: &[BatchRow],
    times: impl Fn(usize) -> &'a [u64],
    distances: &mut Vec<u32>,
) {
    let mut step = 0i64;
    let mut steps = 0u64;
    let mut distance = 0u32;
    distances.extend(rows.iter().enumerate().map(|(at, row)| {
        if row.number == 0 {
            return u32::from(back > 0);
        }
        if row.step > 0 {
            if row.step != step {
                step = row.step;
                steps = (back as u64).div_ceil(step as u64);
            }
            if steps <= u64::from(row.run) {
                return steps as u32;
            }
            if u64::from(row.run) >= row.number {
                return (row.number + 1) as u32;
            }
        }
        distance = search_distance(times(at), back, distance);
        distance
    }));
}

#[cold]
fn search_distance(times: &[u64], back: i64, guess: u32) -> u32 {
    let target = times
        .last()
        .map_or(0, |&time| (time as i64).saturating_sub(back));
    (times.len() - count_up_to(times, target, times.len().saturating_sub(guess as usize))) as u32
}

/// Number of sorted times that are at most `target`: exponential search from `guess`.
fn count_up_to(times: &[u64], target: i64, guess: usize) -> usize {
    let within = |at: usize| times[at] as i64 <= target;
    let mut stride = 1;
    let (low, high) = if guess < times.len() && within(guess) {
        let mut low = guess + 1;
        while low + stride < times.len() && within(low + stride) {
            low += stride + 1;
            stride *= 2;
        }
        (low, times.len().min(low + stride))
    } else {
        let mut high = guess.min(times.len());
        while high > stride && !within(high - stride) {
            high -= stride;
            stride *= 2;
        }
        (high.saturating_sub(stride), high)
    };
    low + times[low..high].partition_point(|&time| time as i64 <= target)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_search_finds_the_place_from_any_guess() {
        let times: Vec<u64> = [-5i64, -5, -1, 0, 0, 0, 3, 8, 9, 9, 20, 21]
            .map(|time| time as u64)
            .to_vec();
        for target in -7..24 {
            let expected = times.iter().filter(|&&time| time as i64 <= target).count();
            for guess in 0..=times.len() {
                assert_eq!(
                    count_up_to(&times, target, guess),
                    expected,
                    "{target} from {guess}"
                );
            }
        }
    }

    #[test]
    fn common_step_gives_the_same_distances_as_single_rows() {
        let row = |time, number, step, run| BatchRow {
            time,
            number,
            step,
            run,
            series: 0,
            fillers: 0,
            source: None,
        };
        let together: [Vec<BatchRow>; 5] = [
            (0..9).map(|_| row(50, 5, 10, 5)).collect(),
            (0..9).map(|at| row(50, 5, 10, 5 + at % 2)).collect(),
            (5..9)
                .map(|number| row(90, number, 10, number as u32))
                .collect(),
            (0..9).map(|_| row(0, 0, 0, 0)).collect(),
            vec![
                row(50, 7, 10, 5),
                row(50, 5, 10, 2),
                row(50, 5, 0, 1),
                row(50, 5, 20, 1),
            ],
        ];
        let times: Vec<u64> = (0..=20).map(|entry| (entry * 10 - 150) as u64).collect();
        for rows in &together {
            let pace = StepPattern::of(rows);
            for back in [-3, 0, 1, 9, 10, 11, 49, 50, 51, 60, 70, 1000] {
                let mut one_by_one = Vec::new();
                let mut together = Vec::new();
                let times = |row: usize| &times[20 - rows[row].number as usize..];
                distances_by_time(back.max(0), rows, times, &mut one_by_one);
                WindowBound::Ticks(back).distances(rows, &pace, None, times, &mut together);
                assert_eq!(together, one_by_one, "{back} ticks back");
            }
        }
    }
}
