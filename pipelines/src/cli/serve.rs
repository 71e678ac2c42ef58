//! `forebay serve`.

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use clap::Args;
use forebay_model::{BATCH_ROWS_DEFAULT, Fault, Result, codes};
use forebay_run::{ClusterToken, SessionOptions};
use forebay_storage::{CancellationToken, WebClient};

use super::options::{MachineArgs, MetricsArgs};
use super::signals::stop_on_signals;
use super::usage;
use crate::Forebay;
use crate::metrics::ServeMetrics;
use crate::present::units::parse_bytes;
use crate::serve::{
    FeatureServer, LogOptions, ServeLimits, ServeOptions, ServeTls, ShadowOptions, short_id,
};
use crate::settings::Settings;

/// Share of the memory that requests may take.
const REQUESTS_SHARE: u64 = 8;

/// Greatest limit of time: a day.
const SECONDS_MAX: Duration = Duration::from_secs(86_400);

/// Greatest delay of a batch.
const BATCH_DELAY_MAX: Duration = Duration::from_secs(60);

/// Greatest number of rows, bytes, requests or connections.
const COUNT_MAX: usize = 1 << 32;

/// Time that requests have to end after SIGTERM: the process ends some seconds after the signal in any case.
const DRAIN: Duration = Duration::from_secs(6);

/// Serve features or predictions for rows: Open Inference Protocol (HTTP and gRPC), Feast, MLflow and SageMaker, Arrow.
///
/// PATH is the directory of an artifact, the output of a `train` sink, or the name of a pipeline with an artifact in the
/// state directory. The last two are followed: a newer version is loaded beside, checked with kept requests, and then
/// answers. A model whose step has windows takes the rows before from the serving state in the state directory. A model
/// with trees for each step of the horizon, a recursive one, or one of a transformed target answers the keys of a series
/// with its whole horizon. At SIGTERM the server ends the requests that have begun.
#[derive(Debug, Args)]
pub(crate) struct ServeCommand {
    /// An artifact, the output of a `train` sink, or the name of a pipeline.
    #[arg(required_unless_present = "rollback")]
    path: Option<String>,
    /// The address to listen at; port 0 takes a free one. Without a token and TLS, only this machine may reach it.
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:8080")]
    listen: String,
    /// Let a running server at this URL, such as http://127.0.0.1:8080, switch back to the version before.
    #[arg(long, value_name = "URL", conflicts_with = "path")]
    rollback: Option<String>,
    #[command(flatten)]
    answers: AnswerArgs,
    #[command(flatten)]
    versions: VersionArgs,
    #[command(flatten)]
    limits: LimitArgs,
    #[command(flatten)]
    security: ServeSecurityArgs,
    #[command(flatten)]
    machine: MachineArgs,
}

/// Form of the answers.
#[derive(Debug, Args)]
struct AnswerArgs {
    /// Name of the model in the protocols [default: that of the pipeline]
    #[arg(long, value_name = "NAME")]
    name: Option<String>,
    /// The step of an artifact whose columns are answered [default: that of the first sink]
    #[arg(long, value_name = "NAME")]
    step: Option<String>,
    /// Answer with the features of a model in addition to its predictions.
    #[arg(long)]
    with_features: bool,
    /// Answer the keys of a series with the forecast of its whole horizon. Models that predict rows of the future alone do
    /// so in any case.
    #[arg(long, conflicts_with = "with_features")]
    forecast: bool,
    /// Name of the column of predictions.
    #[arg(long, value_name = "NAME", default_value = "prediction")]
    prediction: String,
    /// Least prediction: smaller ones become it.
    #[arg(long, value_name = "NUMBER", allow_negative_numbers = true)]
    min: Option<f64>,
    /// Greatest prediction: greater ones become it.
    #[arg(long, value_name = "NUMBER", allow_negative_numbers = true)]
    max: Option<f64>,
}

/// Versions beside the current one, and the log of what they answer.
#[derive(Debug, Args)]
struct VersionArgs {
    /// Seconds between two looks for a newer version.
    #[arg(long, value_name = "SECONDS", default_value_t = 5.0)]
    follow_seconds: f64,
    /// Earlier versions that stay loaded for a rollback.
    #[arg(long, value_name = "N", default_value_t = 2)]
    keep_versions: usize,
    /// A second version, which computes the answers beside: /shadow reports the differences.
    #[arg(long, value_name = "PATH")]
    shadow: Option<String>,
    /// Share of the keys that the second version answers, such as 5%. A key always goes to the same version.
    #[arg(long, value_name = "SHARE", requires = "shadow", value_parser = parse_share)]
    split: Option<f64>,
    /// Log a sample of requests and answers to this directory, as Parquet.
    #[arg(long, value_name = "DIR")]
    log: Option<PathBuf>,
    /// Share of the requests that are logged, such as 1%.
    #[arg(long, value_name = "SHARE", default_value = "1%", value_parser = parse_share)]
    log_share: f64,
}

