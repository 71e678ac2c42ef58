//! The outputs of windows and joins over sorted rows, in the order of the rows.

use std::sync::Arc;

use forebay_model::{ContentId, Result};
use forebay_plan::PrecomputedOutputs;

use crate::span_index::JoinedSpans;

/// The outputs of a window or a join for the rows of its input: a file of this process, partitions
/// that workers committed, or an as-of join that is computed while the rows are read.
pub trait SortedOutputs: Send + Sync {
    /// The outputs for the rows of a span of one of the streams that were sorted together.
    fn read(self: Arc<Self>, stream: usize, span: usize) -> Result<Box<dyn PrecomputedOutputs>>;

    /// True if no other process can read them.
    fn is_local(&self) -> bool {
        false
    }

    /// The spans of the other side that rows of each of `spans` spans may meet, for a join that is
    /// computed in order of time; `None` for all others.
    fn joined_spans(&self, _spans: usize) -> Option<JoinedSpans> {
        None
    }

    /// The id of the rows that a join holds at the end, if they are kept for the next run.
    fn kept_state(&self) -> Result<Option<ContentId>> {
        Ok(None)
    }
}
