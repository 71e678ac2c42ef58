//! The connectors of a session, by the names that specs give them.

use std::sync::Arc;

use forebay_model::{Fault, Result, codes};
use forebay_storage::{Sink, Source, literal_path};
use serde_json::{Value, json};

use crate::predict::ModelPredictor;
use crate::trainer::{ReadModelFile, Trainer};

/// The formats that specs can name.
pub trait ConnectorRegistry: Send + Sync {
    /// A configured source.
    fn source(&self, format: &str, config: &Value) -> Result<Arc<dyn Source>>;

    /// A sink's configuration with all defaults filled in.
    fn canonical(&self, format: &str, config: Value) -> Result<Value>;

    /// A configured sink.
    fn sink(&self, format: &str, config: &Value) -> Result<Arc<dyn Sink>>;

    /// Format of the files that a run writes for itself and reads again. Its sink and its source hold
    /// all types; the sink has the settings `keeps_seconds`, by which times in seconds stay so, and `widens_decimals`, by
    /// which decimals of a negative scale get scale 0.
    fn intermediate_format(&self) -> &'static str {
        "parquet"
    }

    /// Format of the files of shown rows whose types `intermediate_format` does not hold, such as intervals and structs
    /// without fields. Its sink and its source need a path alone. `None` if there is none: such rows are refused.
    fn exact_format(&self) -> Option<&'static str> {
        None
    }

    /// Format of a file by the ending of its name; `None` if the ending does not determine it.
    fn format_of_name(&self, name: &str) -> Option<&'static str> {
        let _ = name;
        None
    }

    /// A configured trainer.
    fn trainer(&self, format: &str, config: &Value) -> Result<Arc<dyn Trainer>> {
        let _ = config;
        Err(Fault::new(
            codes::UNKNOWN_NAME,
            format!("there is no trainer `{format}`"),
        ))
    }

    /// The model in a directory that a trainer filled; `files` reads its files by name.
    fn predictor(&self, files: ReadModelFile<'_>) -> Result<Arc<dyn ModelPredictor>> {
        let _ = files;
        Err(Fault::new(
            codes::UNKNOWN_NAME,
            "there is nothing that reads models",
        ))
    }
}

/// Files that a run writes for itself and reads again, in the format that the registry has for them.
pub(crate) struct IntermediateFiles<'a> {
    connectors: &'a dyn ConnectorRegistry,
    format: &'static str,
    /// True if the sink has the settings that `intermediate_format` promises.
    has_settings: bool,
}

impl<'a> IntermediateFiles<'a> {
    pub fn new(connectors: &'a dyn ConnectorRegistry) -> IntermediateFiles<'a> {
        IntermediateFiles {
            connectors,
            format: connectors.intermediate_format(),
            has_settings: true,
        }
    }

    /// Files that hold types which others do not; `None` if the registry has no format for them.
    pub fn exact(connectors: &'a dyn ConnectorRegistry) -> Option<IntermediateFiles<'a>> {
        Some(IntermediateFiles {
            connectors,
            format: connectors.exact_format()?,
            has_settings: false,
        })
    }

    /// Name of their format.
    pub fn format(&self) -> String {
        self.format.to_owned()
    }

    /// Source of the files at a path, in which wildcards stand for themselves.
    pub fn source(&self, path: &str) -> Result<Arc<dyn Source>> {
        self.connectors
            .source(self.format, &self.source_config(path))
    }

    /// Configuration of a source of the files at a path, in which wildcards stand for themselves.
    pub fn source_config(&self, path: &str) -> Value {
        json!({ "path": literal_path(path) })
    }

    /// Configuration of a sink whose files have the types of published ones.
    pub fn sink_config(&self, path: &str) -> Result<Value> {
        self.canonical(json!({ "path": path }))
    }

    /// Configuration of a sink whose files keep all types, also times in seconds, which no other
    /// program would read.
    pub fn exact_sink_config(&self, path: &str) -> Result<Value> {
        self.canonical(json!({ "path": path, "keeps_seconds": true }))
    }

    /// Configuration of a sink of rows that are shown: exact, and with decimals of a negative scale in all their digits.
    pub fn shown_sink_config(&self, path: &str) -> Result<Value> {
        if !self.has_settings {
            return self.canonical(json!({ "path": path }));
        }
        let config = json!({ "path": path, "keeps_seconds": true, "widens_decimals": true });
        self.canonical(config)
    }

    fn canonical(&self, config: Value) -> Result<Value> {
        self.connectors.canonical(self.format, config)
    }
}
