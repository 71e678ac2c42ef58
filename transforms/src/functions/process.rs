//! Processes that answer batches of an Arrow stream with batches.

use std::collections::VecDeque;
use std::io::{BufWriter, Read, Write};
use std::os::unix::process::CommandExt;
use std::process::{Child, ChildStderr, ChildStdin, ChildStdout, Command, ExitStatus, Stdio};
use std::sync::atomic::Ordering;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, SyncSender, channel, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{Builder, JoinHandle};
use std::time::{Duration, Instant};

use arrow::array::RecordBatch;
use arrow::datatypes::SchemaRef;
use arrow::error::ArrowError;
use arrow::ipc::reader::StreamReader;
use arrow::ipc::writer::StreamWriter;
use forebay_model::{ContentId, Fault, Result, codes};
use forebay_plan::check_stop;
use rustix::process::{Pid, Signal, kill_process_group};
use serde::Deserialize;

use super::code::FunctionCode;
use super::stream::{CheckedStream, StreamState};

/// Interval at which a wait looks for the end of the run.
const LOOK_EVERY: Duration = Duration::from_millis(50);

/// Time in which a process whose output has ended must end.
const EXIT_WITHIN: Duration = Duration::from_secs(2);

/// Time for which a process that has answered may go on after the end of its input.
const FAREWELL: Duration = Duration::from_millis(300);

/// Interval at which the end of a process is looked for.
const EXIT_POLL: Duration = Duration::from_millis(5);

/// Last bytes of standard error that a fault shows.
const MESSAGES_BYTES_MAX: usize = 8 << 10;

/// Bytes of an answer that are always accepted.
const ANSWER_BYTES_MAX: usize = 64 << 20;

/// Times of the bytes of a large batch that an answer may have.
const ANSWER_TIMES_MAX: usize = 4;

/// The begin of a line in which a driver says why the function failed.
const FAILURE_PREFIX: &str = "forebay: ";

/// The variable that seeds the hashes of Python. They decide the order of sets, which all processes share.
const HASH_SEED_VARIABLE: &str = "PYTHONHASHSEED";

/// The variable with the token of workers, which is no business of functions.
const TOKEN_VARIABLE: &str = "FOREBAY_TOKEN";

/// A command line that answers batches.
#[derive(Debug)]
pub(super) struct FunctionProgram {
    /// The function as messages name it, such as `` the program `cat` ``.
    pub name: String,
    /// The program and its arguments.
    pub words: Vec<String>,
    /// The code that it runs.
    pub code: FunctionCode,
    /// The id of the code when the step was bound.
    pub digest: ContentId,
    /// Bytes that a process reads before the stream of batches.
    pub preamble: Vec<u8>,
}

/// An answer, or the reason why the output is none.
type Answer = std::result::Result<RecordBatch, String>;

/// A running process. Dropping it ends the process.
pub(super) struct FunctionProcess {
    program: Arc<FunctionProgram>,
    child: Child,
    /// Batches for the thread that writes them; dropping it ends the input.
    batches: Option<Sender<RecordBatch>>,
    answers: Option<Receiver<Answer>>,
    stream: Arc<StreamState>,
    messages: Arc<LastMessages>,
    /// The thread that reads standard error.
    listener: Option<JoinHandle<()>>,
    /// True while the process has answered all that it was asked.
    is_idle: bool,
}

/// The last bytes of standard error.
#[derive(Debug, Default)]
struct LastMessages(Mutex<VecDeque<u8>>);

impl LastMessages {
    fn append(&self, bytes: &[u8]) {
        let mut messages = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        messages.extend(bytes);
        let surplus = messages.len().saturating_sub(MESSAGES_BYTES_MAX);
        messages.drain(..surplus);
    }

    fn text(&self) -> String {
        let messages = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let bytes: Vec<u8> = messages.iter().copied().collect();
        String::from_utf8_lossy(&bytes).into_owned()
    }
}

