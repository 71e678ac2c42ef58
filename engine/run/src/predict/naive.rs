//! The seasonal naive forecast: it repeats the last known season, and needs no statistic and no
//! model.

use std::collections::BTreeMap;
use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, Float32Array};
use arrow::compute::cast;
use arrow::datatypes::{DataType, Float32Type, Schema};
use forebay_commit::{DegradationReport, StateStore};
use forebay_contract::{ModelPredictor, Predictions};
use forebay_execute::RunState;
use forebay_model::{
    DAY_NANOSECONDS, DegradationLevel, Fault, Interval, NodeInput, Pipeline, PipelineNode,
    PipelineSink, Result, Step, TimeLength, codes, month_nanoseconds,
};
use forebay_plan::{BoundPipeline, FutureRowsFacts, compile};
use forebay_storage::{BackgroundTasks, ScratchDir};
use serde_json::json;

use super::{ForecastModel, ForecastPlan, UnpublishedForecast, check_label_units};
use crate::backfill_turn::BackfillStage;
use crate::deadline::{DeadlineMonitor, PassKind, PlanOption, PlannedPass};
use crate::degradation::degradation_report;
use crate::executor::RunExecutor;
use crate::report::{PassReport, RunReport};
use crate::session::{Session, datasets};

/// Name of naive forecasts as a pass.
const NAIVE: &str = "naive";

/// Seasons that are looked through beyond the horizon for a series that has gaps.
const SEASONS_BACK: u64 = 4;

/// Seasons of whose values the quantiles of a naive forecast are made.
const QUANTILE_SEASONS_MAX: usize = SEASONS_BACK as usize + 1;

/// Predicts the value one season before, or the last known one of the seasons before that; 0 for series without any.
/// Its quantiles are those of the last known seasons.
#[derive(Debug)]
struct SeasonalNaive {
    id: String,
    columns: Vec<String>,
    horizon: Option<String>,
    quantiles: Vec<f64>,
}

impl ModelPredictor for SeasonalNaive {
    fn id(&self) -> &str {
        &self.id
    }

    fn horizon(&self) -> Option<&str> {
        self.horizon.as_deref()
    }

    fn columns(&self) -> Vec<String> {
        self.columns.clone()
    }

    fn predicts_empty_rows(&self) -> bool {
        true
    }

    fn check(&self, _: &Schema) -> Result<()> {
        Ok(())
    }

    fn quantiles(&self) -> &[f64] {
        &self.quantiles
    }

    fn predict(&self, columns: &[ArrayRef], rows: usize) -> Result<Predictions> {
        let columns = columns
            .iter()
            .map(|column| Ok(cast(column, &DataType::Float32)?))
            .collect::<Result<Vec<_>>>()?;
        let columns: Vec<&Float32Array> = columns
            .iter()
            .map(|column| column.as_primitive::<Float32Type>())
            .collect();
        let finite_values = |row: usize| {
            let values = columns
                .iter()
                .filter(move |column| column.is_valid(row))
                .map(move |column| column.value(row));
            values.filter(|value| value.is_finite())
        };
        let point = (0..rows)
            .map(|row| Some(finite_values(row).next().unwrap_or(0.0)))
            .collect();
        let mut quantiles = vec![Vec::with_capacity(rows); self.quantiles.len()];
        let mut seasons = Vec::new();
        let scored = if self.quantiles.is_empty() { 0 } else { rows };
        for row in 0..scored {
            seasons.clear();
            seasons.extend(finite_values(row).take(QUANTILE_SEASONS_MAX));
            seasons.sort_by(f32::total_cmp);
            for (column, quantile) in quantiles.iter_mut().zip(&self.quantiles) {
                column.push(interpolated(&seasons, *quantile));
            }
        }
        Ok(Predictions {
            point,
            quantiles: quantiles.into_iter().map(Float32Array::from).collect(),
            probabilities: Vec::new(),
        })
    }
}

