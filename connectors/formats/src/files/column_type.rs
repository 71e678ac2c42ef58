//! Types of columns, as specs name them.

use std::collections::BTreeMap;
use std::fmt;

use arrow::datatypes::{DataType, TimeUnit};
use forebay_model::first_repeated;
use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::de::{MapAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// Type of a column in a file of a format without types.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum ColumnType {
    /// `true` or `false`.
    Boolean,
    /// 8 bits, signed.
    Int8,
    /// 16 bits, signed.
    Int16,
    /// 32 bits, signed.
    Int32,
    /// 64 bits, signed.
    Int64,
    /// 8 bits, unsigned.
    Uint8,
    /// 16 bits, unsigned.
    Uint16,
    /// 32 bits, unsigned.
    Uint32,
    /// 64 bits, unsigned.
    Uint64,
    /// Single precision.
    Float32,
    /// Double precision.
    Float64,
    /// Text.
    String,
    /// A day, such as `2013-01-31`.
    Date,
    /// Date and time in microseconds, without a time zone. A text with an offset is that instant in UTC.
    Timestamp,
    /// Date and time in nanoseconds, without a time zone: from 1677 to 2262.
    TimestampNs,
    /// An instant in microseconds, in UTC. A text says its offset, or is in UTC.
    TimestampUtc,
}

impl ColumnType {
    pub(crate) fn data_type(self) -> DataType {
        match self {
            ColumnType::Boolean => DataType::Boolean,
            ColumnType::Int8 => DataType::Int8,
            ColumnType::Int16 => DataType::Int16,
            ColumnType::Int32 => DataType::Int32,
            ColumnType::Int64 => DataType::Int64,
            ColumnType::Uint8 => DataType::UInt8,
            ColumnType::Uint16 => DataType::UInt16,
            ColumnType::Uint32 => DataType::UInt32,
            ColumnType::Uint64 => DataType::UInt64,
            ColumnType::Float32 => DataType::Float32,
            ColumnType::Float64 => DataType::Float64,
            ColumnType::String => DataType::Utf8,
            ColumnType::Date => DataType::Date32,
            ColumnType::Timestamp => DataType::Timestamp(TimeUnit::Microsecond, None),
            ColumnType::TimestampNs => DataType::Timestamp(TimeUnit::Nanosecond, None),
            ColumnType::TimestampUtc => {
                DataType::Timestamp(TimeUnit::Microsecond, Some("UTC".into()))
            }
        }
    }
}

/// Columns and their types, in the order of the spec.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ColumnTypes(pub Vec<(String, ColumnType)>);

impl ColumnTypes {
    /// The first name that occurs twice.
    pub(crate) fn first_duplicate(&self) -> Option<&str> {
        first_repeated(self.names())
    }

    /// The names.
    pub(crate) fn names(&self) -> impl Iterator<Item = &str> {
        self.0.iter().map(|(name, _)| name.as_str())
    }
}

impl Serialize for ColumnTypes {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(self.0.iter().map(|(name, of)| (name, of)))
    }
}

impl<'de> Deserialize<'de> for ColumnTypes {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct ColumnTypesVisitor;
        impl<'de> Visitor<'de> for ColumnTypesVisitor {
            type Value = ColumnTypes;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a map from columns to types")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<ColumnTypes, A::Error> {
                let mut columns = Vec::new();
                while let Some(column) = map.next_entry()? {
                    columns.push(column);
                }
                Ok(ColumnTypes(columns))
            }
        }
        deserializer.deserialize_map(ColumnTypesVisitor)
    }
}

impl JsonSchema for ColumnTypes {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "ColumnTypes".into()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        BTreeMap::<String, ColumnType>::json_schema(generator)
    }
}
