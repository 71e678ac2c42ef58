//! Forecasts: what the models of a run predict for the rows of the future, published with the run.
//!
//! A forecast is one more step and one more sink behind those of the pipeline, in a program of its own that runs when
//! the model is there. Everything that a sink promises holds for it, and its contract is checked on its files before
//! anything of the run is published.

mod config;
mod contract;
mod earlier;
mod examples;
mod forecast_files;
mod known_columns;
mod model;
mod naive;
mod step;
mod values;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use forebay_commit::{Artifact, DegradationReport};
use forebay_execute::RunState;
use forebay_model::{
    Dataset, Fault, Interval, NodeInput, Pipeline, PipelineNode, PipelineSink, Result, codes,
};
use forebay_plan::{
    BoundPipeline, ConfiguredTransform, FUTURE_PART, FutureFlow, GatherBy, GatherOp, PlanOp,
    changed_by, check_horizon, compile, computed_by, unknown_column,
};
use forebay_window::SeriesLength;
use serde_json::{Value, json};

pub use self::config::{ForecastFormat, MissingKnown, PredictConfig, PredictedRows};
pub use self::examples::{
    ForecastExamples, ForecastLayout, ForecastPoint, SeriesExample, SeriesKey, SeriesPoint,
};
pub use self::model::{LoadedModel, ModelPredictor, Predictions, quantile_column};
pub(crate) use self::naive::{naive_passes, step_of_future};
pub use self::step::{ForecastColumns, PredictTransform};

use self::contract::ForecastContract;
use self::step::no_future;
use crate::degradation::{PreviousArtifact, replace_findings};
use crate::executor::{RunExecutor, StagedOutput};
use crate::remote_run::RemoteRun;
use crate::report::{ForecastReport, PassReport};
use crate::session::Session;
use crate::training::UnpublishedModel;
use crate::training_checks::label_column;

/// What a forecast is called as a pass.
pub(crate) fn forecast_pass_name(sink: &PipelineSink) -> String {
    format!("predict {}", sink.name)
}

/// A model and what its features are made with.
pub(crate) struct ForecastModel {
    model: Arc<LoadedModel>,
    /// The id of the artifact whose findings are used.
    artifact: String,
}

/// A pipeline with the step and the sink of a forecast, and its model.
pub(crate) struct ForecastPlan {
    /// The sink's name.
    name: String,
    pipeline: Pipeline,
    model: Arc<LoadedModel>,
    artifact: String,
    /// Where the model is of an earlier run: what its features are made with.
    earlier: Option<PreviousArtifact>,
}

/// Forecasts that are written and checked, and that readers do not see yet.
pub(crate) struct UnpublishedForecast<'a> {
    run: RunExecutor<'a>,
    staged: Vec<StagedOutput>,
    plan: &'a ForecastPlan,
}

/// What a forecast needs of the run that it belongs to.
pub(crate) struct ForecastInputs<'a, 'r> {
    pub datasets: &'a BTreeMap<String, Dataset>,
    pub run: &'a RunExecutor<'r>,
    pub interval: Option<&'a Interval>,
    /// What is done to be on time.
    pub ladder: &'a Option<DegradationReport>,
}

impl Session {
    /// True if a step of an artifact's pipeline has rows of the future. Refuses those whose label a step behind
    /// `future_rows` computes.
    pub fn has_future_rows(&self, artifact: &Artifact, from: &str, label: &str) -> Result<bool> {
        let bound = artifact.bind(&self.registry, &self.sql)?;
        let flow = bound.flows.get(from);
        let Some(future) = flow.and_then(|flow| flow.future.as_deref()) else {
            return Ok(false);
        };
        check_predicted_units(&bound, future, label)?;
        Ok(true)
    }

    /// A sink's configuration with all defaults filled in.
    pub fn canonical_sink(&self, format: &str, config: Value) -> Result<Value> {
        self.connectors.canonical(format, config)
    }

    /// The configuration of a forecast.
    pub(crate) fn predict_config(&self, sink: &PipelineSink) -> Result<PredictConfig> {
        let wrong = |error: serde_json::Error| {
            Fault::new(codes::BAD_VALUE, "`predict` cannot be read").cause(error)
        };
        let config: PredictConfig = serde_json::from_value(sink.config.clone())
            .map_err(wrong)
            .map_err(|fault| fault.at(sink.at.as_ref()))?;
        config
            .check()
            .map_err(|error| error.into_fault("predict").at(sink.at.as_ref()))?;
        Ok(config)
    }

