//! Slots: what a batch consists of, where its parts lie, and how rows get there.

mod ahead;
mod cache;
mod features;
mod layout;
mod memory;
mod pack;
mod packed;
mod packer;
mod series;
mod values;

pub(crate) use cache::{prefetch, store_fence};
pub use features::{BatchFeatures, CategoricalType, DenseType, FeatureField, NonFinite, SequenceOptions};
pub use layout::{ALIGN, BatchLayout, PartLayout, PartRole, ValueType};
pub use memory::{HostMemory, SlotAllocator, SlotMemory};
pub use pack::NonFiniteCounts;
pub(crate) use pack::PackedColumns;
pub use packed::PackedRows;
pub(crate) use packer::{NO_ROW, TILE_ROWS, TilePacker};
pub(crate) use series::{SeriesPacker, SeriesSteps};
