//! Files written by several threads, each visible only when it is whole.

use std::error::Error;
use std::fs::{self, File};
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::mpsc;

use arrow::array::{ArrayRef, RecordBatch};
use arrow::datatypes::{DataType, Field, Schema};
use forebay_model::{Fault, FaultCode, Result, catch_panic, codes};
use parquet::arrow::ArrowWriter;
use parquet::arrow::arrow_writer::ArrowWriterOptions;
use parquet::basic::{Compression as Codec, ZstdLevel};
use parquet::errors::ParquetError;
use parquet::file::metadata::{KeyValue, SortingColumn};
use parquet::file::properties::WriterProperties;

use crate::options::{GenerateSummary, OutputCompression, OutputOptions};

/// Rows per batch handed to the encoder: one column of it fits in a second-level cache.
pub const BATCH_ROWS: usize = 16_384;

/// The version of the generated rows: it changes whenever the same options give other rows.
const VERSION: u32 = 1;

/// All files of one data set.
pub struct GeneratedFiles<'a> {
    /// The schema that readers see.
    pub schema: Arc<Schema>,
    /// The note in each file: the generator and everything that its values depend on.
    pub note: serde_json::Value,
    /// Columns by which every file is sorted.
    pub sorted_by: &'a [i32],
    /// File names, in order.
    pub names: &'a [String],
    /// The output directory and format.
    pub output: &'a OutputOptions,
}

/// Takes the batches of one file.
pub type BatchCallback<'a> = &'a mut dyn FnMut(Vec<ArrayRef>) -> Result<()>;

