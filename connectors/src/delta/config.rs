//! What a spec says about Delta tables.

use std::sync::Arc;

use forebay_model::{ConfigError, ConfigResult};
use forebay_setters::Setters;
use forebay_storage::Source;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::format::{ConnectorConfig, SourceConfig};

use super::snapshot::parse_time;
use super::source::DeltaReader;

/// A Delta table to read. One version of it is read from the beginning of a run to its end. A later run reads only files
/// that commits have added since.
///
/// ```yaml
/// sources:
///   sales: { delta: { path: data/delta }, time: date, keys: [store, item] }
/// ```
///
/// ```
/// use forebay_connectors::DeltaSource;
/// let source = DeltaSource::at("s3://lake/demand").version(41);
/// assert_eq!(source.version, Some(41));
/// ```
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema, Setters)]
#[serde(deny_unknown_fields)]
pub struct DeltaSource {
    /// The directory of the table, which holds `_delta_log`; local or a URL.
    #[setters(skip)]
    pub path: String,
    /// The version to read; the latest when left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub version: Option<u64>,
    /// Instead of `version`: the latest version at or before this time, such as `2025-11-03` or
    /// `2025-11-03T06:00:00Z`. Without a zone it is UTC.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timestamp: Option<String>,
    /// The columns to read, in this order; all when left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub columns: Option<Vec<String>>,
}

impl DeltaSource {
    /// The latest version of the table at a path.
    pub fn at(path: impl Into<String>) -> Self {
        DeltaSource {
            path: path.into(),
            ..DeltaSource::default()
        }
    }
}

impl ConnectorConfig for DeltaSource {
    fn check(&self) -> ConfigResult<()> {
        let wrong = |at: &str, what: String| Err(ConfigError::at(at, what));
        match (&self.version, &self.timestamp) {
            _ if self.path.is_empty() => wrong("path", "the path is empty".to_owned()),
            (Some(_), Some(_)) => wrong(
                "timestamp",
                "either `version` or `timestamp`, not both".to_owned(),
            ),
            (_, Some(time)) => parse_time(time)
                .map(drop)
                .or_else(|what| wrong("timestamp", what)),
            _ => Ok(()),
        }
    }
}

impl SourceConfig for DeltaSource {
    fn source(self) -> Arc<dyn Source> {
        Arc::new(DeltaReader::new(self))
    }
}
