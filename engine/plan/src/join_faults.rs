//! Faults of joins that both of their methods have.

use arrow::array::ArrayRef;
use arrow::util::display::array_value_to_string;
use forebay_model::{Fault, codes};

/// The values of a row in some columns, by their names.
pub fn key_text<'c>(columns: impl Iterator<Item = (&'c str, &'c ArrayRef)>, row: usize) -> String {
    let value = |column: &ArrayRef| array_value_to_string(column, row).unwrap_or_default();
    let named = columns.map(|(name, column)| format!("{name} = {}", value(column)));
    named.collect::<Vec<_>>().join(", ")
}

/// The fault for a key that the other side holds twice.
pub fn duplicate_key_fault(with: &str, key: &str) -> Fault {
    Fault::new(
        codes::CARDINALITY,
        format!("`{with}` holds the key {key} more than once"),
    )
    .hint(format!(
        "`dedupe` or `aggregate` `{with}` first, or set `cardinality: many_to_many`"
    ))
}

/// The fault for a row of the other side that two rows of this side meet.
pub fn met_twice_fault(with: &str, key: &str) -> Fault {
    let message =
        format!("several rows meet one row of `{with}`, which was declared one to one: {key}");
    Fault::new(codes::CARDINALITY, message).hint("set `cardinality: many_to_one`")
}
