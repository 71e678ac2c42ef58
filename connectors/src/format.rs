//! The formats by name.

use std::sync::Arc;

use forebay_model::{Fault, Result, codes, nearest};
use forebay_storage::{Sink, Source};
use schemars::{JsonSchema, SchemaGenerator};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

/// What reading a configuration gives: else the text of the error and its path inside.
pub type Read<T> = std::result::Result<T, (String, String)>;

/// A format that a spec can name, as a source or as a sink.
#[derive(Debug, Clone, Copy)]
pub struct Format {
    /// The key in a spec.
    pub name: &'static str,
    /// The configuration's JSON Schema.
    pub schema: fn(&mut SchemaGenerator) -> schemars::Schema,
    /// Checks a configuration and fills in its defaults.
    pub canonical: fn(Value) -> Read<Value>,
}

/// A configuration.
pub(crate) trait Configured: Serialize + DeserializeOwned + JsonSchema {
    /// What serde cannot check.
    fn check(&self) -> Read<()>;
}

/// A configuration of a source.
pub(crate) trait SourceConfig: Configured {
    /// The source that does it.
    fn source(self) -> Arc<dyn Source>;
}

/// A configuration of a sink.
pub(crate) trait SinkConfig: Configured {
    /// The sink that does it.
    fn sink(self) -> Arc<dyn Sink>;
}

fn read<T: Configured>(config: Value) -> Read<T> {
    let config: T = serde_path_to_error::deserialize(config)
        .map_err(|error| (error.inner().to_string(), error.path().to_string()))?;
    config.check()?;
    Ok(config)
}

/// The entry of one format.
pub(crate) const fn format<T: Configured>(name: &'static str) -> Format {
    Format {
        name,
        schema: |generator| generator.subschema_for::<T>(),
        canonical: |config| {
            let config: T = read(config)?;
            serde_json::to_value(config).map_err(|error| (error.to_string(), String::new()))
        },
    }
}

fn wrong(name: &str, (message, path): (String, String)) -> Fault {
    let place = if path.is_empty() || path == "." { String::new() } else { format!(" at `{path}`") };
    Fault::new(codes::BAD_VALUE, format!("`{name}` cannot be read{place}: {message}"))
}

/// The configuration of one of `formats` with all defaults filled in.
pub(crate) fn canonical(what: &str, formats: &[Format], name: &str, config: Value) -> Result<Value> {
    let known = formats.iter().find(|format| format.name == name).ok_or_else(|| unknown(what, name, formats))?;
    (known.canonical)(config).map_err(|error| wrong(name, error))
}

/// Reads a configuration or says what is wrong with it.
pub(crate) fn configured<T: Configured>(name: &str, config: &Value) -> Result<T> {
    read(config.clone()).map_err(|error| wrong(name, error))
}

/// The fault for a format that is not among `formats`.
pub(crate) fn unknown(what: &str, name: &str, formats: &[Format]) -> Fault {
    let fault = Fault::new(codes::UNKNOWN_NAME, format!("there is no {what} format `{name}`"));
    let names = || formats.iter().map(|format| format.name);
    match nearest(name, names()) {
        Some(near) => fault.hint(format!("did you mean `{near}`?")),
        None => fault.hint(format!("the {what} formats are: {}", names().collect::<Vec<_>>().join(", "))),
    }
}

/// Checks that exactly one of `path` and `paths` is there, and that none is empty.
pub(crate) fn check_paths(path: Option<&str>, paths: &[String]) -> Read<()> {
    match (path, paths) {
        (None, []) => Err(("`path` is missing".to_owned(), String::new())),
        (Some(_), [_, ..]) => Err(("either `path` or `paths`, not both".to_owned(), "paths".to_owned())),
        (Some(""), _) => Err(("the path is empty".to_owned(), "path".to_owned())),
        (_, paths) => match paths.iter().position(String::is_empty) {
            Some(i) => Err(("the path is empty".to_owned(), format!("paths[{i}]"))),
            None => Ok(()),
        },
    }
}

/// The paths of a configuration.
pub(crate) fn all_paths<'a>(path: &'a Option<String>, paths: &'a [String]) -> Vec<&'a str> {
    path.iter().chain(paths).map(String::as_str).collect()
}
