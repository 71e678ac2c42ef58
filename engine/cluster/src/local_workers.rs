//! Worker processes of one run on this machine.

use std::ffi::OsString;
use std::fmt;
use std::io::{BufRead, BufReader, ErrorKind};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use forebay_model::{Fault, Result, codes};

use crate::security::ClusterSecurity;

/// Time that workers have to end their tasks once the run is over.
const FAREWELL: Duration = Duration::from_secs(5);

/// Interval between two checks whether the worker processes have ended.
const LOOK_EVERY: Duration = Duration::from_millis(5);

/// Longest time for which a process that has ended may still be listed after its connections end.
const EXIT_WITHIN: Duration = Duration::from_millis(200);

/// Program that starts the command line, where it is not that of this process.
static PROGRAM: OnceLock<Vec<OsString>> = OnceLock::new();

/// Sets the program, and its first arguments, that start a Forebay command line, before the name of
/// a command: where this process is an interpreter that has loaded Forebay, its own program is
/// another one. Only the first call has an effect.
pub fn set_worker_program(words: Vec<OsString>) {
    let _ = PROGRAM.set(words);
}

/// The words of [`set_worker_program`]; none where this process is the program.
pub fn worker_program() -> Vec<OsString> {
    PROGRAM.get().cloned().unwrap_or_default()
}

/// Worker processes that end with this.
#[derive(Debug)]
pub struct LocalWorkers {
    processes: LocalProcesses,
    security: ClusterSecurity,
}

/// The worker processes of a run, as its coordinator sees them: which there are, and how others ended.
#[derive(Debug, Clone)]
pub struct LocalProcesses(Arc<ProcessGroup>);

#[derive(Debug)]
struct ProcessGroup {
    start: WorkerStart,
    table: Mutex<ProcessTable>,
}

/// Start of a worker process.
struct WorkerStart {
    program: OsString,
    arguments: Vec<OsString>,
    /// The variable that holds the token, and the token.
    token: (&'static str, String),
}

impl fmt::Debug for WorkerStart {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "WorkerStart({:?})", self.arguments)
    }
}

#[derive(Debug, Default)]
struct ProcessTable {
    running: Vec<LocalProcess>,
    ended: Vec<EndedProcess>,
    /// Processes that were started and do not listen yet.
    starting: usize,
    /// Processes that may be started in place of those that ended.
    spare: usize,
    /// True once the run is over.
    over: bool,
}

#[derive(Debug)]
struct LocalProcess {
    child: Child,
    address: String,
}

#[derive(Debug)]
struct EndedProcess {
    address: String,
    status: ExitStatus,
}

fn start_fault(error: std::io::Error) -> Fault {
    // The limit of threads is that of processes.
    if error.kind() == ErrorKind::WouldBlock {
        return Fault::refused_thread(error);
    }
    Fault::new(codes::STORAGE, "a worker process cannot be started").cause(error)
}

impl WorkerStart {
    fn spawn(&self) -> Result<Child> {
        let mut command = Command::new(&self.program);
        // Others cannot read another user's environment, but they can read a command line.
        let (variable, token) = &self.token;
        command
            .args(&self.arguments)
            .env(variable, token)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped());
        command.spawn().map_err(start_fault)
    }
}

/// Waits until a process reports the address at which it listens.
fn listening(mut child: Child) -> Result<LocalProcess> {
    let mut line = String::new();
    if let Some(stdout) = child.stdout.take() {
        BufReader::new(stdout)
            .read_line(&mut line)
            .map_err(start_fault)?;
    }
    match line.trim().strip_prefix("listening at ") {
        Some(address) => Ok(LocalProcess {
            address: address.to_owned(),
            child,
        }),
        None => {
            // Its end follows that of its output.
            drop(child.stdin.take());
            let status = child.wait().map_err(start_fault)?;
            // The coordinator has checked what it passes on: a worker that refuses to start lacks memory or threads.
            let lacks_resources = status.code() == Some(codes::MEMORY.exit_code().into());
            let code = if lacks_resources {
                codes::MEMORY
            } else {
                codes::STORAGE
            };
            let fault = Fault::new(code, "a worker process ended before it listened");
            let fault = fault.note(format!("it ended with {status}"));
            Err(fault.hint("its own message says why"))
        }
    }
}

impl LocalProcesses {
    fn table(&self) -> MutexGuard<'_, ProcessTable> {
        self.0.table.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The addresses of those that run.
    pub fn addresses(&self) -> Vec<String> {
        let mut table = self.table();
        table.collect_ended();
        table
            .running
            .iter()
            .map(|process| process.address.clone())
            .collect()
    }

