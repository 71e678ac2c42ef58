//! `dedupe` on workers, in three waves of tasks. The first reads the keys of runs of spans, and
//! divides them by their hash: each key of a run once, with the position of its row. The second
//! receives all positions of some keys, and chooses the rows that stay. The third reads the rows of
//! groups of spans, and leaves those that stay, in their order. Workers exchange keys and
//! positions, since rows are wider; the coordinator alone receives rows. Exchanged objects lie in
//! the state directory under content-addressed ids.

use std::io::{BufWriter, Read, Seek, Write};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::mpsc::sync_channel;

use arrow::array::RecordBatch;
use arrow::datatypes::Schema;
use arrow::ipc::writer::StreamWriter;
use forebay_analyze::GroupByState;
use forebay_cluster::{
    RunSpec, ShufflePlan, StageContext, StageRef, TaskKind, TaskSpec, run_range,
};
use forebay_commit::StateStore;
use forebay_model::{Fault, Result, RowChange, ScratchSpace, Span, catch_panic, codes};
use forebay_plan::{GatherBy, NodeFlow, OpId, RowCounts};
use forebay_storage::{Event, ScratchDir};
use forebay_threads::{lock, poisoned_lock, start_scoped};
use serde_json::json;
use tempfile::NamedTempFile;

use crate::cluster_handle::{ClusterHandle, RemoteExecutor};
use crate::external_sort::compressed_ipc;
use crate::kept_rows::KeptRows;
use crate::materialize::{FlowSpans, GatheredCounts, MaterializePass, QUEUE_BATCHES, SpanRows};
use crate::one_per_key::{placed_key_spec, placed_rows};
use crate::range_bytes::range_bytes_min;
use crate::restore_order::check_cancel_flag;
use crate::row_position::ROW_BITS;
use crate::run_state::RunState;
use crate::shuffle::{PARTS_MAX, SHARES_PER_SLOT, cut_runs, exchange_id, task_count};
use crate::shuffle_read::{lost_exchange, read_shuffled};

/// Ranges of rows at least that are worth the exchange: with one, a single worker would do all of
/// the work.
const RANGES_MIN: u64 = 2;

/// Bytes of positions that are read at a time.
const POSITIONS_BYTES: u64 = 64 << 10;

/// Bytes of the buffer of a file that a task writes for others; it has one for each partition or
/// group.
const BUFFER_BYTES: usize = 64 << 10;

/// True if the rows of spans with these stored bytes are enough to be divided among workers.
fn is_divisible(bytes: &[u64]) -> bool {
    bytes.len() > 1 && bytes.iter().sum::<u64>() >= RANGES_MIN * range_bytes_min()
}

/// Plans the exchange of a `dedupe` over spans.
fn plan_dedupe(
    pass: &MaterializePass<'_>,
    op: OpId,
    spans: &FlowSpans,
    run_spec: &RunSpec,
    slots: usize,
) -> ShufflePlan {
    let bytes = spans.bytes();
    let parts_max = (slots * SHARES_PER_SLOT).min(PARTS_MAX);
    let runs = vec![cut_runs(&bytes, slots * SHARES_PER_SLOT)];
    let parts = task_count(bytes.iter().sum(), parts_max);
    let groups = cut_runs(&bytes, parts_max);
    let division = json!([op, runs, parts, groups]);
    ShufflePlan {
        id: exchange_id("deduplication", &pass.context, run_spec, &division),
        windows: Vec::new(),
        stand: op,
        runs,
        parts,
        groups,
    }
}

