//! Connectors: where spans come from and where output goes.
//!
//! Each format has a folder, with its configuration in `config.rs`; `files` holds what all of
//! them share. A source gives a [`forebay_model::Dataset`] from metadata alone and reads spans on
//! the threads of the run; a sink encodes and knows nothing of commits.

mod files;
mod format;
mod named;
mod parquet;

use std::sync::Arc;

use forebay_model::Result;
use forebay_run::{Connectors, Sink, Source};
use serde_json::Value;

pub use files::{Added, Missing, Partitions, SchemaPolicy};
pub use format::{Format, Read};
pub use named::{SinkFormat, SourceFormat};
pub use parquet::{Compression, Parquet, ParquetSink};

use format::{SinkConfig, SourceConfig, canonical, configured, format as entry, unknown};

/// The formats that can be read.
pub fn source_formats() -> &'static [Format] {
    const FORMATS: &[Format] = &[entry::<Parquet>("parquet")];
    FORMATS
}

/// The formats that can be written.
pub fn sink_formats() -> &'static [Format] {
    const FORMATS: &[Format] = &[entry::<ParquetSink>("parquet")];
    FORMATS
}

/// The connectors that come with Forebay.
#[derive(Debug, Clone, Copy, Default)]
pub struct BuiltIn;

impl BuiltIn {
    /// A source's configuration with all defaults filled in.
    pub fn canonical_source(&self, format: &str, config: Value) -> Result<Value> {
        canonical("source", source_formats(), format, config)
    }
}

impl Connectors for BuiltIn {
    fn canonical(&self, format: &str, config: Value) -> Result<Value> {
        canonical("sink", sink_formats(), format, config)
    }

    fn source(&self, format: &str, config: &Value) -> Result<Arc<dyn Source>> {
        match format {
            "parquet" => Ok(configured::<Parquet>(format, config)?.source()),
            _ => Err(unknown("source", format, source_formats())),
        }
    }

    fn sink(&self, format: &str, config: &Value) -> Result<Arc<dyn Sink>> {
        match format {
            "parquet" => Ok(configured::<ParquetSink>(format, config)?.sink()),
            _ => Err(unknown("sink", format, sink_formats())),
        }
    }
}
