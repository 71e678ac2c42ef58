//! Forecasts of several levels that are made to add up, whatever models they come from.
//!
//! The forecasts of all levels are written to a temporary directory and read as a whole. A second plan of each sink
//! writes the reconciled ones in place of predictions, so that all guarantees of a forecast hold for them.

use std::collections::{BTreeMap, HashMap};
use std::ops::ControlFlow;
use std::path::Path;
use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, RecordBatch};
use arrow::compute::cast;
use arrow::datatypes::{DataType, Field, Float64Type};
use forebay_contract::{FOLD_ERRORS, ForecastFormat, ForecastReconcile, PredictConfig};
use forebay_model::{Fault, Pipeline, PipelineSink, Result, codes};
use forebay_plan::{BoundPipeline, FutureFlow};
use forebay_series::reconcile::ReconcileMethod;
use forebay_storage::{Event, ScratchDir};

use super::forecast_files::ForecastFiles;
use super::forecast_hierarchy::{FoldRow, ForecastHierarchy, LevelForecasts, ReconciledLevel};
use super::learned_on_folds::check_folds;
use super::reconcile_report::ReconcileReport;
use super::reconciled::ReconciledTable;
use super::reconciled_model::ReconciledModel;
use super::series_rows::{SeriesName, SeriesRows};
use super::values::PredictionBounds;
use super::{ForecastInputs, ForecastModel, ForecastPlan, future_of};
use crate::session::Session;

/// Errors of one step that a covariance needs at least.
const ERRORS_MIN: usize = 3;

/// Bytes of a forecast of a level: a value twice, with its mark, and the names of its series.
const LEVEL_ROW_BYTES: u64 = 64;

/// Forecasts on folds by `predict` sink of the lowest level: those of each upper level, then those of the lowest one.
pub(crate) type FoldForecasts = BTreeMap<String, Vec<Vec<FoldRow>>>;

impl Session {
    /// Refuses hierarchies whose forecasts cannot add up.
    pub(super) fn check_reconciled(
        &self,
        pipeline: &Pipeline,
        bound: &BoundPipeline,
        sink: &PipelineSink,
        config: &PredictConfig,
    ) -> Result<()> {
        let Some(reconcile) = &config.reconcile else {
            return Ok(());
        };
        if !self.forecast_quantiles(pipeline, config)?.is_empty() {
            return Err(quantiles_fault(&sink.name));
        }
        let bottom = future_of(bound, &sink.from)?;
        if reconcile.learns() {
            check_folds(&FOLD_ERRORS, pipeline, bound, bottom)?;
        }
        let mut faults = Vec::new();
        for name in &reconcile.with {
            let checked = self.check_level(pipeline, bound, sink, bottom, name);
            faults.extend(checked.err());
        }
        Fault::combine(faults).map_or(Ok(()), Err)
    }

    /// Refuses an upper level of a hierarchy whose forecasts cannot be sums of those of the lowest one.
    fn check_level(
        &self,
        pipeline: &Pipeline,
        bound: &BoundPipeline,
        sink: &PipelineSink,
        bottom: &FutureFlow,
        name: &str,
    ) -> Result<()> {
        let mut predictions = pipeline.predictions.iter();
        let upper = predictions.find(|upper| upper.name == *name && upper.name != sink.name);
        let Some(upper) = upper else {
            return Err(unknown_level_fault(pipeline, sink, name));
        };
        let config = self.predict_config(upper)?;
        if !self.forecast_quantiles(pipeline, &config)?.is_empty() {
            return Err(quantiles_fault(name));
        }
        if config.min.is_some() || config.max.is_some() {
            let message = format!(
                "`{name}` has bounds, and its forecasts are sums of those of `{}`",
                sink.name
            );
            return Err(Fault::new(codes::BAD_VALUE, message)
                .hint(format!("give the bounds to `{}` alone", sink.name)));
        }
        if self.levels_with(pipeline, name)? > 1 || config.reconcile.is_some() {
            let message = format!("`{name}` is part of two hierarchies");
            return Err(Fault::new(codes::UNSUPPORTED, message)
                .hint("name all levels in `with` of the lowest one"));
        }
        let future = future_of(bound, &upper.from)?;
        let mut keys = future.keys.iter();
        if let Some(key) = keys.find(|key| !bottom.keys.contains(key)) {
            let message = format!(
                "the series of `{name}` have the key `{key}`, which those of `{}` lack",
                sink.name
            );
            return Err(Fault::new(codes::BAD_VALUE, message).column(key).hint(
                "an upper level has some of the keys of the lowest one, under the same names",
            ));
        }
        if future.keys.len() >= bottom.keys.len() {
            let message = format!(
                "the series of `{name}` have as many keys as those of `{}`, and are no sums of \
                 them",
                sink.name
            );
            return Err(Fault::new(codes::BAD_VALUE, message)
                .hint("an upper level has fewer keys than the lowest one"));
        }
        let times = [future, bottom].map(|flow| flow.source.field_with_name(&flow.time));
        let [time, bottom_time] = times;
        let is_same_time = time?.data_type() == bottom_time?.data_type();
        if !is_same_time || future.steps != bottom.steps || future.horizon != bottom.horizon {
            let message = format!(
                "`{name}` and `{}` have other horizons, steps or types of times",
                sink.name
            );
            return Err(Fault::new(codes::BAD_VALUE, message)
                .hint("give `future_rows` of both the same `horizon` and `every`"));
        }
        Ok(())
    }

