//! Bins: histograms are over these instead of over values.

/// Maximum number of bins of a numeric column, including the bin of missing values: a bin fits a
/// byte.
const NUMBER_BINS_MAX: usize = 256;

/// Rows of a bin of numbers at least.
const BIN_ROWS_MIN: usize = 3;

/// Maximum number of rows from which the bounds of a numeric column are computed; of more rows,
/// evenly spaced ones are used.
const SAMPLE_ROWS_MAX: usize = 200_000;

/// Categories of a column at most.
const CATEGORIES_MAX: usize = 65_534;

/// Rows of a category at least; rarer ones count as missing.
pub const CATEGORY_ROWS_MIN: usize = 10;

/// Number of categories up to which a column is split one category against the rest, and keeps rare
/// categories.
pub const ONE_HOT_CATEGORIES_MAX: usize = 4;

/// Mapping of a feature's values to bins. Bin 0 holds missing values.
#[derive(Debug, Clone, PartialEq)]
pub enum FeatureBins {
    /// Bin `i + 1` holds the values above bound `i - 1`, up to and with bound `i`; the last has no upper bound.
    Numbers { bounds: Vec<f32> },
    /// Bin `i + 1` holds id `i` in the order of frequency; other ids count as missing.
    Categories {
        ids: Vec<i32>,
        sorted: Vec<(i32, u16)>,
    },
}

impl FeatureBins {
    /// Bins of numbers.
    pub fn of_numbers(column: impl ExactSizeIterator<Item = f32>) -> FeatureBins {
        let step = sampled_row_step(column.len());
        // Adding zero makes a negative zero positive.
        let mut values: Vec<f32> = column
            .step_by(step)
            .filter(|value| !value.is_nan())
            .map(|value| value + 0.0)
            .collect();
        values.sort_unstable_by(f32::total_cmp);
        let mut distinct: Vec<(f32, usize)> = Vec::new();
        for value in values {
            match distinct.last_mut() {
                Some((last, count)) if *last == value => *count += 1,
                _ => distinct.push((value, 1)),
            }
        }
        FeatureBins::Numbers {
            bounds: choose_bounds(&distinct),
        }
    }

    /// Bins of categorical ids.
    pub fn of_categories(column: impl Iterator<Item = i32>) -> FeatureBins {
        let mut values: Vec<i32> = column.filter(|id| *id >= 0).collect();
        values.sort_unstable();
        let runs = values.chunk_by(|a, b| a == b);
        FeatureBins::of_category_counts(runs.map(|run| (run.len() as u32, run[0])).collect())
    }

    /// Bins of categorical ids, of which each comes with its number of rows.
    pub fn of_category_counts(mut counts: Vec<(u32, i32)>) -> FeatureBins {
        if counts.len() > ONE_HOT_CATEGORIES_MAX {
            counts.retain(|(count, _)| *count as usize >= CATEGORY_ROWS_MIN);
        }
        counts.sort_unstable_by(|a, b| b.0.cmp(&a.0).then(a.1.cmp(&b.1)));
        counts.truncate(CATEGORIES_MAX);
        let ids: Vec<i32> = counts.into_iter().map(|(_, id)| id).collect();
        let mut sorted: Vec<(i32, u16)> = ids.iter().zip(1..).map(|(id, bin)| (*id, bin)).collect();
        sorted.sort_unstable();
        FeatureBins::Categories { ids, sorted }
    }

    /// Number of bins, including the bin of missing values.
    pub fn count(&self) -> usize {
        match self {
            FeatureBins::Numbers { bounds } => bounds.len() + 2,
            FeatureBins::Categories { ids, .. } => ids.len() + 1,
        }
    }

    /// The greatest number of a bin; infinite for the last one.
    pub fn upper_bound(&self, bin: u16) -> f32 {
        let bounds: &[f32] = match self {
            FeatureBins::Numbers { bounds } => bounds,
            FeatureBins::Categories { .. } => &[],
        };
        let index = usize::from(bin).checked_sub(1);
        let bound = index.and_then(|index| bounds.get(index));
        bound.copied().unwrap_or(f32::INFINITY)
    }

    /// The ids of bins 1, 2, and so on; none where the feature is one of numbers.
    pub fn category_ids(&self) -> &[i32] {
        match self {
            FeatureBins::Numbers { .. } => &[],
            FeatureBins::Categories { ids, .. } => ids,
        }
    }

    /// The bin of a number: 0 where the feature is none of numbers.
    pub fn of_number(&self, value: f32) -> u16 {
        match self {
            FeatureBins::Numbers { bounds } if !value.is_nan() => {
                1 + bounds.partition_point(|bound| value > *bound) as u16
            }
            _ => 0,
        }
    }

    /// The bin of a categorical id: 0 where the feature has no such category.
    pub fn of_category(&self, id: i32) -> u16 {
        let FeatureBins::Categories { sorted, .. } = self else {
            return 0;
        };
        sorted
            .binary_search_by_key(&id, |(seen, _)| *seen)
            .map_or(0, |index| sorted[index].1)
    }
}

/// Distance of the rows from which the bounds of a numeric column are computed.
pub fn sampled_row_step(rows: usize) -> usize {
    rows.div_ceil(SAMPLE_ROWS_MAX).max(1)
}

