//! `forebay ui`.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;
use forebay_model::{Fault, Result, codes};
use forebay_run::{ClusterToken, SessionOptions};
use forebay_storage::CancellationToken;

use super::signals::stop_on_signals;
use crate::Forebay;
use crate::settings::Settings;
use crate::ui::UiServer;

/// Memory for reading records and artifacts, in bytes.
const MEMORY_BYTES: u64 = 512 << 20;

/// Serve pages about the runs of a state directory: an index of its pipelines with trends, a page for each run, and
/// the runs that go on. Reads only.
#[derive(Debug, Args)]
pub(crate) struct UiCommand {
    /// The state directory of the runs: a path, or a URL such as s3://bucket/key [default: .forebay]
    #[arg(long, value_name = "DIR")]
    state: Option<String>,
    /// Address to listen at. Without a token, only addresses of this machine are allowed.
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:7402")]
    listen: String,
    /// A file with the token that requests must carry (`Authorization: Bearer TOKEN`, or the password that a browser
    /// asks for); else, beyond this machine, the variable FOREBAY_TOKEN. Better another one than that of the workers:
    /// it crosses the network in the clear.
    #[arg(long, value_name = "FILE")]
    token_file: Option<PathBuf>,
}

impl UiCommand {
    pub fn run(self) -> Result<ExitCode> {
        let settings = Settings::load()?;
        let state = settings.state(self.state.as_deref()).value;
        let token_file = self.token_file.as_deref();
        let mut token = token_file.map(ClusterToken::of_file).transpose()?;
        let listener = super::bind_listener(&self.listen)?;
        let address = listener.local_addr().map_err(|error| {
            let fault = Fault::new(codes::STORAGE, "the server cannot listen");
            fault.cause(error)
        })?;
        if !address.ip().is_loopback() && token.is_none() {
            token = ClusterToken::of_environment()?;
        }
        if !address.ip().is_loopback() && token.is_none() {
            let message =
                format!("{address} can be reached from other machines, and there is no token");
            return Err(Fault::new(codes::STRANGER, message).hint(
                "give --token-file with the token that requests carry, or set FOREBAY_TOKEN to it, \
                 or use an address such as 127.0.0.1:7402",
            ));
        }
        let options = SessionOptions {
            memory_bytes: MEMORY_BYTES,
            state,
            ..SessionOptions::default()
        };
        let session = Forebay::new().with_options(options).session()?;
        let state = session.state()?.shown;
        let server = UiServer::new(session, token)?;
        let ended = CancellationToken::default();
        stop_on_signals(&ended)?;
        super::write_stdout(&format!(
            "pages of the runs of {state} at http://{address}\n"
        ))?;
        server.serve(listener, &ended)?;
        Ok(ExitCode::SUCCESS)
    }
}
