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
    let place = RecordPlace {
        config,
        file: &whole,
        row: (!config.header).then_some(0),
    };
    let opened = match header::open(config, file) {
        Ok(opened) => opened,
        Err(OpenError::Record(records, error)) => {
            return Err(record_fault(place, &records, error));
        }
        Err(OpenError::Fault(fault)) => return Err(fault),
    };
    if config.header {
        check_delimiter(place, &opened.names)?;
    }
    Ok(opened)
}

/// Characters of a header that a message shows.
const HEADER_SHOWN_MAX: usize = 80;

/// Refuses a header that another delimiter divides, where the source does not name its own.
fn check_delimiter(place: RecordPlace<'_>, names: &[String]) -> Result<()> {
    let config = place.config;
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
    let fault = place.locate(Fault::new(codes::BAD_ROW, message));
    let fault = fault.hint(format!(
        "set `delimiter`, and `delimiter: {delimiter:?}` if the file has one column"
    ));
    Err(place.dialect_hint(fault))
}