    /// Number of hierarchies that name a sink as an upper level.
    pub(super) fn levels_with(&self, pipeline: &Pipeline, name: &str) -> Result<usize> {
        let mut count = 0;
        for sink in &pipeline.predictions {
            let config = self.predict_config(sink)?;
            let named = config.reconcile.iter().flat_map(|levels| &levels.with);
            count += named.filter(|level| *level == name).count();
        }
        Ok(count)
    }

    /// Plans of forecasts, of which those of hierarchies write reconciled ones. Without `folds`, a method that learns
    /// errors counts all series alike.
    pub(crate) fn reconciled_plans(
        &self,
        pipeline: &Pipeline,
        mut plans: Vec<ForecastPlan>,
        inputs: ForecastInputs<'_, '_>,
        folds: &FoldForecasts,
    ) -> Result<Vec<ForecastPlan>> {
        for (number, sink) in pipeline.predictions.iter().enumerate() {
            let config = self.predict_config(sink)?;
            let Some(reconcile) = &config.reconcile else {
                continue;
            };
            let mut positions = Vec::with_capacity(reconcile.with.len() + 1);
            for name in &reconcile.with {
                let mut predictions = pipeline.predictions.iter();
                let position = predictions.position(|upper| upper.name == *name);
                positions.push(position.ok_or_else(|| Fault::internal("a missing level"))?);
            }
            positions.push(number);
            let rows = folds.get(&sink.name);
            self.reconcile(pipeline, reconcile, &positions, &mut plans, inputs, rows)
                .map_err(|fault| fault.at(sink.at.as_ref()))?;
        }
        Ok(plans)
    }

