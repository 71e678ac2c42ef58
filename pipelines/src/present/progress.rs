//! One live line for each pass, on standard error and only where that is a terminal.

use std::io::{IsTerminal, Write as _};
use std::num::NonZeroU64;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressState, ProgressStyle};

use super::units;

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

    /// Begins the line of a pass: `number` of `total`, counted from 1. Without `total_bytes` there
    /// is neither a bar nor an estimate of the time left.
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
    /// Counts bytes; rows and spilled bytes are in the message.
    bar: ProgressBar,
    total_bytes: Option<u64>,
    counts: Arc<ProgressCounts>,
}

#[derive(Debug, Default)]
struct ProgressCounts {
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
        let counts = Arc::new(ProgressCounts::default());
        bar.set_style(style(counts.clone(), total_bytes.is_some()));
        bar.set_prefix(prefix.to_owned());
        bar.set_message(label.to_owned());
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
        self.bar.set_message(text);
    }

    /// Takes the line away: what remains is the summary's to say.
    pub fn finish(&self) {
        self.bar.finish_and_clear();
    }
}

fn style(counts: Arc<ProgressCounts>, sized: bool) -> ProgressStyle {
    let template = match sized {
        true => "{prefix} {msg}  {bar:20} {read}  {counts}  {left}",
        false => "{prefix} {msg}  {spinner} {read}  {counts}  {elapsed_precise}",
    };
    let plain = || ProgressStyle::default_bar();
    // The template is a constant that the test below draws.
    let style = ProgressStyle::with_template(template)
        .unwrap_or_else(|_| plain())
        .progress_chars("=> ");
    style
        .with_key(
            "read",
            |state: &ProgressState, out: &mut dyn std::fmt::Write| {
                let total = state
                    .len()
                    .map(|total| format!(" of {}", units::bytes(total)))
                    .unwrap_or_default();
                let speed = units::bytes(state.per_sec() as u64);
                let _ = write!(out, "{}{total}, {speed}/s", units::bytes(state.pos()));
            },
        )
        .with_key(
            "left",
            |state: &ProgressState, out: &mut dyn std::fmt::Write| {
                if state.pos() > 0 && state.len().is_some_and(|total| state.pos() < total) {
                    let _ = write!(
                        out,
                        "{} left",
                        units::duration(Duration::from_secs(state.eta().as_secs()))
                    );
                }
            },
        )
        .with_key(
            "counts",
            move |_: &ProgressState, out: &mut dyn std::fmt::Write| {
                let read = |count: &AtomicU64| count.load(Ordering::Relaxed);
                let _ = write!(out, "{} rows", units::short(read(&counts.rows)));
                let spilled = read(&counts.spilled);
                if spilled > 0 {
                    let _ = write!(out, ", {} spilled", units::bytes(spilled));
                }
                let left = read(&counts.seconds_left);
                if left > 0 {
                    let _ = write!(
                        out,
                        "  run: {} left",
                        units::duration(Duration::from_secs(left))
                    );
                }
            },
        )
}

#[cfg(test)]
mod tests {
    use super::*;
    use indicatif::TermLike;
    use std::io::Result;
    use std::sync::Mutex;

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
        pass.add_spilled_bytes(2000);
        pass.bar.force_draw();
        let text = line.0.lock().unwrap().trim_end().to_owned();
        pass.finish();
        assert_eq!(line.0.lock().unwrap().trim_end(), "");
        text
    }

    #[test]
    fn one_line_says_it_all() {
        let text = drawn_line(Some(4_000_000));
        assert!(text.starts_with("pass 1/3 features  =====>"), "{text}");
        assert!(text.contains("1.0 MB of 4.0 MB, "), "{text}");
        assert!(text.contains("12.3k rows, 2.0 kB spilled"), "{text}");
        assert!(text.ends_with("left"), "{text}");
        let text = drawn_line(None);
        assert!(
            text.contains("1.0 MB, ") && !text.contains("left"),
            "{text}"
        );
    }

    #[test]
    fn a_disabled_progress_draws_nothing() {
        let pass = TerminalProgress::new(false).pass(1, 1, "x", None);
        pass.advance(1, 1);
        assert!(pass.bar.is_hidden());
    }
}
