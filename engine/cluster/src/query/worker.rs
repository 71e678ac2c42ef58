//! Workers that may take part in a query.

use std::fmt;
use std::sync::Arc;

use crate::worker_client::WorkerClient;

/// A worker that may take part in a query.
#[derive(Clone)]
pub struct QueryWorker {
    pub address: String,
    pub slots: usize,
    pub(crate) link: Arc<WorkerClient>,
}

impl fmt::Debug for QueryWorker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.address)
    }
}
