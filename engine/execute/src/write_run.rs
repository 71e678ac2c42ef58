//! Runs of write passes: in this process, along with analyzers that learn, and as tasks of a worker.

use std::sync::atomic::AtomicBool;

use forebay_cluster::{TaskControl, TaskKind, TaskOutcome};
use forebay_commit::Shard;
use forebay_model::Result;
use forebay_plan::{Carry, ColumnScan, SinkWork};

use crate::fused_learn::{FusedLearner, FusionRequest};
use crate::ordered_scan::{CheckpointHook, ScanCursor};
use crate::remote::WorkerTask;
use crate::shard_writer::{EncodedShard, ShardContext};
use crate::span_index::WorkUnit;
use crate::write_pass::{PreparedChains, WritePass, WriteResult};
use crate::write_target::WriteTarget;

/// At most one part in this many of the stored bytes may be new. Otherwise lanes are learned one after another, each
/// with all the memory, and shards are written afterwards.
const NEW_PART_MAX: u64 = 4;

/// A shard that an earlier attempt committed, or that is to be finished.
enum ShardOutcome<'a> {
    Kept(Shard),
    Complete(Box<EncodedShard<'a>>),
}

impl WritePass<'_> {
    /// Writes all rows that no earlier run has written.
    pub fn run(
        &self,
        scans: &[ColumnScan],
        prepared: &PreparedChains,
        target: &WriteTarget<'_>,
    ) -> Result<WriteResult> {
        let sequence = &self.ordered_scan(scans, prepared);
        let in_shards = self.cluster.is_some() || sequence.is_ordered();
        if in_shards || self.context.is_history(scans)? {
            let line = sequence.timeline()?;
            let parts = self.work_units(sequence, &line, target)?;
            let making = ShardContext {
                sequence,
                prepared,
                target,
                line: &line,
                along: None,
                layout: &self.sink.layout(),
            };
            let written = self.write_shards(&making, parts)?;
            return self.with_schema_file(written, prepared, target);
        }
        let shard = self.write_one_shard(sequence, &prepared.schema, target)?;
        let written = WriteResult {
            shards: vec![shard],
            ..WriteResult::default()
        };
        self.with_schema_file(written, prepared, target)
    }

    /// Writes the new spans of a history and updates the analyzers of some lanes with the same rows. `None` if that
    /// would gain little; then no lane was finalized.
    pub fn write_and_learn(
        &self,
        work: &SinkWork,
        prepared: &PreparedChains,
        target: &WriteTarget<'_>,
        request: &FusionRequest<'_, '_>,
    ) -> Result<Option<WriteResult>> {
        let sequence = self.ordered_scan(&work.scans, prepared);
        let line = sequence.timeline()?;
        // Window state that depends on all rows before has to be checkpointed for each lane.
        if line.needs_all() || !self.context.is_history(&work.scans)? {
            return Ok(None);
        }
        let parts = self.work_units(&sequence, &line, target)?;
        let todo: Vec<&WorkUnit> = parts.iter().filter(|part| part.known.is_none()).collect();
        let bytes: u64 = todo
            .iter()
            .map(|part| line.history.bytes(part.tasks.clone()))
            .sum();
        if bytes > line.history.bytes(0..line.tasks.len()) / NEW_PART_MAX {
            return Ok(None);
        }
        let Some(fused) = FusedLearner::new(self, work, request, &todo)? else {
            return Ok(None);
        };
        let Some(prepared) = &fused.prepare(self, work, prepared)? else {
            return Ok(None);
        };
        let sequence = self.ordered_scan(std::slice::from_ref(&fused.scan), prepared);
        let sequence = &sequence;
        let line = &line;
        let layout = &self.sink.layout();
        let making = ShardContext {
            sequence,
            prepared,
            target,
            line,
            along: Some(&fused),
            layout,
        };
        let written = self.write_shards(&making, parts)?;
        self.with_schema_file(written, prepared, target).map(Some)
    }

    /// Calls `serve` with the function that executes tasks of the pass on a worker. A shard that another process has
    /// committed in the meantime is kept.
    pub fn serve_tasks(
        &self,
        scans: &[ColumnScan],
        prepared: &PreparedChains,
        target: &WriteTarget<'_>,
        serve: impl FnOnce(&(dyn Fn(&TaskKind, &dyn TaskControl) -> Result<TaskOutcome> + Sync)),
    ) -> Result<()> {
        let sequence = &self.ordered_scan(scans, prepared);
        let line = sequence.timeline()?;
        let layout = &self.sink.layout();
        let making = ShardContext {
            sequence,
            prepared,
            target,
            line: &line,
            along: None,
            layout,
        };
        serve(&|kind, control| {
            let task = WorkerTask {
                line: &line,
                operation: target.shape,
                units_of: target.shards,
                store: target.store,
                scratch: target.scratch,
                kind,
                control,
                finish_threads: self.finish_threads(target),
            };
            sequence.run_task(
                &task,
                |part: &WorkUnit,
                 carry: &mut Carry,
                 stop: &AtomicBool,
                 checkpoint_hook: CheckpointHook<'_>| {
                    self.serve_unit(&making, part, carry, stop, checkpoint_hook)
                },
                &|outcome| self.finish_outcome(&making, outcome),
            )
        });
        Ok(())
    }

    /// Encodes the shard of a unit, unless another process has committed it; `None` if the pass was stopped.
    fn serve_unit<'m>(
        &self,
        making: &'m ShardContext<'_>,
        part: &WorkUnit,
        carry: &mut Carry,
        stop: &AtomicBool,
        checkpoint_hook: CheckpointHook<'_>,
    ) -> Result<Option<ShardOutcome<'m>>> {
        let Some(shard) = making.target.kept(part.id)? else {
            let encoded = self.encode_shard(making, part, carry, checkpoint_hook, stop)?;
            return Ok(encoded.map(|shard| ShardOutcome::Complete(Box::new(shard))));
        };
        let sequence = making.sequence;
        // Windows of the next unit need the rows of a committed one, too.
        if sequence.is_ordered() {
            let spans = &making.line.tasks[part.tasks.clone()];
            let cursor = ScanCursor {
                carry: &mut *carry,
                reads: &sequence,
            };
            if !sequence.advance_over(spans, cursor, stop)? {
                return Ok(None);
            }
            checkpoint_hook(carry)?;
        }
        Ok(Some(ShardOutcome::Kept(shard)))
    }

    /// Commits an encoded shard.
    fn finish_outcome(
        &self,
        making: &ShardContext<'_>,
        outcome: ShardOutcome<'_>,
    ) -> Result<Shard> {
        match outcome {
            ShardOutcome::Kept(shard) => Ok(shard),
            ShardOutcome::Complete(encoded) => {
                let (_, shard) = self.finish_shard(making, *encoded)?;
                Ok(shard)
            }
        }
    }
}
