//! Weights of ensembles, learned on folds of a backtest within a run.
//!
//! Each fold trains all members with the rows before its origin, and forecasts with each of them alone. Forecasts of all
//! folds meet the values that came, and the weights have the least squares of errors.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use forebay_contract::{ForecastEnsemble, ForecastFormat, PredictConfig};
use forebay_execute::SourceInput;
use forebay_model::{ContentId, Fault, IdBuilder, Interval, Pipeline, PipelineSink, Result, codes};
use forebay_plan::{BoundPipeline, FutureFlow};
use forebay_storage::ScratchDir;
use serde_json::json;

use super::evaluate::Evaluation;
use super::fold_run::{FoldRuns, forecast_sink};
use super::member_errors::MemberErrors;
use super::origins::ForecastOrigin;
use super::scores::ForecastQuantiles;
use super::{FoldTimes, require_forecasts, season_rows};
use crate::deadline::DeadlineMonitor;
use crate::predict::{
    EnsembleMember, EnsembleRecord, EnsembleReport, LearnedWeights, check_label_units, future_of,
    step_of_future, weights_pass_name,
};
use crate::session::{Session, datasets};
use crate::training::UnpublishedModel;

/// Changes whenever the same models and rows would give other weights.
const VERSION: u64 = 1;

/// An ensemble whose weights are learned.
struct WeightLearning<'a> {
    /// The session of the attempt, which is fenced.
    session: &'a Session,
    runs: FoldRuns<'a>,
    pipeline: &'a Pipeline,
    sink: &'a PipelineSink,
    config: &'a PredictConfig,
    ensemble: &'a ForecastEnsemble,
    interval: Option<&'a Interval>,
}

/// Folds on which weights are learned.
struct WeightFolds<'a> {
    label: &'a str,
    future: &'a FutureFlow,
    origins: Vec<ForecastOrigin>,
}

impl Session {
    /// Learned weights of the ensembles of a pipeline whose models are trained. Weights of an earlier run with the same
    /// models and rows are taken again.
    pub(crate) fn learned_weights(
        &self,
        pipeline: &Pipeline,
        models: &[UnpublishedModel],
        interval: Option<&Interval>,
        monitor: &DeadlineMonitor,
    ) -> Result<LearnedWeights> {
        let mut weights = LearnedWeights::new();
        for sink in &pipeline.predictions {
            let config = self.predict_config(sink)?;
            let Some(ensemble) = config.learned_ensemble() else {
                continue;
            };
            let learning = WeightLearning {
                session: self,
                runs: FoldRuns::new(self, pipeline, "ensemble"),
                pipeline,
                sink,
                config: &config,
                ensemble,
                interval,
            };
            monitor.begin(&weights_pass_name(sink));
            let learned = learning.run(models);
            let (report, is_reused) = learned.map_err(|fault| fault.at(sink.at.as_ref()))?;
            monitor.end(is_reused);
            weights.insert(sink.name.clone(), report);
        }
        Ok(weights)
    }
}

