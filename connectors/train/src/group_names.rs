//! Names of groups and series: the values of some columns, as text.

use arrow::array::{Array, ArrayRef, AsArray};
use arrow::compute::cast;
use arrow::datatypes::DataType;
use forebay_model::Result;

/// The values that name a group: nulls are values of their own.
pub type GroupName = Vec<Option<String>>;

/// Columns that name groups, as text.
pub fn group_columns(columns: &[ArrayRef]) -> Result<Vec<ArrayRef>> {
    columns
        .iter()
        .map(|column| Ok(cast(column, &DataType::Utf8)?))
        .collect()
}

/// The values that name the group of a row.
pub fn group_name(columns: &[ArrayRef], row: usize) -> GroupName {
    let value = |column: &ArrayRef| {
        let text = column.as_string_opt::<i32>()?;
        text.is_valid(row).then(|| text.value(row).to_owned())
    };
    columns.iter().map(value).collect()
}

/// `CA_1, FOODS`, in quotes of code.
pub fn group_text(group: &[Option<String>]) -> String {
    let values: Vec<&str> = group
        .iter()
        .map(|value| value.as_deref().unwrap_or("null"))
        .collect();
    format!("`{}`", values.join(", "))
}

/// Name of a series in a message; all rows are one where no columns tell series apart.
pub fn series_text(name: &[Option<String>]) -> String {
    if name.is_empty() {
        "the series".to_owned()
    } else {
        format!("the series {}", group_text(name))
    }
}
