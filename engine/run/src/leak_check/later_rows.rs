//! Rows of a source after a cut, counted by series: a horizon in rows ends at one of them.

use std::collections::HashMap;

use arrow::array::{Array, ArrayRef, RecordBatch};
use arrow::compute::cast;
use arrow::row::{RowConverter, SortField};
use forebay_contract::ScanRequest;
use forebay_execute::SourceInput;
use forebay_model::{Result, logical_type, ticks};
use forebay_storage::StorageClient;

/// The times of the rows of each series after a cut.
pub(super) struct LaterRows {
    /// The columns that identify a series.
    keys: Vec<String>,
    times: HashMap<Vec<u8>, Vec<i64>>,
}

impl LaterRows {
    /// Reads the rows of a source after a tick.
    pub fn read(
        io: &StorageClient,
        input: &SourceInput,
        keys: Vec<String>,
        time: &str,
        last: i64,
    ) -> Result<LaterRows> {
        let columns = keys.iter().cloned().chain([time.to_owned()]);
        let request = ScanRequest::of_columns(columns.collect(), &input.dataset.schema);
        let mut later_rows = LaterRows {
            keys,
            times: HashMap::new(),
        };
        for span in &input.dataset.spans {
            for chunk in input.source.open(io, span, &request)? {
                let batch = chunk?.batch;
                let series = later_rows.series_of(&batch)?;
                let times = ticks(batch.column(batch.schema().index_of(time)?))?;
                for (series, time) in series.into_iter().zip(times.iter()) {
                    if let Some(time) = time.filter(|time| *time > last) {
                        later_rows.times.entry(series).or_default().push(time);
                    }
                }
            }
        }
        for times in later_rows.times.values_mut() {
            times.sort_unstable();
        }
        Ok(later_rows)
    }

    /// The series of each row, as bytes. Without keys, all rows are one series.
    pub fn series_of(&self, rows: &RecordBatch) -> Result<Vec<Vec<u8>>> {
        if self.keys.is_empty() {
            return Ok(vec![Vec::new(); rows.num_rows()]);
        }
        let mut columns: Vec<ArrayRef> = Vec::new();
        for key in &self.keys {
            let column = rows.column(rows.schema().index_of(key)?);
            columns.push(cast(column, &logical_type(column.data_type()))?);
        }
        let fields = columns
            .iter()
            .map(|column| SortField::new(column.data_type().clone()));
        let converter = RowConverter::new(fields.collect())?;
        let converted = converter.convert_columns(&columns)?;
        Ok(converted.iter().map(|row| row.as_ref().to_vec()).collect())
    }

    /// Number of rows of the series after the cut, up to a tick.
    pub fn place(&self, series: &[u8], tick: i64) -> u64 {
        let times = self.times.get(series).map(Vec::as_slice);
        let times = times.unwrap_or_default();
        times.partition_point(|time| *time <= tick) as u64
    }
}
