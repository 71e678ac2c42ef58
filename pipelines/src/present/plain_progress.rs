//! Progress where standard error is no terminal: one plain line at each pass and every ten seconds.

use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use forebay_storage::{Event, EventListener, resident_bytes};

use super::event_line::event_line;
use super::printable::printable_screen;
use super::units;

/// Time between two lines of one pass.
const LINE_EVERY: Duration = Duration::from_secs(10);

/// Time between two ticks without an event.
const TICK: Duration = Duration::from_secs(1);

/// Writes a line.
type WriteLine = Box<dyn Fn(&str) + Send>;

/// Listens to a run and writes its lines.
pub(crate) struct PlainProgress {
    lines: Arc<Mutex<ProgressLines>>,
    /// Ends the thread that ticks when dropped.
    _running: Sender<()>,
}

impl PlainProgress {
    /// Lines on standard error; with `verbose`, also results of sources and passes.
    pub fn new(verbose: bool) -> PlainProgress {
        let write: WriteLine = Box::new(|line| {
            use std::io::Write as _;
            // Nothing can be said to a reader that has gone away.
            let _ = writeln!(anstream::stderr().lock(), "{}", printable_screen(line));
        });
        let lines = Arc::new(Mutex::new(ProgressLines::new(verbose, write)));
        let (running, ended) = channel();
        let ticked_lines = lines.clone();
        let start = Instant::now();
        let clock = std::thread::Builder::new().name("forebay-progress".to_owned());
        // Lines come without ticks where the system refuses a thread.
        let _ = clock.spawn(move || keep_time(&ticked_lines, start, &ended));
        PlainProgress {
            lines,
            _running: running,
        }
    }
}

/// Ticks until the run ends, so that a pass without progress gets its line, too.
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

/// The current pass.
struct PassLine {
    name: String,
    bytes: Option<u64>,
    /// Time since the beginning of the run, at the pass's first tick.
    since: Option<Duration>,
    last_line: Duration,
    rows_done: u64,
    bytes_done: u64,
    spilled: u64,
    message: Option<String>,
}

/// Progress lines of a run, without a clock of its own.
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

    /// Sets the time since the beginning of the run.
    fn tick(&mut self, now: Duration) {
        self.now = now;
        let seconds_left = self.seconds_left;
        let Some(pass) = &mut self.pass else { return };
        let since = *pass.since.get_or_insert(now);
        if now.saturating_sub(pass.last_line.max(since)) >= LINE_EVERY {
            pass.last_line = now;
            (self.write)(&pass.text(now - since, seconds_left, resident_bytes()));
        }
    }

    fn on_event(&mut self, event: Event) {
        if let Some(pass) = &mut self.pass {
            pass.add(&event);
        }
        match &event {
            Event::PassStarted {
                number,
                total,
                label,
                bytes,
                ..
            } => {
                let name = format!("pass {number} of {total} ({label})");
                self.begin_pass(name, *bytes);
            }
            Event::Eta { seconds_left, .. } => self.seconds_left = Some(*seconds_left),
            Event::PassDone { reused, rows, .. } => self.end_pass(*reused, *rows),
            Event::IntervalDone { done, intervals } => {
                (self.write)(&format!(
                    "{done} of {intervals} further intervals published"
                ));
            }
            _ => {
                if let Some(line) = event_line(&event) {
                    (self.write)(&line);
                }
                if self.verbose
                    && let Some(line) = verbose_line(&event)
                {
                    (self.write)(&line);
                }
            }
        }
    }

    fn begin_pass(&mut self, name: String, bytes: Option<u64>) {
        let mut to_read = String::new();
        if let Some(bytes) = bytes {
            to_read = format!(", {} to read", units::bytes(bytes));
        }
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

    fn end_pass(&mut self, reused: bool, rows: u64) {
        let Some(pass) = self.pass.take() else {
            return;
        };
        if self.verbose {
            let outcome = if reused {
                "reused".to_owned()
            } else {
                units::rows(rows)
            };
            (self.write)(&format!("{}: done, {outcome}", pass.name));
        }
    }
}

