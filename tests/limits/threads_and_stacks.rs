//! Limits that the system sets to threads and stacks: a command works, or ends with a fault that names the limit.

use std::os::unix::fs::PermissionsExt;
use std::process::Command;

use crate::support::watched_command::WatchedCommand;
use crate::support::{FOREBAY, ProgramOutput, TestDirectory};

/// Windows, statistics, a query, a model and two formats.
const SPEC: &str = "version: 1
name: limited
sources:
  demand: { parquet: { path: data }, time: date, keys: [store_id, item_id] }
steps:
  f:
    from: demand
    do:
      - filter: \"qty IS NOT NULL AND price IS NOT NULL\"
      - drop: [promotion, event]
      - rolling: { columns: [qty], compute: [mean], over: [7d], gap: 1d }
      - standardize: { columns: [price] }
  places:
    sql: \"SELECT *, row_number() OVER (PARTITION BY item_id ORDER BY qty, date, store_id) AS place FROM demand\"
  joined: { from: demand, do: [ { as_of_join: { with: f, on: [store_id, item_id], time: date, columns: [qty_mean_7d] } } ] }
sinks:
  t: { from: f, parquet: { path: out } }
  u: { from: places, csv: { path: out-csv } }
  v: { from: joined, parquet: { path: out-joined } }
  net: { from: f, train: { path: net, model: mlp, label: qty, dense: [price], epochs: 1 } }
feed: { from: f, label: qty, dense: [price], batch_rows: 16 }
";

const COMMANDS: [&[&str]; 5] = [
    &["run", "spec.yaml", "--threads=4"],
    &["run", "spec.yaml", "--local-workers=2", "--memory=1GiB"],
    &["check", "spec.yaml"],
    &["profile", "data"],
    &["feed", "spec.yaml"],
];

/// A user of no other process: the limit of threads counts those of a user, and root has none.
const LONE_USER: u32 = 64_231;

/// Runs the program in a shell that sets a limit first.
fn run_limited(shop: &TestDirectory, limit: &str, arguments: &[&str]) -> ProgramOutput {
    let script = format!("{limit}; exec \"$0\" \"$@\"");
    let mut command = Command::new("bash");
    if is_root() {
        command = Command::new("setpriv");
        command
            .arg(format!("--reuid={LONE_USER}"))
            .args(["--clear-groups", "bash"]);
    }
    command.args(["-c", &script, FOREBAY]).args(arguments);
    shop.isolate(&mut command);
    command.watched().into()
}

fn is_root() -> bool {
    use std::os::unix::fs::MetadataExt;
    std::fs::metadata("/proc/self").is_ok_and(|process| process.uid() == 0)
}

fn shop() -> TestDirectory {
    let shop = TestDirectory::new();
    shop.days("data");
    shop.write("spec.yaml", SPEC);
    let everyone = std::fs::Permissions::from_mode(0o777);
    std::fs::set_permissions(shop.path(""), everyone).unwrap();
    shop
}

#[cfg(target_os = "linux")]
#[test]
fn threads_that_the_system_refuses_are_a_fault() {
    let shop = shop();
    let mut refused = 0;
    for command in COMMANDS {
        if command[0] == "feed" {
            // No limited run may have learned what it delivers.
            assert_eq!(run_limited(&shop, "true", COMMANDS[0]).code, 0);
        }
        for threads in [1, 2, 3, 4, 5, 6, 7, 8, 10, 12, 16] {
            let call = run_limited(&shop, &format!("ulimit -u {threads}"), command);
            let context = format!(
                "{command:?}, {threads} threads: {} {}",
                call.code, call.stderr
            );
            assert!(!call.stderr.contains("panicked"), "{context}");
            if call.stderr.contains("FB0301") {
                refused += 1;
                assert_eq!(call.code, 78, "{context}");
                assert!(call.stderr.contains("ulimit -u"), "{context}");
            } else {
                assert_eq!(call.code, 0, "{context}");
            }
        }
    }
    // Another user than root has threads of other processes.
    assert!(refused > 0 || !is_root());
}

#[cfg(target_os = "linux")]
#[test]
fn commands_do_not_depend_on_the_limit_of_stacks() {
    let shop = shop();
    for limit in ["ulimit -s 64", "ulimit -s unlimited"] {
        for command in COMMANDS {
            let call = run_limited(&shop, limit, command);
            assert_eq!(call.code, 0, "{limit}, {command:?}: {}", call.stderr);
        }
    }
}

/// No thread can be started whose stack has the usual size.
#[cfg(target_os = "linux")]
#[test]
fn a_process_without_room_for_stacks_says_so() {
    let shop = shop();
    for command in COMMANDS {
        let mut limited = shop.command(command);
        limited.env("RUST_MIN_STACK", (1_u64 << 60).to_string());
        let call = ProgramOutput::from(limited.watched());
        let context = format!("{command:?}: {} {}", call.code, call.stderr);
        assert!(!call.stderr.contains("panicked"), "{context}");
        assert!(
            call.code == 0 || call.stderr.contains("FB0301"),
            "{context}"
        );
    }
}
