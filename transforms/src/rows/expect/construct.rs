//! Rules in Rust.

use std::ops::{RangeFrom, RangeInclusive, RangeToInclusive};

use super::{
    ExpectedChange, ExpectedDrift, ExpectedRows, ExpectedValue, OtherRun, RowExpectation, Share,
};
use crate::time::LengthSpec;

impl RowExpectation {
    /// Columns that have a value in every row.
    pub fn not_null(columns: impl IntoIterator<Item = impl Into<String>>) -> RowExpectation {
        let not_null = columns.into_iter().map(Into::into).collect();
        RowExpectation {
            not_null,
            ..RowExpectation::default()
        }
    }

    /// Columns whose values together come once.
    pub fn unique(columns: impl IntoIterator<Item = impl Into<String>>) -> RowExpectation {
        let unique = columns.into_iter().map(Into::into).collect();
        RowExpectation {
            unique,
            ..RowExpectation::default()
        }
    }

    /// The least and the greatest value of a column: numbers, or dates and timestamps as text.
    ///
    /// ```
    /// use forebay_transforms::RowExpectation;
    /// let price = RowExpectation::range("price", 0.0..);
    /// let date = RowExpectation::range("date", "2011-01-29"..="2016-06-19");
    /// # let _ = (price, date);
    /// ```
    pub fn range(column: impl Into<String>, values: impl Into<ExpectedRange>) -> RowExpectation {
        let range = [(column.into(), values.into().0)].into_iter().collect();
        RowExpectation {
            range,
            ..RowExpectation::default()
        }
    }

    /// The values that a column may have.
    pub fn in_set(
        column: impl Into<String>,
        values: impl IntoIterator<Item = impl Into<ExpectedValue>>,
    ) -> RowExpectation {
        let values = values.into_iter().map(Into::into).collect();
        RowExpectation {
            in_set: [(column.into(), values)].into_iter().collect(),
            ..RowExpectation::default()
        }
    }

    /// A SQL condition that holds for every row.
    pub fn sql(condition: impl Into<String>) -> RowExpectation {
        RowExpectation {
            sql: Some(condition.into()),
            ..RowExpectation::default()
        }
    }

    /// The least and the greatest number of rows.
    pub fn rows(min: Option<u64>, max: Option<u64>) -> RowExpectation {
        let rows = Some(ExpectedRows {
            min,
            max,
            ..ExpectedRows::default()
        });
        RowExpectation {
            rows,
            ..RowExpectation::default()
        }
    }

    /// Largest difference of the number of rows from that of the last run, as a share of it.
    pub fn rows_as_before(within: impl Into<Share>) -> RowExpectation {
        let change = Some(ExpectedChange {
            from: OtherRun::LastRun,
            within: within.into(),
        });
        let rows = Some(ExpectedRows {
            change,
            ..ExpectedRows::default()
        });
        RowExpectation {
            rows,
            ..RowExpectation::default()
        }
    }

    /// Largest distance of the distributions of columns from those of `against`: a part of the split, `last_run` or
    /// `trailing_week`.
    pub fn drift(drift: ExpectedDrift) -> RowExpectation {
        RowExpectation {
            drift: Some(drift),
            ..RowExpectation::default()
        }
    }

    /// How old the last time of a column may be, such as `2d`.
    pub fn fresh(column: impl Into<String>, age: impl Into<LengthSpec>) -> RowExpectation {
        RowExpectation {
            fresh: [(column.into(), age.into())].into_iter().collect(),
            ..RowExpectation::default()
        }
    }
}

/// Values from a least to a greatest, both included: `0..=10`, `0.0..`, `..="2016-06-19"`.
#[derive(Debug, Clone, PartialEq)]
pub struct ExpectedRange([Option<ExpectedValue>; 2]);

impl<V: Into<ExpectedValue>> From<RangeInclusive<V>> for ExpectedRange {
    fn from(range: RangeInclusive<V>) -> Self {
        let (least, greatest) = range.into_inner();
        ExpectedRange([Some(least.into()), Some(greatest.into())])
    }
}

impl<V: Into<ExpectedValue>> From<RangeFrom<V>> for ExpectedRange {
    fn from(range: RangeFrom<V>) -> Self {
        ExpectedRange([Some(range.start.into()), None])
    }
}

impl<V: Into<ExpectedValue>> From<RangeToInclusive<V>> for ExpectedRange {
    fn from(range: RangeToInclusive<V>) -> Self {
        ExpectedRange([None, Some(range.end.into())])
    }
}

impl From<bool> for ExpectedValue {
    fn from(value: bool) -> Self {
        ExpectedValue::Boolean(value)
    }
}

impl From<i64> for ExpectedValue {
    fn from(value: i64) -> Self {
        ExpectedValue::Integer(value)
    }
}

impl From<f64> for ExpectedValue {
    fn from(value: f64) -> Self {
        ExpectedValue::Number(value)
    }
}

impl From<&str> for ExpectedValue {
    fn from(value: &str) -> Self {
        ExpectedValue::Text(value.to_owned())
    }
}

impl From<f64> for Share {
    fn from(share: f64) -> Self {
        Share(share)
    }
}
