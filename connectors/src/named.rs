//! Formats as the builder names them: by the type of their configuration.

use serde::Serialize;

use crate::{Parquet, ParquetSink};

/// A configuration that a source can have.
pub trait SourceFormat: Serialize {
    /// The key in a spec.
    const NAME: &'static str;
}

/// A configuration that a sink can have.
pub trait SinkFormat: Serialize {
    /// The key in a spec.
    const NAME: &'static str;
}

impl SourceFormat for Parquet {
    const NAME: &'static str = "parquet";
}

impl SinkFormat for ParquetSink {
    const NAME: &'static str = "parquet";
}
