//! Faults of records, with their places in the file.

use std::io::{self, Read};

use forebay_model::{Fault, codes};

use crate::files::input_file::InputFile;
use crate::files::stream;

use super::header::CsvRecords;
use super::records::{CsvRecord, Malformed, QuoteProblem, RecordError};
use super::text_place::{TextPlace, text_place};
use super::{CsvSource, StrayQuotes, header, sniff};

/// Bytes of a file that are looked at for its dialect.
const HEAD_BYTES: u64 = 256 << 10;

/// A record of a file. Its line is found once a fault needs it.
#[derive(Clone, Copy)]
pub(super) struct RecordPlace<'a> {
    pub(super) config: &'a CsvSource,
    /// The whole file.
    pub(super) file: &'a InputFile,
    /// Its row; `None` for the header.
    pub(super) row: Option<u64>,
}

impl RecordPlace<'_> {
    /// A fault with file, row and line.
    pub(super) fn locate(&self, fault: Fault) -> Fault {
        let fault = fault.file(self.file.path.as_ref());
        let Some(row) = self.row else {
            return fault;
        };
        let fault = fault.rows([row]);
        match self.line() {
            Some(line) => fault.note(format!("the row begins in line {line} of the file")),
            None => fault,
        }
    }

    /// The line in which the record begins, from 1.
    fn line(&self) -> Option<u64> {
        // Fields are not looked at, and quotes before the place are right.
        let config = self.config.clone().stray_quotes(StrayQuotes::Text);
        // `header::open` makes no fault of a first record that cannot be read: such a fault would need this line.
        let mut opened = header::open(&config, self.file).ok()?;
        let mut record = CsvRecord::default();
        for _ in 0..=self.row? {
            let is_there = opened.first.take().is_some();
            if !is_there && !opened.records.read(&mut record).ok()? {
                return None;
            }
        }
        let text_place = self.text_place(opened.records.record_start()).ok()?;
        Some(text_place.line)
    }

    /// The place of a byte of the text.
    fn text_place(&self, at: u64) -> io::Result<TextPlace> {
        let stream = self.file.stream().map_err(io::Error::other)?;
        text_place(self.config.encoding.decode(stream), at)
    }

    /// A fault for a file that looks like one of another dialect, which it names.
    pub(super) fn dialect_hint(&self, fault: Fault) -> Fault {
        let mut head = Vec::new();
        let Ok(stream) = self.file.stream() else {
            return fault;
        };
        if stream.take(HEAD_BYTES).read_to_end(&mut head).is_err() {
            return fault;
        }
        let Some(dialect) = sniff::other_dialect(self.config, &head) else {
            return fault;
        };
        let hint = match fault.hint_text() {
            Some(hint) => format!("{dialect}; or {hint}"),
            None => dialect,
        };
        fault.hint(hint)
    }
}

/// A fault for a record that cannot be read.
pub(super) fn record_fault(
    record_place: RecordPlace<'_>,
    records: &CsvRecords,
    error: RecordError,
) -> Fault {
    match error {
        RecordError::Io(error) => {
            let fault = stream::stream_fault(&record_place.file.path, error);
            match record_place.row {
                Some(row) if fault.code() == codes::BAD_ROW => fault.rows([row]),
                _ => fault,
            }
        }
        RecordError::TooLong => record_place.locate(stream::record_length_fault()),
        RecordError::Malformed(malformed) => {
            let at = records.stream_start + malformed.at;
            malformed_fault(record_place, Malformed { at, ..malformed }, &records.names)
        }
    }
}

