//! Results of earlier runs that each pass can reuse.

use std::collections::BTreeMap;

use forebay_commit::{ReuseDecision, record_is_intact, table_record_is_intact};
use forebay_contract::Sink;
use forebay_model::{ContentId, Result};
use forebay_plan::{ColumnScan, OpId, Pass, PassReuse, PassWork, PlanOp, WindowRowOrder};
use forebay_storage::StorageLocation;
use forebay_window::WindowReach;
use serde_json::Value;

use super::RunExecutor;
use super::recorded_pass::RecordedPass;

impl RunExecutor<'_> {
    /// The records of all write passes.
    pub(super) fn recorded_writes(&self) -> Result<BTreeMap<ContentId, RecordedPass>> {
        let mut recorded = BTreeMap::new();
        for pass in &self.program.passes {
            if let PassWork::Write(work) = &pass.work {
                recorded.insert(pass.id, self.recorded_write(pass.id, work.sink)?);
            }
        }
        Ok(recorded)
    }

    /// The record of a pass that writes a sink.
    fn recorded_write(&self, pass: ContentId, sink: usize) -> Result<RecordedPass> {
        let out = self.session.output(self.pipeline, sink)?;
        let sink = self.session.sink(self.pipeline, sink)?;
        let (decision, record) = self
            .store
            .pass_record(pass, |record| self.is_written(sink.as_ref(), &out, record))?;
        Ok(RecordedPass { decision, record })
    }

    /// True if the data that the record of a write pass names is whole.
    pub(super) fn is_written(
        &self,
        sink: &dyn Sink,
        out: &StorageLocation,
        record: &Value,
    ) -> Result<bool> {
        match sink.table() {
            Some(log) => table_record_is_intact(&self.session.io, out, log, record),
            None => record_is_intact(&self.session.io, out, record),
        }
    }

    /// The record of a pass whose data lie below a location.
    pub(super) fn recorded_pass(
        &self,
        pass: ContentId,
        out: &StorageLocation,
    ) -> Result<RecordedPass> {
        let (decision, record) = self.store.pass_record(pass, |record| {
            record_is_intact(&self.session.io, out, record)
        })?;
        Ok(RecordedPass { decision, record })
    }

    /// Part of a pass that earlier runs have done. A pass that depends on statistics that are not
    /// known yet counts as not done.
    pub fn inspect_pass(&mut self, pass: &Pass) -> Result<PassReuse> {
        let scans: Vec<&ColumnScan> = match &pass.work {
            PassWork::Learn(work) => work.lanes.iter().flat_map(|lane| &lane.scans).collect(),
            PassWork::Write(work) => work.scans.iter().collect(),
            PassWork::Gather(op) => {
                let location = self.store.materialized_location(pass.id);
                let recorded = self.recorded_pass(pass.id, &location)?;
                let done = recorded.decision == ReuseDecision::Reuse;
                let learned_in = if done { None } else { self.learned_in(*op)? };
                // Rows of a pass that has not run cannot be looked at.
                let by_spans = self.bound_groups(*op).is_ok_and(|groups| groups.is_some());
                return Ok(PassReuse {
                    done,
                    learned_in,
                    by_spans,
                    divisible: self.materialize_pass().is_dedupe_divisible(*op)?,
                    ..PassReuse::default()
                });
            }
        };
        let windows = self.program.windows_of(scans);
        for op in &windows {
            self.state
                .row_orders
                .insert(*op, self.choose_row_order(*op));
            // A join of rows that need statistics which are not known yet cannot be opened: nothing is estimated then.
            let _ = self.open_time_join(*op);
        }
        match &pass.work {
            PassWork::Write(work) => {
                let sink = self.session.sink(self.pipeline, work.sink)?;
                let out = self.session.output(self.pipeline, work.sink)?;
                let recorded = self.recorded_write(pass.id, work.sink)?;
                let is_bounded = |op: OpId| match &self.program.bound.ops[op].op {
                    PlanOp::Window(window) if self.state.row_order(op) == WindowRowOrder::Time => {
                        window.plan.reach() != WindowReach::Unbounded
                    }
                    _ => true,
                };
                let is_interval = self.intervals.contains_key(&pass.id);
                let can_run_concurrently =
                    is_interval.then(|| windows.iter().copied().all(is_bounded));
                if recorded.decision == ReuseDecision::Reuse {
                    return Ok(PassReuse {
                        done: true,
                        beside: can_run_concurrently,
                        ..PassReuse::default()
                    });
                }
                let write = self.write_pass(sink.as_ref(), &windows, None);
                let to_read = write.prepare(work).and_then(|prepared| {
                    let target = self.write_target(work, pass.id, sink.as_ref(), &out)?;
                    write.spans_to_read(&work.scans, &prepared, &target)
                });
                Ok(PassReuse {
                    to_read: to_read.ok(),
                    beside: can_run_concurrently,
                    ..PassReuse::default()
                })
            }
            PassWork::Learn(work) => {
                let to_read = self.learn_pass(&windows, None).to_read(&work.lanes).ok();
                Ok(PassReuse {
                    to_read,
                    ..PassReuse::default()
                })
            }
            PassWork::Gather(_) => Ok(PassReuse::default()),
        }
    }
}
