//! Statistics that a run learns beside those of its steps, to explain what it noticed.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use forebay_execute::RunState;
use forebay_model::{Finding, Result};
use forebay_plan::{AnalyzerId, BoundAnalyzer, BoundPipeline, compile_analyzers};
use forebay_storage::IgnoreEvents;

use super::RunExecutor;
use crate::session::{Session, datasets};

impl RunExecutor<'_> {
    /// Learns the findings of some analyzers over the rows of this run, in this process. States are committed as those
    /// of the run are, so that unchanged rows are not read again.
    pub(crate) fn learn_extra(&self, analyzers: Vec<BoundAnalyzer>) -> Result<Vec<Arc<Finding>>> {
        if analyzers.is_empty() {
            return Ok(Vec::new());
        }
        let mut bound = self.program.bound.clone();
        let first = bound.asks.len();
        bound.asks.extend(analyzers);
        let wanted: BTreeSet<AnalyzerId> = (first..bound.asks.len()).collect();
        let findings = self.learn_over(bound, wanted)?;
        Ok(findings.into_values().collect())
    }

    /// Learns the findings of the wanted analyzers of a pipeline that extends that of this run, over its rows.
    pub(crate) fn learn_over(
        &self,
        bound: BoundPipeline,
        wanted: BTreeSet<AnalyzerId>,
    ) -> Result<BTreeMap<AnalyzerId, Arc<Finding>>> {
        let findings = self.state.findings.clone();
        let program = compile_analyzers(
            self.pipeline,
            bound,
            &datasets(&self.state.sources),
            wanted.clone(),
            &mut |_, state| Ok(findings.contains_key(&state)),
        )?;
        let state = RunState {
            sources: self.state.sources.clone(),
            findings,
            ..RunState::default()
        };
        let session = Session {
            turn: None,
            cluster: None,
            carried: None,
            watch: Arc::new(IgnoreEvents),
            ..self.session.clone()
        };
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
        for ask in wanted {
            learned.insert(ask, run.state.finding(&run.program, ask)?);
        }
        Ok(learned)
    }
}
