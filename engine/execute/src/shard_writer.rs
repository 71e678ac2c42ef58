//! Writes the shards of a history: units of consecutive spans in parallel, each shard with files of its own.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use arrow::datatypes::SchemaRef;
use forebay_cluster::StageRef;
use forebay_commit::{OutputFile, OutputWriter, Shard};
use forebay_contract::{EncodedBatch, EncodedPiece, FileLayout, total_rows};
use forebay_model::{AnalyzerInput, ContentId, Fault, Result, SeriesCounts, catch_panic};
use forebay_plan::{Carry, RowCounts, WindowBudget};
use forebay_storage::Event;
use forebay_threads::{FlushPool, OnComplete, WorkSharingPool, lock, poisoned_lock};

use crate::chunk_source::{ChunkPrefetch, ReadMode, SpanRef};
use crate::fused_learn::FusedLearner;
use crate::ordered_scan::{
    CheckpointHook, OrderedScan, PendingUnits, RangeExecution, ScanCursor, SpanTimeline,
    UnitResults,
};
use crate::row_groups::{EncodedRowGroup, RowGroup, RowGroupBuilder, RowGroupLimits};
use crate::series_counts::warn_of_counts;
use crate::span_index::WorkUnit;
use crate::write_pass::{PreparedChains, WritePass, WriteResult, WrittenRows};
use crate::write_target::WriteTarget;

/// Merges the new shards, by their first spans, with the committed ones, in order.
type OrderShardsFn<'a> = &'a (dyn Fn(&BTreeMap<usize, Shard>) -> Result<Vec<Shard>> + Sync);

/// The inputs of writing shards.
pub struct ShardContext<'a> {
    pub sequence: &'a OrderedScan<'a>,
    pub prepared: &'a PreparedChains,
    pub target: &'a WriteTarget<'a>,
    pub line: &'a SpanTimeline,
    /// Analyzers that read the rows that are written.
    pub along: Option<&'a FusedLearner<'a>>,
    pub layout: &'a FileLayout,
}

/// A shard being written: any thread encodes groups of its rows; they are appended in order.
struct ShardBuilder<'a> {
    part: WorkUnit,
    schema: SchemaRef,
    /// The number of pieces into which each group is encoded.
    pieces: usize,
    state: Mutex<ShardProgress<'a>>,
}

struct ShardProgress<'a> {
    files: Option<OutputWriter<'a>>,
    /// The number of groups in the files.
    appended: usize,
    /// Encoded groups, by number, that wait for earlier ones.
    waiting: BTreeMap<usize, EncodedRowGroup>,
    end: Option<ShardTotals>,
}

/// The totals of a shard, known once all its rows were computed.
struct ShardTotals {
    groups: usize,
    counts: RowCounts,
}

/// A shard whose rows are all encoded.
pub struct EncodedShard<'a> {
    part: WorkUnit,
    files: OutputWriter<'a>,
    end: ShardTotals,
}

/// A row group that is being encoded.
struct RowGroupJob<'a> {
    shard: Arc<ShardBuilder<'a>>,
    number: usize,
    ready: RowGroup,
    pieces: Mutex<EncodedPieces>,
}

/// The encoded pieces of a group.
#[derive(Default)]
struct EncodedPieces {
    done: usize,
    /// Pieces by their positions in the file.
    pieces: BTreeMap<usize, EncodedPiece>,
}

impl ShardContext<'_> {
    /// Units of this pass that are to be written.
    fn pending<'u>(&'u self, units: &'u [WorkUnit]) -> PendingUnits<'u> {
        let WriteTarget {
            shape,
            store,
            scratch,
            ..
        } = *self.target;
        PendingUnits {
            line: self.line,
            operation: shape,
            store,
            scratch,
            units,
        }
    }
}

