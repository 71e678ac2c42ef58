//! The feed: fixed-shape mini-batches in a shuffled order that can be resumed.
//!
//! - [`Order`] makes an endless [`Sequence`] of the rows of datasets: which row lies at a place is
//!   a function of seed, epoch and position.
//! - [`Law`] cuts it into batches: which places each rank delivers in each step.
//! - [`Cursor`] says where a feed stands, in a few numbers; [`Receipt`] which rows it delivered.
//! - [`Layout`] says where the parts of a batch lie in a slot.
//! - [`Feed`] drives it: threads read [`Blocks`], hold the window that the order needs, and fill
//!   slots ahead of the consumer.
//!
//! No files, no formats, no devices: those bring [`Blocks`] and a [`SlotAllocator`].

mod cursor;
mod drive;
mod law;
mod order;
mod receipt;
mod slot;

pub use cursor::{CURSOR_BYTES_MAX, Cursor, ORDER_VERSION};
pub use drive::{Batch, Blocks, Bottleneck, Config, Feed, Stats, Times};
pub use law::{Last, Law, Share};
pub use order::{
    Block, Chunk, Dataset, Epoch, Mix, Mode, Order, Part, Permutation, Piece, Quality, QualityMeter, RowId, Sequence,
    SliceOrder,
};
pub use receipt::Receipt;
pub use slot::{
    ALIGN, Features, Field, Found, HostMemory, Layout, NonFinite, Packed, PartLayout, Real, Role, Series,
    SlotAllocator, SlotMemory, Type, Whole,
};
