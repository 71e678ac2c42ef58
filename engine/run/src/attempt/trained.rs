//! Learning and forecasting: the artifact of an attempt, its models and its forecasts.

use forebay_commit::Artifact;
use forebay_model::Result;

use crate::attempt::RunAttempt;
use crate::attempt::bound::BoundRun;
use crate::attempt::executed::ExecutedRun;
use crate::deadline::ARTIFACT;
use crate::executor::UncommittedArtifact;
use crate::predict::{
    FoldForecasts, ForecastInputs, ForecastPlan, UnpublishedForecast, forecast_pass_name,
};
use crate::report::{ContinuedReport, OutputReport, PassReport};
use crate::run_mode::RunMode;
use crate::training::UnpublishedModel;

/// Fourth stage: the artifact is assembled, and the models are trained.
pub(super) struct TrainedRun<'b> {
    pub executed: ExecutedRun<'b>,
    /// The artifact of this attempt; `None` if it takes all findings from another.
    pub fitted: Option<UncommittedArtifact>,
    /// Outputs that had to be published before the trainings.
    pub outputs: Vec<OutputReport>,
    pub continued: Vec<ContinuedReport>,
    pub trained: Vec<UnpublishedModel>,
    pub passes: Vec<PassReport>,
}

impl<'b> TrainedRun<'b> {
    /// The artifact that models are trained with; `None` if this attempt trains none.
    fn newest(&self) -> Option<&Artifact> {
        let fitted = self.fitted.as_ref()?;
        self.executed.bound.trains.then_some(&fitted.artifact)
    }
}

impl RunAttempt<'_> {
    /// Assembles the artifact and trains. A run that fails publishes nothing, so trainings come before publishing;
    /// those of an interval read the intervals before it, too, so its outputs are published before them.
    pub(super) fn train<'b>(&self, mut executed: ExecutedRun<'b>) -> Result<TrainedRun<'b>> {
        let bound = executed.bound;
        let executor = &mut executed.executor;
        let fits = self.artifact().is_none() && (self.learns() || executed.last.is_none());
        if fits {
            self.monitor.begin(ARTIFACT);
            // Begun here and finished after publishing: the artifact is assembled while the
            // manifest is published (decisions/night-end.md).
            executor.begin_artifact()?;
        }
        let mut outputs = Vec::new();
        if !bound.trains || self.interval.is_some() {
            outputs = executor.publish(std::mem::take(&mut executed.staged))?;
        }
        let mut fitted = None;
        let mut continued = Vec::new();
        if fits {
            fitted = Some(executor.finish_artifact(&bound.datasets)?);
            if let Some(carried) = &bound.session.attempt.carried {
                continued = carried.report(&executor.program, &executor.state)?;
            }
        }
        let mut passes = bound.measured.clone();
        passes.append(&mut executor.report);
        if fits {
            self.monitor.end(passes.iter().all(|pass| pass.reused));
        }
        let mut run = TrainedRun {
            executed,
            fitted,
            outputs,
            continued,
            trained: Vec::new(),
            passes,
        };
        self.train_models(&mut run)?;
        Ok(run)
    }

    /// Trains the models whose earlier ones do not stay in force.
    fn train_models(&self, run: &mut TrainedRun<'_>) -> Result<()> {
        let ExecutedRun {
            bound, executor, ..
        } = &run.executed;
        let Some(fitted) = run.fitted.as_ref().filter(|_| bound.trains) else {
            return Ok(());
        };
        run.trained = bound.session.train(
            executor,
            (&fitted.artifact, &bound.cadences),
            self.interval,
            &mut run.passes,
            self.monitor,
        )?;
        Ok(())
    }

    /// The forecasts to compute: with the models of this run, else with those of the last run that trained.
    pub(super) fn plan_forecasts(&self, run: &TrainedRun<'_>) -> Result<Vec<ForecastPlan>> {
        let BoundRun {
            session, pipeline, ..
        } = run.executed.bound;
        match (run.newest(), self.mode) {
            (Some(artifact), _) => {
                // Boundaries of the split that are counted from the newest time move with the folds.
                let weights = session.learned_weights(
                    self.whole,
                    &run.trained,
                    self.interval,
                    self.monitor,
                )?;
                let plans = session.plan_forecasts(pipeline, artifact, &run.trained, &weights)?;
                let folds =
                    session.fold_forecasts(self.whole, &weights, self.interval, self.monitor)?;
                session.reconciled_plans(pipeline, plans, self.forecast_inputs(run), &folds)
            }
            (None, RunMode::Run) => {
                let store = &run.executed.executor.store;
                let plans = session.plan_earlier_forecasts(pipeline, store)?;
                // No model is trained on folds, so that errors of all series count alike.
                let folds = FoldForecasts::new();
                session.reconciled_plans(pipeline, plans, self.forecast_inputs(run), &folds)
            }
            (None, RunMode::Fit | RunMode::Apply(_)) => Ok(Vec::new()),
        }
    }

    /// Inputs of forecasts, once all passes of a run are done.
    fn forecast_inputs<'i, 'b>(&'i self, run: &'i TrainedRun<'b>) -> ForecastInputs<'i, 'b> {
        let executor = &run.executed.executor;
        ForecastInputs {
            datasets: &run.executed.bound.datasets,
            run: executor,
            interval: self.interval,
            ladder: &executor.degradation,
        }
    }

    /// Fifth stage: carries out the plans of forecasts, which readers do not see yet.
    pub(super) fn forecast<'f, 'b: 'f>(
        &self,
        run: &mut TrainedRun<'b>,
        plans: &'f [ForecastPlan],
    ) -> Result<Vec<UnpublishedForecast<'f>>> {
        let bound = run.executed.bound;
        let mut forecasts = Vec::new();
        for (plan, sink) in plans.iter().zip(&bound.pipeline.predictions) {
            self.monitor.begin(&forecast_pass_name(sink));
            let inputs = self.forecast_inputs(run);
            let forecast = bound.session.run_forecast(plan, inputs);
            let mut forecast = forecast.map_err(|fault| fault.at(sink.at.as_ref()))?;
            let forecast_passes = forecast.passes();
            self.monitor
                .end(forecast_passes.iter().all(|pass| pass.reused));
            run.passes.extend(forecast_passes);
            forecasts.push(forecast);
        }
        Ok(forecasts)
    }
}
