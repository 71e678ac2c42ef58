//! The feed: fixed-shape mini-batches in a shuffled order that can be resumed.
//!
//! - [`SampleOrder`] makes an endless [`RowSequence`] of the rows of datasets: which row lies at a place is
//!   a function of seed, epoch and position.
//! - [`BatchPlan`] cuts it into batches: which places each rank delivers in each step.
//! - [`FeedCursor`] is the position of a feed, in a few numbers; [`DeliveryDigest`] proves which rows it delivered.
//! - [`BatchLayout`] says where the parts of a batch lie in a slot.
//! - [`Feed`] drives it: threads read [`BlockSource`], hold the window that the order needs, and fill
//!   slots ahead of the consumer.
//!
//! No files, no formats, no devices: those bring [`BlockSource`] and a [`SlotAllocator`].

mod batching;
mod config;
mod cursor;
mod delivery_digest;
mod order;
mod runtime;
mod slot;

pub use batching::{BatchPlan, RankSlice, RemainderPolicy};
pub use config::{
    DetailedFeature, FeatureColumn, FeedCache, FeedConfig, FeedOrder, FeedSeries, MixSource,
};
pub use cursor::{CURSOR_BYTES_MAX, FeedCursor, ORDER_VERSION};
pub use delivery_digest::DeliveryDigest;
pub use order::{
    BlockDataset, ChunkPart, DatasetBlock, DatasetMixture, EpochOrder, KeyedPermutation, OrderMode,
    PlacedRun, QualityMeter, RowId, RowSequence, SampleOrder, ShuffleChunk, ShuffleQuality,
    SliceOrder,
};
pub use runtime::{
    BlockSource, Feed, FeedBatch, FeedBottleneck, FeedOptions, FeedStats, InspectBatch, LoadCounts,
    ReportDuplicates, WorkerTimes,
};
pub use slot::{
    ALIGN, BatchFeatures, BatchLayout, CategoricalType, DenseType, FeatureField, HostMemory,
    NonFinite, PackedRows, PartLayout, PartRole, SequenceOptions, SlotAllocator, SlotMemory,
    ValueCounts, ValueType, filled_values, id_values, real_values,
};
