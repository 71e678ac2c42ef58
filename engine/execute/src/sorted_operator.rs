//! Operations over sorted rows.

use arrow::array::RecordBatch;
use arrow::datatypes::SchemaRef;
use forebay_model::Result;

/// Computes the outputs of the next sorted rows, and gives them in parts of limited bytes. `None` comes once, after the
/// last rows.
pub type BatchFn = Box<dyn FnMut(Option<&RecordBatch>, GiveOutputsFn<'_>) -> Result<()> + Send>;

/// Takes outputs.
pub type GiveOutputsFn<'f> = &'f mut dyn FnMut(&RecordBatch) -> Result<()>;

/// Bytes of texts that outputs are given with at once, unless they are of one row. Each row has a copy of its text.
pub const OUTPUT_TEXT_BYTES: usize = 4 << 20;

/// An operation over sorted rows.
pub trait SortedOperator: Send + Sync {
    /// The outputs, followed by the row's position.
    fn schema(&self) -> &SchemaRef;

    /// Starts a pass over all rows in order.
    fn start(&self) -> BatchFn;
}
