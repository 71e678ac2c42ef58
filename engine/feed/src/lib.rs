//! The feed: fixed-shape mini-batches in a shuffled order that can be resumed.

mod cursor;
mod law;
mod order;
mod receipt;

pub use cursor::{CURSOR_BYTES_MAX, Cursor};
pub use law::{Last, Law, Share};
pub use order::{
    Block, Chunk, Dataset, Epoch, Mix, Mode, Order, Part, Permutation, Quality, QualityMeter, RowId, Sequence,
};
pub use receipt::Receipt;
