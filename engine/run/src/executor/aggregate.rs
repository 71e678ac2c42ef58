//! Aggregates over a history: the states of runs of spans are committed, so that unchanged runs are merged and not read
//! again. A learn pass that reads the same rows commits them along; the gather then only merges them. Workers make the
//! groups of any rows in this way.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Mutex;

use arrow::datatypes::SchemaRef;
use forebay_analyze::{GroupByAnalyzer, GroupByState};
use forebay_commit::ReuseDecision;
use forebay_execute::{ClusterHandle, LearnPass, LearnResult, PassContext};
use forebay_model::{AnyState, ContentId, Fault, Result};
use forebay_plan::{
    AnalyzerId, AnalyzerLane, AnalyzerRequest, BoundAnalyzer, BoundPipeline, ColumnScan, GatherBy,
    GatherOp, LearnWork, OpId, PassWork, PlanOp, Program, compile_analyzers,
};
use forebay_threads::poisoned_lock;

use super::RunExecutor;
use super::recorded_pass::RecordedPass;
use crate::session::datasets;

/// The groups of all rows.
pub(super) struct LearnedGroups {
    pub state: GroupByState,
    /// Schema of the result.
    pub schema: SchemaRef,
    /// Counts of the learn pass, without findings.
    pub learned: LearnResult,
}

/// States of groups that do not become findings.
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
        let lanes = self
            .program
            .passes
            .iter()
            .rev()
            .find_map(|pass| match &pass.work {
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
        let context = PassContext {
            program: &self.program,
            ..run.pass_context(&windows)
        };
        LearnPass {
            context,
            states: Some(states),
            ..run.learn_pass(&windows, cluster)
        }
    }
}

/// The analyzers of a learn pass and those of the groups of aggregates that share its read.
pub(super) struct SharedRead {
    pub program: Program,
    pub lanes: Vec<AnalyzerLane>,
    /// The analyzers of groups.
    pub groups: BTreeSet<AnalyzerId>,
}

