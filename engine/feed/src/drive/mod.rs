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

pub use batch::Batch;
pub use blocks::Blocks;
pub use config::Config;
pub use feed::Feed;
pub use stats::{Bottleneck, Stats, Times};