impl SeasonalNaive {
    fn with_quantiles(mut self, quantiles: Vec<f64>) -> SeasonalNaive {
        if !quantiles.is_empty() {
            let quantile_texts: Vec<String> = quantiles.iter().map(f64::to_string).collect();
            self.id += &format!(" with quantiles {}", quantile_texts.join(", "));
        }
        SeasonalNaive { quantiles, ..self }
    }
}

/// A quantile of sorted values, between two of them where it falls there; 0 of none.
fn interpolated(sorted: &[f32], quantile: f64) -> f32 {
    let at = quantile * sorted.len().saturating_sub(1) as f64;
    let Some(low) = sorted.get(at.floor() as usize) else {
        return 0.0;
    };
    let Some(high) = sorted.get(at.ceil() as usize) else {
        return 0.0;
    };
    (f64::from(*low) + (at - at.floor()) * (f64::from(*high) - f64::from(*low))) as f32
}

/// The steps of a naive forecast: those up to `future_rows`, and the lags that it repeats.
fn naive_node(
    session: &Session,
    pipeline: &Pipeline,
    from: &str,
    name: &str,
    season: &str,
) -> Result<(PipelineNode, SeasonalNaive)> {
    let label = pipeline.label.as_ref().ok_or_else(|| {
        let fault = Fault::new(
            codes::MISSING_FIELD,
            "the naive forecast repeats the target, and there is no `label`",
        );
        fault.hint("declare it: `label: { column: <target>, horizon: 7d }`")
    })?;
    let (node, position) = step_of_future(pipeline, from)?;
    let future = &node.steps[position];
    let facts = session.future_rows_facts(future)?;
    let horizon = facts.horizon.unwrap_or_default();
    let lags = season_lags(season, &horizon).ok_or_else(|| {
        let message = format!(
            "`season: {season}` and the horizon {horizon} are not lengths \
             of which one counts the other"
        );
        Fault::new(codes::BAD_VALUE, message).hint("write both in one unit, such as 7d and 28d")
    })?;
    let mut lag = json!({ "columns": [label.column], "by": lags });
    if let Some(time) = facts.time {
        lag["time"] = json!(time);
    }
    if let Some(keys) = facts.keys {
        lag["keys"] = json!(keys);
    }
    let mut steps = node.steps[..=position].to_vec();
    steps.push(Step {
        kind: "lag".to_owned(),
        config: lag,
        at: future.at.clone(),
    });
    let columns: Vec<String> = lags
        .iter()
        .map(|lag| format!("{}_lag_{lag}", label.column))
        .collect();
    let id = format!("seasonal naive of {} by {season}", label.column);
    let naive = SeasonalNaive {
        id,
        columns,
        horizon: label.horizon.clone(),
        quantiles: Vec::new(),
    };
    Ok((
        PipelineNode {
            name: name.to_owned(),
            steps,
            optional: false,
            ..node.clone()
        },
        naive,
    ))
}

/// The node before a step whose steps add rows of the future, and the place of the one that does.
pub(crate) fn step_of_future<'p>(
    pipeline: &'p Pipeline,
    from: &str,
) -> Result<(&'p PipelineNode, usize)> {
    let mut name = from;
    while let Some(node) = pipeline.node(name) {
        if let Some(position) = node
            .steps
            .iter()
            .position(|step| step.kind == "future_rows")
        {
            return Ok((node, position));
        }
        let NodeInput::From(input) = &node.input else {
            break;
        };
        name = input;
    }
    Err(super::step::no_future())
}

/// The lags of the seasons that reach back behind a horizon, and of those before them.
fn season_lags(season: &str, horizon: &str) -> Option<Vec<String>> {
    let (count, unit) = length(season)?;
    if count == 0 {
        return None;
    }
    let (horizon_count, horizon_unit) = length(horizon)?;
    let seasons = if unit == horizon_unit {
        horizon_count.div_ceil(count)
    } else {
        seasons_in(season.parse().ok()?, horizon.parse().ok()?)?
    };
    let numbers = 1..=seasons + SEASONS_BACK;
    Some(
        numbers
            .map(|number| format!("{}{unit}", number * count))
            .collect(),
    )
}

