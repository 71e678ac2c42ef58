//! Plans for the deadline: the passes of this attempt, and those of the lower levels of its ladder.

use std::collections::BTreeMap;

use forebay_model::{Dataset, DegradationLevel, Pipeline, Result};
use forebay_plan::{PassWork, compile};

use crate::attempt::RunAttempt;
use crate::attempt::bound::BoundRun;
use crate::deadline::{
    ARTIFACT, PUBLISH, PassKind, PlanOption, PlannedPass, pass_names, planned_passes,
};
use crate::degradation::{name_replaced, replace_findings, skip_optional};
use crate::executor::{DeadlinePlan, RunExecutor};
use crate::predict::{
    errors_pass_name, forecast_pass_name, learns_errors, learns_weights, naive_passes,
    weights_pass_name,
};
use crate::previous_artifact::PreviousArtifact;
use crate::remote_run::all_analyzers;
use crate::run_mode::RunMode;
use crate::training::training_pass_name;
use crate::training_cadence::{TrainingCadences, is_held};

impl<'a> RunAttempt<'a> {
    /// The plan of this attempt, and those of the lower levels that are open to it.
    pub(super) fn deadline_plan(
        &self,
        bound: &BoundRun,
        run: &RunExecutor<'_>,
        last: Option<&PreviousArtifact>,
    ) -> Result<DeadlinePlan<'a>> {
        let mut options = vec![PlanOption {
            level: self.level,
            passes: self.planned_passes(bound, run)?,
        }];
        let ladder = self
            .whole
            .deadline
            .as_ref()
            .map(|deadline| deadline.ladder.as_slice())
            .unwrap_or_default();
        for level in ladder
            .iter()
            .copied()
            .filter(|level| Some(*level) > self.level)
        {
            let passes = match level {
                DegradationLevel::Naive if self.whole.predictions.is_empty() => None,
                DegradationLevel::Naive => Some(naive_passes()),
                _ => self.planned_passes_at(level, bound, run, last)?,
            };
            options.extend(passes.map(|passes| PlanOption {
                level: Some(level),
                passes,
            }));
        }
        if self.artifact().is_none() {
            // Only a run trains and forecasts.
            let nothing = Pipeline::default();
            let pipeline = match self.mode {
                RunMode::Run => &bound.pipeline,
                RunMode::Fit | RunMode::Apply(_) => &nothing,
            };
            add_final_passes(&mut options, pipeline, &bound.datasets, &bound.cadences);
        }
        Ok(DeadlinePlan {
            monitor: self.monitor,
            options,
        })
    }

    fn planned_passes(&self, bound: &BoundRun, run: &RunExecutor<'_>) -> Result<Vec<PlannedPass>> {
        let mut passes = planned_passes(
            &run.program,
            run.pipeline,
            &bound.datasets,
            self.level,
            &run.state,
        );
        if self.level > Some(DegradationLevel::SkipOptional) {
            let intervals = run.intervals.clone();
            let dry_run = run.dry_run_with(
                run.pipeline,
                run.program.clone(),
                run.state.findings.clone(),
            );
            let dry_run = RunExecutor {
                intervals,
                ..dry_run
            };
            estimate_new_reads(dry_run, &mut passes)?;
        }
        Ok(passes)
    }

    /// The passes of a lower level. `None` where it needs findings of an earlier artifact that does not have them.
    fn planned_passes_at(
        &self,
        level: DegradationLevel,
        bound: &BoundRun,
        run: &RunExecutor<'_>,
        last: Option<&PreviousArtifact>,
    ) -> Result<Option<Vec<PlannedPass>>> {
        let BoundRun {
            session, datasets, ..
        } = bound;
        let (mut lesser, _) = skip_optional(self.whole, Some(level));
        lesser.split.clone_from(&bound.pipeline.split);
        let mut lesser_bound = session.bind(&lesser, datasets)?;
        let takes_findings = level > DegradationLevel::SkipOptional;
        let answers = last
            .filter(|_| takes_findings)
            .and_then(|last| last.findings_for(&lesser, &lesser_bound));
        if takes_findings && answers.is_none() {
            return Ok(None);
        }
        let sinks: Vec<usize> = if run.program.writes() {
            (0..lesser.sinks.len()).collect()
        } else {
            Vec::new()
        };
        let is_known = &mut |_, state| Ok(run.state.findings.contains_key(&state));
        let program = compile(
            &lesser,
            lesser_bound.clone(),
            datasets,
            &sinks,
            true,
            is_known,
        )?;
        let mut passes = planned_passes(&program, &lesser, datasets, Some(level), &run.state);
        // The findings that another level replaces are known only when that level is taken.
        if let (Some(answers), DegradationLevel::LastModel) = (answers, level) {
            let replaced = all_analyzers(&lesser_bound);
            name_replaced(&mut lesser_bound, &replaced, &answers)?;
            let is_known = &mut |_, _| Ok(false);
            let mut program = compile(&lesser, lesser_bound, datasets, &sinks, true, is_known)?;
            let mut findings = BTreeMap::new();
            replace_findings(&mut program, &replaced, &answers, &mut findings)?;
            let intervals =
                session.restrict_to_interval(&lesser, &mut program, self.interval, None)?;
            let dry_run = RunExecutor {
                intervals,
                ..run.dry_run_with(&lesser, program, findings)
            };
            estimate_new_reads(dry_run, &mut passes)?;
        }
        Ok(Some(passes))
    }
}

