//! Writing tables: Parquet files, and commits to the log that name them.

mod actions;
mod added_files;
mod compact;
mod config;
mod conflicts;
mod encoder;
mod file_statistics;
mod live_files;
mod log;
mod schema;
mod table_types;
mod writable;

pub use config::{AddedTableColumns, DeltaMode, DeltaSink};
