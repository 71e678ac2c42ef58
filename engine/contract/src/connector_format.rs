//! Traits of configurations that specs can name.

use std::sync::Arc;

use forebay_model::{ConfigError, ConfigResult, Result};
use schemars::{JsonSchema, SchemaGenerator};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::connector::{Sink, Source};
use crate::model_predictor::ModelPredictor;
use crate::trainer::{ReadModelFile, Trainer};

/// Configuration of a source, a sink or a trainer: the map that a spec has below its name. Serde
/// gives the canonical form, schemars the JSON Schema.
pub trait ConnectorConfig: Serialize + DeserializeOwned + JsonSchema {
    /// Key in a spec.
    const NAME: &'static str;

    /// Checks the values that serde cannot check.
    fn check(&self) -> ConfigResult<()> {
        Ok(())
    }
}

/// Configuration of a source.
///
/// The engine reads or changes these fields by name: `path` or `paths` locate the data, `version` or
/// `timestamp` choose the state of a table, `columns` declares columns, and `formats` the formats of
/// dates and times by column. Ids of findings do not depend on locations and versions.
pub trait SourceFormat: ConnectorConfig {
    /// Endings of the names of its files, without a dot: `csv`. An ending of compressed files, such
    /// as `.gz`, may follow.
    const ENDINGS: &'static [&'static str] = &[];

    /// The configured source.
    fn source(self) -> Arc<dyn Source>;
}

/// Configuration of a sink. The directory or URL that it writes to is its field `path`: commands
/// that write elsewhere, such as `forebay apply`, change it.
pub trait SinkFormat: ConnectorConfig {
    /// The configured sink.
    fn sink(self) -> Arc<dyn Sink>;
}

/// Configuration of a training, which is its trainer.
///
/// Its fields may have any names: checks, such as that of leaks, take the columns of the model from
/// the methods of [`Trainer`].
pub trait TrainerFormat: ConnectorConfig + Trainer + Sized + 'static {
    /// The model whose files `files` reads by name; `None` if this trainer has not written them.
    fn predictor(files: ReadModelFile<'_>) -> Result<Option<Arc<dyn ModelPredictor>>> {
        let _ = files;
        Ok(None)
    }
}

/// Kind of source, sink or training that a spec can name.
#[derive(Debug, Clone, Copy)]
pub struct ConnectorFormat {
    /// The key in a spec.
    pub name: &'static str,
    /// The configuration's JSON Schema.
    pub schema: fn(&mut SchemaGenerator) -> schemars::Schema,
    /// Checks a configuration and fills in its defaults.
    pub canonical: fn(Value) -> ConfigResult<Value>,
}

impl ConnectorFormat {
    /// Kind of a configuration.
    pub const fn of<T: ConnectorConfig>() -> ConnectorFormat {
        ConnectorFormat {
            name: T::NAME,
            schema: |generator| generator.subschema_for::<T>(),
            canonical: |config| {
                let config: T = deserialize_config(config)?;
                serde_json::to_value(config).map_err(|error| ConfigError::whole(error.to_string()))
            },
        }
    }

    /// Checks a configuration and fills in its defaults. Faults name the kind and the field.
    pub fn fill_defaults(&self, config: Value) -> Result<Value> {
        (self.canonical)(config).map_err(|error| error.into_fault(self.name))
    }
}

fn deserialize_config<T: ConnectorConfig>(config: Value) -> ConfigResult<T> {
    let config: T = ConfigError::parse(config)?;
    config.check()?;
    Ok(config)
}

/// Reads a configuration, or reports its errors.
pub fn parse_config<T: ConnectorConfig>(config: &Value) -> Result<T> {
    deserialize_config(config.clone()).map_err(|error| error.into_fault(T::NAME))
}
