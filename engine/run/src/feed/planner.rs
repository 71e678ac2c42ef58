//! The planner of a feed, which finds the rows where they are stored.

use std::collections::BTreeSet;
use std::sync::Arc;

use forebay_commit::StateStore;
use forebay_execute::RunState;
use forebay_feed::FeedConfig;
use forebay_model::Pipeline;
use forebay_plan::Program;
use forebay_storage::{DiskCache, ScratchDir, StorageClient};

use crate::session::Session;

/// Rows that are read at once at most: few enough to stay in the second-level cache.
pub(super) const READ_ROWS_MAX: usize = 8192;

/// Planner of a feed.
pub(super) struct FeedPlanner<'a> {
    pub(super) session: &'a Session,
    /// Reads rows through the cache, if there is one.
    pub(super) io: StorageClient,
    pub(super) cache: Option<Arc<DiskCache>>,
    pub(super) pipeline: &'a Pipeline,
    pub(super) config: &'a FeedConfig,
    pub(super) program: &'a Program,
    pub(super) state: &'a RunState,
    pub(super) store: StateStore,
    pub(super) scratch: ScratchDir,
}

/// Each column once, and the index among them of each column of the feed.
pub(super) fn distinct(names: &[String]) -> (Vec<String>, Vec<usize>) {
    let mut seen = BTreeSet::new();
    let columns: Vec<String> = names
        .iter()
        .filter(|name| seen.insert((*name).clone()))
        .cloned()
        .collect();
    let mut positions = Vec::with_capacity(names.len());
    for name in names {
        let position = columns.iter().position(|column| column == name);
        positions.push(position.unwrap_or(0));
    }
    (columns, positions)
}
