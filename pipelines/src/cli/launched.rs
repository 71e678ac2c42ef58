//! Workers on a cluster, which a launcher of the Python package starts for one run and ends with it.
//!
//! The launcher reads its request, a line of JSON, from standard input, and ends the workers when that input ends. It
//! writes the addresses of the workers to standard output, a line for each change, and its messages to standard error.

use std::ffi::OsString;
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use forebay_model::{Fault, Result, codes};
use forebay_run::{ClusterSecurity, RunCredentials, WorkerSet, worker_program};
use serde::{Deserialize, Serialize};

use crate::present::printable_lines;

/// The module of the Python package that starts workers.
const MODULE: &str = "forebay._launch";

/// The interpreter of a program that is not part of the Python package.
const INTERPRETER: &str = "python3";

/// Time that the cluster has to end the workers once the run is over.
const FAREWELL: Duration = Duration::from_secs(40);

/// Interval between two checks whether the launcher has ended.
const LOOK_EVERY: Duration = Duration::from_millis(20);

/// Request to the launcher.
#[derive(Serialize)]
struct LaunchRequest<'a> {
    on: &'a str,
    credentials: &'a str,
}

/// Line of the launcher.
#[derive(Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
enum LauncherMessage {
    /// The workers that run now.
    Addresses(Vec<String>),
    /// No worker will come any more, for this reason.
    End(String),
}

/// The launcher of a run. Dropping it ends the workers.
#[derive(Debug)]
pub(crate) struct LaunchedWorkers {
    child: Child,
    set: WorkerSet,
    security: ClusterSecurity,
}

impl LaunchedWorkers {
    /// Asks a cluster, such as `ray://head:10001?workers=16`, for workers. Does not wait for them.
    pub fn start(on: &str) -> Result<LaunchedWorkers> {
        let credentials = RunCredentials::new()?;
        let interpreter = worker_program().into_iter().next();
        let interpreter = interpreter.unwrap_or_else(|| OsString::from(INTERPRETER));
        let cannot_start = |error| {
            let message = format!("the launcher of `{on}` cannot be started");
            let hint =
                "launchers are in the Python package: install it, and put `python3` on the path";
            Fault::new(codes::NO_WORKERS, message)
                .cause(error)
                .hint(hint)
        };
        let mut child = Command::new(interpreter)
            .args(["-m", MODULE])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .map_err(cannot_start)?;
        let request = LaunchRequest {
            on,
            credentials: &credentials.to_line()?,
        };
        let request = serde_json::to_string(&request)
            .map_err(|error| Fault::internal("a request to a launcher").cause(error))?;
        if let Some(input) = &mut child.stdin {
            // A launcher that has ended says why on standard error, and its output ends.
            let _ = input.write_all(format!("{request}\n").as_bytes());
        }
        let set = WorkerSet::default();
        if let Some(output) = child.stdout.take() {
            let set = set.clone();
            let follow = move || follow(output, &set);
            std::thread::Builder::new()
                .name("forebay-launch".to_owned())
                .spawn(follow)
                .map_err(cannot_start)?;
        }
        Ok(LaunchedWorkers {
            child,
            set,
            security: ClusterSecurity::of_run(&credentials)?,
        })
    }

    /// The workers that run now.
    pub fn set(&self) -> &WorkerSet {
        &self.set
    }

    /// Credentials of the workers.
    pub fn security(&self) -> &ClusterSecurity {
        &self.security
    }
}

/// Passes the launcher's messages on until its output ends.
fn follow(output: ChildStdout, set: &WorkerSet) {
    for line in BufReader::new(output)
        .lines()
        .map_while(std::io::Result::ok)
    {
        match serde_json::from_str(&line) {
            Ok(LauncherMessage::Addresses(addresses)) => set.replace(addresses),
            Ok(LauncherMessage::End(reason)) => set.end(reason),
            // A library of the cluster writes to standard output, too.
            Err(_) => {
                let line = printable_lines(&line);
                drop(writeln!(anstream::stderr().lock(), "{line}"))
            }
        }
    }
    set.replace([]);
    set.end_if_open("the launcher has ended; its messages are above");
}

impl Drop for LaunchedWorkers {
    fn drop(&mut self) {
        // The end of its input tells it to end the workers.
        drop(self.child.stdin.take());
        let begin = Instant::now();
        while matches!(self.child.try_wait(), Ok(None)) && begin.elapsed() < FAREWELL {
            std::thread::sleep(LOOK_EVERY);
        }
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
