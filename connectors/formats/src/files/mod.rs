//! Shared parts of all formats: finding files, their partitions and schemas, and cutting spans.

pub(crate) mod blob;
pub(crate) mod columns;
pub(crate) mod common_type;
pub(crate) mod conform;
pub(crate) mod cut;
pub(crate) mod drift;
pub(crate) mod encoding;
pub(crate) mod extent;
pub(crate) mod formatted;
pub(crate) mod glob;
pub mod hive;
pub(crate) mod input_file;
pub(crate) mod list;
pub(crate) mod nested_types;
pub(crate) mod origin;
pub(crate) mod packed;
pub(crate) mod readable;
pub(crate) mod records;
pub(crate) mod rows;
pub(crate) mod shared_values;
pub(crate) mod stamp;
pub(crate) mod stream;
pub(crate) mod survey;
pub(crate) mod texts;

mod column_type;
mod policy;

pub use column_type::{ColumnType, ColumnTypes};
pub use encoding::TextEncoding;
pub use packed::TextCompression;
pub use policy::{
    AddedColumnPolicy, LocalTimePolicy, MissingColumnPolicy, OnReadError, PartitionPolicy,
    ReadErrorPolicy, SchemaPolicy, TimeUnitPolicy,
};
