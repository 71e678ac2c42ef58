//! Compilation: the passes of an attempt, and the findings that it takes from elsewhere.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use forebay_commit::{DegradationReport, StateStore};
use forebay_execute::RunState;
use forebay_model::{
    AnyAnalyzer, ContentId, DegradationLevel, Finding, Pipeline, Result, ScratchSpace,
};
use forebay_plan::{AnalyzerId, BoundPipeline, Program, compile};
use forebay_storage::ScratchDir;

use crate::attempt::RunAttempt;
use crate::attempt::bound::{BoundRun, CompilerInputs};
use crate::degradation::{asks_to_replace, degradation_report, name_replaced, replace_findings};
use crate::pass_interval::PassInterval;
use crate::previous_artifact::PreviousArtifact;
use crate::refit::RefitDecisions;
use crate::remote_run::{all_analyzers, answers_of};
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
            session, pipeline, ..
        } = run;
        let mut committed = CommittedFindings {
            store,
            share: scratch.scratch_with_budget(session.memory(), session.memory().states_bytes()),
            findings: BTreeMap::new(),
            answered: BTreeSet::new(),
        };
        let mut program = self.program(run, bound, &BTreeSet::new(), &mut committed)?;
        let last = self.previous_artifact(session, pipeline, store);
        let answers = self.answers(pipeline, &program.bound, last.as_ref());
        let mut replaced = BTreeSet::new();
        if let Some(answers) = &answers {
            replaced = if self.learns() {
                asks_to_replace(&program)
            } else {
                all_analyzers(&program.bound)
            };
            // An applied artifact has named its findings before.
            if self.artifact().is_none() && !replaced.is_empty() {
                let mut bound = program.bound;
                name_replaced(&mut bound, &replaced, answers)?;
                committed.answered.clear();
                program = self.program(run, bound, &replaced, &mut committed)?;
            }
            replace_findings(&mut program, &replaced, answers, &mut committed.findings)?;
        }
        let mut compiled = CompiledRun {
            program,
            state,
            intervals: BTreeMap::new(),
            findings: committed.findings,
            answered: committed.answered,
            replaced,
            last,
            ladder: degradation_report(self.whole, self.level),
            refits: session.refit_decisions(),
        };
        if answers.is_some() {
            self.report_replaced(&mut compiled);
        }
        let from = session.served.from.as_deref();
        compiled.intervals =
            session.restrict_to_interval(pipeline, &mut compiled.program, self.interval, from)?;
        Ok(compiled)
    }

    /// The program of a bound pipeline. The findings of `replaced` analyzers are not looked up, except
    /// for those that each run learns again.
    fn program(
        &self,
        run: &BoundRun,
        bound: BoundPipeline,
        replaced: &BTreeSet<AnalyzerId>,
        committed: &mut CommittedFindings<'_>,
    ) -> Result<Program> {
        let asks = bound.asks.clone();
        let learns = self.learns();
        compile(
            &run.pipeline,
            bound,
            &run.datasets,
            &run.sinks,
            self.artifact().is_none(),
            &mut |ask, state_id| {
                let is_replaced = !learns || replaced.contains(&ask);
                if is_replaced && !asks[ask].ask.per_run {
                    return Ok(false);
                }
                committed.recall(ask, state_id, asks[ask].ask.analyzer.as_ref())
            },
        )
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

    /// The findings of the applied artifact, or of the newest one if this level does not learn them.
    fn answers(
        &self,
        pipeline: &Pipeline,
        bound: &BoundPipeline,
        last: Option<&PreviousArtifact>,
    ) -> Option<Vec<Arc<Finding>>> {
        match (self.artifact(), last) {
            (Some(artifact), _) => Some(answers_of(artifact)),
            (None, Some(last)) if self.level >= Some(DegradationLevel::ReuseStates) => {
                last.findings_for(pipeline, bound)
            }
            _ => None,
        }
    }

    /// Names the steps whose findings are those of the newest artifact in the report of a degraded run.
    fn report_replaced(&self, compiled: &mut CompiledRun) {
        let CompiledRun {
            program,
            replaced,
            last,
            ladder,
            refits,
            ..
        } = compiled;
        let Some(ladder) = ladder else {
            return;
        };
        let Some(last) = last else {
            return;
        };
        let asks = replaced
            .iter()
            .map(|ask| &program.bound.asks[*ask])
            .filter(|ask| !ask.ask.per_run);
        let steps: BTreeSet<&String> = asks.map(|ask| &program.bound.ops[ask.op].label).collect();
        let is_used = !steps.is_empty() || !self.learns();
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
}

/// The findings that earlier runs have committed, as far as a program asks for them.
struct CommittedFindings<'s> {
    store: &'s StateStore,
    share: Arc<dyn ScratchSpace>,
    findings: BTreeMap<ContentId, Arc<Finding>>,
    /// The analyzers whose findings are there.
    answered: BTreeSet<AnalyzerId>,
}

impl CommittedFindings<'_> {
    /// Reads the finding of an analyzer. False where no run has committed it.
    fn recall(
        &mut self,
        ask: AnalyzerId,
        state_id: ContentId,
        analyzer: &dyn AnyAnalyzer,
    ) -> Result<bool> {
        let is_committed = self.findings.contains_key(&state_id)
            || self
                .store
                .load_finding(state_id, analyzer, &self.share, &mut self.findings)?;
        if is_committed {
            self.answered.insert(ask);
        }
        Ok(is_committed)
    }
}
