//! Delta tables: Parquet files that a log names. The kernel of the format replays the log; files are read as all
//! Parquet files are.

mod checkpoint;
mod columns;
mod config;
mod engine;
mod files;
mod place;
mod references;
mod snapshot;
mod source;
mod statistics;
mod visible;
mod write;

pub use config::DeltaSource;
pub use references::table_references;
pub use visible::{has_deleted_rows, has_delta_log};
pub use write::{AddedTableColumns, DeltaMode, DeltaSink};
