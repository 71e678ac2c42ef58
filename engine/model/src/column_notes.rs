//! Notes beside columns that formats read and write, and that operations do not look at.

use std::collections::HashMap;

use arrow::datatypes::Field;

/// The note of the logical types of Parquet that a column's parts have and that Arrow does not know.
pub const PARQUET_TYPES: &str = "forebay:parquet_types";

/// Arrow's notes of extension types, such as `arrow.uuid`.
const EXTENSION: [&str; 2] = ["ARROW:extension:name", "ARROW:extension:metadata"];

/// The notes of a column that stay with it as long as it passes through unchanged.
pub fn lasting_notes(field: &Field) -> HashMap<String, String> {
    field
        .metadata()
        .iter()
        .filter(|(key, _)| *key == PARQUET_TYPES || EXTENSION.contains(&key.as_str()))
        .map(|(key, value)| (key.clone(), value.clone()))
        .collect()
}

/// A column without these notes: what an operation writes is another column.
pub fn without_lasting_notes(field: &Field) -> Field {
    let mut metadata = field.metadata().clone();
    metadata.retain(|key, _| key != PARQUET_TYPES && !EXTENSION.contains(&key.as_str()));
    field.clone().with_metadata(metadata)
}