/// Number of seasons that last at least as long as a horizon in another unit, wherever both begin. A calendar day may have
/// an hour more than 24 of them, in which a season of hours more is looked through.
fn seasons_in(season: TimeLength, horizon: TimeLength) -> Option<u64> {
    let least = calendar_nanoseconds(season, false);
    let most = calendar_nanoseconds(horizon, true);
    let is_exact = season.calendar_span().is_none() && horizon.calendar_span().is_some();
    let whole = most.checked_add(least - 1)?.checked_div(least)?;
    u64::try_from(whole + i128::from(is_exact)).ok()
}

/// Least or most nanoseconds of a length, with days of 24 hours.
fn calendar_nanoseconds(length: TimeLength, most: bool) -> i128 {
    match length.calendar_span() {
        Some(span) => {
            month_nanoseconds(span.months, most) + i128::from(span.days) * DAY_NANOSECONDS
        }
        None => length.nominal_nanoseconds().unwrap_or(0),
    }
}

/// True if a step that leads to these rows transforms the target.
fn transforms_target(pipeline: &Pipeline, from: &str) -> bool {
    let Some(node) = pipeline.node(from) else {
        return false;
    };
    if node.steps.iter().any(|step| step.kind == "target") {
        return true;
    }
    match &node.input {
        NodeInput::From(input) => transforms_target(pipeline, input),
        NodeInput::Union(inputs) => inputs
            .iter()
            .any(|input| transforms_target(pipeline, input)),
        NodeInput::Sql(_) => false,
    }
}

/// `7d` as 7 and `d`.
fn length(text: &str) -> Option<(u64, &str)> {
    let digits = text.trim_end_matches(|letter: char| letter.is_ascii_alphabetic());
    Some((digits.parse().ok()?, &text[digits.len()..]))
}

/// The passes of a run that publishes naive forecasts. Their cost is known after the first such
/// run.
pub(crate) fn naive_passes() -> Vec<PlannedPass> {
    vec![PlannedPass {
        pass: NAIVE.to_owned(),
        total: 0,
        read: Some(0),
        learned: false,
        keeps: false,
        kind: PassKind::Unmeasured,
    }]
}

impl Session {
    /// Refuses a ladder with the level `naive` if naive forecasts are not possible.
    pub(super) fn check_naive(&self, pipeline: &Pipeline, bound: &BoundPipeline) -> Result<()> {
        let Some(deadline) = &pipeline.deadline else {
            return Ok(());
        };
        if !deadline.ladder.contains(&DegradationLevel::Naive) {
            return Ok(());
        }
        if pipeline.predictions.is_empty() {
            let fault = Fault::new(
                codes::MISSING_FIELD,
                "the rung `naive` publishes forecasts, and no sink has one",
            );
            let hint = "add a `predict` sink, or leave `naive` out of the ladder";
            return Err(fault.hint(hint).at(deadline.at.as_ref()));
        }
        let faults = pipeline.predictions.iter().filter_map(|sink| {
            let checked = self
                .naive_plan(pipeline, sink)
                .and_then(|_| check_label_units(pipeline, bound, &sink.from));
            let fault = checked.err()?;
            Some(fault.at(sink.at.as_ref()))
        });
        Fault::combine(faults.collect()).map_or(Ok(()), Err)
    }

    /// Rows of the future that a step adds.
    pub(crate) fn future_rows_facts(&self, step: &Step) -> Result<FutureRowsFacts> {
        let future_rows = self.registry.facts(step)?.future_rows;
        future_rows.ok_or_else(|| Fault::internal("a step that adds no rows of the future"))
    }