impl<'a> ShardBuilder<'a> {
    /// Adds an encoded group, or the end; returns the shard if it is now complete.
    fn add(&self, add: impl FnOnce(&mut ShardProgress<'a>)) -> Result<Option<EncodedShard<'a>>> {
        let mut guard = lock(&self.state)?;
        let state = &mut *guard;
        add(state);
        let Some(files) = &mut state.files else {
            return Ok(None);
        };
        while let Some(part) = state.waiting.remove(&state.appended) {
            // A panic must not poison the lock: the other threads would report the poisoned lock instead.
            catch_panic(|| files.append(&part.partition, part.encoded, part.ends_file))?;
            state.appended += 1;
        }
        let Some(end) = state.end.take_if(|end| end.groups == state.appended) else {
            return Ok(None);
        };
        Ok(state.files.take().map(|files| EncodedShard {
            part: self.part.clone(),
            files,
            end,
        }))
    }
}

/// Writing of the shards of a pass by the threads of this process.
struct ShardRun<'a, 'm> {
    pass: &'a WritePass<'a>,
    making: &'m ShardContext<'m>,
    /// Set by the first thread that fails, so that the others stop
    failed: AtomicBool,
    /// Committed shards by their first spans
    written: Mutex<BTreeMap<usize, Shard>>,
}

impl<'m> ShardRun<'_, 'm> {
    /// Computes the rows of units. Idle threads prefetch chunks, encode computed rows, and compute
    /// partitions of series for the threads with ranges.
    fn compute(
        &self,
        units: &[WorkUnit],
        finishers: &FlushPool<'_, EncodedShard<'m>>,
    ) -> Result<UnitResults<()>> {
        let ShardContext { sequence, line, .. } = self.making;
        let context = self.pass.context;
        let pending = self.making.pending(units);
        let ranges = sequence.local_ranges(&pending, context.threads)?;
        let busy = ranges.len().clamp(1, context.threads.max(1));
        let idle = context.threads.saturating_sub(busy);
        let idle_per_range = idle / ranges.len().max(1);
        // Idle threads hold no rows of their own.
        let thread_bytes = context.memory.rows_bytes() / context.threads.max(1);
        let ahead_bytes = thread_bytes * idle / ranges.len().max(1);
        let readings: Vec<Vec<(SpanRef, ReadMode)>> = ranges
            .iter()
            .map(|range| range.planned_reads(&line.tasks, units))
            .collect();
        sequence.plan_reads(interleaved(&readings))?;
        let open = |(task, columns)| sequence.open_span(task, columns);
        let encode = |group: &RowGroupJob<'m>, piece: usize| self.encode(group, piece, finishers);
        let helpers: WorkSharingPool<'_, RowGroupJob<'m>, ChunkPrefetch> =
            WorkSharingPool::new(&open, &encode, readings, ahead_bytes);
        let budget = WindowBudget::new(context.memory.states_bytes())
            .with_parallelism(1 + idle_per_range, helpers.parallel_for());
        helpers.run_scoped(idle, || {
            sequence.run_on_threads(
                &pending,
                RangeExecution {
                    ranges: &ranges,
                    threads: busy,
                    reads: &|range| Box::new(helpers.reader(range)),
                    around: &|ranges| helpers.run_then_work(ranges),
                    budget,
                },
                |part: &WorkUnit,
                 cursor: ScanCursor<'_>,
                 stop: &AtomicBool,
                 checkpoint_hook: CheckpointHook<'_>| {
                    self.compute_unit(part, cursor, stop, checkpoint_hook, &helpers, finishers)
                },
            )
        })
    }

