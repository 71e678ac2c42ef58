//! CSV: text with one row per record.

mod config;
mod header;
mod infer;
mod reader;
mod sink;

pub use config::{CsvSink, CsvSource};
