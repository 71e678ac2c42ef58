//! Configuration of Delta tables in a spec.

use std::collections::BTreeMap;

use forebay_contract::ConnectorConfig;
use forebay_formats::{OnReadError, check_formats};
use forebay_model::{ConfigError, ConfigResult};
use forebay_setters::Setters;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::place::scheme_of;
use super::snapshot::parse_time;

/// A Delta table to read. One version of it is read from the beginning of a run to its end. A later run reads only files
/// that commits have added since.
///
/// ```yaml
/// sources:
///   sales: { delta: { path: data/delta }, time: date, keys: [store, item] }
/// ```
///
/// ```
/// use forebay_delta::DeltaSource;
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
    /// Directories outside of the table of which its log may name files, as the log of a shallow clone does. They are
    /// of the same kind of storage. Without this, a log that names other files than the table's is refused.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub allow_outside: Vec<String>,
    /// Columns of texts or whole numbers that are dates or times, with the way in which they are written: `%Y%m%d`. The
    /// directives are those of `strftime`. With a time of day they are timestamps, with an offset (`%z`) in UTC. Where
    /// directives stand side by side, each has all of its digits. A format that goes from the year down lets filters and
    /// intervals skip row groups by their statistics; others do not.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub formats: BTreeMap<String, String>,
    /// Treatment of a value that is not written as its column's format says: for all columns, or for some.
    #[serde(default, skip_serializing_if = "OnReadError::is_default")]
    pub on_error: OnReadError,
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
    const NAME: &'static str = "delta";

    fn check(&self) -> ConfigResult<()> {
        check_formats(&self.formats, &self.on_error)?;
        let wrong = |at: &str, message: String| Err(ConfigError::at(at, message));
        let scheme = scheme_of(&self.path);
        for (number, directory) in self.allow_outside.iter().enumerate() {
            let at = format!("allow_outside[{number}]");
            if directory.is_empty() {
                return wrong(&at, "the path is empty".to_owned());
            }
            if scheme_of(directory) != scheme {
                let message = format!(
                    "`{directory}` is of another storage than the table `{}`",
                    self.path
                );
                return wrong(&at, message);
            }
        }
        match (&self.version, &self.timestamp) {
            _ if self.path.is_empty() => wrong("path", "the path is empty".to_owned()),
            (Some(_), Some(_)) => wrong(
                "timestamp",
                "either `version` or `timestamp`, not both".to_owned(),
            ),
            (_, Some(time)) => parse_time(time)
                .map(drop)
                .or_else(|message| wrong("timestamp", message)),
            _ => Ok(()),
        }
    }
}
