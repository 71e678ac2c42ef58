//! A sample of requests and their answers, as Parquet that `profile` and `drift` read.
//!
//! ```text
//! LOG/requests/<milliseconds>-<process>-<number>.parquet   rows of requests: the input columns, `served_at`, `version`
//! LOG/answers/...                                          the rows that answered them, with the same two columns
//! ```

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use arrow::array::{ArrayRef, RecordBatch, StringArray, TimestampMillisecondArray, new_null_array};
use arrow::compute::{cast, concat_batches};
use arrow::datatypes::{DataType, Field, FieldRef, Schema, SchemaRef, TimeUnit};
use forebay_model::{Fault, Result};
use forebay_threads::start_thread;
use parquet::arrow::ArrowWriter;
use parquet::basic::{Compression, ZstdLevel};
use parquet::file::properties::WriterProperties;

use super::model::{ServedModel, short_id};
use crate::metrics::ServeMetrics;

/// Requests that wait to be written at most; others are counted as dropped.
const WAITING_MAX: usize = 256;

/// Rows of a file at most.
const FILE_ROWS: usize = 8192;

/// Time after which a file is written although it is not full.
const FILE_AGE: Duration = Duration::from_secs(10);

/// Files of each kind that are kept; older ones are removed.
const FILES_MAX: usize = 1000;

/// Column with the time of a request.
const TIME: &str = "served_at";

/// Column with the version that answered.
const VERSION: &str = "version";

/// A request that is logged.
struct LoggedRequest {
    rows: RecordBatch,
    answers: RecordBatch,
}

/// Writes a sample of requests on a thread of its own. Dropping it writes what waits.
pub(super) struct RequestLog {
    share: f64,
    sender: Option<SyncSender<LoggedRequest>>,
    thread: Option<JoinHandle<()>>,
    metrics: Arc<ServeMetrics>,
}

impl RequestLog {
    /// Logs this share of the requests to a directory.
    pub fn start(directory: &Path, share: f64, metrics: &Arc<ServeMetrics>) -> Result<RequestLog> {
        let requests = LogFiles::new(directory.join("requests"))?;
        let answers = LogFiles::new(directory.join("answers"))?;
        let (sender, receiver) = sync_channel(WAITING_MAX);
        let counts = metrics.clone();
        let writer = LogWriter {
            requests,
            answers,
            metrics: counts,
        };
        let thread = start_thread("forebay-log", move || writer.run(&receiver))?;
        Ok(RequestLog {
            share,
            sender: Some(sender),
            thread: Some(thread),
            metrics: metrics.clone(),
        })
    }

    /// Logs a request, if it belongs to the sample.
    pub fn offer(&self, model: &ServedModel, rows: &RecordBatch, answers: &RecordBatch) {
        if fastrand::f64() >= self.share {
            return;
        }
        let fields = model.inputs().fields().iter();
        let columns = fields.map(|field| (field.clone(), logged_column(rows, field)));
        let columns: Vec<(FieldRef, ArrayRef)> = columns.collect();
        let answered = answers.schema_ref().fields().iter().cloned();
        let answered = answered.zip(answers.columns().iter().cloned());
        let request = stamped(columns, rows.num_rows(), &model.version);
        let answer = stamped(answered.collect(), answers.num_rows(), &model.version);
        let logged = request
            .zip(answer)
            .map(|(rows, answers)| LoggedRequest { rows, answers });
        let sent = logged
            .zip(self.sender.as_ref())
            .map(|(logged, sender)| sender.try_send(logged));
        if !matches!(sent, Some(Ok(()))) {
            self.metrics.log_dropped.inc();
        }
    }
}

impl Drop for RequestLog {
    fn drop(&mut self) {
        self.sender = None;
        if let Some(thread) = self.thread.take() {
            // A panic of the writer has been printed.
            let _ = thread.join();
        }
    }
}

/// The values of an input, in the type that the pipeline reads.
fn logged_column(rows: &RecordBatch, field: &Field) -> ArrayRef {
    let column = rows.column_by_name(field.name());
    let column = column.and_then(|column| cast(column, field.data_type()).ok());
    column.unwrap_or_else(|| new_null_array(field.data_type(), rows.num_rows()))
}

/// Columns with the time and the version.
fn stamped(columns: Vec<(FieldRef, ArrayRef)>, rows: usize, version: &str) -> Option<RecordBatch> {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).ok()?;
    let time = TimestampMillisecondArray::from_value(now.as_millis() as i64, rows);
    let version: StringArray = std::iter::repeat_n(Some(short_id(version)), rows).collect();
    let instant = DataType::Timestamp(TimeUnit::Millisecond, Some("UTC".into()));
    let mut fields: Vec<FieldRef> = Vec::new();
    let mut arrays: Vec<ArrayRef> = Vec::new();
    for (field, column) in columns {
        if [TIME, VERSION].contains(&field.name().as_str()) {
            continue;
        }
        let data_type = column.data_type().clone();
        fields.push(Arc::new(Field::new(field.name(), data_type, true)));
        arrays.push(column);
    }
    fields.push(Arc::new(Field::new(TIME, instant, false)));
    arrays.push(Arc::new(time.with_timezone("UTC")));
    fields.push(Arc::new(Field::new(VERSION, DataType::Utf8, false)));
    arrays.push(Arc::new(version));
    RecordBatch::try_new(Arc::new(Schema::new(fields)), arrays).ok()
}