    /// The quantiles of a forecast beside its point forecast.
    pub(crate) fn forecast_quantiles(
        &self,
        pipeline: &Pipeline,
        config: &PredictConfig,
    ) -> Result<Vec<f64>> {
        let training = pipeline
            .trainings
            .iter()
            .find(|training| training.name == config.model);
        training.map_or(Ok(Vec::new()), |training| {
            Ok(self.trainer(training)?.quantiles())
        })
    }

    /// Refuses forecasts that could not be made, before anything else is done.
    pub(crate) fn check_forecasts(&self, pipeline: &Pipeline, bound: &BoundPipeline) -> Result<()> {
        let check = |sink: &PipelineSink| -> Result<()> {
            let config = self.predict_config(sink)?;
            if !pipeline
                .trainings
                .iter()
                .any(|training| training.name == config.model)
            {
                let fault = Fault::new(
                    codes::UNKNOWN_NAME,
                    format!("no sink trains a model `{}`", config.model),
                );
                let names: Vec<&str> = pipeline
                    .trainings
                    .iter()
                    .map(|training| training.name.as_str())
                    .collect();
                return Err(fault.hint(match names.is_empty() {
                    true => "add a sink that trains it: `train: { model: mlp, ... }`".to_owned(),
                    false => format!("the sinks that train are {}", names.join(", ")),
                }));
            }
            let future = future_of(bound, &sink.from)?;
            check_horizon(future, declared_horizon(pipeline))?;
            let training = pipeline
                .trainings
                .iter()
                .find(|training| training.name == config.model);
            if let Some(training) = training {
                let feed = self.trainer(training)?.feed();
                check_predicted_units(bound, future, &label_column(pipeline, &feed)?)?;
            }
            for column in &config.columns {
                if future.source.field_with_name(column).is_err() {
                    return Err(unknown_column(column, &future.source));
                }
            }
            Ok(())
        };
        let faults = pipeline.predictions.iter().filter_map(|sink| {
            let fault = check(sink).err()?;
            Some(fault.at(sink.at.as_ref()))
        });
        Fault::combine(faults.collect()).map_or(Ok(()), Err)?;
        self.check_naive(pipeline, bound)
    }

    /// The forecasts of a run, each with the model of its training.
    pub(crate) fn plan_forecasts(
        &self,
        pipeline: &Pipeline,
        artifact: &Artifact,
        trained: &[UnpublishedModel],
    ) -> Result<Vec<ForecastPlan>> {
        let plan = |sink: &PipelineSink| {
            let config = self.predict_config(sink)?;
            let model = trained.iter().find(|model| model.name() == config.model);
            let model = model.ok_or_else(|| Fault::internal("a forecast without a model"))?;
            let files = model.directory()?;
            let predictor = self
                .connectors
                .predictor(&|name: &str| self.io.get(&files.join(name)))?;
            let model = ForecastModel {
                model: LoadedModel::new(predictor, Some(&files)),
                artifact: artifact.id.to_string(),
            };
            self.plan_forecast(pipeline, sink, &config, model)
        };
        pipeline
            .predictions
            .iter()
            .map(|sink| plan(sink).map_err(|fault| fault.at(sink.at.as_ref())))
            .collect()
    }

    fn plan_forecast(
        &self,
        pipeline: &Pipeline,
        sink: &PipelineSink,
        config: &PredictConfig,
        model: ForecastModel,
    ) -> Result<ForecastPlan> {
        let mut extended = pipeline.clone();
        let mut node = sink.name.clone();
        while extended.node(&node).is_some() || extended.source(&node).is_some() {
            node.push('_');
        }
        let step = PredictTransform {
            model: model.model.predictor.id().to_owned(),
            column: config.name.clone(),
            min: config.min,
            max: config.max,
            forecast: Some(ForecastColumns {
                columns: config.columns.clone(),
                artifact: model.artifact.clone(),
                horizon: declared_horizon(pipeline).map(str::to_owned),
            }),
        };
        let input = NodeInput::From(sink.from.clone());
        extended.nodes.push(PipelineNode {
            at: sink.at.clone(),
            ..PipelineNode::new(&node, input, vec![step.step()?])
        });
        let format = config.format.name().to_owned();
        extended.sinks.push(PipelineSink {
            name: sink.name.clone(),
            from: node,
            config: self
                .connectors
                .canonical(&format, json!({ "path": config.path }))?,
            format,
            split: Some(FUTURE_PART.to_owned()),
            optional: false,
            at: sink.at.clone(),
        });
        let ForecastModel { model, artifact } = model;
        Ok(ForecastPlan {
            name: sink.name.clone(),
            pipeline: extended,
            model,
            artifact,
            earlier: None,
        })
    }

