//! Forecasts: predictions of a run's models for the rows of the future, published with the run.
//!
//! A forecast is one more step and one more sink after those of the pipeline, in a program of its
//! own that runs when the model is trained. All guarantees of a sink hold for it, and its contract
//! is checked on its files before any output of the run is published.

mod combination;
mod contract;
mod covered_columns;
mod earlier;
mod ensemble_record;
mod ensemble_report;
mod examples;
mod forecast_files;
mod forecast_hierarchy;
mod forecast_training;
mod hidden_features;
mod known_columns;
mod layout;
mod learned_on_folds;
mod missing_features;
mod missing_values;
mod model;
mod naive;
mod reconcile;
mod reconcile_report;
mod reconciled;
mod reconciled_model;
mod series_rows;
mod step;
mod values;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use arrow::datatypes::Field;
use forebay_commit::{Artifact, DegradationReport};
use forebay_contract::{FOLD_WEIGHTS, LabelKind, ModelPredictor, PredictConfig, StepStrategy};
use forebay_execute::RunState;
use forebay_model::{
    CalendarSpan, ContentId, Dataset, Fault, Interval, NodeInput, Pipeline, PipelineNode,
    PipelineSink, Result, codes, tick_nanoseconds,
};
use forebay_plan::{
    BoundPipeline, FUTURE_PART, FutureFlow, GatherBy, GatherOp, OpId, PlanOp, changed_by,
    check_horizon, compile, computed_by, unknown_column,
};
use forebay_storage::StorageLocation;
use forebay_window::SeriesLength;
use serde_json::{Value, json};

use self::combination::forecast_predictor;
pub(crate) use self::ensemble_record::EnsembleRecord;
pub use self::ensemble_report::{EnsembleMember, EnsembleReport};
pub(crate) use self::examples::descending;
pub use self::examples::{ForecastExamples, ForecastPoint, SeriesExample, SeriesKey, SeriesPoint};
pub(crate) use self::forecast_files::is_text_format;
pub(crate) use self::forecast_hierarchy::FoldRow;
pub(crate) use self::forecast_training::{accepts_missing, declared_horizon};
use self::forecast_training::{training_named, training_of};
pub(crate) use self::known_columns::{known_by_step, last_written};
pub use self::layout::ForecastLayout;
pub(crate) use self::learned_on_folds::{learns_errors, learns_weights};
pub(crate) use self::missing_values::missing_values;
pub use self::model::LoadedModel;
pub(crate) use self::model::LoadedModels;
pub(crate) use self::naive::{naive_passes, step_of_future};
pub(crate) use self::reconcile::{FoldForecasts, check_forecasts_memory};
pub use self::reconcile_report::ReconcileReport;
pub(crate) use self::series_rows::SeriesRows;
pub use self::step::{ForecastColumns, PredictTransform};
pub(crate) use self::step::{STEP, is_constant_of_series, register_predict_step};
pub use self::values::bounded_predictions;

use self::contract::ForecastContract;
use self::learned_on_folds::check_folds;
use self::step::{classes_in_forecast_fault, no_future};
use crate::degradation::{name_replaced, replace_findings};
use crate::executor::{RunExecutor, StagedOutput};
use crate::previous_artifact::PreviousArtifact;
use crate::remote_run::{RemoteRun, ReusedArtifact, all_analyzers};
use crate::report::{ForecastReport, PassReport};
use crate::session::Session;
use crate::training::UnpublishedModel;
use crate::training_checks::label_column;

/// Name of a forecast as a pass.
pub(crate) fn forecast_pass_name(sink: &PipelineSink) -> String {
    format!("predict {}", sink.name)
}

/// Name of the learning of an ensemble's weights as a pass.
pub(crate) fn weights_pass_name(sink: &PipelineSink) -> String {
    format!("weigh {}", sink.name)
}

/// Name of the learning of a hierarchy's errors as a pass.
pub(crate) fn errors_pass_name(sink: &PipelineSink) -> String {
    format!("errors of {}", sink.name)
}

