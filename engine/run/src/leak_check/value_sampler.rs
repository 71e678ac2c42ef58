//! The values that scrambled cells take: others of the column, and some beyond its range.

use std::sync::Arc;

use arrow::array::{
    Array, ArrayRef, AsArray, BooleanArray, DynComparator, Float64Array, StringArray,
    make_comparator, new_null_array,
};
use arrow::compute::{
    CastOptions, SortOptions, cast, cast_with_options, concat, filter, interleave, is_not_null,
};
use arrow::datatypes::{DataType, Float64Type};
use forebay_model::{Result, logical_type, ticks};

/// Maximum number of draws for a value that differs from the present one.
const DRAWS_MAX: usize = 16;

/// One value of this many becomes null, in columns that have nulls.
const NULL_EVERY: u64 = 8;

/// The values of one column.
pub(super) struct ValueSampler {
    /// Values, behind them one null.
    values: ArrayRef,
    /// True if the column has nulls.
    nulls: bool,
}

impl ValueSampler {
    /// Creates a sampler from a sample of the column. `last` is the last tick of the past: columns
    /// of dates and times take values of the future only, so that no row moves into the past.
    pub fn new(sample: &ArrayRef, last: i64) -> Result<ValueSampler> {
        let sample = cast(sample, &logical_type(sample.data_type()))?;
        let nulls = sample.null_count() > 0;
        let mut values = filter(&sample, &is_not_null(&sample)?)?;
        let beyond = match sample.data_type() {
            DataType::Boolean => Arc::new(BooleanArray::from(vec![false, true])) as ArrayRef,
            DataType::Utf8 if values.is_empty() => Arc::new(StringArray::from(vec!["~", "~~"])),
            DataType::Date32 | DataType::Date64 | DataType::Timestamp(..) => {
                let future: BooleanArray = ticks(&values)?
                    .iter()
                    .map(|tick| Some(tick? > last))
                    .collect();
                values = filter(&values, &future)?;
                values.slice(0, 0)
            }
            data_type if data_type.is_numeric() => {
                let (finite, beyond) = out_of_range_values(&values)?;
                values = filter(&values, &finite)?;
                beyond
            }
            _ => values.slice(0, 0),
        };
        let null = new_null_array(values.data_type(), 1);
        Ok(ValueSampler {
            values: concat(&[&values, &beyond, &null])?,
            nulls,
        })
    }

    /// Other values for the rows that have one of these random numbers.
    pub fn scramble(&self, column: &ArrayRef, randoms: &[Option<u64>]) -> Result<ArrayRef> {
        let count = self.values.len() - 1;
        if count == 0 {
            return Ok(column.clone());
        }
        let column = cast(column, self.values.data_type())?;
        let draws = ValueDraws {
            column: &column,
            compare: make_comparator(&column, &self.values, SortOptions::default()).ok(),
            count,
            nulls: self.nulls,
        };
        let mut picks = Vec::with_capacity(randoms.len());
        for (row, random) in randoms.iter().enumerate() {
            let value = random.and_then(|random| draws.draw(row, random));
            picks.push(match value {
                Some(value) => (1, value),
                None => (0, row),
            });
        }
        Ok(interleave(&[&column, &self.values], &picks)?)
    }
}

/// Draws of values for the rows of a column.
struct ValueDraws<'c> {
    column: &'c ArrayRef,
    /// Compares a row with a value; `None` where the type has no order.
    compare: Option<DynComparator>,
    /// Number of values; behind them is the null.
    count: usize,
    /// True if the column has nulls.
    nulls: bool,
}

