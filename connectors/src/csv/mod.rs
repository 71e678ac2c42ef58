//! CSV: text with one row per record.

mod config;
mod header;
mod infer;
mod reader;

pub use config::CsvSource;
