//! Formats of files: Parquet, Arrow, CSV and JSON.
//!
//! Each format has a folder, with its configuration in `config.rs`; `files` holds what all of them
//! share. A source creates a [`forebay_model::Dataset`] from metadata alone and reads spans on the
//! threads of the run; a sink encodes and is independent of commits.

mod arrow;
mod config_checks;
mod csv;
mod files;
mod guard;
mod json;
mod parquet;
mod requests;

pub use crate::arrow::{ArrowCompression, ArrowSink, ArrowSource};
pub use crate::csv::{
    CsvDialect, CsvFindings, CsvSink, CsvSource, SameNamePolicy, StrayQuotes, sniff_csv,
};
pub use crate::json::{JsonSink, JsonSource};
pub use crate::parquet::{Int96Unit, ParquetCompression, ParquetSink, ParquetSource};
pub use files::{
    AddedColumnPolicy, ColumnType, ColumnTypes, LocalTimePolicy, MissingColumnPolicy, OnReadError,
    PartitionPolicy, ReadErrorPolicy, SchemaPolicy, TextCompression, TextEncoding, TimeUnitPolicy,
};
pub use requests::{RequestFormat, read_request};

// Parts that tables over Parquet files are read and written with.
pub use crate::parquet::{
    FileBatches, FooterCache, FooterNotes, FooterSummary, KeptRows, ParquetEncoder, ParquetScan,
    RowGroupPruner, StoredNames, TableFiles, file_bytes_target, group_rows_max, row_group_extents,
    split_pieces,
};
pub use files::blob::file_exists;
pub use files::columns::select_columns;
pub use files::cut::{RowGroupSummary, cut_spans};
pub use files::extent::{folder_extents, ordered_points, share_points};
pub use files::formatted::with_formats;
pub use files::hive;
pub use files::list::ListedFile;
pub use files::nested_types::{find_type, plain_layout};
pub use files::stamp::FileStamp;
pub use files::texts::{check_formats, parse_formats};
