//! Reconciled forecasts, by series and time.

use std::collections::HashMap;
use std::sync::Arc;

use arrow::array::{ArrayRef, BooleanArray, Float64Builder};
use arrow::compute::cast;
use arrow::datatypes::DataType;
use forebay_contract::{ReconciledForecasts, ReconciledRows};
use forebay_model::{ContentId, Fault, IdBuilder, Result};

use super::series_rows::{SeriesName, SeriesRows};

/// Reconciled forecasts of all series and times.
#[derive(Debug)]
pub(super) struct ReconciledTable {
    series: HashMap<SeriesName, usize>,
    times: HashMap<i64, usize>,
    /// Values of each time, in the order of the series.
    values: Vec<Vec<f64>>,
    /// True for each of them that was moved to a bound.
    clipped: Vec<Vec<bool>>,
    id: ContentId,
}

impl ReconciledTable {
    /// Values of each time, in the order of the series.
    pub(super) fn new(
        names: &[SeriesName],
        times: &[i64],
        values: Vec<Vec<f64>>,
        clipped: Vec<Vec<bool>>,
    ) -> ReconciledTable {
        let mut id = IdBuilder::new("reconciled forecasts");
        for name in names {
            for key in name {
                id.text(key.as_deref().unwrap_or_default());
                id.bytes(&[u8::from(key.is_some())]);
            }
        }
        for (time, values) in times.iter().zip(&values) {
            id.bytes(&time.to_le_bytes());
            for value in values {
                id.bytes(&value.to_bits().to_le_bytes());
            }
        }
        let series = names.iter().cloned().enumerate();
        let numbered_times = times.iter().enumerate();
        ReconciledTable {
            series: series.map(|(number, name)| (name, number)).collect(),
            times: numbered_times
                .map(|(number, time)| (*time, number))
                .collect(),
            values,
            clipped,
            id: id.finish(),
        }
    }

    /// Id of everything that they are.
    pub(super) fn id(&self) -> ContentId {
        self.id
    }
}

impl ReconciledForecasts for ReconciledTable {
    fn of_rows(
        &self,
        keys: &[ArrayRef],
        time: &ArrayRef,
        data_type: &DataType,
    ) -> Result<ReconciledRows> {
        let rows = SeriesRows::new(keys, time, time.data_type())?;
        let mut values = Float64Builder::with_capacity(time.len());
        let mut clipped = Vec::with_capacity(time.len());
        for (row, tick) in rows.times.iter().enumerate() {
            let series = self.series.get(&rows.name(row));
            let number = tick.and_then(|tick| self.times.get(&tick));
            let Some((series, number)) = series.zip(number) else {
                return Err(Fault::internal("a row without a reconciled forecast"));
            };
            values.append_value(self.values[*number][*series]);
            clipped.push(self.clipped[*number][*series]);
        }
        let values: ArrayRef = Arc::new(values.finish());
        Ok(ReconciledRows {
            values: cast(&values, data_type)?,
            clipped: BooleanArray::from(clipped),
        })
    }
}

#[cfg(test)]
mod tests {
    use arrow::array::{AsArray, Date32Array, StringArray};
    use arrow::datatypes::Float64Type;

    use super::*;

    #[test]
    fn rows_have_the_forecasts_of_their_series_and_time() {
        let names = [vec![Some("a".to_owned())], vec![None]];
        let values = vec![vec![1.0, 2.0], vec![3.0, 4.0]];
        let clipped = vec![vec![false, true], vec![false, false]];
        let forecasts = ReconciledTable::new(&names, &[10, 11], values, clipped);
        let keys: ArrayRef = Arc::new(StringArray::from(vec![None, Some("a"), None]));
        let time: ArrayRef = Arc::new(Date32Array::from(vec![11, 11, 10]));
        let rows = forecasts
            .of_rows(std::slice::from_ref(&keys), &time, &DataType::Float64)
            .unwrap();
        let values = rows.values.as_primitive::<Float64Type>().values().to_vec();
        assert_eq!(values, [4.0, 3.0, 2.0]);
        assert_eq!(rows.clipped, BooleanArray::from(vec![false, false, true]));
        let time: ArrayRef = Arc::new(Date32Array::from(vec![12, 11, 10]));
        assert!(
            forecasts
                .of_rows(&[keys], &time, &DataType::Float64)
                .is_err()
        );
    }
}
