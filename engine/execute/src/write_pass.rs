//! Write passes: threads transform and encode spans. Consecutive spans of a history become shards, which later runs keep;
//! other datasets become one shard.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use arrow::array::AsArray;
use arrow::compute::{and, filter_record_batch};
use arrow::datatypes::{Field, Schema, SchemaRef};
use forebay_cluster::{TaskControl, TaskKind, TaskOutcome};
use forebay_commit::Shard;
use forebay_model::{AnalyzerInput, ContentId, Fault, Result, RowChange, catch_panic_at};
use forebay_plan::{Carry, ChainContext, ColumnScan, ColumnTap, OpChain, RowCounts, SinkWork};
use forebay_storage::{Event, EventListener, Sink};

use crate::ordered_scan::{
    CheckpointHook, OrderedScan, ReadMode, ScanCursor, SpanRef, SpanTimeline,
};
use crate::pass_context::PassContext;
use crate::read_ahead::ReadAhead;
use crate::recursive_rows::{GiveFn, RecursiveRows};
use crate::remote::{ClusterHandle, WorkerTask};
use crate::row_groups::{RowGroup, RowGroupBuilder, written_batch};
use crate::scan_progress::ScanProgress;
use crate::shard_writer::{EncodedShard, ShardContext, has_files};
use crate::span_index::WorkUnit;
use crate::write_target::WriteTarget;

/// The cost of computing the rows of shards, as a share of reading, computing and encoding them.
const COMPUTING_SHARE: f64 = 0.55;

/// A write pass.
pub struct WritePass<'a> {
    pub context: PassContext<'a>,
    pub watch: &'a dyn EventListener,
    pub sink: &'a dyn Sink,
    pub cluster: Option<ClusterHandle<'a>>,
}

/// Rows to run through their chains.
#[derive(Clone, Copy)]
pub struct WrittenRows<'a> {
    pub sequence: &'a OrderedScan<'a>,
    pub tasks: &'a [SpanRef],
    pub columns: ReadMode,
    pub target: &'a WriteTarget<'a>,
    pub stop: &'a AtomicBool,
}

/// Compiled operations, one chain for each scan, and the schema of their output: nullable columns of logical types.
pub struct PreparedChains {
    pub schema: SchemaRef,
    chains: Vec<OpChain>,
    /// The columns that the sink takes from the first chain.
    pub want: ColumnTap,
    /// See [`SinkWork::first_scan`].
    first_scan: usize,
}

/// The result of a write pass.
#[derive(Default)]
pub struct WriteResult {
    /// In row order, those of earlier runs among them.
    pub shards: Vec<Shard>,
    /// Rows of the shards of earlier runs.
    pub rows_kept: u64,
    /// The id of the window state at the end, if it was kept.
    pub carry: Option<ContentId>,
}

/// A shard that an earlier attempt committed, or that is to be finished.
enum ShardOutcome<'a> {
    Kept(Shard),
    Complete(Box<EncodedShard<'a>>),
}

impl PreparedChains {
    pub fn new(chains: Vec<OpChain>, want: ColumnTap) -> Result<PreparedChains> {
        let first = chains
            .first()
            .ok_or_else(|| Fault::internal("a sink without rows to read"))?;
        let fields: Vec<Field> = first
            .fields(0)
            .iter()
            .map(|field| field.clone().with_nullable(true))
            .collect();
        Ok(PreparedChains {
            schema: Arc::new(Schema::new(fields)),
            chains,
            want,
            first_scan: 0,
        })
    }

    /// The operations of each scan.
    pub fn chains(&self) -> &[OpChain] {
        &self.chains
    }
}

