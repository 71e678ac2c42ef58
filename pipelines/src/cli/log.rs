//! Log lines on standard error, as `RUST_LOG` asks for: events of runs (`forebay`), and those of the libraries below, such
//! as `object_store` and `datafusion`.

use std::io::Write;
use std::sync::Arc;

use forebay_model::{Result, hide_secrets};
use forebay_storage::{Event, EventListener};
use tracing::{Level, enabled, event};
use tracing_subscriber::filter::Targets;
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;

use super::usage;

/// The variable that says what is logged.
const VARIABLE: &str = "RUST_LOG";

/// What events of runs are called in the log.
const TARGET: &str = "forebay";

/// Starts logging, where the environment asks for it: `info`, `forebay=debug`, `warn,object_store=debug`.
pub(super) fn start() -> Result<()> {
    let Some(wanted) = std::env::var(VARIABLE)
        .ok()
        .filter(|wanted| !wanted.trim().is_empty())
    else {
        return Ok(());
    };
    let targets: Targets = wanted.parse().map_err(|_| {
        usage(format!("`{VARIABLE}={wanted}` does not say what to log")).hint(
            "write a level (error, warn, info, debug, trace), or targets with levels: forebay=debug,object_store=info",
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
    fn write(&mut self, line: &[u8]) -> std::io::Result<usize> {
        let text = String::from_utf8_lossy(line);
        std::io::stderr().write_all(hide_secrets(&text).as_bytes())?;
        Ok(line.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        std::io::stderr().flush()
    }
}

/// The listener, behind one that logs each event; the same where nothing is logged.
pub(super) fn logged(inner: Arc<dyn EventListener>) -> Arc<dyn EventListener> {
    match enabled!(target: TARGET, Level::ERROR) {
        true => Arc::new(LoggedEvents(inner)),
        false => inner,
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
