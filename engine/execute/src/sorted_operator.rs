//! Operations over sorted rows.

use arrow::array::RecordBatch;
use arrow::datatypes::SchemaRef;
use forebay_model::Result;

/// Computes the outputs of the next sorted rows.
pub type BatchFn = Box<dyn FnMut(&RecordBatch) -> Result<RecordBatch> + Send>;

/// An operation over sorted rows.
pub trait SortedOperator: Send + Sync {
    /// The outputs, followed by the row's position.
    fn schema(&self) -> &SchemaRef;

    /// Starts a pass over all rows in order.
    fn start(&self) -> BatchFn;
}
