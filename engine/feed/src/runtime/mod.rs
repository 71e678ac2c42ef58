//! The drive: threads that read blocks, hold the window and fill slots ahead of the consumer.

mod batch;
mod block_source;
mod chunk_load;
mod chunk_stream;
mod feed;
mod options;
mod schedule;
mod shared_feed;
mod slot_fill;
mod stats;
mod tile_pool;
mod unit_load;
mod worker;

pub use batch::FeedBatch;
pub use block_source::BlockSource;
pub use feed::Feed;
pub use options::{FeedOptions, InspectBatch};
pub use stats::{FeedBottleneck, FeedStats, LoadCounts, ReportDuplicates, WorkerTimes};
