//! `forebay doctor`.

use std::process::ExitCode;

use clap::Args;
use forebay_model::{Result, hide_secrets};
use forebay_storage::{StorageClient, machine_bytes};

use super::options::MachineArgs;
use super::workers::WorkerChoiceArgs;
use crate::present::units;
use crate::settings::{PROJECT_FILE, Setting, Settings, WorkerSetting, user_file};

/// Look at this machine: what Forebay would use, where each setting comes from, and what may go wrong.
#[derive(Debug, Args)]
pub(crate) struct DoctorCommand {
    #[command(flatten)]
    machine: MachineArgs,
    #[command(flatten)]
    workers: WorkerChoiceArgs,
}

impl DoctorCommand {
    pub fn run(self) -> Result<ExitCode> {
        let settings = Settings::load()?;
        let threads = settings.threads(self.machine.threads)?;
        let memory = settings.memory_bytes(self.machine.memory)?;
        let state = settings.state(self.machine.state.as_deref());
        let all_threads = std::thread::available_parallelism().map_or(1, usize::from);
        let all_memory = machine_bytes().map_or_else(|| "an unknown size".to_owned(), units::bytes);
        let io = StorageClient::new()?;
        let probed = io
            .resolve(&state.value)
            .and_then(|location| probe_state_directory(&io, &location));
        let probe = match &probed {
            Ok(()) => "can be read and written".to_owned(),
            Err(fault) => format!("cannot be used: {fault}"),
        };
        let mut lines = vec![
            ("version", env!("CARGO_PKG_VERSION").to_owned()),
            (
                "threads",
                format!(
                    "{} of {all_threads}, from {}",
                    threads.value, threads.origin
                ),
            ),
            (
                "memory",
                format!(
                    "{} of {all_memory}, from {}",
                    units::bytes(memory.value),
                    memory.origin
                ),
            ),
            (
                "state",
                format!("{}, from {}; {probe}", state.value, state.origin),
            ),
            ("workers", workers_text(&self.workers.resolve(&settings))),
            ("settings", files_text(&settings)),
        ];
        lines.extend(STORES.iter().map(|store| (store.scheme, store.describe())));
        lines.extend(cuda());
        super::write_text(&aligned(&lines))?;
        Ok(if probed.is_ok() {
            ExitCode::SUCCESS
        } else {
            ExitCode::from(75)
        })
    }
}

/// A store with its environment variables.
struct StoreVariables {
    scheme: &'static str,
    endpoint: &'static str,
    credentials: &'static [&'static str],
}

const STORES: [StoreVariables; 3] = [
    StoreVariables {
        scheme: "s3",
        endpoint: "AWS_ENDPOINT_URL",
        credentials: &[
            "AWS_ACCESS_KEY_ID",
            "AWS_WEB_IDENTITY_TOKEN_FILE",
            "AWS_PROFILE",
        ],
    },
    StoreVariables {
        scheme: "gs",
        endpoint: "GOOGLE_BASE_URL",
        credentials: &[
            "GOOGLE_SERVICE_ACCOUNT",
            "GOOGLE_SERVICE_ACCOUNT_KEY",
            "GOOGLE_APPLICATION_CREDENTIALS",
        ],
    },
    StoreVariables {
        scheme: "az",
        endpoint: "AZURE_STORAGE_ENDPOINT",
        credentials: &[
            "AZURE_STORAGE_CONNECTION_STRING",
            "AZURE_STORAGE_ACCOUNT_KEY",
            "AZURE_STORAGE_SAS_TOKEN",
            "AZURE_CLIENT_SECRET",
            "AZURE_FEDERATED_TOKEN_FILE",
        ],
    },
];

impl StoreVariables {
    /// Settings of the store in the environment, without the values of secrets.
    fn describe(&self) -> String {
        let is_set = |name: &str| std::env::var_os(name).is_some_and(|value| !value.is_empty());
        let endpoint = match std::env::var(self.endpoint) {
            Ok(url) if !url.is_empty() => format!("endpoint {}", hide_secrets(&url)),
            _ => "the default endpoint".to_owned(),
        };
        match self.credentials.iter().find(|name| is_set(name)) {
            Some(name) => format!("{endpoint}, credentials by {name}"),
            None => format!("{endpoint}, no credentials in the environment"),
        }
    }
}

fn workers_text(workers: &Setting<WorkerSetting>) -> String {
    let text = match &workers.value {
        WorkerSetting::Local(0) => "none".to_owned(),
        WorkerSetting::Local(count) => format!("{count} of this machine"),
        WorkerSetting::Addresses(addresses) if addresses.is_empty() => "none".to_owned(),
        WorkerSetting::Addresses(addresses) => addresses.join(", "),
    };
    format!("{text}, from {}", workers.origin)
}

/// The settings files that were read, or where they would be.
fn files_text(settings: &Settings) -> String {
    if settings.files().is_empty() {
        let user =
            user_file().map_or_else(String::new, |path| format!(" and no {}", path.display()));
        return format!("no {PROJECT_FILE} here or above{user}");
    }
    let files: Vec<String> = settings
        .files()
        .iter()
        .map(|path| path.display().to_string())
        .collect();
    files.join(", ")
}

/// GPUs and CUDA's libraries, and the results of tests on them.
pub(super) fn cuda() -> Vec<(&'static str, String)> {
    let report = forebay_connectors::cuda_report();
    let library = |library: forebay_connectors::CudaLibrary| {
        let remedy = library
            .remedy
            .map(|remedy| format!(": {remedy}"))
            .unwrap_or_default();
        (library.name, format!("{}{remedy}", library.found))
    };
    let tried = ("tried", forebay_connectors::CUDA_TEST_STATUS.to_owned());
    [("cuda", report.devices)]
        .into_iter()
        .chain(report.libraries.into_iter().map(library))
        .chain([tried])
        .collect()
}

/// Lines of a name and a value.
pub(super) fn aligned(lines: &[(&'static str, String)]) -> String {
    let width = lines.iter().map(|(name, _)| name.len()).max().unwrap_or(0);
    lines
        .iter()
        .map(|(name, value)| format!("{name:width$}  {value}\n"))
        .collect()
}

/// Writes, reads and removes a small object.
fn probe_state_directory(
    io: &StorageClient,
    state: &forebay_storage::StorageLocation,
) -> Result<()> {
    let location = state.join("doctor");
    io.put(&location, "doctor".into())?;
    io.get(&location)?;
    io.delete(&location)
}
