//! Worker processes of one run on this machine.

use std::ffi::OsString;
use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use forebay_model::{Fault, Result, codes};

use crate::security::ClusterSecurity;

/// How long workers have to end what they do once the run is over.
const FAREWELL: Duration = Duration::from_secs(5);

/// Between two looks whether they have.
const LOOK_EVERY: Duration = Duration::from_millis(5);

/// What starts the command line, where it is not the program of this process.
static PROGRAM: OnceLock<Vec<OsString>> = OnceLock::new();

/// Sets the words that start the command line, before those of a command: where this process is an interpreter that has
/// loaded Forebay, its own program is another one. Only the first call has an effect.
pub fn set_worker_program(words: Vec<OsString>) {
    let _ = PROGRAM.set(words);
}

/// Worker processes that end with this.
#[derive(Debug)]
pub struct LocalWorkers {
    children: Vec<Child>,
    addresses: Vec<String>,
    security: ClusterSecurity,
}

impl LocalWorkers {
    /// Starts `count` of this very program, or of that of [`set_worker_program`], which must know the command `worker`,
    /// with further arguments.
    pub fn start(
        count: usize,
        threads: usize,
        memory_bytes: u64,
        arguments: &[String],
    ) -> Result<LocalWorkers> {
        let failed =
            |error| Fault::new(codes::STORAGE, "a worker process cannot be started").cause(error);
        let words = match PROGRAM.get() {
            Some(words) => words.clone(),
            None => vec![std::env::current_exe().map_err(failed)?.into_os_string()],
        };
        let Some((program, first)) = words.split_first() else {
            return Err(Fault::internal(
                "the program of worker processes has no name",
            ));
        };
        let (security, (variable, token)) = ClusterSecurity::random()?;
        let mut local = LocalWorkers {
            children: Vec::new(),
            addresses: Vec::new(),
            security,
        };
        for _ in 0..count {
            let mut command = Command::new(program);
            command
                .args(first)
                .args(["worker", "--attached", "--listen=127.0.0.1:0"]);
            command
                .arg(format!("--threads={threads}"))
                .arg(format!("--memory={memory_bytes}"));
            command.args(arguments);
            // Others cannot read another user's environment, but they can read a command line.
            command
                .env(variable, &token)
                .stdin(Stdio::piped())
                .stdout(Stdio::piped());
            local.children.push(command.spawn().map_err(failed)?);
        }
        for child in &mut local.children {
            let mut line = String::new();
            if let Some(stdout) = child.stdout.take() {
                BufReader::new(stdout)
                    .read_line(&mut line)
                    .map_err(failed)?;
            }
            let address = line.trim().strip_prefix("listening at ").map(str::to_owned);
            let silent = || Fault::new(codes::STORAGE, "a worker process ended before it listened");
            local.addresses.push(address.ok_or_else(silent)?);
        }
        Ok(local)
    }

    /// Where they listen.
    pub fn addresses(&self) -> &[String] {
        &self.addresses
    }

    /// What they know.
    pub fn security(&self) -> &ClusterSecurity {
        &self.security
    }
}

impl Drop for LocalWorkers {
    fn drop(&mut self) {
        // The end of their input tells them to go.
        self.children
            .iter_mut()
            .for_each(|child| drop(child.stdin.take()));
        let begin = Instant::now();
        for child in &mut self.children {
            while matches!(child.try_wait(), Ok(None)) && begin.elapsed() < FAREWELL {
                std::thread::sleep(LOOK_EVERY);
            }
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}
