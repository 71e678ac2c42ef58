//! Opens files of CSV, with faults that name their places.

use forebay_model::{Fault, Result, codes};

use crate::files::input_file::InputFile;

use super::CsvSource;
use super::faults::{RecordPlace, record_fault};
use super::header::{self, CsvRecords, OpenError};
use super::sniff::DELIMITERS;

/// Opens a file and reads its first record.
pub(super) fn open_records(config: &CsvSource, file: &InputFile) -> Result<CsvRecords> {
    let whole = file.whole();
    let first_record = RecordPlace {
        config,
        file: &whole,
        row: (!config.header).then_some(0),
    };
    let opened = match header::open(config, file) {
        Ok(opened) => opened,
        Err(OpenError::Record(records, error)) => {
            return Err(record_fault(first_record, &records, error));
        }
        Err(OpenError::Fault(fault)) => return Err(fault),
    };
    if config.header {
        check_delimiter(first_record, &opened.names)?;
    }
    Ok(opened)
}

/// Characters of a header that a message shows.
const HEADER_SHOWN_MAX: usize = 80;

/// Refuses a header that another delimiter divides, where the source does not name its own.
fn check_delimiter(first_record: RecordPlace<'_>, names: &[String]) -> Result<()> {
    let config = first_record.config;
    let [name] = names else {
        return Ok(());
    };
    let delimiter = config.delimiter_text();
    let is_divided = name
        .chars()
        .any(|letter| DELIMITERS.contains(&letter) && !delimiter.contains(letter));
    if config.delimiter.is_some() || !is_divided {
        return Ok(());
    }
    let excerpt: String = name.chars().take(HEADER_SHOWN_MAX).collect();
    let message = format!("the header is one name, `{}`", excerpt.escape_debug());
    let fault = first_record.locate(Fault::new(codes::BAD_ROW, message));
    let fault = fault.hint(format!(
        "set `delimiter`, and `delimiter: {delimiter:?}` if the file has one column"
    ));
    Err(first_record.dialect_hint(fault))
}
