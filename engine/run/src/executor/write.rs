//! Write passes: the files of an output, and the record that makes them reusable.

use std::collections::BTreeSet;

use forebay_commit::{IntervalEntry, Manifest, ReuseDecision, id_texts};
use forebay_contract::{Sink, TableScope};
use forebay_execute::{ClusterHandle, WritePass, WriteTarget};
use forebay_model::{ContentId, Fault, IdBuilder, Result, RowChange, RowSum, codes};
use forebay_plan::{BaseDataset, OpId, SinkWork, operation_id};
use forebay_storage::{Event, StorageLocation};
use serde::Serialize;
use serde_json::{Value, json};

use super::recorded_pass::RecordedPass;
use super::{FusedWrite, RunExecutor, StagedOutput};
use crate::backfill_turn::BackfillStage;
use crate::pass_interval::interval_pass_id;
use crate::report::PassReport;

impl RunExecutor<'_> {
    /// Runs the write pass at `pass_index`, unless its recorded files can be used again.
    pub(super) fn write(
        &mut self,
        work: &SinkWork,
        pass: ContentId,
        recorded: RecordedPass,
        report: &mut PassReport,
    ) -> Result<StagedOutput> {
        let out = self.session.output(self.pipeline, work.sink)?;
        let mut input_sums = self.sums_before(work);
        let manifest = match recorded {
            RecordedPass {
                decision: ReuseDecision::Reuse,
                record: Some(record),
            } => {
                report.reused = true;
                if let Some(counted) = recorded_sums(&record)? {
                    input_sums = counted;
                }
                Manifest::from_record(&record)?
            }
            RecordedPass { decision, .. } => {
                self.write_files(work, pass, decision, &out, report, &input_sums)?
            }
        };
        let mut counts = manifest.counts();
        self.joins.add(counts.joins);
        if report.reused {
            report.rows_kept = counts.input;
        }
        let expected = counts.output();
        if work.part.is_none() && expected != manifest.rows as i64 {
            return Err(Fault::internal(format!(
                "{expected} rows became {}",
                manifest.rows
            )));
        }
        let of_other_parts = (expected - manifest.rows as i64).max(0).unsigned_abs();
        counts.remove("", RowChange::OtherPart, of_other_parts);
        report.count(&counts);
        report.rows_out = manifest.rows;
        let row_sum = self.row_sum(&counts, input_sums)?;
        let manifest = Manifest {
            ladder: self.degradation.clone(),
            ..manifest
        };
        let pass_interval = self.intervals.get(&pass);
        let written = pass_interval.and_then(|pass| Some((pass.interval.as_ref()?, &pass.filter)));
        let interval = written.map(|(interval, filter)| IntervalEntry {
            from: interval.from.clone(),
            to: interval.to.clone(),
            first: filter.first,
            last: filter.last,
            pass: pass.to_string(),
            shards: manifest.shards.len(),
        });
        let scope = match written {
            Some((_, filter)) => TableScope::Interval {
                column: filter.column.clone(),
                first: filter.first,
                last: filter.last,
            },
            None => TableScope::All,
        };
        Ok(StagedOutput {
            work: work.clone(),
            out,
            manifest,
            interval,
            scope,
            rows_in: counts.input,
            row_sum,
            label: String::new(),
        })
    }

    /// Writes the files of an output, or takes those that a learn pass has written, and records them.
    fn write_files(
        &mut self,
        work: &SinkWork,
        pass: ContentId,
        decision: ReuseDecision,
        out: &StorageLocation,
        report: &mut PassReport,
        input_sums: &[RowSum],
    ) -> Result<Manifest> {
        let session = self.session;
        let sink = session.sink(self.pipeline, work.sink)?;
        let windows = self.program.windows_of(&work.scans);
        let FusedWrite { schema, result } = match self.fused_writes.remove(&pass) {
            Some(fused) => {
                session.watch.on_event(Event::PassReads {
                    bytes: 0,
                    of: self.scan_bytes(work).unwrap_or(0),
                });
                fused
            }
            None => self.retry_with_fallback(&windows, |run| {
                let write = run.write_pass(
                    sink.as_ref(),
                    &windows,
                    run.cluster_for(run.pass_index, &windows),
                );
                let prepared = write.prepare(work)?;
                let target = run.write_target(work, pass, sink.as_ref(), out)?;
                if session.attempt.backfill_turn.is_some()
                    && write.depends_on_all_before(&work.scans, &prepared)?
                {
                    session.wait_for_previous_run(BackfillStage::Done)?;
                }
                let result = write.run(&work.scans, &prepared, &target)?;
                Ok(FusedWrite {
                    schema: prepared.schema.clone(),
                    result,
                })
            })?,
        };
        report.rows_kept = result.rows_kept;
        let manifest = Manifest::new(pass, &schema, result.shards)?;
        let mut carries = self.kept_join_states(&windows)?;
        carries.extend(result.carry);
        let carries = id_texts(&carries);
        let record = WriteRecord {
            out: &out.shown,
            manifest: &manifest,
            carries,
            rows_before: input_sums,
        };
        session.check_fence()?;
        self.store
            .put_pass_record(pass, decision, &record, |record| {
                self.is_written(sink.as_ref(), out, record)
            })?;
        Ok(manifest)
    }

    pub fn write_pass<'w>(
        &'w self,
        sink: &'w dyn Sink,
        windows: &BTreeSet<OpId>,
        cluster: Option<ClusterHandle<'w>>,
    ) -> WritePass<'w> {
        let context = self.pass_context(windows);
        WritePass {
            context,
            watch: self.session.watch.as_ref(),
            sink,
            cluster,
        }
    }

    pub fn write_target<'w>(
        &'w self,
        work: &SinkWork,
        pass: ContentId,
        sink: &'w dyn Sink,
        out: &'w StorageLocation,
    ) -> Result<WriteTarget<'w>> {
        // Only outputs in shards need this id; hashing all findings can take a while.
        let in_shards = self.state.in_shards(&self.program, &work.scans)?;
        let shape = if in_shards {
            self.shard_operation_id(work)?
        } else {
            None
        }
        .unwrap_or(pass);
        let pass_interval = self.intervals.get(&pass);
        let within = pass_interval.map(|pass| pass.filter.clone());
        let shards = within
            .as_ref()
            .map_or(shape, |within| interval_pass_id(shape, within));
        let io = &self.session.io;
        let store = &self.store;
        let scratch = &self.scratch;
        let table = sink.table();
        // What one run adds to a table, another one does not add again.
        let shards = if table.is_some_and(|table| table.appends()) {
            let mut id = IdBuilder::new("appended");
            id.id(shards).id(pass);
            id.finish()
        } else {
            shards
        };
        let shared = self.on_worker || out.local.is_none() || table.is_some();
        let removed = match table {
            Some(table) => Manifest::removed_from_table(io, out, table)?,
            None => Manifest::removed_directories(io, out)?,
        };
        Ok(WriteTarget {
            io,
            sink,
            out,
            store,
            scratch,
            pass,
            shape,
            shards,
            within,
            shared,
            removed,
        })
    }

    /// The id of the operations of a sink's write pass on the rows of each span. `None` where the
    /// result depends on more than single spans.
    fn shard_operation_id(&self, work: &SinkWork) -> Result<Option<ContentId>> {
        let bases = &self.program.bound.bases;
        let mut scans = work.scans.iter();
        // The rows of a gather depend on all rows before it.
        if scans.any(|scan| matches!(bases[scan.base], BaseDataset::Gathered(_))) {
            return Ok(None);
        }
        let sink = &self.pipeline.sinks[work.sink];
        let mut id = IdBuilder::new("shards");
        id.text(&sink.format)
            .json(&sink.config_without_path())
            .json(&json!([work.columns, work.part]));
        let digest = |ask| self.state.digest(&self.program, ask);
        let row_order = |op| self.state.row_order(op);
        for scan in &work.scans {
            match operation_id(
                &self.program.bound,
                self.pipeline,
                scan,
                &row_order,
                &digest,
            )? {
                Some(shape) => id.id(shape),
                None => return Ok(None),
            };
        }
        Ok(Some(id.finish()))
    }
}

/// The record of a write pass.
#[derive(Serialize)]
struct WriteRecord<'a> {
    out: &'a str,
    manifest: &'a Manifest,
    carries: Vec<String>,
    /// The rows of the intermediate datasets that it read. Records of earlier versions have none.
    #[serde(skip_serializing_if = "<[RowSum]>::is_empty")]
    rows_before: &'a [RowSum],
}

/// The rows of the intermediate datasets that a recorded write pass read; `None` if the record holds none.
fn recorded_sums(record: &Value) -> Result<Option<Vec<RowSum>>> {
    let Some(sums) = record.get("rows_before") else {
        return Ok(None);
    };
    serde_json::from_value(sums.clone())
        .map(Some)
        .map_err(|error| {
            let message = "the record of a pass cannot be read";
            Fault::new(codes::STATE_VERSION, message).cause(error)
        })
}