impl ValueDraws<'_> {
    /// Another value for a row; `None` where all values that were drawn equal the present one.
    fn draw(&self, row: usize, random: u64) -> Option<usize> {
        if self.nulls && self.column.is_valid(row) && random.is_multiple_of(NULL_EVERY) {
            return Some(self.count);
        }
        let first = (random >> 8) as usize % self.count;
        for draw in 0..self.count.min(DRAWS_MAX) {
            let value = (first + draw) % self.count;
            if self.differs(row, value) {
                return Some(value);
            }
        }
        None
    }

    fn differs(&self, row: usize, value: usize) -> bool {
        if self.column.is_null(row) {
            return true;
        }
        match &self.compare {
            Some(compare) => compare(row, value).is_ne(),
            None => true,
        }
    }
}

/// Mask of the finite numbers, and numbers a little beyond their range, which change a global
/// minimum or maximum. Numbers that are never negative stay so.
fn out_of_range_values(values: &ArrayRef) -> Result<(BooleanArray, ArrayRef)> {
    let doubles = cast(values, &DataType::Float64)?;
    let doubles = doubles.as_primitive::<Float64Type>();
    let finite: BooleanArray = doubles
        .iter()
        .map(|value| Some(value.is_some_and(f64::is_finite)))
        .collect();
    let mut min = f64::INFINITY;
    let mut max = f64::NEG_INFINITY;
    for value in doubles.iter().flatten() {
        if value.is_finite() {
            min = min.min(value);
            max = max.max(value);
        }
    }
    if min > max {
        min = 0.0;
        max = 1.0;
    }
    let margin = ((max - min) / 10.0).max(1.0);
    let below = if min >= 0.0 { min / 2.0 } else { min - margin };
    let beyond: ArrayRef = Arc::new(Float64Array::from(vec![
        below,
        max + margin,
        max + margin * 2.0,
    ]));
    let beyond = cast_with_options(
        &beyond,
        values.data_type(),
        &CastOptions {
            safe: true,
            ..CastOptions::default()
        },
    )?;
    Ok((finite, filter(&beyond, &is_not_null(&beyond)?)?))
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use arrow::array::{Date32Array, Int8Array};

    use super::*;

    fn scrambled(column: ArrayRef) -> ArrayRef {
        let randoms: Vec<Option<u64>> = (0..column.len() as u64)
            .map(|row| (row > 0).then_some(row * 0x9e37_79b9))
            .collect();
        ValueSampler::new(&column, 10)
            .unwrap()
            .scramble(&column, &randoms)
            .unwrap()
    }

    fn check(column: impl Array + 'static) {
        let column: ArrayRef = Arc::new(column);
        let other = scrambled(column.clone());
        assert_eq!(other.data_type(), column.data_type());
        assert_eq!(
            &other.slice(0, 1),
            &column.slice(0, 1),
            "a row without a random number stays"
        );
        for row in 1..column.len() {
            assert_ne!(&other.slice(row, 1), &column.slice(row, 1), "row {row}");
        }
    }

    #[test]
    fn every_value_becomes_another_of_its_type() {
        check(Int8Array::from(vec![127, 127, -128, 3]));
        check(Float64Array::from(vec![
            Some(1.5),
            None,
            Some(f64::NAN),
            Some(1.5),
            Some(-7.0),
        ]));
        check(StringArray::from(vec![
            Some("a"),
            Some("b"),
            Some("a"),
            None,
        ]));
        check(BooleanArray::from(vec![true, true, false]));
        check(Float64Array::from(vec![0.0; 5]));
    }

    #[test]
    fn dates_stay_in_the_future() {
        let dates: ArrayRef = Arc::new(Date32Array::from(vec![1, 20, 30, 5]));
        assert!(
            ticks(&scrambled(dates))
                .unwrap()
                .iter()
                .skip(1)
                .all(|tick| tick.unwrap() > 10)
        );
    }

    #[test]
    fn counts_stay_counts() {
        let counts: ArrayRef = Arc::new(Float64Array::from(vec![3.0, 4.0, 5.0]));
        let other = scrambled(counts);
        assert!(
            other
                .as_primitive::<Float64Type>()
                .values()
                .iter()
                .all(|count| *count >= 0.0)
        );
    }
}