impl MaterializePass<'_> {
    /// True if the rows of a `dedupe` are enough to be divided among workers; `None` for other
    /// gathers, and where the rows are not known yet.
    pub fn is_dedupe_divisible(&self, op: OpId) -> Result<Option<bool>> {
        if !matches!(self.gather(op)?.lower, GatherBy::OnePerKey { .. }) {
            return Ok(None);
        }
        let mut bytes = Vec::new();
        for stream in &self.only_flow(op)?.streams {
            let Ok(input) = self.context.input(stream.base) else {
                return Ok(None);
            };
            bytes.extend(input.dataset.spans.iter().map(Span::bytes));
        }
        Ok(Some(is_divisible(&bytes)))
    }

    /// Passes the kept rows of a gather's input to `take`, in order, as workers choose and read
    /// them. `None` if this process has to do that: for few rows, for rows that depend on those
    /// before them, and where workers lack the memory.
    pub(crate) fn one_per_key_on_workers(
        &self,
        op: OpId,
        workers: ClusterHandle<'_>,
        take: &mut dyn FnMut(RecordBatch) -> Result<()>,
    ) -> Result<Option<GatheredCounts>> {
        let flow = self.only_flow(op)?;
        let spans = self.spans(flow, &flow.column_names())?;
        if spans.is_ordered() || !is_divisible(&spans.bytes()) {
            return Ok(None);
        }
        let stage = StageRef::Dedupe { pass: workers.pass };
        let executor = workers.executor(stage, self.watch.as_ref());
        let slots = workers.cluster.wait_for_slots(workers.interrupt)?;
        let plan = plan_dedupe(self, op, &spans, workers.run_spec, slots);
        // The exchange is removed at the end of the run, even of one that fails.
        lock(&self.context.state.shared)?.push(plan.id);
        if let Err(fault) = executor.run_dedupe(&plan, self.context.state) {
            if fault.code() != codes::MEMORY {
                return Err(fault);
            }
            let label = &self.context.program.bound.ops[op].label;
            let message = format!(
                "`{label}` does not fit into the memory of workers: the coordinator runs it"
            );
            self.watch.on_event(Event::Warning { message });
            return Ok(None);
        }
        let tally = spans.tally();
        for group in 0..plan.groups.len() {
            tally.add_counts(stored_counts(workers.store, &plan, group)?)?;
        }
        let rows = self.take_exchanged(workers.store, &plan, take)?;
        workers.store.drop_shared(plan.id)?;
        let changes = (RowChange::Duplicate, RowChange::Queried);
        Ok(Some(self.settled(op, tally.row_counts()?, rows, changes)))
    }

    /// Passes the rows that workers left to `take`, in order; returns their number. They are read
    /// on a thread of its own.
    fn take_exchanged(
        &self,
        store: &StateStore,
        plan: &ShufflePlan,
        take: &mut dyn FnMut(RecordBatch) -> Result<()>,
    ) -> Result<u64> {
        let mut rows = 0;
        std::thread::scope(|scope| {
            let (sender, batches) = sync_channel::<RecordBatch>(QUEUE_BATCHES);
            let reader = start_scoped(scope, move || {
                catch_panic(|| {
                    for group in 0..plan.groups.len() {
                        let name = rows_name(group);
                        let is_wanted = read_shuffled(store, plan.id, &name, &mut |batch| {
                            sender.send(batch).is_ok()
                        })?;
                        if !is_wanted {
                            break;
                        }
                    }
                    Ok(())
                })
            })?;
            for batch in batches {
                rows += batch.num_rows() as u64;
                self.context.memory.check()?;
                take(batch)?;
            }
            reader.join().unwrap_or_else(|_| Err(poisoned_lock()))
        })?;
        Ok(rows)
    }
}

impl RemoteExecutor<'_> {
    /// Chooses the rows of a `dedupe` on workers, and leaves them in the state directory.
    fn run_dedupe(&self, plan: &ShufflePlan, run_state: &RunState) -> Result<()> {
        let mut common = self.stage_context(run_state);
        common.shuffles.push(plan.clone());
        let mut divide = Vec::new();
        for run in 0..plan.runs.first().map_or(0, Vec::len) {
            divide.push(TaskKind::Divide { side: 0, run });
        }
        let mut choose = Vec::new();
        for part in 0..plan.parts {
            choose.push(TaskKind::Compute { part });
        }
        let mut filter = Vec::new();
        for group in 0..plan.groups.len() {
            filter.push(TaskKind::Filter { group });
        }
        // Three waves: each needs all objects of the one before.
        for kinds in [divide, choose, filter] {
            self.run_wave(&common, kinds, run_state)?;
        }
        Ok(())
    }

    /// Runs tasks that need nothing of each other.
    fn run_wave(
        &self,
        common: &StageContext,
        kinds: Vec<TaskKind>,
        run_state: &RunState,
    ) -> Result<()> {
        let mut tasks = Vec::with_capacity(kinds.len());
        for kind in kinds {
            tasks.push(TaskSpec {
                cost: 1,
                after: None,
                what: kind,
            });
        }
        self.run_tasks(common, tasks, run_state, &mut |_| Ok(()))
            .map_err(|failure| failure.fault)
    }
}

