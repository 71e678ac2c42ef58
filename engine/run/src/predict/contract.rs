//! Contract that every forecast keeps: checked on its files before readers can see them.

use std::ops::ControlFlow;

use arrow::array::{Array, ArrayRef, AsArray, Float32Array, RecordBatch};
use arrow::compute::cast;
use arrow::datatypes::{DataType, Float32Type, Schema};
use arrow::row::{OwnedRow, RowConverter, SortField};
use arrow::util::display::{ArrayFormatter, FormatOptions};
use forebay_commit::Manifest;
use forebay_model::{Fault, Result, RowChange, codes, logical_type};
use forebay_storage::StorageLocation;
use serde_json::Value;

use super::forecast_files::{ForecastFiles, is_text_format};
use super::values::PredictionBounds;
use crate::session::Session;
use crate::text_types::declared_type;

/// A written forecast, and the properties that it must have.
pub(super) struct ForecastContract<'a> {
    pub format: &'a str,
    /// The columns that identify a series.
    pub keys: &'a [String],
    pub time: &'a str,
    /// The column of the point forecast, then those of quantiles in ascending order.
    pub predictions: &'a [String],
    pub bounds: PredictionBounds,
    /// The types of the rows before they were written.
    pub source: &'a Schema,
    pub series: u64,
    pub steps: u64,
}

impl ForecastContract<'_> {
    /// Reads the files of a manifest and checks them.
    pub fn check(
        &self,
        session: &Session,
        out: &StorageLocation,
        manifest: &Manifest,
    ) -> Result<()> {
        let expected = self.series * self.steps;
        let missing = expected.saturating_sub(manifest.rows);
        let changes = manifest.counts().changes;
        // Filters may take the times out that the calendar lacks, such as weekends.
        let is_filtered = missing <= changes.count_of(RowChange::Filtered)
            && changes.count_of(RowChange::Unmatched) == 0;
        if manifest.rows > expected || missing > 0 && !is_filtered {
            return Err(self.row_count_fault(manifest.rows));
        }
        if expected == 0 {
            return Ok(());
        }
        let mut last: Option<OwnedRow> = None;
        let mut times = TimeCounts::default();
        let mut converter = self.converter()?;
        let columns = self.keys.iter().map(String::as_str).chain([self.time]);
        let columns = columns
            .chain(self.predictions.iter().map(String::as_str))
            .map(str::to_owned);
        let columns: Vec<String> = columns.collect();
        let files = ForecastFiles {
            session,
            out,
            manifest,
            format: self.format,
            types: self.declared_types()?,
        };
        files.read(&columns, &[], &mut |batch| {
            self.check_batch(batch, &mut converter, &mut last)?;
            if missing > 0 {
                times.add(batch.column_by_name(self.time))?;
            }
            Ok(ControlFlow::Continue(()))
        })?;
        if missing > 0 && !times.are_whole(self.series, self.steps) {
            return Err(self.row_count_fault(manifest.rows));
        }
        Ok(())
    }

    fn row_count_fault(&self, rows: u64) -> Fault {
        let series = self.series;
        let steps = self.steps;
        let expected = series * steps;
        let message = format!(
            "the forecast has {rows} rows; {series} series with {steps} steps are {expected}"
        );
        let hint = "a step behind `future_rows` filters or adds rows: filter the target before \
                    it, and join with one row per key; a filter behind it may take out times that \
                    the calendar lacks, of all series";
        Fault::new(codes::BAD_ROW, message).hint(hint)
    }

    /// Types of the columns in files that record none: what texts look like could make two keys one.
    fn declared_types(&self) -> Result<Option<Value>> {
        if !is_text_format(self.format) {
            return Ok(None);
        }
        let mut types = serde_json::Map::new();
        for key in self.keys {
            let name = declared_type(&self.key_type(key)?).unwrap_or("string");
            types.insert(key.clone(), name.into());
        }
        let time = self.source.field_with_name(self.time)?;
        let name = declared_type(time.data_type()).unwrap_or("string");
        types.insert(self.time.to_owned(), name.into());
        for prediction in self.predictions {
            types.insert(prediction.clone(), "float32".into());
        }
        Ok(Some(Value::Object(types)))
    }

    /// Type by which a key is ordered: integers, dates and times by value, all others as text.
    fn key_type(&self, name: &str) -> Result<DataType> {
        let key_type = logical_type(self.source.field_with_name(name)?.data_type());
        let by_value = key_type.is_integer() && key_type != DataType::UInt64
            || key_type.is_temporal()
            || key_type == DataType::Boolean;
        Ok(if by_value { key_type } else { DataType::Utf8 })
    }

    fn converter(&self) -> Result<RowConverter> {
        let time = self.source.field_with_name(self.time)?.data_type().clone();
        let keys = self
            .keys
            .iter()
            .map(|key| self.key_type(key))
            .collect::<Result<Vec<_>>>()?;
        Ok(RowConverter::new(
            std::iter::once(time)
                .chain(keys)
                .map(SortField::new)
                .collect(),
        )?)
    }

    fn check_batch(
        &self,
        batch: &RecordBatch,
        converter: &mut RowConverter,
        last: &mut Option<OwnedRow>,
    ) -> Result<()> {
        let column = |name: &str| {
            let column = batch.column_by_name(name);
            column.ok_or_else(|| {
                Fault::new(
                    codes::BAD_ROW,
                    format!("the forecast has no column `{name}`"),
                )
            })
        };
        let mut predicted = Vec::new();
        for name in self.predictions {
            predicted.push(
                cast(column(name)?, &DataType::Float32)?
                    .as_primitive::<Float32Type>()
                    .clone(),
            );
        }
        self.check_predictions(batch, &predicted)?;
        let mut columns: Vec<ArrayRef> = vec![cast(
            column(self.time)?,
            self.source.field_with_name(self.time)?.data_type(),
        )?];
        for key in self.keys {
            columns.push(cast(column(key)?, &self.key_type(key)?)?);
        }
        if columns[0].null_count() > 0 {
            return Err(
                Fault::new(codes::BAD_ROW, "a row of the forecast has no time").column(self.time),
            );
        }
        let rows = converter.convert_columns(&columns)?;
        for (number, row) in rows.iter().enumerate() {
            let follows = match number.checked_sub(1) {
                Some(previous) => rows.row(previous) < row,
                None => last.as_ref().is_none_or(|last| last.row() < row),
            };
            if !follows {
                let message = format!(
                    "{} is there twice, or not in order",
                    self.row_text(batch, number)?
                );
                let hint =
                    "a step behind `future_rows` adds or moves rows: join with one row per key";
                return Err(Fault::new(codes::BAD_ROW, message).hint(hint));
            }
        }
        if let Some(end) = rows.num_rows().checked_sub(1) {
            *last = Some(rows.row(end).owned());
        }
        Ok(())
    }

    /// Checks that all predictions are finite and within the bounds, and that the quantiles of a
    /// row do not cross.
    fn check_predictions(&self, batch: &RecordBatch, predicted: &[Float32Array]) -> Result<()> {
        for (name, column) in self.predictions.iter().zip(predicted) {
            let wrong = |row: &usize| column.is_null(*row) || !column.value(*row).is_finite();
            if let Some(row) = (0..batch.num_rows()).find(wrong) {
                let problem = if column.is_null(row) {
                    "is null"
                } else {
                    "is not finite"
                };
                let message = format!("the prediction of {} {problem}", self.row_text(batch, row)?);
                let hint = "a model gives null for rows whose features are missing or not finite: \
                            `impute` them before it. A difference of `target` gives null for \
                            series without the earlier value that it adds: leave those out, by a \
                            `filter` or by `active_within` of `future_rows`";
                return Err(Fault::new(codes::BAD_ROW, message).column(name).hint(hint));
            }
            if let Some(value) = column
                .values()
                .iter()
                .find(|value| !self.bounds.holds(**value))
            {
                return Err(
                    Fault::internal(format!("the prediction {value} is beyond a bound"))
                        .column(name),
                );
            }
        }
        for (names, pair) in self
            .predictions
            .windows(2)
            .zip(predicted.windows(2))
            .skip(1)
        {
            if let Some(row) =
                (0..batch.num_rows()).find(|row| pair[0].value(*row) > pair[1].value(*row))
            {
                let message = format!(
                    "`{}` is above `{}` of {}",
                    names[0],
                    names[1],
                    self.row_text(batch, row)?
                );
                return Err(Fault::internal(message));
            }
        }
        Ok(())
    }

    /// `store_id CA_1, item_id FOODS_1_001, date 2016-05-23`.
    fn row_text(&self, batch: &RecordBatch, row: usize) -> Result<String> {
        let mut texts = Vec::new();
        for name in self.keys.iter().map(String::as_str).chain([self.time]) {
            let Some(column) = batch.column_by_name(name) else {
                continue;
            };
            let options = FormatOptions::default().with_null("null");
            texts.push(format!(
                "{name} {}",
                ArrayFormatter::try_new(column, &options)?.value(row)
            ));
        }
        Ok(texts.join(", "))
    }
}

