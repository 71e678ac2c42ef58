//! Execution: the passes of an attempt, and the judgement of what they made.

use forebay_commit::{DegradationReport, StateStore};
use forebay_execute::RunState;
use forebay_model::Result;
use forebay_storage::ScratchDir;

use crate::attempt::RunAttempt;
use crate::attempt::bound::BoundRun;
use crate::attempt::compiled::CompiledRun;
use crate::backfill_turn::BackfillStage;
use crate::executor::{RunExecutor, StagedOutput};
use crate::expectations::JudgedExpectations;
use crate::previous_artifact::PreviousArtifact;
use crate::remote_run::{RemoteRun, ReusedArtifact};

/// Third stage: all passes are done, and their outputs staged. Readers see none of them yet.
pub(super) struct ExecutedRun<'b> {
    pub bound: &'b BoundRun,
    pub executor: RunExecutor<'b>,
    pub staged: Vec<StagedOutput>,
    pub expectations: JudgedExpectations,
    /// The artifact that a degraded run may take findings from.
    pub last: Option<PreviousArtifact>,
    pub ladder: Option<DegradationReport>,
}

impl RunAttempt<'_> {
    /// Executes the passes and judges their results.
    pub(super) fn execute<'b>(
        &'b self,
        bound: &'b BoundRun,
        mut compiled: CompiledRun,
        store: StateStore,
        scratch: ScratchDir,
    ) -> Result<ExecutedRun<'b>> {
        let last = compiled.last.take();
        let ladder = compiled.ladder.clone();
        let mut executor = self.executor(bound, compiled, last.as_ref(), store, scratch)?;
        executor.deadline = Some(self.deadline_plan(bound, &executor, last.as_ref())?);
        let staged = executor.run_passes()?;
        let expectations = self.judge(bound, &executor, &staged)?;
        Ok(ExecutedRun {
            bound,
            executor,
            staged,
            expectations,
            last,
            ladder,
        })
    }

    /// An executor of the attempt's program.
    fn executor<'b>(
        &self,
        bound: &'b BoundRun,
        compiled: CompiledRun,
        last: Option<&PreviousArtifact>,
        store: StateStore,
        scratch: ScratchDir,
    ) -> Result<RunExecutor<'b>> {
        let BoundRun {
            session,
            pipeline,
            datasets,
            ..
        } = bound;
        let applies = self.artifact();
        let reuses = match last {
            Some(last) if !compiled.replaced.is_empty() => Some(ReusedArtifact {
                artifact: &last.artifact,
                analyzers: compiled.replaced,
            }),
            _ => None,
        };
        // The findings of an applied artifact are those of all steps, also of those that are left out.
        let run_spec = if applies.is_some() && compiled.ladder.is_some() {
            None
        } else {
            let run = RemoteRun {
                pipeline,
                sinks: &bound.sinks,
                learns: applies.is_none(),
                known: compiled.answered,
                applies,
                reuses,
            };
            session.run_spec(run, self.interval, datasets)?
        };
        let trainings = if bound.trains {
            pipeline.trainings.len()
        } else {
            0
        };
        let state = RunState {
            findings: compiled.findings,
            ..compiled.state
        };
        let run = RunExecutor::new(session, pipeline, store, scratch, compiled.program, state);
        Ok(RunExecutor {
            intervals: compiled.intervals,
            run_spec,
            refits: compiled.refits,
            trainings,
            degradation: compiled.ladder,
            ..run
        })
    }

    /// Judges the results of the passes before any of them is published.
    fn judge(
        &self,
        bound: &BoundRun,
        run: &RunExecutor<'_>,
        staged: &[StagedOutput],
    ) -> Result<JudgedExpectations> {
        // The warnings of this count explain an output without rows, which is refused below.
        if self.learns() {
            run.count_parts(&bound.datasets)?;
        }
        run.report_unmet_joins()?;
        // Expectations compare with what the previous interval has published.
        bound.session.wait_for_previous_run(BackfillStage::Done)?;
        let expectations = run.judge_expectations(self.interval)?;
        run.check_known_columns()?;
        run.check_rows(staged, bound.pipeline_sinks)?;
        Ok(expectations)
    }
}