/// The line that a driver writes last, whose function failed.
#[derive(Debug, Deserialize)]
struct DriverFailure {
    /// The row of the batch, where one row alone fails.
    row: Option<u64>,
    /// The returned column that is wrong.
    column: Option<String>,
    error: String,
}

/// The failure in a line of a driver.
fn driver_failure(line: &str) -> Option<DriverFailure> {
    let text = line.strip_prefix(FAILURE_PREFIX)?;
    serde_json::from_str(text).ok()
}

impl FunctionProcess {
    /// Starts a process that receives batches of a schema.
    pub fn start(program: &Arc<FunctionProgram>, schema: SchemaRef) -> Result<FunctionProcess> {
        if program.code.digest()? != program.digest {
            let message = format!("the code of {} changed during the run", program.name);
            return Err(Fault::new(codes::CHANGED, message).hint("run again with the new code"));
        }
        let mut process = FunctionProcess::spawn(program)?;
        if let Some(input) = process.child.stdin.take() {
            let (batches, waiting) = channel();
            process.batches = Some(batches);
            let program = program.clone();
            start_thread(move || write_batches(input, &program.preamble, &schema, &waiting))?;
        }
        if let Some(output) = process.child.stdout.take() {
            // One answer waits at most: a process that answers more often than asked is not read on.
            let (sender, answers) = sync_channel(1);
            process.answers = Some(answers);
            let stream = process.stream.clone();
            start_thread(move || read_answers(output, stream, &sender))?;
        }
        if let Some(errors) = process.child.stderr.take() {
            let messages = process.messages.clone();
            let listener = start_thread(move || read_messages(errors, &messages))?;
            process.listener = Some(listener);
        }
        Ok(process)
    }

    fn spawn(program: &Arc<FunctionProgram>) -> Result<FunctionProcess> {
        let Some((name, arguments)) = program.words.split_first() else {
            return Err(Fault::internal("a function without a program"));
        };
        let mut command = Command::new(name);
        if std::env::var_os(HASH_SEED_VARIABLE).is_none() {
            command.env(HASH_SEED_VARIABLE, "0");
        }
        let child = command
            .args(arguments)
            .env_remove(TOKEN_VARIABLE)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            // A signal of the terminal reaches the engine alone, which ends the processes.
            .process_group(0)
            .spawn()
            .map_err(|error| {
                Fault::disk(format!("{} cannot be started", program.name), error)
                    .hint("see that the program exists, and that it may be executed")
            })?;
        Ok(FunctionProcess {
            program: program.clone(),
            child,
            batches: None,
            answers: None,
            stream: Arc::default(),
            messages: Arc::default(),
            listener: None,
            is_idle: true,
        })
    }

    /// The answer to a batch. After a fault, the process is of no use.
    pub fn call(&mut self, batch: RecordBatch, timeout: Duration) -> Result<RecordBatch> {
        self.refuse_waiting_answer()?;
        self.is_idle = false;
        let bytes = batch.get_array_memory_size();
        let answer_bytes_max = ANSWER_BYTES_MAX.max(bytes.saturating_mul(ANSWER_TIMES_MAX));
        self.stream
            .body_bytes_max
            .store(answer_bytes_max, Ordering::Relaxed);
        if let Some(batches) = &self.batches {
            // The writer ends when the process reads no more; its output says why.
            let _ = batches.send(batch);
        }
        let begin = Instant::now();
        loop {
            match self.next_answer() {
                Ok(Ok(answer)) => {
                    self.is_idle = true;
                    return Ok(answer);
                }
                Ok(Err(reason)) => return Err(self.failed(&reason)),
                Err(RecvTimeoutError::Disconnected) => return Err(self.ended()),
                Err(RecvTimeoutError::Timeout) => {}
            }
            check_stop()?;
            if begin.elapsed() >= timeout {
                let message = format!(
                    "{} has not answered a batch for {} s",
                    self.program.name,
                    timeout.as_secs()
                );
                let fault = self.with_messages(Fault::new(codes::FUNCTION, message));
                return Err(fault.hint(self.program.code.timeout_hint()));
            }
        }
    }