/// Rows of each time of a forecast, whose rows come in order of time.
#[derive(Default)]
struct TimeCounts {
    /// The time of the last row.
    last: Option<String>,
    /// Rows of that time so far.
    rows: u64,
    /// Number of the times.
    times: u64,
    /// Rows of the times before the last one, where all have as many.
    rows_of_others: Option<u64>,
    /// True if two times have other numbers of rows.
    is_uneven: bool,
}

impl TimeCounts {
    fn add(&mut self, column: Option<&ArrayRef>) -> Result<()> {
        let Some(column) = column else {
            return Ok(());
        };
        let options = FormatOptions::default().with_null("null");
        let texts = ArrayFormatter::try_new(column, &options)?;
        for row in 0..column.len() {
            let time = texts.value(row).to_string();
            if self.last.as_ref() == Some(&time) {
                self.rows += 1;
                continue;
            }
            self.end_time();
            self.last = Some(time);
            self.rows = 1;
            self.times += 1;
        }
        Ok(())
    }

    /// Compares the rows of the last time with those of the times before it.
    fn end_time(&mut self) {
        if self.last.is_none() {
            return;
        }
        let others = *self.rows_of_others.get_or_insert(self.rows);
        self.is_uneven |= others != self.rows;
    }

    /// True if there are not more times than steps, and each has a row of each series.
    fn are_whole(&mut self, series: u64, steps: u64) -> bool {
        self.end_time();
        !self.is_uneven && self.rows == series && self.times <= steps
    }
}
