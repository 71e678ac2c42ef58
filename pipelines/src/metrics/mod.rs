//! Metrics of a process for Prometheus: served while it is at work, or written to a file when it ends.
//!
//! Names and units follow the conventions of Prometheus: <https://prometheus.io/docs/practices/naming/>. Each command has
//! a set of its own, beside the metrics of its process. What it counts begins at 0.

mod feed;
mod process;
mod registry;
mod run;
mod server;
mod worker;

use std::io::Write as _;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use forebay_model::Result;
use forebay_run::{RunReport, Session};
use forebay_storage::{Event, EventListener, StorageClient};

pub(crate) use self::feed::FeedMetrics;
use self::process::ProcessMetrics;
use self::registry::MetricRegistry;
pub(crate) use self::run::RunMetrics;
use self::server::MetricsServer;
pub(crate) use self::worker::WorkerMetrics;
use crate::replace_file::replace_file;

/// The metrics of a command.
pub(crate) trait MetricSet: Send + Sync + Sized + 'static {
    /// Registers them.
    fn register(registry: &MetricRegistry) -> Result<Self>;

    /// Counts an event.
    fn count(&self, event: &Event);

    /// Takes present values, before they are read.
    fn refresh(&self) {}
}

/// The metrics of a process that does a command.
pub(crate) struct CommandMetrics<M> {
    all: Arc<ExposedMetrics<M>>,
    server: Option<String>,
    file: Option<PathBuf>,
    /// Answers requests until the command has ended.
    serving: Option<MetricsServer>,
}

/// What readers get.
struct ExposedMetrics<M> {
    registry: MetricRegistry,
    own: M,
    process: ProcessMetrics,
    pipeline: OnceLock<String>,
    /// Where storage was asked, once the session is there.
    io: Mutex<Option<StorageClient>>,
}

/// The text that a server answers with.
trait MetricsText: Send + Sync {
    fn text(&self) -> Result<String>;
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

/// Counts what it hears, and passes it on.
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
        let (own, process) = (
            M::register(&registry)?,
            ProcessMetrics::register(&registry)?,
        );
        let all = ExposedMetrics {
            registry,
            own,
            process,
            pipeline: OnceLock::new(),
            io: Mutex::default(),
        };
        Ok(CommandMetrics {
            all: Arc::new(all),
            server,
            file,
            serving: None,
        })
    }

    /// The metrics of the command itself.
    pub fn own(&self) -> &M {
        &self.all.own
    }

    /// Names the pipeline, as a label of all metrics. Only the first name counts.
    pub fn name_pipeline(&self, name: &str) {
        let _ = self.all.pipeline.set(name.to_owned());
    }

    /// A listener that counts what it hears, and passes it on.
    pub fn watch(&self, inner: Arc<dyn EventListener>) -> Arc<dyn EventListener> {
        match (&self.server, &self.file) {
            (None, None) => inner,
            _ => Arc::new(MeasuringListener {
                inner,
                all: self.all.clone(),
            }),
        }
    }

    /// Begins to answer requests, where that was asked for.
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

    /// Writes the file, where one was asked for, and answers no more requests.
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
    /// Tells how the command ended, and writes the file. A fault of the command comes before one of the file.
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
