//! Publishing: what readers see of an attempt, and its report.

use forebay_model::{Fault, Result};

use crate::attempt::RunAttempt;
use crate::attempt::executed::ExecutedRun;
use crate::attempt::trained::TrainedRun;
use crate::deadline::PUBLISH;
use crate::predict::UnpublishedForecast;
use crate::report::{LeftOutReport, RunReport};
use crate::run_mode::RunMode;

impl RunAttempt<'_> {
    /// Last stage: publishes outputs, the artifact, models and forecasts, and reports the run.
    pub(super) fn publish(
        &self,
        run: TrainedRun<'_>,
        forecasts: Vec<UnpublishedForecast<'_>>,
    ) -> Result<RunReport> {
        let TrainedRun {
            executed,
            fitted,
            mut outputs,
            continued,
            trained,
            passes,
        } = run;
        let ExecutedRun {
            bound,
            mut executor,
            staged,
            expectations,
            last,
            ladder,
        } = executed;
        let session = &bound.session;
        self.monitor.begin(PUBLISH);
        outputs.extend(executor.publish(staged)?);
        let (artifact, artifact_path) = match (fitted, self.artifact(), last) {
            (Some(fitted), ..) => executor
                .commit_artifact(fitted)
                .map(|(id, location)| (id, Some(location.shown)))?,
            (None, Some(artifact), _) => (artifact.id, None),
            (None, None, Some(last)) => (last.artifact.id, Some(last.location.shown)),
            (None, None, None) => return Err(Fault::internal("a run without an artifact")),
        };
        // Models come after the artifact that their features are made with.
        let mut models = Vec::new();
        for model in trained {
            models.push(model.publish(session, &executor.store)?);
        }
        let mut published_forecasts = Vec::new();
        for forecast in forecasts {
            published_forecasts.push(forecast.publish()?);
        }
        // Replaced files are removed in the background; the run ends when that is done.
        std::mem::take(&mut executor.background).join_all()?;
        let is_reused = passes.iter().all(|pass| pass.reused);
        self.monitor.end(is_reused);
        if matches!(self.mode, RunMode::Run) && !expectations.record.is_empty() {
            let root = executor.store.root();
            expectations
                .record
                .save(&session.io, root, &bound.pipeline.name)?;
        }
        // A run that was killed may have computed what is published now.
        let shows_nothing_new = !outputs.iter().any(|output| output.is_new)
            && !models.iter().any(|model| model.is_new)
            && !published_forecasts.iter().any(|forecast| forecast.is_new);
        Ok(RunReport {
            forecasts: published_forecasts,
            pipeline: bound.pipeline.name.clone(),
            artifact: Some(artifact.to_string()),
            artifact_path,
            left_out: LeftOutReport::of_datasets(&bound.datasets),
            days: bound.days.clone(),
            outputs,
            models,
            future: std::mem::take(&mut executor.future),
            continued,
            refits: std::mem::take(&mut executor.refits.steps),
            expectations: expectations.reports,
            interval: self.interval.cloned(),
            rows_from: session.served.from.clone(),
            again: Vec::new(),
            nothing_new: ladder.is_none() && shows_nothing_new && is_reused,
            deadline: None,
            ladder,
            warnings: Vec::new(),
            spilled_bytes: executor.scratch.spilled_bytes(),
            storage: None,
            passes,
        })
    }
}
