//! Keys and values in Arrow's row format, as states hold them.

use arrow::array::ArrayRef;
use arrow::row::RowConverter;

use crate::{Fault, Result, catch_panic, codes};

/// The columns of encoded rows.
///
/// Arrow's decoder panics at bytes that it has not written: damaged ones are a fault.
pub fn decode_rows<'r>(
    converter: &RowConverter,
    rows: impl Iterator<Item = &'r [u8]>,
) -> Result<Vec<ArrayRef>> {
    let parser = converter.parser();
    let parsed = rows.map(|row| parser.parse(row));
    let decoded = catch_panic(|| Ok(converter.convert_rows(parsed)?));
    decoded.map_err(|cause| {
        let message = "a state holds a key or a value that cannot be decoded";
        Fault::new(codes::CORRUPT, message).note(cause.to_string())
    })
}
