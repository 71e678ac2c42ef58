//! Passes events to several listeners.

use std::sync::Arc;

use forebay_model::TraceContext;
use forebay_storage::{Event, EventListener};

use super::run_observer::RunObserver;

/// Passes events to observers, and to the inner listener.
pub(super) struct FanOut {
    pub inner: Arc<dyn EventListener>,
    pub observers: Arc<[Box<dyn RunObserver>]>,
}

impl EventListener for FanOut {
    fn on_event(&self, event: Event) {
        for observer in self.observers.iter() {
            observer.on_event(&event);
        }
        self.inner.on_event(event);
    }

    fn task_context(&self, task: u64) -> Option<TraceContext> {
        self.observers
            .iter()
            .find_map(|observer| observer.task_context(task))
    }
}
