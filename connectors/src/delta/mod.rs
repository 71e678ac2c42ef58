//! Delta tables: Parquet files that a log names. The kernel of the format replays the log; files are read as all
//! Parquet files are.

mod checkpoint;
mod columns;
mod config;
mod engine;
mod files;
mod place;
mod snapshot;
mod source;
mod statistics;

pub use config::DeltaSource;
