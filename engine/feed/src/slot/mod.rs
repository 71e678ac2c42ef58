//! Slots: what a batch consists of, where its parts lie, and how rows get there.

mod cast;
mod features;
mod layout;
mod memory;
mod nontemporal;
mod numeric_values;
mod packed_rows;
mod precast;
mod series;
mod series_duplicates;
mod slot_packer;

pub(crate) use cast::PackedColumns;
pub use cast::ValueCounts;
pub use features::{
    BatchFeatures, CategoricalType, DenseType, FeatureField, NonFinite, SequenceOptions,
};
pub use layout::{ALIGN, BatchLayout, PartLayout, PartRole, ValueType};
pub use memory::{HostMemory, SlotAllocator, SlotMemory};
pub(crate) use nontemporal::{prefetch, store_fence};
pub use numeric_values::{filled_values, id_values, real_values};
pub use packed_rows::PackedRows;
pub(crate) use series::{SeriesPacker, SeriesSteps};
pub(crate) use slot_packer::{NO_ROW, TILE_ROWS, TilePacker};
