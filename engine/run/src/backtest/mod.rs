//! Backtests: accuracy of forecasts as of several times of the past.
//!
//! Each fold is a run of the whole pipeline with the data as they were known at its origin
//! ("rolling origin", Tashman 2000): it learns, trains and forecasts as of its day. Folds share the
//! state directory, so that states and windows of rows that several folds read are computed once.
//! What the folds write is temporary. Their forecasts are joined with the values observed later by
//! one more pipeline, which scores them.

mod coverage;
mod ensemble;
mod error_bins;
mod evaluate;
mod fold_forecasts;
mod fold_run;
mod member_errors;
mod model_rows;
mod origins;
mod published;
mod report;
mod scores;
mod series_sample;
mod skill;

use std::collections::BTreeMap;
use std::ops::Range;
use std::path::Path;
use std::time::Instant;

use arrow::datatypes::Field;
use forebay_contract::{ForecastFormat, PredictConfig};
use forebay_execute::SourceInput;
use forebay_model::{
    CalendarSpan, ColumnClock, DAY_NANOSECONDS, Fault, Pipeline, PipelineSink, Result, TimeCutoff,
    TimeLength, codes, logical_type, tick_nanoseconds,
};
use forebay_plan::{BaseDataset, BoundPipeline, FutureFlow};
use forebay_storage::{Event, ScratchDir};

use self::coverage::judge_coverage;
use self::evaluate::Evaluation;
use self::model_rows::ModelRows;
use self::origins::KnownTimes;
use self::report::judge_rules;
use self::scores::ForecastQuantiles;
use self::skill::set_skill;
use crate::leak_check::TimeRange;
use crate::predict::{check_label_units, future_of, horizon_of, horizon_span, step_of_future};
use crate::session::{Session, datasets};

pub use self::origins::ForecastOrigin;
pub use self::published::ScoreOptions;
pub use self::report::{
    BacktestReport, BacktestedForecast, ErrorHistogram, FoldReport, ForecasterScores, GroupScore,
    IntervalCoverage, SampledPoint, SampledSeries, ScoreRule, StepCoverage, StepScore, StepTotal,
};
pub use self::scores::{ForecastScore, IntervalScore, QuantileScore};

/// Steps of a horizon up to which the last value is compared: it takes a lag for each.
const LAST_VALUE_STEPS_MAX: u64 = 400;

/// Options of a backtest.
#[derive(Debug, Clone)]
pub struct BacktestOptions {
    /// Number of folds.
    pub folds: usize,
    /// The distance of their origins, such as `28d`; the horizon where left out.
    pub every: Option<String>,
    /// Rows at or after this time are not used at all, not even to compare; all are used where left out.
    pub until: Option<String>,
    /// Columns of the forecasts by whose values groups are scored.
    pub by: Vec<String>,
}

/// Times of folds.
struct FoldTimes<'a> {
    /// Number of folds.
    folds: usize,
    /// The distance of their origins; the horizon where left out.
    every: Option<&'a str>,
    /// The end of the last fold; one step after the last row where left out.
    until: Option<TimeCutoff>,
    /// The end of what is known, which no fold exceeds.
    known_before: Option<TimeCutoff>,
}

/// A way to forecast.
struct Forecaster {
    name: String,
    /// The season of a naive forecast; `None` for the model.
    season: Option<String>,
}

