//! `forebay top`.

use std::io::{IsTerminal, Read, Write};
use std::net::TcpStream;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use clap::Args;
use forebay_model::{Fault, Result, codes};
use forebay_run::{ClusterStatus, ClusterToken};
use forebay_storage::{StorageClient, StorageLocation};
use serde_json::json;

use crate::present;
use crate::settings::Settings;

/// Interval at which the view is redrawn.
const REFRESH_INTERVAL: Duration = Duration::from_secs(1);

/// Time limit for an HTTP client to send its request.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(5);

/// Bytes of a request at most.
const REQUEST_BYTES_MAX: usize = 8192;

/// Watch runs that have workers: their tasks, rates and queues.
#[derive(Debug, Args)]
pub(crate) struct TopCommand {
    /// The state directory of the runs: a path, or a URL such as s3://bucket/key [default: .forebay]
    #[arg(long, value_name = "DIR")]
    state: Option<String>,
    /// Print one line of JSON, and end.
    #[arg(long)]
    json: bool,
    /// Serve the same JSON over HTTP at this address, for autoscalers. Without `--token-file`, only
    /// addresses of this machine are allowed.
    #[arg(long, value_name = "ADDRESS", conflicts_with = "json")]
    listen: Option<String>,
    /// A file with the token that requests must carry (`Authorization: Bearer TOKEN`). Another one than the
    /// workers' token: it crosses the network in the clear.
    #[arg(long, value_name = "FILE", requires = "listen")]
    token_file: Option<PathBuf>,
}

impl TopCommand {
    pub fn run(self) -> Result<ExitCode> {
        let io = StorageClient::new()?;
        let state = io.resolve(&Settings::load()?.state(self.state.as_deref()).value)?;
        if self.json {
            super::write_stdout(&format!("{}\n", summary(&io, &state)?))?;
            return Ok(ExitCode::SUCCESS);
        }
        if let Some(address) = &self.listen {
            let token = self
                .token_file
                .as_deref()
                .map(ClusterToken::of_file)
                .transpose()?;
            return serve(&io, &state, address, token.as_ref());
        }
        let mut last_screen = None;
        loop {
            let screen = present::top::text(&ClusterStatus::all(&io, &state)?);
            // A file or a pipe gets no line twice.
            if last_screen.as_ref() != Some(&screen) {
                if std::io::stdout().is_terminal() {
                    super::write_stdout_bytes(present::top::CLEAR)?;
                }
                super::write_stdout(&screen)?;
            }
            last_screen = Some(screen);
            std::thread::sleep(REFRESH_INTERVAL);
        }
    }
}

/// Waiting tasks of all runs, and the status of each.
fn summary(io: &StorageClient, state: &StorageLocation) -> Result<serde_json::Value> {
    let runs = ClusterStatus::all(io, state)?;
    let sum = |of: fn(&ClusterStatus) -> usize| runs.iter().map(of).sum::<usize>();
    Ok(json!({ "queued": sum(|run| run.queued), "running": sum(|run| run.running), "runs": runs }))
}

fn serve(
    io: &StorageClient,
    state: &StorageLocation,
    address: &str,
    token: Option<&ClusterToken>,
) -> Result<ExitCode> {
    let failed = |error| {
        Fault::new(codes::STORAGE, format!("`{address}` cannot be listened at")).cause(error)
    };
    let listener = super::bind_listener(address)?;
    let bound = listener.local_addr().map_err(failed)?;
    if token.is_none() && !bound.ip().is_loopback() {
        let message = format!("{bound} can be reached from other machines, and there is no token");
        return Err(Fault::new(codes::STRANGER, message).hint(
            "give --token-file with the token that requests carry, or use an address such \
             as 127.0.0.1:7401",
        ));
    }
    super::write_stdout(&format!("listening at {bound}\n"))?;
    for connection in listener.incoming() {
        // A client that hangs up, or sends no request in time, gets no response.
        let _ = connection.and_then(|stream| answer_request(stream, token, || summary(io, state)));
    }
    Ok(ExitCode::SUCCESS)
}

fn answer_request(
    mut stream: TcpStream,
    token: Option<&ClusterToken>,
    summary: impl FnOnce() -> Result<serde_json::Value>,
) -> std::io::Result<()> {
    let request = read_request_head(&mut stream)?;
    let (status, body) = match token {
        Some(token) if !bearer_token(&request).is_some_and(|bearer| token.matches(bearer)) => {
            let message = "this request carries no `Authorization: Bearer` with the right token";
            ("401 Unauthorized", json!({ "fault": message }).to_string())
        }
        _ => match summary() {
            Ok(summary) => ("200 OK", summary.to_string()),
            Err(fault) => (
                "503 Service Unavailable",
                json!({ "fault": fault.to_string() }).to_string(),
            ),
        },
    };
    write!(
        stream,
        "HTTP/1.1 {status}\r\nContent-Type: application/json\r\nContent-Length: \
         {}\r\nConnection: close\r\n\r\n{body}",
        body.len()
    )
}

/// The head of a request, within a time and a size.
fn read_request_head(stream: &mut TcpStream) -> std::io::Result<Vec<u8>> {
    let begin = Instant::now();
    let late = || std::io::Error::from(std::io::ErrorKind::TimedOut);
    let mut request = Vec::new();
    let mut buffer = [0; 1024];
    while request.len() < REQUEST_BYTES_MAX && !request.windows(4).any(|end| end == b"\r\n\r\n") {
        let time_left = REQUEST_TIMEOUT
            .checked_sub(begin.elapsed())
            .filter(|time| !time.is_zero())
            .ok_or_else(late)?;
        stream.set_read_timeout(Some(time_left))?;
        match stream.read(&mut buffer)? {
            0 => break,
            read => request.extend_from_slice(&buffer[..read]),
        }
    }
    stream.set_write_timeout(Some(REQUEST_TIMEOUT))?;
    Ok(request)
}

/// The token that a request carries.
fn bearer_token(request: &[u8]) -> Option<&[u8]> {
    request.split(|byte| *byte == b'\n').find_map(|line| {
        let colon = line.iter().position(|byte| *byte == b':')?;
        let name = &line[..colon];
        let value = line[colon + 1..].trim_ascii();
        let (scheme, token) = value.split_at_checked(7)?;
        (name.eq_ignore_ascii_case(b"authorization") && scheme.eq_ignore_ascii_case(b"bearer "))
            .then(|| token.trim_ascii())
    })
}
