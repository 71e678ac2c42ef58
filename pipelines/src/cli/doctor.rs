//! `forebay doctor`.

use std::process::ExitCode;

use clap::Args;
use forebay_model::Result;
use forebay_storage::{StorageClient, machine_bytes};

use crate::present::units;

/// Look at this machine: what Forebay would use, and what may go wrong.
#[derive(Debug, Args)]
pub(crate) struct DoctorCommand {
    /// The state directory to look at: a path, or an s3:// URL.
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
        let s3 = match std::env::var("AWS_ENDPOINT_URL") {
            Ok(url) => format!("endpoint {url}"),
            Err(_) => "the default endpoint".to_owned(),
        };
        let credentials = if std::env::var_os("AWS_ACCESS_KEY_ID").is_some() { "" } else { "no " };
        lines.push(("s3", format!("{s3}, {credentials}credentials in the environment")));
        lines.extend(cuda());
        super::write_stdout(&aligned(&lines))?;
        Ok(if sound { ExitCode::SUCCESS } else { ExitCode::from(75) })
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
