//! Columns of a forecast.

use arrow::datatypes::Field;
use forebay_model::CalendarSpan;

/// Meaning of the columns of a forecast.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ForecastLayout {
    /// The columns that identify a series.
    pub keys: Vec<Field>,
    /// The column of times.
    pub time: Field,
    /// Length of the forecast, in that column.
    pub horizon: CalendarSpan,
    /// Steps of a series.
    pub steps: u64,
    /// The column of the point forecast.
    pub prediction: String,
    /// The columns of its quantiles, in ascending order.
    pub quantiles: Vec<String>,
    /// Reason why predictions are not in the units of the history, if they are not.
    pub other_units: Option<String>,
}
