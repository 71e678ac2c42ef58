//! Options of commands that have workers do what they can do.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use clap::Args;
use forebay_model::{LOCAL_WORKERS_MAX, MEMORY_BYTES_MIN, Result};
use forebay_run::{
    Cluster, ClusterOptions, ClusterSecurity, ClusterSize, LocalWorkers, Session, TlsFiles,
};
use forebay_storage::EventListener;

use super::options::RunArgs;
use super::usage;
use crate::settings::{Setting, SettingOrigin, Settings, WorkerSetting};

/// What proves that a process belongs to a cluster.
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
    /// This process's certificate (PEM).
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

/// Which workers.
#[derive(Debug, Clone, Args)]
pub(crate) struct WorkerChoiceArgs {
    /// Workers that do what they can do: host:port, where a host may stand for many, or @file with one
    /// such a line. Can be given many times, or divided by commas.
    #[arg(long, value_name = "ADDRESS", value_delimiter = ',')]
    pub workers: Vec<String>,
    /// Start so many worker processes on this machine, and end them with the run. Threads and memory are
    /// divided among them. 0: no workers, whatever the settings say.
    #[arg(long, value_name = "N", conflicts_with = "workers")]
    pub local_workers: Option<usize>,
}

impl WorkerChoiceArgs {
    /// The workers that flags name, else those of the settings.
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
    /// The number of the workers and of their threads, as far as it is known without asking them; `None` without
    /// workers.
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

/// Workers, and how to speak to them.
#[derive(Debug, Clone, Args)]
pub(crate) struct WorkersArgs {
    #[command(flatten)]
    pub choice: WorkerChoiceArgs,
    /// How many seconds a worker may be silent before others get what it was doing.
    #[arg(
        long,
        value_name = "SECONDS",
        default_value_t = 15.0,
        hide_short_help = true
    )]
    pub lease_seconds: f64,
    /// How many seconds to wait when no worker is there, before the run ends with 75.
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

/// Memory of each of `count` local workers, of which the coordinator has as much.
fn worker_memory(total: u64, count: usize) -> Result<u64> {
    let processes = count as u64 + 1;
    let memory = total / processes;
    if memory >= MEMORY_BYTES_MIN {
        return Ok(memory);
    }
    let message = format!(
        "of {} MiB of memory each of {count} local workers and the coordinator gets {} MiB, and needs {} MiB",
        total >> 20,
        memory >> 20,
        MEMORY_BYTES_MIN >> 20
    );
    let needed = MEMORY_BYTES_MIN * processes;
    Err(usage(message).hint(format!(
        "write `--memory {}MiB`, or start fewer workers",
        needed >> 20
    )))
}

impl WorkersArgs {
    /// The session with workers, if there are to be some, and those that end after it. Worker processes of the session
    /// get further arguments.
    pub fn apply(
        &self,
        session: Session,
        options: &RunArgs,
        watch: &Arc<dyn EventListener>,
        arguments: &[String],
    ) -> Result<(Option<LocalWorkers>, Session)> {
        let seconds = |name: &str, seconds: f64| match Duration::try_from_secs_f64(seconds) {
            Ok(duration) if !duration.is_zero() => Ok(duration),
            _ => Err(usage(format!(
                "`--{name}` must be a number of seconds above 0"
            ))),
        };
        let lease = seconds("lease-seconds", self.lease_seconds)?;
        let grace = seconds("grace-seconds", self.grace_seconds)?;
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
                if count > LOCAL_WORKERS_MAX {
                    return Err(usage(format!(
                        "`--local-workers {count}` is more than {LOCAL_WORKERS_MAX}"
                    )));
                }
                let threads = (settings.threads(options.machine.threads)?.value / count).max(1);
                let total = settings.memory_bytes(options.machine.memory)?.value;
                let memory = worker_memory(total, count)?;
                let local = LocalWorkers::start(count, threads, memory, arguments)?;
                let (addresses, security) = (local.addresses().to_vec(), local.security().clone());
                (Some(local), addresses, security)
            }
        };
        let cluster = Cluster::new(
            ClusterOptions {
                workers,
                security,
                lease,
                grace,
            },
            watch.clone(),
        )?;
        Ok((local, session.with_cluster(cluster)?))
    }
}