    /// Fails where an answer waits before a batch is sent: it would be taken for the answer to that batch.
    fn refuse_waiting_answer(&mut self) -> Result<()> {
        let waiting = self.answers.as_ref().map(Receiver::try_recv);
        let Some(Ok(answer)) = waiting else {
            return Ok(());
        };
        self.is_idle = false;
        let reason = match answer {
            Ok(_) => "it writes more batches than it reads".to_owned(),
            Err(reason) => reason,
        };
        Err(self.failed(&reason))
    }

    /// The fault of a process whose output is none.
    fn failed(&mut self, reason: &str) -> Fault {
        let message = format!("{} failed: {reason}", self.program.name);
        self.with_messages(Fault::new(codes::FUNCTION, message))
    }

    /// Ends the input, and with it the process, without a wait.
    pub fn end_input(&mut self) {
        drop(self.batches.take());
    }

    fn next_answer(&self) -> std::result::Result<Answer, RecvTimeoutError> {
        match &self.answers {
            Some(answers) => answers.recv_timeout(LOOK_EVERY),
            None => Err(RecvTimeoutError::Disconnected),
        }
    }

    /// The fault of a process that ended before it answered.
    fn ended(&mut self) -> Fault {
        // A run that is stopped ends for that reason, whatever became of its processes.
        if let Err(fault) = check_stop() {
            return fault;
        }
        let message = match self.exit_status(EXIT_WITHIN) {
            Some(status) => format!("{} ended with {status}", self.program.name),
            None => format!("{} closed its output", self.program.name),
        };
        self.with_messages(Fault::new(
            codes::FUNCTION,
            format!("{message} before it answered a batch"),
        ))
    }

    /// The status with which the process ended, if it does within a time.
    fn exit_status(&mut self, within: Duration) -> Option<ExitStatus> {
        let begin = Instant::now();
        loop {
            if let Ok(Some(status)) = self.child.try_wait() {
                return Some(status);
            }
            if begin.elapsed() >= within {
                return None;
            }
            std::thread::sleep(EXIT_POLL);
        }
    }

    /// Adds the last lines of standard error to a fault. The reason that a driver gives replaces the message.
    fn with_messages(&mut self, mut fault: Fault) -> Fault {
        self.wait_for_messages();
        let text = self.messages.text();
        let mut lines: Vec<&str> = text
            .lines()
            .filter(|line| !line.trim().is_empty())
            .collect();
        // Libraries may write further lines when their process ends.
        let reported = lines
            .iter()
            .rposition(|line| line.starts_with(FAILURE_PREFIX));
        let failure = reported.and_then(|number| driver_failure(lines[number]));
        if let Some(failure) = failure {
            lines.retain(|line| !line.starts_with(FAILURE_PREFIX));
            let message = format!("{} failed: {}", self.program.name, failure.error);
            fault = Fault::new(codes::FUNCTION, message).rows(failure.row);
            if let Some(column) = failure.column {
                fault = fault.column(column);
            }
        }
        if lines.is_empty() {
            return fault;
        }
        fault.note(format!("its last messages are\n{}", lines.join("\n")))
    }

    /// Waits a moment for the end of standard error. A process that goes on has no end of it.
    fn wait_for_messages(&mut self) {
        let begin = Instant::now();
        while let Some(listener) = &self.listener
            && !listener.is_finished()
            && self.stream.has_ended.load(Ordering::Relaxed)
            && begin.elapsed() < EXIT_WITHIN
        {
            std::thread::sleep(EXIT_POLL);
        }
    }
}

impl Drop for FunctionProcess {
    fn drop(&mut self) {
        self.end_input();
        let mut within = Duration::ZERO;
        if self.is_idle {
            within = FAREWELL;
        }
        // The number of a process that has ended may be that of another one by now.
        if self.exit_status(within).is_none() {
            // Processes that it started belong to its group.
            let _ = kill_process_group(Pid::from_child(&self.child), Signal::KILL);
            let _ = self.child.kill();
        }
        let _ = self.child.wait();
    }
}

