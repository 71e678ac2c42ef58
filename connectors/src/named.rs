//! Formats as the builder names them: by the type of their configuration.

use serde::Serialize;

use crate::{
    ArrowSink, ArrowSource, BoostingConfig, CsvSink, CsvSource, DeltaSource, JsonSource,
    ParquetSink, ParquetSource, TrainConfig,
};

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
    ParquetSource: SourceFormat "parquet";
    DeltaSource: SourceFormat "delta";
    ArrowSource: SourceFormat "arrow";
    CsvSource: SourceFormat "csv";
    JsonSource: SourceFormat "json";
    ParquetSink: SinkFormat "parquet";
    ArrowSink: SinkFormat "arrow";
    CsvSink: SinkFormat "csv";
    TrainConfig: TrainerFormat "train";
    BoostingConfig: TrainerFormat "train";
}
