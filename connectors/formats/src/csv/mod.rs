//! CSV: text with one row per record.

mod config;
mod faults;
mod header;
mod infer;
mod opened;
mod reader;
mod records;
mod sink;
mod sniff;
mod source;
mod text_place;

pub use config::{CsvDialect, CsvSink, CsvSource, SameNamePolicy, StrayQuotes};
pub use sniff::{CsvFindings, sniff_csv};
