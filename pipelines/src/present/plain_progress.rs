//! Progress where standard error is no terminal: one plain line at each pass and every ten seconds.

use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use forebay_storage::{Event, EventListener, resident_bytes};

use super::report::event_line;
use super::units;

/// Between two lines of one pass.
const LINE_EVERY: Duration = Duration::from_secs(10);

/// Between two looks at the clock where no event comes.
const TICK: Duration = Duration::from_secs(1);

/// Writes a line.
type WriteLine = Box<dyn Fn(&str) + Send>;

/// Listens to a run and writes its lines.
pub(crate) struct PlainProgress {
    lines: Arc<Mutex<ProgressLines>>,
    /// Ends the thread that looks at the clock.
    _running: Sender<()>,
}

impl PlainProgress {
    /// Lines on standard error; with `verbose`, also what sources and passes came to.
    pub fn new(verbose: bool) -> PlainProgress {
        let write: WriteLine = Box::new(|line| {
            use std::io::Write as _;
            // Nothing can be said to a reader that has gone away.
            let _ = writeln!(anstream::stderr().lock(), "{line}");
        });
        let lines = Arc::new(Mutex::new(ProgressLines::new(verbose, write)));
        let (running, ended) = channel();
        let (held, start) = (lines.clone(), Instant::now());
        std::thread::spawn(move || keep_time(&held, start, &ended));
        PlainProgress {
            lines,
            _running: running,
        }
    }
}

/// Looks at the clock until the run ends: a pass in which nothing moves gets its line, too.
fn keep_time(lines: &Mutex<ProgressLines>, start: Instant, ended: &Receiver<()>) {
    while ended.recv_timeout(TICK) == Err(RecvTimeoutError::Timeout) {
        if let Ok(mut lines) = lines.lock() {
            lines.tick(start.elapsed());
        }
    }
}

impl EventListener for PlainProgress {
    fn on_event(&self, event: Event) {
        if let Ok(mut lines) = self.lines.lock() {
            lines.on_event(event);
        }
    }
}

/// The pass that is at work.
struct PassLine {
    name: String,
    bytes: Option<u64>,
    /// Of the run, at the pass's first look at the clock.
    since: Option<Duration>,
    last_line: Duration,
    rows_done: u64,
    bytes_done: u64,
    spilled: u64,
    message: Option<String>,
}

/// What is told of a run, without a clock of its own.
struct ProgressLines {
    verbose: bool,
    write: WriteLine,
    now: Duration,
    pass: Option<PassLine>,
    seconds_left: Option<f64>,
}

impl ProgressLines {
    fn new(verbose: bool, write: WriteLine) -> ProgressLines {
        ProgressLines {
            verbose,
            write,
            now: Duration::ZERO,
            pass: None,
            seconds_left: None,
        }
    }

    /// The run is so old now.
    fn tick(&mut self, now: Duration) {
        self.now = now;
        let left = self.seconds_left;
        let Some(pass) = &mut self.pass else { return };
        let since = *pass.since.get_or_insert(now);
        if now.saturating_sub(pass.last_line.max(since)) >= LINE_EVERY {
            pass.last_line = now;
            (self.write)(&pass.text(now - since, left, resident_bytes()));
        }
    }

    fn on_event(&mut self, event: Event) {
        match (event, &mut self.pass) {
            (
                Event::PassStarted {
                    number,
                    total,
                    label,
                    bytes,
                    ..
                },
                _,
            ) => {
                let name = format!("pass {number} of {total} ({label})");
                let to_read = bytes.map_or_else(String::new, |bytes| {
                    format!(", {} to read", units::bytes(bytes))
                });
                (self.write)(&format!("{name}: begins{to_read}"));
                // Estimates come every second, unless nothing can be foretold any more.
                self.seconds_left = None;
                self.pass = Some(PassLine {
                    name,
                    bytes,
                    since: None,
                    last_line: self.now,
                    rows_done: 0,
                    bytes_done: 0,
                    spilled: 0,
                    message: None,
                });
            }
            (Event::Progress { rows, bytes }, Some(pass)) => {
                pass.rows_done += rows;
                pass.bytes_done += bytes;
            }
            (Event::Spilled { bytes }, Some(pass)) => pass.spilled += bytes,
            (
                Event::TrainingStep {
                    sink,
                    epoch,
                    step,
                    steps,
                    loss,
                    unit,
                    ..
                },
                Some(pass),
            ) => {
                let progress = (step, steps, unit);
                pass.message = Some(super::training::step(&sink, epoch, progress, loss));
            }
            (Event::Eta { seconds_left, .. }, _) => self.seconds_left = Some(seconds_left),
            (Event::PassDone { reused, rows, .. }, pass) => {
                if let Some(pass) = pass.take()
                    && self.verbose
                {
                    let what = if reused {
                        "reused".to_owned()
                    } else {
                        units::rows(rows)
                    };
                    (self.write)(&format!("{}: done, {what}", pass.name));
                }
            }
            (
                Event::Discovered {
                    source,
                    spans,
                    rows,
                    bytes,
                    ..
                },
                _,
            ) if self.verbose => {
                let rows = rows.map_or_else(String::new, |rows| format!("{}, ", units::rows(rows)));
                let spans = units::counted(spans as u64, "span");
                (self.write)(&format!(
                    "source `{source}`: {rows}{} in {spans}",
                    units::bytes(bytes)
                ));
            }
            (Event::WorkerJoined { worker, slots, .. }, _) if self.verbose => {
                (self.write)(&format!(
                    "worker {worker} joined with {}",
                    units::counted(slots as u64, "slot")
                ));
            }
            (Event::WorkerLost { worker, why }, _) if self.verbose => {
                (self.write)(&format!("worker {worker} is lost: {why}"));
            }
            (Event::IntervalDone { done, intervals }, _) => {
                (self.write)(&format!("{done} of {intervals} intervals published"));
            }
            (event, _) => event_line(&event)
                .iter()
                .for_each(|line| (self.write)(line)),
        }
    }
}