    /// Replaces the plans of one hierarchy. `positions` are those of its sinks, the lowest level last.
    fn reconcile(
        &self,
        pipeline: &Pipeline,
        reconcile: &ForecastReconcile,
        positions: &[usize],
        plans: &mut [ForecastPlan],
        inputs: ForecastInputs<'_, '_>,
        folds: Option<&Vec<Vec<FoldRow>>>,
    ) -> Result<()> {
        let scratch = ScratchDir::new(Some(&self.state()?), self.watch.clone())?;
        let mut levels = Vec::with_capacity(positions.len());
        for (level, position) in positions.iter().enumerate() {
            let sink = &pipeline.predictions[*position];
            let directory = scratch.path().join(format!("level-{level}"));
            let plan = &plans[*position];
            levels.push(self.level_forecasts(pipeline, sink, plan, inputs, &directory)?);
        }
        let Some((bottom, uppers)) = levels.split_last() else {
            return Err(Fault::internal("a hierarchy without levels"));
        };
        let hierarchy = ForecastHierarchy::new(uppers, bottom)?;
        let fold_rows = folds.map(Vec::as_slice).unwrap_or_default();
        let errors = hierarchy.fold_errors(fold_rows, self.options.memory_bytes)?;
        let error_count = errors.by_series.first().map_or(0, Vec::len);
        if let Some(series) = &errors.incomplete_series {
            let message = format!(
                "`{}`: the covariance leaves out {} times of folds, at which a series has no \
                 error: {series} at the first of them",
                bottom.sink, errors.incomplete_times
            );
            self.watch.on_event(Event::Warning { message });
        }
        if reconcile.learns() && error_count < ERRORS_MIN {
            let reason = match folds {
                Some(_) => format!(
                    "all series have an error at {error_count} times of folds, too few for a \
                     covariance"
                ),
                None => "a run that takes earlier models trains none on folds".to_owned(),
            };
            let message = format!(
                "`{}`: {reason}, so that errors of all series count alike",
                bottom.sink
            );
            self.watch.on_event(Event::Warning { message });
        }
        let bottom_sink = positions
            .last()
            .map(|position| &pipeline.predictions[*position]);
        let bottom_sink = bottom_sink.ok_or_else(|| Fault::internal("no lowest level"))?;
        let config = self.predict_config(bottom_sink)?;
        let bounds = PredictionBounds::new(config.min, config.max);
        let reconciled =
            hierarchy.reconcile(reconcile.method, &errors.by_series, bounds, &|| {
                self.interrupt.check()
            })?;
        let report = ReconcileReport {
            method: reconcile.method_text().to_owned(),
            levels: levels.iter().map(|level| level.sink.clone()).collect(),
            upper_series: hierarchy.upper_series() as u64,
            bottom_series: bottom.names.len() as u64,
            errors: if reconcile.method == ReconcileMethod::MintShrink {
                error_count as u64
            } else {
                0
            },
        };
        for ((position, level), reconciled) in positions.iter().zip(&levels).zip(reconciled) {
            let sink = &pipeline.predictions[*position];
            let plan =
                self.reconciled_plan(pipeline, sink, &plans[*position], level, reconciled)?;
            plans[*position] = ForecastPlan {
                reconciled: Some(report.clone()),
                ..plan
            };
        }
        Ok(())
    }

    /// The forecasts of a plan, which are not published.
    fn level_forecasts(
        &self,
        pipeline: &Pipeline,
        sink: &PipelineSink,
        plan: &ForecastPlan,
        inputs: ForecastInputs<'_, '_>,
        directory: &Path,
    ) -> Result<LevelForecasts> {
        let config = PredictConfig {
            path: directory.display().to_string(),
            format: ForecastFormat::Parquet,
            columns: Vec::new(),
            min: None,
            max: None,
            ..self.predict_config(sink)?
        };
        let model = ForecastModel {
            model: plan.model.clone(),
            artifact: plan.artifact.clone(),
            doubles: false,
        };
        let base = self.plan_forecast(pipeline, sink, &config, model)?;
        let base = ForecastPlan {
            earlier: plan.earlier.clone(),
            ..base
        };
        let mut forecast = self.run_forecast(&base, inputs)?;
        let future = future_of(&forecast.run.program.bound, &sink.from)?;
        let time = future.source.field_with_name(&future.time)?;
        let mut level = LevelReader::new(&sink.name, &future.keys, time);
        for staged in &forecast.staged {
            let (_, out, manifest) = staged.parts(&base.pipeline);
            check_forecasts_memory(
                self.options.memory_bytes,
                &sink.name,
                manifest.rows,
                LEVEL_ROW_BYTES,
            )?;
            let mut columns = level.forecasts.keys.clone();
            columns.push(level.forecasts.time.name().clone());
            columns.push(config.name.clone());
            let files = ForecastFiles {
                session: self,
                out,
                manifest,
                format: ForecastFormat::Parquet.name(),
                types: None,
            };
            files.read(&columns, &[], &mut |batch| {
                level.add(batch, &config.name)?;
                Ok(ControlFlow::Continue(()))
            })?;
        }
        std::mem::take(&mut forecast.run.background).join_all()?;
        level.finish()
    }

    /// A plan that writes reconciled forecasts in place of those of its model.
    fn reconciled_plan(
        &self,
        pipeline: &Pipeline,
        sink: &PipelineSink,
        plan: &ForecastPlan,
        level: &LevelForecasts,
        reconciled: ReconciledLevel,
    ) -> Result<ForecastPlan> {
        let forecasts = ReconciledTable::new(
            &level.names,
            &level.times,
            reconciled.values,
            reconciled.clipped,
        );
        let predictor = ReconciledModel::new(plan.model.predictor.clone(), forecasts);
        // Bounds hold for the reconciled forecasts of the lowest level already.
        let config = PredictConfig {
            min: None,
            max: None,
            ..self.predict_config(sink)?
        };
        let model = ForecastModel {
            // Only this process has the forecasts, so that workers do not load the model.
            model: self.models.load(Arc::new(predictor), None),
            artifact: plan.artifact.clone(),
            doubles: true,
        };
        let written = self.plan_forecast(pipeline, sink, &config, model)?;
        Ok(ForecastPlan {
            earlier: plan.earlier.clone(),
            ensemble: plan.ensemble.clone(),
            ..written
        })
    }
}