struct LogWriter {
    requests: LogFiles,
    answers: LogFiles,
    metrics: Arc<ServeMetrics>,
}

impl LogWriter {
    fn run(mut self, receiver: &Receiver<LoggedRequest>) {
        loop {
            let received = receiver.recv_timeout(FILE_AGE);
            let is_closed = matches!(received, Err(RecvTimeoutError::Disconnected));
            if let Ok(request) = received {
                self.metrics.log_rows.inc_by(request.rows.num_rows() as u64);
                self.requests.push(request.rows);
                self.answers.push(request.answers);
            }
            for files in [&mut self.requests, &mut self.answers] {
                if (is_closed || files.is_due()) && files.write().is_err() {
                    // A full disk must not end the server.
                    self.metrics.log_dropped.inc();
                }
            }
            if is_closed {
                return;
            }
        }
    }
}

/// Files of one kind, and the rows of the next one.
struct LogFiles {
    directory: PathBuf,
    batches: Vec<RecordBatch>,
    rows: usize,
    since: Instant,
}

impl LogFiles {
    fn new(directory: PathBuf) -> Result<LogFiles> {
        std::fs::create_dir_all(&directory).map_err(|error| {
            Fault::disk("the directory of the log cannot be made", error)
                .file(directory.display().to_string())
        })?;
        Ok(LogFiles {
            directory,
            batches: Vec::new(),
            rows: 0,
            since: Instant::now(),
        })
    }

    fn push(&mut self, batch: RecordBatch) {
        // A file has one schema: that of its version's inputs and answers.
        let is_other = self
            .batches
            .first()
            .is_some_and(|first| first.schema_ref() != batch.schema_ref());
        if is_other {
            // Its rows are dropped where it cannot be written.
            let _ = self.write();
        }
        if self.batches.is_empty() {
            self.since = Instant::now();
        }
        self.rows += batch.num_rows();
        self.batches.push(batch);
    }

    fn is_due(&self) -> bool {
        self.rows >= FILE_ROWS || (self.rows > 0 && self.since.elapsed() >= FILE_AGE)
    }

    /// Writes the rows to a file, which appears whole.
    fn write(&mut self) -> Result<()> {
        let batches = std::mem::take(&mut self.batches);
        self.rows = 0;
        let Some(first) = batches.first() else {
            return Ok(());
        };
        let rows = concat_batches(first.schema_ref(), &batches)?;
        let content = parquet_bytes(&rows)?;
        let path = self.directory.join(file_name());
        let staged = path.with_extension("writing");
        let failed = |error| {
            Fault::disk("the log cannot be written", error).file(path.display().to_string())
        };
        std::fs::write(&staged, content).map_err(failed)?;
        std::fs::rename(&staged, &path).map_err(failed)?;
        self.remove_surplus().map_err(failed)
    }

    fn remove_surplus(&self) -> std::io::Result<()> {
        let mut files = Vec::new();
        for entry in std::fs::read_dir(&self.directory)? {
            let path = entry?.path();
            if path.extension().is_some_and(|ending| ending == "parquet") {
                files.push(path);
            }
        }
        files.sort_unstable();
        let surplus = files.len().saturating_sub(FILES_MAX);
        files
            .iter()
            .take(surplus)
            .try_for_each(std::fs::remove_file)
    }
}

/// Names sort by time. Processes that share a directory have names of their own.
fn file_name() -> String {
    static NUMBER: AtomicU64 = AtomicU64::new(0);
    let number = NUMBER.fetch_add(1, Ordering::Relaxed);
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    let milliseconds = now.map_or(0, |now| now.as_millis());
    format!(
        "{milliseconds:014}-{}-{number:06}.parquet",
        std::process::id()
    )
}

fn parquet_bytes(rows: &RecordBatch) -> Result<Vec<u8>> {
    let properties = WriterProperties::builder()
        .set_compression(Compression::ZSTD(ZstdLevel::default()))
        .build();
    let schema: SchemaRef = rows.schema();
    let mut writer = ArrowWriter::try_new(Vec::new(), schema, Some(properties))
        .map_err(|error| Fault::internal("rows that Parquet does not take").cause(error))?;
    let broken = |error| Fault::internal("rows that Parquet does not take").cause(error);
    writer.write(rows).map_err(broken)?;
    writer.into_inner().map_err(broken)
}
