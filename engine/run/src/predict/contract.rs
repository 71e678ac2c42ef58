//! What every forecast keeps: checked on its files, before anyone can see them.

use std::ops::ControlFlow;

use arrow::array::{Array, ArrayRef, AsArray, Float32Array, RecordBatch};
use arrow::compute::cast;
use arrow::datatypes::{DataType, Float32Type, Schema};
use arrow::row::{OwnedRow, RowConverter, SortField};
use arrow::util::display::{ArrayFormatter, FormatOptions};
use forebay_commit::Manifest;
use forebay_model::{Fault, Result, codes, logical_type};
use forebay_storage::StorageLocation;

use super::forecast_files::ForecastFiles;
use super::values::PredictionBounds;
use crate::session::Session;

/// A forecast that is written, and what it must be.
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
        if manifest.rows != expected {
            let (series, steps) = (self.series, self.steps);
            let message = format!(
                "the forecast has {} rows; {series} series with {steps} steps are {expected}",
                manifest.rows
            );
            let hint = "a step behind `future_rows` filters or adds rows: filter the target before it, and join with one \
                        row per key";
            return Err(Fault::new(codes::BAD_ROW, message).hint(hint));
        }
        if expected == 0 {
            return Ok(());
        }
        let mut last: Option<OwnedRow> = None;
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
            types: None,
        };
        files.read(&columns, &[], &mut |batch| {
            self.check_batch(batch, &mut converter, &mut last)?;
            Ok(ControlFlow::Continue(()))
        })
    }

    /// Keys as they are ordered: integers, dates and times by value, all else as text.
    fn key_type(&self, name: &str) -> Result<DataType> {
        let own = logical_type(self.source.field_with_name(name)?.data_type());
        let by_value = own.is_integer() && own != DataType::UInt64
            || own.is_temporal()
            || own == DataType::Boolean;
        Ok(if by_value { own } else { DataType::Utf8 })
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
            let found = batch.column_by_name(name);
            found.ok_or_else(|| {
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
                Some(before) => rows.row(before) < row,
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

    /// All are finite and within the bounds, and quantiles of a row do not cross.
    fn check_predictions(&self, batch: &RecordBatch, predicted: &[Float32Array]) -> Result<()> {
        for (name, column) in self.predictions.iter().zip(predicted) {
            let wrong = |row: &usize| column.is_null(*row) || !column.value(*row).is_finite();
            if let Some(row) = (0..batch.num_rows()).find(wrong) {
                let what = if column.is_null(row) {
                    "is null"
                } else {
                    "is not finite"
                };
                let message = format!("the prediction of {} {what}", self.row_text(batch, row)?);
                let hint = "a model gives null for rows whose features are missing or not finite: `impute` them before it";
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
