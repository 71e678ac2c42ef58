//! Parquet.

mod bits;
mod checksums;
mod chunks;
mod config;
mod deltas;
mod dictionary;
mod extent;
mod fetch;
mod footer;
mod notes;
mod numbers;
mod page_index;
mod pages;
mod plan;
mod prune;
mod sink;
mod source;
mod stored;
mod words;

pub use config::{ParquetCompression, ParquetSink, ParquetSource};

pub(crate) use config::{file_bytes_target, group_rows_max};
