//! The connectors of a session, by the names that specs give them.

use std::sync::Arc;

use forebay_model::{Fault, Result, codes};
use serde_json::Value;

use crate::connector::{Sink, Source};
use crate::model_predictor::ModelPredictor;
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
