//! Scores of published forecasts against the values that came since.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Instant;

use forebay_commit::{Manifest, output_root};
use forebay_contract::{ForecastFormat, literal_path};
use forebay_model::{Fault, Pipeline, PipelineSink, PipelineSource, Result, codes};
use forebay_storage::{Event, ScratchDir};
use serde_json::{Value, json};

use super::origins::ForecastOrigin;
use super::report::{BacktestReport, FoldReport};
use super::{BacktestOptions, ForecastBacktest, require_forecasts};
use crate::leak_check::{TimeRange, time_text};
use crate::predict::{STEP, is_text_format};
use crate::session::{Session, datasets};
use crate::text_types::forecast_column_type;

/// Options of a score.
#[derive(Debug, Clone, Default)]
pub struct ScoreOptions {
    /// Columns of the forecasts by whose values groups are scored.
    pub by: Vec<String>,
    /// Directories of forecasts by `predict` sink; those that the sinks publish where left out.
    pub forecasts: BTreeMap<String, String>,
}

impl Session {
    /// Scores the forecasts that `predict` sinks have published against the values that the sources have now. Each is
    /// compared with the naive forecasts of the same times, made of the rows before them. Trains nothing, and publishes
    /// nothing.
    pub fn score(&self, pipeline: &Pipeline, options: &ScoreOptions) -> Result<BacktestReport> {
        let label = require_forecasts(pipeline, "a score")?;
        let inputs = self.discover_inputs(&self.io, pipeline, None, None)?;
        let bound = self.bind_steps(pipeline, &datasets(&inputs))?;
        self.check_forecasts(pipeline, &bound)?;
        let as_backtest = BacktestOptions {
            folds: 1,
            every: None,
            until: None,
            by: options.by.clone(),
        };
        let plans = self.forecast_backtests(pipeline, &bound, &as_backtest)?;
        let scratch = ScratchDir::new(Some(&self.state()?), self.watch.clone())?;
        let mut folds: Vec<FoldReport> = Vec::new();
        let mut forecasts = Vec::new();
        for plan in &plans {
            let began = Instant::now();
            let published = options.forecasts.get(&plan.sink.name);
            let path = published.unwrap_or(&plan.config.path);
            let first = self
                .copy_published(plan, path, scratch.path())
                .map_err(|fault| fault.at(plan.sink.at.as_ref()))?;
            let origin = ForecastOrigin {
                known_before: first.clone(),
                behind: None,
            };
            // The first forecaster is the model, whose forecast is there.
            let naive = 1..plan.forecasters.len();
            self.run_forecasters(
                pipeline,
                &origin,
                0,
                std::slice::from_ref(plan),
                naive,
                scratch.path(),
            )?;
            let scored = self.score_forecast(pipeline, &label, plan, 1, &first, scratch.path())?;
            let model = scored.forecasters.first();
            if model.is_some_and(|model| model.overall.rows == 0) {
                let message = format!(
                    "no value has come yet for the forecasts of `{}`, which begin at {first}",
                    plan.sink.name
                );
                self.watch.on_event(Event::Warning { message });
            }
            forecasts.push(scored);
            folds.push(FoldReport {
                known_before: first,
                seconds: began.elapsed().as_secs_f64(),
            });
        }
        folds.truncate(1);
        Ok(BacktestReport {
            label,
            folds,
            forecasts,
        })
    }

    /// Copies a published forecast to where the query that scores reads it, as Parquet. Returns its first time.
    fn copy_published(
        &self,
        plan: &ForecastBacktest<'_>,
        path: &str,
        scratch: &Path,
    ) -> Result<String> {
        let out = output_root(&self.io, path)?;
        let files = match Manifest::read(&self.io, &out)? {
            Some(manifest) => out.join(&manifest.data),
            None => self.io.resolve(path)?,
        };
        let format = plan.config.format.name();
        let mut config = json!({ "path": literal_path(&files.shown) });
        if is_text_format(format) {
            config["columns"] = plan.declared_types()?;
        }
        let name = "forecast".to_owned();
        let source = PipelineSource {
            name: name.clone(),
            format: format.to_owned(),
            config,
            time: Some(plan.future.time.clone()),
            keys: Vec::new(),
            ready: None,
            duplicates: None,
            lookback: None,
            days: Default::default(),
            at: plan.sink.at.clone(),
        };
        let directory = plan.directory(scratch).join("fold=0/forecaster=0");
        let target = json!({ "path": directory.display().to_string() });
        let sink = PipelineSink {
            name: name.clone(),
            from: name.clone(),
            format: ForecastFormat::Parquet.name().to_owned(),
            config: self.canonical_sink(ForecastFormat::Parquet.name(), target)?,
            split: None,
            optional: false,
            at: None,
        };
        let copy = Pipeline {
            name: format!("{}.score", plan.sink.name),
            sources: vec![source],
            sinks: vec![sink],
            ..Pipeline::default()
        };
        let session = Session {
            deadline: None,
            ..self.for_inner_run(self.options.clone())
        };
        let inputs = session.discover_inputs(&session.io, &copy, None, None);
        let inputs = inputs.map_err(|fault| {
            let sink = &plan.sink.name;
            fault.note(format!(
                "`{sink}` has to publish a forecast before it is scored"
            ))
        })?;
        let input = inputs
            .get(&name)
            .ok_or_else(|| Fault::internal("a forecast without files"))?;
        let Some(range) = TimeRange::of(&self.io, input, &plan.future.time)? else {
            return Err(Fault::new(codes::EMPTY, "the forecast has no rows").file(&files.shown));
        };
        session.run(&copy)?;
        time_text(range.min, &range.field)
    }
}

impl ForecastBacktest<'_> {
    /// Types of the columns that scores need, in files that record none.
    fn declared_types(&self) -> Result<Value> {
        let mut types = serde_json::Map::new();
        for name in self.future.keys.iter().chain([&self.future.time]) {
            let field = self.future.source.field_with_name(name)?;
            types.insert(name.clone(), forecast_column_type(field).into());
        }
        for name in &self.by {
            let field = self.future.source.field_with_name(name);
            let declared = field.map_or("string", forecast_column_type);
            types.insert(name.clone(), declared.into());
        }
        types.insert(STEP.to_owned(), "int64".into());
        types.insert(self.config.name.clone(), "float32".into());
        for quantile in &self.quantiles.0 {
            let column = forebay_contract::quantile_column(&self.config.name, *quantile);
            types.insert(column, "float32".into());
        }
        Ok(Value::Object(types))
    }
}
