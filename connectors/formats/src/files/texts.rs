//! Columns of texts that are read as other types.

use std::collections::BTreeMap;

use arrow::array::StringArray;
use arrow::datatypes::{DataType, Fields};
use forebay_model::{
    ConfigError, ConfigResult, EXAMPLES_MAX, Fault, ReadTexts, TextRules, TimeFormat, UnfitValues,
    ValueExample, codes, shorten, type_label,
};

use super::{ColumnType, ColumnTypes, OnReadError};

/// The formats of a source's columns.
pub fn parse_formats(
    formats: &BTreeMap<String, String>,
) -> ConfigResult<BTreeMap<String, TimeFormat>> {
    let parse = |(column, text): (&String, &String)| match TimeFormat::parse(text) {
        Ok(format) => Ok((column.clone(), format)),
        Err(reason) => Err(ConfigError::at(
            format!("formats.{column}"),
            format!("`{text}` is not a format of dates or times: {reason}"),
        )),
    };
    formats.iter().map(parse).collect()
}

/// The way in which the texts of one column are read.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ColumnTexts<'a> {
    pub(crate) rules: TextRules,
    pub(crate) format: Option<&'a TimeFormat>,
}

impl ColumnTexts<'_> {
    /// Texts as values of a type.
    pub(crate) fn read(&self, texts: &StringArray, of: &DataType) -> ReadTexts {
        match self.format.filter(|format| format.data_type() == *of) {
            Some(format) => format.read(texts),
            None => self.rules.read(texts, of),
        }
    }

    /// A sentence on a text that is no value of a type.
    pub(crate) fn problem(&self, text: &str, of: &DataType) -> String {
        match self.format.filter(|format| format.data_type() == *of) {
            Some(format) => format.problem(text),
            None => self.rules.problem(text, of),
        }
    }
}

/// Values that are not of their column's type, with the first of them. `rows` are places among the texts.
pub(crate) fn unfit_values(
    column: &str,
    texts: &StringArray,
    rows: &[usize],
    path: &str,
    first_row: u64,
) -> UnfitValues {
    let example = |row: &usize| ValueExample {
        file: path.to_owned(),
        row: first_row + *row as u64,
        value: shorten(texts.value(*row)),
    };
    UnfitValues {
        column: column.to_owned(),
        count: rows.len() as u64,
        examples: rows.iter().take(EXAMPLES_MAX).map(example).collect(),
    }
}

/// Checks the formats of a source whose files have types. There is a policy for values that do not fit them, and for no
/// other columns.
pub fn check_formats(
    formats: &BTreeMap<String, String>,
    on_error: &OnReadError,
) -> ConfigResult<()> {
    parse_formats(formats)?;
    let OnReadError::Columns(columns) = on_error else {
        return Ok(());
    };
    match columns.keys().find(|name| !formats.contains_key(*name)) {
        None => Ok(()),
        Some(name) => Err(ConfigError::at(
            format!("on_error.{name}"),
            format!("`formats` has no `{name}`, and values of other columns always fit"),
        )),
    }
}

/// Refuses formats that contradict the declared columns. A column with a format may be declared as the dates or times
/// that it becomes, or as the texts or whole numbers that it is in the files.
pub(crate) fn check_declared_formats(
    formats: &BTreeMap<String, TimeFormat>,
    columns: &ColumnTypes,
) -> ConfigResult<()> {
    for (name, format) in formats {
        let declared = columns.0.iter().find(|(column, _)| column == name);
        let message = match declared {
            None => format!("`columns` has no `{name}`"),
            Some((_, of)) if is_written_as(format, of) || of.data_type() == format.data_type() => {
                continue;
            }
            Some((_, of)) => format!(
                "`{}` gives {}, and `{name}` is declared as {}",
                format.text(),
                forebay_model::type_words(&format.data_type()),
                type_label(&of.data_type())
            ),
        };
        return Err(ConfigError::at(format!("formats.{name}"), message));
    }
    Ok(())
}

/// True if a column is declared as the texts or whole numbers that a format reads.
pub(crate) fn is_written_as(format: &TimeFormat, of: &ColumnType) -> bool {
    format.takes(&of.data_type())
}

/// Refuses formats of columns that a source does not have.
pub(crate) fn check_format_columns<'a>(
    formats: impl IntoIterator<Item = &'a String>,
    fields: &Fields,
) -> forebay_model::Result<()> {
    let missing = formats.into_iter().find(|name| fields.find(name).is_none());
    match missing {
        None => Ok(()),
        Some(name) => {
            let message =
                format!("a format is given for `{name}`, which is no column of the source");
            let fault = Fault::new(codes::UNKNOWN_COLUMN, message).column(name);
            let names = fields.iter().map(|field| field.name().as_str());
            Err(fault.suggest(name, names, "its columns are"))
        }
    }
}
