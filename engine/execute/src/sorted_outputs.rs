//! The outputs of windows and joins over sorted rows, in the order of the rows.

use std::sync::Arc;

use forebay_model::Result;
use forebay_plan::PrecomputedOutputs;

use crate::shuffle_read::ShuffleReader;
use crate::sorted_file::SortedFile;
use crate::time_join::TimeJoin;

/// The outputs of a window for the rows of its input.
pub enum SortedOutputs {
    /// A file of this process.
    Here(SortedFile),
    /// Partitions that workers committed.
    Away(ShuffleReader),
    /// An as-of join in order of time, computed while the rows are read.
    Merged(Arc<TimeJoin>),
}

impl SortedOutputs {
    /// The outputs for the rows of a span of one of the streams that were sorted together.
    pub fn read(&self, stream: usize, span: usize) -> Result<Box<dyn PrecomputedOutputs>> {
        match self {
            SortedOutputs::Here(sorted) => sorted.read(stream, span),
            SortedOutputs::Away(assembly) => assembly.read(stream, span),
            SortedOutputs::Merged(join) => Ok(Box::new(TimeJoin::read(join, span)?)),
        }
    }
}
