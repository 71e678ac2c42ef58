//! Parquet.

mod chunks;
mod config;
mod fetch;
mod footer;
mod plan;
mod prune;
mod sink;
mod source;

pub use config::{Compression, Parquet, ParquetSink};
