//! Datasets that a run reads.

use std::sync::Arc;

use forebay_contract::Source;
use forebay_model::Dataset;

/// A base dataset that can be read.
#[derive(Clone)]
pub struct SourceInput {
    pub dataset: Arc<Dataset>,
    pub source: Arc<dyn Source>,
    /// True if its spans follow each other in time: a history that grows at its end.
    pub in_time_order: bool,
}