impl GeneratedFiles<'_> {
    /// Writes them all; `fill` produces the batches of the file of an index.
    pub fn write(
        &self,
        fill: &(dyn Fn(usize, BatchCallback<'_>) -> Result<()> + Sync),
        progress: &mut dyn FnMut(u64),
    ) -> Result<GenerateSummary> {
        let out = &self.output.out;
        fs::create_dir_all(out)
            .map_err(|error| io_fault(error, "the directory cannot be made").file(text(out)))?;
        if !self.output.replace
            && let Some(name) = self.names.iter().find(|name| out.join(name).exists())
        {
            return Err(Fault::new(codes::USAGE, "the file exists already")
                .file(text(&out.join(name)))
                .hint("choose another directory, or say that files are to be replaced"));
        }
        let properties = self.properties()?;
        let next = AtomicUsize::new(0);
        let stop = AtomicBool::new(false);
        let rows = AtomicU64::new(0);
        let bytes = AtomicU64::new(0);
        let (sender, receiver) = mpsc::channel();
        let work = |sender: mpsc::Sender<u64>| -> Result<(), (usize, Fault)> {
            while !stop.load(Ordering::Relaxed) {
                let index = next.fetch_add(1, Ordering::Relaxed);
                let Some(name) = self.names.get(index) else {
                    break;
                };
                let count = |count: u64| {
                    rows.fetch_add(count, Ordering::Relaxed);
                    // The receiver outlives the senders; if it did not, the count would not be needed.
                    let _ = sender.send(count);
                };
                match catch_panic(|| {
                    self.file(name, properties.clone(), &stop, &count, &|put| {
                        fill(index, put)
                    })
                }) {
                    Ok(written) => bytes.fetch_add(written, Ordering::Relaxed),
                    Err(fault) => {
                        stop.store(true, Ordering::Relaxed);
                        return Err((index, fault));
                    }
                };
            }
            Ok(())
        };
        let mut faults = Vec::new();
        std::thread::scope(|scope| {
            let threads = self.output.threads.min(self.names.len());
            let mut handles = Vec::with_capacity(threads);
            for thread in 0..threads {
                let sender = sender.clone();
                match std::thread::Builder::new()
                    .name(format!("generate-{thread}"))
                    .spawn_scoped(scope, || work(sender))
                {
                    Ok(handle) => handles.push(handle),
                    // The threads that could be started do the work of the others.
                    Err(_) if !handles.is_empty() => break,
                    Err(error) => faults.push((0, io_fault(error, "no thread could be started"))),
                }
            }
            drop(sender);
            let mut done = 0;
            for count in receiver {
                done += count;
                progress(done);
            }
            for handle in handles {
                match handle.join() {
                    Ok(Ok(())) => {}
                    Ok(Err(fault)) => faults.push(fault),
                    Err(_) => {
                        faults.push((0, Fault::internal("a thread of the generator panicked")))
                    }
                }
            }
        });
        // A thread that was told to stop reports `INTERRUPTED`; the cause is another thread's fault.
        faults.sort_by_key(|(index, fault)| (fault.code() == codes::INTERRUPTED, *index));
        match faults.into_iter().next() {
            Some((_, fault)) => Err(fault),
            None => Ok(GenerateSummary {
                files: self.names.len(),
                rows: rows.into_inner(),
                bytes: bytes.into_inner(),
            }),
        }
    }

    /// One file: under a hidden name until all of it is on the disk.
    fn file(
        &self,
        name: &str,
        properties: WriterProperties,
        stop: &AtomicBool,
        count: &dyn Fn(u64),
        fill: &dyn Fn(BatchCallback<'_>) -> Result<()>,
    ) -> Result<u64> {
        let path = self.output.out.join(name);
        let hidden = self.output.out.join(format!(".{name}.tmp"));
        let written = self
            .write_rows(&hidden, properties, stop, count, fill)
            .and_then(|writer| {
                finish_file(writer, &hidden, &path)
                    .map_err(|error| io_fault(error, "the file cannot be finished"))
            });
        written.map_err(|fault| {
            // An unfinished file is no use; a fault of its removal would hide the cause.
            let _ = fs::remove_file(&hidden);
            fault.file(text(&path))
        })
    }

    fn write_rows(
        &self,
        path: &Path,
        properties: WriterProperties,
        stop: &AtomicBool,
        count: &dyn Fn(u64),
        fill: &dyn Fn(BatchCallback<'_>) -> Result<()>,
    ) -> Result<ArrowWriter<File>> {
        let file =
            File::create(path).map_err(|error| io_fault(error, "the file cannot be made"))?;
        let options = ArrowWriterOptions::new()
            .with_properties(properties)
            .with_skip_arrow_metadata(true);
        let schema = Arc::clone(&self.schema);
        let mut writer =
            ArrowWriter::try_new_with_options(file, schema, options).map_err(parquet_fault)?;
        fill(&mut |columns| {
            if stop.load(Ordering::Relaxed) {
                return Err(Fault::new(codes::INTERRUPTED, "another file failed"));
            }
            let batch = batch(&self.schema, columns)?;
            writer.write(&batch).map_err(parquet_fault)?;
            count(batch.num_rows() as u64);
            Ok(())
        })?;
        writer.finish().map_err(parquet_fault)?;
        Ok(writer)
    }

    fn properties(&self) -> Result<WriterProperties> {
        let codec = match self.output.compression {
            OutputCompression::None => Codec::UNCOMPRESSED,
            OutputCompression::Snappy => Codec::SNAPPY,
            OutputCompression::Zstd => Codec::ZSTD(ZstdLevel::try_new(3).map_err(parquet_fault)?),
        };
        let sorting: Vec<SortingColumn> = self
            .sorted_by
            .iter()
            .map(|&column_idx| SortingColumn {
                column_idx,
                descending: false,
                nulls_first: false,
            })
            .collect();
        Ok(WriterProperties::builder()
            .set_compression(codec)
            .set_max_row_group_row_count(Some(self.output.row_group_rows))
            // Not the library's version: the bytes are to outlive it.
            .set_created_by(format!("forebay generate {VERSION}"))
            .set_key_value_metadata(Some(vec![KeyValue::new(
                "forebay.generate".into(),
                self.note.to_string(),
            )]))
            .set_sorting_columns((!sorting.is_empty()).then_some(sorting))
            .build())
    }
}

/// A batch whose strings may still be dictionaries: the encoder takes both for a column of strings,
/// and only the plain type is declared in the file.
fn batch(schema: &Schema, columns: Vec<ArrayRef>) -> Result<RecordBatch> {
    let fields: Vec<Field> = schema
        .fields()
        .iter()
        .zip(&columns)
        .map(|(field, column)| {
            field
                .as_ref()
                .clone()
                .with_data_type(column.data_type().clone())
        })
        .collect();
    Ok(RecordBatch::try_new(
        Arc::new(Schema::new(fields)),
        columns,
    )?)
}

/// A column.
pub fn field(name: impl Into<String>, data_type: DataType, nullable: bool) -> Field {
    Field::new(name, data_type, nullable)
}

fn text(path: &Path) -> String {
    path.display().to_string()
}

fn io_code(error: &io::Error) -> FaultCode {
    match error.kind() {
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => codes::DISK_FULL,
        io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem => codes::ACCESS,
        io::ErrorKind::NotFound | io::ErrorKind::NotADirectory => codes::NOT_FOUND,
        _ => codes::STORAGE,
    }
}

pub fn io_fault(error: io::Error, message: &str) -> Fault {
    Fault::new(io_code(&error), message).cause(error)
}

/// The library hides the system's error; it is found again, because a full disk is no bug.
fn parquet_fault(error: ParquetError) -> Fault {
    let mut code = codes::INTERNAL;
    let mut cause: Option<&(dyn Error + 'static)> = Some(&error);
    if let ParquetError::External(external) = &error {
        code = codes::STORAGE;
        cause = Some(external.as_ref());
    }
    while let Some(inner) = cause {
        if let Some(io) = inner.downcast_ref::<io::Error>() {
            code = io_code(io);
            break;
        }
        cause = inner.source();
    }
    Fault::new(code, "the file cannot be written").cause(error)
}

/// Writes a file to the disk, and gives it its name; returns its size.
fn finish_file(mut writer: ArrowWriter<File>, hidden: &Path, path: &Path) -> std::io::Result<u64> {
    writer.sync()?;
    writer.inner().sync_all()?;
    let bytes = writer.inner().metadata()?.len();
    fs::rename(hidden, path)?;
    Ok(bytes)
}