fn malformed_fault(record_place: RecordPlace<'_>, malformed: Malformed, names: &[String]) -> Fault {
    let problem_text = match malformed.problem {
        QuoteProblem::InPlainField => "a quote stands in a field that does not begin with one",
        QuoteProblem::TextBehind => "text stands behind the quote that ends a field",
        QuoteProblem::Unclosed => "a quote opens a field and is not closed",
        QuoteProblem::EscapeAtEnd => "the file ends behind an escape",
    };
    let message = match record_place.text_place(malformed.at) {
        Ok(TextPlace { line, column }) => format!("line {line}, column {column}: {problem_text}"),
        Err(_) => problem_text.to_owned(),
    };
    let mut fault = Fault::new(codes::BAD_ROW, message).file(record_place.file.path.as_ref());
    if let Some(row) = record_place.row {
        fault = fault.rows([row]);
    }
    if let Some(name) = names.get(malformed.field) {
        fault = fault.column(name);
    }
    let hint = match malformed.problem {
        QuoteProblem::InPlainField => {
            "put the field in quotes and double those in it, set `stray_quotes: text` to read such \
             quotes as letters, or `quote: none` where no field is in quotes"
        }
        QuoteProblem::TextBehind => {
            "double the quotes in the field, set `escape` where another character stands before \
             them, or `stray_quotes: text` to read such text as a part of the field"
        }
        QuoteProblem::Unclosed => {
            "close the quote, double it where it belongs to the field, or set `quote: none` where \
             no field is in quotes; is the file whole?"
        }
        QuoteProblem::EscapeAtEnd => "is the file whole?",
    };
    record_place.dialect_hint(fault.hint(hint))
}

/// Rows of a file that are looked at for the number of their fields, behind a row with a wrong one.
const ROWS_LOOKED_AT_MAX: u64 = 1_000_000;

/// Rows whose lines a note lists.
const ROWS_LISTED_MAX: usize = 3;

/// A fault for a record with more or fewer fields than there are columns. It names other such rows,
/// so that all of them can be corrected at once.
pub(super) fn field_count_fault(
    record_place: RecordPlace<'_>,
    columns: usize,
    fields: usize,
) -> Fault {
    let message = format!(
        "the row has {fields} {}, and there {} {columns} {}",
        if fields == 1 { "field" } else { "fields" },
        if columns == 1 { "is" } else { "are" },
        if columns == 1 { "column" } else { "columns" },
    );
    let mut fault = record_place.locate(Fault::new(codes::BAD_ROW, message));
    if let Some(note) = other_rows_note(&record_place, columns) {
        fault = fault.note(note);
    }
    record_place.dialect_hint(fault.hint(
        "correct the row (a field with the delimiter in it stands in quotes), or set `delimiter`, \
         or `skip_lines` where lines stand before the header",
    ))
}

/// A sentence about the other rows of the file with a wrong number of fields; `None` without any.
fn other_rows_note(record_place: &RecordPlace<'_>, columns: usize) -> Option<String> {
    let row = record_place.row?;
    // As for the line of a record, stray quotes are letters.
    let config = record_place.config.clone().stray_quotes(StrayQuotes::Text);
    let mut opened = header::open(&config, record_place.file).ok()?;
    let mut record = CsvRecord::default();
    let mut starts: Vec<u64> = Vec::new();
    let mut others: u64 = 0;
    for number in 0..row.saturating_add(ROWS_LOOKED_AT_MAX) {
        if let Some(first) = opened.first.take() {
            record = first;
        } else if !matches!(opened.records.read(&mut record), Ok(true)) {
            // A record that cannot be read is reported once these rows are corrected.
            break;
        }
        if number == row || record.len() == columns {
            continue;
        }
        others += 1;
        if starts.len() < ROWS_LISTED_MAX {
            starts.push(opened.records.record_start());
        }
    }
    let mut lines: Vec<String> = Vec::with_capacity(starts.len());
    for start in starts {
        let line = record_place.text_place(start).ok()?.line;
        lines.push(line.to_string());
    }
    let unlisted = others.saturating_sub(lines.len() as u64);
    match lines.as_slice() {
        [] => None,
        [line] => Some(format!(
            "another row with a wrong number of fields begins in line {line}"
        )),
        lines => {
            let listed = lines.join(", ");
            let more_text = match unlisted {
                0 => String::new(),
                unlisted => format!(", and {unlisted} more"),
            };
            Some(format!(
                "other rows with a wrong number of fields begin in lines {listed}{more_text}"
            ))
        }
    }
}
