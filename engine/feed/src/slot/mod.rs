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

pub(crate) use cache::{fetch, settle};
pub use features::{Features, Field, NonFinite, Real, Series, Whole};
pub use layout::{ALIGN, Layout, PartLayout, Role, Type};
pub use memory::{HostMemory, SlotAllocator, SlotMemory};
pub(crate) use pack::Columns;
pub use pack::Found;
pub use packed::Packed;
pub(crate) use packer::{NOWHERE, Packer, TILE_ROWS};
pub(crate) use series::{SeriesPacker, Steps};
