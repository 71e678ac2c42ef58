//! Write passes: threads transform and encode spans. Consecutive spans of a history become shards, which later runs keep;
//! other datasets become one shard.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use arrow::array::{AsArray, BooleanArray, RecordBatch};
use arrow::compute::{and, filter_record_batch};
use arrow::datatypes::{Field, Schema, SchemaRef};
use forebay_commit::Shard;
use forebay_contract::Sink;
use forebay_model::{AnalyzerInput, Chunk, ContentId, Fault, Result, RowChange, catch_panic_at};
use forebay_plan::{Carry, ColumnScan, ColumnTap, OpChain, RowCounts, SinkWork};
use forebay_storage::{Event, EventListener};

use crate::chunk_source::{ReadMode, SpanRef};
use crate::cluster_handle::ClusterHandle;
use crate::interval_filter::IntervalFilter;
use crate::ordered_scan::{OrderedScan, ScanCursor, SpanTimeline};
use crate::pass_context::PassContext;
use crate::read_ahead::ReadAhead;
use crate::recursive_rows::{JoinedOutputs, RecursiveRows, feedback_of, refuse_early_outputs};
use crate::row_groups::{RowGroup, RowGroupBuilder, written_batch};
use crate::scan_progress::ScanProgress;
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
    /// Shards in row order, including those of earlier runs.
    pub shards: Vec<Shard>,
    /// Rows of the shards of earlier runs.
    pub rows_kept: u64,
    /// The id of the window state at the end, if it was kept.
    pub carry: Option<ContentId>,
}

impl PreparedChains {
    pub fn new(chains: Vec<OpChain>, want: ColumnTap) -> Result<PreparedChains> {
        let Some(first) = chains.first() else {
            return Err(Fault::internal("a sink without rows to read"));
        };
        let mut fields: Vec<Field> = Vec::new();
        for field in first.fields(0) {
            fields.push(field.clone().with_nullable(true));
        }
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
    pub fn prepare(&self, work: &SinkWork) -> Result<PreparedChains> {
        let Some(first) = work.scans.first() else {
            return Err(Fault::internal("a sink without rows to read"));
        };
        let mut chains = Vec::with_capacity(work.scans.len());
        for scan in &work.scans {
            chains.push(self.chain(scan, &[sink_tap(work, scan)])?);
        }
        let mut prepared = PreparedChains::new(chains, sink_tap(work, first))?;
        prepared.first_scan = work.first_scan;
        Ok(prepared)
    }

    /// The operations of a scan. The first tap is the sink's.
    pub fn chain(&self, scan: &ColumnScan, wants: &[ColumnTap]) -> Result<OpChain> {
        let Some(stream) = scan.streams.first() else {
            return Err(Fault::internal("a scan without a stream"));
        };
        self.context.with_chains(|chain_context| {
            OpChain::new(
                &self.context.program.bound,
                &stream.stream,
                &stream.needed,
                &scan.columns,
                wants,
                chain_context,
            )
        })
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
        let span_count = line.tasks.len();
        if !sequence.is_ordered() && !self.context.is_history(scans)? {
            return Ok((span_count, span_count));
        }
        let mut unwritten = 0;
        for part in self.work_units(&sequence, &line, target)? {
            if part.known.is_none() {
                unwritten += part.tasks.len();
            }
        }
        Ok((unwritten, span_count))
    }

    /// True if windows need the state of all rows before: a checkpoint, or else all rows.
    pub fn depends_on_all_before(
        &self,
        scans: &[ColumnScan],
        prepared: &PreparedChains,
    ) -> Result<bool> {
        Ok(self.ordered_scan(scans, prepared).timeline()?.needs_all())
    }

    /// Adds a file without rows to an output without files, so that readers see its columns.
    pub fn with_schema_file(
        &self,
        mut written: WriteResult,
        prepared: &PreparedChains,
        target: &WriteTarget<'_>,
    ) -> Result<WriteResult> {
        if has_files(&written.shards) {
            return Ok(written);
        }
        let writer = target.begin(prepared.schema.clone(), target.pass)?;
        let files = writer.finish(true)?;
        let sums = written.shards.into_iter().reduce(Shard::merged_with);
        let shard = Shard {
            id: target.pass.to_string(),
            files,
            ..sums.unwrap_or_default()
        };
        written.shards = vec![shard];
        Ok(written)
    }

    /// The spans to write as work units, with the shards that are committed.
    pub fn work_units(
        &self,
        sequence: &OrderedScan<'_>,
        line: &SpanTimeline,
        target: &WriteTarget<'_>,
    ) -> Result<Vec<WorkUnit>> {
        let spans_wanted = self.spans_in_interval(sequence, &line.tasks, target)?;
        match self.recursive_rows(sequence, &line.tasks[spans_wanted.clone()])? {
            Some(_) => target.whole_part(&line.history, spans_wanted),
            None => target.parts(&line.history, spans_wanted),
        }
    }

    /// Consecutive spans that hold all rows to write.
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
        let mut writer = RowWriter {
            pass: self,
            sequence,
            target,
            recursive: self.recursive_rows(sequence, tasks)?,
            groups,
            learn,
            take,
            progress: self.scan_progress(sequence, tasks)?,
            counts: RowCounts::default(),
        };
        let ScanCursor { carry, reads } = cursor;
        let cursor = ScanCursor {
            carry: &mut *carry,
            reads,
        };
        let whole = sequence.for_each_chunk_group(
            tasks,
            columns,
            cursor,
            stop,
            &mut |scan, chunks, carry| writer.push(scan, chunks, carry),
        )?;
        if !whole {
            return Ok(None);
        }
        writer.finish(carry)?;
        Ok(Some(writer.counts))
    }

