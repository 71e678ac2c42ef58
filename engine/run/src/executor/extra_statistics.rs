//! Statistics that a run learns in addition to those of its steps, to explain its warnings.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use forebay_execute::RunState;
use forebay_model::{Finding, Result};
use forebay_plan::{AnalyzerId, BoundAnalyzer, BoundPipeline, compile_analyzers};
use forebay_storage::IgnoreEvents;

use super::RunExecutor;
use crate::session::datasets;

impl RunExecutor<'_> {
    /// Learns the findings of some analyzers over the rows of this run, in this process. States are
    /// committed like those of the run, so that unchanged rows are not read again.
    pub(crate) fn learn_extra(&self, analyzers: Vec<BoundAnalyzer>) -> Result<Vec<Arc<Finding>>> {
        if analyzers.is_empty() {
            return Ok(Vec::new());
        }
        let mut bound = self.program.bound.clone();
        let first = bound.asks.len();
        bound.asks.extend(analyzers);
        let added: BTreeSet<AnalyzerId> = (first..bound.asks.len()).collect();
        let findings = self.learn_over(bound, added)?;
        Ok(findings.into_values().collect())
    }

    /// Learns the findings of the requested analyzers over the rows of a pipeline that extends the
    /// one of this run.
    pub(crate) fn learn_over(
        &self,
        bound: BoundPipeline,
        analyzers: BTreeSet<AnalyzerId>,
    ) -> Result<BTreeMap<AnalyzerId, Arc<Finding>>> {
        let findings = self.state.findings.clone();
        let program = compile_analyzers(
            self.pipeline,
            bound,
            &datasets(&self.state.sources),
            analyzers.clone(),
            &mut |_, state| Ok(findings.contains_key(&state)),
        )?;
        let state = RunState {
            sources: self.state.sources.clone(),
            findings,
            ..RunState::default()
        };
        let session = self
            .session
            .for_extra_learning()
            .with_listener(Arc::new(IgnoreEvents));
        let run = RunExecutor::new(
            &session,
            self.pipeline,
            self.store.clone(),
            self.scratch.clone(),
            program,
            state,
        );
        let run = run.learn_only()?;
        let mut learned = BTreeMap::new();
        for ask in analyzers {
            learned.insert(ask, run.state.finding(&run.program, ask)?);
        }
        Ok(learned)
    }
}