    /// Writes a forecast with what a run has learned, and checks it.
    pub(crate) fn run_forecast<'a>(
        &'a self,
        plan: &'a ForecastPlan,
        ForecastInputs {
            datasets,
            run,
            interval,
            ladder,
        }: ForecastInputs<'_, '_>,
    ) -> Result<UnpublishedForecast<'a>> {
        let bound = self.bind(&plan.pipeline, datasets)?;
        let sink = plan.pipeline.sinks.len() - 1;
        let (sources, mut findings) = (run.state.sources.clone(), run.state.findings.clone());
        let answers = plan.earlier.as_ref().map(|earlier| {
            let answers = earlier.findings_for(&plan.pipeline, &bound);
            answers.ok_or_else(|| {
                let message = "the newest model was trained by another spec, whose statistics mean something else";
                Fault::new(codes::STATE_VERSION, message).hint("run the spec once without a deadline")
            })
        });
        let mut answered = BTreeSet::new();
        let mut program = compile(
            &plan.pipeline,
            bound,
            datasets,
            &[sink],
            false,
            &mut |ask, state| {
                let known = run.state.findings.contains_key(&state);
                answered.extend(known.then_some(ask));
                Ok(known)
            },
        )?;
        if let Some(answers) = answers.transpose()? {
            let all = (0..program.bound.asks.len()).collect();
            replace_findings(&mut program, &plan.pipeline, &all, &answers, &mut findings)?;
        }
        let state = RunState {
            sources,
            findings,
            ..RunState::default()
        };
        let (store, scratch) = (run.store.clone(), run.scratch.clone());
        // Findings of another night are known here alone.
        let run_spec = match plan.earlier.is_none() && run.run_spec.is_some() {
            true => {
                let (pipeline, sinks) = (&plan.pipeline, &[sink][..]);
                self.run_spec(
                    RemoteRun {
                        pipeline,
                        sinks,
                        learns: false,
                        known: answered,
                        applies: None,
                    },
                    interval,
                    datasets,
                )?
            }
            false => None,
        };
        let mut run = RunExecutor::new(self, &plan.pipeline, store, scratch, program, state);
        run.run_spec = run_spec;
        run.degradation.clone_from(ladder);
        run.makes_artifact = false;
        let staged = run.run_passes()?;
        Ok(UnpublishedForecast::new(run, staged, plan))
    }
}

impl<'a> UnpublishedForecast<'a> {
    fn new(
        run: RunExecutor<'a>,
        staged: Vec<StagedOutput>,
        plan: &'a ForecastPlan,
    ) -> UnpublishedForecast<'a> {
        UnpublishedForecast { run, staged, plan }
    }

    /// The passes that made it.
    pub fn passes(&mut self) -> Vec<PassReport> {
        std::mem::take(&mut self.run.report)
    }

    /// Shows the forecast to readers.
    pub fn publish(mut self) -> Result<ForecastReport> {
        let staged = std::mem::take(&mut self.staged);
        let mut outputs = self.run.publish(staged)?;
        std::mem::take(&mut self.run.background).join_all()?;
        let layout = ForecastLayout::of(self.plan, &self.run.program.bound)?;
        let output = outputs
            .pop()
            .ok_or_else(|| Fault::internal("a forecast without an output"))?;
        let future = self
            .run
            .future
            .pop()
            .ok_or_else(|| Fault::internal("a forecast of no series"))?;
        Ok(ForecastReport {
            sink: self.plan.name.clone(),
            path: output.path,
            data: output.data,
            rows: output.rows,
            series: future.series,
            steps: future.steps,
            ended: future.ended,
            known_until: future.known_until,
            model: self.plan.model.predictor.id().to_owned(),
            artifact: self.plan.artifact.clone(),
            clipped: output.clipped,
            crossed: output.crossed,
            rows_without_history: output.rows_without_history,
            layout,
            is_new: output.is_new,
        })
    }
}

