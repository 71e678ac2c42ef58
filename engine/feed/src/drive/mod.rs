//! The drive: threads that read blocks, hold the window and fill slots ahead of the consumer.

mod batch;
mod blocks;
mod config;
mod feed;
mod fill;
mod held;
mod load;
mod schedule;
mod stats;
mod stream;
mod work;

pub use batch::FeedBatch;
pub use blocks::BlockSource;
pub use config::FeedOptions;
pub use feed::Feed;
pub use stats::{FeedBottleneck, FeedStats, WorkerTimes};
