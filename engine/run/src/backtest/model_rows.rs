//! Errors of the model by size, and rows of some series, in one query over forecasts and values.

use std::path::Path;

use arrow::array::{Array, Float64Array, Int64Array, RecordBatch};
use arrow::compute::cast;
use arrow::datatypes::Field;
use forebay_model::{Fault, Result, logical_type, ticks};
use forebay_plan::sql_name;

use super::error_bins::ErrorBins;
use super::evaluate::{
    Evaluation, ScoredTables, counts, number_at, number_sql, numbers, same_series_and_time,
    score_column,
};
use super::report::{ErrorHistogram, SampledPoint, SampledSeries};
use super::series_sample::SampledKeys;
use crate::leak_check::time_text;

/// Folds of which rows of series are read, the latest ones.
const SAMPLED_FOLDS: usize = 8;

/// Steps of the horizon of which rows of series are read, the first ones.
const SAMPLED_STEPS: u64 = 200;

/// Rows of the model in all folds, as far as they are told.
#[derive(Debug, Default)]
pub(super) struct ModelRows {
    /// The errors by size; `None` where all errors are zero.
    pub histogram: Option<ErrorHistogram>,
    /// Some series, in the order of the sample.
    pub series: Vec<SampledSeries>,
}

/// Rows of the model, as they are read.
struct RowsReader<'a> {
    bins: Option<ErrorBins>,
    time: &'a Field,
    /// Errors in each bin, by fold.
    folds: Vec<Vec<u64>>,
    series: Vec<SampledSeries>,
}

impl Evaluation<'_> {
    /// Counts the errors of the model by size, and reads the rows of a sample of series; `dir` holds intermediate files.
    pub fn model_rows(&self, dir: &Path, folds: usize, rmse: f64) -> Result<ModelRows> {
        let sample = &self.sample_series(&dir.join("sample"), folds)?;
        let bins = ErrorBins::of(rmse);
        let time = self.future.source.field_with_name(&self.future.time)?;
        let time = &Field::new(time.name(), logical_type(time.data_type()), true);
        let mut series = Vec::with_capacity(sample.len());
        for keys in sample {
            series.push(SampledSeries {
                keys: keys.named(&self.future.keys),
                points: Vec::new(),
            });
        }
        let bin_count = bins.map_or(0, |_| ErrorBins::COUNT);
        let mut reader = RowsReader {
            bins,
            time,
            folds: vec![vec![0; bin_count]; folds],
            series,
        };
        let query = RowsQuery {
            first_fold: folds.saturating_sub(SAMPLED_FOLDS),
            bins,
            sample,
        };
        self.read_rows(
            &dir.join("rows"),
            &|tables| self.rows_query(tables, &query),
            &mut |batch| reader.read(batch),
        )?;
        Ok(reader.finish())
    }

    /// SQL query with one row per fold and bin of errors, and one per row of a sampled series.
    fn rows_query(&self, tables: &ScoredTables, query: &RowsQuery<'_>) -> String {
        let keys = &self.future.keys;
        let predicted = number_sql("f", self.prediction);
        format!(
            "SELECT fold, error_bin, sampled, sampled_step, sampled_time, count(came) AS rows, \
             min(came) AS came, min(predicted) AS predicted \
             FROM (SELECT fold, sampled, predicted, came, \
             CASE WHEN sampled IS NOT NULL THEN step END AS sampled_step, \
             CASE WHEN sampled IS NOT NULL THEN forecast_time END AS sampled_time, \
             {bin} AS error_bin \
             FROM (SELECT CAST(f.fold AS BIGINT) AS fold, CAST(f.step AS BIGINT) AS step, \
             f.{time} AS forecast_time, {sample} AS sampled, {predicted} AS predicted, \
             CASE WHEN {predicted} IS NOT NULL THEN {came} END AS came \
             FROM {forecasts} f LEFT JOIN {values} v ON {same} \
             WHERE CAST(f.forecaster AS BIGINT) = 0) AS model_rows) AS binned_rows \
             GROUP BY fold, error_bin, sampled, sampled_step, sampled_time",
            bin = query.bin_sql(),
            time = sql_name(&self.future.time),
            sample = query.sample_sql(keys),
            came = number_sql("v", self.label),
            forecasts = sql_name(&tables.forecasts),
            values = sql_name(&tables.values),
            same = same_series_and_time(keys, &self.future.time),
        )
    }
}

