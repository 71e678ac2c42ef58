//! Series and times of the rows of a forecast, in types that compare across forecasts.

use arrow::array::{Array, ArrayRef, AsArray, Int64Array, StringArray};
use arrow::compute::cast;
use arrow::datatypes::DataType;
use forebay_model::{Result, ticks};

/// The values of the keys of a series, as texts.
pub(crate) type SeriesName = Vec<Option<String>>;

/// Keys and times of some rows.
pub(crate) struct SeriesRows {
    keys: Vec<StringArray>,
    /// Ticks of the time column.
    pub times: Int64Array,
}

impl SeriesRows {
    /// Rows of key columns and a column of times, which has the type `time_type` where it was not written to a file.
    pub fn new(keys: &[ArrayRef], time: &ArrayRef, time_type: &DataType) -> Result<SeriesRows> {
        let mut texts = Vec::with_capacity(keys.len());
        for key in keys {
            texts.push(cast(key, &DataType::Utf8)?.as_string::<i32>().clone());
        }
        Ok(SeriesRows {
            keys: texts,
            times: ticks(&cast(time, time_type)?)?,
        })
    }

    /// The series of a row.
    pub fn name(&self, row: usize) -> SeriesName {
        let mut name = Vec::with_capacity(self.keys.len());
        for key in &self.keys {
            name.push(key.is_valid(row).then(|| key.value(row).to_owned()));
        }
        name
    }
}
