//! Metrics of a process for Prometheus: served while it runs, or written to a file when it ends.
//!
//! Names and units follow the conventions of Prometheus:
//! <https://prometheus.io/docs/practices/naming/>. Each command has a set of its own, in addition
//! to the metrics of its process. Counters begin at 0.

mod feed;
mod metrics_text;
mod process;
mod registry;
mod run;
mod serve;
mod server;
mod worker;

use std::io::Write as _;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use forebay_model::Result;
use forebay_run::{RunReport, Session};
use forebay_storage::{Event, EventListener, StorageClient};

pub(crate) use self::feed::FeedMetrics;
use self::metrics_text::MetricsText;
use self::process::ProcessMetrics;
use self::registry::MetricRegistry;
pub(crate) use self::run::RunMetrics;
pub(crate) use self::serve::ServeMetrics;
use self::server::MetricsServer;
pub(crate) use self::worker::WorkerMetrics;
use crate::replace_file::replace_file;

/// The metrics of a command.
pub(crate) trait MetricSet: Send + Sync + Sized + 'static {
    /// Registers them.
    fn register(registry: &MetricRegistry) -> Result<Self>;

    /// Counts an event.
    fn count(&self, event: &Event);

    /// Updates metrics to present values, before they are read.
    fn refresh(&self) {}
}

/// The metrics of a process that does a command.
pub(crate) struct CommandMetrics<M> {
    all: Arc<ExposedMetrics<M>>,
    server: Option<String>,
    file: Option<PathBuf>,
    /// Server of the metrics, until the command has ended.
    serving: Option<MetricsServer>,
}

/// Content of the metrics page.
struct ExposedMetrics<M> {
    registry: MetricRegistry,
    own: Arc<M>,
    process: ProcessMetrics,
    pipeline: OnceLock<String>,
    /// Client whose requests are counted, once the session exists.
    io: Mutex<Option<StorageClient>>,
}

/// The page of a process's metrics.
pub(crate) struct MetricsPage(Arc<dyn MetricsText>);

impl MetricsPage {
    /// Content type of the page.
    pub const CONTENT_TYPE: &str = server::TEXT_FORMAT;

    pub fn text(&self) -> Result<String> {
        self.0.text()
    }
}

impl<M: MetricSet> MetricsText for ExposedMetrics<M> {
    fn text(&self) -> Result<String> {
        self.process.refresh(
            self.io
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
                .as_ref(),
        );
        self.own.refresh();
        self.registry.text(self.pipeline.get().map(String::as_str))
    }
}

/// Counts events, and passes them on.
struct MeasuringListener<M> {
    inner: Arc<dyn EventListener>,
    all: Arc<ExposedMetrics<M>>,
}

impl<M: MetricSet> EventListener for MeasuringListener<M> {
    fn on_event(&self, event: Event) {
        self.all.own.count(&event);
        self.inner.on_event(event);
    }
}

impl<M: MetricSet> CommandMetrics<M> {
    /// Metrics that are served at an address, written to a file, or both.
    pub fn new(server: Option<String>, file: Option<PathBuf>) -> Result<Self> {
        let registry = MetricRegistry::default();
        let metrics = Arc::new(M::register(&registry)?);
        let process = ProcessMetrics::register(&registry)?;
        let exposed = ExposedMetrics {
            registry,
            own: metrics,
            process,
            pipeline: OnceLock::new(),
            io: Mutex::default(),
        };
        Ok(CommandMetrics {
            all: Arc::new(exposed),
            server,
            file,
            serving: None,
        })
    }

    /// The metrics of the command itself.
    pub fn own(&self) -> &M {
        &self.all.own
    }

    /// The metrics of the command itself, shared with threads.
    pub fn shared(&self) -> Arc<M> {
        self.all.own.clone()
    }

    /// The page of all metrics, for a server that has other pages, too.
    pub fn page(&self, io: &StorageClient, memory_bytes: u64) -> MetricsPage {
        *self.all.io.lock().unwrap_or_else(PoisonError::into_inner) = Some(io.clone());
        self.all.process.memory_limit.set(memory_bytes as i64);
        MetricsPage(self.all.clone())
    }

    /// Sets the name of the pipeline, a label of all metrics. Only the first name counts.
    pub fn name_pipeline(&self, name: &str) {
        let _ = self.all.pipeline.set(name.to_owned());
    }

    /// A listener that counts events, and passes them on.
    pub fn watch(&self, inner: Arc<dyn EventListener>) -> Arc<dyn EventListener> {
        match (&self.server, &self.file) {
            (None, None) => inner,
            _ => Arc::new(MeasuringListener {
                inner,
                all: self.all.clone(),
            }),
        }
    }

    /// Starts the server, if it was requested.
    pub fn serve(&mut self, session: &Session) -> Result<()> {
        *self.all.io.lock().unwrap_or_else(PoisonError::into_inner) = Some(session.io().clone());
        self.all
            .process
            .memory_limit
            .set(session.memory_bytes() as i64);
        if let Some(address) = &self.server {
            let server =
                MetricsServer::start(address, self.all.clone(), &session.io().runtime_handle()?)?;
            // Standard output is for the summary.
            let _ = writeln!(
                anstream::stderr(),
                "metrics at http://{}/metrics",
                server.address
            );
            self.serving = Some(server);
        }
        Ok(())
    }

    /// Writes the file, if one was requested, and stops the server.
    pub fn write(&self) -> Result<()> {
        match &self.file {
            Some(path) => replace_file(
                path,
                &self.all.text()?,
                "the file of metrics cannot be written",
            ),
            None => Ok(()),
        }
    }
}

impl CommandMetrics<RunMetrics> {
    /// Records the end of the command, and writes the file. A fault of the command comes before one
    /// of the file.
    pub fn close<T>(&self, ended: Result<T>) -> Result<T> {
        self.own().set_end(ended.is_ok());
        let written = self.write();
        let ended = ended?;
        written.map(|()| ended)
    }

    /// The end of a command of one run.
    pub fn finish(&self, ended: Result<RunReport>) -> Result<RunReport> {
        self.close(ended.inspect(|report| self.own().set_report(report)))
    }
}
