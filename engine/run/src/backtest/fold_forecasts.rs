//! Forecasts of the levels of a hierarchy on folds of a backtest within a run.

use std::path::{Path, PathBuf};

use arrow::array::{Array, AsArray, RecordBatch};
use arrow::compute::cast;
use arrow::datatypes::{DataType, Int64Type};
use forebay_contract::{ForecastFormat, ForecastReconcile, PredictConfig};
use forebay_model::{Fault, Interval, Pipeline, PipelineSink, Result};
use forebay_plan::sql_name;
use forebay_storage::ScratchDir;

use super::evaluate::{
    Evaluation, ScoredTables, number_at, number_sql, numbers, same_series_and_time, score_column,
};
use super::fold_run::{FoldRuns, forecast_sink};
use super::scores::ForecastQuantiles;
use super::{FoldTimes, require_forecasts};
use crate::deadline::DeadlineMonitor;
use crate::predict::{
    FoldForecasts, FoldRow, LearnedWeights, SeriesRows, check_forecasts_memory, check_label_units,
    errors_pass_name, future_of,
};
use crate::session::{Session, datasets};

/// Bytes of a forecast on a fold: the names of its series, and the copies of its error.
const FOLD_ROW_BYTES: u64 = 256;

/// A hierarchy whose errors are learned.
struct ErrorLearning<'a> {
    runs: FoldRuns<'a>,
    pipeline: &'a Pipeline,
    reconcile: &'a ForecastReconcile,
    /// The sinks of upper levels, then that of the lowest one.
    levels: Vec<&'a PipelineSink>,
    weights: &'a LearnedWeights,
    interval: Option<&'a Interval>,
}

impl Session {
    /// Forecasts on folds of the hierarchies whose errors are learned.
    pub(crate) fn fold_forecasts(
        &self,
        pipeline: &Pipeline,
        weights: &LearnedWeights,
        interval: Option<&Interval>,
        monitor: &DeadlineMonitor,
    ) -> Result<FoldForecasts> {
        let mut forecasts = FoldForecasts::new();
        for sink in &pipeline.predictions {
            let config = self.predict_config(sink)?;
            let reconcile = config.reconcile.as_ref();
            let Some(reconcile) = reconcile.filter(|reconcile| reconcile.learns()) else {
                continue;
            };
            let mut levels = Vec::with_capacity(reconcile.with.len() + 1);
            for name in &reconcile.with {
                let mut predictions = pipeline.predictions.iter();
                let upper = predictions.find(|upper| upper.name == *name);
                levels.push(upper.ok_or_else(|| Fault::internal("a missing level"))?);
            }
            levels.push(sink);
            let learning = ErrorLearning {
                runs: FoldRuns::new(self, pipeline, "reconcile"),
                pipeline,
                reconcile,
                levels,
                weights,
                interval,
            };
            monitor.begin(&errors_pass_name(sink));
            let rows = learning
                .run(sink)
                .map_err(|fault| fault.at(sink.at.as_ref()))?;
            monitor.end(false);
            forecasts.insert(sink.name.clone(), rows);
        }
        Ok(forecasts)
    }
}

impl ErrorLearning<'_> {
    /// The forecasts of each level on all folds.
    fn run(&self, bottom: &PipelineSink) -> Result<Vec<Vec<FoldRow>>> {
        let session = &self.runs.session;
        let label = require_forecasts(self.pipeline, "a covariance of errors")?;
        let inputs = session.discover_inputs(&session.io, self.pipeline, None, self.interval)?;
        let bound = session.bind_steps(self.pipeline, &datasets(&inputs))?;
        check_label_units(self.pipeline, &bound, &bottom.from)?;
        let future = future_of(&bound, &bottom.from)?;
        let times = FoldTimes {
            folds: self.reconcile.fold_count(),
            every: self.reconcile.every.as_deref(),
            until: None,
            known_before: session.known_before(self.interval),
        };
        let origins = session.fold_origins(&inputs, &bound, future, &times)?;
        let scratch = ScratchDir::new(Some(&session.state()?), session.watch.clone())?;
        for (fold, origin) in origins.iter().enumerate() {
            let forecasts = self.fold_sinks(fold, scratch.path())?;
            self.runs
                .forecast(origin, fold, forecasts, scratch.path())
                .map_err(|fault| {
                    fault.note(format!(
                        "in the fold that knows rows before {}, on which errors of `{}` are \
                         learned",
                        origin.known_before, bottom.name
                    ))
                })?;
        }
        let first = origins.first();
        let first = first.ok_or_else(|| Fault::internal("errors that are learned on no fold"))?;
        let quantiles = ForecastQuantiles::default();
        let mut rows = Vec::with_capacity(self.levels.len());
        let mut row_count = 0;
        for (level, sink) in self.levels.iter().enumerate() {
            let config = session.predict_config(sink)?;
            let evaluation = Evaluation {
                session,
                pipeline: self.pipeline,
                label: &label,
                future: future_of(&bound, &sink.from)?,
                prediction: &config.name,
                quantiles: &quantiles,
                sink,
                by: &[],
                season_rows: 1,
                forecasts: &level_directory(scratch.path(), level),
                from: &first.known_before,
            };
            let directory = scratch.path().join(format!("rows-{level}"));
            let compares = sink.name == bottom.name;
            let level_rows = evaluation.fold_rows(&directory, compares, row_count)?;
            row_count += level_rows.len();
            rows.push(level_rows);
        }
        Ok(rows)
    }

    /// Forecasts of all levels in a fold. Bounds are of reconciled forecasts.
    fn fold_sinks(&self, fold: usize, scratch: &Path) -> Result<Vec<PipelineSink>> {
        let mut forecasts = Vec::with_capacity(self.levels.len());
        for (level, sink) in self.levels.iter().enumerate() {
            let mut config = self.runs.session.predict_config(sink)?;
            if let Some(learned) = self.weights.get(&sink.name) {
                config = config.with_weights(learned.weights());
            }
            let config = PredictConfig {
                format: ForecastFormat::Parquet,
                columns: Vec::new(),
                min: None,
                max: None,
                season: None,
                reconcile: None,
                expect: None,
                ..config
            };
            let directory =
                level_directory(scratch, level).join(format!("fold={fold}/forecaster=0"));
            forecasts.push(forecast_sink(sink, sink.name.clone(), config, &directory)?);
        }
        Ok(forecasts)
    }
}

