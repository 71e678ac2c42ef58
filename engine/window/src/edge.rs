//! Places in a series, found from a row: where windows begin and end.

use crate::Length;
use crate::batch::Row;

/// A place so far before a row: the number of entries of its series up to there.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Edge {
    /// Entries at most at the row's number less so many.
    Rows(u64),
    /// Entries at most at the row's time less so many ticks, none of them after the row.
    Ticks(i64),
}

/// The entries from one edge up to another.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Span {
    /// The index of the edge where it starts.
    pub start: usize,
    /// The index of the edge where it ends.
    pub end: usize,
}

impl Edge {
    /// `gap` and then `over` before the row.
    pub fn back(gap: Length, over: Length) -> Self {
        match (gap, over) {
            (Length::Rows(gap), Length::Rows(over)) => Edge::Rows(gap.saturating_add(over)),
            (Length::Ticks(gap), Length::Ticks(over)) => Edge::Ticks(gap.saturating_add(over)),
            (Length::Rows(_), Length::Ticks(ticks)) => Edge::Ticks(ticks),
            (Length::Ticks(_), Length::Rows(rows)) => Edge::Rows(rows),
        }
    }

    /// The next place further back.
    pub fn further(self, by: i64) -> Self {
        match self {
            Edge::Rows(rows) => Edge::Rows(rows.saturating_add(by as u64)),
            Edge::Ticks(ticks) => Edge::Ticks(ticks.saturating_add(by)),
        }
    }

    /// Where it lies for each row, counted from the start of the row's slab.
    pub fn places(self, rows: &[Row], words: &[u64], places: &mut Vec<u32>) {
        places.clear();
        match self {
            Edge::Rows(back) => {
                let back = back.min(u64::from(u32::MAX)) as u32;
                places.extend(rows.iter().map(|row| (row.place + 1).saturating_sub(back)));
            }
            Edge::Ticks(back) => places_by_time(back, rows, words, places),
        }
    }

    /// Where it lies for a row that would follow `times` at the time of the last of them.
    pub fn place_of_next(self, times: &[u64]) -> usize {
        match (self, times.last()) {
            (Edge::Rows(back), _) => (times.len() as u64 + 1).saturating_sub(back).min(times.len() as u64) as usize,
            (Edge::Ticks(_), None) => 0,
            (Edge::Ticks(back), Some(&last)) => {
                let target = (last as i64).saturating_sub(back);
                times.partition_point(|&time| time as i64 <= target)
            }
        }
    }
}

/// In a series with equal steps a place is a division away, and the quotient is the same for all
/// rows of such series; elsewhere times are searched from where the place lay in the row before.
fn places_by_time(back: i64, rows: &[Row], words: &[u64], places: &mut Vec<u32>) {
    let (mut step, mut steps) = (0i64, 0u64);
    let mut distance = 0u32;
    places.extend(rows.iter().map(|row| {
        if row.step != step && row.step > 0 {
            step = row.step;
            steps = (back.max(0) as u64).div_ceil(step as u64);
        }
        if row.step > 0 {
            if steps <= u64::from(row.run) {
                return (row.place + 1).saturating_sub(steps as u32);
            }
            if row.run >= row.place {
                return (u64::from(row.place) + 1).saturating_sub(steps) as u32;
            }
        }
        let times = &words[row.slab..=row.slab + row.place as usize];
        let target = (times[times.len() - 1] as i64).saturating_sub(back);
        let place = upto(times, target, times.len().saturating_sub(distance as usize));
        distance = (times.len() - place) as u32;
        place as u32
    }));
}

/// How many of the times, which are in order, are at most `target`; `guess` is where to look first.
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
}
