//! A live line for each pass, on standard error and only if that is a terminal.

use std::io::{IsTerminal, Write as _};
use std::num::NonZeroU64;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressState, ProgressStyle};

use super::fit::{TERMINAL_COLUMNS, visible};
use super::printable::{printable, printable_screen};
use super::units;

/// Columns of the bar in a wide terminal.
const BAR_COLUMNS: usize = 20;

/// Columns of the bar in a narrow terminal.
const SHORT_BAR_COLUMNS: usize = 10;

/// Columns of a label that is cut, at least.
const LABEL_COLUMNS_MIN: usize = 8;

/// Times per second that the line is drawn at most: more costs time and no eye sees it.
const DRAWS_PER_SECOND_MAX: u8 = 10;

/// Progress of a run at the terminal. All calls are cheap and may come from any thread.
#[derive(Debug)]
pub struct TerminalProgress {
    enabled: bool,
}

impl TerminalProgress {
    /// Creates the progress; nothing is shown if it is not `enabled` or standard error is no
    /// terminal.
    pub fn new(enabled: bool) -> Self {
        TerminalProgress {
            enabled: enabled && std::io::stderr().is_terminal(),
        }
    }

    /// True if anything is shown.
    pub fn is_enabled(&self) -> bool {
        self.enabled
    }

    /// Writes a line above the live one, or to standard error if there is none.
    pub fn line(&self, pass: Option<&PassProgress>, text: &str) {
        match pass.filter(|_| self.enabled) {
            Some(pass) => pass.bar.println(printable_screen(text)),
            // Nothing can be said about a terminal that cannot be written to.
            None => {
                let text = printable_screen(text);
                drop(writeln!(anstream::stderr().lock(), "{text}"))
            }
        }
    }

    /// Begins the line of a pass: `number` of `total`, counted from 1. Without `total_bytes` there is no bar.
    pub fn pass(
        &self,
        number: usize,
        total: usize,
        label: &str,
        total_bytes: Option<u64>,
    ) -> PassProgress {
        PassProgress::new(
            self.target(),
            &format!("pass {number}/{total}"),
            label,
            total_bytes,
        )
    }

    /// Begins the line of `intervals` runs, `at_once` at a time.
    pub fn interval_progress(&self, intervals: usize, at_once: usize) -> PassProgress {
        PassProgress::new(
            self.target(),
            &format!("{at_once} intervals at a time:"),
            &format!("0 of {intervals} published"),
            None,
        )
    }

    fn target(&self) -> ProgressDrawTarget {
        if self.enabled {
            ProgressDrawTarget::stderr_with_hz(DRAWS_PER_SECOND_MAX)
        } else {
            ProgressDrawTarget::hidden()
        }
    }
}

/// The line of one pass; it goes away with [`PassProgress::finish`] or when dropped.
#[derive(Debug, Clone)]
pub struct PassProgress {
    /// Counts bytes.
    bar: ProgressBar,
    total_bytes: Option<u64>,
    counts: Arc<ProgressCounts>,
}

#[derive(Debug, Default)]
struct ProgressCounts {
    prefix: String,
    label: Mutex<String>,
    rows: AtomicU64,
    spilled: AtomicU64,
    to_read: AtomicU64,
    looked_at: AtomicU64,
    /// Remaining seconds of the run; 0 where no estimate exists.
    seconds_left: AtomicU64,
}

impl PassProgress {
    fn new(
        target: ProgressDrawTarget,
        prefix: &str,
        label: &str,
        total_bytes: Option<u64>,
    ) -> Self {
        let bar = ProgressBar::with_draw_target(total_bytes, target);
        let counts = Arc::new(ProgressCounts {
            prefix: prefix.to_owned(),
            label: Mutex::new(printable(label)),
            ..ProgressCounts::default()
        });
        bar.set_style(style(counts.clone(), total_bytes.is_some()));
        if !bar.is_hidden() {
            // The time goes on where nothing arrives for a while.
            bar.enable_steady_tick(Duration::from_millis(500));
        }
        PassProgress {
            bar,
            total_bytes,
            counts,
        }
    }