/// Rows that a query reads.
struct RowsQuery<'a> {
    /// The first fold of which rows of series are read.
    first_fold: usize,
    bins: Option<ErrorBins>,
    sample: &'a [SampledKeys],
}

impl RowsQuery<'_> {
    /// The number of the bin of a row, from 0; null of a row without an error.
    fn bin_sql(&self) -> String {
        match self.bins {
            Some(bins) => {
                let bin = bins.sql("(predicted - came)");
                format!("CASE WHEN came IS NULL THEN NULL ELSE {bin} END")
            }
            None => "CAST(NULL AS DOUBLE)".to_owned(),
        }
    }

    /// The number of the series of a row in the sample, from 0; null of other rows.
    fn sample_sql(&self, keys: &[String]) -> String {
        let mut cases = String::new();
        for (number, series) in self.sample.iter().enumerate() {
            cases += &format!(" WHEN {} THEN {number}", series.condition(keys));
        }
        if cases.is_empty() {
            return "CAST(NULL AS BIGINT)".to_owned();
        }
        format!(
            "CASE WHEN CAST(f.fold AS BIGINT) >= {} AND CAST(f.step AS BIGINT) <= {SAMPLED_STEPS} \
             THEN CASE{cases} END END",
            self.first_fold
        )
    }
}

impl RowsReader<'_> {
    fn read(&mut self, batch: &RecordBatch) -> Result<()> {
        let folds = counts(batch, "fold")?;
        let rows = counts(batch, "rows")?;
        let bins = numbers(batch, "error_bin")?;
        let columns = SampledColumns {
            sample: counts(batch, "sampled")?,
            steps: counts(batch, "sampled_step")?,
            ticks: ticks(&cast(
                score_column(batch, "sampled_time")?,
                self.time.data_type(),
            )?)?,
            came: numbers(batch, "came")?,
            predicted: numbers(batch, "predicted")?,
        };
        for row in 0..batch.num_rows() {
            let fold = folds.value(row) as usize;
            if let Some(bin) = number_at(&bins, row)
                && let Some(errors) = self.folds.get_mut(fold)
                && let Some(count) = errors.get_mut(ErrorBins::number(bin))
            {
                *count += rows.value(row) as u64;
            }
            self.read_sampled(&columns, row, fold)?;
        }
        Ok(())
    }

    /// Adds a row of a sampled series.
    fn read_sampled(&mut self, columns: &SampledColumns, row: usize, fold: usize) -> Result<()> {
        if columns.sample.is_null(row) || columns.ticks.is_null(row) {
            return Ok(());
        }
        let number = columns.sample.value(row) as usize;
        let Some(series) = self.series.get_mut(number) else {
            return Err(Fault::internal("a series that is not of the sample"));
        };
        let tick = columns.ticks.value(row);
        series.points.push(SampledPoint {
            fold,
            step: columns.steps.value(row) as u64,
            time: time_text(tick, self.time)?,
            tick,
            actual: number_at(&columns.came, row),
            predicted: number_at(&columns.predicted, row),
        });
        Ok(())
    }

    /// The rows in an order that does not depend on that of the query.
    fn finish(mut self) -> ModelRows {
        for series in &mut self.series {
            series
                .points
                .sort_by_key(|point| (point.fold, point.tick, point.step));
        }
        let histogram = self.bins.map(|bins| ErrorHistogram {
            ends: bins.ends(),
            folds: self.folds,
        });
        ModelRows {
            histogram,
            series: self.series,
        }
    }
}

/// Columns of rows of sampled series.
struct SampledColumns {
    sample: Int64Array,
    steps: Int64Array,
    ticks: Int64Array,
    came: Float64Array,
    predicted: Float64Array,
}
