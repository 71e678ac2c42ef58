//! The formats and trainers that come with Forebay.

use std::sync::{Arc, LazyLock};

use forebay_contract::{
    ConnectorFormat, ConnectorRegistry, ModelPredictor, PredictConfig, ReadModelFile, Sink, Source,
    Trainer,
};
use forebay_delta::{DeltaSink, DeltaSource};
use forebay_formats::{
    ArrowSink, ArrowSource, CsvSink, CsvSource, JsonSink, JsonSource, ParquetSink, ParquetSource,
};
use forebay_model::Result;
use serde_json::Value;

use crate::registry::FormatRegistry;

static BUILT_IN: LazyLock<FormatRegistry> = LazyLock::new(|| {
    let mut registry = FormatRegistry::empty();
    // The reference and the hints of unknown names list formats in this order.
    registry
        .register_source::<ParquetSource>()
        .register_source::<DeltaSource>()
        .register_source::<ArrowSource>()
        .register_source::<CsvSource>()
        .register_source::<JsonSource>()
        .register_sink::<ParquetSink>()
        .register_sink::<DeltaSink>()
        .register_sink::<ArrowSink>()
        .register_sink::<CsvSink>()
        .register_sink::<JsonSink>()
        .register_trainers(
            forebay_train::FORMAT,
            forebay_train::trainer,
            forebay_train::read_predictor,
        )
        .register_predictor(ConnectorFormat::of::<PredictConfig>());
    registry
});

impl FormatRegistry {
    /// The kinds that come with Forebay.
    pub fn built_in() -> FormatRegistry {
        BUILT_IN.clone()
    }
}

/// The formats that can be read.
pub fn source_formats() -> &'static [ConnectorFormat] {
    BUILT_IN.sources()
}

/// The formats that can be written.
pub fn sink_formats() -> &'static [ConnectorFormat] {
    BUILT_IN.sinks()
}

/// Trainers that sinks can use.
pub fn trainers() -> &'static [ConnectorFormat] {
    BUILT_IN.trainers()
}

/// Predictors for the models of a run.
pub fn predictors() -> &'static [ConnectorFormat] {
    BUILT_IN.predictors()
}

/// The format of a file by the ending of its name.
pub fn format_of_name(name: &str) -> Option<&'static str> {
    BUILT_IN.format_of_name(name)
}

/// The connectors that come with Forebay, without others that a program registers.
#[derive(Debug, Clone, Copy, Default)]
pub struct BuiltInConnectors;

impl BuiltInConnectors {
    /// A source's configuration with all defaults filled in.
    pub fn canonical_source(&self, format: &str, config: Value) -> Result<Value> {
        BUILT_IN.canonical_source(format, config)
    }
}

impl ConnectorRegistry for BuiltInConnectors {
    fn intermediate_format(&self) -> &'static str {
        BUILT_IN.intermediate_format()
    }

    fn exact_format(&self) -> Option<&'static str> {
        BUILT_IN.exact_format()
    }

    fn format_of_name(&self, name: &str) -> Option<&'static str> {
        BUILT_IN.format_of_name(name)
    }

    fn canonical(&self, format: &str, config: Value) -> Result<Value> {
        BUILT_IN.canonical(format, config)
    }

    fn source(&self, format: &str, config: &Value) -> Result<Arc<dyn Source>> {
        BUILT_IN.source(format, config)
    }

    fn sink(&self, format: &str, config: &Value) -> Result<Arc<dyn Sink>> {
        BUILT_IN.sink(format, config)
    }

    fn predictor(&self, files: ReadModelFile<'_>) -> Result<Arc<dyn ModelPredictor>> {
        BUILT_IN.predictor(files)
    }

    fn trainer(&self, format: &str, config: &Value) -> Result<Arc<dyn Trainer>> {
        BUILT_IN.trainer(format, config)
    }
}
