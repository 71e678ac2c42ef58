//! Outputs without shards: threads read and encode spans in any order, and the encoded rows are appended in span order.

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use arrow::datatypes::SchemaRef;
use forebay_commit::{OutputWriter, Shard};
use forebay_model::{Result, catch_panic};
use forebay_plan::{Carry, RowCounts};
use forebay_threads::{OrderedAppender, lock, poisoned_lock, run_on_all};

use crate::ordered_scan::{OrderedScan, ReadMode, ScanCursor, SpanRef};
use crate::row_groups::{EncodedRowGroup, RowGroup, RowGroupBuilder};
use crate::shard_writer::new_shard;
use crate::write_pass::{WritePass, WrittenRows};
use crate::write_target::WriteTarget;

/// Takes an encoded row group of a span, or its end.
type EmitGroupFn<'f> = &'f dyn Fn(Option<EncodedRowGroup>) -> Result<()>;

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
        let files = target.begin(schema.clone(), target.pass)?;
        let append = |files: &mut OutputWriter<'_>, part: EncodedRowGroup| {
            files.append(&part.partition, part.encoded, part.ends_file)
        };
        let ordered =
            OrderedAppender::new(files, self.context.memory.output_bytes() as u64, append);
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
            lock(&total)?.add(&counts);
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
        run_on_all(self.context.threads, &each)
            .into_iter()
            .collect::<Result<()>>()?;
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
        let mut groups = RowGroupBuilder::new(
            schema,
            &layout,
            self.context.memory.output_bytes() / self.context.threads.max(1),
        )?;
        let file_schema = groups.file_schema.clone();
        let mut take = |ready: RowGroup| {
            let encoded = self.catch_encoding(|| self.sink.encode(&file_schema, &ready.batches))?;
            offer(Some(ready.encoded(encoded)))
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
        groups.rest().try_for_each(|ready| take(ready?))?;
        offer(None)?;
        Ok(counts.unwrap_or_default())
    }
}