/// A worker's share of a `dedupe`.
pub struct DedupeStage<'a> {
    pub plan: &'a ShufflePlan,
    pub pass: &'a MaterializePass<'a>,
    pub store: &'a StateStore,
    pub stop: &'a AtomicBool,
}

impl DedupeStage<'_> {
    /// Runs a task. An attempt that finds the mark of a finished one does nothing.
    pub fn run(&self, task: &TaskKind) -> Result<()> {
        let GatherBy::OnePerKey { keys, last } = &self.pass.gather(self.plan.stand)?.lower else {
            return Err(other_rows());
        };
        match task {
            TaskKind::Divide { side: 0, run } => self.divide(keys, *last, *run),
            TaskKind::Compute { part } => self.choose(keys, *last, *part),
            TaskKind::Filter { group } => self.filter(*group),
            _ => Err(Fault::internal("a task of another kind than a dedupe has")),
        }
    }

    /// Divides the keys of a run of spans, with the position of the row that stays of each key.
    fn divide(&self, keys: &[String], last: bool, run: usize) -> Result<()> {
        let done = format!("divided-{run}");
        if self.is_done(&done)? {
            return Ok(());
        }
        let runs = self.plan.runs.first().ok_or_else(other_rows)?;
        let spans = self.pass.spans(self.flow()?, keys)?;
        check_spans(runs, &spans)?;
        let spec = placed_key_spec(&spans, last);
        let mut state = GroupByState::new(&spec, &self.state_scratch())?;
        self.pass.scan(
            &spans,
            run_range(runs, run),
            &mut |SpanRows {
                      columns,
                      rows,
                      first,
                  }| {
                check_cancel_flag(self.stop)?;
                state.update(&columns, rows, first)?;
                self.pass.context.memory.check()?;
                Ok(true)
            },
        )?;
        let mut files = new_files(self.plan.parts, self.pass.scratch)?;
        let mut shares: Vec<&mut dyn Write> = Vec::with_capacity(files.len());
        for file in &mut files {
            shares.push(file);
        }
        state.encode_placed(&mut shares)?;
        // The memory of the groups is free before files are uploaded.
        drop(state);
        for (part, file) in files.into_iter().enumerate() {
            self.put_file(&keys_name(run, part), file)?;
        }
        self.mark(&done, &[])
    }

    /// Chooses the rows that stay of all keys of a partition, and divides their positions by the
    /// groups of spans.
    fn choose(&self, keys: &[String], last: bool, part: usize) -> Result<()> {
        let done = format!("chosen-{part}");
        if self.is_done(&done)? {
            return Ok(());
        }
        // The types of keys are those of the compiled steps.
        let spec = placed_key_spec(&self.pass.spans(self.flow()?, keys)?, last);
        let mut state = GroupByState::new(&spec, &self.state_scratch())?;
        for run in 0..self.plan.runs.first().map_or(0, Vec::len) {
            check_cancel_flag(self.stop)?;
            self.read_object(&keys_name(run, part), |input| state.add_placed(input))?;
        }
        let groups = &self.plan.groups;
        let mut files = new_files(groups.len(), self.pass.scratch)?;
        state.for_each_unordered(|results| {
            check_cancel_flag(self.stop)?;
            for position in placed_rows(results)? {
                let span = (position >> ROW_BITS) as usize;
                let group = groups.partition_point(|end| *end <= span);
                let file = files.get_mut(group).ok_or_else(other_rows)?;
                file.write_all(&position.to_le_bytes())
                    .map_err(write_failed)?;
            }
            Ok(())
        })?;
        for (group, file) in files.into_iter().enumerate() {
            self.put_file(&chosen_name(group, part), file)?;
        }
        self.mark(&done, &[])
    }

    /// Reads the rows of a group of spans, and leaves those that stay, in their order.
    fn filter(&self, group: usize) -> Result<()> {
        let done = counts_name(group);
        if self.is_done(&done)? {
            return Ok(());
        }
        let flow = self.flow()?;
        let spans = self.pass.spans(flow, &flow.column_names())?;
        check_spans(&self.plan.groups, &spans)?;
        let memory = self.pass.context.memory;
        let mut stays = KeptRows::default();
        for part in 0..self.plan.parts {
            check_cancel_flag(self.stop)?;
            self.read_object(&chosen_name(group, part), |input| {
                read_positions(input, &mut |positions| stays.add(positions, memory))
            })?;
        }
        let columns: Vec<usize> = (0..spans.schema.fields().len() - 1).collect();
        let schema: Arc<Schema> = Arc::new(spans.schema.project(&columns)?);
        let scratch = self.pass.scratch;
        self.store
            .put_shared(self.plan.id, &rows_name(group), scratch, &mut |out| {
                let mut writer =
                    StreamWriter::try_new_with_options(out, &schema, compressed_ipc()?)?;
                self.pass
                    .scan(&spans, self.plan.group(group), &mut |read| {
                        check_cancel_flag(self.stop)?;
                        memory.check()?;
                        if let Some(batch) = stays.filter(read, &schema)? {
                            writer.write(&batch)?;
                        }
                        Ok(true)
                    })?;
                Ok(writer.finish()?)
            })?;
        let counts = serde_json::to_vec(&spans.counts()?)
            .map_err(|error| Fault::internal("counts of rows").cause(error))?;
        self.mark(&done, &counts)
    }

    /// The rows that the step reads.
    fn flow(&self) -> Result<&NodeFlow> {
        self.pass.only_flow(self.plan.stand)
    }

    /// The memory and the files of groups.
    fn state_scratch(&self) -> Arc<dyn ScratchSpace> {
        let memory = self.pass.context.memory;
        self.pass
            .scratch
            .scratch_with_budget(memory, memory.engine_bytes())
    }

    /// True if an attempt has left everything that a mark stands for.
    fn is_done(&self, name: &str) -> Result<bool> {
        let mark = self.store.get_shared(self.plan.id, name, drain)?;
        Ok(mark.is_some())
    }

    /// Leaves a mark, which is written last.
    fn mark(&self, name: &str, content: &[u8]) -> Result<()> {
        self.store
            .put_shared(self.plan.id, name, self.pass.scratch, &mut |out| {
                out.write_all(content).map_err(write_failed)
            })
    }

    /// Leaves a written file for other workers.
    fn put_file(&self, name: &str, file: BufWriter<NamedTempFile>) -> Result<()> {
        let mut file = file
            .into_inner()
            .map_err(|error| write_failed(error.into_error()))?;
        self.store
            .put_shared(self.plan.id, name, self.pass.scratch, &mut |out| {
                file.rewind().map_err(write_failed)?;
                std::io::copy(&mut file, out)
                    .map(drop)
                    .map_err(write_failed)
            })
    }

    /// Reads what another worker left.
    fn read_object(
        &self,
        name: &str,
        read: impl FnOnce(&mut dyn Read) -> Result<()>,
    ) -> Result<()> {
        // The store takes a fault of its reader for a broken object.
        let mut outcome = Ok(());
        let content = self.store.get_shared(self.plan.id, name, |input| {
            outcome = read(input);
            drain(input)
        })?;
        content.ok_or_else(|| lost_exchange(self.plan.id, name))?;
        outcome
    }
}

