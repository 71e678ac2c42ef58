//! Values of key columns, in the form in which they are compared.

use arrow::array::{Array, ArrayRef};
use arrow::compute::cast;
use arrow::datatypes::DataType;
use forebay_model::{Fault, Result, canonical_keys, codes, type_label, type_words};

/// A key column as values of a type that are compared.
pub(super) fn cast_key(key: &ArrayRef, data_type: &DataType) -> Result<ArrayRef> {
    if key.data_type() == data_type {
        return canonical_keys(key);
    }
    let typed = cast(key, data_type).map_err(|error| {
        let message = format!(
            "a key of type {} is not {}",
            type_label(key.data_type()),
            type_words(data_type)
        );
        Fault::new(codes::COLUMN_TYPE, message).cause(error)
    })?;
    canonical_keys(&typed)
}