    /// The progress of reading some spans.
    fn scan_progress(&self, sequence: &OrderedScan<'_>, tasks: &[SpanRef]) -> Result<ScanProgress> {
        let mut spans = Vec::with_capacity(tasks.len());
        for task in tasks {
            let input = self.context.input(sequence.scans[task.scan].base)?;
            spans.push(&input.dataset.spans[task.span]);
        }
        Ok(ScanProgress::new(spans.into_iter(), 1.0))
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
        let chain = sequence.chains[task.scan];
        let scan = &sequence.scans[task.scan];
        if feedback_of(chain, &scan.columns).is_some() {
            refuse_early_outputs(&self.context.program.bound, scan)?;
        }
        RecursiveRows::new(chain, &scan.columns, JoinedOutputs::Computed)
    }
}

/// True if any shard has files.
pub fn has_files(shards: &[Shard]) -> bool {
    shards.iter().any(|shard| !shard.files.is_empty())
}

/// The columns that a sink takes from a scan.
fn sink_tap(work: &SinkWork, scan: &ColumnScan) -> ColumnTap {
    let op_count = match scan.streams.first() {
        Some(stream) => stream.stream.ops.len(),
        None => 0,
    };
    ColumnTap {
        after: op_count,
        columns: work.columns.clone(),
        part: work.part.clone(),
        marks_unfound: true,
    }
}