impl Session {
    /// Runs the pipeline with the data of several times of the past, and scores its forecasts
    /// against the values observed later. `at` makes the pipeline of a fold, which may differ in
    /// dates.
    pub fn backtest(
        &self,
        pipeline: &Pipeline,
        options: &BacktestOptions,
        at: &dyn Fn(&ForecastOrigin) -> Result<Pipeline>,
    ) -> Result<BacktestReport> {
        let label = require_forecasts(pipeline, "a backtest")?;
        let inputs = self.discover_inputs(&self.io, pipeline, None, None)?;
        let bound = self.bind_steps(pipeline, &datasets(&inputs))?;
        self.check_forecasts(pipeline, &bound)?;
        let plans = self.forecast_backtests(pipeline, &bound, options)?;
        let longest = plans.iter().max_by_key(|plan| plan.horizon());
        let flow = longest
            .ok_or_else(|| Fault::internal("a backtest of no forecast"))?
            .future;
        let times = FoldTimes {
            folds: options.folds,
            every: options.every.as_deref(),
            until: options.until.as_ref().map(TimeCutoff::before),
            known_before: None,
        };
        let origins = self.fold_origins(&inputs, &bound, flow, &times)?;

        let scratch = ScratchDir::new(Some(&self.state()?), self.watch.clone())?;
        let mut folds = Vec::new();
        let most = plans
            .iter()
            .map(|plan| plan.forecasters.len())
            .max()
            .unwrap_or(0);
        for (fold, origin) in origins.iter().enumerate() {
            let began = Instant::now();
            self.run_forecasters(&at(origin)?, origin, fold, &plans, 0..most, scratch.path())
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
            let from = &first.known_before;
            let scored =
                self.score_forecast(pipeline, &label, plan, folds.len(), from, scratch.path())?;
            self.warn_of_empty_folds(&plan.sink.name, &scored.forecasters, &folds);
            forecasts.push(scored);
        }
        Ok(BacktestReport {
            label,
            folds,
            forecasts,
        })
    }

    /// The times from which folds forecast, in order.
    fn fold_origins(
        &self,
        inputs: &BTreeMap<String, SourceInput>,
        bound: &BoundPipeline,
        flow: &FutureFlow,
        times: &FoldTimes<'_>,
    ) -> Result<Vec<ForecastOrigin>> {
        let source = history_source(bound, flow)?;
        let time = &flow.time;
        let input = inputs
            .get(source)
            .ok_or_else(|| Fault::internal("a source without data"))?;
        if input.dataset.schema.field_with_name(time).is_err() {
            return Err(computed_time_fault(time, source));
        }
        let range = TimeRange::of(&self.io, input, time)?;
        let range = range.ok_or_else(|| {
            Fault::new(codes::EMPTY, "the history has no row with a time").column(time)
        })?;
        let horizon = horizon_span(flow, &range.field);
        let mut end = match &times.until {
            Some(until) => until.last_tick(&range.field)?.saturating_add(1),
            None => step_after(range.max, horizon, flow.steps, &range.field)?,
        };
        if let Some(known_before) = &times.known_before {
            end = end.min(known_before.last_tick(&range.field)?.saturating_add(1));
        }
        let known_times = KnownTimes {
            time: &range.field,
            first: range.min,
            end,
            horizon,
        };
        known_times.origins(times.folds, times.every)
    }

