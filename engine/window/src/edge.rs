//! Window bounds: positions in a series relative to a row.

use crate::Length;
use crate::batch::Row;

/// A position between two entries of a series, relative to a row. Its distance is the number of entries after it,
/// up to and including the row's own entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Edge {
    /// Directly after the entry this many rows back.
    Rows(u64),
    /// Directly after the last entry at least this many ticks back.
    Ticks(i64),
}

/// The entries between two bounds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Span {
    /// Index of the first bound.
    pub start: usize,
    /// Index of the second bound.
    pub end: usize,
}

impl Edge {
    /// The bound `gap + over` before the row.
    pub fn back(gap: Length, over: Length) -> Self {
        match (gap, over) {
            (Length::Rows(gap), Length::Rows(over)) => Edge::Rows(gap.saturating_add(over)),
            (Length::Ticks(gap), Length::Ticks(over)) => Edge::Ticks(gap.saturating_add(over)),
            (Length::Rows(_), Length::Ticks(ticks)) => Edge::Ticks(ticks),
            (Length::Ticks(_), Length::Rows(rows)) => Edge::Rows(rows),
        }
    }

    /// A bound further back by `by` rows or ticks.
    pub fn further(self, by: i64) -> Self {
        match self {
            Edge::Rows(rows) => Edge::Rows(rows.saturating_add(by as u64)),
            Edge::Ticks(ticks) => Edge::Ticks(ticks.saturating_add(by)),
        }
    }

    /// Whether it lies before another bound of the same kind.
    pub fn is_before(self, other: Self) -> bool {
        match (self, other) {
            (Edge::Rows(own), Edge::Rows(other)) => own > other,
            (Edge::Ticks(own), Edge::Ticks(other)) => own > other,
            _ => false,
        }
    }

    /// Whether it is the position directly after the row.
    pub fn is_own(self) -> bool {
        matches!(self, Edge::Rows(0) | Edge::Ticks(0))
    }

    /// Computes the distance for each row. `times` returns the times of a row's series up to the row; `pace` is the
    /// step pattern of the rows.
    pub fn distances<'a>(
        self,
        (rows, pace): (&[Row], &Pace),
        times: impl Fn(usize) -> &'a [u64],
        distances: &mut Vec<u32>,
    ) {
        distances.clear();
        match self {
            Edge::Rows(back) => distances.extend(rows.iter().map(|row| back.min(row.number + 1) as u32)),
            Edge::Ticks(back) => match pace.distance(back.max(0)) {
                Some(distance) => distances.resize(rows.len(), distance),
                None => by_time(back.max(0), rows, times, distances),
            },
        }
    }

    /// Distance from a future row at the time of the last entry. `times` are the last of the `count` entries of the
    /// series.
    pub fn distance_of_next(self, times: &[u64], count: u64) -> u64 {
        match (self, times.last()) {
            (Edge::Rows(back), _) => back.saturating_sub(1).min(count),
            (Edge::Ticks(_), None) => 0,
            (Edge::Ticks(back), Some(&last)) => {
                let target = (last as i64).saturating_sub(back);
                (times.len() - times.partition_point(|&time| time as i64 <= target)) as u64
            }
        }
    }
}

/// Common step pattern of the rows of a batch. In a panel all series have the same steps, so one distance holds for
/// all rows.
#[derive(Debug)]
pub(crate) struct Pace {
    /// Ticks since the previous entry, if equal for all rows.
    step: Option<i64>,
    /// Least and greatest number of consecutive equal steps before a row.
    runs: (u32, u32),
    /// Least and greatest index of a row in its series.
    numbers: (u64, u64),
}

impl Pace {
    pub fn of(rows: &[Row]) -> Self {
        let step = rows.first().map(|row| row.step).filter(|step| *step > 0);
        let mut pace = Pace { step, runs: (u32::MAX, 0), numbers: (u64::MAX, 0) };
        let mut same = true;
        for row in rows {
            same &= Some(row.step) == step;
            pace.runs = (pace.runs.0.min(row.run), pace.runs.1.max(row.run));
            pace.numbers = (pace.numbers.0.min(row.number), pace.numbers.1.max(row.number));
        }
        pace.step = pace.step.filter(|_| same);
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
        let is_all = least == most && least > 0 && u64::from(self.runs.0) >= most && steps > u64::from(self.runs.1);
        is_all.then_some((most + 1) as u32)
    }
}

/// Computes distances row by row. In a series with equal steps the distance is a quotient, which is the same for
/// all series with that step. Otherwise the times are searched, starting at the distance of the previous row.
fn by_time<'a>(back: i64, rows: &[Row], times: impl Fn(usize) -> &'a [u64], distances: &mut Vec<u32>) {
    let (mut step, mut steps) = (0i64, 0u64);
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
        distance = search(times(at), back, distance);
        distance
    }));
}

#[cold]
fn search(times: &[u64], back: i64, guess: u32) -> u32 {
    let target = times.last().map_or(0, |&time| (time as i64).saturating_sub(back));
    (times.len() - upto(times, target, times.len().saturating_sub(guess as usize))) as u32
}

/// Number of sorted times that are at most `target`: exponential search from `guess`.
fn upto(times: &[u64], target: i64, guess: usize) -> usize {
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
        let times: Vec<u64> = [-5i64, -5, -1, 0, 0, 0, 3, 8, 9, 9, 20, 21].map(|time| time as u64).to_vec();
        for target in -7..24 {
            let expected = times.iter().filter(|&&time| time as i64 <= target).count();
            for guess in 0..=times.len() {
                assert_eq!(upto(&times, target, guess), expected, "{target} from {guess}");
            }
        }
    }

    #[test]
    fn rows_in_step_are_as_far_as_rows_one_by_one() {
        let row = |time, number, step, run| Row { time, number, step, run, series: 0, fillers: 0, source: None };
        let together: [Vec<Row>; 5] = [
            (0..9).map(|_| row(50, 5, 10, 5)).collect(),
            (0..9).map(|at| row(50, 5, 10, 5 + at % 2)).collect(),
            (5..9).map(|number| row(90, number, 10, number as u32)).collect(),
            (0..9).map(|_| row(0, 0, 0, 0)).collect(),
            vec![row(50, 7, 10, 5), row(50, 5, 10, 2), row(50, 5, 0, 1), row(50, 5, 20, 1)],
        ];
        let times: Vec<u64> = (0..=20).map(|entry| (entry * 10 - 150) as u64).collect();
        for rows in &together {
            let pace = Pace::of(rows);
            for back in [-3, 0, 1, 9, 10, 11, 49, 50, 51, 60, 70, 1000] {
                let (mut one_by_one, mut together) = (Vec::new(), Vec::new());
                let times = |row: usize| &times[20 - rows[row].number as usize..];
                by_time(back.max(0), rows, times, &mut one_by_one);
                Edge::Ticks(back).distances((rows, &pace), times, &mut together);
                assert_eq!(together, one_by_one, "{back} ticks back");
            }
        }
    }
}
