//! Names of outputs, and small faults.

use std::collections::BTreeSet;
use std::sync::Arc;

use arrow::datatypes::{DataType, Field};
use forebay_model::{Fault, Finding, Result, codes};

/// The name of a column's output: that of the column, or with a suffix.
pub(crate) fn output_name(column: &str, suffix: &Option<String>) -> String {
    format!("{column}{}", suffix.as_deref().unwrap_or_default())
}

/// The field of an output that stands for a column; it can be null where the column can.
pub(crate) fn output_field(field: &Field, suffix: &Option<String>, data_type: DataType) -> Field {
    Field::new(
        output_name(field.name(), suffix),
        data_type,
        field.is_nullable(),
    )
}

/// A fault for a value of the configuration that cannot be.
pub(crate) fn bad_value(message: impl Into<String>) -> Fault {
    Fault::new(codes::BAD_VALUE, message)
}

/// Refuses a list of categories that has one of them twice: the second one would never be met.
pub(crate) fn refuse_repeated_categories(categories: Option<&[String]>) -> Result<()> {
    let categories = categories.unwrap_or_default();
    let mut seen = BTreeSet::new();
    match categories.iter().find(|category| !seen.insert(*category)) {
        Some(category) => Err(
            bad_value(format!("the category `{category}` is listed twice"))
                .hint("take one of them out of `categories`"),
        ),
        None => Ok(()),
    }
}

/// One of the findings that an operation asked for.
pub(crate) fn finding_at(findings: &[Arc<Finding>], index: usize) -> Result<&Arc<Finding>> {
    findings
        .get(index)
        .ok_or_else(|| Fault::internal("a finding is missing"))
}
