//! Runs of the program that a test waits for: one that does nothing for 20 s, and says nothing, is ended, and fails
//! the test.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::io::Read;
use std::process::{Child, Command, Output, Stdio};
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::time::{Duration, Instant};

/// How long a run may be idle.
const IDLE_MAX: Duration = Duration::from_secs(20);

/// Between two looks at a run that says nothing.
const LOOK_EVERY: Duration = Duration::from_millis(250);

/// CPU time that a run has to use in order not to be idle, in clock ticks of 10 ms: threads that only look around every
/// now and then use less.
const TICKS_MIN: u64 = 20;

/// A command that is watched.
pub trait WatchedCommand {
    /// Like [`CliCommand::output`]; fails the test if the run is idle for too long.
    fn watched(&mut self) -> Output;
}

impl WatchedCommand for Command {
    #[track_caller]
    fn watched(&mut self) -> Output {
        output_within(self, IDLE_MAX).unwrap_or_else(|report| panic!("{report}"))
    }
}

/// What a run gives; or where its threads were, if it was idle for so long and was ended.
fn output_within(command: &mut Command, idle_max: Duration) -> Result<Output, String> {
    let mut child = command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let (said, hears) = channel();
    let stdout = reader(child.stdout.take().unwrap(), said.clone());
    let stderr = reader(child.stderr.take().unwrap(), said);
    let mut active = Instant::now();
    let mut ticks = 0;
    let status = loop {
        let is_over = match hears.recv_timeout(LOOK_EVERY) {
            Ok(()) => {
                active = Instant::now();
                continue;
            }
            Err(RecvTimeoutError::Timeout) => false,
            // Nothing more is said: it ends, or soon.
            Err(RecvTimeoutError::Disconnected) => true,
        };
        if let Some(status) = child.try_wait().unwrap().filter(|_| is_over) {
            break status;
        }
        let now = threads(&child);
        let spent: u64 = now.iter().map(|thread| thread.ticks).sum();
        if spent >= ticks + TICKS_MIN
            || spent < ticks
            || now.iter().any(|thread| "RD".contains(thread.state))
        {
            (active, ticks) = (Instant::now(), spent);
        }
        if active.elapsed() > idle_max {
            let report = report(&now, command, idle_max);
            kill_process_tree(&mut child, &now);
            let said = [stdout, stderr]
                .map(|thread| String::from_utf8_lossy(&thread.join().unwrap()).into_owned());
            return Err(format!(
                "{report}stdout:\n{}\nstderr:\n{}",
                said[0], said[1]
            ));
        }
        if is_over {
            std::thread::park_timeout(Duration::from_millis(1));
        }
    };
    Ok(Output {
        status,
        stdout: stdout.join().unwrap(),
        stderr: stderr.join().unwrap(),
    })
}

/// Reads everything, and tells of each piece.
fn reader(
    mut from: impl Read + Send + 'static,
    said: Sender<()>,
) -> std::thread::JoinHandle<Vec<u8>> {
    std::thread::spawn(move || {
        let mut all = Vec::new();
        let mut piece = vec![0; 1 << 16];
        while let Ok(bytes) = from.read(&mut piece) {
            if bytes == 0 {
                break;
            }
            all.extend(&piece[..bytes]);
            let _ = said.send(());
        }
        all
    })
}

/// A thread of the run, or of a process that it started.
struct ThreadStatus {
    process: u32,
    name: String,
    state: char,
    ticks: u64,
    /// Where in the kernel it waits.
    waits: String,
}

/// All threads of a process and of those below it.
fn threads(child: &Child) -> Vec<ThreadStatus> {
    let mut parents: BTreeMap<u32, Vec<u32>> = BTreeMap::new();
    for entry in std::fs::read_dir("/proc").into_iter().flatten().flatten() {
        let Some(process) = entry
            .file_name()
            .to_str()
            .and_then(|name| name.parse::<u32>().ok())
        else {
            continue;
        };
        // A process may end while it is looked at.
        let Some(parent) = stat_fields(&format!("/proc/{process}/stat"))
            .and_then(|(_, rest)| rest.get(1)?.parse().ok())
        else {
            continue;
        };
        parents.entry(parent).or_default().push(process);
    }
    let mut open = vec![child.id()];
    let mut statuses = Vec::new();
    while let Some(process) = open.pop() {
        open.extend(parents.get(&process).into_iter().flatten());
        for task in std::fs::read_dir(format!("/proc/{process}/task"))
            .into_iter()
            .flatten()
            .flatten()
        {
            let path = task.path();
            let Some((name, rest)) = stat_fields(&path.join("stat").display().to_string()) else {
                continue;
            };
            let ticks = |place: usize| {
                rest.get(place)
                    .and_then(|text| text.parse::<u64>().ok())
                    .unwrap_or(0)
            };
            let waits = std::fs::read_to_string(path.join("wchan")).unwrap_or_default();
            let state = rest
                .first()
                .and_then(|state| state.chars().next())
                .unwrap_or('?');
            statuses.push(ThreadStatus {
                process,
                name,
                state,
                ticks: ticks(11) + ticks(12),
                waits,
            });
        }
    }
    statuses
}

/// The name in a `stat` file, and the fields after it, from the state on.
fn stat_fields(stat: &str) -> Option<(String, Vec<String>)> {
    let text = std::fs::read_to_string(stat).ok()?;
    let (before, after) = text.rsplit_once(')')?;
    let name = before.split_once('(')?.1.to_owned();
    Some((name, after.split_whitespace().map(str::to_owned).collect()))
}

fn report(threads: &[ThreadStatus], command: &Command, idle: Duration) -> String {
    let mut report = format!(
        "{command:?}\ndid and said nothing for {} s:\n",
        idle.as_secs_f64()
    );
    for ThreadStatus {
        process,
        name,
        state,
        waits,
        ..
    } in threads
    {
        writeln!(
            report,
            "  process {process}, thread `{name}`: {state} in `{waits}`"
        )
        .unwrap();
    }
    report += "for stacks, start it again and, when it is idle: gdb -p PROCESS -batch -ex 'thread apply all bt'\n";
    report
}

/// Ends a run and the processes that it started.
fn kill_process_tree(child: &mut Child, threads: &[ThreadStatus]) {
    let _ = child.kill();
    let _ = child.wait();
    let mut below: Vec<u32> = threads
        .iter()
        .map(|thread| thread.process)
        .filter(|one| *one != child.id())
        .collect();
    below.dedup();
    for process in below {
        let _ = Command::new("kill")
            .args(["-9", &process.to_string()])
            .status();
    }
}

#[test]
fn an_idle_run_is_ended_and_a_busy_one_is_not() {
    let within = |millis, script: &str| {
        output_within(
            Command::new("sh").args(["-c", script]),
            Duration::from_millis(millis),
        )
    };
    let report = within(2000, "echo begun; sleep 1000; true").unwrap_err();
    assert!(
        report.contains("did and said nothing for 2 s") && report.contains("`sleep`"),
        "{report}"
    );
    assert!(report.contains("begun"), "{report}");
    // Longer than that, but never idle: it computes, or says something.
    let busy = within(
        300,
        "i=0; while [ $i -lt 1000000 ]; do i=$((i+1)); done; echo done",
    )
    .unwrap();
    assert_eq!(
        (busy.status.code(), busy.stdout.as_slice()),
        (Some(0), &b"done\n"[..])
    );
    let says = within(
        2000,
        "for i in 1 2 3 4 5; do echo $i; sleep 0.5; done; exit 3",
    )
    .unwrap();
    assert_eq!((says.status.code(), says.stdout.len()), (Some(3), 10));
}
