//! Compilation: the passes of an attempt, and the findings that it takes from elsewhere.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use forebay_commit::{DegradationReport, StateStore};
use forebay_execute::RunState;
use forebay_model::{ContentId, DegradationLevel, Finding, Pipeline, Result};
use forebay_plan::{AnalyzerId, Program, compile};
use forebay_storage::ScratchDir;

use crate::attempt::RunAttempt;
use crate::attempt::bound::{BoundRun, CompilerInputs};
use crate::degradation::{asks_to_replace, degradation_report, replace_findings};
use crate::pass_interval::PassInterval;
use crate::previous_artifact::PreviousArtifact;
use crate::refit::RefitDecisions;
use crate::session::Session;

/// Second stage: the program of an attempt, and which findings it takes from elsewhere.
pub(super) struct CompiledRun {
    pub program: Program,
    /// The inputs of the passes.
    pub state: RunState,
    pub intervals: BTreeMap<ContentId, PassInterval>,
    pub findings: BTreeMap<ContentId, Arc<Finding>>,
    /// The analyzers whose findings were committed by an earlier run.
    pub answered: BTreeSet<AnalyzerId>,
    /// The analyzers whose findings are those of another artifact.
    pub replaced: BTreeSet<AnalyzerId>,
    /// The artifact that a degraded run may take findings from.
    pub last: Option<PreviousArtifact>,
    pub ladder: Option<DegradationReport>,
    pub refits: RefitDecisions,
}

impl RunAttempt<'_> {
    /// Compiles the passes, without those whose findings are committed.
    pub(super) fn compile(
        &self,
        run: &BoundRun,
        inputs: CompilerInputs,
        store: &StateStore,
        scratch: &ScratchDir,
    ) -> Result<CompiledRun> {
        let CompilerInputs { state, bound } = inputs;
        let BoundRun {
            session,
            pipeline,
            sinks,
            datasets,
            ..
        } = run;
        let share = scratch.scratch_with_budget(session.memory(), session.memory().states_bytes());
        let asks = bound.asks.clone();
        let learns = self.learns();
        let makes_artifact = self.artifact().is_none();
        let mut findings = BTreeMap::new();
        let mut answered = BTreeSet::new();
        let program = compile(
            pipeline,
            bound,
            datasets,
            sinks,
            makes_artifact,
            &mut |ask, state_id| {
                if !learns && !asks[ask].ask.per_run {
                    return Ok(false);
                }
                let analyzer = asks[ask].ask.analyzer.as_ref();
                let is_committed = store.load_finding(state_id, analyzer, &share, &mut findings)?;
                if is_committed {
                    answered.insert(ask);
                }
                Ok(is_committed)
            },
        )?;
        let ladder = degradation_report(self.whole, self.level);
        let refits = session
            .attempt
            .carried
            .as_ref()
            .map(|carried| carried.refits.clone())
            .unwrap_or_default();
        let last = self.previous_artifact(session, pipeline, store);
        let mut compiled = CompiledRun {
            program,
            state,
            intervals: BTreeMap::new(),
            findings,
            answered,
            replaced: BTreeSet::new(),
            last,
            ladder,
            refits,
        };
        self.substitute_findings(pipeline, &mut compiled)?;
        let from = session.served.from.as_deref();
        compiled.intervals =
            session.restrict_to_interval(pipeline, &mut compiled.program, self.interval, from)?;
        Ok(compiled)
    }

    /// The newest artifact, where the ladder has a level that takes findings from it.
    fn previous_artifact(
        &self,
        session: &Session,
        pipeline: &Pipeline,
        store: &StateStore,
    ) -> Option<PreviousArtifact> {
        let deadline = self
            .whole
            .deadline
            .as_ref()
            .filter(|_| self.monitor.deadline().is_some())?;
        let takes_findings = deadline
            .ladder
            .iter()
            .any(|level| *level > DegradationLevel::SkipOptional);
        if self.artifact().is_none() && takes_findings {
            PreviousArtifact::load(session, store.root(), &pipeline.name)
        } else {
            None
        }
    }

    /// Uses findings of the applied artifact, or of the newest one if this level does not learn
    /// them.
    fn substitute_findings(&self, pipeline: &Pipeline, compiled: &mut CompiledRun) -> Result<()> {
        let CompiledRun {
            program,
            findings,
            replaced,
            last,
            ladder,
            refits,
            ..
        } = compiled;
        let answers = match (self.artifact(), &last) {
            (Some(artifact), _) => Some(
                artifact
                    .findings
                    .iter()
                    .map(|learned| learned.finding.clone())
                    .collect(),
            ),
            (None, Some(last)) if self.level >= Some(DegradationLevel::ReuseStates) => {
                last.findings_for(pipeline, &program.bound)
            }
            _ => None,
        };
        let Some(answers) = answers else {
            return Ok(());
        };
        let learns = self.learns();
        *replaced = if learns {
            asks_to_replace(program)
        } else {
            (0..program.bound.asks.len()).collect()
        };
        replace_findings(program, pipeline, replaced, &answers, findings)?;
        if let (Some(ladder), Some(last)) = (ladder, last) {
            let asks = replaced
                .iter()
                .map(|ask| &program.bound.asks[*ask])
                .filter(|ask| !ask.ask.per_run);
            let steps: BTreeSet<&String> =
                asks.map(|ask| &program.bound.ops[ask.op].label).collect();
            let is_used = !steps.is_empty() || !learns;
            refits.replace(
                &replaced
                    .iter()
                    .map(|ask| program.bound.step_of(*ask))
                    .collect(),
                &last.artifact.fits,
            );
            ladder.artifact = is_used.then(|| last.artifact.id.to_string());
            ladder.reused = steps.into_iter().cloned().collect();
        }
        Ok(())
    }
}
