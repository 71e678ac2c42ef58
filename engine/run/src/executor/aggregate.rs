//! Aggregates over a history: the states of runs of spans are committed, so that unchanged runs are merged and not read
//! again.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Mutex;

use arrow::datatypes::SchemaRef;
use forebay_analyze::{GroupByAnalyzer, GroupByState};
use forebay_execute::{ClusterHandle, LearnPass, LearnResult, PassContext};
use forebay_model::{AnyState, Fault, Result};
use forebay_plan::{
    AnalyzerId, AnalyzerLane, AnalyzerRequest, BoundAnalyzer, ColumnScan, GatherBy, GatherOp, OpId, PassWork, PlanOp,
    Program, compile_analyzers,
};
use forebay_threads::poisoned_lock;

use super::RunExecutor;
use crate::session::datasets;

/// The groups of all rows.
pub(super) struct LearnedGroups {
    pub state: GroupByState,
    /// Of the result.
    pub schema: SchemaRef,
    /// What they were learned of, without findings.
    pub learned: LearnResult,
}

/// States of groups that no finding is made of.
pub(crate) type GroupStates = Mutex<BTreeMap<AnalyzerId, AnyState>>;

/// A program that learns the groups of an aggregate, with an analyzer that the whole program does not have.
pub(crate) struct GroupProgram {
    program: Program,
    ask: AnalyzerId,
    schema: SchemaRef,
}

impl GroupProgram {
    pub fn scans(&self) -> Vec<ColumnScan> {
        self.program.scans_for(self.ask)
    }

    /// The windows that its rows pass through.
    pub fn windows(&self) -> BTreeSet<OpId> {
        self.program.windows_of(&self.scans())
    }

    pub fn lanes(&self) -> &[AnalyzerLane] {
        let lanes = self.program.passes.iter().rev().find_map(|pass| match &pass.work {
            PassWork::Learn(work) => Some(work.lanes.as_slice()),
            _ => None,
        });
        lanes.unwrap_or_default()
    }

    /// The pass that learns its groups. States of all rows go to `states`.
    pub fn learn_pass<'r>(
        &'r self,
        run: &'r RunExecutor<'_>,
        states: &'r GroupStates,
        cluster: Option<ClusterHandle<'r>>,
    ) -> LearnPass<'r> {
        let windows = self.windows();
        let context = PassContext { program: &self.program, ..run.pass_context(&windows) };
        LearnPass { context, states: Some(states), ..run.learn_pass(&windows, cluster) }
    }
}

impl RunExecutor<'_> {
    /// The groups of an aggregate over a history; `None` for other rows.
    pub(super) fn learn_groups(&self, op: OpId) -> Result<Option<LearnedGroups>> {
        let Some(groups) = self.group_program(op)? else { return Ok(None) };
        let states = GroupStates::default();
        let learner = groups.learn_pass(self, &states, self.cluster_for(self.pass_index, &groups.windows()));
        let learned = learner.run(groups.lanes(), None)?;
        let GroupProgram { ask, schema, .. } = groups;
        let state = states.into_inner().map_err(|_| poisoned_lock())?.remove(&ask);
        let state = state.and_then(|state| state.downcast::<GroupByState>().ok());
        let state = *state.ok_or_else(|| Fault::internal("an aggregate without groups"))?;
        Ok(Some(LearnedGroups { state, schema, learned }))
    }

    /// The program that learns the groups of an aggregate; `None` where they cannot be learned by runs of spans.
    pub fn group_program(&self, op: OpId) -> Result<Option<GroupProgram>> {
        let PlanOp::Gather(GatherOp { lower: GatherBy::GroupBy(own), schema, .. }) = &self.program.bound.ops[op].op
        else {
            return Ok(None);
        };
        let pass = self.materialize_pass();
        let flow = pass.only_flow(op)?;
        for stream in &flow.streams {
            if !self.state.input(&self.program, stream.base)?.in_time_order {
                return Ok(None);
            }
        }
        let groups = pass.resolve_group_by(flow, own, schema)?;
        // Rows of several streams are read side by side, not one stream after the other.
        if groups.spec.is_of_row_order() && flow.streams.len() > 1 {
            return Ok(None);
        }
        let Some(analyzer) = GroupByAnalyzer::new(&groups.spec) else { return Ok(None) };
        let mut bound = self.program.bound.clone();
        let ask = bound.asks.len();
        bound.asks.push(BoundAnalyzer {
            op,
            ask: AnalyzerRequest::new(analyzer, groups.columns),
            streams: flow.streams.clone(),
            part: None,
            carried: None,
            held: None,
        });
        let datasets = datasets(&self.state.sources);
        let findings = &self.state.findings;
        let program = compile_analyzers(self.pipeline, bound, &datasets, BTreeSet::from([ask]), &mut |_, state| {
            Ok(findings.contains_key(&state))
        })?;
        Ok(Some(GroupProgram { program, ask, schema: groups.schema }))
    }
}