/// Starts a thread that ends with a pipe of its process.
fn start_thread(work: impl FnOnce() + Send + 'static) -> Result<JoinHandle<()>> {
    Builder::new()
        .name("forebay-function".to_owned())
        .spawn(work)
        .map_err(Fault::refused_thread)
}

/// Writes batches until there are no more, or until the process reads no more.
fn write_batches(
    input: ChildStdin,
    preamble: &[u8],
    schema: &SchemaRef,
    batches: &Receiver<RecordBatch>,
) {
    // The output of a process whose input fails says why.
    let _ = write_stream(input, preamble, schema, batches);
}

fn write_stream(
    input: ChildStdin,
    preamble: &[u8],
    schema: &SchemaRef,
    batches: &Receiver<RecordBatch>,
) -> std::result::Result<(), ArrowError> {
    let mut input = BufWriter::new(input);
    input.write_all(preamble)?;
    let mut stream = StreamWriter::try_new(input, schema)?;
    stream.flush()?;
    for batch in batches {
        stream.write(&batch)?;
        stream.flush()?;
    }
    stream.finish()
}

/// Reads answers until the output ends, or until the caller has gone.
fn read_answers(output: ChildStdout, state: Arc<StreamState>, answers: &SyncSender<Answer>) {
    let checked = CheckedStream::new(output, state.clone());
    let reader = match StreamReader::try_new(checked, None) {
        Ok(reader) => reader,
        Err(error) => return send_error(&error, &state, answers),
    };
    for batch in reader {
        match batch {
            Ok(batch) => {
                if answers.send(Ok(batch)).is_err() {
                    return;
                }
            }
            Err(error) => return send_error(&error, &state, answers),
        }
    }
}

/// Sends the reason why the output is no stream. An output that breaks off needs none: its process has ended.
fn send_error(error: &ArrowError, state: &StreamState, answers: &SyncSender<Answer>) {
    let reason = match error {
        ArrowError::IoError(_, error) if error.kind() == std::io::ErrorKind::InvalidData => {
            error.to_string()
        }
        _ if state.has_ended.load(Ordering::Relaxed) => return,
        error => format!("its output is no Arrow stream: {error}"),
    };
    // The caller may have given up.
    let _ = answers.send(Err(reason));
}

/// Keeps the last bytes of standard error until its end.
fn read_messages(mut errors: ChildStderr, messages: &LastMessages) {
    let mut buffer = [0; 4096];
    loop {
        match errors.read(&mut buffer) {
            Ok(0) => return,
            Ok(bytes) => messages.append(&buffer[..bytes]),
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
            Err(_) => return,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs::File;

    use arrow::array::{ArrayRef, Int64Array};

    use super::*;

    #[test]
    fn an_answer_to_no_batch_is_a_fault() {
        let numbers: ArrayRef = Arc::new(Int64Array::from(vec![1]));
        let batch = RecordBatch::try_from_iter([("n", numbers)]).unwrap();
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("answers.arrows");
        let file = File::create(&path).unwrap();
        let mut stream = StreamWriter::try_new(file, &batch.schema()).unwrap();
        stream.write(&batch).unwrap();
        stream.finish().unwrap();
        let words = vec!["cat".to_owned(), path.to_str().unwrap().to_owned()];
        let code = FunctionCode::Command(words.clone());
        let program = Arc::new(FunctionProgram {
            name: "the program `cat`".to_owned(),
            words,
            digest: code.digest().unwrap(),
            code,
            preamble: Vec::new(),
        });
        let mut process = FunctionProcess::start(&program, batch.schema()).unwrap();
        let begin = Instant::now();
        loop {
            if let Err(fault) = process.refuse_waiting_answer() {
                let message = fault.message();
                assert!(message.contains("the program `cat` failed"), "{message}");
                break;
            }
            assert!(begin.elapsed() < Duration::from_secs(60));
            std::thread::sleep(EXIT_POLL);
        }
    }
}
