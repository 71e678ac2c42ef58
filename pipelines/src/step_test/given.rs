//! Given rows of a source in a test.

use std::collections::BTreeMap;
use std::path::Path;

use forebay_connectors::{ColumnType, JsonSource};
use forebay_contract::literal_path;
use forebay_model::{DuplicateRows, Fault, PipelineSource, Result};
use serde_json::Value;

use super::GivenRows;

impl GivenRows {
    /// Makes a source read these rows, from a file in `directory`.
    pub fn put_in_place(&self, source: &mut PipelineSource, directory: &Path) -> Result<()> {
        let path = directory.join(format!("{}.jsonl", self.source));
        let mut lines = String::new();
        for row in &self.rows {
            lines += &format!("{}\n", Value::Object(row.clone()));
        }
        std::fs::write(&path, lines)
            .map_err(|error| Fault::disk("the rows of a test cannot be written", error))?;
        let columns = self.columns();
        let is_given = |name: &String| columns.iter().any(|(column, _)| column == name);
        // Only steps that use time or keys need them.
        source.time = source.time.take().filter(is_given);
        let keys_declared = source.keys.len();
        source.keys.retain(is_given);
        if source.keys.len() < keys_declared {
            // Rows of several series look alike.
            source.duplicates = Some(DuplicateRows::Allow);
        }
        let mut config = JsonSource::at(literal_path(&path.display().to_string()));
        for (name, column_type) in columns {
            config = config.column(name, column_type);
        }
        config.formats = written_formats(source, &config);
        source.format = "json".to_owned();
        source.config = serde_json::to_value(config).map_err(|error| {
            Fault::internal("the rows of a test cannot be configured").cause(error)
        })?;
        Ok(())
    }

    /// The columns and their types, in the order in which they are first named.
    fn columns(&self) -> Vec<(String, ColumnType)> {
        let mut columns: Vec<(String, ColumnType)> = self.types.0.clone();
        let mut values: BTreeMap<&str, Vec<&Value>> = BTreeMap::new();
        let mut names: Vec<&str> = Vec::new();
        for (name, value) in self.rows.iter().flatten() {
            let column = values.entry(name).or_default();
            if column.is_empty() {
                names.push(name);
            }
            column.push(value);
        }
        for name in names {
            if !columns.iter().any(|(column, _)| column == name) {
                columns.push((name.to_owned(), type_of(&values[name])));
            }
        }
        columns
    }
}

/// The formats of the source's columns that are given as they are written in its files, and not as dates or times.
fn written_formats(source: &PipelineSource, json_source: &JsonSource) -> BTreeMap<String, String> {
    let mut formats = BTreeMap::new();
    for (name, of) in json_source.columns.iter().flat_map(|columns| &columns.0) {
        let is_date_or_time = matches!(
            of,
            ColumnType::Date
                | ColumnType::Timestamp
                | ColumnType::TimestampNs
                | ColumnType::TimestampUtc
        );
        if let Some(format) = source.time_format(name).filter(|_| !is_date_or_time) {
            formats.insert(name.clone(), format.text().to_owned());
        }
    }
    formats
}

/// The type that holds all values of a column.
fn type_of(values: &[&Value]) -> ColumnType {
    let mut present = values.to_vec();
    present.retain(|value| !value.is_null());
    let all_are = |is_of_kind: fn(&Value) -> bool| present.iter().all(|value| is_of_kind(value));
    if present.is_empty() {
        ColumnType::String
    } else if all_are(Value::is_boolean) {
        ColumnType::Boolean
    } else if all_are(Value::is_i64) {
        ColumnType::Int64
    } else if all_are(Value::is_u64) {
        ColumnType::Uint64
    } else if all_are(fits_float) {
        ColumnType::Float64
    } else if all_are(is_date_text) {
        ColumnType::Date
    } else if all_are(is_time_text) {
        ColumnType::Timestamp
    } else {
        ColumnType::String
    }
}

fn is_date_text(value: &Value) -> bool {
    is_date(value.as_str().unwrap_or_default())
}

fn is_time_text(value: &Value) -> bool {
    let text = value.as_str().unwrap_or_default();
    text.parse::<jiff::civil::DateTime>().is_ok()
}

/// True if a float holds all digits of a number.
fn fits_float(value: &Value) -> bool {
    value.is_f64()
        || value
            .as_i64()
            .is_some_and(|number| number.unsigned_abs() <= 1 << f64::MANTISSA_DIGITS)
}

/// `2024-02-29`.
fn is_date(text: &str) -> bool {
    text.len() == "2024-02-29".len() && text.parse::<jiff::civil::Date>().is_ok()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn types_hold_all_values() {
        let cases = [
            (json!([1, null, 2]), ColumnType::Int64),
            (json!([1, 2.5]), ColumnType::Float64),
            (json!([1, 18446744073709551615u64]), ColumnType::Uint64),
            (json!([-1, 18446744073709551615u64]), ColumnType::String),
            (json!([0.5, 9007199254740993i64]), ColumnType::String),
            (json!([true, false]), ColumnType::Boolean),
            (json!(["2024-01-01", null]), ColumnType::Date),
            (
                json!(["2024-01-01", "2024-01-01T06:30:00"]),
                ColumnType::Timestamp,
            ),
            (json!(["2024-01-01", "soon"]), ColumnType::String),
            (json!(["1", 2]), ColumnType::String),
            (json!([null]), ColumnType::String),
        ];
        for (values, expected) in cases {
            let values: Vec<&Value> = values.as_array().unwrap().iter().collect();
            assert_eq!(type_of(&values), expected, "{values:?}");
        }
    }
}
