//! Settings of sources and sinks that the engine reads or changes. Their names are part of the
//! contract of a connector's configuration, and stand nowhere else outside of connectors.

use serde_json::{Map, Value};

use crate::{PipelineSink, PipelineSource, TimeFormat};

/// The directory, pattern or URL of the data.
const PATH: &str = "path";

/// Version of a table that is read.
const VERSION: &str = "version";

/// Time whose version of a table is read.
const TIMESTAMP: &str = "timestamp";

/// Declared columns: names with types, or names.
const COLUMNS: &str = "columns";

/// Formats of dates and times by column.
const FORMATS: &str = "formats";

impl PipelineSource {
    /// Location of the data, where the configuration has exactly one.
    pub fn path(&self) -> Option<&str> {
        self.config[PATH].as_str()
    }

    /// Reads the data of another location.
    pub fn set_path(&mut self, path: impl Into<String>) {
        self.config[PATH] = Value::String(path.into());
    }

    /// Reads a version of the table, and no other.
    pub fn pin_version(&mut self, version: u64) {
        if let Some(settings) = self.config.as_object_mut() {
            settings.remove(TIMESTAMP);
            settings.insert(VERSION.to_owned(), version.into());
        }
    }

    /// Format in which a column of dates or times is written, where the configuration has one.
    pub fn time_format(&self, column: &str) -> Option<TimeFormat> {
        let format = self.config.get(FORMATS)?.get(column)?.as_str()?;
        TimeFormat::parse(format).ok()
    }

    /// True if columns are declared.
    pub fn declares_columns(&self) -> bool {
        !self.config[COLUMNS].is_null()
    }

    /// True if a column is declared with its type.
    pub fn declares_type(&self, column: &str) -> bool {
        let declared = self.config[COLUMNS].as_object();
        declared.is_some_and(|declared| declared.contains_key(column))
    }

    /// Declares the types of all columns. Values are read as strictly as where types are found by
    /// the first rows.
    pub fn declare_found_types(&mut self, types: Map<String, Value>) {
        self.config[COLUMNS] = Value::Object(types);
        self.config["found_types"] = Value::from(true);
    }

    /// Removes a column from the declared ones, and its format; false where it has neither.
    pub fn undeclare(&mut self, column: &str) -> bool {
        let formats = self.config.get_mut(FORMATS).and_then(Value::as_object_mut);
        let had_format = formats.is_some_and(|formats| formats.remove(column).is_some());
        let was_declared = match self.config.get_mut(COLUMNS) {
            Some(Value::Object(columns)) => {
                let declared = columns.len();
                // The order of the others stays.
                let others = std::mem::take(columns).into_iter();
                *columns = others.filter(|(name, _)| name != column).collect();
                columns.len() < declared
            }
            Some(Value::Array(columns)) => {
                let declared = columns.len();
                columns.retain(|name| name != column);
                columns.len() < declared
            }
            _ => false,
        };
        had_format || was_declared
    }

    /// Configuration without the location and the version of the data: both may change.
    pub fn config_without_path(&self) -> Value {
        without_path(&self.config)
    }

    /// Configuration without all that belongs to a run: locations, versions and caches.
    pub fn config_without_run(&self) -> Value {
        without_run(&self.config)
    }
}

impl PipelineSink {
    /// Location of the output, where the configuration has one.
    pub fn path(&self) -> Option<&str> {
        self.config[PATH].as_str()
    }

    /// Writes to another location.
    pub fn set_path(&mut self, path: impl Into<String>) {
        self.config[PATH] = Value::String(path.into());
    }

    /// Configuration without the location of the output, which may change.
    pub fn config_without_path(&self) -> Value {
        without_path(&self.config)
    }

    /// Configuration without all that belongs to a run: locations and caches.
    pub fn config_without_run(&self) -> Value {
        without_run(&self.config)
    }
}

fn without_path(config: &Value) -> Value {
    without(config, &[PATH, VERSION, TIMESTAMP])
}

/// Artifacts store the result: its fields stay in the order that these removals leave.
fn without_run(config: &Value) -> Value {
    without(config, &[PATH, "paths", "cache", VERSION, TIMESTAMP])
}

fn without(config: &Value, settings: &[&str]) -> Value {
    let mut config = config.clone();
    if let Some(map) = config.as_object_mut() {
        for setting in settings {
            map.remove(*setting);
        }
    }
    config
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn source(config: Value) -> PipelineSource {
        PipelineSource {
            name: "sales".into(),
            format: "csv".into(),
            config,
            time: None,
            keys: Vec::new(),
            duplicates: None,
            ready: None,
            lookback: None,
            days: Default::default(),
            at: None,
        }
    }

    #[test]
    fn a_column_leaves_the_declared_ones_in_their_order() {
        let mut sales = source(json!({
            "path": "a.csv",
            "columns": { "c": "string", "b": "date", "a": "string" },
            "formats": { "b": "%Y%m%d" },
        }));
        assert!(sales.declares_type("b") && sales.time_format("b").is_some());
        assert!(sales.undeclare("b"));
        assert!(!sales.undeclare("b"));
        let expected = r#"{"path":"a.csv","columns":{"c":"string","a":"string"},"formats":{}}"#;
        assert_eq!(sales.config.to_string(), expected);

        let mut names = source(json!({ "columns": ["b", "a"] }));
        assert!(names.declares_columns() && !names.declares_type("a"));
        assert!(names.undeclare("b"));
        assert_eq!(names.config, json!({ "columns": ["a"] }));
    }

    #[test]
    fn found_types_declare_all_columns() {
        let mut sales = source(json!({ "path": "a.csv" }));
        assert!(!sales.declares_columns());
        let mut types = Map::new();
        types.insert("qty".to_owned(), json!("int64"));
        sales.declare_found_types(types);
        assert!(sales.declares_type("qty"));
        assert_eq!(sales.config["found_types"], json!(true));
    }

    #[test]
    fn a_pinned_version_replaces_a_time() {
        let mut table = source(json!({ "path": "t", "timestamp": "2016-05-22" }));
        table.pin_version(7);
        assert_eq!(table.config, json!({ "path": "t", "version": 7 }));
        assert_eq!(table.config_without_path(), json!({}));
    }

    #[test]
    fn locations_are_no_part_of_what_is_stored() {
        let config = json!({ "paths": ["a", "b"], "cache": { "path": "c" }, "nulls": [""] });
        let mut sales = source(config.clone());
        assert_eq!(sales.path(), None);
        assert_eq!(sales.config_without_path(), config);
        assert_eq!(sales.config_without_run(), json!({ "nulls": [""] }));
        sales.set_path("d");
        assert_eq!(sales.path(), Some("d"));
        assert_eq!(sales.config_without_path(), config);
    }
}