    /// Rows and stored bytes that have been read since the last call.
    pub fn advance(&self, rows: u64, bytes: u64) {
        self.counts.rows.fetch_add(rows, Ordering::Relaxed);
        self.bar.inc(bytes);
    }

    /// Bytes that have been spilled since the last call.
    pub fn add_spilled_bytes(&self, bytes: u64) {
        self.counts.spilled.fetch_add(bytes, Ordering::Relaxed);
    }

    /// Adds bytes that have to be read, of `of` inspected bytes, since the last call.
    pub fn add_planned_bytes(&self, bytes: u64, of: u64) {
        let add = |count: &AtomicU64, added: u64| count.fetch_add(added, Ordering::Relaxed) + added;
        let read = add(&self.counts.to_read, bytes);
        let looked_at = add(&self.counts.looked_at, of);
        if let (Some(total), true) = (self.total_bytes, looked_at > 0) {
            let unread = total.saturating_sub(looked_at) as f64 * read as f64 / looked_at as f64;
            // A pass whose rows are at hand reads nothing: its length stays that of its data.
            if let Some(length) = NonZeroU64::new(read + unread as u64) {
                self.bar.set_length(length.get());
            }
        }
    }

    /// Sets the remaining time of the whole run.
    pub fn set_time_left(&self, time_left: Duration) {
        self.counts
            .seconds_left
            .store(time_left.as_secs().max(1), Ordering::Relaxed);
    }

    /// Replaces the label.
    pub fn set_message(&self, text: String) {
        *lock_label(&self.counts.label) = printable(&text);
        self.bar.tick();
    }

    /// Removes the line; the summary reports the pass.
    pub fn finish(&self) {
        self.bar.finish_and_clear();
    }
}

fn style(counts: Arc<ProgressCounts>, sized: bool) -> ProgressStyle {
    // The template is a constant that the tests below draw.
    let style =
        ProgressStyle::with_template("{line}").unwrap_or_else(|_| ProgressStyle::default_bar());
    style.with_key(
        "line",
        move |state: &ProgressState, out: &mut dyn std::fmt::Write| {
            let line = counts.line(state, sized);
            let _ = out.write_str(&line.text(terminal_columns()));
        },
    )
}

fn lock_label(label: &Mutex<String>) -> MutexGuard<'_, String> {
    label.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The columns of the terminal that the line is drawn on.
fn terminal_columns() -> usize {
    let size = terminal_size::terminal_size_of(std::io::stderr());
    size.map_or(TERMINAL_COLUMNS, |(columns, _)| usize::from(columns.0))
}

impl ProgressCounts {
    /// Counts of a pass for its line.
    fn line(&self, state: &ProgressState, sized: bool) -> ProgressLine {
        let read = |count: &AtomicU64| count.load(Ordering::Relaxed);
        let total = state.len().filter(|_| sized);
        let seconds_left = read(&self.seconds_left);
        ProgressLine {
            prefix: self.prefix.clone(),
            label: lock_label(&self.label).clone(),
            done: state.pos(),
            total,
            bytes_per_second: state.per_sec() as u64,
            rows: read(&self.rows),
            spilled: read(&self.spilled),
            elapsed: state.elapsed(),
            left: Some(Duration::from_secs(seconds_left)).filter(|time| !time.is_zero()),
        }
    }
}

/// Counts of a pass that are shown.
#[derive(Debug, Clone, Default)]
struct ProgressLine {
    prefix: String,
    label: String,
    /// Stored bytes that have been read.
    done: u64,
    /// Stored bytes to read, where known.
    total: Option<u64>,
    bytes_per_second: u64,
    rows: u64,
    spilled: u64,
    elapsed: Duration,
    /// Time until the run ends, where it can be forecast.
    left: Option<Duration>,
}

/// Parts of a line that are shown. Each form needs less room than the one before.
#[derive(Debug, Clone, Copy)]
struct LineForm {
    bar: usize,
    has_speed: bool,
    has_rows: bool,
    has_bytes: bool,
}

