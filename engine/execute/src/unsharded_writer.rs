//! Outputs without shards: threads read and encode spans in any order, and the encoded rows are appended in span order.
//! The few rows that a span has of a partition are encoded with those of other spans.

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use arrow::datatypes::SchemaRef;
use forebay_commit::{OutputWriter, Shard};
use forebay_contract::FileLayout;
use forebay_model::{Result, catch_panic};
use forebay_plan::{Carry, RowCounts};
use forebay_threads::{OrderedAppender, lock, parallel_map, poisoned_lock, run_on_all};

use crate::chunk_source::{ReadMode, SpanRef};
use crate::ordered_scan::{OrderedScan, ScanCursor};
use crate::partition_merge::{PartitionMerger, PartitionRun};
use crate::row_groups::{EncodedRowGroup, RowGroup, RowGroupBuilder, RowGroupLimits};
use crate::shard_writer::new_shard;
use crate::write_pass::{WritePass, WrittenRows};
use crate::write_target::WriteTarget;

/// Rows of a span on their way to the files.
enum SpanRows {
    Encoded(EncodedRowGroup),
    Few(PartitionRun),
}

impl SpanRows {
    fn bytes(&self) -> u64 {
        match self {
            SpanRows::Encoded(group) => group.encoded.bytes(),
            SpanRows::Few(run) => run.bytes(),
        }
    }
}

/// Receives rows of a span, or its end.
type EmitRowsFn<'f> = &'f dyn Fn(Option<SpanRows>) -> Result<()>;

/// The files of the shard, and the rows that are not encoded yet.
struct ShardFiles<'a> {
    files: OutputWriter<'a>,
    merger: PartitionMerger<'a>,
}

impl WritePass<'_> {
    /// Writes all rows as one shard.
    pub fn write_one_shard(
        &self,
        sequence: &OrderedScan<'_>,
        schema: &SchemaRef,
        target: &WriteTarget<'_>,
    ) -> Result<Shard> {
        let tasks = sequence.span_refs()?;
        let tasks = &tasks[self.spans_in_interval(sequence, &tasks, target)?];
        sequence.plan_reads(tasks.iter().map(|task| (*task, ReadMode::All)))?;
        let layout = self.sink.layout();
        let file_schema = self.row_groups(schema, &layout)?.file_schema.clone();
        let files = ShardFiles {
            files: target.begin(schema.clone(), target.pass)?,
            merger: PartitionMerger::new(&layout, file_schema.clone(), self.context.memory),
        };
        let ordered = OrderedAppender::new(
            files,
            self.context.memory.output_bytes() as u64,
            |to: &mut ShardFiles<'_>, rows: SpanRows| self.append(to, rows, &file_schema),
        );
        let next = AtomicUsize::new(0);
        let stop = AtomicBool::new(false);
        let total = Mutex::new(RowCounts::default());
        let span = |index: usize, task: SpanRef| {
            let offer = |rows: Option<SpanRows>| {
                let last = rows.is_none();
                let rows = rows.map(|rows| {
                    let bytes = rows.bytes();
                    (rows, bytes)
                });
                ordered.offer(index, rows, last)
            };
            let groups = self.row_groups(schema, &layout)?;
            let counts = self.write_span(sequence, task, groups, target, &offer)?;
            lock(&total)?.add(&counts);
            Ok(())
        };
        let ended = run_on_all(self.context.threads, &|| {
            while !stop.load(Ordering::Relaxed) {
                let index = next.fetch_add(1, Ordering::Relaxed);
                let Some(task) = tasks.get(index) else { break };
                catch_panic(|| span(index, *task)).inspect_err(|_| {
                    stop.store(true, Ordering::Relaxed);
                    ordered.stop();
                })?;
            }
            Ok(())
        });
        ended.into_iter().collect::<Result<()>>()?;
        let counts = total.into_inner().map_err(|_| poisoned_lock())?;
        let ShardFiles {
            mut files,
            mut merger,
        } = ordered.done()?;
        merger.write_all(&mut |groups| self.append_groups(&mut files, &groups, &file_schema))?;
        let files = files.finish(false)?;
        Ok(new_shard(target.pass, Vec::new(), counts, files))
    }

    fn row_groups<'b>(
        &self,
        schema: &'b SchemaRef,
        layout: &'b FileLayout,
    ) -> Result<RowGroupBuilder<'b>> {
        let threads = self.context.threads.max(1);
        let group_bytes_max = self.context.memory.output_bytes() / threads;
        let limits = RowGroupLimits::of_thread(self.context.memory, threads, group_bytes_max);
        RowGroupBuilder::new(schema, layout, limits)
    }

    fn append(&self, to: &mut ShardFiles<'_>, rows: SpanRows, schema: &SchemaRef) -> Result<()> {
        let ShardFiles { files, merger } = to;
        match rows {
            SpanRows::Encoded(group) => {
                // Rows of earlier spans come first.
                if let Some(earlier) = merger.take(&group.partition)? {
                    self.append_groups(files, &[earlier], schema)?;
                }
                files.append(&group.partition, group.encoded, group.ends_file)
            }
            SpanRows::Few(run) => merger.add(run, &mut |groups| {
                self.append_groups(files, &groups, schema)
            }),
        }
    }

    /// Encodes and appends groups.
    fn append_groups(
        &self,
        files: &mut OutputWriter<'_>,
        groups: &[RowGroup],
        schema: &SchemaRef,
    ) -> Result<()> {
        let encoded = parallel_map(self.context.threads, groups.len(), &|number| {
            self.catch_encoding(|| self.sink.encode(schema, &groups[number].batches))
        })?;
        for (group, encoded) in groups.iter().zip(encoded) {
            let group = group.encoded(encoded);
            files.append(&group.partition, group.encoded, group.ends_file)?;
        }
        Ok(())
    }

    fn write_span(
        &self,
        sequence: &OrderedScan<'_>,
        task: SpanRef,
        mut groups: RowGroupBuilder<'_>,
        target: &WriteTarget<'_>,
        offer: EmitRowsFn<'_>,
    ) -> Result<RowCounts> {
        let file_schema = groups.file_schema.clone();
        let mut take = |ready: RowGroup| {
            let encoded = self.catch_encoding(|| self.sink.encode(&file_schema, &ready.batches))?;
            offer(Some(SpanRows::Encoded(ready.encoded(encoded))))
        };
        let mut carry = Carry::default();
        let cursor = ScanCursor {
            carry: &mut carry,
            reads: &sequence,
        };
        let stop = AtomicBool::new(false);
        let rows = WrittenRows {
            sequence,
            tasks: &[task],
            columns: ReadMode::All,
            target,
            stop: &stop,
        };
        let counts =
            self.process_rows(&rows, cursor, &mut groups, &mut |_, _| Ok(()), &mut take)?;
        let layout = self.sink.layout();
        let mut few = Vec::new();
        for open in groups.open_rows() {
            if !layout.partition_by.is_empty() && PartitionRun::takes(&open) {
                few.push(open);
            } else {
                take(open.closed(&layout, &file_schema)?)?;
            }
        }
        if !few.is_empty() {
            offer(Some(SpanRows::Few(PartitionRun::new(&file_schema, few)?)))?;
        }
        offer(None)?;
        Ok(counts.unwrap_or_default())
    }
}