impl RunExecutor<'_> {
    /// The aggregates whose groups a learn pass learns in its read. `recorded` are the records of write passes.
    pub(super) fn aggregates_along(
        &self,
        pass: usize,
        recorded: &BTreeMap<ContentId, RecordedPass>,
    ) -> Result<Vec<OpId>> {
        // Workers learn each lane by its own units.
        let is_alone = self.session.cluster.is_none() && !self.on_worker;
        if !is_alone || self.fusable_write(pass, recorded).is_some() {
            return Ok(Vec::new());
        }
        let is_written = |id| {
            recorded
                .get(&id)
                .is_some_and(|recorded| recorded.decision == ReuseDecision::Reuse)
        };
        let needed = self.program.needed_gathers(&|id| !is_written(id));
        let mut aggregates = Vec::new();
        for op in self.program.aggregates_along(pass) {
            if !needed.contains(&op) {
                continue;
            }
            let id = self.program.gather_ids.get(&op).copied();
            let id = id.ok_or_else(|| Fault::internal("an aggregate without an id"))?;
            let location = self.store.materialized_location(id);
            if self.reads_history(op)
                && self.recorded_pass(id, &location)?.decision != ReuseDecision::Reuse
            {
                aggregates.push(op);
            }
        }
        Ok(aggregates)
    }

    /// True if the rows of an aggregate come from spans in order of time.
    fn reads_history(&self, op: OpId) -> bool {
        let inputs = self.program.bound.gather_inputs.get(&op);
        let Some((_, flow)) = inputs.and_then(|inputs| inputs.first()) else {
            return false;
        };
        flow.streams.iter().all(|stream| {
            let input = self.state.input(&self.program, stream.base);
            input.is_ok_and(|input| input.in_time_order)
        })
    }

    /// The learn pass in whose read the groups of an aggregate are learned.
    pub(super) fn learned_in(&self, op: OpId) -> Result<Option<ContentId>> {
        let may_be_along = |index: &usize| self.program.aggregates_along(*index).contains(&op);
        let passes: Vec<usize> = (0..self.program.passes.len())
            .filter(may_be_along)
            .collect();
        if passes.is_empty() {
            return Ok(None);
        }
        // Records are read from the store.
        let recorded = self.recorded_writes()?;
        for index in passes {
            if self.aggregates_along(index, &recorded)?.contains(&op) {
                return Ok(Some(self.program.passes[index].id));
            }
        }
        Ok(None)
    }

    /// The analyzers of a learn pass with the groups that share its read; `None` if there are no
    /// such groups.
    pub(super) fn shared_read(
        &self,
        work: &LearnWork,
        aggregates: &[OpId],
    ) -> Result<Option<SharedRead>> {
        let mut bound = self.program.bound.clone();
        let mut groups = BTreeSet::new();
        for op in aggregates {
            if let Some(BoundGroups { ask, .. }) = self.bound_groups(*op)? {
                groups.insert(bound.asks.len());
                bound.asks.push(ask);
            }
        }
        if groups.is_empty() {
            return Ok(None);
        }
        let asks = work
            .lanes
            .iter()
            .flat_map(|lane| &lane.asks)
            .chain(&groups)
            .copied()
            .collect();
        let program = self.compile_asks(bound, asks)?;
        let learns = program.passes.iter().flat_map(|pass| match &pass.work {
            PassWork::Learn(work) => work.lanes.clone(),
            _ => Vec::new(),
        });
        Ok(Some(SharedRead {
            lanes: learns.collect(),
            program,
            groups,
        }))
    }

    /// A program that learns some analyzers; findings of the run are known to it.
    fn compile_asks(&self, bound: BoundPipeline, asks: BTreeSet<AnalyzerId>) -> Result<Program> {
        let datasets = datasets(&self.state.sources);
        let findings = &self.state.findings;
        compile_analyzers(self.pipeline, bound, &datasets, asks, &mut |_, state| {
            Ok(findings.contains_key(&state))
        })
    }

    /// The groups of an aggregate over a history, or by workers; `None` for other rows in this process.
    pub(super) fn learn_groups(&self, op: OpId) -> Result<Option<LearnedGroups>> {
        let Some(groups) = self.group_program(op)? else {
            return Ok(None);
        };
        let cluster = self.cluster_for(self.pass_index, &groups.windows());
        if cluster.is_none() && !self.reads_history(op) {
            return Ok(None);
        }
        let states = GroupStates::default();
        let learner = groups.learn_pass(self, &states, cluster);
        let learned = learner.run(groups.lanes(), None)?;
        let GroupProgram { ask, schema, .. } = groups;
        let state = states
            .into_inner()
            .map_err(|_| poisoned_lock())?
            .remove(&ask);
        let state = state.and_then(|state| state.downcast::<GroupByState>().ok());
        let state = *state.ok_or_else(|| Fault::internal("an aggregate without groups"))?;
        Ok(Some(LearnedGroups {
            state,
            schema,
            learned,
        }))
    }

    /// The program that learns the groups of an aggregate; `None` where they cannot be learned by runs of spans.
    pub fn group_program(&self, op: OpId) -> Result<Option<GroupProgram>> {
        let Some(BoundGroups {
            ask: analyzer,
            schema,
        }) = self.bound_groups(op)?
        else {
            return Ok(None);
        };
        let mut bound = self.program.bound.clone();
        let ask = bound.asks.len();
        bound.asks.push(analyzer);
        let program = self.compile_asks(bound, BTreeSet::from([ask]))?;
        Ok(Some(GroupProgram {
            program,
            ask,
            schema,
        }))
    }

    /// The analyzer of the groups of an aggregate; `None` where they cannot be learned by runs of spans.
    pub(super) fn bound_groups(&self, op: OpId) -> Result<Option<BoundGroups>> {
        let PlanOp::Gather(GatherOp {
            lower: GatherBy::GroupBy(group_by),
            schema,
            ..
        }) = &self.program.bound.ops[op].op
        else {
            return Ok(None);
        };
        let pass = self.materialize_pass();
        let flow = pass.only_flow(op)?;
        let has_workers = self.on_worker || self.run_spec.is_some();
        for stream in &flow.streams {
            let input = self.state.input(&self.program, stream.base)?;
            if !input.in_time_order && !has_workers {
                return Ok(None);
            }
        }
        let groups = pass.resolve_group_by(flow, group_by, schema)?;
        // Rows of several streams are read side by side, not one stream after the other.
        if groups.spec.is_of_row_order() && flow.streams.len() > 1 {
            return Ok(None);
        }
        let Some(analyzer) = GroupByAnalyzer::new(&groups.spec) else {
            return Ok(None);
        };
        let ask = BoundAnalyzer {
            op,
            ask: AnalyzerRequest::new(analyzer, groups.columns),
            streams: flow.streams.clone(),
            part: None,
            carried: None,
            held: None,
        };
        Ok(Some(BoundGroups {
            ask,
            schema: groups.schema,
        }))
    }
}

/// The groups of an aggregate as a question, and the columns of the result.
pub(super) struct BoundGroups {
    ask: BoundAnalyzer,
    schema: SchemaRef,
}
