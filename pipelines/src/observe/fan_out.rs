//! One listener for several.

use std::sync::Arc;

use forebay_model::TraceContext;
use forebay_storage::{Event, EventListener};

use super::RunObserver;

/// Tells observers what it hears, and passes it on.
pub(super) struct FanOut {
    pub inner: Arc<dyn EventListener>,
    pub observers: Arc<[Box<dyn RunObserver>]>,
}

impl EventListener for FanOut {
    fn on_event(&self, event: Event) {
        self.observers
            .iter()
            .for_each(|observer| observer.on_event(&event));
        self.inner.on_event(event);
    }

    fn task_context(&self, task: u64) -> Option<TraceContext> {
        self.observers
            .iter()
            .find_map(|observer| observer.task_context(task))
    }
}
