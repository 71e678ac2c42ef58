//! What tests read: violations and counts, a line each, appended to the file `FAKE_CUDA_REPORT`.

use std::collections::BTreeMap;
use std::io::Write;
use std::sync::{Mutex, PoisonError};

static COUNTS: Mutex<BTreeMap<&'static str, u64>> = Mutex::new(BTreeMap::new());

fn write(line: &str) {
    let Some(path) = std::env::var_os("FAKE_CUDA_REPORT") else {
        return;
    };
    let file = std::fs::OpenOptions::new()
        .create(true)
        .append(true)
        .open(path);
    if let Ok(mut file) = file {
        let _ = file.write_all(format!("{line}\n").as_bytes());
    }
}

/// Something that a program must not do.
pub fn violation(what: &str) {
    write(&format!("violation: {what}"));
}

/// Counts a call.
pub fn count(what: &'static str) {
    *COUNTS
        .lock()
        .unwrap_or_else(PoisonError::into_inner)
        .entry(what)
        .or_default() += 1;
}

/// Writes all counts: when the last context goes.
pub fn write_counts() {
    let counts = COUNTS.lock().unwrap_or_else(PoisonError::into_inner);
    for (what, count) in counts.iter() {
        write(&format!("count: {what} {count}"));
    }
}
