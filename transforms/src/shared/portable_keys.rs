//! Keys of learned numbers, in terms that exports have.

use arrow::array::{Array, ArrayRef, AsArray};
use arrow::compute::cast;
use arrow::datatypes::DataType;
use forebay_contract::{NumberByKeys, NumberExpr, PortableMap};
use forebay_model::{Fault, Result, codes};

/// Most keys whose numbers an exported model holds.
const PORTABLE_KEYS_MAX: usize = 100_000;

/// The texts of key columns, `None` for null.
pub(crate) fn portable_keys(columns: &[ArrayRef]) -> Result<Vec<Vec<Option<String>>>> {
    let count = columns.first().map_or(0, |column| column.len());
    if count > PORTABLE_KEYS_MAX {
        let message = format!(
            "{count} series or keys have numbers of their own, and a file holds at most \
             {PORTABLE_KEYS_MAX}"
        );
        return Err(not_portable(message));
    }
    let mut keys = Vec::with_capacity(columns.len());
    for column in columns {
        let texts = cast(column, &DataType::Utf8)?;
        let texts = texts.as_string::<i32>().iter();
        keys.push(texts.map(|text| text.map(str::to_owned)).collect());
    }
    Ok(keys)
}

/// A number by an expression for each key, and one for all others.
pub(crate) fn portable_by_keys(
    columns: &[ArrayRef],
    expressions: Vec<NumberExpr>,
    of_others: NumberExpr,
) -> Result<PortableMap> {
    let keys = portable_keys(columns)?;
    let number = NumberByKeys::of(keys, expressions, of_others);
    let number = number.ok_or_else(|| {
        not_portable("keys have formulas of different forms, such as a range and a sigmoid")
    })?;
    Ok(PortableMap::NumberByKeys(number))
}

fn not_portable(message: impl Into<String>) -> Fault {
    Fault::new(codes::UNSUPPORTED, message)
        .hint("export with `--without-steps`, or use `forebay predict` or `forebay serve`")
}