/// Fails where so many forecasts, which a reconciliation holds as a whole, would take more than half of the memory.
pub(crate) fn check_forecasts_memory(
    memory_bytes: u64,
    sink: &str,
    rows: u64,
    row_bytes: u64,
) -> Result<()> {
    let bytes = rows.saturating_mul(row_bytes);
    let limit = memory_bytes / 2;
    if bytes <= limit {
        return Ok(());
    }
    let message = format!(
        "the reconciliation of `{sink}` would hold {} MiB for {rows} forecasts, and may hold {}",
        bytes.div_ceil(1 << 20),
        limit >> 20
    );
    Err(Fault::new(codes::MEMORY, message).hint("raise --memory, or leave `reconcile` out"))
}

fn unknown_level_fault(pipeline: &Pipeline, sink: &PipelineSink, name: &str) -> Fault {
    let others = pipeline.predictions.iter().map(|other| other.name.as_str());
    let others: Vec<&str> = others.filter(|other| *other != sink.name).collect();
    let hint = if others.is_empty() {
        "forecast the sums in a `predict` sink of their own, and name it in `with`".to_owned()
    } else {
        format!("`with` names `predict` sinks: {}", others.join(", "))
    };
    let message = format!("no other sink predicts `{name}`");
    Fault::new(codes::UNKNOWN_NAME, message).hint(hint)
}

fn quantiles_fault(sink: &str) -> Fault {
    let message = format!("`{sink}` predicts quantiles, and reconciled forecasts have none");
    Fault::new(codes::UNSUPPORTED, message)
        .hint("leave `quantiles` and `intervals` out of its training, or `reconcile`")
}

/// Reads the rows of a forecast, which come in order of time.
struct LevelReader {
    forecasts: LevelForecasts,
    numbers: HashMap<SeriesName, usize>,
}

impl LevelReader {
    /// A reader of the forecasts of a sink, by the keys of its series and the column of their times.
    fn new(sink: &str, keys: &[String], time: &Field) -> LevelReader {
        LevelReader {
            forecasts: LevelForecasts {
                sink: sink.to_owned(),
                keys: keys.to_vec(),
                time: time.clone(),
                names: Vec::new(),
                times: Vec::new(),
                values: Vec::new(),
            },
            numbers: HashMap::new(),
        }
    }

    fn add(&mut self, batch: &RecordBatch, prediction: &str) -> Result<()> {
        let mut keys = Vec::with_capacity(self.forecasts.keys.len());
        for key in &self.forecasts.keys {
            keys.push(forecast_column(batch, key)?.clone());
        }
        let time = &self.forecasts.time;
        let rows = SeriesRows::new(
            &keys,
            forecast_column(batch, time.name())?,
            time.data_type(),
        )?;
        let predicted = cast(forecast_column(batch, prediction)?, &DataType::Float64)?;
        let predicted = predicted.as_primitive::<Float64Type>();
        for row in 0..batch.num_rows() {
            let name = rows.name(row);
            if rows.times.is_null(row) {
                return Err(self.forecasts.timeless_fault(&name));
            }
            let tick = rows.times.value(row);
            if predicted.is_null(row) || predicted.value(row).is_nan() {
                return Err(self.forecasts.missing_fault(&name, tick));
            }
            let series = self.number(name);
            let forecasts = &mut self.forecasts;
            if forecasts.times.last() != Some(&tick) {
                forecasts.times.push(tick);
                forecasts.values.push(Vec::new());
            }
            let Some(values) = forecasts.values.last_mut() else {
                continue;
            };
            if values.len() <= series {
                values.resize(series + 1, f64::NAN);
            }
            if !values[series].is_nan() {
                return Err(forecasts.duplicate_fault(&forecasts.names[series], tick));
            }
            values[series] = predicted.value(row);
        }
        Ok(())
    }

