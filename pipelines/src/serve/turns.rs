//! Turns of work that blocks.

use std::sync::Arc;

use tokio::sync::Semaphore;

use super::error::ServeError;

/// Does work that blocks on a thread for such work, once one of the turns is free.
pub(super) async fn in_turn<T: Send + 'static>(
    turns: Arc<Semaphore>,
    work: impl FnOnce() -> Result<T, ServeError> + Send + 'static,
) -> Result<T, ServeError> {
    let turn = turns
        .acquire_owned()
        .await
        .map_err(|_| ServeError::internal("the server takes no more requests"))?;
    let working = tokio::task::spawn_blocking(move || {
        // The turn ends with the work, also where the request has ended before.
        let _turn = turn;
        work()
    });
    working.await.map_err(|_| {
        ServeError::internal("the server failed at the bytes of a request or answer")
    })?
}