    /// The forecasts of a pipeline, each with the ways to forecast that it is compared with.
    fn forecast_backtests<'a>(
        &self,
        pipeline: &'a Pipeline,
        bound: &'a BoundPipeline,
        options: &BacktestOptions,
    ) -> Result<Vec<ForecastBacktest<'a>>> {
        let mut plans = Vec::new();
        for (number, sink) in pipeline.predictions.iter().enumerate() {
            let plan = check_label_units(pipeline, bound, &sink.from)
                .and_then(|()| ForecastBacktest::new(self, pipeline, bound, number, sink, options));
            plans.push(plan.map_err(|fault| fault.at(sink.at.as_ref()))?);
        }
        Ok(plans)
    }

    /// Scores the forecasts of all folds of a plan, which lie in `scratch`. `from` is the origin of the first fold.
    fn score_forecast(
        &self,
        pipeline: &Pipeline,
        label: &str,
        plan: &ForecastBacktest<'_>,
        folds: usize,
        from: &str,
        scratch: &Path,
    ) -> Result<BacktestedForecast> {
        let time = plan.future.source.field_with_name(&plan.future.time)?;
        let evaluation = Evaluation {
            session: self,
            pipeline,
            label,
            future: plan.future,
            prediction: &plan.config.name,
            quantiles: &plan.quantiles,
            sink: plan.sink,
            by: &plan.by,
            season_rows: plan.season_rows(time),
            forecasts: &plan.directory(scratch),
            from,
        };
        let scores = evaluation.run(&scratch.join(format!("scores-{}", plan.number)))?;
        let names: Vec<&str> = plan
            .forecasters
            .iter()
            .map(|forecaster| forecaster.name.as_str())
            .collect();
        let mut forecasters = scores.by_forecaster(&names, folds);
        let summary = set_skill(&mut forecasters);
        let rules = match &plan.config.expect {
            Some(expect) => judge_rules(expect, &forecasters),
            None => Vec::new(),
        };
        let coverage = forecasters.first().map_or(Vec::new(), judge_coverage);
        let rmse = forecasters.first().and_then(|model| model.overall.rmse);
        let rows = match rmse {
            Some(rmse) => {
                let dir = scratch.join(format!("model-rows-{}", plan.number));
                evaluation.model_rows(&dir, folds, rmse)?
            }
            None => ModelRows::default(),
        };
        Ok(BacktestedForecast {
            sink: plan.sink.name.clone(),
            summary,
            coverage,
            rules,
            by: plan.by.clone(),
            forecasters,
            residuals: rows.histogram,
            time: Field::new(time.name(), logical_type(time.data_type()), true),
            series: rows.series,
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
                "no value came for the forecasts of `{sink}` in the fold that knows rows before \
                 {}, \
                 so it has no score: give `--until` a time up to which the series have values",
                fold.known_before
            );
            self.watch.on_event(Event::Warning { message });
        }
    }

    /// Trains and forecasts with the rows before an origin, in some of the ways to forecast.
    fn run_forecasters(
        &self,
        pipeline: &Pipeline,
        origin: &ForecastOrigin,
        fold: usize,
        plans: &[ForecastBacktest<'_>],
        numbers: Range<usize>,
        scratch: &Path,
    ) -> Result<()> {
        let mut fold_pipeline = pipeline.learning_anew();
        fold_pipeline.name = format!("{}.backtest", pipeline.name);
        fold_pipeline.deadline = None;
        fold_pipeline.sinks.clear();
        for (number, training) in fold_pipeline.trainings.iter_mut().enumerate() {
            training.set_path(path_in(scratch, &format!("models/{fold}/{number}")));
        }
        let session = Session {
            as_of: Some(TimeCutoff::before(&origin.known_before)),
            deadline: None,
            tracker: None,
            ..self.for_inner_run(self.options.clone())
        };
        for number in numbers {
            let mut is_naive = false;
            fold_pipeline.predictions.clear();
            for plan in plans.iter().filter(|plan| number < plan.forecasters.len()) {
                let forecaster = &plan.forecasters[number];
                let path = plan
                    .directory(scratch)
                    .join(format!("fold={fold}/forecaster={number}"));
                let mut config = PredictConfig {
                    path: path.display().to_string(),
                    format: ForecastFormat::Parquet,
                    ..plan.config.clone()
                };
                if forecaster.season.is_some() {
                    config.season = forecaster.season.clone();
                    is_naive = true;
                }
                let config = serde_json::to_value(config)
                    .map_err(|error| Fault::internal("a forecast").cause(error))?;
                fold_pipeline.predictions.push(PipelineSink {
                    config,
                    ..plan.sink.clone()
                });
            }
            if is_naive {
                session.publish_naive_forecasts(&fold_pipeline)?;
            } else {
                session.run(&fold_pipeline)?;
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
    /// Length of time between rows of the future.
    every: Option<String>,
    forecasters: Vec<Forecaster>,
    /// Columns by whose values groups are scored.
    by: Vec<String>,
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
        let future = future_of(bound, &sink.from)?;
        let is_written =
            |column: &&String| future.keys.contains(column) || config.columns.contains(column);
        if let Some(column) = options.by.iter().find(|column| !is_written(column)) {
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
            name: config.models_text(),
            season: None,
        }];
        if let Some(season) = &config.season {
            forecasters.push(Forecaster {
                name: "seasonal_naive".to_owned(),
                season: Some(season.clone()),
            });
        }
        let (node, position) = step_of_future(pipeline, &sink.from)?;
        let every = session.future_rows_facts(&node.steps[position])?.every;
        if every.is_some() && future.steps <= LAST_VALUE_STEPS_MAX && config.season != every {
            forecasters.push(Forecaster {
                name: "last_value".to_owned(),
                season: every.clone(),
            });
        }
        let quantiles = ForecastQuantiles(session.forecast_quantiles(pipeline, &config)?);
        Ok(ForecastBacktest {
            number,
            sink,
            config,
            quantiles,
            future,
            every,
            forecasters,
            by: options.by.clone(),
        })
    }

    fn horizon(&self) -> i64 {
        horizon_of(self.future)
    }

    /// Rows of the season by which errors are scaled; 1 where the forecast has none, or none of whole steps.
    fn season_rows(&self, time: &Field) -> u64 {
        season_rows(self.config.season.as_deref(), self.every.as_deref(), time)
    }

    fn directory(&self, scratch: &Path) -> std::path::PathBuf {
        scratch.join(format!("forecasts-{}", self.number))
    }
}

/// Rows of a season, where rows come `every` so often; 1 without a season, or without one of whole steps.
fn season_rows(season: Option<&str>, every: Option<&str>, time: &Field) -> u64 {
    let Some((season, every)) = season.zip(every) else {
        return 1;
    };
    let season = length_span(season, time);
    let every = length_span(every, time);
    let rows = season.zip(every).and_then(|(season, every)| {
        let is_months = every.months > 0;
        let (whole, part) = if is_months {
            (season.months, every.months)
        } else {
            (season.ticks, every.ticks)
        };
        (part > 0 && whole % part == 0).then(|| whole / part)
    });
    rows.map_or(1, |rows| rows.max(1) as u64)
}

/// The label of a pipeline that forecasts it.
fn require_forecasts(pipeline: &Pipeline, command: &str) -> Result<String> {
    match &pipeline.label {
        Some(label) if !pipeline.predictions.is_empty() => Ok(label.column.clone()),
        _ => {
            let message = format!("{command} needs a `predict` sink and a `label`");
            Err(Fault::new(codes::MISSING_FIELD, message).hint(
                "declare `label: { column, horizon }`, a `train` sink \
                 and a `predict` sink that names it",
            ))
        }
    }
}

fn path_in(scratch: &Path, name: &str) -> String {
    scratch.join(name).display().to_string()
}

/// A length of a spec, with days of 24 hours as ticks; `None` if it cannot be told in the column.
fn length_span(text: &str, time: &Field) -> Option<CalendarSpan> {
    if let Some(steps) = text.strip_suffix('t') {
        return steps.parse().ok().map(CalendarSpan::ticks);
    }
    let length: TimeLength = text.parse().ok()?;
    let span = length.distance(time.name(), time.data_type()).ok()?.span();
    let tick = tick_nanoseconds(time.data_type()).unwrap_or(1);
    let day = i64::try_from(DAY_NANOSECONDS / tick).ok()?;
    Some(CalendarSpan {
        months: span.months,
        days: 0,
        ticks: span.ticks + span.days * day,
    })
}

/// The time one step after another, where so many steps make the horizon.
fn step_after(last: i64, horizon: CalendarSpan, steps: u64, time: &Field) -> Result<i64> {
    let steps = steps.max(1) as i64;
    // Steps of hours may make a horizon of days.
    let tick = tick_nanoseconds(time.data_type()).unwrap_or(1);
    let rest_ticks = i128::from(horizon.days % steps) * DAY_NANOSECONDS / tick;
    let step = CalendarSpan {
        months: horizon.months / steps,
        days: horizon.days / steps,
        ticks: (horizon.ticks + rest_ticks as i64) / steps,
    };
    let next_time = match ColumnClock::of(time.data_type())? {
        Some(clock) => clock.later(last, step),
        None => last.checked_add(step.ticks),
    };
    next_time.ok_or_else(|| {
        let message = "the history ends at the last time that can be told";
        Fault::new(codes::LIMIT, message).column(time.name())
    })
}

/// The fault of a forecast whose time the source does not have: folds cut the rows of the source off by it.
fn computed_time_fault(time: &str, source: &str) -> Fault {
    let message = format!(
        "`{time}`, the time of the forecast, is computed by a step: folds cut off the rows of \
         `{source}`, which has no such column"
    );
    Fault::new(codes::UNSUPPORTED, message)
        .column(time)
        .hint("write the column with a first pipeline, and declare it as `time` of the source")
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
            let message = "the history of the forecast comes from SQL or an aggregate, so its \
                           times cannot be told";
            Err(Fault::new(codes::UNSUPPORTED, message)
                .hint("let `future_rows` follow filters and row-wise steps on a source"))
        }
    }
}