/// The rows of the spans of a group, as the worker that read them counted.
fn stored_counts(
    store: &StateStore,
    plan: &ShufflePlan,
    group: usize,
) -> Result<Vec<(usize, RowCounts)>> {
    let name = counts_name(group);
    let counts = store.get_shared(plan.id, &name, |input| {
        serde_json::from_reader(input)
            .map_err(|error| Fault::internal("counts of rows").cause(error))
    })?;
    counts.ok_or_else(|| lost_exchange(plan.id, &name))
}

/// Reads positions of eight bytes each and passes them to `take`, many at a time.
fn read_positions(input: &mut dyn Read, take: &mut dyn FnMut(&[u64]) -> Result<()>) -> Result<()> {
    let mut bytes = Vec::with_capacity(POSITIONS_BYTES as usize);
    let mut positions = Vec::new();
    loop {
        bytes.clear();
        input
            .take(POSITIONS_BYTES)
            .read_to_end(&mut bytes)
            .map_err(|error| Fault::disk("positions of rows cannot be read", error))?;
        let (words, remainder) = bytes.as_chunks::<8>();
        if !remainder.is_empty() {
            return Err(Fault::new(codes::CORRUPT, "a position of a row is cut off"));
        }
        if words.is_empty() {
            return Ok(());
        }
        positions.clear();
        for word in words {
            positions.push(u64::from_le_bytes(*word));
        }
        take(&positions)?;
    }
}