const LINE_FORMS: [LineForm; 6] = [
    LineForm {
        bar: BAR_COLUMNS,
        has_speed: true,
        has_rows: true,
        has_bytes: true,
    },
    LineForm {
        bar: BAR_COLUMNS,
        has_speed: false,
        has_rows: true,
        has_bytes: true,
    },
    LineForm {
        bar: SHORT_BAR_COLUMNS,
        has_speed: false,
        has_rows: true,
        has_bytes: true,
    },
    LineForm {
        bar: SHORT_BAR_COLUMNS,
        has_speed: false,
        has_rows: false,
        has_bytes: true,
    },
    LineForm {
        bar: 0,
        has_speed: false,
        has_rows: false,
        has_bytes: true,
    },
    LineForm {
        bar: 0,
        has_speed: false,
        has_rows: false,
        has_bytes: false,
    },
];

impl ProgressLine {
    /// Line for a terminal of `columns` columns. Its last column stays free: some terminals wrap
    /// there.
    fn text(&self, columns: usize) -> String {
        let room = columns.saturating_sub(1);
        let label = visible(&self.prefix) + 1 + visible(&self.label);
        let rests = LINE_FORMS.map(|form| self.rest(form));
        let fits = rests.iter().find(|text| label + visible(text) <= room);
        if let Some(text) = fits {
            return format!("{} {}{text}", self.prefix, self.label);
        }
        let least = &rests[LINE_FORMS.len() - 1];
        let columns = room.saturating_sub(visible(&self.prefix) + 1 + visible(least));
        let label = cut(&self.label, columns.max(LABEL_COLUMNS_MIN));
        cut(&format!("{} {label}{least}", self.prefix), room)
    }

    /// Text after the label.
    fn rest(&self, form: LineForm) -> String {
        let mut parts = Vec::new();
        if let Some(total) = self.total.filter(|_| form.bar > 0) {
            parts.push(bar(self.done, total, form.bar));
        }
        if form.has_bytes {
            parts.extend(self.bytes(form));
        }
        if form.has_rows && self.rows > 0 {
            parts.push(format!("{} rows", units::short(self.rows)));
        }
        if form.has_rows && self.spilled > 0 {
            parts.push(format!("{} spilled", units::bytes(self.spilled)));
        }
        parts.push(match self.left {
            Some(time_left) => format!("{} left", units::seconds(time_left)),
            None => format!("{} so far", units::seconds(self.elapsed)),
        });
        parts.iter().map(|part| format!("  {part}")).collect()
    }

    fn bytes(&self, form: LineForm) -> Option<String> {
        let read = units::bytes(self.done);
        let mut text = match self.total {
            Some(total) => format!("{read} of {}", units::bytes(total.max(self.done))),
            None if self.done > 0 => read,
            None => return None,
        };
        if form.has_speed && self.bytes_per_second > 0 {
            text += &format!(", {}/s", units::bytes(self.bytes_per_second));
        }
        Some(text)
    }
}

/// A bar of `columns` columns.
fn bar(done: u64, total: u64, columns: usize) -> String {
    let share = (done as f64 / total.max(1) as f64).min(1.0);
    let filled = (share * columns as f64) as usize;
    let head = if filled < columns { ">" } else { "" };
    let empty = columns - filled - head.len();
    format!("{}{head}{}", "=".repeat(filled), " ".repeat(empty))
}

/// Text of at most `columns` columns, with a mark where it is cut.
fn cut(text: &str, columns: usize) -> String {
    if visible(text) <= columns {
        return text.to_owned();
    }
    let mut cut: String = text.chars().take(columns.saturating_sub(1)).collect();
    cut.push('…');
    cut
}

#[cfg(test)]
mod tests {
    use super::*;
    use indicatif::TermLike;
    use std::io::Result;

    /// A terminal of one line.
    #[derive(Debug, Clone, Default)]
    struct OneLineTerminal(Arc<Mutex<String>>);

