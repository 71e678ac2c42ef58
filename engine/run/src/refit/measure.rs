//! Measures how far the statistics of steps have drifted from those that they hold.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use forebay_commit::StateStore;
use forebay_execute::RunState;
use forebay_model::{ContentId, Fault, Finding, Pipeline, Result};
use forebay_plan::{
    AnalyzerId, BoundAnalyzer, BoundPipeline, PassWork, Program, compile_analyzers,
};
use forebay_storage::ScratchDir;

use super::drift::divergence;
use crate::executor::RunExecutor;
use crate::report::PassReport;
use crate::session::{PreparedRun, Session};

/// A step that is refitted once it has drifted.
struct MeasuredStep {
    step: String,
    drift_max: f64,
    /// Analyzers of the step whose findings are held.
    asks: Vec<AnalyzerId>,
}

impl Session {
    /// Learns the current findings of steps, compares them with the held ones, and refits the steps
    /// that have drifted too far. The states are kept, so that the next run reads new rows only.
    /// With `learns` false, steps whose statistics no run has learned yet stay as they are. Returns
    /// the reports of the passes.
    pub(crate) fn measure_drift(
        &self,
        pipeline: &Pipeline,
        prepared: &mut PreparedRun,
        store: &StateStore,
        scratch: &ScratchDir,
        learns: bool,
    ) -> Result<Vec<PassReport>> {
        let Some(carried) = prepared.carried.clone() else {
            return Ok(Vec::new());
        };
        let bound = &prepared.bound;
        let measured = measured_steps(pipeline, bound);
        if measured.is_empty() {
            return Ok(Vec::new());
        }
        // Operations before an analyzer use what is held; only the copies of the analyzers read the rows of now.
        let mut copied = bound.clone();
        let mut copies: BTreeMap<AnalyzerId, AnalyzerId> = BTreeMap::new();
        for ask in measured.iter().flat_map(|step| &step.asks) {
            copies.insert(*ask, copied.asks.len());
            copied.asks.push(BoundAnalyzer {
                held: None,
                ..bound.asks[*ask].clone()
            });
        }
        let copied_asks: BTreeSet<AnalyzerId> = copies.values().copied().collect();
        let analyzers: Vec<_> = copied
            .asks
            .iter()
            .map(|ask| ask.ask.analyzer.clone())
            .collect();
        let share = scratch.scratch_with_budget(self.memory(), self.memory().states_bytes());
        let mut findings: BTreeMap<ContentId, Arc<Finding>> = BTreeMap::new();
        let program = compile_analyzers(
            pipeline,
            copied,
            &prepared.datasets,
            copied_asks,
            &mut |ask, state| {
                store.load_finding(state, analyzers[ask].as_ref(), &share, &mut findings)
            },
        )?;
        // Callers that only explain must not read rows.
        if !learns && needs_rows(&program) {
            return Ok(Vec::new());
        }
        let passes: Vec<ContentId> = program.passes.iter().map(|pass| pass.id).collect();
        let state = RunState {
            sources: prepared.state.sources.clone(),
            findings,
            ..RunState::default()
        };
        // Drift is measured on the coordinator (decisions/held-findings.md).
        let session = self.for_extra_learning();
        let run = RunExecutor::new(
            &session,
            pipeline,
            store.clone(),
            scratch.clone(),
            program,
            state,
        );
        let mut run = run.learn_only()?;
        let mut decisions = carried.refits.clone();
        for MeasuredStep {
            step,
            drift_max,
            asks,
        } in &measured
        {
            // A step has drifted as far as the statistic that has drifted most.
            let mut drift: f64 = 0.0;
            for ask in asks {
                let now = run.state.finding(&run.program, copies[ask])?;
                drift = drift.max(drift_of(&bound.asks[*ask], &now)?);
            }
            if let Some(refit) = decisions.steps.iter_mut().find(|refit| refit.step == *step) {
                refit.drift = Some(drift);
            }
            if drift > *drift_max {
                decisions.learn_anew(step, format!("the drift was {drift:.3}, above {drift_max}"));
            }
        }
        decisions.spread(bound);
        decisions.measured = passes;
        let report = std::mem::take(&mut run.report);
        drop(run);
        let carried = Arc::new(carried.with_refits(decisions));
        let session = self.with_carried(Some(carried.clone()));
        // Bound again, since held findings are part of the ids.
        prepared.bound = session.bind(pipeline, &prepared.datasets)?;
        prepared.carried = Some(carried);
        Ok(report)
    }
}

/// The steps that are refitted once they have drifted, as far as they hold findings.
fn measured_steps(pipeline: &Pipeline, bound: &BoundPipeline) -> Vec<MeasuredStep> {
    let mut measured = Vec::new();
    for node in &pipeline.nodes {
        let Some(drift_max) = node.refit.as_ref().and_then(|policy| policy.drift_above) else {
            continue;
        };
        let mut asks = bound.held_analyzers(&node.name);
        asks.retain(|ask| bound.asks[*ask].held.is_some());
        if !asks.is_empty() {
            measured.push(MeasuredStep {
                step: node.name.clone(),
                drift_max,
                asks,
            });
        }
    }
    measured
}

/// True if a program learns findings that are not in the state directory.
fn needs_rows(program: &Program) -> bool {
    let mut passes = program.passes.iter();
    passes.any(|pass| match &pass.work {
        PassWork::Learn(work) => !work.lanes.is_empty(),
        PassWork::Gather(_) | PassWork::Write(_) => false,
    })
}

/// Distance of the current finding of an analyzer from the one that it holds.
fn drift_of(analyzer: &BoundAnalyzer, now: &Finding) -> Result<f64> {
    let held_finding = analyzer.held.as_ref();
    let held_finding = held_finding.ok_or_else(|| Fault::internal("a finding that is not held"))?;
    divergence(analyzer.ask.analyzer.kind(), held_finding, now)
}
