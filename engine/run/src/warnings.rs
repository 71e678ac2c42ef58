//! Warnings of a run: sent as events when they are noticed, and listed in its report.

use std::sync::{Arc, Mutex, PoisonError};

use forebay_model::{Fault, TraceContext, hide_secrets};
use forebay_storage::{Event, EventListener};

use crate::session::Session;

/// Warnings that a report lists at most.
const WARNINGS_MAX: usize = 100;

/// Passes events on, and keeps the warnings among them.
pub(crate) struct CollectedWarnings {
    inner: Arc<dyn EventListener>,
    messages: Mutex<Vec<String>>,
}

impl CollectedWarnings {
    pub fn new(inner: Arc<dyn EventListener>) -> CollectedWarnings {
        CollectedWarnings {
            inner,
            messages: Mutex::default(),
        }
    }

    /// The warnings so far, each once.
    pub fn take(&self) -> Vec<String> {
        std::mem::take(&mut *self.messages.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl EventListener for CollectedWarnings {
    fn on_event(&self, event: Event) {
        let Event::Warning { message } = event else {
            return self.inner.on_event(event);
        };
        // Locations of data may be URLs with a password.
        let message = hide_secrets(&message).into_owned();
        let mut messages = self.messages.lock().unwrap_or_else(PoisonError::into_inner);
        // An attempt that begins again says the same.
        if messages.contains(&message) {
            return;
        }
        if messages.len() < WARNINGS_MAX {
            messages.push(message.clone());
        }
        drop(messages);
        self.inner.on_event(Event::Warning { message });
    }

    fn task_context(&self, task: u64) -> Option<TraceContext> {
        self.inner.task_context(task)
    }
}

impl Session {
    /// Sends a warning about a problem that does not stop the run, with its hint.
    pub(crate) fn warn(&self, warning: &Fault) {
        let hint = warning
            .hint_text()
            .map_or_else(String::new, |hint| format!("; {hint}"));
        self.watch.on_event(Event::Warning {
            message: format!("{}{hint}", warning.message()),
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The warnings that arrive.
    #[derive(Default)]
    struct Arrived(Mutex<Vec<String>>);

    impl EventListener for Arrived {
        fn on_event(&self, event: Event) {
            if let Event::Warning { message } = event {
                self.0.lock().unwrap().push(message);
            }
        }
    }

    #[test]
    fn warnings_arrive_once_and_without_passwords() {
        let arrived = Arc::new(Arrived::default());
        let warnings = CollectedWarnings::new(arrived.clone());
        for _ in 0..2 {
            warnings.on_event(Event::Warning {
                message: "s3://me:hunter2@lake/a is old".to_owned(),
            });
        }
        let expected = ["s3://***@lake/a is old"];
        assert_eq!(warnings.take(), expected);
        assert_eq!(*arrived.0.lock().unwrap(), expected);
    }
}