impl WritePass<'_> {
    /// Compiles the operations, once for all threads: their findings can be large.
    pub fn prepare(
        &self,
        SinkWork {
            scans,
            columns,
            part,
            first_scan,
            ..
        }: &SinkWork,
    ) -> Result<PreparedChains> {
        let want = |scan: &ColumnScan| {
            let after = scan
                .streams
                .first()
                .map_or(0, |stream| stream.stream.ops.len());
            ColumnTap {
                after,
                columns: columns.clone(),
                part: part.clone(),
                marks_unfound: true,
            }
        };
        let chains = scans.iter().map(|scan| self.chain(scan, &[want(scan)]));
        let first = scans
            .first()
            .ok_or_else(|| Fault::internal("a sink without rows to read"))?;
        let prepared = PreparedChains::new(chains.collect::<Result<Vec<_>>>()?, want(first))?;
        Ok(PreparedChains {
            first_scan: *first_scan,
            ..prepared
        })
    }

    /// The operations of a scan. The first tap is the sink's.
    pub fn chain(&self, scan: &ColumnScan, wants: &[ColumnTap]) -> Result<OpChain> {
        let stream = scan
            .streams
            .first()
            .ok_or_else(|| Fault::internal("a scan without a stream"))?;
        let bound = &self.context.program.bound;
        let compile = |told: ChainContext<'_>| {
            OpChain::new(
                bound,
                &stream.stream,
                &stream.needed,
                &scan.columns,
                wants,
                told,
            )
        };
        self.context.with_chains(compile)
    }

    pub fn ordered_scan<'s>(
        &'s self,
        scans: &'s [ColumnScan],
        prepared: &'s PreparedChains,
    ) -> OrderedScan<'s> {
        OrderedScan {
            context: self.context,
            scans,
            first_scan: prepared.first_scan,
            chains: prepared.chains.iter().collect(),
            computing: COMPUTING_SHARE,
            ahead: ReadAhead::new(self.context.threads),
        }
    }

    /// The number of spans that have to be read, and the number of all spans.
    pub fn spans_to_read(
        &self,
        scans: &[ColumnScan],
        prepared: &PreparedChains,
        target: &WriteTarget<'_>,
    ) -> Result<(usize, usize)> {
        let sequence = self.ordered_scan(scans, prepared);
        let line = sequence.timeline()?;
        if !sequence.is_ordered() && !self.context.is_history(scans)? {
            return Ok((line.tasks.len(), line.tasks.len()));
        }
        let parts = self.work_units(&sequence, &line, target)?;
        let todo = parts.iter().filter(|part| part.known.is_none());
        Ok((todo.map(|part| part.tasks.len()).sum(), line.tasks.len()))
    }

    /// Whether windows need the state of all rows before: a checkpoint, or else all rows.
    pub fn depends_on_all_before(
        &self,
        scans: &[ColumnScan],
        prepared: &PreparedChains,
    ) -> Result<bool> {
        Ok(self.ordered_scan(scans, prepared).timeline()?.needs_all())
    }

    /// Writes all rows that no earlier run has written.
    pub fn run(
        &self,
        scans: &[ColumnScan],
        prepared: &PreparedChains,
        target: &WriteTarget<'_>,
    ) -> Result<WriteResult> {
        let sequence = self.ordered_scan(scans, prepared);
        let in_shards = self.cluster.is_some() || sequence.is_ordered();
        let made = match in_shards || self.context.is_history(scans)? {
            true => {
                let line = sequence.timeline()?;
                let parts = self.work_units(&sequence, &line, target)?;
                let (sequence, line, layout) = (&sequence, &line, &self.sink.layout());
                self.write_shards(
                    &ShardContext {
                        sequence,
                        prepared,
                        target,
                        line,
                        along: None,
                        layout,
                    },
                    parts,
                )?
            }
            false => WriteResult {
                shards: vec![self.write_one_shard(&sequence, &prepared.schema, target)?],
                ..WriteResult::default()
            },
        };
        self.with_schema_file(made, prepared, target)
    }

    /// Adds a file without rows to an output without files, so that readers see its columns.
    pub fn with_schema_file(
        &self,
        mut made: WriteResult,
        prepared: &PreparedChains,
        target: &WriteTarget<'_>,
    ) -> Result<WriteResult> {
        if !has_files(&made.shards) {
            let files = target
                .begin(prepared.schema.clone(), target.pass)?
                .finish(true)?;
            let sums = made
                .shards
                .into_iter()
                .reduce(Shard::merged_with)
                .unwrap_or_default();
            made.shards = vec![Shard {
                id: target.pass.to_string(),
                files,
                ..sums
            }];
        }
        Ok(made)
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
        serve(&|what, control| {
            let work =
                |part: &WorkUnit,
                 carry: &mut Carry,
                 stop: &AtomicBool,
                 seal: CheckpointHook<'_>| match target.kept(part.id)? {
                    Some(shard) if !sequence.is_ordered() => Ok(Some(ShardOutcome::Kept(shard))),
                    Some(shard) => {
                        if !{
                            let cursor = ScanCursor {
                                carry,
                                reads: &sequence,
                            };
                            sequence.advance_over(&line.tasks[part.tasks.clone()], cursor, stop)?
                        } {
                            return Ok(None);
                        }
                        seal(carry).map(|()| Some(ShardOutcome::Kept(shard)))
                    }
                    None => Ok(self
                        .encode_shard(&making, part, carry, seal, stop)?
                        .map(|new| ShardOutcome::Complete(Box::new(new)))),
                };
            let finish = |whole: ShardOutcome<'_>| match whole {
                ShardOutcome::Kept(shard) => Ok(shard),
                ShardOutcome::Complete(complete) => self
                    .finish_shard(&making, *complete)
                    .map(|(_, shard)| shard),
            };
            let task = WorkerTask {
                line: &line,
                operation: target.shape,
                units_of: target.shards,
                store: target.store,
                scratch: target.scratch,
                kind: what,
                control,
                finish_threads: self.finish_threads(target),
            };
            sequence.run_task(&task, work, &finish)
        });
        Ok(())
    }

    /// The wanted spans as work units, with the shards that are committed.
    pub fn work_units(
        &self,
        sequence: &OrderedScan<'_>,
        line: &SpanTimeline,
        target: &WriteTarget<'_>,
    ) -> Result<Vec<WorkUnit>> {
        let wanted = self.spans_in_interval(sequence, &line.tasks, target)?;
        match self.recursive_rows(sequence, &line.tasks[wanted.clone()])? {
            Some(_) => target.whole_part(&line.history, wanted),
            None => target.parts(&line.history, wanted),
        }
    }

    /// Consecutive spans that hold all wanted rows.
    pub fn spans_in_interval(
        &self,
        sequence: &OrderedScan<'_>,
        tasks: &[SpanRef],
        target: &WriteTarget<'_>,
    ) -> Result<Range<usize>> {
        if sequence.first_scan > 0 {
            let first = tasks
                .iter()
                .position(|task| task.scan >= sequence.first_scan);
            return Ok(first.unwrap_or(tasks.len())..tasks.len());
        }
        match (&target.within, sequence.scans) {
            (Some(within), [scan]) => {
                Ok(within.overlapping_spans(&self.context.input(scan.base)?.dataset))
            }
            _ => Ok(0..tasks.len()),
        }
    }

    /// Runs an encoding. The fault of a panic names the output.
    pub fn catch_encoding<T>(&self, work: impl FnOnce() -> Result<T>) -> Result<T> {
        catch_panic_at(
            |fault| {
                fault.note(format!(
                    "rows were being encoded for `{}`",
                    self.sink.path()
                ))
            },
            work,
        )
    }

    /// Runs the rows of some spans through their chains. `learn` gets the inputs of fused analyzers, and `take` the full
    /// row groups. `None` if the pass was stopped.
    pub fn process_rows(
        &self,
        rows: &WrittenRows<'_>,
        cursor: ScanCursor<'_>,
        groups: &mut RowGroupBuilder<'_>,
        learn: &mut dyn FnMut(usize, AnalyzerInput<'_>) -> Result<()>,
        take: &mut dyn FnMut(RowGroup) -> Result<()>,
    ) -> Result<Option<RowCounts>> {
        let WrittenRows {
            sequence,
            tasks,
            columns,
            target,
            stop,
        } = *rows;
        let mut spans = Vec::with_capacity(tasks.len());
        for task in tasks {
            spans.push(
                &self
                    .context
                    .input(sequence.scans[task.scan].base)?
                    .dataset
                    .spans[task.span],
            );
        }
        let mut progress = ScanProgress::new(spans.into_iter(), 1.0);
        let mut counts = RowCounts::default();
        let mut recursive = self.recursive_rows(sequence, tasks)?;
        let ScanCursor { carry, reads } = cursor;
        let cursor = ScanCursor {
            carry: &mut *carry,
            reads,
        };
        let mut run = |carry: &mut Carry,
                       rows: &mut dyn FnMut(&mut Carry, GiveFn<'_>) -> Result<RowCounts>|
         -> Result<()> {
            let mut batches = Vec::new();
            let mut give = |want: usize, input: AnalyzerInput<'_>| match want.checked_sub(1) {
                None => {
                    let batch = written_batch(groups.schema, input.columns, input.rows)?;
                    let unfound = input.columns.get(batch.num_columns());
                    batches.push((batch, unfound.map(|marks| marks.as_boolean().clone())));
                    Ok(())
                }
                Some(question) => learn(question, input),
            };
            let streamed = rows(carry, &mut give);
            let streamed =
                streamed.map_err(|fault| self.context.state.record_order_failure(carry, fault))?;
            counts.add(&streamed);
            for (mut batch, mut unfound) in batches {
                if let Some(within) = &target.within {
                    let rows = batch.num_rows();
                    let inside = within.inside(&batch)?;
                    if inside.true_count() < rows {
                        batch = filter_record_batch(&batch, &inside)?;
                        unfound = unfound.map(|marks| and(&marks, &inside)).transpose()?;
                    }
                    let outside = (rows - batch.num_rows()) as u64;
                    counts.remove("", RowChange::OutsideInterval, outside);
                }
                counts.without_history += unfound.map_or(0, |marks| marks.true_count() as u64);
                groups.push(batch)?.into_iter().try_for_each(&mut *take)?;
            }
            Ok(())
        };
        let whole = sequence.for_each_chunk_group(
            tasks,
            columns,
            cursor,
            stop,
            &mut |scan, chunks, carry| {
                run(carry, &mut |carry, give| match &mut recursive {
                    Some(recursive) => recursive.push(chunks, carry, give),
                    None => sequence.chains[scan].run(chunks, carry, give),
                })?;
                let rows = chunks
                    .iter()
                    .map(|chunk| chunk.batch.num_rows() as u64 + chunk.skipped)
                    .sum();
                self.watch.on_event(Event::Progress {
                    rows,
                    bytes: progress.advance(rows),
                });
                Ok(())
            },
        )?;
        if whole {
            if let Some(recursive) = &mut recursive {
                run(carry, &mut |carry, give| recursive.finish(carry, give))?;
            }
            self.watch.on_event(Event::Progress {
                rows: 0,
                bytes: progress.finish(),
            });
        }
        Ok(whole.then_some(counts))
    }

    /// The rows of spans whose predictions feed later rows, if they do.
    fn recursive_rows<'s>(
        &self,
        sequence: &'s OrderedScan<'_>,
        tasks: &[SpanRef],
    ) -> Result<Option<RecursiveRows<'s>>> {
        let Some(task) = tasks.first() else {
            return Ok(None);
        };
        RecursiveRows::new(
            sequence.chains[task.scan],
            &sequence.scans[task.scan].columns,
        )
    }
}
