//! Runs with workers, as a screen of a terminal.

use std::fmt::Write as _;

use anstyle::{AnsiColor, Style};
use forebay_run::{ClusterStatus, WorkerStatus};

use super::units;

/// Characters of a bar of slots at most.
const BAR_MAX: usize = 16;

const TITLE: Style = AnsiColor::Blue.on_default().bold();
const BAD: Style = AnsiColor::Red.on_default();
const FAINT: Style = Style::new().dimmed();

/// Clears the screen of a terminal, and begins at its first line.
pub const CLEAR: &[u8] = b"\x1b[2J\x1b[H";

/// All runs, one below the other.
pub fn text(runs: &[ClusterStatus]) -> String {
    let mut out = String::new();
    if runs.is_empty() {
        out.push_str("no run with workers uses this state directory now\n");
    }
    for run in runs {
        let stage = if run.pass == 0 {
            "feed".to_owned()
        } else {
            format!("pass {}", run.pass)
        };
        let _ = write!(out, "{TITLE}{}{TITLE:#}  {stage}", run.pipeline);
        let _ = write!(out, "  {} under way, {} waiting", run.running, run.queued);
        if run.is_silent() {
            let _ = write!(
                out,
                "  {BAD}silent for {}{BAD:#}",
                units::duration(run.age())
            );
        }
        out.push('\n');
        let width = run
            .workers
            .keys()
            .map(String::len)
            .max()
            .unwrap_or(0)
            .max("worker".len());
        let _ = writeln!(
            out,
            "{FAINT}  {:width$}  {:BAR_MAX$}  {:>8}  {:>9}  {:>10}  {:>10}  {:>9}  {:>7}{FAINT:#}",
            "worker", "busy", "parts", "rows", "read", "spilled", "CPU", "retries"
        );
        for (address, worker) in &run.workers {
            line(&mut out, address, worker, width);
        }
    }
    out
}

fn line(out: &mut String, address: &str, worker: &WorkerStatus, width: usize) {
    let slots = worker.slots.min(BAR_MAX);
    let busy = (worker.busy * slots)
        .div_ceil(worker.slots.max(1))
        .min(slots);
    let bar = if worker.there {
        format!("{}{}", "#".repeat(busy), ".".repeat(slots - busy))
    } else {
        "gone".to_owned()
    };
    let style = if worker.there { Style::new() } else { BAD };
    let _ = writeln!(
        out,
        "  {style}{address:width$}  {bar:BAR_MAX$}{style:#}  {:>8}  {:>9}  {:>10}  {:>10}  \
         {:>7.1} s  {:>7}",
        worker.parts,
        units::short(worker.rows),
        units::bytes(worker.bytes),
        units::bytes(worker.spilled_bytes),
        worker.cpu_seconds,
        worker.retries,
    );
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_and_workers_are_aligned() {
        let worker = |there, busy| WorkerStatus {
            there,
            slots: 4,
            busy,
            parts: 12,
            rows: 1_234_567,
            bytes: 98_765_432,
            cpu_seconds: 3.21,
            retries: u64::from(!there),
            ..WorkerStatus::default()
        };
        let workers = [
            ("10.0.0.7:7400", worker(true, 3)),
            ("10.0.0.12:7400", worker(false, 0)),
        ];
        let workers = workers
            .map(|(address, worker)| (address.to_owned(), worker))
            .into();
        let run = ClusterStatus {
            pipeline: "demand".to_owned(),
            pass: 2,
            at: u64::MAX,
            queued: 40,
            running: 3,
            workers,
        };
        let text = anstream::adapter::strip_str(&text(&[run])).to_string();
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines[0], "demand  pass 2  3 under way, 40 waiting");
        assert!(
            lines[1].contains("busy") && lines[2].contains("gone") && lines[3].contains("###."),
            "{text}"
        );
        let ends: Vec<usize> = lines[1..].iter().map(|line| line.chars().count()).collect();
        assert!(ends.windows(2).all(|pair| pair[0] == pair[1]), "{text}");
        assert!(super::text(&[]).starts_with("no run"));
    }
}
