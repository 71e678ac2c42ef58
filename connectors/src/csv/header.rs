//! The names of a CSV file's columns.

use std::io::Read;

use forebay_model::{Fault, Result, codes};

use crate::files::rows::OpenFile;
use crate::files::stream;

use super::Csv;

/// Bytes to look at for the first record.
const HEAD_BYTES: usize = 64 << 10;

/// A stream and the names of its columns; the stream still begins with the first record.
pub(super) struct Opened {
    pub(super) names: Vec<String>,
    pub(super) stream: Box<dyn Read + Send>,
}

/// Opens a file and reads its first record.
pub(super) fn open(config: &Csv, file: &OpenFile) -> Result<Opened> {
    let mut stream = stream::open(&file.blob, &file.path, file.size)?;
    let head = stream::head(&mut stream, HEAD_BYTES, &file.path)?;
    let mut records = csv::ReaderBuilder::new()
        .delimiter(config.delimiter())
        .has_headers(false)
        .flexible(true)
        .from_reader(head.as_slice());
    let mut first = csv::StringRecord::new();
    let found = records.read_record(&mut first).map_err(|error| {
        Fault::new(codes::BAD_ROW, "the first row cannot be read").file(file.path.as_ref()).rows([0]).cause(error)
    })?;
    let names = match (found, config.header, &config.columns) {
        (false, ..) => Vec::new(),
        (true, true, _) => first.iter().map(str::to_owned).collect(),
        (true, false, Some(columns)) => columns.0.iter().map(|(name, _)| name.clone()).collect(),
        (true, false, None) => (1..=first.len()).map(|i| format!("column_{i}")).collect(),
    };
    if let Some(name) = names.iter().enumerate().find(|(i, name)| names[..*i].contains(name)).map(|(_, name)| name) {
        return Err(Fault::new(codes::DUPLICATE, format!("two columns are called `{name}`"))
            .file(file.path.as_ref())
            .column(name)
            .hint("set `header: false` and declare `columns` if the first record is a row"));
    }
    Ok(Opened { names, stream: Box::new(std::io::Cursor::new(head).chain(stream)) })
}
