//! CSV: text with one row per record.

mod config;
mod header;
mod infer;
mod reader;
mod sink;
mod sniff;

pub use config::{CsvSink, CsvSource, SameNamePolicy};
pub use sniff::{CsvDialect, sniff_csv};
