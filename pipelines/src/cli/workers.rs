//! Options of commands that can use workers.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use clap::Args;
use forebay_model::Result;
use forebay_run::{
    Cluster, ClusterOptions, ClusterSecurity, ClusterSize, LocalWorkers, Session, TlsFiles,
};
use forebay_storage::EventListener;

use super::launched::LaunchedWorkers;
use super::options::RunArgs;
use super::usage;
use crate::settings::{Setting, SettingOrigin, Settings, WorkerSetting, local_worker_memory};

/// Credentials of a process of a cluster.
#[derive(Debug, Clone, Args)]
pub(crate) struct SecurityArgs {
    /// The certificate (PEM) of the authority that signs for all workers and coordinators.
    #[arg(
        long,
        value_name = "FILE",
        requires = "tls_cert",
        requires = "tls_key",
        hide_short_help = true
    )]
    pub tls_ca: Option<PathBuf>,
    /// Certificate (PEM) of this process.
    #[arg(long, value_name = "FILE", requires = "tls_ca", hide_short_help = true)]
    pub tls_cert: Option<PathBuf>,
    /// The key of this process's certificate (PEM).
    #[arg(long, value_name = "FILE", requires = "tls_ca", hide_short_help = true)]
    pub tls_key: Option<PathBuf>,
    /// A file with the secret that all workers and coordinators of the cluster share. Else the variable
    /// FOREBAY_TOKEN; else, without TLS, a file of this user that is made when it is needed
    /// (~/.local/state/forebay/token).
    #[arg(long, value_name = "FILE", hide_short_help = true)]
    pub token_file: Option<PathBuf>,
}

impl SecurityArgs {
    /// Reads or makes the token; certificates are read where they are used.
    pub fn security(&self, name: Option<String>) -> Result<ClusterSecurity> {
        let tls = match (&self.tls_ca, &self.tls_cert, &self.tls_key) {
            (Some(ca), Some(cert), Some(key)) => Some(TlsFiles {
                ca: ca.clone(),
                cert: cert.clone(),
                key: key.clone(),
                name,
            }),
            _ => None,
        };
        ClusterSecurity::new(tls, self.token_file.as_deref())
    }
}

/// Choice of the workers.
#[derive(Debug, Clone, Args)]
pub(crate) struct WorkerChoiceArgs {
    /// Workers that do what they can do: host:port, where a host may stand for many, or @file with one
    /// such a line. Can be given many times, or divided by commas.
    #[arg(long, value_name = "ADDRESS", value_delimiter = ',')]
    pub workers: Vec<String>,
    /// Start N worker processes on this machine, and end them with the run. Threads and memory are
    /// divided among them. 0: no workers, overriding the settings.
    #[arg(long, value_name = "N", conflicts_with = "workers")]
    pub local_workers: Option<usize>,
}

impl WorkerChoiceArgs {
    /// Workers of the flags, else those of the settings.
    pub fn resolve(&self, settings: &Settings) -> Setting<WorkerSetting> {
        match self.local_workers {
            Some(count) => Setting {
                value: WorkerSetting::Local(count),
                origin: SettingOrigin::Flag("--local-workers"),
            },
            None if self.workers.is_empty() => settings.workers(),
            None => {
                let value = WorkerSetting::Addresses(self.workers.clone());
                Setting {
                    value,
                    origin: SettingOrigin::Flag("--workers"),
                }
            }
        }
    }
}

impl WorkerChoiceArgs {
    /// The number of the workers and of their threads, if it is known without a connection to them;
    /// `None` without workers.
    pub fn expected(&self, options: &RunArgs) -> Result<Option<ClusterSize>> {
        let settings = Settings::load()?;
        let threads = settings.threads(options.machine.threads)?.value;
        let size = match self.resolve(&settings).value {
            WorkerSetting::Local(count) => ClusterSize {
                workers: count,
                slots: (threads / count.max(1)).max(1),
            },
            WorkerSetting::Addresses(workers) => ClusterSize {
                workers: workers.len(),
                slots: threads,
            },
        };
        Ok((size.workers > 0).then_some(size))
    }
}

