//! The formats by name.

use std::sync::Arc;

use forebay_model::{ConfigError, ConfigResult, Fault, Result, codes};
use forebay_run::PredictConfig;
use forebay_storage::{Sink, Source};
use schemars::{JsonSchema, SchemaGenerator};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

/// A format that a spec can name, as a source or as a sink.
#[derive(Debug, Clone, Copy)]
pub struct ConnectorFormat {
    /// The key in a spec.
    pub name: &'static str,
    /// The configuration's JSON Schema.
    pub schema: fn(&mut SchemaGenerator) -> schemars::Schema,
    /// Checks a configuration and fills in its defaults.
    pub canonical: fn(Value) -> ConfigResult<Value>,
}

/// A configuration.
pub(crate) trait ConnectorConfig: Serialize + DeserializeOwned + JsonSchema {
    /// What serde cannot check.
    fn check(&self) -> ConfigResult<()>;
}

impl ConnectorConfig for PredictConfig {
    fn check(&self) -> ConfigResult<()> {
        PredictConfig::check(self)
    }
}

/// A configuration of a source.
pub(crate) trait SourceConfig: ConnectorConfig {
    /// The source that does it.
    fn source(self) -> Arc<dyn Source>;
}

/// A configuration of a sink.
pub(crate) trait SinkConfig: ConnectorConfig {
    /// The sink that does it.
    fn sink(self) -> Arc<dyn Sink>;
}

fn deserialize_config<T: ConnectorConfig>(config: Value) -> ConfigResult<T> {
    let config: T = ConfigError::parse(config)?;
    config.check()?;
    Ok(config)
}

/// The entry of one format.
pub(crate) const fn format<T: ConnectorConfig>(name: &'static str) -> ConnectorFormat {
    ConnectorFormat {
        name,
        schema: |generator| generator.subschema_for::<T>(),
        canonical: |config| {
            let config: T = deserialize_config(config)?;
            serde_json::to_value(config).map_err(|error| ConfigError::whole(error.to_string()))
        },
    }
}

/// The configuration of one of `formats` with all defaults filled in.
pub(crate) fn canonical(
    what: &str,
    formats: &[ConnectorFormat],
    name: &str,
    config: Value,
) -> Result<Value> {
    let known = formats
        .iter()
        .find(|format| format.name == name)
        .ok_or_else(|| unknown_format_fault(what, name, formats))?;
    (known.canonical)(config).map_err(|error| error.into_fault(name))
}

/// Reads a configuration or says what is wrong with it.
pub(crate) fn parse_config<T: ConnectorConfig>(name: &str, config: &Value) -> Result<T> {
    deserialize_config(config.clone()).map_err(|error| error.into_fault(name))
}

/// The fault for a format that is not among `formats`.
pub(crate) fn unknown_format_fault(what: &str, name: &str, formats: &[ConnectorFormat]) -> Fault {
    let fault = Fault::new(
        codes::UNKNOWN_NAME,
        format!("there is no {what} format `{name}`"),
    );
    fault.suggest(
        name,
        formats.iter().map(|format| format.name),
        &format!("the {what} formats are"),
    )
}

/// Checks that exactly one of `path` and `paths` is there, and that none is empty.
pub(crate) fn check_paths(path: Option<&str>, paths: &[String]) -> ConfigResult<()> {
    match (path, paths) {
        (None, []) => Err(ConfigError::whole("`path` is missing")),
        (Some(_), [_, ..]) => Err(ConfigError::at(
            "paths",
            "either `path` or `paths`, not both",
        )),
        (Some(""), _) => Err(ConfigError::at("path", "the path is empty")),
        (_, paths) => match paths.iter().position(String::is_empty) {
            Some(i) => Err(ConfigError::at(format!("paths[{i}]"), "the path is empty")),
            None => Ok(()),
        },
    }
}

/// The paths of a configuration.
pub(crate) fn all_paths<'a>(path: &'a Option<String>, paths: &'a [String]) -> Vec<&'a str> {
    path.iter().chain(paths).map(String::as_str).collect()
}
