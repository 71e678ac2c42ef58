//! Formats as the builder names them: by the type of their configuration.

use serde::Serialize;

use crate::{Arrow, ArrowSink, Csv, Json, Parquet, ParquetSink, Train};

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

/// A configuration that a training can have.
pub trait TrainerFormat: Serialize {
    /// The key in a spec.
    const NAME: &'static str;
}

macro_rules! named {
    ($($config:ty: $role:ident $name:literal;)*) => {
        $(impl $role for $config { const NAME: &'static str = $name; })*
    };
}

named! {
    Parquet: SourceFormat "parquet";
    Arrow: SourceFormat "arrow";
    Csv: SourceFormat "csv";
    Json: SourceFormat "json";
    ParquetSink: SinkFormat "parquet";
    ArrowSink: SinkFormat "arrow";
    Train: TrainerFormat "train";
}