/// Workers that end with this.
#[derive(Debug)]
#[expect(dead_code, reason = "the workers end when this is dropped")]
pub(crate) enum StartedWorkers {
    Local(LocalWorkers),
    Launched(LaunchedWorkers),
}

/// Workers, and how to speak to them.
#[derive(Debug, Clone, Args)]
pub(crate) struct WorkersArgs {
    #[command(flatten)]
    pub choice: WorkerChoiceArgs,
    /// Start workers on a cluster, and end them with the run: `ray://HEAD:10001?workers=16&threads=4`,
    /// `dask://SCHEDULER:8786`, `spark://MASTER:7077?workers=16`, `slurm?nodes=4&partition=main` or
    /// `kubernetes?workers=4&image=IMAGE`. Needs the Python package.
    #[arg(
        long,
        value_name = "CLUSTER",
        conflicts_with_all = ["workers", "local_workers", "tls_ca", "token_file"]
    )]
    pub on: Option<String>,
    /// Seconds that a worker may be silent before others get its tasks.
    #[arg(
        long,
        value_name = "SECONDS",
        default_value_t = 15.0,
        hide_short_help = true
    )]
    pub lease_seconds: f64,
    /// Seconds to wait if no worker is connected, before the run ends with 75.
    #[arg(
        long,
        value_name = "SECONDS",
        default_value_t = 60.0,
        hide_short_help = true
    )]
    pub grace_seconds: f64,
    /// The name in workers' certificates, where it is not their host's.
    #[arg(long, value_name = "NAME", requires = "tls_ca", hide_short_help = true)]
    pub tls_name: Option<String>,
    #[command(flatten)]
    pub security: SecurityArgs,
}

impl WorkersArgs {
    /// The session with workers, if any are requested, and the worker processes that end after it.
    /// Worker processes of the session receive further arguments.
    pub fn apply(
        &self,
        session: Session,
        options: &RunArgs,
        watch: &Arc<dyn EventListener>,
        arguments: &[String],
    ) -> Result<(Option<StartedWorkers>, Session)> {
        let seconds = |name: &str, seconds: f64| match Duration::try_from_secs_f64(seconds) {
            Ok(duration) if !duration.is_zero() => Ok(duration),
            _ => Err(usage(format!(
                "`--{name}` must be a number of seconds above 0"
            ))),
        };
        let lease = seconds("lease-seconds", self.lease_seconds)?;
        let grace = seconds("grace-seconds", self.grace_seconds)?;
        if let Some(on) = &self.on {
            let launched = LaunchedWorkers::start(on)?;
            let options = ClusterOptions {
                workers: Vec::new(),
                security: launched.security().clone(),
                lease,
                grace,
                local: None,
                launched: Some(launched.set().clone()),
            };
            let session = session.with_cluster(Cluster::new(options, watch.clone())?)?;
            return Ok((Some(StartedWorkers::Launched(launched)), session));
        }
        let settings = Settings::load()?;
        let (local, workers, security) = match self.choice.resolve(&settings).value {
            WorkerSetting::Local(0) => return Ok((None, session)),
            WorkerSetting::Addresses(workers) if workers.is_empty() => return Ok((None, session)),
            WorkerSetting::Addresses(workers) => (
                None,
                workers,
                self.security.security(self.tls_name.clone())?,
            ),
            WorkerSetting::Local(count) => {
                let threads = (settings.threads(options.machine.threads)?.value / count).max(1);
                let total = settings.memory_bytes(options.machine.memory)?.value;
                let memory = local_worker_memory(total, count)?;
                let local = LocalWorkers::start(count, threads, memory, arguments)?;
                let addresses = local.addresses();
                let security = local.security().clone();
                (Some(local), addresses, security)
            }
        };
        let processes = local.as_ref().map(|local| local.processes().clone());
        let cluster = Cluster::new(
            ClusterOptions {
                workers,
                security,
                lease,
                grace,
                local: processes,
                launched: None,
            },
            watch.clone(),
        )?;
        let local = local.map(StartedWorkers::Local);
        Ok((local, session.with_cluster(cluster)?))
    }
}
