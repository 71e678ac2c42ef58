//! Measures how far the statistics of steps have drifted from those that they hold.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use forebay_commit::StateStore;
use forebay_execute::RunState;
use forebay_model::{ContentId, Fault, Finding, Pipeline, Result};
use forebay_plan::{AnalyzerId, BoundAnalyzer, PassWork, compile_analyzers};
use forebay_storage::ScratchDir;

use super::drift::divergence;
use crate::executor::RunExecutor;
use crate::report::PassReport;
use crate::session::{PreparedRun, Session};

/// A step that learns anew once it has drifted.
struct MeasuredStep {
    step: String,
    drift_max: f64,
    /// Its analyzers whose findings are held.
    asks: Vec<AnalyzerId>,
}

impl Session {
    /// Learns what steps would learn now, compares it with what they hold, and lets those learn anew that have drifted
    /// too far. What is learned here is kept: a run reads the new rows only. With `learns` false, steps whose statistics
    /// no run has learned yet stay as they are. Gives the passes.
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
        let measured = pipeline.nodes.iter().filter_map(|node| {
            let drift_max = node.refit.as_ref()?.drift_above?;
            let held = |ask: &AnalyzerId| bound.asks[*ask].held.is_some();
            let asks: Vec<AnalyzerId> = bound
                .held_analyzers(&node.name)
                .into_iter()
                .filter(held)
                .collect();
            (!asks.is_empty()).then(|| MeasuredStep {
                step: node.name.clone(),
                drift_max,
                asks,
            })
        });
        let measured: Vec<MeasuredStep> = measured.collect();
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
        let wanted: BTreeSet<AnalyzerId> = copies.values().copied().collect();
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
            wanted,
            &mut |ask, state| {
                store.load_finding(state, analyzers[ask].as_ref(), &share, &mut findings)
            },
        )?;
        let is_open =
            |work: &PassWork| matches!(work, PassWork::Learn(work) if !work.lanes.is_empty());
        if !learns && program.passes.iter().any(|pass| is_open(&pass.work)) {
            return Ok(Vec::new());
        }
        let passes: Vec<ContentId> = program.passes.iter().map(|pass| pass.id).collect();
        let state = RunState {
            sources: prepared.state.sources.clone(),
            findings,
            ..RunState::default()
        };
        let session = Session {
            turn: None,
            cluster: None,
            carried: None,
            ..self.clone()
        };
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
            let mut drift: f64 = 0.0;
            for ask in asks {
                let question = &bound.asks[*ask];
                let held = question
                    .held
                    .as_ref()
                    .ok_or_else(|| Fault::internal("a finding that is not held"))?;
                let now = run.state.finding(&run.program, copies[ask])?;
                drift = drift.max(divergence(question.ask.analyzer.kind(), held, &now)?);
            }
            if let Some(known) = decisions.steps.iter_mut().find(|known| known.step == *step) {
                known.drift = Some(drift);
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
        let session = Session {
            carried: Some(carried.clone()),
            ..self.clone()
        };
        prepared.bound = session.bind(pipeline, &prepared.datasets)?;
        prepared.carried = Some(carried);
        Ok(report)
    }
}