/// Reads an input to its end.
fn drain(input: &mut dyn Read) -> Result<()> {
    std::io::copy(input, &mut std::io::sink())
        .map(drop)
        .map_err(|error| Fault::disk("rows of another worker cannot be read", error))
}

/// Refuses a plan for other spans: workers list the spans themselves.
fn check_spans(ends: &[usize], spans: &FlowSpans) -> Result<()> {
    if ends.last().copied().unwrap_or(0) == spans.len() && ends.is_sorted() {
        Ok(())
    } else {
        Err(other_rows())
    }
}

/// Temporary files, one for each share of what a task leaves.
fn new_files(count: usize, scratch: &ScratchDir) -> Result<Vec<BufWriter<NamedTempFile>>> {
    let mut files = Vec::with_capacity(count);
    for _ in 0..count {
        files.push(BufWriter::with_capacity(BUFFER_BYTES, scratch.file()?));
    }
    Ok(files)
}

fn write_failed(error: std::io::Error) -> Fault {
    Fault::disk("rows for another worker cannot be written", error)
}

fn other_rows() -> Fault {
    Fault::internal("a dedupe of other rows")
}

fn keys_name(run: usize, part: usize) -> String {
    format!("keys-{run}-{part}")
}

fn chosen_name(group: usize, part: usize) -> String {
    format!("stays-{group}-{part}")
}

fn rows_name(group: usize) -> String {
    format!("rows-{group}")
}

/// The mark of a group that is read. It holds the counts of the rows.
fn counts_name(group: usize) -> String {
    format!("filtered-{group}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn positions_are_read_in_pieces() {
        let expected: Vec<u64> = (0..POSITIONS_BYTES).map(|row| row * row).collect();
        let bytes: Vec<u8> = expected.iter().flat_map(|row| row.to_le_bytes()).collect();
        let mut found = Vec::new();
        let mut pieces = 0;
        let mut take = |positions: &[u64]| {
            pieces += 1;
            found.extend_from_slice(positions);
            Ok(())
        };
        read_positions(&mut bytes.as_slice(), &mut take).unwrap();
        assert_eq!(found, expected);
        assert_eq!(pieces, 8);
        let cut = &mut &bytes[..bytes.len() - 1];
        let fault = read_positions(cut, &mut |_| Ok(())).unwrap_err();
        assert_eq!(fault.code(), codes::CORRUPT);
    }

    #[test]
    fn few_rows_are_not_divided() {
        let range = range_bytes_min();
        assert!(is_divisible(&[range, range]));
        // One span is one task.
        assert!(!is_divisible(&[2 * range]));
        assert!(!is_divisible(&[range, range - 1]));
        assert!(!is_divisible(&[]));
    }
}
