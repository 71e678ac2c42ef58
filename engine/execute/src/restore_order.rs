//! Writes the outputs of sorted rows back in the order of the rows.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::BufWriter;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use arrow::array::{AsArray, RecordBatch};
use arrow::datatypes::{SchemaRef, UInt64Type};
use arrow::ipc::writer::FileWriter;
use datafusion::common::DataFusionError;
use datafusion::logical_expr::LogicalPlan;
use datafusion::prelude::SessionContext;
use forebay_model::{Fault, Result, codes};
use forebay_storage::{Event, EventListener, MemoryBudget, ScratchDir, StorageClient};
use futures::StreamExt;
use tempfile::TempPath;

use crate::external_sort::compressed_ipc;
use crate::query_engine::engine_fault;
use crate::row_position::ROW_BITS;
use crate::sorted_file::{BatchRange, SortedFile, SortedKind};

/// Writes outputs that arrive in the order of rows.
pub struct RestoreOrder {
    pub io: StorageClient,
    pub scratch: ScratchDir,
    pub memory: MemoryBudget,
    pub watch: Arc<dyn EventListener>,
    pub context: SessionContext,
    /// The label of the operation.
    pub label: String,
    /// Schema of all outputs, followed by the row's position.
    pub schema: SchemaRef,
    /// The number of spans of each stream.
    pub spans: Vec<usize>,
    pub kind: SortedKind,
}

impl RestoreOrder {
    pub fn write(
        &self,
        outputs: LogicalPlan,
        keeps_rows: bool,
        stop: &AtomicBool,
    ) -> Result<SortedFile> {
        let locate = |error: DataFusionError| engine_fault(error, &self.label);
        let state = self.context.state();
        let physical = self
            .io
            .block_on(state.create_physical_plan(&outputs))?
            .map_err(locate)?;
        let mut stream = self
            .io
            .block_on(async {
                datafusion::physical_plan::execute_stream(physical, state.task_ctx())
            })?
            .map_err(locate)?;
        let outputs = std::iter::from_fn(|| match self.io.block_on_computation(stream.next()) {
            Ok(batch) => batch.map(|batch| batch.map_err(locate)),
            Err(fault) => Some(Err(fault)),
        });
        self.write_all(outputs, keeps_rows, stop)
    }

    /// Writes batches that come in the order of rows.
    pub fn write_all(
        &self,
        outputs: impl Iterator<Item = Result<RecordBatch>>,
        keeps_rows: bool,
        stop: &AtomicBool,
    ) -> Result<SortedFile> {
        let write = || {
            let mut writer = SortedWriter::new(&self.scratch, &self.schema, keeps_rows)?;
            for batch in outputs {
                let batch = batch?;
                writer.write(&batch)?;
                self.watch.on_event(Event::Worked {
                    done: batch.num_rows() as u64,
                    planned: 0,
                });
                self.memory.check()?;
                check_cancel_flag(stop)?;
            }
            writer.finish(&self.spans, self.kind.clone())
        };
        write().map_err(|fault| self.scratch.locate_fault(fault))
    }

    /// The first span of each stream, among the spans of all streams.
    pub fn stream_offsets(&self) -> Vec<usize> {
        first_spans(&self.spans)
    }

    /// The fault for an error of the engine.
    pub fn fault(&self, error: DataFusionError) -> Fault {
        engine_fault(error, &self.label)
    }
}

/// Writes outputs in the order of rows.
struct SortedWriter {
    writer: FileWriter<BufWriter<File>>,
    path: TempPath,
    /// The outputs without the row's position.
    schema: SchemaRef,
    /// The number of columns in the file.
    written: usize,
    /// The batches of each span, among the spans of all streams.
    batches: BTreeMap<usize, BatchRange>,
    count: usize,
}

impl SortedWriter {
    fn new(scratch: &ScratchDir, full_schema: &SchemaRef, keeps_rows: bool) -> Result<Self> {
        let outputs = full_schema.fields().len() - 1;
        let schema = Arc::new(full_schema.project(&(0..outputs).collect::<Vec<_>>())?);
        let (file, path) = scratch.file()?.into_parts();
        let file_schema = if keeps_rows { full_schema } else { &schema };
        let writer = FileWriter::try_new_with_options(
            BufWriter::with_capacity(1 << 20, file),
            file_schema,
            compressed_ipc()?,
        )?;
        let written = file_schema.fields().len();
        Ok(SortedWriter {
            writer,
            path,
            schema,
            written,
            batches: BTreeMap::new(),
            count: 0,
        })
    }

    fn write(&mut self, batch: &RecordBatch) -> Result<()> {
        let positions = batch
            .column(batch.num_columns() - 1)
            .as_primitive::<UInt64Type>()
            .values();
        let outputs = batch.project(&(0..self.written).collect::<Vec<_>>())?;
        let mut from = 0;
        while from < positions.len() {
            let task = positions[from] >> ROW_BITS;
            let length = positions[from..].partition_point(|row| row >> ROW_BITS == task);
            self.writer.write(&outputs.slice(from, length))?;
            self.batches
                .entry(task as usize)
                .or_insert(BatchRange {
                    first: self.count,
                    count: 0,
                })
                .count += 1;
            self.count += 1;
            from += length;
        }
        Ok(())
    }

    /// `spans` are the numbers of spans of each stream.
    fn finish(mut self, spans: &[usize], kind: SortedKind) -> Result<SortedFile> {
        self.writer.finish()?;
        let columns = 0..self.schema.fields().len();
        let path = Arc::new(self.path);
        let batches = Arc::new(self.batches);
        let firsts = Arc::new(first_spans(spans));
        Ok(SortedFile {
            path,
            schema: self.schema,
            columns,
            batches,
            firsts,
            kind,
        })
    }
}

/// The first span of each stream, among the spans of all streams.
fn first_spans(spans: &[usize]) -> Vec<usize> {
    let span_start = |end: &mut usize, spans: &usize| Some(std::mem::replace(end, *end + spans));
    spans.iter().scan(0, span_start).collect()
}

/// Ends a pass of a worker whose coordinator has gone on without it.
pub fn check_cancel_flag(stop: &AtomicBool) -> Result<()> {
    if stop.load(Ordering::Relaxed) {
        Err(Fault::new(
            codes::INTERRUPTED,
            "the coordinator no longer waits for these rows",
        ))
    } else {
        Ok(())
    }
}
