//! The connectors of a session, by the names that specs give them.

use std::sync::Arc;

use forebay_model::{Fault, Result, codes};
use forebay_storage::{Sink, Source};
use serde_json::Value;

use crate::training::Trainer;

/// The formats that specs can name.
pub trait ConnectorRegistry: Send + Sync {
    /// A configured source.
    fn source(&self, format: &str, config: &Value) -> Result<Arc<dyn Source>>;

    /// A sink's configuration with all defaults filled in.
    fn canonical(&self, format: &str, config: Value) -> Result<Value>;

    /// A configured sink.
    fn sink(&self, format: &str, config: &Value) -> Result<Arc<dyn Sink>>;

    /// A configured trainer.
    fn trainer(&self, format: &str, config: &Value) -> Result<Arc<dyn Trainer>> {
        let _ = config;
        Err(Fault::new(codes::UNKNOWN_NAME, format!("there is no trainer `{format}`")))
    }
}
