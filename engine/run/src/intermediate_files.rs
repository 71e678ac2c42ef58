//! Files that a run writes for itself and reads again.

use std::sync::Arc;

use forebay_contract::{ConnectorRegistry, Source, literal_path};
use forebay_model::Result;
use serde_json::{Value, json};

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