/// Receives the inputs of fused analyzers.
type LearnRowsFn<'f> = &'f mut dyn FnMut(usize, AnalyzerInput<'_>) -> Result<()>;

/// Runs chunks through their chains and collects the written rows in row groups.
struct RowWriter<'a, 'g> {
    pass: &'a WritePass<'a>,
    sequence: &'a OrderedScan<'a>,
    target: &'a WriteTarget<'a>,
    recursive: Option<RecursiveRows<'a>>,
    groups: &'a mut RowGroupBuilder<'g>,
    learn: LearnRowsFn<'a>,
    /// Receives the full row groups.
    take: &'a mut dyn FnMut(RowGroup) -> Result<()>,
    progress: ScanProgress,
    counts: RowCounts,
}

impl RowWriter<'_, '_> {
    /// Writes the rows of consecutive chunks of a scan.
    fn push(&mut self, scan: usize, chunks: &[Chunk], carry: &mut Carry) -> Result<()> {
        let mut taps = WriteTaps {
            schema: self.groups.schema,
            learn: &mut *self.learn,
            batches: Vec::new(),
        };
        let streamed = match &mut self.recursive {
            Some(recursive) => {
                recursive.push(chunks, carry, &mut |tap, input| taps.add(tap, input))
            }
            None => {
                let chain = self.sequence.chains[scan];
                chain.run(chunks, carry, &mut |tap, input| taps.add(tap, input))
            }
        };
        let batches = taps.batches;
        self.write(batches, streamed, carry)?;
        let mut rows = 0;
        for chunk in chunks {
            rows += chunk.batch.num_rows() as u64 + chunk.skipped;
        }
        self.pass.watch.on_event(Event::Progress {
            rows,
            bytes: self.progress.advance(rows),
        });
        Ok(())
    }

    /// Writes the rows that waited for later ones.
    fn finish(&mut self, carry: &mut Carry) -> Result<()> {
        // Rows of the last time have waited for a later one until here
        // (decisions/recursive-forecasts.md).
        if let Some(recursive) = &mut self.recursive {
            let mut taps = WriteTaps {
                schema: self.groups.schema,
                learn: &mut *self.learn,
                batches: Vec::new(),
            };
            let streamed = recursive.finish(carry, &mut |tap, input| taps.add(tap, input));
            let batches = taps.batches;
            self.write(batches, streamed, carry)?;
        }
        self.pass.watch.on_event(Event::Progress {
            rows: 0,
            bytes: self.progress.finish(),
        });
        Ok(())
    }

    /// Adds rows to the groups, after their chain has ended: a row order that turns out wrong fails the chain, and then
    /// none of its rows may be written.
    fn write(
        &mut self,
        batches: Vec<MarkedBatch>,
        streamed: Result<RowCounts>,
        carry: &Carry,
    ) -> Result<()> {
        let state = self.pass.context.state;
        let streamed = streamed.map_err(|fault| state.record_order_failure(carry, fault))?;
        self.counts.add(&streamed);
        for mut marked in batches {
            if let Some(interval) = &self.target.within {
                let outside = marked.keep_inside(interval)?;
                self.counts.remove("", RowChange::OutsideInterval, outside);
            }
            if let Some(unfound) = &marked.unfound {
                self.counts.without_history += unfound.true_count() as u64;
            }
            for group in self.groups.push(marked.batch)? {
                (self.take)(group)?;
            }
        }
        Ok(())
    }
}

/// Receives the outputs of chains that write.
struct WriteTaps<'a> {
    schema: &'a SchemaRef,
    learn: LearnRowsFn<'a>,
    batches: Vec<MarkedBatch>,
}

impl WriteTaps<'_> {
    /// Tap 0 is the written output; the others are analyzers that learn in the same read
    /// (decisions/learn-while-writing.md).
    fn add(&mut self, tap: usize, input: AnalyzerInput<'_>) -> Result<()> {
        if let Some(analyzer) = tap.checked_sub(1) {
            return (self.learn)(analyzer, input);
        }
        let batch = written_batch(self.schema, input.columns, input.rows)?;
        // Marks of rows without history follow the columns.
        let marks = input.columns.get(batch.num_columns());
        self.batches.push(MarkedBatch {
            unfound: marks.map(|marks| marks.as_boolean().clone()),
            batch,
        });
        Ok(())
    }
}

/// Rows to write.
struct MarkedBatch {
    batch: RecordBatch,
    /// Marks the rows for which windows found no earlier value; `None` where there are none.
    unfound: Option<BooleanArray>,
}

impl MarkedBatch {
    /// Keeps the rows of an interval; returns the number of the others.
    fn keep_inside(&mut self, interval: &IntervalFilter) -> Result<u64> {
        let inside = interval.inside(&self.batch)?;
        let outside = self.batch.num_rows() - inside.true_count();
        if outside > 0 {
            self.batch = filter_record_batch(&self.batch, &inside)?;
            if let Some(unfound) = &self.unfound {
                self.unfound = Some(and(unfound, &inside)?);
            }
        }
        Ok(outside as u64)
    }
}