/// Text of an event that only a verbose run shows.
fn verbose_line(event: &Event) -> Option<String> {
    match event {
        Event::Discovered {
            source,
            spans,
            rows,
            bytes,
            ..
        } => {
            let mut size = units::bytes(*bytes);
            if let Some(rows) = rows {
                size = format!("{}, {size}", units::rows(*rows));
            }
            let spans = units::counted(*spans as u64, "span");
            Some(format!("source `{source}`: {size} in {spans}"))
        }
        Event::WorkerJoined { worker, slots, .. } => {
            let slots = units::counted(*slots as u64, "slot");
            Some(format!("worker {worker} joined with {slots}"))
        }
        Event::WorkerLost { worker, why } => Some(format!("worker {worker} is lost: {why}")),
        _ => None,
    }
}

impl PassLine {
    /// `pass 1 of 3 (learn 4 statistics): 45%, 410.0 MB of 900.0 MB, 12.3k rows, 35.0 MB/s, 12 s, ...`
    fn text(&self, elapsed: Duration, seconds_left: Option<f64>, memory: Option<u64>) -> String {
        let seconds = elapsed.as_secs_f64().max(0.001);
        let mut parts = Vec::new();
        parts.extend(self.message.clone());
        match self.bytes {
            Some(total) if total > 0 => {
                let done = self.bytes_done.min(total);
                parts.push(format!("{}%", done * 100 / total));
                parts.push(format!("{} of {}", units::bytes(done), units::bytes(total)));
            }
            _ if self.bytes_done > 0 => parts.push(units::bytes(self.bytes_done)),
            _ => {}
        }
        if self.rows_done > 0 {
            let rate = (self.rows_done as f64 / seconds) as u64;
            parts.push(format!("{} rows", units::short(self.rows_done)));
            parts.push(format!("{} rows/s", units::short(rate)));
        }
        if self.bytes_done > 0 {
            let rate = (self.bytes_done as f64 / seconds) as u64;
            parts.push(format!("{}/s", units::bytes(rate)));
        }
        if self.spilled > 0 {
            parts.push(format!("{} spilled", units::bytes(self.spilled)));
        }
        parts.push(format!("{} elapsed", units::duration(elapsed)));
        if let Some(seconds) = seconds_left {
            let time_left = Duration::from_secs_f64(seconds.max(0.0));
            parts.push(format!("run ends in about {}", units::seconds(time_left)));
        }
        if let Some(bytes) = memory {
            parts.push(format!("memory {}", units::bytes(bytes)));
        }
        format!("{}: {}", self.name, parts.join(", "))
    }

    /// Adds the work that an event reports.
    fn add(&mut self, event: &Event) {
        match event {
            Event::Progress { rows, bytes } => {
                self.rows_done += rows;
                self.bytes_done += bytes;
            }
            Event::Spilled { bytes } => self.spilled += bytes,
            Event::TrainingStep {
                sink,
                epoch,
                step,
                steps,
                loss,
                unit,
                ..
            } => {
                let progress = (*step, *steps, *unit);
                self.message = Some(super::training::step(sink, *epoch, progress, *loss));
            }
            _ => {}
        }
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
            if let Some(event) = event {
                lines.on_event(event);
            }
        }
        let said = said.lock().unwrap();
        said.iter()
            .map(|line| line.split(", memory ").next().unwrap().to_owned())
            .collect()
    }

    fn begins(number: usize) -> Option<Event> {
        let label = "write table".to_owned();
        let id = String::new();
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
            "pass 1 of 2 (write table): 25%, 10.0 MB of 40.0 MB, 10.0k rows, \
             1.0k rows/s, 1.0 MB/s, 10.0 s elapsed",
            "pass 1 of 2 (write table): 50%, 20.0 MB of 40.0 MB, 20.0k rows, \
             1.0k rows/s, 1.0 MB/s, 20.0 s elapsed",
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
