//! Passes that write the rows of an interval alone.

use forebay_execute::IntervalFilter;
use forebay_model::{ContentId, IdBuilder, Interval};

/// The rows of an interval or from a time on, for a pass that writes only those.
#[derive(Debug, Clone)]
pub(crate) struct PassInterval {
    /// `None` for rows from a time on, which are a whole output.
    pub interval: Option<Interval>,
    pub filter: IntervalFilter,
}

/// The id of a pass that is restricted to the rows of an interval.
pub(crate) fn interval_pass_id(pass: ContentId, within: &IntervalFilter) -> ContentId {
    let mut id = IdBuilder::new("within");
    id.id(pass)
        .text(&within.column)
        .bytes(&within.first.to_le_bytes())
        .bytes(&within.last.to_le_bytes());
    id.finish()
}