/// Limits on requests.
#[derive(Debug, Args)]
struct LimitArgs {
    /// Bytes of a request at most.
    #[arg(
        long,
        value_name = "SIZE",
        value_parser = parse_bytes,
        default_value = "32MiB",
        hide_short_help = true
    )]
    request_bytes: u64,
    /// Rows of a request at most.
    #[arg(
        long,
        value_name = "N",
        default_value_t = 100_000,
        hide_short_help = true
    )]
    request_rows: usize,
    /// Connections at most; others wait until one closes.
    #[arg(long, value_name = "N", default_value_t = 1024, hide_short_help = true)]
    connections: usize,
    /// Requests that are answered at the same time at most; others are refused with 429.
    #[arg(long, value_name = "N", default_value_t = 1024, hide_short_help = true)]
    requests: usize,
    /// Rows that wait for a thread at most; a request with more is refused with 429.
    #[arg(
        long,
        value_name = "N",
        default_value_t = 200_000,
        hide_short_help = true
    )]
    queue_rows: usize,
    /// Rows of several requests that are computed as one batch at most.
    #[arg(long, value_name = "N", default_value_t = 4096, hide_short_help = true)]
    batch_rows: usize,
    /// Milliseconds that a request waits for others to be computed with it. Without it, requests that wait for a thread
    /// form batches.
    #[arg(
        long,
        value_name = "MILLISECONDS",
        default_value_t = 0.0,
        hide_short_help = true
    )]
    batch_delay_ms: f64,
    /// Seconds for an answer.
    #[arg(
        long,
        value_name = "SECONDS",
        default_value_t = 10.0,
        hide_short_help = true
    )]
    timeout_seconds: f64,
    /// Seconds that a connection may stay without a request, and that a client has to send one.
    #[arg(
        long,
        value_name = "SECONDS",
        default_value_t = 75.0,
        hide_short_help = true
    )]
    idle_seconds: f64,
}

/// Credentials of a server and its clients.
#[derive(Debug, Args)]
struct ServeSecurityArgs {
    /// Certificate (PEM) of the server.
    #[arg(
        long,
        value_name = "FILE",
        requires = "tls_key",
        hide_short_help = true
    )]
    tls_cert: Option<PathBuf>,
    /// The key of the certificate (PEM).
    #[arg(
        long,
        value_name = "FILE",
        requires = "tls_cert",
        hide_short_help = true
    )]
    tls_key: Option<PathBuf>,
    /// The certificate (PEM) of the authority that signs for clients: others are refused.
    #[arg(
        long,
        value_name = "FILE",
        requires = "tls_cert",
        hide_short_help = true
    )]
    tls_ca: Option<PathBuf>,
    /// A file with the token that clients send (`Authorization: Bearer TOKEN`); else the variable FOREBAY_TOKEN.
    #[arg(long, value_name = "FILE", hide_short_help = true)]
    token_file: Option<PathBuf>,
}

impl ServeCommand {
    pub fn run(self) -> Result<ExitCode> {
        if let Some(url) = &self.rollback {
            return self.roll_back(url);
        }
        let path = self.path.clone().unwrap_or_default();
        let settings = Settings::load()?;
        let threads = settings.threads(self.machine.threads)?.value;
        let memory_bytes = settings.memory_bytes(self.machine.memory)?.value;
        let state = settings.state(self.machine.state.as_deref()).value;
        let token = self.security.token()?;
        let tls = self.security.tls();
        let listener = super::bind_listener(&self.listen)?;
        let address = listener.local_addr().map_err(|error| {
            let fault = Fault::new(codes::STORAGE, "the server cannot listen");
            fault.cause(error)
        })?;
        if !address.ip().is_loopback() && token.is_none() && tls.is_none() {
            let message = format!(
                "{address} can be reached from other machines, and there is neither a token nor TLS"
            );
            return Err(Fault::new(codes::STRANGER, message).hint(
                "give --token-file, or --tls-cert and --tls-key, or use an address such as \
                 127.0.0.1:8080",
            ));
        }
        let options = ServeOptions {
            path,
            state: state.clone(),
            name: self.answers.name.clone(),
            node: self.answers.step.clone(),
            with_features: self.answers.with_features,
            forecast: self.answers.forecast,
            prediction: self.answers.prediction.clone(),
            bounds: (self.answers.min, self.answers.max),
            follow_every: seconds("follow-seconds", self.versions.follow_seconds)?,
            keep_versions: self.versions.keep_versions,
            shadow: self.versions.shadow.clone().map(|path| ShadowOptions {
                path,
                share: self.versions.split.unwrap_or(0.0),
            }),
            log: self.versions.log.clone().map(|directory| LogOptions {
                directory,
                share: self.versions.log_share,
            }),
            threads,
            memory_bytes,
            limits: self.limits.limits(memory_bytes)?,
            token,
            tls,
        };
        let session = Forebay::new().with_options(SessionOptions {
            threads,
            memory_bytes,
            batch_rows: BATCH_ROWS_DEFAULT,
            state,
            run_id: None,
        });
        let session = session.session()?;
        let metrics = MetricsArgs {
            metrics: None,
            metrics_file: None,
        };
        let metrics = metrics.metrics::<ServeMetrics>()?;
        let ended = CancellationToken::default();
        stop_on_signals(&ended)?;
        let server = FeatureServer::load(session.io(), options, &metrics)?;
        let current = server.current();
        super::write_stdout(&format!(
            "serving `{}` version {} at {address}\n",
            server.name(),
            short_id(&current.version)
        ))?;
        server.serve(listener, &ended)?;
        Ok(ExitCode::SUCCESS)
    }

