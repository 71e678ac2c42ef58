//! `forebay top`.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::process::ExitCode;
use std::time::Duration;

use clap::Args;
use forebay_model::{Fault, Result, codes};
use forebay_run::{Io, Place, Status};
use serde_json::json;

use crate::present;

/// How often the view is drawn anew.
const EVERY: Duration = Duration::from_secs(1);

/// How long somebody who asks over HTTP may take to do so.
const ASK_WITHIN: Duration = Duration::from_secs(5);

/// Bytes of a request at most.
const REQUEST_BYTES_MAX: usize = 8192;

/// Watch runs that have workers: who does what, how fast, and what waits.
#[derive(Debug, Args)]
pub(crate) struct Top {
    /// The state directory of the runs: a path, or an s3:// URL.
    #[arg(long, value_name = "DIR", default_value = ".forebay")]
    state: String,
    /// Print one line of JSON, and end.
    #[arg(long)]
    json: bool,
    /// Answer HTTP requests at this address with the same JSON: for those who scale workers by what waits.
    #[arg(long, value_name = "ADDRESS", conflicts_with = "json")]
    listen: Option<String>,
}

impl Top {
    pub fn run(self) -> Result<ExitCode> {
        let io = Io::new()?;
        let state = io.place(&self.state)?;
        if self.json {
            super::out(&format!("{}\n", summary(&io, &state)?))?;
            return Ok(ExitCode::SUCCESS);
        }
        if let Some(address) = &self.listen {
            return serve(&io, &state, address);
        }
        loop {
            super::out(&present::top::screen(&Status::all(&io, &state)?))?;
            std::thread::sleep(EVERY);
        }
    }
}

/// What waits over all runs, and each of them.
fn summary(io: &Io, state: &Place) -> Result<serde_json::Value> {
    let runs = Status::all(io, state)?;
    let sum = |of: fn(&Status) -> usize| runs.iter().map(of).sum::<usize>();
    Ok(json!({ "queued": sum(|run| run.queued), "running": sum(|run| run.running), "runs": runs }))
}

fn serve(io: &Io, state: &Place, address: &str) -> Result<ExitCode> {
    let failed = |error| Fault::new(codes::STORAGE, format!("`{address}` cannot be listened at")).cause(error);
    let listener = TcpListener::bind(address).map_err(failed)?;
    super::out(&format!("listening at {}\n", listener.local_addr().map_err(failed)?))?;
    for asked in listener.incoming() {
        // Somebody who hangs up, or asks nothing, gets no answer.
        let _ = asked.and_then(|asked| answer(asked, &summary(io, state)));
    }
    Ok(ExitCode::SUCCESS)
}

fn answer(mut asked: TcpStream, summary: &Result<serde_json::Value>) -> std::io::Result<()> {
    asked.set_read_timeout(Some(ASK_WITHIN))?;
    let mut request = Vec::new();
    let mut buffer = [0; 1024];
    while request.len() < REQUEST_BYTES_MAX && !request.windows(4).any(|end| end == b"\r\n\r\n") {
        match asked.read(&mut buffer)? {
            0 => break,
            read => request.extend_from_slice(&buffer[..read]),
        }
    }
    let (status, body) = match summary {
        Ok(summary) => ("200 OK", summary.to_string()),
        Err(fault) => ("503 Service Unavailable", json!({ "fault": fault.to_string() }).to_string()),
    };
    write!(
        asked,
        "HTTP/1.1 {status}\r\nContent-Type: application/json\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{body}",
        body.len()
    )
}
