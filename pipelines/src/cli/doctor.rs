//! `forebay doctor`.

use std::process::ExitCode;

use clap::Args;
use forebay_model::Result;
use forebay_storage::{StorageClient, machine_bytes};

use crate::present::units;

/// Look at this machine: what Forebay would use, and what may go wrong.
#[derive(Debug, Args)]
pub(crate) struct DoctorCommand {
    /// The state directory to look at: a path, or a URL such as s3://bucket/key.
    #[arg(long, value_name = "DIR", default_value = ".forebay")]
    state: String,
}

impl DoctorCommand {
    pub fn run(self) -> Result<ExitCode> {
        let mut lines = vec![("version", env!("CARGO_PKG_VERSION").to_owned())];
        lines.push(("threads", std::thread::available_parallelism().map_or(1, usize::from).to_string()));
        let memory = machine_bytes().map_or_else(|| "unknown; give --memory".to_owned(), units::bytes);
        lines.push(("memory", memory));
        let io = StorageClient::new()?;
        let place = io.resolve(&self.state)?;
        let mut sound = true;
        lines.push((
            "state",
            match probe_state_directory(&io, &place) {
                Ok(()) => format!("{} can be read and written", self.state),
                Err(fault) => {
                    sound = false;
                    format!("{} cannot be used: {fault}", self.state)
                }
            },
        ));
        lines.extend(STORES.iter().map(|store| (store.scheme, store.describe())));
        lines.extend(cuda());
        super::write_stdout(&aligned(&lines))?;
        Ok(if sound { ExitCode::SUCCESS } else { ExitCode::from(75) })
    }
}

/// A store, and the variables that tell of it.
struct StoreVariables {
    scheme: &'static str,
    endpoint: &'static str,
    credentials: &'static [&'static str],
}

const STORES: [StoreVariables; 3] = [
    StoreVariables {
        scheme: "s3",
        endpoint: "AWS_ENDPOINT_URL",
        credentials: &["AWS_ACCESS_KEY_ID", "AWS_WEB_IDENTITY_TOKEN_FILE", "AWS_PROFILE"],
    },
    StoreVariables {
        scheme: "gs",
        endpoint: "GOOGLE_BASE_URL",
        credentials: &["GOOGLE_SERVICE_ACCOUNT", "GOOGLE_SERVICE_ACCOUNT_KEY", "GOOGLE_APPLICATION_CREDENTIALS"],
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
    /// What the environment says of the store, without the values of secrets.
    fn describe(&self) -> String {
        let endpoint = match std::env::var(self.endpoint) {
            Ok(url) => format!("endpoint {url}"),
            Err(_) => "the default endpoint".to_owned(),
        };
        match self.credentials.iter().find(|name| std::env::var_os(name).is_some()) {
            Some(name) => format!("{endpoint}, credentials by {name}"),
            None => format!("{endpoint}, no credentials in the environment"),
        }
    }
}

/// The GPUs and CUDA's libraries, and what was tried of them.
pub(super) fn cuda() -> Vec<(&'static str, String)> {
    let report = forebay_connectors::cuda_report();
    let library = |library: forebay_connectors::CudaLibrary| {
        let remedy = library.remedy.map(|remedy| format!(": {remedy}")).unwrap_or_default();
        (library.name, format!("{}{remedy}", library.found))
    };
    let tried = ("tried", forebay_connectors::CUDA_TEST_STATUS.to_owned());
    [("cuda", report.devices)].into_iter().chain(report.libraries.into_iter().map(library)).chain([tried]).collect()
}

/// Lines of a name and a value.
pub(super) fn aligned(lines: &[(&'static str, String)]) -> String {
    let width = lines.iter().map(|(name, _)| name.len()).max().unwrap_or(0);
    lines.iter().map(|(name, value)| format!("{name:width$}  {value}\n")).collect()
}

/// Writes, reads and removes a small object.
fn probe_state_directory(io: &StorageClient, state: &forebay_storage::StorageLocation) -> Result<()> {
    let place = state.join("doctor");
    io.put(&place, "doctor".into())?;
    io.get(&place)?;
    io.delete(&place)
}
