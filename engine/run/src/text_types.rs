//! Words of types in the `columns` of sources whose files hold none.

use arrow::datatypes::{DataType, Field, TimeUnit};
use forebay_model::logical_type;

/// Word of exactly this type; `None` for a type that such a source cannot declare.
pub(crate) fn exact_type(data_type: &DataType) -> Option<&'static str> {
    Some(match data_type {
        DataType::Boolean => "boolean",
        DataType::Int8 => "int8",
        DataType::Int16 => "int16",
        DataType::Int32 => "int32",
        DataType::Int64 => "int64",
        DataType::UInt8 => "uint8",
        DataType::UInt16 => "uint16",
        DataType::UInt32 => "uint32",
        DataType::UInt64 => "uint64",
        DataType::Float32 => "float32",
        DataType::Float64 => "float64",
        DataType::Utf8 => "string",
        DataType::Date32 => "date",
        DataType::Timestamp(TimeUnit::Microsecond, None) => "timestamp",
        DataType::Timestamp(TimeUnit::Nanosecond, None) => "timestamp_ns",
        DataType::Timestamp(TimeUnit::Microsecond, Some(zone)) if zone.as_ref() == "UTC" => {
            "timestamp_utc"
        }
        _ => return None,
    })
}

/// Word of a type that holds the values of this one; `None` for times in a zone, and where there is none.
pub(crate) fn declared_type(data_type: &DataType) -> Option<&'static str> {
    match data_type {
        DataType::Timestamp(_, Some(_)) => None,
        DataType::Timestamp(unit, None) if *unit != TimeUnit::Nanosecond => Some("timestamp"),
        DataType::UInt64 => Some("uint64"),
        data_type if data_type.is_integer() => Some("int64"),
        data_type => exact_type(data_type),
    }
}

/// Word of the type of a column of a forecast; texts hold the instants of times in a zone.
pub(crate) fn forecast_column_type(field: &Field) -> &'static str {
    match logical_type(field.data_type()) {
        DataType::Timestamp(_, Some(_)) => "timestamp_utc",
        data_type => declared_type(&data_type).unwrap_or("string"),
    }
}
