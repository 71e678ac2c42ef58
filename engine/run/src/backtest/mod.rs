//! Backtests: how good forecasts would have been, had they been made at several times of the past.
//!
//! Each fold is a run of the whole pipeline with the data as they were known at its origin ("rolling origin", Tashman
//! 2000): it learns, trains and forecasts as of its day. Folds share the state directory, so that states and windows of
//! rows that several folds read are computed once. What the folds write is temporary. Their forecasts are joined with the
//! values that came by one more pipeline, which scores them.

mod evaluate;
mod origins;
mod report;
mod scores;

use std::path::Path;
use std::time::Instant;

use forebay_model::{Fault, Pipeline, PipelineSink, Result, TimeCutoff, codes, tick_nanoseconds};
use forebay_plan::{BaseDataset, BoundPipeline, FutureFlow, bind};
use forebay_storage::{Event, ScratchDir};
use serde_json::{Value, json};

use self::evaluate::Evaluation;
use self::origins::KnownTimes;
use self::scores::ForecastQuantiles;
use crate::leak_check::TimeRange;
use crate::predict::{PredictConfig, check_label_units, horizon_of, step_of_future};
use crate::session::{Session, datasets};

pub use self::origins::ForecastOrigin;
pub use self::report::{
    BacktestReport, BacktestedForecast, FoldReport, ForecasterScores, GroupScore, StepScore,
};
pub use self::scores::{ForecastScore, IntervalScore, QuantileScore};

/// Steps of a horizon up to which the last value is compared: it takes a lag for each.
const LAST_VALUE_STEPS_MAX: u64 = 400;

/// What a backtest does.
#[derive(Debug, Clone)]
pub struct BacktestOptions {
    /// How many folds.
    pub folds: usize,
    /// The distance of their origins, such as `28d`; the horizon where left out.
    pub every: Option<String>,
    /// Rows at or after this time are not used at all, not even to compare; all are used where left out.
    pub until: Option<String>,
    /// Columns of the forecasts by whose values groups are scored.
    pub by: Vec<String>,
}

/// A way to forecast.
struct Forecaster {
    name: String,
    /// The season of a naive forecast; `None` for the model.
    season: Option<String>,
}

