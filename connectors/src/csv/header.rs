//! The names of a CSV file's columns.

use csv::{ByteRecord, Reader, ReaderBuilder};
use forebay_model::{Fault, Result, codes};
use forebay_threads::lock;

use crate::files::records::FilePart;
use crate::files::rows::InputFile;
use crate::files::stream::{self, BUFFER_BYTES, RecordLimitReader, RecordStart};

use super::{CsvSource, SameNamePolicy};

/// The records of a file and the names of its columns.
pub(super) struct CsvRecords {
    pub(super) names: Vec<String>,
    pub(super) records: Reader<RecordLimitReader>,
    /// To be told before each record is read.
    pub(super) start: RecordStart,
    /// The first record, where it is a row.
    pub(super) first: Option<ByteRecord>,
}

/// Opens a part of a file that does not begin with its first record.
fn open_part(config: &CsvSource, file: &InputFile, part: &FilePart) -> Result<CsvRecords> {
    let mut names = lock(&part.names)?;
    let names = match &*names {
        Some(names) => names.clone(),
        None => names
            .insert(open_records(config, &file.whole())?.names)
            .clone(),
    };
    let start = RecordStart::default();
    let records = reader(config, file, &start)?;
    Ok(CsvRecords {
        names,
        records,
        start,
        first: None,
    })
}

fn reader(
    config: &CsvSource,
    file: &InputFile,
    start: &RecordStart,
) -> Result<Reader<RecordLimitReader>> {
    let mut builder = ReaderBuilder::new();
    builder
        .delimiter(config.delimiter_byte())
        .quote(config.quote_byte())
        .escape(config.escape_byte())
        .double_quote(config.escape_byte().is_none())
        .comment(config.comment_byte())
        .has_headers(false)
        .buffer_capacity(BUFFER_BYTES);
    let stream = config.encoding.decode(file.stream()?);
    Ok(builder.from_reader(RecordLimitReader::new(stream, start)))
}

/// Opens a file and reads its first record.
pub(super) fn open_records(config: &CsvSource, file: &InputFile) -> Result<CsvRecords> {
    if let Some(part) = file.part.as_ref().filter(|part| part.bytes.start > 0) {
        return open_part(config, file, part);
    }
    let start = RecordStart::default();
    let mut records = reader(config, file, &start)?;
    let mut first = ByteRecord::new();
    let found = records
        .read_byte_record(&mut first)
        .map_err(|error| record_fault(&file.path, 0, error))?;
    let names = match (found, config.header, &config.columns) {
        (false, ..) => Vec::new(),
        (true, true, _) => header_names(config, &file.path, &first)?,
        (true, false, Some(columns)) => columns.0.iter().map(|(name, _)| name.clone()).collect(),
        (true, false, None) => (1..=first.len()).map(|i| format!("column_{i}")).collect(),
    };
    Ok(CsvRecords {
        names,
        records,
        start,
        first: (found && !config.header).then_some(first),
    })
}

/// The names in a header. Several columns without a name are called by their places.
fn header_names(config: &CsvSource, path: &str, header: &ByteRecord) -> Result<Vec<String>> {
    let mut names = Vec::with_capacity(header.len());
    for name in header {
        let name = std::str::from_utf8(name).map_err(|error| {
            Fault::new(codes::BAD_ROW, "the header is not valid UTF-8")
                .file(path)
                .cause(error)
                .hint("set `encoding`, such as `windows-1252` or `utf-16`")
        })?;
        names.push(name.to_owned());
    }
    let nameless = names.iter().filter(|name| name.is_empty()).count();
    if nameless > 1 {
        for (at, name) in names.iter_mut().enumerate() {
            if name.is_empty() {
                *name = format!("column_{}", at + 1);
            }
        }
    }
    if config.same_names == SameNamePolicy::Number {
        return Ok(number_names(&names));
    }
    // Columns that are not read may have any name.
    let is_read = |name: &String| {
        let declared = config.columns.as_ref();
        declared.is_none_or(|columns| columns.0.iter().any(|(column, _)| column == name))
    };
    for (at, name) in names.iter().enumerate() {
        if names[..at].contains(name) && is_read(name) {
            let message = format!("two columns are called `{name}`");
            return Err(Fault::new(codes::DUPLICATE, message)
                .file(path)
                .column(name)
                .hint(
                    "set `same_names: number` to read the second one as `name_2`, or `header: false` and `columns` \
                     if the first record is a row",
                ));
        }
    }
    Ok(names)
}

/// Names of which those that come again have a number: `name`, `name_2`.
fn number_names(names: &[String]) -> Vec<String> {
    let mut numbered: Vec<String> = Vec::with_capacity(names.len());
    for (at, name) in names.iter().enumerate() {
        if !names[..at].contains(name) {
            numbered.push(name.clone());
            continue;
        }
        let mut number = 2;
        let mut candidate = format!("{name}_{number}");
        while names.contains(&candidate) || numbered.contains(&candidate) {
            number += 1;
            candidate = format!("{name}_{number}");
        }
        numbered.push(candidate);
    }
    numbered
}

/// A fault for a record that cannot be read.
pub(super) fn record_fault(path: &str, row: u64, error: csv::Error) -> Fault {
    match error.into_kind() {
        csv::ErrorKind::Io(error) => {
            let fault = stream::stream_fault(path, error);
            if fault.code() == codes::BAD_ROW {
                fault.rows([row])
            } else {
                fault
            }
        }
        csv::ErrorKind::UnequalLengths {
            expected_len, len, ..
        } => field_count_fault(path, row, expected_len, len),
        other => Fault::new(codes::BAD_ROW, format!("the row cannot be read: {other:?}"))
            .file(path)
            .rows([row]),
    }
}

/// A fault for a record with more or fewer fields than there are columns.
pub(super) fn field_count_fault(
    path: &str,
    row: u64,
    expected: impl std::fmt::Display,
    found: impl std::fmt::Display,
) -> Fault {
    let fault = Fault::new(
        codes::BAD_ROW,
        format!("the row has {found} fields, and there are {expected} columns"),
    );
    fault
        .file(path)
        .rows([row])
        .hint("correct the row, or set `delimiter`")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(config: &CsvSource, header: &[&str]) -> Result<Vec<String>> {
        header_names(config, "a.csv", &ByteRecord::from(header.to_vec()))
    }

    #[test]
    fn columns_without_a_name_of_their_own_can_be_read() {
        let plain = CsvSource::at("a.csv");
        assert_eq!(names(&plain, &["", "x"]).unwrap(), ["", "x"]);
        assert_eq!(
            names(&plain, &["id", "", ""]).unwrap(),
            ["id", "column_2", "column_3"]
        );
        let fault = names(&plain, &["a", "b", "a"]).unwrap_err();
        assert_eq!(fault.code(), codes::DUPLICATE);
        let declared = plain.clone().column("b", crate::ColumnType::String);
        assert!(names(&declared, &["a", "b", "a"]).is_ok());
        assert!(names(&declared, &["b", "b"]).is_err());
        let numbered = CsvSource {
            same_names: SameNamePolicy::Number,
            ..plain
        };
        assert_eq!(
            names(&numbered, &["a", "a", "a_2", "a"]).unwrap(),
            ["a", "a_3", "a_2", "a_4"]
        );
    }
}
