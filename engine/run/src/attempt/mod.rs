//! One attempt of a run: bind, compile, execute the passes, train, forecast, publish.

mod bound;
mod compiled;
mod executed;
mod planned;
mod published;
mod trained;

use forebay_commit::{Artifact, StateStore};
use forebay_model::{DegradationLevel, Interval, Pipeline, Result};
use forebay_storage::{BackgroundTasks, ScratchDir};

use crate::deadline::DeadlineMonitor;
use crate::report::RunReport;
use crate::run_mode::RunMode;
use crate::session::Session;

/// Temporary directories of this age have lost their run: a run touches its own all the time.
const ABANDONED_AFTER: std::time::Duration = std::time::Duration::from_secs(24 * 3600);

/// One attempt of a run, at one level of its deadline's ladder.
pub(crate) struct RunAttempt<'a> {
    pub session: &'a Session,
    /// The pipeline as the user wrote it.
    pub whole: &'a Pipeline,
    pub mode: RunMode<'a>,
    pub interval: Option<&'a Interval>,
    pub monitor: &'a DeadlineMonitor,
    /// `None`: the whole pipeline.
    pub level: Option<DegradationLevel>,
}

impl RunAttempt<'_> {
    /// Carries out the attempt and publishes its results.
    pub fn run(&self) -> Result<RunReport> {
        if self.level == Some(DegradationLevel::Naive) {
            return self
                .session
                .run_naive(self.whole, self.interval, self.monitor);
        }
        // Findings of an applied artifact are used, even if a later run has learned others.
        let Some(artifact) = self.artifact() else {
            return self.run_stages();
        };
        let whole =
            self.session
                .served_pipeline(&self.whole.learning_anew(), artifact, self.interval)?;
        let served_inputs = self.session.served_inputs(&whole, artifact)?;
        let attempt = RunAttempt {
            whole: &whole,
            session: &self.session.with_served_inputs(served_inputs),
            ..*self
        };
        attempt.run_stages()
    }

    /// The stages, each of which consumes what the one before it made.
    fn run_stages(&self) -> Result<RunReport> {
        let store = StateStore::new(self.session.io.clone(), self.session.state()?);
        let scratch = ScratchDir::new(Some(store.root()), self.session.watch.clone())?;
        forebay_storage::scratch::remove_stale(store.root(), scratch.path(), ABANDONED_AFTER);
        let mut background = BackgroundTasks::default();
        let (bound, inputs) = self.bind(&store, &scratch, &mut background)?;
        let compiled = self.compile(&bound, inputs, &store, &scratch)?;
        background.join_all()?;
        let executed = self.execute(&bound, compiled, store, scratch)?;
        let mut trained = self.train(executed)?;
        let plans = self.plan_forecasts(&trained)?;
        let forecasts = self.forecast(&mut trained, &plans)?;
        self.publish(trained, forecasts)
    }

    /// The artifact that is applied.
    fn artifact(&self) -> Option<&Artifact> {
        match self.mode {
            RunMode::Apply(artifact) => Some(artifact),
            RunMode::Fit | RunMode::Run => None,
        }
    }

    /// True if the attempt learns findings that are not committed.
    fn learns(&self) -> bool {
        self.artifact().is_none() && self.level < Some(DegradationLevel::LastModel)
    }
}