/// Learned weights by `predict` sink.
pub(crate) type LearnedWeights = BTreeMap<String, EnsembleReport>;

/// A model, and the artifact that its features are made with.
pub(crate) struct ForecastModel {
    model: Arc<LoadedModel>,
    /// The id of the artifact whose findings are used. The naive forecast uses none.
    artifact: Option<String>,
    /// See [`PredictTransform::doubles`].
    doubles: bool,
}

/// A model of a forecast that several may make together.
struct ForecastMember {
    /// The name of its training.
    name: String,
    predictor: Arc<dyn ModelPredictor>,
    /// The directory of its files.
    files: StorageLocation,
    /// The id of the artifact that its features are made with.
    artifact: String,
    /// That artifact, if it is one of an earlier run.
    earlier: Option<Arc<PreviousArtifact>>,
}

/// A pipeline with the step and the sink of a forecast, and its model.
pub(crate) struct ForecastPlan {
    /// The sink's name.
    name: String,
    pipeline: Pipeline,
    model: Arc<LoadedModel>,
    artifact: Option<String>,
    /// Artifact that the features are made with, if the model is one of an earlier run.
    earlier: Option<Arc<PreviousArtifact>>,
    /// Learned weights of its ensemble.
    ensemble: Option<EnsembleReport>,
    /// The hierarchy that its forecasts add up in.
    reconciled: Option<ReconcileReport>,
}

/// Forecasts that are written and checked, and that readers do not see yet.
pub(crate) struct UnpublishedForecast<'a> {
    run: RunExecutor<'a>,
    staged: Vec<StagedOutput>,
    plan: &'a ForecastPlan,
}

