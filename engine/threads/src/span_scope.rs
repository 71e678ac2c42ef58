//! The span of a trace that a thread works for. Threads that are spawned for its work take it over.

use std::cell::Cell;

use forebay_model::TraceContext;

thread_local! {
    static CURRENT: Cell<Option<TraceContext>> = const { Cell::new(None) };
}

/// Restores the span of a thread, also after a panic.
struct RestoredSpan(Option<TraceContext>);

impl Drop for RestoredSpan {
    fn drop(&mut self) {
        CURRENT.set(self.0);
    }
}

/// The span that this thread works for.
pub fn current_span() -> Option<TraceContext> {
    CURRENT.get()
}

/// Calls `work` on this thread, for a span.
pub fn with_span<T>(span: Option<TraceContext>, work: impl FnOnce() -> T) -> T {
    let _restored = RestoredSpan(CURRENT.replace(span));
    work()
}

/// Wraps `work` so that it runs for the current span, on any thread.
pub fn for_current_span<T>(work: impl FnOnce() -> T) -> impl FnOnce() -> T {
    let span = current_span();
    move || with_span(span, work)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::run_on_all;

    #[test]
    fn threads_take_over_the_span_and_give_it_back() {
        let span = |span| Some(TraceContext { trace: 1, span });
        assert_eq!(current_span(), None);
        let seen = with_span(span(2), || {
            let inner = with_span(span(3), current_span);
            (inner, current_span(), run_on_all(3, &|| Ok(current_span())))
        });
        assert_eq!((seen.0, seen.1), (span(3), span(2)));
        assert!(
            seen.2
                .into_iter()
                .all(|found| found.ok().flatten() == span(2))
        );
        let panicked = std::panic::catch_unwind(|| with_span(span(4), || panic!("it fails")));
        assert!(panicked.is_err() && current_span().is_none());
    }
}