    /// End of the process that listened at an address, if it has ended. A process whose connections have just ended may
    /// take a moment more.
    pub fn exit_of(&self, address: &str) -> Option<ExitStatus> {
        let begin = Instant::now();
        loop {
            let mut table = self.table();
            table.collect_ended();
            let ended = table.ended.iter().find(|ended| ended.address == address);
            if let Some(ended) = ended {
                return Some(ended.status);
            }
            if begin.elapsed() >= EXIT_WITHIN {
                return None;
            }
            drop(table);
            std::thread::sleep(LOOK_EVERY);
        }
    }

    /// Starts a process in place of one that ended, in the background, if there may be one more.
    pub fn replace(&self) {
        let mut table = self.table();
        if table.spare == 0 || table.over {
            return;
        }
        table.spare -= 1;
        table.starting += 1;
        drop(table);
        let processes = self.clone();
        let started = std::thread::Builder::new()
            .name("forebay-local".to_owned())
            .spawn(move || processes.start_one());
        if started.is_err() {
            self.table().starting -= 1;
        }
    }

    fn start_one(&self) {
        let process = self.0.start.spawn().and_then(listening);
        let mut table = self.table();
        table.starting -= 1;
        // The end of its input ends a process that comes too late.
        if let Ok(process) = process
            && !table.over
        {
            table.running.push(process);
        }
    }

    /// The fault of a run whose worker processes have all ended; `None` while one runs or starts.
    pub fn all_ended(&self) -> Option<Fault> {
        let mut table = self.table();
        table.collect_ended();
        if !table.running.is_empty() || table.starting > 0 {
            return None;
        }
        let failed = table.ended.iter().filter(|ended| !ended.status.success());
        let ends: Vec<String> = failed
            .map(|ended| format!("{} ended with {}", ended.address, ended.status))
            .collect();
        if ends.is_empty() {
            let fault = Fault::new(codes::NO_WORKERS, "the local workers were told to end");
            return Some(fault.hint("what is committed stays; the same command goes on"));
        }
        Some(
            workers_end_fault("the local workers ended, and so did those in their place")
                .note(ends.join("; ")),
        )
    }
}

/// The fault of work that ends the processes that do it.
pub(crate) fn workers_end_fault(message: impl Into<String>) -> Fault {
    Fault::new(codes::KILLS_WORKERS, message).hint(
        "look at the workers' own messages; they may need more memory, or an expression or a \
         file may be such that it ends the process",
    )
}

impl ProcessTable {
    /// Moves processes that have ended.
    fn collect_ended(&mut self) {
        let mut number = 0;
        while let Some(process) = self.running.get_mut(number) {
            match process.child.try_wait() {
                Ok(Some(status)) => {
                    let process = self.running.swap_remove(number);
                    self.ended.push(EndedProcess {
                        address: process.address,
                        status,
                    });
                }
                _ => number += 1,
            }
        }
    }
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
        let words = match PROGRAM.get() {
            Some(words) => words.clone(),
            None => vec![
                std::env::current_exe()
                    .map_err(start_fault)?
                    .into_os_string(),
            ],
        };
        let Some((program, first)) = words.split_first() else {
            return Err(Fault::internal(
                "the program of worker processes has no name",
            ));
        };
        let mut command: Vec<OsString> = first.to_vec();
        command.extend(["worker", "--attached", "--listen=127.0.0.1:0"].map(OsString::from));
        command.push(format!("--threads={threads}").into());
        command.push(format!("--memory={memory_bytes}").into());
        command.extend(arguments.iter().map(OsString::from));
        let (security, token) = ClusterSecurity::random()?;
        let start = WorkerStart {
            program: program.clone(),
            arguments: command,
            token,
        };
        // All of them start side by side.
        let mut children = Vec::new();
        for _ in 0..count {
            children.push(start.spawn()?);
        }
        let mut table = ProcessTable {
            spare: count,
            ..ProcessTable::default()
        };
        for child in children {
            table.running.push(listening(child)?);
        }
        let processes = LocalProcesses(Arc::new(ProcessGroup {
            start,
            table: Mutex::new(table),
        }));
        Ok(LocalWorkers {
            processes,
            security,
        })
    }

    /// Addresses at which the workers listen.
    pub fn addresses(&self) -> Vec<String> {
        self.processes.addresses()
    }

    /// Processes of the workers, which the coordinator asks how they ended.
    pub fn processes(&self) -> &LocalProcesses {
        &self.processes
    }

    /// Credentials of the workers.
    pub fn security(&self) -> &ClusterSecurity {
        &self.security
    }
}

impl Drop for LocalWorkers {
    fn drop(&mut self) {
        let mut table = self.processes.table();
        table.over = true;
        let mut processes = std::mem::take(&mut table.running);
        drop(table);
        // The end of their input tells them to go.
        for process in &mut processes {
            drop(process.child.stdin.take());
        }
        let begin = Instant::now();
        for LocalProcess { child, .. } in &mut processes {
            while matches!(child.try_wait(), Ok(None)) && begin.elapsed() < FAREWELL {
                std::thread::sleep(LOOK_EVERY);
            }
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}