impl PassLine {
    /// `pass 1 of 3 (learn 4 statistics): 45%, 410.0 MB of 900.0 MB, 12.3k rows, 35.0 MB/s, 12 s, ...`
    fn text(&self, elapsed: Duration, seconds_left: Option<f64>, memory: Option<u64>) -> String {
        let seconds = elapsed.as_secs_f64().max(0.001);
        let mut parts = Vec::new();
        parts.extend(self.message.clone());
        match self.bytes.filter(|bytes| *bytes > 0) {
            Some(all) => {
                let done = self.bytes_done.min(all);
                parts.push(format!("{}%", done * 100 / all));
                parts.push(format!("{} of {}", units::bytes(done), units::bytes(all)));
            }
            None if self.bytes_done > 0 => parts.push(units::bytes(self.bytes_done)),
            None => {}
        }
        if self.rows_done > 0 {
            parts.push(format!("{} rows", units::short(self.rows_done)));
            parts.push(format!(
                "{} rows/s",
                units::short((self.rows_done as f64 / seconds) as u64)
            ));
        }
        if self.bytes_done > 0 {
            parts.push(format!(
                "{}/s",
                units::bytes((self.bytes_done as f64 / seconds) as u64)
            ));
        }
        if self.spilled > 0 {
            parts.push(format!("{} spilled", units::bytes(self.spilled)));
        }
        parts.push(format!("{} elapsed", units::duration(elapsed)));
        parts.extend(seconds_left.map(|left| {
            format!(
                "run ends in about {}",
                units::seconds(Duration::from_secs_f64(left.max(0.0)))
            )
        }));
        parts.extend(memory.map(|bytes| format!("memory {}", units::bytes(bytes))));
        format!("{}: {}", self.name, parts.join(", "))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Feeds events at times, and gives the lines without the memory, which differs from run to run.
    fn told(verbose: bool, script: Vec<(u64, Option<Event>)>) -> Vec<String> {
        let said = Arc::new(Mutex::new(Vec::new()));
        let keep = said.clone();
        let write: WriteLine = Box::new(move |line| keep.lock().unwrap().push(line.to_owned()));
        let mut lines = ProgressLines::new(verbose, write);
        for (second, event) in script {
            lines.tick(Duration::from_secs(second));
            event.into_iter().for_each(|event| lines.on_event(event));
        }
        let said = said.lock().unwrap();
        said.iter()
            .map(|line| line.split(", memory ").next().unwrap().to_owned())
            .collect()
    }

    fn begins(number: usize) -> Option<Event> {
        let (label, id) = ("write table".to_owned(), String::new());
        Some(Event::PassStarted {
            number,
            total: 2,
            label,
            id,
            bytes: Some(40_000_000),
        })
    }

    #[test]
    fn a_line_at_each_pass_and_every_ten_seconds() {
        let progress = || {
            Some(Event::Progress {
                rows: 1000,
                bytes: 1_000_000,
            })
        };
        let mut script = vec![(0, begins(1))];
        script.extend((1..=21).map(|second| (second, progress())));
        script.push((
            22,
            Some(Event::PassDone {
                number: 1,
                reused: false,
                rows: 21_000,
                filtered: 0,
            }),
        ));
        script.push((22, begins(2)));
        // Nothing arrives for a while; the lines go on.
        script.extend((23..=43).map(|second| (second, None)));
        let expected = [
            "pass 1 of 2 (write table): begins, 40.0 MB to read",
            "pass 1 of 2 (write table): 25%, 10.0 MB of 40.0 MB, 10.0k rows, 1.0k rows/s, 1.0 MB/s, 10.0 s elapsed",
            "pass 1 of 2 (write table): 50%, 20.0 MB of 40.0 MB, 20.0k rows, 1.0k rows/s, 1.0 MB/s, 20.0 s elapsed",
            "pass 2 of 2 (write table): begins, 40.0 MB to read",
            "pass 2 of 2 (write table): 0%, 0 B of 40.0 MB, 10.0 s elapsed",
            "pass 2 of 2 (write table): 0%, 0 B of 40.0 MB, 20.0 s elapsed",
        ];
        assert_eq!(told(false, script), expected);
    }

    #[test]
    fn verbose_lines_tell_of_sources_and_of_what_passes_came_to() {
        let found = Event::Discovered {
            source: "sales".into(),
            spans: 2,
            rows: Some(1200),
            bytes: 3000,
            folder: None,
        };
        let done = |reused| {
            Some(Event::PassDone {
                number: 1,
                reused,
                rows: 1200,
                filtered: 0,
            })
        };
        let script = vec![
            (0, Some(found)),
            (0, begins(1)),
            (1, done(false)),
            (1, begins(2)),
            (1, done(true)),
        ];
        let expected = [
            "source `sales`: 1,200 rows, 3.0 kB in 2 spans",
            "pass 1 of 2 (write table): begins, 40.0 MB to read",
            "pass 1 of 2 (write table): done, 1,200 rows",
            "pass 2 of 2 (write table): begins, 40.0 MB to read",
            "pass 2 of 2 (write table): done, reused",
        ];
        assert_eq!(told(true, script), expected);
    }
}
