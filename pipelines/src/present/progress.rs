//! One live line for each pass, on standard error and only where that is a terminal.

use std::io::{IsTerminal, Write as _};
use std::num::NonZeroU64;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressState, ProgressStyle};

use super::fit::{TERMINAL_COLUMNS, visible};
use super::units;

/// Columns of the bar, where there is room for it.
const BAR_COLUMNS: usize = 20;

/// Columns of the bar, where there is little room.
const SHORT_BAR_COLUMNS: usize = 10;

/// Columns of a label that is cut, at least.
const LABEL_COLUMNS_MIN: usize = 8;

/// Times per second that the line is drawn at most: more costs time and no eye sees it.
const DRAWS_PER_SECOND_MAX: u8 = 10;

/// How a run is followed at the terminal. All calls are cheap and may come from any thread.
#[derive(Debug)]
pub struct TerminalProgress {
    enabled: bool,
}

impl TerminalProgress {
    /// `enabled` is what the user asked for; nothing is shown where standard error is no terminal.
    pub fn new(enabled: bool) -> Self {
        TerminalProgress {
            enabled: enabled && std::io::stderr().is_terminal(),
        }
    }

    /// Whether anything is shown.
    pub fn is_enabled(&self) -> bool {
        self.enabled
    }

    /// Writes a line above the live one, or to standard error where there is none.
    pub fn line(&self, pass: Option<&PassProgress>, text: &str) {
        match pass.filter(|_| self.enabled) {
            Some(pass) => pass.bar.println(text),
            // Nothing can be said about a terminal that cannot be written to.
            None => drop(writeln!(anstream::stderr().lock(), "{text}")),
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

    /// Begins the line of runs for so many intervals, so many at a time.
    pub fn interval_progress(&self, intervals: usize, beside: usize) -> PassProgress {
        PassProgress::new(
            self.target(),
            &format!("{beside} intervals at a time:"),
            &format!("0 of {intervals} published"),
            None,
        )
    }

    fn target(&self) -> ProgressDrawTarget {
        match self.enabled {
            true => ProgressDrawTarget::stderr_with_hz(DRAWS_PER_SECOND_MAX),
            false => ProgressDrawTarget::hidden(),
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
    /// Of the run; 0 where no estimate exists.
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
            label: Mutex::new(label.to_owned()),
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

    /// Bytes that have to be read, of so many that were looked at, since the last call.
    pub fn add_planned_bytes(&self, bytes: u64, of: u64) {
        let add = |count: &AtomicU64, more: u64| count.fetch_add(more, Ordering::Relaxed) + more;
        let (read, looked_at) = (
            add(&self.counts.to_read, bytes),
            add(&self.counts.looked_at, of),
        );
        if let (Some(total), true) = (self.total_bytes, looked_at > 0) {
            let rest = total.saturating_sub(looked_at) as f64 * read as f64 / looked_at as f64;
            // A pass whose rows are at hand reads nothing: its length stays that of its data.
            if let Some(length) = NonZeroU64::new(read + rest as u64) {
                self.bar.set_length(length.get());
            }
        }
    }

    /// How long the whole run still takes.
    pub fn set_time_left(&self, left: Duration) {
        self.counts
            .seconds_left
            .store(left.as_secs().max(1), Ordering::Relaxed);
    }

    /// Says something else than the label.
    pub fn set_message(&self, text: String) {
        *lock_label(&self.counts.label) = text;
        self.bar.tick();
    }

    /// Takes the line away: what remains is the summary's to say.
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
    /// What there is to tell of a pass.
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
            left: Some(Duration::from_secs(seconds_left)).filter(|left| !left.is_zero()),
        }
    }
}

/// What there is to tell of a pass.
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
    /// Until the run ends, where that can be foretold.
    left: Option<Duration>,
}

/// How much of a line is shown. Each form needs less room than the one before.
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
    /// One line for a terminal of so many columns. Its last column stays free: some terminals wrap there.
    fn text(&self, columns: usize) -> String {
        let room = columns.saturating_sub(1);
        let label = visible(&self.prefix) + 1 + visible(&self.label);
        let rests = LINE_FORMS.map(|form| self.rest(form));
        let fits = rests.iter().find(|rest| label + visible(rest) <= room);
        if let Some(rest) = fits {
            return format!("{} {}{rest}", self.prefix, self.label);
        }
        let least = &rests[LINE_FORMS.len() - 1];
        let left = room.saturating_sub(visible(&self.prefix) + 1 + visible(least));
        let label = cut(&self.label, left.max(LABEL_COLUMNS_MIN));
        cut(&format!("{} {label}{least}", self.prefix), room)
    }

    /// What follows the label.
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
            Some(left) => format!("{} left", units::seconds(left)),
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

/// A bar of so many columns.
fn bar(done: u64, total: u64, columns: usize) -> String {
    let share = (done as f64 / total.max(1) as f64).min(1.0);
    let filled = (share * columns as f64) as usize;
    let head = if filled < columns { ">" } else { "" };
    let empty = columns - filled - head.len();
    format!("{}{head}{}", "=".repeat(filled), " ".repeat(empty))
}

/// Text of so many columns at most, with a mark where it is cut.
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
                "pass 3/3 write table  ====>                 6.1 MB of 26.2 MB, 2.5 MB/s  1.8M rows  8.0 s left",
            ),
            (
                160,
                "pass 3/3 write table  ====>                 6.1 MB of 26.2 MB, 2.5 MB/s  1.8M rows  8.0 s left",
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