    /// Computes the rows of a unit; `None` if the pass was stopped.
    fn compute_unit(
        &self,
        part: &WorkUnit,
        cursor: ScanCursor<'_>,
        stop: &AtomicBool,
        checkpoint_hook: CheckpointHook<'_>,
        helpers: &WorkSharingPool<'_, RowGroupJob<'m>, ChunkPrefetch>,
        finishers: &FlushPool<'_, EncodedShard<'m>>,
    ) -> Result<Option<()>> {
        if self.failed.load(Ordering::Relaxed) {
            return Ok(None);
        }
        let ScanCursor { carry, reads } = cursor;
        let rows = ScanCursor {
            carry: &mut *carry,
            reads,
        };
        let computed = self
            .pass
            .compute_rows(self.making, part, rows, stop, &|group| {
                let pieces = group.shard.pieces;
                helpers.spawn(group, pieces)
            })?;
        let Some((shard, end)) = computed else {
            return Ok(None);
        };
        // The checkpoint is written before the unit is committed: a crash repeats the unit and never
        // loses the state.
        checkpoint_hook(carry)?;
        if let Some(complete) = shard.add(|state| state.end = Some(end))? {
            finishers.submit(complete)?;
        }
        Ok(Some(()))
    }

    /// Encodes a piece of a group, and submits its shard if that is now complete.
    fn encode(
        &self,
        group: &RowGroupJob<'m>,
        piece: usize,
        finishers: &FlushPool<'_, EncodedShard<'m>>,
    ) -> Result<()> {
        let encoded = self
            .pass
            .catch_encoding(|| self.pass.encode_group(group, piece));
        let submitted = encoded.and_then(|complete| match complete {
            Some(complete) => finishers.submit(complete),
            None => Ok(()),
        });
        submitted.inspect_err(|_| self.failed.store(true, Ordering::Relaxed))
    }

    /// Closes the files of a shard and commits it.
    fn finish(&self, complete: EncodedShard<'m>) -> Result<()> {
        let finished = catch_panic(|| self.pass.finish_shard(self.making, complete));
        let recorded = finished.and_then(|(first, shard)| {
            lock(&self.written)?.insert(first, shard);
            Ok(())
        });
        recorded.inspect_err(|_| self.failed.store(true, Ordering::Relaxed))
    }
}

/// The first read of each range, then the second of each, and so on: as threads take them.
fn interleaved(readings: &[Vec<(SpanRef, ReadMode)>]) -> impl Iterator<Item = (SpanRef, ReadMode)> {
    let longest = readings.iter().map(Vec::len).max().unwrap_or(0);
    let nth_reads = move |number: usize| {
        readings
            .iter()
            .filter_map(move |reads| reads.get(number).copied())
    };
    (0..longest).flat_map(nth_reads)
}

pub fn new_shard(
    id: ContentId,
    spans: Vec<String>,
    counts: RowCounts,
    files: Vec<OutputFile>,
) -> Shard {
    Shard {
        id: id.to_string(),
        spans,
        rows_in: counts.input,
        rows_filtered: counts.filtered,
        rows_expanded: counts.expanded,
        rows_clipped: counts.clipped,
        rows_crossed: counts.crossed,
        rows_without_history: counts.without_history,
        changes: counts.changes,
        joins: counts.joins,
        rows_duplicate: counts.duplicates,
        files,
    }
}