impl RunExecutor<'_> {
    /// Checks the forecasts among outputs that are written.
    pub(crate) fn check_forecast_outputs(&self, staged: &[StagedOutput]) -> Result<()> {
        for output in staged {
            let (sink, out, manifest) = output.parts(self.pipeline);
            let step = self
                .pipeline
                .node(&sink.from)
                .and_then(|node| node.steps.last());
            let Some(step) = step.filter(|step| step.kind == PredictTransform::NAME) else {
                continue;
            };
            let wrong = |error| Fault::internal("a step that predicts").cause(error);
            let step: PredictTransform =
                serde_json::from_value(step.config.clone()).map_err(wrong)?;
            if step.forecast.is_none() {
                continue;
            }
            let bound = &self.program.bound;
            let future = future_of(bound, &sink.from)?;
            let [made_by] = future.made_by.as_slice() else {
                let fault = Fault::new(
                    codes::UNSUPPORTED,
                    "a forecast needs one `future_rows`, and its inputs have several",
                );
                return Err(fault
                    .hint("move `future_rows` behind the union")
                    .at(sink.at.as_ref()));
            };
            let PlanOp::Gather(GatherOp {
                lower: GatherBy::Future(rows),
                ..
            }) = &bound.ops[*made_by].op
            else {
                return Err(Fault::internal("rows of the future that nothing makes"));
            };
            let latest = bound.ops[*made_by]
                .asks
                .first()
                .ok_or_else(|| Fault::internal("rows of no series"))?;
            let series = (rows.count)(self.state.finding(&self.program, *latest)?.as_ref())?.active;
            let contract = ForecastContract {
                format: &sink.format,
                keys: &future.keys,
                time: &future.time,
                predictions: &step.prediction_columns()?,
                bounds: step.bounds(),
                source: &future.source,
                series,
                steps: rows.steps,
            };
            contract
                .check(self.session, out, manifest)
                .map_err(|fault| {
                    let placed = fault.file(&out.shown).at(sink.at.as_ref());
                    placed.note("nothing was published: readers see the forecast before")
                })?;
        }
        Ok(())
    }
}

/// How far ahead the label of a pipeline is predicted, if it says so.
pub(crate) fn declared_horizon(pipeline: &Pipeline) -> Option<&str> {
    pipeline.label.as_ref()?.horizon.as_deref()
}

/// Refuses to publish forecasts of a label that a step behind `future_rows` computes: they would be in its units.
fn check_predicted_units(bound: &BoundPipeline, future: &FutureFlow, label: &str) -> Result<()> {
    let mut computed = future
        .rows
        .iter()
        .filter_map(|stream| computed_by(bound, &stream.ops, label));
    let Some(by) = computed.next() else {
        return Ok(());
    };
    let message = format!(
        "`{by}` changes the label `{label}` behind `future_rows`: the forecast would be in its units, not in those of the \
         rows"
    );
    let hint = format!(
        "train on the label as `future_rows` has it: write what `{by}` makes to another column, or leave it out; in front \
         of `future_rows`, rows and forecast are both in its units"
    );
    Err(Fault::new(codes::BAD_VALUE, message)
        .column(label)
        .hint(hint))
}

/// Refuses to compare forecasts with the values that came where the model's label has other units than these.
pub(crate) fn check_label_units(
    pipeline: &Pipeline,
    bound: &BoundPipeline,
    from: &str,
) -> Result<()> {
    let (Some(label), future) = (&pipeline.label, future_of(bound, from)?) else {
        return Ok(());
    };
    let Some(by) = future
        .rows
        .iter()
        .find_map(|stream| changed_by(bound, &stream.ops, &label.column))
    else {
        return Ok(());
    };
    let message = format!(
        "`{by}` changes the label `{}` behind `future_rows`: the model predicts in other units than those of the values",
        label.column
    );
    let hint = format!(
        "change the label before `future_rows`, or write what `{by}` makes to another column"
    );
    Err(Fault::new(codes::BAD_VALUE, message)
        .column(&label.column)
        .hint(hint))
}

/// The rows of the future of a step.
fn future_of<'b>(bound: &'b BoundPipeline, from: &str) -> Result<&'b FutureFlow> {
    let flow = bound.flows.get(from);
    let flow = flow.ok_or_else(|| {
        Fault::new(
            codes::UNKNOWN_NAME,
            format!("there is no step or source `{from}`"),
        )
    })?;
    flow.future.as_deref().ok_or_else(no_future)
}

/// How far a forecast goes: in nanoseconds, or in steps of a time column of integers.
pub(crate) fn horizon_of(future: &FutureFlow) -> i64 {
    match future.horizon {
        SeriesLength::Ticks(ticks) => ticks,
        SeriesLength::Rows(rows) => rows as i64,
    }
}
