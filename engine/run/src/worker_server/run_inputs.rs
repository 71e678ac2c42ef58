//! Datasets that a worker reads for a run.

use std::collections::BTreeMap;
use std::sync::Arc;

use forebay_execute::SourceInput;

/// The datasets of a job's sources.
pub(super) type RunInputs = Arc<BTreeMap<String, SourceInput>>;
