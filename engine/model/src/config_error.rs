//! Errors of configurations.

use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::{Fault, codes};

/// The result of reading the configuration of a step, source or sink.
pub type ConfigResult<T> = Result<T, ConfigError>;

/// An error in the configuration of a step, source or sink.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConfigError {
    /// The text, with a hint after `; hint: ` where there is one: serde carries both in one text.
    pub message: String,
    /// The place of the value inside the configuration, such as `paths[2]`; empty for the whole.
    pub path: String,
}

impl ConfigError {
    /// An error of the value at `path`.
    pub fn at(path: impl Into<String>, message: impl Into<String>) -> ConfigError {
        ConfigError {
            message: message.into(),
            path: path.into(),
        }
    }

    /// An error of the configuration as a whole.
    pub fn whole(message: impl Into<String>) -> ConfigError {
        ConfigError::at("", message)
    }

    /// Reads a configuration.
    pub fn parse<T: DeserializeOwned>(config: Value) -> ConfigResult<T> {
        serde_path_to_error::deserialize(config)
            .map_err(|error| ConfigError::at(error.path().to_string(), error.inner().to_string()))
    }

    /// The message and the hint.
    pub fn split_hint(&self) -> (&str, Option<&str>) {
        match self.message.split_once("; hint: ") {
            Some((text, hint)) => (text, Some(hint)),
            None => (&self.message, None),
        }
    }

    /// The fault for a configuration of `name`.
    pub fn into_fault(self, name: &str) -> Fault {
        let is_whole = self.path.is_empty() || self.path == ".";
        let path_words = if is_whole {
            String::new()
        } else {
            format!(" at `{}`", self.path)
        };
        let (message, hint) = self.split_hint();
        let message = format!("`{name}` cannot be read{path_words}: {message}");
        let fault = Fault::new(codes::BAD_VALUE, message);
        match hint {
            Some(hint) => fault.hint(hint),
            None => fault,
        }
    }
}
