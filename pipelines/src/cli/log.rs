//! Log lines on standard error, as `RUST_LOG` configures them: events of runs (`forebay`), and
//! those of the libraries below, such as `object_store` and `datafusion`.

use std::io::Write;
use std::sync::Arc;

use forebay_model::{Result, hide_secrets};
use forebay_storage::{Event, EventListener};
use tracing::{Level, enabled, event};
use tracing_subscriber::filter::Targets;
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;

use super::usage;
use crate::present::printable_lines;

/// Environment variable with the filters of the log.
const VARIABLE: &str = "RUST_LOG";

/// Target of events of runs in the log.
const TARGET: &str = "forebay";

/// Starts logging, if the environment requests it: `info`, `forebay=debug`,
/// `warn,object_store=debug`.
pub(super) fn start() -> Result<()> {
    let Some(filter) = std::env::var(VARIABLE)
        .ok()
        .filter(|text| !text.trim().is_empty())
    else {
        return Ok(());
    };
    let targets: Targets = filter.parse().map_err(|_| {
        usage(format!("`{VARIABLE}={filter}` does not say what to log")).hint(
            "write a level (error, warn, info, debug, trace), or targets with levels: \
             forebay=debug,object_store=info",
        )
    })?;
    let lines = tracing_subscriber::fmt::layer()
        .with_writer(|| RedactedStderr)
        .with_ansi(false);
    // Where a program has its own subscriber, that one counts.
    let _ = tracing_subscriber::registry()
        .with(targets)
        .with(lines)
        .try_init();
    Ok(())
}

/// Standard error, without passwords and signatures: libraries log the URLs that they send requests to. The subscriber
/// writes a whole line at a time.
struct RedactedStderr;

impl Write for RedactedStderr {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        let text = String::from_utf8_lossy(bytes);
        let line = printable_lines(&hide_secrets(&text));
        std::io::stderr().write_all(line.as_bytes())?;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        std::io::stderr().flush()
    }
}

/// Wraps the listener in one that logs each event; returns it unchanged if nothing is logged.
pub(super) fn logged(inner: Arc<dyn EventListener>) -> Arc<dyn EventListener> {
    if enabled!(target: TARGET, Level::ERROR) {
        Arc::new(LoggedEvents(inner))
    } else {
        inner
    }
}

struct LoggedEvents(Arc<dyn EventListener>);

impl EventListener for LoggedEvents {
    fn on_event(&self, event: Event) {
        let text = || serde_json::to_string(&event).unwrap_or_default();
        match event {
            Event::Warning { .. } | Event::AtRisk { .. } | Event::WorkerLost { .. } => {
                event!(target: TARGET, Level::WARN, "{}", text());
            }
            // These come many times a second.
            Event::Progress { .. }
            | Event::Worked { .. }
            | Event::Spilled { .. }
            | Event::WorkerMoved { .. }
            | Event::Eta { .. } => {
                event!(target: TARGET, Level::DEBUG, "{}", text());
            }
            _ => event!(target: TARGET, Level::INFO, "{}", text()),
        }
        self.0.on_event(event);
    }
}