/// Estimates the bytes that write passes still read: an output is reused if it was written with the
/// findings that replace the ones that this run has not learned.
fn estimate_new_reads(mut run: RunExecutor<'_>, planned: &mut [PlannedPass]) -> Result<()> {
    let passes = run.program.passes.clone();
    let names = pass_names(&run.program, run.pipeline);
    for (pass, name) in passes.iter().zip(names) {
        if !matches!(pass.work, PassWork::Write(_)) {
            continue;
        }
        let Some(planned) = planned.iter_mut().find(|planned| planned.pass == name) else {
            continue;
        };
        let reuse = run.inspect_pass(pass)?;
        let spans = if reuse.done {
            Some((0, 1))
        } else {
            reuse.to_read
        };
        planned.read = spans.map(|(spans, all_spans)| planned.bytes_of_spans(spans, all_spans));
    }
    Ok(())
}

/// Adds the steps after the passes to each plan: the artifact, trainings and forecasts.
fn add_final_passes(
    options: &mut [PlanOption],
    pipeline: &Pipeline,
    datasets: &BTreeMap<String, Dataset>,
    cadences: &TrainingCadences,
) {
    // How much a training reads is not known before; it costs what it cost the last time, by the data.
    let total = datasets.values().map(Dataset::bytes).sum();
    for option in options {
        if option.level >= Some(DegradationLevel::Naive) {
            continue;
        }
        if option.level < Some(DegradationLevel::LastModel) {
            let artifact = small_pass(ARTIFACT, total);
            option.passes.push(artifact);
        }
        if option.level < Some(DegradationLevel::ReuseStates) {
            for training in &pipeline.trainings {
                if is_held(cadences, &training.name) {
                    continue;
                }
                let training = model_pass(training_pass_name(training), total);
                option.passes.push(training);
            }
            for sink in &pipeline.predictions {
                if learns_weights(sink) {
                    option
                        .passes
                        .push(model_pass(weights_pass_name(sink), total));
                }
                if learns_errors(sink) {
                    option
                        .passes
                        .push(model_pass(errors_pass_name(sink), total));
                }
            }
        }
        for sink in &pipeline.predictions {
            let forecast = model_pass(forecast_pass_name(sink), total);
            option.passes.push(forecast);
        }
        option.passes.push(small_pass(PUBLISH, total));
    }
}

/// A step whose time does not depend on the rows.
fn small_pass(name: &str, total: u64) -> PlannedPass {
    PlannedPass {
        pass: name.to_owned(),
        total,
        read: None,
        learned: false,
        keeps: false,
        kind: PassKind::Small,
    }
}

/// A training or forecast, whose progress is not measured in bytes.
fn model_pass(name: String, total: u64) -> PlannedPass {
    PlannedPass {
        pass: name,
        total,
        read: None,
        learned: true,
        keeps: false,
        kind: PassKind::Unmeasured,
    }
}