/// Upper bounds of all bins but the last: one bin per value where these are few, else bins of equal size, with bins
/// of their own for values that fill one.
fn choose_bounds(distinct: &[(f32, usize)]) -> Vec<f32> {
    let row_count: usize = distinct.iter().map(|(_, count)| count).sum();
    if distinct.len() < NUMBER_BINS_MAX {
        bounds_of_few(distinct, row_count)
    } else {
        bounds_of_many(distinct, row_count)
    }
}

/// True if a column has room for one more bound.
fn has_room(bounds: &[f32]) -> bool {
    bounds.len() + 1 < NUMBER_BINS_MAX - 1
}

/// Bounds between values, so that each bin has enough rows.
fn bounds_of_few(distinct: &[(f32, usize)], row_count: usize) -> Vec<f32> {
    let mut bounds = Vec::new();
    let mut rows = 0;
    let mut seen = 0;
    for pair in distinct.windows(2) {
        let (value, count) = pair[0];
        let (next, _) = pair[1];
        rows += count;
        seen += count;
        let is_full = rows >= BIN_ROWS_MIN && row_count - seen >= BIN_ROWS_MIN;
        if is_full && has_room(&bounds) {
            bounds.push(between(value, next));
            rows = 0;
        }
    }
    bounds
}

/// Bounds of bins of equal size, with bins of their own for values that fill one.
fn bounds_of_many(distinct: &[(f32, usize)], row_count: usize) -> Vec<f32> {
    let bins_max = (NUMBER_BINS_MAX - 1).min(row_count / BIN_ROWS_MIN).max(1);
    let full_rows = row_count as f64 / bins_max as f64;
    // Bins and rows of values that share bins.
    let mut shared_bins = bins_max;
    let mut shared_rows = row_count;
    for (_, count) in distinct {
        if *count as f64 >= full_rows {
            shared_bins -= 1;
            shared_rows -= count;
        }
    }
    let mut target = rows_of_bin(shared_rows, shared_bins);
    let mut bounds = Vec::new();
    let mut rows = 0;
    for pair in distinct.windows(2) {
        let (value, count) = pair[0];
        let (next, next_count) = pair[1];
        let fills_bin = count as f64 >= full_rows;
        let next_fills_bin = next_count as f64 >= full_rows;
        rows += count;
        if !fills_bin {
            shared_rows -= count;
        }
        let is_full = fills_bin
            || rows as f64 >= target
            || next_fills_bin && rows as f64 >= (target / 2.0).max(1.0);
        if is_full && has_room(&bounds) {
            bounds.push(between(value, next));
            rows = 0;
            if !fills_bin {
                shared_bins = shared_bins.saturating_sub(1);
                target = rows_of_bin(shared_rows, shared_bins);
            }
        }
    }
    bounds
}

/// Rows of each of some bins of equal size.
fn rows_of_bin(rows: usize, bins: usize) -> f64 {
    rows as f64 / bins.max(1) as f64
}

/// Number that is at least `low` and less than `high`, in the middle if there is one.
fn between(low: f32, high: f32) -> f32 {
    let middle = ((f64::from(low) + f64::from(high)) / 2.0) as f32;
    if middle >= low && middle < high {
        middle
    } else {
        low
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_value_lies_in_the_bin_between_its_bounds() {
        let few: Vec<f32> = (0..100).map(|row| (row % 7) as f32).collect();
        let many: Vec<f32> = (0..50_000)
            .map(|row| ((row * 7919) % 50_021) as f32 / 13.0 - 900.0)
            .collect();
        let mostly_zero: Vec<f32> = (0..9000)
            .map(|row| if row % 3 == 0 { row as f32 } else { 0.0 })
            .collect();
        let extreme = vec![
            f32::NEG_INFINITY,
            f32::NEG_INFINITY,
            f32::NEG_INFINITY,
            1.0,
            1.0,
            1.0,
            f32::INFINITY,
        ];
        for (values, bins) in [(few, 8), (many, 256), (mostly_zero, 256), (extreme, 3)] {
            let found = FeatureBins::of_numbers(values.iter().copied());
            let FeatureBins::Numbers { bounds } = &found else {
                panic!("not numbers")
            };
            assert!(
                bounds.windows(2).all(|pair| pair[0] < pair[1]),
                "{bounds:?}"
            );
            assert!(
                found.count() <= bins && found.count() + 60 >= bins,
                "{} bins",
                found.count()
            );
            let mut counts = vec![0; found.count()];
            for value in values {
                let bin = found.of_number(value) as usize;
                counts[bin] += 1;
                assert!(bin == 1 || value > bounds[bin - 2]);
                assert!(bin == bounds.len() + 1 || value <= bounds[bin - 1]);
            }
            assert_eq!(counts[0], 0);
            assert!(counts[1..].iter().all(|count| *count > 0), "{counts:?}");
        }
        assert_eq!(
            FeatureBins::Numbers { bounds: vec![1.0] }.of_number(f32::NAN),
            0
        );
    }

    #[test]
    fn categories_come_by_frequency_and_rare_ones_count_as_missing() {
        let ids = [3, 3, 3, 9, 9, -1, 5]
            .repeat(10)
            .into_iter()
            .chain([6, 7, 7]);
        let found = FeatureBins::of_categories(ids);
        let FeatureBins::Categories { ids, .. } = &found else {
            panic!("not categories")
        };
        assert_eq!((ids.as_slice(), found.count()), ([3, 9, 5].as_slice(), 4));
        let bins = [3, 9, 5, 7, -1, 100].map(|id| found.of_category(id));
        assert_eq!(bins, [1, 2, 3, 0, 0, 0]);
    }
}
