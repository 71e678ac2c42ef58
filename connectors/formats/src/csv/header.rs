//! The names of a CSV file's columns.

use std::collections::{HashMap, HashSet};

use forebay_model::{Fault, NameIndex, Result, codes, first_repeated};
use forebay_threads::lock;

use crate::files::input_file::{FilePart, InputFile};
use crate::files::stream;

use super::records::{CsvRecord, DELIMITER_LINE, RecordError, RecordReader};
use super::{CsvSource, SameNamePolicy};

/// The records of a file and the names of its columns.
pub(super) struct CsvRecords {
    pub(super) names: Vec<String>,
    pub(super) records: RecordReader,
    /// The byte of the file with which the stream of records begins.
    pub(super) stream_start: u64,
    /// The first record, where it is a row.
    pub(super) first: Option<CsvRecord>,
}

/// Failure to open a file.
pub(super) enum OpenError {
    /// The first record cannot be read.
    Record(Box<CsvRecords>, RecordError),
    /// The file cannot be read, or its header names no columns.
    Fault(Fault),
}

impl From<Fault> for OpenError {
    fn from(fault: Fault) -> OpenError {
        OpenError::Fault(fault)
    }
}

/// Opens a part of a file that does not begin with its first record.
fn open_part(
    config: &CsvSource,
    file: &InputFile,
    part: &FilePart,
) -> Result<CsvRecords, OpenError> {
    let mut names = lock(&part.names)?;
    let names = match &*names {
        Some(names) => names.clone(),
        None => names.insert(open(config, &file.whole())?.names).clone(),
    };
    Ok(CsvRecords {
        names,
        records: reader(config, file)?,
        // The stream of a part has an end of line before it.
        stream_start: part.bytes.start.saturating_sub(1),
        first: None,
    })
}

fn reader(config: &CsvSource, file: &InputFile) -> Result<RecordReader> {
    let stream = config.encoding.decode(file.stream()?);
    RecordReader::new(stream, config.field_syntax(), file.is_from_start())
        .map_err(|error| stream::stream_fault(&file.path, error))
}

/// Opens a file and reads its first record. In a file of one column, empty lines are rows.
pub(super) fn open(config: &CsvSource, file: &InputFile) -> Result<CsvRecords, OpenError> {
    if let Some(part) = file.part.as_ref().filter(|part| part.bytes.start > 0) {
        return open_part(config, file, part);
    }
    let mut opened = open_first_record(config, file, reader(config, file)?)?;
    let columns = match &config.columns {
        Some(columns) if !config.header => columns.0.len(),
        _ => opened.names.len(),
    };
    if columns != 1 || !config.dialect.keeps_empty_lines() {
        return Ok(opened);
    }
    if config.header {
        opened.records.keep_empty_lines();
        return Ok(opened);
    }
    // There may be such rows before the record.
    let mut records = reader(config, file)?;
    records.keep_empty_lines();
    open_first_record(config, file, records)
}

/// Reads the first record of a file: the header, or the first row.
fn open_first_record(
    config: &CsvSource,
    file: &InputFile,
    records: RecordReader,
) -> Result<CsvRecords, OpenError> {
    let mut opened = CsvRecords {
        names: Vec::new(),
        records,
        stream_start: 0,
        first: None,
    };
    let mut first = CsvRecord::default();
    match opened.records.read(&mut first) {
        Ok(true) => {}
        Ok(false) => return Ok(opened),
        Err(error) => return Err(OpenError::Record(Box::new(opened), error)),
    }
    opened.names = match &config.columns {
        _ if config.header => header_names(config, &file.path, &first)?,
        Some(columns) => columns.0.iter().map(|(name, _)| name.clone()).collect(),
        None => (1..=first.len()).map(|i| format!("column_{i}")).collect(),
    };
    opened.first = (!config.header).then_some(first);
    Ok(opened)
}

/// The names in a header. Several columns without a name are called by their places.
fn header_names(config: &CsvSource, path: &str, header: &CsvRecord) -> Result<Vec<String>> {
    let mut names = Vec::with_capacity(header.len());
    if names_delimiter(header) {
        let message = "the first line names the delimiter, as Excel reads it, and no columns";
        let fault = Fault::new(codes::BAD_ROW, message).file(path);
        return Err(fault.hint("set `dialect: excel`"));
    }
    for name in header.iter() {
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
    let declared = config.columns.as_ref();
    let declared = declared.map(|columns| NameIndex::new(columns.names()));
    let is_read = |name: &&str| declared.as_ref().is_none_or(|index| index.contains(name));
    let read_names = names.iter().map(String::as_str).filter(is_read);
    if let Some(name) = first_repeated(read_names) {
        let message = format!("two columns are called `{name}`");
        return Err(Fault::new(codes::DUPLICATE, message)
            .file(path)
            .column(name)
            .hint(
                "set `same_names: number` to read the second one as `name_2`, or `header: false` \
                 and `columns` if the first record is a row",
            ));
    }
    Ok(names)
}

/// True if a record is a line such as `sep=;`.
fn names_delimiter(record: &CsvRecord) -> bool {
    let (first, _) = record.field(0);
    let delimiter = first.strip_prefix(DELIMITER_LINE);
    match delimiter {
        Some([]) => record.len() == 2 && record.field(1).0.is_empty(),
        Some([_]) => record.len() == 1,
        _ => false,
    }
}

/// Names of which those that come again have a number: `name`, `name_2`.
fn number_names(names: &[String]) -> Vec<String> {
    let mut numbered: Vec<String> = Vec::with_capacity(names.len());
    let mut names_in_use: HashSet<String> = names.iter().cloned().collect();
    // The number of the last column of each name.
    let mut numbers: HashMap<&str, usize> = HashMap::new();
    for name in names {
        let number = numbers.entry(name.as_str()).or_default();
        *number += 1;
        let mut candidate = name.clone();
        if *number > 1 {
            candidate = format!("{name}_{number}");
            while names_in_use.contains(&candidate) {
                *number += 1;
                candidate = format!("{name}_{number}");
            }
            names_in_use.insert(candidate.clone());
        }
        numbered.push(candidate);
    }
    numbered
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(config: &CsvSource, header: &[&str]) -> Result<Vec<String>> {
        let text = header.join(",");
        let stream = Box::new(std::io::Cursor::new(text.into_bytes()));
        let mut records = RecordReader::new(stream, config.field_syntax(), true).unwrap();
        let mut record = CsvRecord::default();
        assert!(records.read(&mut record).unwrap());
        header_names(config, "a.csv", &record)
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
