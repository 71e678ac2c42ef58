//! What the log tells of the files that a run adds: their partition values, and statistics from their footers.

use std::collections::BTreeMap;

use arrow::datatypes::{DataType, Schema};
use forebay_model::{Fault, Result, codes};
use forebay_storage::{StorageClient, TableFile};
use forebay_threads::parallel_map;

use crate::delta::place::{TablePlace, full_path};
use crate::files::hive;
use crate::parquet::{FileBatches, FooterCache};

use super::actions::AddedFile;
use super::file_statistics::file_statistics;
use super::schema::WrittenColumns;

/// Footers that are read at the same time.
const FOOTERS_AT_ONCE: usize = 16;

/// Reads what the log is to tell of some files.
pub(super) fn added_files(
    io: &StorageClient,
    place: &TablePlace,
    columns: &WrittenColumns,
    files: &[TableFile<'_>],
) -> Result<Vec<AddedFile>> {
    let (stored, footers) = (columns.file_schema(), FooterCache::default());
    let one = |at: usize| added_file(io, place, &footers, columns, &stored, files[at]);
    parallel_map(FOOTERS_AT_ONCE.min(files.len()), files.len(), &one)
}

fn added_file(
    io: &StorageClient,
    place: &TablePlace,
    footers: &FooterCache,
    columns: &WrittenColumns,
    stored: &Schema,
    TableFile { path, rows, bytes }: TableFile<'_>,
) -> Result<AddedFile> {
    let values = hive::partition_values(path);
    let value = |name: &String| {
        let text = values
            .iter()
            .find(|(column, _)| column == name)
            .map(|(_, text)| text.as_str());
        let text =
            text.ok_or_else(|| Fault::internal("a file of a table without its partition values"))?;
        let data_type = columns.schema.field_with_name(name)?.data_type();
        Ok((name.clone(), partition_value(name, text, data_type)?))
    };
    let partition = columns
        .partition_by
        .iter()
        .map(value)
        .collect::<Result<BTreeMap<_, _>>>()?;
    let footer =
        FileBatches::open(io, footers, &full_path(place.root.join(path)), bytes)?.metadata();
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
                "`{column}` is an empty text in some rows, which the log of a Delta table cannot tell from null"
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