impl Evaluation<'_> {
    /// The rows of forecasts on all folds, with their values where they are compared; `dir` holds intermediate files.
    /// Other levels have `other_rows` in memory.
    fn fold_rows(&self, dir: &Path, compares: bool, other_rows: usize) -> Result<Vec<FoldRow>> {
        let time = self.future.source.field_with_name(&self.future.time)?;
        let mut rows = Vec::new();
        self.read_rows(
            dir,
            &|tables| self.fold_query(tables, compares),
            &mut |batch| {
                let row_count = other_rows + rows.len() + batch.num_rows();
                check_forecasts_memory(
                    self.session.options.memory_bytes,
                    &self.sink.name,
                    row_count as u64,
                    FOLD_ROW_BYTES,
                )?;
                self.read_fold_rows(batch, time.data_type(), compares, &mut rows)
            },
        )?;
        Ok(rows)
    }

    /// SQL query with a row for each forecast of each fold.
    fn fold_query(&self, tables: &ScoredTables, compares: bool) -> String {
        let mut columns = String::new();
        for (number, key) in self.future.keys.iter().enumerate() {
            columns += &format!("f.{} AS key_{number}, ", sql_name(key));
        }
        let mut query = format!(
            "SELECT CAST(f.fold AS BIGINT) AS fold, {columns}f.{} AS row_time, {} AS predicted",
            sql_name(&self.future.time),
            number_sql("f", self.prediction)
        );
        if compares {
            query += &format!(", {} AS came", number_sql("v", self.label));
        }
        query += &format!(" FROM {} f", sql_name(&tables.forecasts));
        if compares {
            query += &format!(
                " LEFT JOIN {} v ON {}",
                sql_name(&tables.values),
                same_series_and_time(&self.future.keys, &self.future.time)
            );
        }
        query
    }

    fn read_fold_rows(
        &self,
        batch: &RecordBatch,
        time_type: &DataType,
        compares: bool,
        rows: &mut Vec<FoldRow>,
    ) -> Result<()> {
        let mut keys = Vec::with_capacity(self.future.keys.len());
        for number in 0..self.future.keys.len() {
            keys.push(score_column(batch, &format!("key_{number}"))?.clone());
        }
        let series = SeriesRows::new(&keys, score_column(batch, "row_time")?, time_type)?;
        let folds = cast(score_column(batch, "fold")?, &DataType::Int64)?;
        let folds = folds.as_primitive::<Int64Type>();
        let predicted = numbers(batch, "predicted")?;
        let values = if compares {
            Some(numbers(batch, "came")?)
        } else {
            None
        };
        for row in 0..batch.num_rows() {
            if series.times.is_null(row) {
                continue;
            }
            rows.push(FoldRow {
                fold: folds.value(row),
                series: series.name(row),
                time: series.times.value(row),
                predicted: number_at(&predicted, row),
                came: values.as_ref().and_then(|values| number_at(values, row)),
            });
        }
        Ok(())
    }
}

/// The directory of the forecasts of a level on all folds.
fn level_directory(scratch: &Path, level: usize) -> PathBuf {
    scratch.join(format!("level-{level}"))
}