/// Inputs that a forecast takes from its run.
#[derive(Clone, Copy)]
pub(crate) struct ForecastInputs<'a, 'r> {
    pub datasets: &'a BTreeMap<String, Dataset>,
    pub run: &'a RunExecutor<'r>,
    pub interval: Option<&'a Interval>,
    /// Degradation of the run, if any.
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
        let at = sink.at.as_ref();
        let config: PredictConfig =
            serde_json::from_value(sink.config.clone()).map_err(|error| {
                let fault = Fault::new(codes::BAD_VALUE, "`predict` cannot be read");
                fault.cause(error).at(at)
            })?;
        config
            .check()
            .map_err(|error| error.into_fault("predict").at(at))?;
        Ok(config)
    }

    /// The quantiles that a forecast has in addition to its point forecast.
    pub(crate) fn forecast_quantiles(
        &self,
        pipeline: &Pipeline,
        config: &PredictConfig,
    ) -> Result<Vec<f64>> {
        match training_of(pipeline, config) {
            Some(training) => Ok(self.trainer(training)?.quantiles()),
            None => Ok(Vec::new()),
        }
    }

    /// Refuses forecasts that cannot be computed, before the run reads rows.
    pub(crate) fn check_forecasts(&self, pipeline: &Pipeline, bound: &BoundPipeline) -> Result<()> {
        let mut faults = Vec::new();
        for sink in &pipeline.predictions {
            let checked = self.check_forecast(pipeline, bound, sink);
            faults.extend(checked.err().map(|fault| fault.at(sink.at.as_ref())));
        }
        Fault::combine(faults).map_or(Ok(()), Err)?;
        self.check_naive(pipeline, bound)
    }

    fn check_forecast(
        &self,
        pipeline: &Pipeline,
        bound: &BoundPipeline,
        sink: &PipelineSink,
    ) -> Result<()> {
        let config = self.predict_config(sink)?;
        let Some(training) = training_of(pipeline, &config) else {
            return Err(no_training_fault(pipeline, &config.model));
        };
        let future = future_of(bound, &sink.from)?;
        only_future_rows(future)?;
        check_horizon(future, declared_horizon(pipeline))?;
        let trainer = self.trainer(training)?;
        if trainer.label_kind() == LabelKind::Classes {
            return Err(classes_in_forecast_fault()
                .hint("choose a `loss` of numbers, or predict known rows: `forebay predict`"));
        }
        check_predicted_units(bound, future, &label_column(pipeline, &trainer.feed())?)?;
        self.check_models(pipeline, &config, training)?;
        if config.learned_ensemble().is_some() {
            check_folds(&FOLD_WEIGHTS, pipeline, bound, future)?;
        }
        self.check_reconciled(pipeline, bound, sink, &config)?;
        for column in &config.columns {
            if future.source.field_with_name(column).is_err() {
                return Err(unknown_column(column, &future.source));
            }
        }
        Ok(())
    }

    /// Refuses models of one forecast whose predictions do not go together.
    fn check_models(
        &self,
        pipeline: &Pipeline,
        config: &PredictConfig,
        training: &PipelineSink,
    ) -> Result<()> {
        let names = config.models();
        if names.len() < 2 {
            return Ok(());
        }
        let trainer = self.trainer(training)?;
        if config.fallback.is_some() && trainer.group_columns().is_empty() {
            return Err(needless_fallback_fault(&training.name));
        }
        let label = label_column(pipeline, &trainer.feed())?;
        let quantiles = trainer.quantiles();
        let mut faults = Vec::new();
        for name in names {
            let Some(other) = training_named(pipeline, name) else {
                faults.push(no_training_fault(pipeline, name));
                continue;
            };
            let trainer = self.trainer(other)?;
            if other.from != training.from {
                faults.push(other_step_fault(training, other));
            }
            let other_label = label_column(pipeline, &trainer.feed())?;
            if other_label != label {
                let message = format!(
                    "`{}` predicts `{label}`, and `{name}` predicts `{other_label}`",
                    training.name
                );
                let hint = "models that predict together have one label";
                faults.push(Fault::new(codes::BAD_VALUE, message).hint(hint));
            }
            let other_quantiles = trainer.quantiles();
            if other_quantiles != quantiles {
                let fault = other_quantiles_fault(training, &quantiles, name, &other_quantiles);
                faults.push(fault);
            }
            if trainer.refit()?.is_some() {
                let message = format!(
                    "`{name}` has a `refit`, so that its features may be those of an earlier run \
                     than the features of the other models of this forecast"
                );
                let hint = "leave `refit` out of its training: all models learn in each run";
                faults.push(Fault::new(codes::UNSUPPORTED, message).hint(hint));
            }
            let is_recursive = trainer.step_strategy() == Some(StepStrategy::Recursive);
            if config.ensemble.is_some() && is_recursive {
                let message = format!(
                    "`{name}` predicts one step from another, and would take predictions of the \
                     ensemble for its own"
                );
                let hint = "choose `strategy: direct` or `per_step` for it";
                faults.push(Fault::new(codes::UNSUPPORTED, message).hint(hint));
            }
        }
        Fault::combine(faults).map_or(Ok(()), Err)
    }

    /// The forecasts of a run, each with the model of its training.
    pub(crate) fn plan_forecasts(
        &self,
        pipeline: &Pipeline,
        artifact: &Artifact,
        trained: &[UnpublishedModel],
        weights: &LearnedWeights,
    ) -> Result<Vec<ForecastPlan>> {
        let mut plans = Vec::with_capacity(pipeline.predictions.len());
        for sink in &pipeline.predictions {
            let learned = weights.get(&sink.name);
            let plan = self.plan_with_trained(pipeline, artifact, trained, sink, learned);
            plans.push(plan.map_err(|fault| fault.at(sink.at.as_ref()))?);
        }
        Ok(plans)
    }

    fn plan_with_trained(
        &self,
        pipeline: &Pipeline,
        artifact: &Artifact,
        trained: &[UnpublishedModel],
        sink: &PipelineSink,
        learned: Option<&EnsembleReport>,
    ) -> Result<ForecastPlan> {
        let config = self.predict_config(sink)?;
        let mut members = Vec::new();
        for name in config.models() {
            let model = trained.iter().find(|model| model.name() == name);
            let model = model.ok_or_else(|| Fault::internal("a forecast without a model"))?;
            let earlier = model.earlier().cloned();
            let artifact_id = match &earlier {
                Some(earlier) => earlier.artifact.id,
                None => artifact.id,
            };
            members.push(self.forecast_member(name, model.directory()?, artifact_id, earlier)?);
        }
        self.plan_with_members(pipeline, sink, &config, members, learned)
    }

    /// A model of a forecast, which is read from its directory.
    fn forecast_member(
        &self,
        name: &str,
        files: StorageLocation,
        artifact: ContentId,
        earlier: Option<Arc<PreviousArtifact>>,
    ) -> Result<ForecastMember> {
        let predictor = self
            .connectors
            .predictor(&|name: &str| self.io.get(&files.join(name)))?;
        Ok(ForecastMember {
            name: name.to_owned(),
            predictor,
            files,
            artifact: artifact.to_string(),
            earlier,
        })
    }

    /// The forecast of one model, or of several that predict together.
    fn plan_with_members(
        &self,
        pipeline: &Pipeline,
        sink: &PipelineSink,
        config: &PredictConfig,
        members: Vec<ForecastMember>,
        learned: Option<&EnsembleReport>,
    ) -> Result<ForecastPlan> {
        let Some(first) = members.first() else {
            return Err(Fault::internal("a forecast without a model"));
        };
        let artifact = first.artifact.clone();
        let earlier = first.earlier.clone();
        if let Some(other) = members.iter().find(|member| member.artifact != artifact) {
            let message = format!(
                "`{}` and `{}` were trained by different runs, and their features mean different \
                 things",
                first.name, other.name
            );
            return Err(Fault::new(codes::STATE_VERSION, message)
                .hint("run the spec once without a deadline: all models learn in one run"));
        }
        // Only a model that is alone has one directory, from which workers load it.
        let files = (members.len() == 1).then(|| first.files.clone());
        let mut predictors = Vec::with_capacity(members.len());
        for member in members {
            predictors.push(member.predictor);
        }
        let predictor = match (config.learned_ensemble(), learned) {
            (None, _) => forecast_predictor(config, predictors)?,
            (Some(_), Some(learned)) => {
                forecast_predictor(&config.clone().with_weights(learned.weights()), predictors)?
            }
            (Some(_), None) => return Err(Fault::internal("an ensemble without its weights")),
        };
        let model = ForecastModel {
            model: self.models.load(predictor, files.as_ref()),
            artifact: Some(artifact),
            doubles: false,
        };
        let plan = self.plan_forecast(pipeline, sink, config, model)?;
        Ok(ForecastPlan {
            earlier,
            ensemble: learned.cloned(),
            ..plan
        })
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
            doubles: model.doubles,
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
        let sink_config = json!({ "path": config.path });
        extended.sinks.push(PipelineSink {
            name: sink.name.clone(),
            from: node,
            config: self.connectors.canonical(&format, sink_config)?,
            format,
            split: Some(FUTURE_PART.to_owned()),
            optional: false,
            at: sink.at.clone(),
        });
        let ForecastModel {
            model, artifact, ..
        } = model;
        Ok(ForecastPlan {
            name: sink.name.clone(),
            pipeline: extended,
            model,
            artifact,
            earlier: None,
            ensemble: None,
            reconciled: None,
        })
    }

    /// Writes a forecast with the findings of a run, and checks it.
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
        let mut bound = self.bind(&plan.pipeline, datasets)?;
        let sink = plan.pipeline.sinks.len() - 1;
        let sources = run.state.sources.clone();
        let mut findings = run.state.findings.clone();
        let answers = plan.earlier.as_ref().map(|earlier| {
            let answers = earlier.findings_for(&plan.pipeline, &bound);
            answers.ok_or_else(|| {
                let message = "the newest model was trained by another spec, \
                               whose statistics mean something else";
                Fault::new(codes::STATE_VERSION, message)
                    .hint("run the spec once without a deadline")
            })
        });
        let answers = answers.transpose()?;
        let replaced = all_analyzers(&bound);
        if let Some(answers) = &answers {
            name_replaced(&mut bound, &replaced, answers)?;
        }
        let mut answered = BTreeSet::new();
        let mut program = compile(
            &plan.pipeline,
            bound,
            datasets,
            &[sink],
            false,
            &mut |ask, state| {
                let is_learned = run.state.findings.contains_key(&state);
                answered.extend(is_learned.then_some(ask));
                Ok(is_learned)
            },
        )?;
        if let Some(answers) = &answers {
            replace_findings(&mut program, &replaced, answers, &mut findings)?;
        }
        let state = RunState {
            sources,
            findings,
            ..RunState::default()
        };
        let store = run.store.clone();
        let scratch = run.scratch.clone();
        let reuses = plan.earlier.as_ref().map(|earlier| ReusedArtifact {
            artifact: &earlier.artifact,
            analyzers: replaced,
        });
        // Workers find no statistics under their ids that a degraded run did not learn.
        let workers_find_all = match &run.run_spec {
            Some(run_spec) => reuses.is_some() || run_spec.reuses.is_none(),
            None => false,
        };
        let run_spec = if workers_find_all {
            let remote_run = RemoteRun {
                pipeline: &plan.pipeline,
                sinks: &[sink],
                learns: false,
                known: answered,
                applies: None,
                reuses,
            };
            self.run_spec(remote_run, interval, datasets)?
        } else {
            None
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
        // Filters may have taken out times that the calendar lacks, of all series.
        let mut steps = future.steps;
        if output.rows < future.series * future.steps {
            steps = output.rows.checked_div(future.series).unwrap_or(steps);
        }
        Ok(ForecastReport {
            sink: self.plan.name.clone(),
            path: output.path,
            data: output.data,
            rows: output.rows,
            series: future.series,
            steps,
            ended: future.ended,
            known_until: future.known_until,
            model: self.plan.model.predictor.id().to_owned(),
            artifact: self.plan.artifact.clone(),
            clipped: output.clipped,
            crossed: output.crossed,
            sum: output.sum,
            rows_without_history: output.rows_without_history,
            layout,
            ensemble: self.plan.ensemble.clone(),
            reconciled: self.plan.reconciled.clone(),
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
            self.check_missing_features(sink, manifest)
                .map_err(|fault| {
                    let placed = fault.at(sink.at.as_ref());
                    placed.note("nothing was published: readers see the forecast before")
                })?;
            let bound = &self.program.bound;
            let future = future_of(bound, &sink.from)?;
            let made_by = only_future_rows(future).map_err(|fault| fault.at(sink.at.as_ref()))?;
            let PlanOp::Gather(GatherOp {
                lower: GatherBy::Future(rows),
                ..
            }) = &bound.ops[made_by].op
            else {
                return Err(Fault::internal("rows of the future that nothing makes"));
            };
            let latest = bound.ops[made_by]
                .asks
                .first()
                .ok_or_else(|| Fault::internal("rows of no series"))?;
            let series = (rows.count)(self.state.finding(&self.program, *latest)?.as_ref())?.active;
            let model = self.session.models.find(&step.model)?;
            self.check_hidden_features(sink, manifest, future, model.predictor.as_ref())
                .map_err(|fault| {
                    let placed = fault.at(sink.at.as_ref());
                    placed.note("nothing was published: readers see the forecast before")
                })?;
            let contract = ForecastContract {
                format: &sink.format,
                keys: &future.keys,
                time: &future.time,
                predictions: &step.prediction_columns(&model),
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
            self.report_covered_columns(sink, manifest, future, model.predictor.as_ref())?;
        }
        Ok(())
    }
}

fn no_training_fault(pipeline: &Pipeline, model: &str) -> Fault {
    let trainings = pipeline.trainings.iter();
    let names: Vec<&str> = trainings.map(|training| training.name.as_str()).collect();
    let hint = if names.is_empty() {
        "add a sink that trains it: `train: { model: mlp, ... }`".to_owned()
    } else {
        format!("the sinks that train are {}", names.join(", "))
    };
    let message = format!("no sink trains a model `{model}`");
    Fault::new(codes::UNKNOWN_NAME, message).hint(hint)
}

fn needless_fallback_fault(model: &str) -> Fault {
    let message = format!(
        "`fallback` predicts for groups without a model of their own, and `{model}` has one model \
         for all rows"
    );
    Fault::new(codes::BAD_VALUE, message).hint(
        "name the columns of groups under `by` of its training, or combine both models: \
         `ensemble: { with: [...] }`",
    )
}

fn other_step_fault(training: &PipelineSink, other: &PipelineSink) -> Fault {
    let message = format!(
        "`{}` learns from `{}`, and `{}` from `{}`",
        training.name, training.from, other.name, other.from
    );
    Fault::new(codes::UNSUPPORTED, message)
        .hint("models that predict together learn from one step: give both the same `from`")
}

fn other_quantiles_fault(
    training: &PipelineSink,
    quantiles: &[f64],
    other: &str,
    other_quantiles: &[f64],
) -> Fault {
    let message = format!(
        "`{other}` predicts other quantiles than `{}`: {} in place of {}",
        training.name,
        quantiles_text(other_quantiles),
        quantiles_text(quantiles)
    );
    Fault::new(codes::UNSUPPORTED, message).hint(
        "give both the same: `intervals: { levels: [80] }` has those of `quantiles: [0.1, 0.9]`",
    )
}

/// `[0.1, 0.9]`, or `none`.
fn quantiles_text(quantiles: &[f64]) -> String {
    if quantiles.is_empty() {
        "none".to_owned()
    } else {
        format!("{quantiles:?}")
    }
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
        "`{by}` changes the label `{label}` behind `future_rows`: the forecast would be in its \
         units, not in those of the \
         rows"
    );
    let hint = format!(
        "train on the label as `future_rows` has it: write what `{by}` makes to another column, \
         or leave it out; in front \
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
    let future = future_of(bound, from)?;
    let Some(label) = &pipeline.label else {
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
        "`{by}` changes the label `{}` behind `future_rows`: the model predicts in other units \
         than those of the values",
        label.column
    );
    let hint = format!(
        "change the label before `future_rows`, or write what `{by}` makes to another column"
    );
    Err(Fault::new(codes::BAD_VALUE, message)
        .column(&label.column)
        .hint(hint))
}

/// The only operation that makes the rows of a forecast.
fn only_future_rows(future: &FutureFlow) -> Result<OpId> {
    let [made_by] = future.made_by.as_slice() else {
        let fault = Fault::new(
            codes::UNSUPPORTED,
            "a forecast needs one `future_rows`, and its inputs have several",
        );
        return Err(fault.hint("move `future_rows` behind the union"));
    };
    Ok(*made_by)
}

/// The rows of the future of a step.
pub(crate) fn future_of<'b>(bound: &'b BoundPipeline, from: &str) -> Result<&'b FutureFlow> {
    let flow = bound.flows.get(from);
    let flow = flow.ok_or_else(|| {
        Fault::new(
            codes::UNKNOWN_NAME,
            format!("there is no step or source `{from}`"),
        )
    })?;
    flow.future.as_deref().ok_or_else(no_future)
}

/// Length of a forecast, in its time column.
pub(crate) fn horizon_span(future: &FutureFlow, time: &Field) -> CalendarSpan {
    let tick = tick_nanoseconds(time.data_type()).unwrap_or(1) as i64;
    let span = future.horizon.span().unwrap_or_default();
    CalendarSpan {
        ticks: span.ticks / tick.max(1),
        ..span
    }
}

/// Horizon of a forecast: in nanoseconds, or in steps of a time column of integers.
pub(crate) fn horizon_of(future: &FutureFlow) -> i64 {
    match future.horizon {
        SeriesLength::Ticks(ticks) => ticks,
        SeriesLength::Calendar(span) => span.most_ticks(1),
        SeriesLength::Rows(rows) => rows as i64,
    }
}
