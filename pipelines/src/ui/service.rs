//! State that all requests share.

use std::sync::Arc;

use forebay_run::{ClusterToken, Session};
use tokio::sync::Semaphore;

use super::history::RunHistory;

/// Parts that all requests share.
pub(super) struct UiService {
    pub history: RunHistory,
    /// Reads artifacts of the state directory, and computes some rows of their steps.
    pub session: Session,
    /// The token that requests carry; without one, requests come from this machine.
    pub token: Option<ClusterToken>,
    /// Permits to make a page.
    pub pages: Arc<Semaphore>,
    /// The turn to compute rows: each computation may take the memory of the session. A request
    /// waits for it without a permit to make a page, so that other pages go on.
    pub previews: Arc<Semaphore>,
}
