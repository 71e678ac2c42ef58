//! Strange command lines: each ends soon, with an exit code that says why, and never by a panic or an
//! abort. Some are fixed, others are drawn from a seed until the time is over:
//!
//! ```text
//! FOREBAY_FUZZ_SECONDS=60 FOREBAY_COMMAND_SEED=7 cargo test -p forebay --test forebay command_line::drawn_arguments::
//! ```

use std::collections::BTreeMap;
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use forebay_fuzz::fuzz_duration;

use crate::support::TestDirectory;

/// How long a command may take: debug programs on a busy machine are slow, and what has no end is slower.
const SECONDS_MAX: Duration = Duration::from_secs(60);

/// Address space in KiB: a number that is taken for memory at once is refused by the system.
const ADDRESS_KIB: u64 = 16 << 20;

const SPEC: &str = "version: 1\nname: tried\nsources: { a: { csv: { path: rows.csv } } }\n\
    steps: { f: { from: a, do: [ standardize: { columns: [x] } ] } }\n\
    sinks: { t: { from: f, parquet: { path: out } } }\n";

const COMMANDS: [&str; 31] = [
    "new",
    "init",
    "fmt",
    "check",
    "test",
    "explain",
    "fit",
    "apply",
    "run",
    "backfill",
    "backtest",
    "score",
    "feed",
    "predict",
    "preview",
    "worker",
    "top",
    "profile",
    "drift",
    "report",
    "show",
    "diff",
    "export",
    "cache",
    "schema",
    "generate",
    "doctor",
    "serve",
    "ui",
    "completions",
    "man",
];

/// Flags of no command, and of all.
const FLAGS: [&str; 5] = ["--help", "--version", "--no-such-flag", "--", "-x"];

const VALUES: [&str; 46] = [
    "spec.yaml",
    "rows.csv",
    "out",
    "missing.yaml",
    "",
    " ",
    ".",
    "/",
    "/dev/null",
    "0",
    "1",
    "2",
    "-1",
    "1.5",
    "1e308",
    "-1e308",
    "nan",
    "inf",
    "100000",
    "4294967296",
    "18446744073709551615",
    "18446744073709551616",
    "9223372036854775807",
    "0B",
    "1B",
    "1KiB",
    "64MiB",
    "999999PiB",
    "-5MiB",
    "7d",
    "-7d",
    "99999999999d",
    "1ns",
    "2020-01-01",
    "2020-13-45",
    "-9999-01-01",
    "9999-12-31",
    "06:30",
    "@missing",
    "127.0.0.1:0",
    "256.0.0.1:1",
    "localhost:99999",
    "a=b",
    "x=\u{1f600}",
    "s3://",
    "http://[::1",
];

fn random(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let x = (*state ^ (*state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ (x >> 31)
}

fn pick<'w>(state: &mut u64, words: &[&'w str]) -> &'w str {
    words[(random(state) % words.len() as u64) as usize]
}

/// The flags that a command has by its own help, and true for those that take a value.
fn flags_of(shop: &TestDirectory, command: &str) -> Vec<(String, bool)> {
    let help = shop.forebay(&[command, "--help"]).expect(0).stdout;
    let mut flags = Vec::new();
    for line in help.lines() {
        let line = line.trim_start();
        let long = line.starts_with('-').then(|| line.find("--")).flatten();
        let Some(flag) = long.map(|start| &line[start..]) else {
            continue;
        };
        let name: String = flag
            .chars()
            .take_while(|letter| letter.is_ascii_lowercase() || *letter == '-')
            .collect();
        flags.push((name, flag.contains('<')));
    }
    flags
}

/// A command with some flags and values.
fn drawn(state: &mut u64, flags: &BTreeMap<&str, Vec<(String, bool)>>) -> Vec<String> {
    let command = pick(state, &COMMANDS);
    let mut words = vec![command.to_owned()];
    if !random(state).is_multiple_of(3) {
        words.push("spec.yaml".to_owned());
    }
    for _ in 0..random(state) % 4 {
        let value = pick(state, &VALUES);
        let own = &flags[command];
        let (flag, takes_value) = if own.is_empty() || random(state).is_multiple_of(16) {
            (pick(state, &FLAGS), true)
        } else {
            let (flag, takes_value) = &own[(random(state) % own.len() as u64) as usize];
            (flag.as_str(), *takes_value)
        };
        match random(state) % 3 {
            _ if !takes_value => words.push(flag.to_owned()),
            0 => words.extend([flag.to_owned(), value.to_owned()]),
            _ => words.push(format!("{flag}={value}")),
        }
    }
    if random(state).is_multiple_of(4) {
        words.push(pick(state, &VALUES).to_owned());
    }
    words
}

