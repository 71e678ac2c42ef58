//! Learn passes, and the write passes that are fused into them.

use std::collections::{BTreeMap, BTreeSet};

use forebay_commit::{Manifest, ReuseDecision, Shard};
use forebay_execute::{
    ClusterHandle, FusedCoverage, FusedLearnFn, FusionRequest, LearnPass, LearnResult, PassContext,
};
use forebay_model::{ContentId, Result, RowLedger};
use forebay_plan::{
    AnalyzerId, BaseDataset, LearnWork, OpId, Pass, PassWork, SinkWork, WindowRowOrder, needed_ops,
};

use super::recorded_pass::RecordedPass;
use super::{FusedWrite, RunExecutor};
use crate::report::PassReport;

/// A write pass that a learn pass can execute in its read.
pub(super) struct FusableWrite {
    pass: ContentId,
    work: SinkWork,
}

impl RunExecutor<'_> {
    /// Runs the learn pass at `pass_index` and keeps its findings.
    pub(super) fn run_learn(
        &mut self,
        work: &LearnWork,
        pass: ContentId,
        recorded: &BTreeMap<ContentId, RecordedPass>,
        report: &mut PassReport,
    ) -> Result<()> {
        if work.lanes.is_empty() {
            report.reused = true;
            return Ok(());
        }
        let fusable = self.fusable_write(self.pass_index, recorded);
        let aggregates = self.aggregates_along(self.pass_index, recorded)?;
        let mut result = self.learn(work, fusable, &aggregates)?;
        let windows = self
            .program
            .windows_of(work.lanes.iter().flat_map(|lane| &lane.scans));
        result.kept.carries.extend(self.kept_join_states(&windows)?);
        self.state.findings.extend(result.findings);
        report.count(&result.counts);
        // Several chains of a lane may change the same rows: the sums of outputs have no part of these.
        report.changes = RowLedger::default();
        self.joins.add(result.counts.joins);
        let writes = |pass: &Pass| matches!(pass.work, PassWork::Write(_));
        if !self.program.passes.iter().any(writes) {
            self.warn_of_duplicates("the statistics", result.counts.duplicates);
        }
        report.rows_kept = result.rows_kept;
        self.assemble_early()?;
        self.store.put_learn_record(pass, &result.kept)
    }

    /// Learns the findings of the analyzers of a pass. A fusable write pass is executed in the same
    /// read where that saves a second one.
    ///
    /// Without a fused write, the states of the aggregates in `along`, which read the same rows,
    /// are committed too.
    fn learn(
        &mut self,
        work: &LearnWork,
        fusable: Option<FusableWrite>,
        aggregates: &[OpId],
    ) -> Result<LearnResult> {
        let mut windows = self
            .program
            .windows_of(work.lanes.iter().flat_map(|lane| &lane.scans));
        windows.extend(
            fusable
                .iter()
                .flat_map(|write| self.program.windows_of(&write.work.scans)),
        );
        let (result, fused) = self.retry_with_fallback(&windows, |run| {
            let learner = run.learn_pass(&windows, run.cluster_for(run.pass_index, &windows));
            if let Some(shared) = run.shared_read(work, aggregates)? {
                let context = PassContext {
                    program: &shared.program,
                    ..learner.context
                };
                let learner = LearnPass {
                    context,
                    along: Some(&shared.groups),
                    ..learner
                };
                return Ok((learner.run(&shared.lanes, None)?, None));
            }
            let Some(FusableWrite {
                pass,
                work: write_work,
            }) = &fusable
            else {
                return Ok((learner.run(&work.lanes, None)?, None));
            };
            let sink = run.session.sink(run.pipeline, write_work.sink)?;
            let out = run.session.output(run.pipeline, write_work.sink)?;
            let write = run.write_pass(sink.as_ref(), &windows, None);
            let prepared = write.prepare(write_work)?;
            let target = run.write_target(write_work, *pass, sink.as_ref(), &out)?;
            let is_whole = !run.intervals.contains_key(pass);
            let sync = |shards: Vec<Shard>| {
                if is_whole {
                    Manifest::new(*pass, &prepared.schema, shards)?.sync_names(&out)
                } else {
                    Ok(())
                }
            };
            let mut written = None;
            let write_and_learn: FusedLearnFn<'_> = &mut |lanes, finalize| {
                let request = FusionRequest {
                    lanes,
                    finalize,
                    link: &sync,
                };
                written = write.write_and_learn(write_work, &prepared, &target, &request)?;
                if written.is_none() {
                    finalize(FusedCoverage::default())
                } else {
                    Ok(())
                }
            };
            let result = learner.run(&work.lanes, Some(write_and_learn))?;
            let schema = prepared.schema.clone();
            Ok((
                result,
                written.map(|result| (*pass, FusedWrite { schema, result })),
            ))
        })?;
        self.fused_writes.extend(fused);
        Ok(result)
    }

    /// The first write pass after a learn pass that needs no finding of it, and whose windows all get their rows
    /// in order of time.
    pub(super) fn fusable_write(
        &self,
        pass: usize,
        recorded: &BTreeMap<ContentId, RecordedPass>,
    ) -> Option<FusableWrite> {
        if self.session.cluster.is_some() || self.session.attempt.backfill_turn.is_some() {
            return None;
        }
        for pass in &self.program.passes[pass..] {
            let PassWork::Write(work) = &pass.work else {
                continue;
            };
            let Some(recorded_pass) = recorded.get(&pass.id) else {
                continue;
            };
            if recorded_pass.decision != ReuseDecision::Reuse && self.is_fusable(work) {
                return Some(FusableWrite {
                    pass: pass.id,
                    work: work.clone(),
                });
            }
        }
        None
    }

    /// True if the rows of a sink can be written while they are read to learn from them.
    fn is_fusable(&self, work: &SinkWork) -> bool {
        let bound = &self.program.bound;
        let mut analyzers = needed_ops(&work.scans).flat_map(|op| &bound.ops[op].asks);
        if !analyzers.all(|ask| self.has_finding(*ask)) {
            return false;
        }
        for scan in &work.scans {
            if !matches!(bound.bases[scan.base], BaseDataset::Source(_)) {
                return false;
            }
        }
        let mut windows = self.program.windows_of(&work.scans).into_iter();
        windows.all(|op| self.row_order_of(op) == WindowRowOrder::Time)
    }

    fn has_finding(&self, ask: AnalyzerId) -> bool {
        let state_id = &self.program.state_ids[ask];
        self.program.bound.asks[ask].held.is_some() || self.state.findings.contains_key(state_id)
    }

    pub fn learn_pass<'r>(
        &'r self,
        windows: &BTreeSet<OpId>,
        cluster: Option<ClusterHandle<'r>>,
    ) -> LearnPass<'r> {
        let session = self.session;
        LearnPass {
            context: self.pass_context(windows),
            pipeline: self.pipeline,
            store: &self.store,
            scratch: &self.scratch,
            watch: session.watch.as_ref(),
            cluster,
            on_worker: self.on_worker,
            states: None,
            along: None,
        }
    }
}
