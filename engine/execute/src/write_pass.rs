//! A pass that writes a sink: threads transform and encode spans. Of a history, runs of spans become
//! shards, which later runs keep; else one file takes the spans in order.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use arrow::array::{Array, ArrayRef, AsArray, RecordBatch, RecordBatchOptions, UInt32Array};
use arrow::compute::{SortColumn, cast, concat_batches, lexsort_to_indices};
use arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use arrow::util::display::{ArrayFormatter, FormatOptions};
use forebay_cluster::{TaskControl, TaskKind, TaskOutcome};
use forebay_commit::{OutputWriter, Shard};
use forebay_model::{AnalyzerInput, ContentId, Fault, Result, catch_panic, catch_panic_at, take_batch};
use forebay_plan::{Carry, ChainContext, ColumnScan, ColumnTap, OpChain, Program, RowCounts, SinkWork};
use forebay_storage::{EncodedBatch, Event, EventListener, FileLayout, MemoryBudget, Sink, StorageClient};
use forebay_threads::{OrderedAppender, lock, poisoned_lock, run_on_all};

use crate::chunk_source::RangeReader;
use crate::column_reuse::ColumnReuse;
use crate::ordered_scan::{CheckpointHook, OrderedScan, ReadMode, ScanCursor, SpanRef, SpanTimeline};
use crate::read_ahead::ReadAhead;
use crate::remote::ClusterHandle;
use crate::run_state::RunState;
use crate::scan_progress::ScanProgress;
use crate::shard_writer::{EncodedShard, ShardContext, has_files, new_shard};
use crate::span_index::WorkUnit;
use crate::write_target::WriteTarget;

/// What computing the rows of shards costs, as a share of reading, computing and encoding them.
const COMPUTING_SHARE: f64 = 0.55;

/// What every thread of the pass sees.
pub struct WritePass<'a> {
    pub io: &'a StorageClient,
    pub program: &'a Program,
    pub known: &'a RunState,
    pub memory: MemoryBudget,
    pub threads: usize,
    pub batch_rows: usize,
    pub watch: &'a dyn EventListener,
    pub sink: &'a dyn Sink,
    pub crewed: Option<ClusterHandle<'a>>,
}

/// Operations ready to run, one chain per scan, and the columns that come out: all nullable, of
/// logical types.
pub struct PreparedChains {
    pub schema: SchemaRef,
    chains: Vec<OpChain>,
    /// What the sink wants of the first of them.
    pub want: ColumnTap,
    /// See [`SinkWork::first_scan`].
    first_scan: usize,
}

/// What a pass wrote.
#[derive(Default)]
pub struct WriteResult {
    /// Those that were there among them, in row order.
    pub shards: Vec<Shard>,
    /// Rows that were read for those that were there.
    pub rows_kept: u64,
    /// Values of the others that were taken over.
    pub values_kept: u64,
    /// Under which id is kept what windows remember at the end.
    pub carry: Option<ContentId>,
}

/// Encoded rows of one partition.
pub struct EncodedRowGroup {
    pub partition: String,
    pub encoded: EncodedBatch,
    /// Whether the file ends after them (sorted files hold one group each).
    pub ends_file: bool,
}

/// A shard that an earlier attempt finished, or that is to be finished.
enum ShardOutcome<'a> {
    Kept(Shard),
    Complete(Box<EncodedShard<'a>>),
}

/// Takes an encoded part of a span, or its end.
type EmitGroupFn<'f> = &'f dyn Fn(Option<EncodedRowGroup>) -> Result<()>;

impl PreparedChains {
    pub fn new(chains: Vec<OpChain>, want: ColumnTap) -> Result<PreparedChains> {
        let first = chains.first().ok_or_else(|| Fault::internal("a sink without rows to read"))?;
        let fields: Vec<Field> = first.fields(0).iter().map(|field| field.clone().with_nullable(true)).collect();
        Ok(PreparedChains { schema: Arc::new(Schema::new(fields)), chains, want, first_scan: 0 })
    }

    /// The operations of each scan.
    pub fn chains(&self) -> &[OpChain] {
        &self.chains
    }
}