impl Session {
    /// Runs the pipeline with the data of several times of the past, and scores its forecasts against what came. `at`
    /// makes the pipeline of a fold, which may differ in dates.
    pub fn backtest(
        &self,
        pipeline: &Pipeline,
        options: &BacktestOptions,
        at: &dyn Fn(&ForecastOrigin) -> Result<Pipeline>,
    ) -> Result<BacktestReport> {
        let label = pipeline.label.as_ref().map(|label| label.column.clone());
        let (false, Some(label)) = (pipeline.predictions.is_empty(), label) else {
            let fault = Fault::new(
                codes::MISSING_FIELD,
                "a backtest needs a `predict` sink and a `label`",
            );
            return Err(
                fault.hint("declare `label: { column, horizon }`, a `train` sink and a `predict` sink that names it")
            );
        };
        let inputs = self.discover_inputs(&self.io, pipeline, None, None)?;
        let bound = bind(pipeline, &self.registry, &self.sql, &datasets(&inputs))?;
        self.check_forecasts(pipeline, &bound)?;
        let mut plans = Vec::new();
        for (number, sink) in pipeline.predictions.iter().enumerate() {
            let plan = check_label_units(pipeline, &bound, &sink.from).and_then(|()| {
                ForecastBacktest::new(self, pipeline, &bound, number, sink, options)
            });
            plans.push(plan.map_err(|fault| fault.at(sink.at.as_ref()))?);
        }
        let longest = plans.iter().max_by_key(|plan| plan.horizon());
        let flow = longest
            .ok_or_else(|| Fault::internal("a backtest of no forecast"))?
            .future;
        let (source, time) = (history_source(&bound, flow)?, &flow.time);
        let input = inputs
            .get(source)
            .ok_or_else(|| Fault::internal("a source without data"))?;
        let range = TimeRange::of(&self.io, input, time)?;
        let range = range.ok_or_else(|| {
            Fault::new(codes::EMPTY, "the history has no row with a time").column(time)
        })?;
        let tick = tick_nanoseconds(range.field.data_type()).unwrap_or(1) as i64;
        let horizon = horizon_of(flow) / tick;
        let end = match &options.until {
            Some(until) => TimeCutoff::before(until)
                .last_tick(&range.field)?
                .saturating_add(1),
            None => range.max + horizon / flow.steps.max(1) as i64,
        };
        let known = KnownTimes {
            time: &range.field,
            first: range.min,
            end,
            horizon,
        };
        let origins = known.origins(options.folds, options.every.as_deref())?;

        let scratch = ScratchDir::new(Some(&self.state()?), self.watch.clone())?;
        let mut folds = Vec::new();
        for (fold, origin) in origins.iter().enumerate() {
            let began = Instant::now();
            self.run_fold(&at(origin)?, origin, fold, &plans, scratch.path())
                .map_err(|fault| {
                    fault.note(format!(
                        "in the fold that knows rows before {}",
                        origin.known_before
                    ))
                })?;
            folds.push(FoldReport {
                known_before: origin.known_before.clone(),
                seconds: began.elapsed().as_secs_f64(),
            });
        }
        let first = origins
            .first()
            .ok_or_else(|| Fault::internal("a backtest without folds"))?;
        let mut forecasts = Vec::new();
        for plan in &plans {
            let evaluation = Evaluation {
                session: self,
                pipeline,
                label: &label,
                future: plan.future,
                prediction: &plan.config.name,
                quantiles: &plan.quantiles,
                sink: plan.sink,
                by: &options.by,
                forecasts: &plan.directory(scratch.path()),
                from: &first.known_before,
            };
            let scores = evaluation.run(&scratch.path().join(format!("scores-{}", plan.number)))?;
            let names: Vec<&str> = plan
                .forecasters
                .iter()
                .map(|forecaster| forecaster.name.as_str())
                .collect();
            let forecasters = scores.by_forecaster(&names, folds.len());
            self.warn_of_empty_folds(&plan.sink.name, &forecasters, &folds);
            forecasts.push(BacktestedForecast {
                sink: plan.sink.name.clone(),
                by: options.by.clone(),
                forecasters,
            });
        }
        Ok(BacktestReport {
            label,
            folds,
            forecasts,
        })
    }

    /// Warns of folds whose scores are over no rows: series may end before the newest time of the source.
    fn warn_of_empty_folds(
        &self,
        sink: &str,
        forecasters: &[ForecasterScores],
        folds: &[FoldReport],
    ) {
        let scores = forecasters.first().map_or(&[][..], |model| &model.folds);
        for (fold, _) in folds
            .iter()
            .zip(scores)
            .filter(|(_, score)| score.rows == 0)
        {
            let message = format!(
                "no value came for the forecasts of `{sink}` in the fold that knows rows before {}, so it has no score: \
                 give `--until` a time up to which the series have values",
                fold.known_before
            );
            self.watch.on_event(Event::Warning { message });
        }
    }

