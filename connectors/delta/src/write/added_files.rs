//! Log entries of the files that a run adds: their partition values, and statistics from their
//! footers.

use std::collections::BTreeMap;

use arrow::datatypes::{DataType, Schema};
use forebay_contract::TableFile;
use forebay_formats::{FileBatches, FooterCache, hive};
use forebay_model::{Fault, Result, codes};
use forebay_storage::StorageClient;
use forebay_threads::parallel_map;

use crate::place::{TablePlace, full_path};

use super::actions::AddedFile;
use super::file_statistics::file_statistics;
use super::schema::WrittenColumns;

/// Footers that are read at the same time.
const FOOTERS_AT_ONCE: usize = 16;

/// Reads the log entries of some files.
pub(super) fn added_files(
    io: &StorageClient,
    table_place: &TablePlace,
    columns: &WrittenColumns,
    files: &[TableFile<'_>],
) -> Result<Vec<AddedFile>> {
    let stored = columns.file_schema();
    let footers = FooterCache::default();
    let added = |at: usize| added_file(io, table_place, &footers, columns, &stored, files[at]);
    parallel_map(FOOTERS_AT_ONCE.min(files.len()), files.len(), &added)
}

fn added_file(
    io: &StorageClient,
    table_place: &TablePlace,
    footers: &FooterCache,
    columns: &WrittenColumns,
    stored: &Schema,
    TableFile { path, rows, bytes }: TableFile<'_>,
) -> Result<AddedFile> {
    let folder_values = hive::partition_values(path);
    let mut partition = BTreeMap::new();
    for name in &columns.partition_by {
        let (_, text) = folder_values
            .iter()
            .find(|(column, _)| column == name)
            .ok_or_else(|| Fault::internal("a file of a table without its partition values"))?;
        let data_type = columns.schema.field_with_name(name)?.data_type();
        partition.insert(name.clone(), partition_value(name, text, data_type)?);
    }
    let full = full_path(table_place.root.join(path));
    let footer = FileBatches::open(io, footers, &full, bytes)?.metadata();
    let statistics = file_statistics(&footer, stored, rows);
    Ok(AddedFile {
        path: path.to_owned(),
        bytes,
        partition,
        statistics,
    })
}

/// A value as the log writes it, from one that a folder is named by; `None` is null.
fn partition_value(column: &str, text: &str, data_type: &DataType) -> Result<Option<String>> {
    Ok(match (text, data_type) {
        (hive::NULL, _) => None,
        ("", _) => {
            let message = format!(
                "`{column}` is an empty text in some rows, which the log of a Delta table cannot \
                 tell from null"
            );
            let fault = Fault::new(codes::BAD_ROW, message).column(column);
            return Err(fault.hint("write another word for it, or do not partition by the column"));
        }
        // Times have a blank between date and time, and are in UTC.
        (time, DataType::Timestamp(..)) => Some(time.trim_end_matches('Z').replacen('T', " ", 1)),
        (other, _) => Some(other.to_owned()),
    })
}

#[cfg(test)]
mod tests {
    use arrow::datatypes::TimeUnit;

    use super::*;

    #[test]
    fn partition_values_are_written_as_the_format_demands() {
        let time = DataType::Timestamp(TimeUnit::Microsecond, Some("UTC".into()));
        let value = |text: &str, data_type: &DataType| partition_value("p", text, data_type);
        assert_eq!(
            value("2024-01-01T06:00:00.5Z", &time).unwrap().as_deref(),
            Some("2024-01-01 06:00:00.5")
        );
        assert_eq!(
            value("aTZ", &DataType::Utf8).unwrap().as_deref(),
            Some("aTZ")
        );
        assert_eq!(value(hive::NULL, &time).unwrap(), None);
        assert_eq!(
            value("", &DataType::Utf8).unwrap_err().code(),
            codes::BAD_ROW
        );
    }
}