/// Waits for the end; servers are told to end once they are up.
fn end(child: &mut Child, serves: bool) -> Option<i32> {
    let began = Instant::now();
    let mut is_told = false;
    loop {
        if let Some(status) = child.try_wait().unwrap() {
            return Some(status.code().unwrap_or(-1));
        }
        let took = began.elapsed();
        if serves && !is_told && took > Duration::from_secs(2) {
            is_told = true;
            let process = child.id().to_string();
            let signal_status = std::process::Command::new("kill")
                .args(["-TERM", &process])
                .status();
            signal_status.unwrap();
        }
        if took > SECONDS_MAX {
            let _ = child.kill();
            let _ = child.wait();
            return None;
        }
        std::thread::yield_now();
        std::thread::park_timeout(Duration::from_millis(2));
    }
}

/// Runs a command line, and fails if it ends as none may.
fn attempt(shop: &TestDirectory, words: &[String]) {
    let program = shop.command(&[]);
    let mut command = std::process::Command::new("bash");
    let script = format!("ulimit -v {ADDRESS_KIB}; exec \"$0\" \"$@\"");
    command
        .args(["-c", &script])
        .arg(program.get_program())
        .args(words);
    for (name, value) in program.get_envs() {
        match value {
            Some(value) => command.env(name, value),
            None => command.env_remove(name),
        };
    }
    let output = std::fs::File::create(shop.path("printed")).unwrap();
    let mut child = command
        .current_dir(shop.path(""))
        .stdin(Stdio::null())
        .stdout(output.try_clone().unwrap())
        .stderr(output)
        .spawn()
        .unwrap();
    let serves = words
        .iter()
        .any(|word| ["worker", "top", "ui", "feed", "serve"].contains(&word.as_str()));
    let code = end(&mut child, serves);
    let printed = std::fs::read(shop.path("printed")).unwrap();
    let printed = String::from_utf8_lossy(&printed);
    let shown = printed.get(..printed.len().min(4000)).unwrap_or_default();
    let code = code.unwrap_or_else(|| panic!("{words:?} has no end:\n{shown}"));
    let is_sound = [0, 1, 64, 65, 75, 78, 98, 99].contains(&code);
    let is_told = serves && code == -1;
    assert!(is_sound || is_told, "{words:?} ended with {code}:\n{shown}");
    assert!(!printed.contains("panicked"), "{words:?}:\n{shown}");
}

/// A directory with a small spec and its rows.
fn shop() -> TestDirectory {
    let shop = TestDirectory::new();
    shop.write("spec.yaml", SPEC);
    shop.write("rows.csv", "x\n1\n2\n4\n");
    shop
}

/// Every flag that takes a number, with the numbers that have broken such programs.
#[test]
fn numbers_beyond_all_bounds_are_refused() {
    let shop = shop();
    let numbers = [
        "0",
        "-1",
        "18446744073709551615",
        "18446744073709551616",
        "1e999",
    ];
    for flag in [
        "--threads",
        "--memory",
        "--local-workers",
        "--limit",
        "--sample",
    ] {
        for number in numbers {
            let words = ["run", "spec.yaml", &format!("{flag}={number}")].map(str::to_owned);
            attempt(&shop, &words);
        }
    }
}

#[test]
fn drawn_command_lines_end_with_a_reason() {
    let shop = shop();
    let seed = std::env::var("FOREBAY_COMMAND_SEED").ok();
    let mut state = seed.map_or(1, |seed| seed.parse().unwrap());
    let flags: BTreeMap<&str, Vec<(String, bool)>> = COMMANDS
        .iter()
        .map(|command| (*command, flags_of(&shop, command)))
        .collect();
    let began = Instant::now();
    let mut tried = 0;
    while began.elapsed() < fuzz_duration() {
        let words = drawn(&mut state, &flags);
        attempt(&shop, &words);
        // No command may put a file in place of the device that all programs share.
        assert!(null_is_a_device(), "{words:?}");
        tried += 1;
    }
    println!("{tried} command lines");
}

fn null_is_a_device() -> bool {
    use std::os::unix::fs::FileTypeExt;
    std::fs::metadata("/dev/null").is_ok_and(|null| null.file_type().is_char_device())
}
