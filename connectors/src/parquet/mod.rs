//! Parquet.

mod bits;
mod checksums;
mod chunks;
mod config;
mod deltas;
mod dictionary;
mod extent;
mod fetch;
mod file_batches;
mod file_chunk_reader;
mod footer;
mod int96;
mod notes;
mod null_counts;
mod numbers;
mod page_index;
mod pages;
mod plan;
mod prune;
mod sink;
mod source;
mod summaries;
mod table;
mod words;

pub use config::{ParquetCompression, ParquetSink, ParquetSource};

pub(crate) use chunks::ParquetScan;
pub(crate) use config::{file_bytes_target, group_rows_max};
pub(crate) use extent::row_group_extents;
pub(crate) use file_batches::FileBatches;
pub(crate) use footer::FooterCache;
pub(crate) use prune::RowGroupPruner;
pub(crate) use sink::ParquetEncoder;
pub(crate) use source::split_pieces;
pub(crate) use summaries::FooterNotes;
pub(crate) use table::{KeptRows, TableFiles};