    /// The naive forecast of a sink.
    fn naive_plan(&self, pipeline: &Pipeline, sink: &PipelineSink) -> Result<ForecastPlan> {
        let config = self.predict_config(sink)?;
        let season = config.season.as_deref().ok_or_else(|| {
            let fault = Fault::new(
                codes::MISSING_FIELD,
                "the rung `naive` needs to know the season of the forecast",
            );
            fault.hint("say `season: 7d` under `predict`, or leave `naive` out of the ladder")
        })?;
        let mut name = format!("{}_naive", sink.name);
        while pipeline.node(&name).is_some() || pipeline.source(&name).is_some() {
            name.push('_');
        }
        let (node, naive) = naive_node(self, pipeline, &sink.from, &name, season)?;
        // A forecast has the same columns with a model and without.
        let naive = naive.with_quantiles(self.forecast_quantiles(pipeline, &config)?);
        let is_reconciled =
            config.reconcile.is_some() || self.levels_with(pipeline, &sink.name)? > 0;
        let model = ForecastModel {
            model: self.models.load(Arc::new(naive), None),
            artifact: None,
            doubles: is_reconciled || transforms_target(pipeline, &sink.from),
        };
        // Nothing else of the pipeline is looked at.
        let mut naive_pipeline = pipeline.clone();
        naive_pipeline.nodes.push(node);
        naive_pipeline.sinks.clear();
        naive_pipeline.trainings.clear();
        naive_pipeline.predictions.clear();
        let naive_sink = PipelineSink {
            from: name,
            ..sink.clone()
        };
        self.plan_forecast(&naive_pipeline, &naive_sink, &config, model)
    }

    /// Publishes naive forecasts only.
    pub(crate) fn run_naive(
        &self,
        pipeline: &Pipeline,
        interval: Option<&Interval>,
        monitor: &DeadlineMonitor,
    ) -> Result<RunReport> {
        let level = Some(DegradationLevel::Naive);
        monitor.plan(
            vec![PlanOption {
                level,
                passes: naive_passes(),
            }],
            std::iter::empty(),
        );
        monitor.begin(NAIVE);
        let ladder = degradation_report(pipeline, level).map(|ladder| {
            let left_out = pipeline
                .sinks
                .iter()
                .chain(&pipeline.trainings)
                .map(|sink| sink.name.clone());
            DegradationReport {
                skipped: left_out.collect(),
                ..ladder
            }
        });
        let plans = self.naive_plans(pipeline)?;
        let NaiveForecasts {
            forecasts,
            passes,
            scratch,
        } = self.run_naive_plans(&plans, pipeline, interval, &ladder)?;
        self.wait_for_previous_run(BackfillStage::Done)?;
        monitor.end(false);
        let forecasts = forecasts
            .into_iter()
            .map(UnpublishedForecast::publish)
            .collect::<Result<Vec<_>>>()?;
        Ok(RunReport {
            pipeline: pipeline.name.clone(),
            artifact: None,
            artifact_path: None,
            left_out: Vec::new(),
            days: Vec::new(),
            outputs: Vec::new(),
            models: Vec::new(),
            forecasts,
            continued: Vec::new(),
            refits: Vec::new(),
            future: Vec::new(),
            expectations: Vec::new(),
            passes,
            interval: interval.cloned(),
            rows_from: None,
            again: Vec::new(),
            nothing_new: false,
            deadline: None,
            ladder,
            warnings: Vec::new(),
            spilled_bytes: scratch.spilled_bytes(),
            storage: None,
        })
    }

    /// Publishes naive forecasts outside of a deadline's degradation.
    pub(crate) fn publish_naive_forecasts(&self, pipeline: &Pipeline) -> Result<()> {
        let plans = self.naive_plans(pipeline)?;
        let naive = self.run_naive_plans(&plans, pipeline, None, &None)?;
        for forecast in naive.forecasts {
            forecast.publish()?;
        }
        Ok(())
    }

