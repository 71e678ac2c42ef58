//! Scores of forecasts: from sums over rows to the measures that people compare.

use serde::Serialize;

/// Sums over rows that were forecast and whose value came. They add up over any division of the rows.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(super) struct ErrorSums {
    pub rows: u64,
    /// Of the absolute errors.
    pub absolute: f64,
    /// Of the errors: forecast less value.
    pub signed: f64,
    /// Of the squared errors.
    pub squared: f64,
    /// Of the absolute values.
    pub values: f64,
}

/// How good forecasts were. The errors are forecast less value.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize)]
pub struct ForecastScore {
    /// Rows that were forecast and whose value came.
    pub rows: u64,
    /// Weighted mean absolute percentage error: the sum of absolute errors by the sum of absolute values, as a fraction
    /// (Kolassa and Schütz, 2007). `None` where all values are 0.
    pub wmape: Option<f64>,
    /// The root of the mean squared error, in units of the label.
    pub rmse: Option<f64>,
    /// The mean absolute error, in units of the label.
    pub mae: Option<f64>,
    /// The sum of errors by the sum of absolute values: above 0 where forecasts are too high.
    pub bias: Option<f64>,
}

impl ErrorSums {
    pub fn add(&mut self, other: &ErrorSums) {
        self.rows += other.rows;
        self.absolute += other.absolute;
        self.signed += other.signed;
        self.squared += other.squared;
        self.values += other.values;
    }

    pub fn score(&self) -> ForecastScore {
        let by = |sum: f64, of: f64| (of > 0.0).then(|| sum / of);
        let rows = self.rows as f64;
        ForecastScore {
            rows: self.rows,
            wmape: by(self.absolute, self.values),
            rmse: by(self.squared, rows).map(f64::sqrt),
            mae: by(self.absolute, rows),
            bias: by(self.signed, self.values),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn measures_of_sums() {
        // Forecasts 3, 1 of values 2, 4.
        let mut sums = ErrorSums { rows: 1, absolute: 1.0, signed: 1.0, squared: 1.0, values: 2.0 };
        sums.add(&ErrorSums { rows: 1, absolute: 3.0, signed: -3.0, squared: 9.0, values: 4.0 });
        let score = sums.score();
        assert_eq!((score.rows, score.wmape, score.mae), (2, Some(4.0 / 6.0), Some(2.0)));
        assert_eq!((score.rmse, score.bias), (Some(5f64.sqrt()), Some(-2.0 / 6.0)));
        let none = ErrorSums::default().score();
        assert_eq!((none.rows, none.wmape, none.rmse), (0, None, None));
    }
}
