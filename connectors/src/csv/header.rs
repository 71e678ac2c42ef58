//! The names of a CSV file's columns.

use csv::{ByteRecord, Reader, ReaderBuilder};
use forebay_model::{Fault, Result, codes};
use forebay_threads::lock;

use crate::files::records::FilePart;
use crate::files::rows::InputFile;
use crate::files::stream::{self, BUFFER_BYTES, RecordLimitReader, RecordStart};

use super::CsvSource;

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
        .has_headers(false)
        .buffer_capacity(BUFFER_BYTES);
    Ok(builder.from_reader(RecordLimitReader::new(file.stream()?, start)))
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
    let header = |name: &[u8]| {
        let fault =
            || Fault::new(codes::BAD_ROW, "the header is not valid UTF-8").file(file.path.as_ref());
        std::str::from_utf8(name)
            .map(str::to_owned)
            .map_err(|error| fault().cause(error))
    };
    let names = match (found, config.header, &config.columns) {
        (false, ..) => Vec::new(),
        (true, true, _) => first.iter().map(header).collect::<Result<_>>()?,
        (true, false, Some(columns)) => columns.0.iter().map(|(name, _)| name.clone()).collect(),
        (true, false, None) => (1..=first.len()).map(|i| format!("column_{i}")).collect(),
    };
    if let Some(name) = names
        .iter()
        .enumerate()
        .find(|(i, name)| names[..*i].contains(name))
        .map(|(_, name)| name)
    {
        return Err(
            Fault::new(codes::DUPLICATE, format!("two columns are called `{name}`"))
                .file(file.path.as_ref())
                .column(name)
                .hint("set `header: false` and declare `columns` if the first record is a row"),
        );
    }
    Ok(CsvRecords {
        names,
        records,
        start,
        first: (found && !config.header).then_some(first),
    })
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