    /// Trains and forecasts with the rows before an origin.
    fn run_fold(
        &self,
        pipeline: &Pipeline,
        origin: &ForecastOrigin,
        fold: usize,
        plans: &[ForecastBacktest<'_>],
        scratch: &Path,
    ) -> Result<()> {
        let mut own = pipeline.learning_anew();
        own.name = format!("{}.backtest", pipeline.name);
        own.deadline = None;
        own.sinks.clear();
        for (number, training) in own.trainings.iter_mut().enumerate() {
            training.config["path"] = path_in(scratch, &format!("models/{fold}/{number}"));
        }
        let session = Session {
            as_of: Some(TimeCutoff::before(&origin.known_before)),
            deadline: None,
            cluster: None,
            tracker: None,
            ..self.clone()
        };
        let most = plans
            .iter()
            .map(|plan| plan.forecasters.len())
            .max()
            .unwrap_or(0);
        for number in 0..most {
            let mut is_naive = false;
            own.predictions.clear();
            for plan in plans.iter().filter(|plan| number < plan.forecasters.len()) {
                let forecaster = &plan.forecasters[number];
                let path = plan
                    .directory(scratch)
                    .join(format!("fold={fold}/forecaster={number}"));
                let mut sink = plan.sink.clone();
                sink.config["path"] = json!(path.display().to_string());
                sink.config["format"] = json!("parquet");
                if let Some(naive) = &forecaster.season {
                    sink.config["season"] = json!(naive);
                    is_naive = true;
                }
                own.predictions.push(sink);
            }
            if is_naive {
                session.publish_naive_forecasts(&own)?;
            } else {
                session.run(&own)?;
            }
        }
        Ok(())
    }
}

/// One forecast of a pipeline in a backtest.
struct ForecastBacktest<'a> {
    number: usize,
    sink: &'a PipelineSink,
    config: PredictConfig,
    quantiles: ForecastQuantiles,
    future: &'a FutureFlow,
    forecasters: Vec<Forecaster>,
}

impl<'a> ForecastBacktest<'a> {
    fn new(
        session: &Session,
        pipeline: &Pipeline,
        bound: &'a BoundPipeline,
        number: usize,
        sink: &'a PipelineSink,
        options: &BacktestOptions,
    ) -> Result<Self> {
        let config = session.predict_config(sink)?;
        let future = bound
            .flows
            .get(&sink.from)
            .and_then(|flow| flow.future.as_deref());
        let future =
            future.ok_or_else(|| Fault::internal("a forecast without rows of the future"))?;
        let known =
            |column: &&String| future.keys.contains(column) || config.columns.contains(column);
        if let Some(column) = options.by.iter().find(|column| !known(column)) {
            let message = format!(
                "groups are scored by `{column}`, which `{}` does not write",
                sink.name
            );
            return Err(Fault::new(codes::UNKNOWN_NAME, message)
                .column(column)
                .hint(format!(
                    "name a key ({}), or add it to `columns` of the `predict` sink",
                    future.keys.join(", ")
                )));
        }
        let mut forecasters = vec![Forecaster {
            name: config.model.clone(),
            season: None,
        }];
        if let Some(season) = &config.season {
            forecasters.push(Forecaster {
                name: "seasonal_naive".to_owned(),
                season: Some(season.clone()),
            });
        }
        let (node, place) = step_of_future(pipeline, &sink.from)?;
        let every = node.steps[place].config["every"].as_str();
        if let Some(every) = every.filter(|every| {
            future.steps <= LAST_VALUE_STEPS_MAX && config.season.as_deref() != Some(*every)
        }) {
            forecasters.push(Forecaster {
                name: "last_value".to_owned(),
                season: Some(every.to_owned()),
            });
        }
        let quantiles = ForecastQuantiles(session.forecast_quantiles(pipeline, &config)?);
        Ok(ForecastBacktest {
            number,
            sink,
            config,
            quantiles,
            future,
            forecasters,
        })
    }

    fn horizon(&self) -> i64 {
        horizon_of(self.future)
    }

    fn directory(&self, scratch: &Path) -> std::path::PathBuf {
        scratch.join(format!("forecasts-{}", self.number))
    }
}

fn path_in(scratch: &Path, name: &str) -> Value {
    json!(scratch.join(name).display().to_string())
}

/// The source whose rows a forecast continues.
fn history_source<'b>(bound: &'b BoundPipeline, future: &FutureFlow) -> Result<&'b str> {
    let base = future
        .history
        .first()
        .map(|stream| &bound.bases[stream.base]);
    match base {
        Some(BaseDataset::Source(name)) => Ok(name),
        _ => {
            let message = "the history of the forecast comes from SQL or an aggregate, so its times cannot be told";
            Err(Fault::new(codes::UNSUPPORTED, message)
                .hint("let `future_rows` follow filters and row-wise steps on a source"))
        }
    }
}