    /// The number of a series.
    fn number(&mut self, name: SeriesName) -> usize {
        if let Some(number) = self.numbers.get(&name) {
            return *number;
        }
        let number = self.forecasts.names.len();
        self.forecasts.names.push(name.clone());
        self.numbers.insert(name, number);
        number
    }

    /// The forecasts, of which each series has one at each time.
    fn finish(self) -> Result<LevelForecasts> {
        let forecasts = self.forecasts;
        let series = forecasts.names.len();
        for values in &forecasts.values {
            if values.len() < series || values.iter().any(|value| value.is_nan()) {
                let message = format!(
                    "`{}` does not forecast all series at the same times, so that its forecasts do \
                     not add up",
                    forecasts.sink
                );
                return Err(Fault::new(codes::BAD_ROW, message)
                    .hint("reconcile series whose rows of the future have the same times"));
            }
        }
        Ok(forecasts)
    }
}

fn forecast_column<'b>(batch: &'b RecordBatch, name: &str) -> Result<&'b ArrayRef> {
    let column = batch.column_by_name(name);
    column.ok_or_else(|| Fault::internal(format!("a forecast without `{name}`")))
}

#[cfg(test)]
mod tests {
    use arrow::array::{Date32Array, Float64Array, StringArray};

    use super::*;

    /// Rows of the series `a`, `b` and so on, by day and forecast.
    fn forecasts(rows: &[(Option<&str>, Option<i32>, Option<f64>)]) -> Result<LevelForecasts> {
        let keys = rows.iter().map(|(key, _, _)| *key);
        let keys: ArrayRef = Arc::new(StringArray::from_iter(keys));
        let days = rows.iter().map(|(_, day, _)| *day);
        let days: ArrayRef = Arc::new(Date32Array::from_iter(days));
        let predicted = rows.iter().map(|(_, _, predicted)| *predicted);
        let predicted: ArrayRef = Arc::new(Float64Array::from_iter(predicted));
        let columns = [("item", keys), ("day", days), ("prediction", predicted)];
        let batch = RecordBatch::try_from_iter(columns).unwrap();
        let time = Field::new("day", DataType::Date32, true);
        let mut reader = LevelReader::new("items", &["item".to_owned()], &time);
        // Rows that tie may come in two batches.
        for row in 0..batch.num_rows() {
            reader.add(&batch.slice(row, 1), "prediction")?;
        }
        reader.finish()
    }

    #[test]
    fn each_series_has_a_forecast_of_each_time() {
        let level = forecasts(&[
            (Some("b"), Some(0), Some(1.0)),
            (None, Some(0), Some(2.0)),
            (None, Some(1), Some(3.0)),
            (Some("b"), Some(1), Some(4.0)),
        ]);
        let level = level.unwrap();
        assert_eq!(level.names, [vec![Some("b".to_owned())], vec![None]]);
        assert_eq!(level.times, [0, 1]);
        assert_eq!(level.values, [[1.0, 2.0], [4.0, 3.0]]);
        let first = (Some("b"), Some(0), Some(1.0));
        for (row, words) in [
            (
                (Some("b"), Some(0), Some(1.0)),
                "`items` has two forecasts of item b for day 1970-01-01",
            ),
            (
                (None, None, Some(1.0)),
                "`items` has a forecast of item null whose `day` is null",
            ),
            (
                (Some("c"), Some(0), None),
                "`items` has no forecast of item c for day 1970-01-01",
            ),
            (
                (Some("c"), Some(1), Some(1.0)),
                "`items` does not forecast all series at the same times, so that its forecasts do \
                 not add up",
            ),
        ] {
            let fault = forecasts(&[first, row]).unwrap_err();
            assert_eq!(fault.code(), codes::BAD_ROW);
            assert_eq!(fault.message(), words);
        }
    }

    #[test]
    fn forecasts_may_take_half_of_the_memory() {
        let memory_bytes = 1 << 30;
        let rows = memory_bytes / 2 / LEVEL_ROW_BYTES;
        assert!(check_forecasts_memory(memory_bytes, "items", rows, LEVEL_ROW_BYTES).is_ok());
        let refused = check_forecasts_memory(memory_bytes, "items", rows + 1, LEVEL_ROW_BYTES);
        let fault = refused.unwrap_err();
        assert_eq!(fault.code(), codes::MEMORY);
        assert_eq!(
            fault.message(),
            "the reconciliation of `items` would hold 513 MiB for 8388609 forecasts, and may hold \
             512"
        );
    }
}