impl WritePass<'_> {
    /// Writes the missing shards. Later runs keep each shard as long as its spans, and those that its windows reach,
    /// stay the same.
    pub fn write_shards(
        &self,
        making: &ShardContext<'_>,
        parts: Vec<WorkUnit>,
    ) -> Result<WriteResult> {
        let ShardContext { sequence, line, .. } = making;
        let todo: Vec<WorkUnit> = parts
            .iter()
            .filter(|part| part.known.is_none())
            .cloned()
            .collect();
        let bytes = todo
            .iter()
            .map(|part| line.history.bytes(part.tasks.clone()))
            .sum();
        // A pass that is not fused covers all spans.
        let of = if making.along.is_some() {
            0
        } else {
            line.history.bytes(0..line.tasks.len())
        };
        self.watch.on_event(Event::PassReads { bytes, of });
        let workers = self
            .cluster
            .map(|cluster| cluster.executor(StageRef::Write { pass: cluster.pass }, self.watch));
        let done = workers.map(|workers| sequence.run_on_workers(&making.pending(&todo), &workers));
        let shards = |written: &BTreeMap<usize, Shard>| {
            let shard = |part: &WorkUnit| {
                part.known
                    .clone()
                    .or_else(|| written.get(&part.tasks.start).cloned())
            };
            let shards = parts
                .iter()
                .map(|part| shard(part).ok_or_else(|| Fault::internal("a shard was not made")));
            shards.collect::<Result<Vec<_>>>()
        };
        let done = done
            .transpose()?
            .flatten()
            .map_or_else(|| self.write_shards_on_threads(making, &todo, &shards), Ok)?;
        let counts = SeriesCounts {
            gaps: done.gaps,
            duplicates: done.parts.values().map(|shard| shard.rows_duplicate).sum(),
        };
        warn_of_counts(self.watch, counts);
        let rows_kept = parts
            .iter()
            .filter_map(|part| part.known.as_ref())
            .map(|shard| shard.rows_in)
            .sum();
        Ok(WriteResult {
            shards: shards(&done.parts)?,
            rows_kept,
            carry: done.carry,
        })
    }

    /// Writes shards on threads of this process. A range needs the rows that its windows reach, so that a few days are
    /// a single range. Idle threads prefetch chunks and encode computed rows. `order_shards` puts
    /// the new shards in order with the committed ones.
    fn write_shards_on_threads<'m>(
        &self,
        making: &'m ShardContext<'_>,
        todo: &[WorkUnit],
        order_shards: OrderShardsFn<'_>,
    ) -> Result<UnitResults<Shard>> {
        let run = ShardRun {
            pass: self,
            making,
            failed: AtomicBool::new(false),
            written: Mutex::default(),
        };
        let finish = |complete: EncodedShard<'m>| run.finish(complete);
        let finishers = FlushPool::new(self.context.threads, &finish);
        let threads = self.finish_threads(making.target);
        let compute = || run.compute(todo, &finishers);
        let results = match making.along {
            None => finishers.run_scoped(threads, compute, None),
            Some(fused) => {
                let on_complete = OnComplete {
                    meanwhile: &|| fused.finalize_lanes(),
                    last: &|| fused.link_shards(order_shards(&*lock(&run.written)?)?),
                };
                finishers.run_scoped(threads, compute, Some(on_complete))
            }
        };
        let UnitResults { gaps, carry, .. } = results?;
        Ok(UnitResults {
            parts: run.written.into_inner().map_err(|_| poisoned_lock())?,
            gaps,
            carry,
        })
    }

    /// Threads that finish shards: a disk writes one file at a time; uploads run in parallel.
    pub fn finish_threads(&self, target: &WriteTarget<'_>) -> usize {
        if target.out.local.is_some() {
            1
        } else {
            self.context.threads
        }
    }

    /// Computes and encodes the rows of a shard; `None` if the pass was stopped.
    pub fn encode_shard<'m>(
        &self,
        making: &'m ShardContext<'_>,
        part: &WorkUnit,
        carry: &mut Carry,
        checkpoint_hook: CheckpointHook<'_>,
        stop: &AtomicBool,
    ) -> Result<Option<EncodedShard<'m>>> {
        let cursor = ScanCursor {
            carry: &mut *carry,
            reads: &making.sequence,
        };
        let encode = |group: RowGroupJob<'m>| {
            (0..group.shard.pieces).try_for_each(|piece| self.encode_group(&group, piece).map(drop))
        };
        let Some((shard, end)) = self.compute_rows(making, part, cursor, stop, &encode)? else {
            return Ok(None);
        };
        checkpoint_hook(carry)?;
        shard.add(|state| state.end = Some(end))
    }

    /// Computes the rows of a shard and passes its row groups to `leave`; `None` if the pass was stopped.
    fn compute_rows<'m>(
        &self,
        making: &'m ShardContext<'_>,
        part: &WorkUnit,
        cursor: ScanCursor<'_>,
        stop: &AtomicBool,
        leave: &dyn Fn(RowGroupJob<'m>) -> Result<()>,
    ) -> Result<Option<(Arc<ShardBuilder<'m>>, ShardTotals)>> {
        let ShardContext {
            sequence,
            prepared,
            target,
            line,
            along: fused,
            layout,
        } = making;
        let files = target.begin(prepared.schema.clone(), part.id)?;
        // Each thread holds the rows of one group, and those of one more may wait.
        let group_bytes_max = self.context.memory.output_bytes() / (self.context.threads + 1);
        let limits =
            RowGroupLimits::of_thread(self.context.memory, self.context.threads, group_bytes_max);
        let mut groups = RowGroupBuilder::new(&prepared.schema, layout, limits)?;
        let schema = groups.file_schema.clone();
        let pieces = self.sink.pieces(&schema);
        let state = ShardProgress {
            files: Some(files),
            appended: 0,
            waiting: BTreeMap::new(),
            end: None,
        };
        let shard = Arc::new(ShardBuilder {
            part: part.clone(),
            schema,
            pieces,
            state: Mutex::new(state),
        });
        let mut number = 0;
        let mut take = |ready: RowGroup| {
            let group = RowGroupJob {
                shard: shard.clone(),
                number,
                ready,
                pieces: Mutex::default(),
            };
            number += 1;
            leave(group)
        };
        let mut states = fused
            .map(|fused| fused.begin_states(&part.tasks))
            .transpose()?;
        let mut learn = |analyzer: usize, input: AnalyzerInput<'_>| match fused.zip(states.as_mut())
        {
            Some((fused, states)) => fused.update(states, analyzer, &input),
            None => Ok(()),
        };
        let rows = WrittenRows {
            sequence,
            tasks: &line.tasks[part.tasks.clone()],
            columns: ReadMode::All,
            target,
            stop,
        };
        let Some(counts) = self.process_rows(&rows, cursor, &mut groups, &mut learn, &mut take)?
        else {
            return Ok(None);
        };
        groups.rest().try_for_each(|ready| take(ready?))?;
        fused.zip(states).map_or(Ok(()), |(fused, states)| {
            fused.commit_states(&part.tasks, states, &counts)
        })?;
        Ok(Some((
            shard,
            ShardTotals {
                groups: number,
                counts,
            },
        )))
    }

    /// Encodes a piece of a group; returns the shard if it is now complete.
    fn encode_group<'m>(
        &self,
        group: &RowGroupJob<'m>,
        piece: usize,
    ) -> Result<Option<EncodedShard<'m>>> {
        let RowGroupJob {
            shard,
            number,
            ready,
            pieces,
        } = group;
        let rows = total_rows(&ready.batches);
        let encoded = self
            .sink
            .encode_piece(&shard.schema, &ready.batches, piece)?;
        let mut encoding = lock(pieces)?;
        encoding.done += 1;
        encoding.pieces.insert(piece, encoded);
        if encoding.done < shard.pieces {
            return Ok(None);
        }
        let pieces = std::mem::take(&mut encoding.pieces).into_values().collect();
        let part = ready.encoded(EncodedBatch { pieces, rows });
        shard.add(|state| drop(state.waiting.insert(*number, part)))
    }

    /// Closes the files of a shard and commits it; returns it with its first span.
    pub fn finish_shard(
        &self,
        making: &ShardContext<'_>,
        complete: EncodedShard<'_>,
    ) -> Result<(usize, Shard)> {
        let ShardContext { target, line, .. } = making;
        let EncodedShard { part, files, end } = complete;
        let files = files.finish(false)?;
        let shard = new_shard(
            part.id,
            line.history.contents(part.tasks.clone()),
            end.counts,
            files,
        );
        Ok((part.tasks.start, target.keep(part.id, shard)?))
    }
}