    /// Sends the request for a rollback to a running server.
    fn roll_back(&self, url: &str) -> Result<ExitCode> {
        let session = Forebay::new().session()?;
        let token = self.security.token()?;
        let headers = token.iter().map(|token| {
            (
                "authorization".to_owned(),
                format!("Bearer {}", token.text()),
            )
        });
        let client = WebClient::new(session.io(), "the server", headers.collect())?;
        let url = format!("{}/versions/rollback", url.trim_end_matches('/'));
        let answer = client.send("POST", &url, "application/json", Vec::new())?;
        let text = String::from_utf8_lossy(&answer.body).into_owned();
        if answer.status != 200 {
            let message = format!("the server refused the rollback: {text}");
            return Err(Fault::new(codes::UNSUPPORTED, message));
        }
        super::write_stdout(&format!("{text}\n"))?;
        Ok(ExitCode::SUCCESS)
    }
}

impl LimitArgs {
    fn limits(&self, memory_bytes: u64) -> Result<ServeLimits> {
        let request_bytes = usize::try_from(self.request_bytes).unwrap_or(usize::MAX);
        let in_flight = usize::try_from(memory_bytes / REQUESTS_SHARE).unwrap_or(usize::MAX);
        let delay = Duration::try_from_secs_f64(self.batch_delay_ms / 1000.0)
            .ok()
            .filter(|delay| *delay <= BATCH_DELAY_MAX);
        let batch_delay = delay.ok_or_else(|| {
            usage("`--batch-delay-ms` must be a number of milliseconds from 0 to 60000")
        })?;
        Ok(ServeLimits {
            request_bytes: count("request-bytes", request_bytes)?,
            request_rows: count("request-rows", self.request_rows)?,
            // One request of the greatest size must fit, compressed and decompressed.
            in_flight_bytes: in_flight.max(request_bytes.saturating_mul(2).saturating_add(4096)),
            in_flight_requests: count("requests", self.requests)?,
            connections: count("connections", self.connections)?,
            queue_rows: count("queue-rows", self.queue_rows)?,
            batch_rows: count("batch-rows", self.batch_rows)?,
            batch_delay,
            timeout: seconds("timeout-seconds", self.timeout_seconds)?,
            idle: seconds("idle-seconds", self.idle_seconds)?,
            drain: DRAIN,
        })
    }
}

impl ServeSecurityArgs {
    fn token(&self) -> Result<Option<ClusterToken>> {
        match &self.token_file {
            Some(file) => ClusterToken::of_file(file).map(Some),
            None => ClusterToken::of_environment(),
        }
    }

    fn tls(&self) -> Option<ServeTls> {
        let cert = self.tls_cert.clone()?;
        let key = self.tls_key.clone()?;
        Some(ServeTls {
            cert,
            key,
            ca: self.tls_ca.clone(),
        })
    }
}

fn seconds(name: &str, seconds: f64) -> Result<Duration> {
    match Duration::try_from_secs_f64(seconds) {
        Ok(duration) if !duration.is_zero() && duration <= SECONDS_MAX => Ok(duration),
        _ => Err(usage(format!(
            "`--{name}` must be a number of seconds above 0, and at most {}",
            SECONDS_MAX.as_secs()
        ))),
    }
}

/// Checks a number of things that the server holds at the same time.
fn count(name: &str, count: usize) -> Result<usize> {
    if (1..=COUNT_MAX).contains(&count) {
        return Ok(count);
    }
    Err(usage(format!(
        "`--{name}` must be between 1 and {COUNT_MAX}"
    )))
}

/// Reads a share: `5%` or `0.05`.
fn parse_share(text: &str) -> Result<f64, String> {
    let number = match text.strip_suffix('%') {
        Some(percent) => percent.trim().parse::<f64>().map(|percent| percent / 100.0),
        None => text.trim().parse::<f64>(),
    };
    match number {
        Ok(share) if (0.0..=1.0).contains(&share) => Ok(share),
        _ => Err("write a share from 0% to 100%, such as 5% or 0.05".to_owned()),
    }
}
