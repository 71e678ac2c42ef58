//! Writing tables: Parquet files, and commits to the log that name them.

mod actions;
mod added_files;
mod checkpoints;
mod compact;
mod config;
mod conflicts;
mod encoder;
mod file_statistics;
mod live_files;
mod log;
mod outside;
mod pending;
mod rewriting;
mod schema;
mod table_types;
mod writable;

pub use config::{AddedTableColumns, DeltaMode, DeltaSink};