    fn naive_plans(&self, pipeline: &Pipeline) -> Result<Vec<ForecastPlan>> {
        pipeline
            .predictions
            .iter()
            .map(|sink| self.naive_plan(pipeline, sink))
            .collect()
    }

    fn run_naive_plans<'a>(
        &'a self,
        plans: &'a [ForecastPlan],
        pipeline: &Pipeline,
        interval: Option<&Interval>,
        ladder: &Option<DegradationReport>,
    ) -> Result<NaiveForecasts<'a>> {
        let store = StateStore::new(self.io.clone(), self.state()?);
        let scratch = ScratchDir::new(Some(store.root()), self.watch.clone())?;
        let mut background = BackgroundTasks::default();
        let sources = self.discover_inputs(
            &self.io,
            pipeline,
            Some((&scratch, &mut background)),
            interval,
        )?;
        let datasets = datasets(&sources);
        background.join_all()?;
        let share = scratch.scratch_with_budget(self.memory(), self.memory().states_bytes());
        let mut forecasts = Vec::new();
        let mut passes = Vec::new();
        for plan in plans {
            let bound = self.bind_steps(&plan.pipeline, &datasets)?;
            let asks = bound.asks.clone();
            let mut findings = BTreeMap::new();
            let sink = plan.pipeline.sinks.len() - 1;
            let program = compile(
                &plan.pipeline,
                bound,
                &datasets,
                &[sink],
                false,
                &mut |ask, state| {
                    store.load_finding(
                        state,
                        asks[ask].ask.analyzer.as_ref(),
                        &share,
                        &mut findings,
                    )
                },
            )?;
            let state = RunState {
                sources: sources.clone(),
                findings,
                ..RunState::default()
            };
            let run = RunExecutor::new(
                self,
                &plan.pipeline,
                store.clone(),
                scratch.clone(),
                program,
                state,
            );
            let mut run = RunExecutor {
                degradation: ladder.clone(),
                ..run
            };
            let staged = run.run_passes()?;
            let mut forecast = UnpublishedForecast::new(run, staged, plan);
            passes.extend(forecast.passes());
            forecasts.push(forecast);
        }
        Ok(NaiveForecasts {
            forecasts,
            passes,
            scratch,
        })
    }
}

/// Naive forecasts that are written, and that readers do not see yet.
struct NaiveForecasts<'a> {
    forecasts: Vec<UnpublishedForecast<'a>>,
    passes: Vec<PassReport>,
    scratch: ScratchDir,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seasons_reach_behind_the_horizon_in_any_units() {
        let lags = |season: &str, horizon: &str| {
            let lags = season_lags(season, horizon)?;
            Some((lags.len(), lags.first()?.clone(), lags.last()?.clone()))
        };
        let expected_lags = |count: usize, first: &str, last: &str| {
            Some((count, first.to_owned(), last.to_owned()))
        };
        assert_eq!(lags("7d", "28d"), expected_lags(8, "7d", "56d"));
        assert_eq!(lags("7d", "1d"), expected_lags(5, "7d", "35d"));
        assert_eq!(lags("1w", "28d"), expected_lags(8, "1w", "8w"));
        // Two months have 62 days at most.
        assert_eq!(lags("7d", "2mo"), expected_lags(13, "7d", "91d"));
        // A year has 365 days at least, and twelve months.
        assert_eq!(lags("12mo", "365d"), expected_lags(5, "12mo", "60mo"));
        assert_eq!(lags("1y", "12mo"), expected_lags(6, "1y", "6y"));
        // A day may have 25 hours.
        assert_eq!(lags("24h", "7d"), expected_lags(12, "24h", "288h"));
        assert_eq!(lags("7", "28"), expected_lags(8, "7", "56"));
        for (season, horizon) in [("0d", "7d"), ("7", "7d"), ("7d", "7t"), ("d", "7d")] {
            assert_eq!(lags(season, horizon), None, "{season} {horizon}");
        }
    }
}