impl WritePass<'_> {
    /// Makes the operations runnable, once: what they learned can be large.
    pub fn prepare(&self, SinkWork { scans, columns, part, first_scan, .. }: &SinkWork) -> Result<PreparedChains> {
        let want = |scan: &ColumnScan| {
            let after = scan.streams.first().map_or(0, |stream| stream.stream.ops.len());
            ColumnTap { after, columns: columns.clone(), part: part.clone() }
        };
        let chains = scans.iter().map(|scan| self.chain(scan, &[want(scan)]));
        let first = scans.first().ok_or_else(|| Fault::internal("a sink without rows to read"))?;
        let prepared = PreparedChains::new(chains.collect::<Result<Vec<_>>>()?, want(first))?;
        Ok(PreparedChains { first_scan: *first_scan, ..prepared })
    }

    /// The operations of a scan. The sink's own rows are the first that are wanted.
    pub fn chain(&self, scan: &ColumnScan, wants: &[ColumnTap]) -> Result<OpChain> {
        let stream = scan.streams.first().ok_or_else(|| Fault::internal("a scan without a stream"))?;
        let finding = |ask| self.known.finding(self.program, ask);
        let told = ChainContext { finding: &finding, way: &|op| self.known.way(op) };
        OpChain::new(&self.program.bound, &stream.stream, &stream.needed, &scan.columns, wants, told)
    }

    pub fn ordered_scan<'s>(&'s self, scans: &'s [ColumnScan], prepared: &'s PreparedChains) -> OrderedScan<'s> {
        OrderedScan {
            io: self.io,
            program: self.program,
            known: self.known,
            memory: self.memory,
            batch_rows: self.batch_rows,
            threads: self.threads,
            scans,
            first_scan: prepared.first_scan,
            chains: prepared.chains.iter().collect(),
            narrow: Vec::new(),
            written: Vec::new(),
            computing: COMPUTING_SHARE,
            ahead: ReadAhead::new(self.threads),
        }
    }

    /// How many spans have to be read, and of how many.
    pub fn spans_to_read(
        &self,
        scans: &[ColumnScan],
        prepared: &PreparedChains,
        target: &WriteTarget<'_>,
    ) -> Result<(usize, usize)> {
        let sequence = self.ordered_scan(scans, prepared);
        let line = sequence.timeline()?;
        if !sequence.is_ordered() && !self.known.is_history(self.program, scans)? {
            return Ok((line.tasks.len(), line.tasks.len()));
        }
        let parts = self.work_units(&sequence, &line, target)?;
        let todo = parts.iter().filter(|part| part.known.is_none());
        Ok((todo.map(|part| part.tasks.len()).sum(), line.tasks.len()))
    }

    /// Whether windows need to know of all rows before: what an earlier run remembered, or else everything.
    pub fn depends_on_all_before(&self, scans: &[ColumnScan], prepared: &PreparedChains) -> Result<bool> {
        Ok(self.ordered_scan(scans, prepared).timeline()?.needs_all())
    }

    /// Writes all rows that no earlier run has written.
    pub fn run(
        &self,
        scans: &[ColumnScan],
        prepared: &PreparedChains,
        target: &WriteTarget<'_>,
    ) -> Result<WriteResult> {
        let mut sequence = self.ordered_scan(scans, prepared);
        let in_shards = self.crewed.is_some() || sequence.is_ordered();
        let made = match in_shards || self.known.is_history(self.program, scans)? {
            true => {
                let line = sequence.timeline()?;
                let parts = self.work_units(&sequence, &line, target)?;
                let staying = self.plan_column_reuse(&mut sequence, prepared, (&line, target), (&parts, None))?;
                let (sequence, line, layout) = (&sequence, &line, &self.sink.layout());
                self.write_shards(
                    &ShardContext { sequence, prepared, target, line, along: None, staying, layout },
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

    /// An output without rows has a file that tells of its columns.
    pub fn with_schema_file(
        &self,
        mut made: WriteResult,
        prepared: &PreparedChains,
        target: &WriteTarget<'_>,
    ) -> Result<WriteResult> {
        if !has_files(&made.shards) {
            let files = target.begin(prepared.schema.clone(), target.pass)?.finish(true)?;
            let sums = made.shards.into_iter().reduce(Shard::merged_with).unwrap_or_default();
            made.shards = vec![Shard { id: target.pass.to_string(), files, ..sums }];
        }
        Ok(made)
    }

    /// Lets `serve` do the tasks of a worker. What others have committed meanwhile is not done again.
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
        let staying = ColumnReuse::new();
        let making = ShardContext { sequence, prepared, target, line: &line, along: None, staying, layout };
        serve(&|what, errands| {
            let work = |part: &WorkUnit, carry: &mut Carry, stop: &AtomicBool, seal: CheckpointHook<'_>| match target
                .kept(part.id)?
            {
                Some(shard) if !sequence.is_ordered() => Ok(Some(ShardOutcome::Kept(shard))),
                Some(shard) => {
                    if !sequence.advance_over(&line.tasks[part.tasks.clone()], (carry, &sequence), stop)? {
                        return Ok(None);
                    }
                    seal(carry).map(|()| Some(ShardOutcome::Kept(shard)))
                }
                None => Ok(self
                    .encode_shard(&making, part, (carry, seal), stop)?
                    .map(|new| ShardOutcome::Complete(Box::new(new)))),
            };
            let finish = |whole: ShardOutcome<'_>| match whole {
                ShardOutcome::Kept(shard) => Ok(shard),
                ShardOutcome::Complete(complete) => self.finish_shard(&making, *complete).map(|(_, shard)| shard),
            };
            let kept_in = (target.store, target.scratch);
            let finishing = (self.finish_threads(target), &finish as &_);
            sequence.run_task(&line, (target.shape, target.shards), kept_in, (what, errands), work, finishing)
        });
        Ok(())
    }

    /// The tasks that are wanted, as parts: those that are there, and those to do.
    pub fn work_units(
        &self,
        sequence: &OrderedScan<'_>,
        line: &SpanTimeline,
        target: &WriteTarget<'_>,
    ) -> Result<Vec<WorkUnit>> {
        target.parts(&line.history, self.spans_in_interval(sequence, &line.tasks, target)?)
    }

    /// Consecutive tasks that hold all rows that are wanted.
    fn spans_in_interval(
        &self,
        sequence: &OrderedScan<'_>,
        tasks: &[SpanRef],
        target: &WriteTarget<'_>,
    ) -> Result<Range<usize>> {
        if sequence.first_scan > 0 {
            let first = tasks.iter().position(|task| task.scan >= sequence.first_scan);
            return Ok(first.unwrap_or(tasks.len())..tasks.len());
        }
        match (&target.within, sequence.scans) {
            (Some(within), [scan]) => Ok(within.overlapping_spans(&self.known.input(self.program, scan.base)?.dataset)),
            _ => Ok(0..tasks.len()),
        }
    }

    /// Spans in any order by any thread; their rows come to the files in order.
    fn write_one_shard(
        &self,
        sequence: &OrderedScan<'_>,
        schema: &SchemaRef,
        target: &WriteTarget<'_>,
    ) -> Result<Shard> {
        let tasks = sequence.span_refs()?;
        let tasks = &tasks[self.spans_in_interval(sequence, &tasks, target)?];
        sequence.plan_reads(tasks.iter().map(|task| (*task, ReadMode::All)))?;
        let files = target.begin(schema.clone(), target.pass)?;
        let append = |files: &mut OutputWriter<'_>, part: EncodedRowGroup| {
            files.append(&part.partition, part.encoded, part.ends_file)
        };
        let ordered = OrderedAppender::new(files, self.memory.output_bytes() as u64, append);
        let (next, stop) = (AtomicUsize::new(0), AtomicBool::new(false));
        let total = Mutex::new(RowCounts::default());
        let span = |index: usize, task: SpanRef| {
            let offer = |part: Option<EncodedRowGroup>| {
                let last = part.is_none();
                let part = part.map(|part| {
                    let bytes = part.encoded.bytes();
                    (part, bytes)
                });
                ordered.offer(index, part, last)
            };
            let counts = self.write_span(sequence, task, schema, target, &offer)?;
            lock(&total)?.add(counts);
            Ok(())
        };
        let each = || {
            while !stop.load(Ordering::Relaxed) {
                let index = next.fetch_add(1, Ordering::Relaxed);
                let Some(task) = tasks.get(index) else { break };
                catch_panic(|| span(index, *task)).inspect_err(|_| {
                    stop.store(true, Ordering::Relaxed);
                    ordered.stop();
                })?;
            }
            Ok(())
        };
        run_on_all(self.threads, &each).into_iter().collect::<Result<()>>()?;
        let counts = total.into_inner().map_err(|_| poisoned_lock())?;
        let files = ordered.done()?.finish(false)?;
        Ok(new_shard(target.pass, Vec::new(), counts, files))
    }

    fn write_span(
        &self,
        sequence: &OrderedScan<'_>,
        task: SpanRef,
        schema: &SchemaRef,
        target: &WriteTarget<'_>,
        offer: EmitGroupFn<'_>,
    ) -> Result<RowCounts> {
        let layout = self.sink.layout();
        let mut groups = RowGroupBuilder::new(schema, &layout, self.memory.output_bytes() / self.threads.max(1))?;
        let file_schema = groups.file_schema.clone();
        let mut take = |ready: RowGroup| {
            let encoded = self.catch_encoding(|| self.sink.encode(&file_schema, &ready.batches))?;
            offer(Some(ready.encoded(encoded)))
        };
        let mut carry = Carry::default();
        let going = (&mut carry, &sequence as &dyn RangeReader);
        let (rows, stop) = ((sequence, &[task][..], ReadMode::All), AtomicBool::new(false));
        let counts = self.process_rows(rows, target, (going, &stop), &mut groups, &mut |_, _| Ok(()), &mut take)?;
        groups.rest().try_for_each(|ready| take(ready?))?;
        offer(None)?;
        Ok(counts.unwrap_or_default())
    }

    /// Encodes; a panic names the output.
    pub fn catch_encoding<T>(&self, work: impl FnOnce() -> Result<T>) -> Result<T> {
        catch_panic_at(|fault| fault.note(format!("rows were being encoded for `{}`", self.sink.path())), work)
    }

    /// Runs the rows of some spans through their chains; `learn` gets what is asked of them beside, and `take` the
    /// groups that are full. `None` when the pass was stopped.
    pub fn process_rows(
        &self,
        (sequence, tasks, columns): (&OrderedScan<'_>, &[SpanRef], ReadMode),
        target: &WriteTarget<'_>,
        (going, stop): (ScanCursor<'_>, &AtomicBool),
        groups: &mut RowGroupBuilder<'_>,
        learn: &mut dyn FnMut(usize, AnalyzerInput<'_>) -> Result<()>,
        take: &mut dyn FnMut(RowGroup) -> Result<()>,
    ) -> Result<Option<RowCounts>> {
        let mut spans = Vec::with_capacity(tasks.len());
        for task in tasks {
            spans.push(&self.known.input(self.program, sequence.scans[task.scan].base)?.dataset.spans[task.span]);
        }
        let mut progress = ScanProgress::new(spans.into_iter(), 1.0);
        let mut counts = RowCounts::default();
        let whole = sequence.for_each_chunk_group((tasks, columns), going, stop, &mut |scan, chunks, carry| {
            let chain = sequence.chains[scan];
            let mut batches = Vec::with_capacity(chunks.len());
            let mut give = |want: usize, input: AnalyzerInput<'_>| match want.checked_sub(1) {
                None => {
                    batches.push(written_batch(groups.schema, input.columns, input.rows)?);
                    Ok(())
                }
                Some(question) => learn(question, input),
            };
            let streamed = match sequence.column_path(columns) {
                Some(track) => chain.run_on(track, chunks, carry, &mut give),
                None => chain.run(chunks, carry, &mut give),
            };
            counts.add(streamed.map_err(|fault| self.known.note_fallen(carry, fault))?);
            for mut batch in batches {
                if let Some(within) = &target.within {
                    let rows = batch.num_rows();
                    batch = within.filter_rows(batch)?;
                    counts.filtered += (rows - batch.num_rows()) as u64;
                }
                groups.push(batch)?.into_iter().try_for_each(&mut *take)?;
            }
            let rows = chunks.iter().map(|chunk| chunk.batch.num_rows() as u64 + chunk.skipped).sum();
            self.watch.on_event(Event::Progress { rows, bytes: progress.advance(rows) });
            Ok(())
        })?;
        if whole {
            self.watch.on_event(Event::Progress { rows: 0, bytes: progress.finish() });
        }
        Ok(whole.then_some(counts))
    }
}

/// Columns in whatever layout as a batch of plain ones; strings in dictionaries stay there, for sinks
/// that write dictionaries.
fn written_batch(schema: &SchemaRef, columns: &[ArrayRef], rows: usize) -> Result<RecordBatch> {
    let keeps = |of: &DataType, field: &Field| match of {
        DataType::Dictionary(_, value) => **value == DataType::Utf8 && *field.data_type() == DataType::Utf8,
        of => of == field.data_type(),
    };
    let (mut fields, mut written) = (Vec::new(), Vec::new());
    for (column, field) in columns.iter().zip(schema.fields()) {
        let column = if keeps(column.data_type(), field) { column.clone() } else { cast(column, field.data_type())? };
        fields.push(field.as_ref().clone().with_data_type(column.data_type().clone()));
        written.push(column);
    }
    batch_of(Arc::new(Schema::new(fields)), written, rows)
}

/// The batch with the types of the schema.
fn plain_batch(schema: &SchemaRef, batch: &RecordBatch) -> Result<RecordBatch> {
    let columns = batch.columns().iter().zip(schema.fields());
    let columns = columns.map(|(column, field)| cast(column, field.data_type())).collect::<Result<Vec<_>, _>>()?;
    batch_of(schema.clone(), columns, batch.num_rows())
}

fn batch_of(schema: SchemaRef, columns: Vec<ArrayRef>, rows: usize) -> Result<RecordBatch> {
    let options = RecordBatchOptions::new().with_row_count(Some(rows));
    Ok(RecordBatch::try_new_with_options(schema, columns, &options)?)
}

/// Bytes that a batch adds to those before it: a dictionary that came before is there already.
fn added_bytes(batch: &RecordBatch, before: Option<&RecordBatch>) -> usize {
    let columns = batch.columns().iter().enumerate().map(|(at, column)| {
        let Some(keyed) = column.as_any_dictionary_opt() else { return bytes_of(column) };
        let known = before.and_then(|before| before.column(at).as_any_dictionary_opt());
        let is_known = known.is_some_and(|known| Arc::ptr_eq(known.values(), keyed.values()));
        let values = if is_known { 0 } else { keyed.values().get_array_memory_size() };
        bytes_of(keyed.keys()) + values
    });
    columns.sum()
}

/// Bytes of a column, not of others that it is a slice of.
fn bytes_of(column: &dyn Array) -> usize {
    column.to_data().get_slice_memory_size().unwrap_or_else(|_| column.get_array_memory_size())
}

fn sort(schema: &SchemaRef, batches: &[RecordBatch], by: &[String]) -> Result<RecordBatch> {
    let plain = batches.iter().map(|batch| plain_batch(schema, batch)).collect::<Result<Vec<_>>>()?;
    let all = concat_batches(schema, &plain)?;
    let mut columns = Vec::new();
    for name in by {
        let values = all.column_by_name(name).cloned().ok_or_else(|| Fault::internal("a sort column is missing"))?;
        columns.push(SortColumn { values, options: None });
    }
    // Ties keep their order: the position is the last key.
    let positions: ArrayRef = Arc::new(UInt32Array::from_iter_values(0..all.num_rows() as u32));
    columns.push(SortColumn { values: positions, options: None });
    let order = lexsort_to_indices(&columns, None)?;
    take_batch(&all, &order)
}

/// Rows on their way to becoming row groups, per partition.
pub struct RowGroupBuilder<'a> {
    layout: &'a FileLayout,
    /// The schema of all columns.
    schema: &'a SchemaRef,
    /// The schema without partition columns.
    pub file_schema: SchemaRef,
    file_columns: Vec<usize>,
    partition_columns: Vec<usize>,
    open: BTreeMap<String, OpenRowGroup>,
    bytes_max: usize,
}

#[derive(Default)]
struct OpenRowGroup {
    batches: Vec<RecordBatch>,
    rows: usize,
    bytes: usize,
}

/// Rows that are encoded together.
pub struct RowGroup {
    partition: String,
    pub batches: Vec<RecordBatch>,
    ends_file: bool,
}

impl RowGroup {
    /// In the order in which they are written.
    fn new(layout: &FileLayout, schema: &SchemaRef, partition: String, batches: Vec<RecordBatch>) -> Result<RowGroup> {
        let ends_file = !layout.sort_by.is_empty();
        let batches = if ends_file { vec![sort(schema, &batches, &layout.sort_by)?] } else { batches };
        Ok(RowGroup { partition, batches, ends_file })
    }

    /// The same, encoded.
    pub fn encoded(&self, encoded: EncodedBatch) -> EncodedRowGroup {
        EncodedRowGroup { partition: self.partition.clone(), encoded, ends_file: self.ends_file }
    }
}

impl<'a> RowGroupBuilder<'a> {
    pub fn new(schema: &'a SchemaRef, layout: &'a FileLayout, bytes_max: usize) -> Result<Self> {
        let mut partition_columns = Vec::new();
        for name in &layout.partition_by {
            partition_columns.push(schema.index_of(name).map_err(|_| {
                Fault::new(forebay_model::codes::UNKNOWN_COLUMN, format!("there is no column `{name}` to partition by"))
            })?);
        }
        for name in &layout.sort_by {
            schema.index_of(name).map_err(|_| {
                Fault::new(forebay_model::codes::UNKNOWN_COLUMN, format!("there is no column `{name}` to sort by"))
            })?;
        }
        let file_columns: Vec<usize> =
            (0..schema.fields().len()).filter(|column| !partition_columns.contains(column)).collect();
        let file_schema = Arc::new(schema.project(&file_columns)?);
        Ok(RowGroupBuilder {
            layout,
            schema,
            file_schema,
            file_columns,
            partition_columns,
            open: BTreeMap::new(),
            bytes_max,
        })
    }

    /// Takes a batch; gives the groups that are full. Groups are cut by rows, so that they do not
    /// depend on how many rows a batch has.
    fn push(&mut self, batch: RecordBatch) -> Result<Vec<RowGroup>> {
        let mut ready = Vec::new();
        for (partition, mut batch) in self.split(batch)? {
            loop {
                let open = self.open.entry(partition.clone()).or_default();
                let room = self.layout.group_rows_max - open.rows;
                let taken = batch.slice(0, room.min(batch.num_rows()));
                let rest = batch.slice(taken.num_rows(), batch.num_rows() - taken.num_rows());
                open.rows += taken.num_rows();
                open.bytes += added_bytes(&taken, open.batches.last()) * taken.num_rows() / batch.num_rows().max(1);
                open.batches.push(taken);
                if open.rows == self.layout.group_rows_max || open.bytes > self.bytes_max {
                    let full = std::mem::take(open);
                    ready.push(RowGroup::new(self.layout, &self.file_schema, partition.clone(), full.batches)?);
                }
                if rest.num_rows() == 0 {
                    break;
                }
                batch = rest;
            }
        }
        Ok(ready)
    }

    /// The groups that did not become full.
    pub fn rest(self) -> impl Iterator<Item = Result<RowGroup>> {
        let RowGroupBuilder { open, layout, file_schema, .. } = self;
        let rest = open.into_iter().filter(|(_, open)| open.rows > 0);
        rest.map(move |(partition, open)| RowGroup::new(layout, &file_schema, partition, open.batches))
    }

    /// The rows of each partition, in order.
    fn split(&self, batch: RecordBatch) -> Result<Vec<(String, RecordBatch)>> {
        if batch.num_rows() == 0 {
            return Ok(Vec::new());
        }
        if self.partition_columns.is_empty() {
            return Ok(vec![(String::new(), batch)]);
        }
        let options = FormatOptions::default().with_null("__HIVE_DEFAULT_PARTITION__");
        let mut rows: BTreeMap<String, Vec<u32>> = BTreeMap::new();
        let formatters = self
            .partition_columns
            .iter()
            .map(|column| {
                Ok((
                    escape(batch.schema_ref().field(*column).name()),
                    ArrayFormatter::try_new(batch.column(*column), &options)?,
                ))
            })
            .collect::<Result<Vec<_>>>()?;
        for row in 0..batch.num_rows() {
            let parts =
                formatters.iter().map(|(name, value)| format!("{name}={}", escape(&value.value(row).to_string())));
            rows.entry(parts.collect::<Vec<_>>().join("/")).or_default().push(row as u32);
        }
        let file_batch = batch.project(&self.file_columns)?;
        rows.into_iter()
            .map(|(partition, rows)| Ok((partition, take_batch(&file_batch, &UInt32Array::from(rows))?)))
            .collect()
    }
}

/// Percent-encodes what a path part cannot hold.
fn escape(value: &str) -> String {
    let plain = |c: char| c.is_alphanumeric() || matches!(c, '-' | '_' | '.' | ' ' | ',' | '+' | '@');
    let mut buffer = [0; 4];
    value
        .chars()
        .map(|c| {
            if plain(c) {
                c.to_string()
            } else {
                c.encode_utf8(&mut buffer).bytes().map(|byte| format!("%{byte:02X}")).collect()
            }
        })
        .collect()
}
