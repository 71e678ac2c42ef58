//! The connectors of a session, by the names that specs give them.

use std::sync::Arc;

use bytes::Bytes;
use forebay_model::{Fault, Result, codes};
use forebay_storage::{Sink, Source};
use serde_json::Value;

use crate::predict::ModelPredictor;
use crate::training::Trainer;

/// Reads a file of a model by its name; `None` if there is none.
pub type ReadModelFile<'a> = &'a dyn Fn(&str) -> Result<Option<Bytes>>;

/// The formats that specs can name.
pub trait ConnectorRegistry: Send + Sync {
    /// A configured source.
    fn source(&self, format: &str, config: &Value) -> Result<Arc<dyn Source>>;

    /// A sink's configuration with all defaults filled in.
    fn canonical(&self, format: &str, config: Value) -> Result<Value>;

    /// A configured sink.
    fn sink(&self, format: &str, config: &Value) -> Result<Arc<dyn Sink>>;

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
