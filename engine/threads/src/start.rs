//! Starting threads, where the system may refuse them: limits of users and containers are reached in production.

use std::thread::{self, JoinHandle, Scope, ScopedJoinHandle};

use forebay_model::{Fault, Result};

use crate::for_current_span;

/// Starts a thread for the current span. A thread that the system refuses is a fault, never a panic.
pub fn start_thread<T: Send + 'static>(
    name: impl Into<String>,
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<JoinHandle<T>> {
    thread::Builder::new()
        .name(name.into())
        .spawn(for_current_span(work))
        .map_err(Fault::refused_thread)
}

/// Starts a thread of a scope for the current span. A thread that the system refuses is a fault, never a panic.
pub fn start_scoped<'scope, T: Send + 'scope>(
    scope: &'scope Scope<'scope, '_>,
    work: impl FnOnce() -> T + Send + 'scope,
) -> Result<ScopedJoinHandle<'scope, T>> {
    thread::Builder::new()
        .spawn_scoped(scope, for_current_span(work))
        .map_err(Fault::refused_thread)
}
