//! Types at any depth of a column.

use std::sync::Arc;

use arrow::datatypes::{DataType, FieldRef, Fields};

/// The field with each type replaced for which `replacement` gives another one, inside structs, lists and maps, too.
pub(crate) fn replace_types(
    field: &FieldRef,
    replacement: fn(&DataType) -> Option<DataType>,
) -> FieldRef {
    let inside = |inner: &FieldRef| replace_types(inner, replacement);
    let data_type = match field.data_type() {
        DataType::Struct(fields) => DataType::Struct(fields.iter().map(inside).collect()),
        DataType::List(item) => DataType::List(inside(item)),
        DataType::LargeList(item) => DataType::LargeList(inside(item)),
        DataType::FixedSizeList(item, length) => DataType::FixedSizeList(inside(item), *length),
        DataType::Map(entries, is_sorted) => DataType::Map(inside(entries), *is_sorted),
        plain => replacement(plain).unwrap_or_else(|| plain.clone()),
    };
    Arc::new(field.as_ref().clone().with_data_type(data_type))
}

/// A type in the layout that steps read: without dictionaries, runs of equal values and views of lists, at any depth.
pub fn plain_layout(data_type: &DataType) -> DataType {
    match data_type {
        DataType::Dictionary(_, values) => plain_layout(values),
        DataType::RunEndEncoded(_, values) => plain_layout(values.data_type()),
        DataType::List(item) | DataType::ListView(item) => DataType::List(plain_field(item)),
        DataType::LargeList(item) | DataType::LargeListView(item) => {
            DataType::LargeList(plain_field(item))
        }
        DataType::FixedSizeList(item, length) => {
            DataType::FixedSizeList(plain_field(item), *length)
        }
        DataType::Struct(fields) => DataType::Struct(fields.iter().map(plain_field).collect()),
        DataType::Map(entries, is_sorted) => DataType::Map(plain_field(entries), *is_sorted),
        other => other.clone(),
    }
}

fn plain_field(field: &FieldRef) -> FieldRef {
    let data_type = plain_layout(field.data_type());
    Arc::new(field.as_ref().clone().with_data_type(data_type))
}

/// The part of a type for which a predicate holds, at any depth.
pub fn find_type(data_type: &DataType, predicate: fn(&DataType) -> bool) -> Option<&DataType> {
    if predicate(data_type) {
        return Some(data_type);
    }
    match data_type {
        DataType::Dictionary(_, values) => find_type(values, predicate),
        DataType::List(item)
        | DataType::LargeList(item)
        | DataType::ListView(item)
        | DataType::LargeListView(item)
        | DataType::FixedSizeList(item, _)
        | DataType::Map(item, _)
        | DataType::RunEndEncoded(_, item) => find_type(item.data_type(), predicate),
        DataType::Struct(fields) => {
            let mut fields = fields.iter();
            fields.find_map(|field| find_type(field.data_type(), predicate))
        }
        DataType::Union(fields, _) => {
            let mut fields = fields.iter();
            fields.find_map(|(_, field)| find_type(field.data_type(), predicate))
        }
        _ => None,
    }
}

/// True for types in which rows share texts or bytes: dictionaries and views.
pub(crate) fn is_shared(data_type: &DataType) -> bool {
    matches!(
        data_type,
        DataType::Dictionary(..) | DataType::Utf8View | DataType::BinaryView
    )
}

/// A list, map or struct with views of its texts and bytes: rows share them until they are copied.
pub(crate) fn with_views(field: &FieldRef) -> FieldRef {
    replace_types(field, view_type)
}

fn view_type(data_type: &DataType) -> Option<DataType> {
    match data_type {
        DataType::Utf8 | DataType::LargeUtf8 => Some(DataType::Utf8View),
        DataType::Binary | DataType::LargeBinary => Some(DataType::BinaryView),
        _ => None,
    }
}

/// True for values of which each has one of several types.
pub(crate) fn is_union(data_type: &DataType) -> bool {
    matches!(data_type, DataType::Union(..))
}

/// The fields with decimals of 32 and 64 bits in 128: expressions compute with those, and would take narrow ones beside
/// integers for integers.
pub(crate) fn with_wide_decimals(fields: &Fields) -> Fields {
    let widened = fields
        .iter()
        .map(|field| replace_types(field, wide_decimal));
    widened.collect()
}

fn wide_decimal(data_type: &DataType) -> Option<DataType> {
    match data_type {
        DataType::Decimal32(precision, scale) | DataType::Decimal64(precision, scale) => {
            Some(DataType::Decimal128(*precision, *scale))
        }
        _ => None,
    }
}