impl WeightLearning<'_> {
    /// The weights, and true if an earlier run has learned them.
    fn run(&self, models: &[UnpublishedModel]) -> Result<(EnsembleReport, bool)> {
        let session = &self.runs.session;
        let label = require_forecasts(self.pipeline, "an ensemble whose weights are learned")?;
        let inputs = session.discover_inputs(&session.io, self.pipeline, None, self.interval)?;
        let bound = session.bind_steps(self.pipeline, &datasets(&inputs))?;
        check_label_units(self.pipeline, &bound, &self.sink.from)?;
        let future = future_of(&bound, &self.sink.from)?;
        let folds = WeightFolds {
            label: &label,
            future,
            origins: self.origins(&inputs, &bound, future)?,
        };
        let id = self.id(models, &inputs, &folds)?;
        let state = session.state()?;
        let name = &self.pipeline.name;
        let listener = self.session.watch.as_ref();
        let mut record = EnsembleRecord::load_or_warn(&session.io, &state, name, listener)?;
        if let Some(learned) = record.learned_as(&self.sink.name, id) {
            return Ok((learned.clone(), true));
        }
        let learned = self.learn(&folds)?;
        record.insert(&self.sink.name, id, learned.clone());
        record.save(&session.io, &state, name, &|| self.session.check_fence())?;
        Ok((learned, false))
    }

    /// The times from which folds forecast.
    fn origins(
        &self,
        inputs: &BTreeMap<String, SourceInput>,
        bound: &BoundPipeline,
        future: &FutureFlow,
    ) -> Result<Vec<ForecastOrigin>> {
        let times = FoldTimes {
            folds: self.ensemble.fold_count(),
            every: self.ensemble.every.as_deref(),
            until: None,
            known_before: self.runs.session.known_before(self.interval),
        };
        self.runs
            .session
            .fold_origins(inputs, bound, future, &times)
    }

    /// Id of everything that determines the weights.
    fn id(
        &self,
        models: &[UnpublishedModel],
        inputs: &BTreeMap<String, SourceInput>,
        folds: &WeightFolds<'_>,
    ) -> Result<ContentId> {
        let mut id = IdBuilder::new("ensemble weights");
        id.json(&json!([
            VERSION,
            folds.label,
            self.config.models(),
            self.ensemble,
            self.config.season,
            self.config.missing,
        ]));
        for origin in &folds.origins {
            id.text(&origin.known_before);
        }
        for name in self.config.models() {
            let model = models.iter().find(|model| model.name() == name);
            let model = model.ok_or_else(|| Fault::internal("an ensemble without a model"))?;
            id.id(model.id());
        }
        for (name, input) in inputs {
            id.text(name).id(input.dataset.fingerprint());
        }
        Ok(id.finish())
    }

    /// Trains and forecasts with all members in each fold, and learns the weights.
    fn learn(&self, folds: &WeightFolds<'_>) -> Result<EnsembleReport> {
        let session = &self.runs.session;
        let scratch = ScratchDir::new(Some(&session.state()?), session.watch.clone())?;
        let members = self.members();
        for (fold, origin) in folds.origins.iter().enumerate() {
            self.forecast_fold(origin, fold, &members, scratch.path())
                .map_err(|fault| {
                    fault.note(format!(
                        "in the fold that knows rows before {}, on which the weights of `{}` are \
                         learned",
                        origin.known_before, self.sink.name
                    ))
                })?;
        }
        let first = folds.origins.first();
        let first = first.ok_or_else(|| Fault::internal("weights that are learned on no fold"))?;
        let future = folds.future;
        let time = future.source.field_with_name(&future.time)?;
        let (node, position) = step_of_future(self.pipeline, &self.sink.from)?;
        let every = session.future_rows_facts(&node.steps[position])?.every;
        let quantiles = ForecastQuantiles::default();
        let evaluation = Evaluation {
            session,
            pipeline: self.pipeline,
            label: folds.label,
            future,
            prediction: &self.config.name,
            quantiles: &quantiles,
            sink: self.sink,
            by: &[],
            season_rows: season_rows(self.config.season.as_deref(), every.as_deref(), time),
            forecasts: &forecasts_directory(scratch.path()),
            from: &first.known_before,
        };
        let errors = evaluation.member_errors(&scratch.path().join("errors"), members.len())?;
        self.report(&members, &errors, &folds.origins)
    }

    /// Each member as a forecast of its own. Bounds are of the combination.
    fn members(&self) -> Vec<PredictConfig> {
        let first = PredictConfig {
            format: ForecastFormat::Parquet,
            columns: Vec::new(),
            min: None,
            max: None,
            season: None,
            ensemble: None,
            reconcile: None,
            expect: None,
            ..self.config.clone()
        };
        let mut members = vec![first];
        for name in &self.ensemble.with {
            members.push(PredictConfig {
                model: name.clone(),
                fallback: None,
                ..members[0].clone()
            });
        }
        members
    }

    /// Trains with the rows before an origin, and forecasts with each member.
    fn forecast_fold(
        &self,
        origin: &ForecastOrigin,
        fold: usize,
        members: &[PredictConfig],
        scratch: &Path,
    ) -> Result<()> {
        let mut forecasts = Vec::with_capacity(members.len());
        for (number, member) in members.iter().enumerate() {
            let directory =
                forecasts_directory(scratch).join(format!("fold={fold}/forecaster={number}"));
            let name = format!("{}_{number}", self.sink.name);
            forecasts.push(forecast_sink(self.sink, name, member.clone(), &directory)?);
        }
        self.runs.forecast(origin, fold, forecasts, scratch)
    }

    /// The weights of least squares, and the errors of the members.
    fn report(
        &self,
        members: &[PredictConfig],
        errors: &MemberErrors,
        origins: &[ForecastOrigin],
    ) -> Result<EnsembleReport> {
        let products = &errors.products;
        let weights = products.weights();
        let Some(error) = products.error_of(&weights) else {
            return Err(self.no_values_fault(errors));
        };
        let mut reports = Vec::with_capacity(members.len());
        for (number, (member, weight)) in members.iter().zip(&weights).enumerate() {
            reports.push(EnsembleMember {
                model: member.models_text(),
                weight: *weight,
                error: products.error_of_member(number).unwrap_or_default(),
            });
        }
        let folds = origins.iter().map(|origin| origin.known_before.clone());
        Ok(EnsembleReport {
            members: reports,
            error,
            folds: folds.collect(),
            rows: products.forecasts(),
            rows_incomplete: errors.incomplete,
            rows_unscaled: errors.unscaled,
        })
    }

    fn no_values_fault(&self, errors: &MemberErrors) -> Fault {
        let message = format!(
            "the weights of `{}` cannot be learned: of the forecasts of {} folds, {} have no value \
             or lack a forecast of a member, and {} are of series without differences before the \
             first fold",
            self.sink.name,
            self.ensemble.fold_count(),
            errors.incomplete,
            errors.unscaled
        );
        Fault::new(codes::EMPTY, message).hint(
            "take fewer folds or a smaller `every`, so that series begin before them, or choose \
             `combine: mean`",
        )
    }
}

/// The directory of the forecasts of all folds and members.
fn forecasts_directory(scratch: &Path) -> PathBuf {
    scratch.join("members")
}
