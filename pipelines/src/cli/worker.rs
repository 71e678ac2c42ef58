//! `forebay worker`.

use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use clap::Args;
use forebay_model::{BATCH_ROWS_DEFAULT, Fault, Result, codes};
use forebay_run::{ClusterSecurity, RunCredentials, SessionOptions, WorkerServer};
use forebay_storage::EventListener;
use forebay_threads::start_thread;

use super::MetricsArgs;
use super::signals::{end_when_overdue, stop_on_signals};
use super::workers::SecurityArgs;
use crate::Forebay;
use crate::metrics::WorkerMetrics;
use crate::observe::{WorkerTraceArgs, WorkerTraces};
use crate::present::report::WarningLines;
use crate::present::units::parse_bytes;
use crate::settings::Settings;

/// Serve coordinators: do parts of their runs. At SIGTERM it ends what it is doing, hands back the rest,
/// and goes.
#[derive(Debug, Args)]
pub(crate) struct WorkerCommand {
    /// The address to listen at; port 0 takes a free one. Only with TLS may others than this machine
    /// reach it.
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:7400")]
    listen: String,
    /// Tasks that are done at a time, each in one thread [default: all of the machine's]
    #[arg(long, value_name = "N")]
    threads: Option<usize>,
    /// Memory that the process may use, such as 512MiB or 4GiB [default: half of the machine's]
    #[arg(long, value_name = "SIZE", value_parser = parse_bytes)]
    memory: Option<u64>,
    /// End when standard input ends: the process that started this worker has gone.
    #[arg(long, hide = true)]
    attached: bool,
    /// Read the credentials of the run, a line of JSON, from standard input: the launcher of the run writes it.
    #[arg(long, hide = true, requires = "attached", conflicts_with_all = ["tls_ca", "token_file"])]
    credentials_stdin: bool,
    #[command(flatten)]
    security: SecurityArgs,
    #[command(flatten)]
    metrics: MetricsArgs,
    #[command(flatten)]
    traces: WorkerTraceArgs,
}

impl WorkerCommand {
    fn cluster_security(&self) -> Result<ClusterSecurity> {
        if !self.credentials_stdin {
            return self.security.security(None);
        }
        let mut line = String::new();
        std::io::stdin().read_line(&mut line).map_err(|error| {
            let message = "the credentials of the run cannot be read from standard input";
            Fault::new(codes::STORAGE, message).cause(error)
        })?;
        ClusterSecurity::of_run(&RunCredentials::from_line(&line)?)
    }

    pub fn run(self) -> Result<ExitCode> {
        let security = self.cluster_security()?;
        let failed = |error| {
            let fault = Fault::new(
                codes::STORAGE,
                format!("the worker cannot listen at {}", self.listen),
            );
            fault.cause(error)
        };
        let listener = super::bind_listener(&self.listen)?;
        let address = listener.local_addr().map_err(failed)?;
        let settings = Settings::load()?;
        let threads = settings.threads(self.threads)?.value;
        let options = SessionOptions {
            threads,
            memory_bytes: settings.memory_bytes(self.memory)?.value,
            batch_rows: BATCH_ROWS_DEFAULT,
            state: String::new(),
            run_id: None,
        };
        let session = Forebay::new().with_options(options).session()?;
        security.check(&address)?;
        // Jobs have interrupts of their own: the signal says that the worker should leave.
        let leave = forebay_storage::CancellationToken::default();
        stop_on_signals(&leave)?;
        if self.attached {
            let flag = leave.flag();
            start_thread("forebay-attached", move || {
                let _ = std::io::copy(&mut std::io::stdin(), &mut std::io::sink());
                flag.store(true, Ordering::Relaxed);
                // Its coordinator is gone, and so is the use of what it computes.
                end_when_overdue();
            })?;
        }
        let mut metrics = self.metrics.metrics::<WorkerMetrics>()?;
        metrics.serve(&session)?;
        let trace_session = session.clone();
        // A launcher may have started it on another machine than that of the coordinator.
        let is_on_this_machine = self.attached && !self.credentials_stdin;
        let server = WorkerServer::new(session, security, is_on_this_machine)?;
        metrics.own().observe(threads, server.tally());
        let warn: Arc<dyn EventListener> = Arc::new(WarningLines);
        let traces =
            self.traces
                .begin(&trace_session, &server.tally(), address.to_string(), &warn)?;
        super::write_stdout(&format!("listening at {address}\n"))?;
        let served = server.serve(listener, &leave);
        traces.iter().for_each(WorkerTraces::finish);
        served.and_then(|()| metrics.write())?;
        Ok(ExitCode::SUCCESS)
    }
}