    impl TermLike for OneLineTerminal {
        fn width(&self) -> u16 {
            160
        }
        fn move_cursor_up(&self, _: usize) -> Result<()> {
            Ok(())
        }
        fn move_cursor_down(&self, _: usize) -> Result<()> {
            Ok(())
        }
        fn move_cursor_right(&self, _: usize) -> Result<()> {
            Ok(())
        }
        fn move_cursor_left(&self, _: usize) -> Result<()> {
            Ok(())
        }
        fn write_line(&self, text: &str) -> Result<()> {
            self.write_str(text)
        }
        fn write_str(&self, text: &str) -> Result<()> {
            self.0.lock().unwrap().push_str(text);
            Ok(())
        }
        fn clear_line(&self) -> Result<()> {
            self.0.lock().unwrap().clear();
            Ok(())
        }
        fn flush(&self) -> Result<()> {
            Ok(())
        }
    }

    fn drawn_line(total_bytes: Option<u64>) -> String {
        let line = OneLineTerminal::default();
        let target = ProgressDrawTarget::term_like_with_hz(Box::new(line.clone()), 255);
        let pass = PassProgress::new(target, "pass 1/3", "features", total_bytes);
        pass.advance(12_345, 1_000_000);
        pass.bar.force_draw();
        let text = line.0.lock().unwrap().trim_end().to_owned();
        pass.finish();
        assert_eq!(line.0.lock().unwrap().trim_end(), "");
        text
    }

    #[test]
    fn a_pass_draws_its_line() {
        let text = drawn_line(Some(4_000_000));
        assert!(text.starts_with("pass 1/3 features  =="), "{text}");
        assert!(text.contains("1.0 MB of 4.0 MB"), "{text}");
        let text = drawn_line(None);
        assert!(text.contains("  1.0 MB") && !text.contains("=="), "{text}");
    }

    #[test]
    fn a_line_fits_the_terminal_and_has_one_estimate() {
        let short = ProgressLine {
            prefix: "pass 3/3".to_owned(),
            label: "write table".to_owned(),
            done: 6_100_000,
            total: Some(26_200_000),
            bytes_per_second: 2_500_000,
            rows: 1_800_000,
            spilled: 0,
            elapsed: Duration::from_secs(3),
            left: Some(Duration::from_secs(8)),
        };
        let expected = [
            (60, "pass 3/3 write table  6.1 MB of 26.2 MB  8.0 s left"),
            (
                80,
                "pass 3/3 write table  ==>         6.1 MB of 26.2 MB  1.8M rows  8.0 s left",
            ),
            (
                100,
                "pass 3/3 write table  ====>                 6.1 MB of 26.2 MB, 2.5 MB/s  \
                 1.8M rows  8.0 s left",
            ),
            (
                160,
                "pass 3/3 write table  ====>                 6.1 MB of 26.2 MB, 2.5 MB/s  \
                 1.8M rows  8.0 s left",
            ),
        ];
        for (columns, line) in expected {
            assert_eq!(short.text(columns), line, "{columns}");
        }
        let training = "train net, epoch 3, step 1,234,567 of 2,345,678, loss 0.123456";
        let lines = [
            ProgressLine {
                spilled: 12_000_000_000,
                total: Some(900_000_000_000),
                done: 899_000_000_000,
                ..short.clone()
            },
            ProgressLine {
                label: training.to_owned(),
                total: None,
                left: None,
                ..short.clone()
            },
            ProgressLine {
                label: "ä".repeat(300),
                ..short
            },
        ];
        for columns in [20, 40, 60, 80, 100, 160] {
            for line in &lines {
                let text = line.text(columns);
                assert!(visible(&text) < columns, "{columns}: {text}");
                assert!(
                    columns < 60 || text.ends_with("8.0 s left") || text.ends_with("3.0 s so far"),
                    "{columns}: {text}"
                );
            }
        }
    }

    #[test]
    fn a_disabled_progress_draws_nothing() {
        let pass = TerminalProgress::new(false).pass(1, 1, "x", None);
        pass.advance(1, 1);
        assert!(pass.bar.is_hidden());
    }
}
