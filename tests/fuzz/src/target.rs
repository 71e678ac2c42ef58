//! Targets: seeds, and the bounds that every attempt keeps.

use std::path::{Path, PathBuf};
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::time::{Duration, Instant};
use std::{fs, io, process, thread};

use crate::edit::SeedMutation;
use crate::memory;

/// Memory that an attempt may hold at a time.
const BYTES_MAX: usize = 128 << 20;

/// How long an attempt may take. Debug builds on a busy machine are slow; what grows without end is slower.
const SECONDS_MAX: Duration = Duration::from_secs(20);

/// After that an attempt is ended with its process.
const SECONDS_ENDLESS: Duration = Duration::from_secs(90);

/// Words that trouble most languages.
const WORDS: [&str; 24] = [
    "0",
    "-1",
    "1e999",
    "NaN",
    "9223372036854775808",
    "-9223372036854775809",
    "18446744073709551616",
    "null",
    "true",
    "\"\"",
    "[]",
    "{}",
    "[[[[[[[[",
    "{\"a\":",
    ",",
    ":",
    "\n",
    "\r\n",
    "\0",
    "\u{feff}",
    "\u{1f600}",
    "\\u0000",
    "\"",
    "'",
];

/// What a fuzz test tries.
pub struct FuzzTarget {
    name: &'static str,
    seeds: Vec<Vec<u8>>,
    words: Vec<&'static str>,
    latest: PathBuf,
}

/// How long a target is tried.
pub fn fuzz_duration() -> Duration {
    let seconds = std::env::var("FOREBAY_FUZZ_SECONDS")
        .ok()
        .and_then(|seconds| seconds.parse().ok());
    Duration::from_secs(seconds.unwrap_or(4))
}

fn read(path: &Path) -> io::Result<Vec<Vec<u8>>> {
    let mut files: Vec<PathBuf> = fs::read_dir(path)?
        .map(|entry| Ok(entry?.path()))
        .collect::<io::Result<_>>()?;
    files.sort();
    files.iter().map(fs::read).collect()
}

impl FuzzTarget {
    /// A target with the seeds of `tests/corpus/<name>`, where there are any.
    pub fn new(name: &'static str) -> FuzzTarget {
        let corpus = Path::new(env!("CARGO_MANIFEST_DIR"))
            .join("../corpus")
            .join(name);
        let seeds = if corpus.exists() {
            read(&corpus).unwrap_or_else(|error| panic!("{}: {error}", corpus.display()))
        } else {
            Vec::new()
        };
        let latest = std::env::temp_dir().join("forebay-fuzz");
        fs::create_dir_all(&latest).unwrap_or_else(|error| panic!("{}: {error}", latest.display()));
        FuzzTarget {
            name,
            seeds,
            words: WORDS.to_vec(),
            latest: latest.join(name),
        }
    }

    /// More seeds.
    pub fn seeds(mut self, seeds: impl IntoIterator<Item = Vec<u8>>) -> FuzzTarget {
        self.seeds.extend(seeds);
        self
    }

    /// More words of the target's language.
    pub fn words(mut self, words: &[&'static str]) -> FuzzTarget {
        self.words.extend(words);
        self
    }

    /// Tries all seeds as they are.
    pub fn replay(&self, attempt: &dyn Fn(&[u8])) {
        assert!(!self.seeds.is_empty(), "`{}` has no seed", self.name);
        self.seeds
            .iter()
            .for_each(|seed| self.attempt(seed, attempt));
    }

    /// Tries a mutation.
    pub fn try_mutation(&self, edits: &SeedMutation, attempt: &dyn Fn(&[u8])) {
        self.attempt(&edits.apply(&self.seeds, &self.words), attempt);
    }

    fn attempt(&self, bytes: &[u8], attempt: &dyn Fn(&[u8])) {
        fs::write(&self.latest, bytes)
            .unwrap_or_else(|error| panic!("{}: {error}", self.latest.display()));
        let watched = AttemptWatchdog::new(self.name);
        let began = Instant::now();
        memory::reset();
        attempt(bytes);
        let peak = memory::peak();
        let took = began.elapsed();
        drop(watched);
        assert!(
            peak <= BYTES_MAX,
            "{} bytes of input took {peak} bytes of memory",
            bytes.len()
        );
        assert!(
            took <= SECONDS_MAX,
            "{} bytes of input took {took:?}",
            bytes.len()
        );
    }
}

/// Ends the process where an attempt has no end.
struct AttemptWatchdog(#[allow(dead_code)] Sender<()>);

thread_local! {
    static WATCH: Sender<(&'static str, std::sync::mpsc::Receiver<()>)> = start_watchdog();
}

impl AttemptWatchdog {
    fn new(name: &'static str) -> AttemptWatchdog {
        let (over, ended) = channel();
        WATCH
            .with(|watch| watch.send((name, ended)))
            .unwrap_or_else(|_| panic!("nothing watches `{name}`"));
        AttemptWatchdog(over)
    }
}

/// A thread that waits for attempts one after the other.
#[expect(
    clippy::disallowed_methods,
    reason = "the attempt that does not end holds its thread, and fuzzers look at the abort"
)]
fn start_watchdog() -> Sender<(&'static str, std::sync::mpsc::Receiver<()>)> {
    let (begun, attempts) = channel::<(&'static str, std::sync::mpsc::Receiver<()>)>();
    thread::spawn(move || {
        for (name, ended) in attempts {
            if ended.recv_timeout(SECONDS_ENDLESS) == Err(RecvTimeoutError::Timeout) {
                let _ = io::Write::write_all(
                    &mut io::stderr(),
                    format!("an attempt at `{name}` does not end\n").as_bytes(),
                );
                process::abort();
            }
        }
    });
    begun
}
