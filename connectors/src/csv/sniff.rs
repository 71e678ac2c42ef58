//! The dialect of CSV files, by what their beginning looks like.

use std::io::Read;

use arrow::array::{Array, StringArray};
use arrow::datatypes::DataType;
use csv::ReaderBuilder;
use forebay_model::{NumberMarks, Result, TextRules};
use forebay_storage::StorageClient;
use serde_json::{Map, Value};

use crate::files::encoding::TextEncoding;
use crate::files::list::list_files;
use crate::files::rows::{self, RowFormat};
use crate::files::stream::stream_fault;

use super::CsvSource;

/// Bytes of the first file that are looked at.
const HEAD_BYTES: u64 = 256 << 10;

/// Records that are looked at.
const RECORDS_MAX: usize = 200;

/// Characters that are tried between fields, the usual one first.
const DELIMITERS: [char; 4] = [',', ';', '\t', '|'];

/// Options of a source that differ from the usual ones, and sentences that say so.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct CsvDialect {
    /// The options, as a spec has them.
    pub options: Map<String, Value>,
    /// A clause on each of them.
    pub findings: Vec<String>,
}

impl CsvDialect {
    fn add(&mut self, option: &str, value: impl Into<Value>, finding: impl Into<String>) {
        self.options.insert(option.to_owned(), value.into());
        self.findings.push(finding.into());
    }
}

/// The dialect of the files of a path, by the first of them.
pub fn sniff_csv(io: &StorageClient, path: &str) -> Result<CsvDialect> {
    let source = CsvSource::at(path);
    let listing = list_files(io, &RowFormat::paths(&source), &source.marks())?;
    let Some(first) = listing.files.first() else {
        return Ok(CsvDialect::default());
    };
    let file = rows::open(io, first)?;
    let mut head = Vec::new();
    file.stream()?
        .take(HEAD_BYTES)
        .read_to_end(&mut head)
        .map_err(|error| stream_fault(&file.path, error))?;
    Ok(dialect_of(&head))
}

fn dialect_of(head: &[u8]) -> CsvDialect {
    let mut dialect = CsvDialect::default();
    let encoding = encoding_of(head);
    match encoding {
        TextEncoding::Utf16 => dialect.add("encoding", "utf-16", "texts are UTF-16"),
        TextEncoding::Windows1252 => dialect.add(
            "encoding",
            "windows-1252",
            "texts are not UTF-8, and taken for windows-1252",
        ),
        TextEncoding::Utf8 | TextEncoding::Latin1 => {}
    }
    let mut text = Vec::new();
    let bytes = std::io::Cursor::new(head.to_vec());
    if encoding
        .decode(Box::new(bytes))
        .read_to_end(&mut text)
        .is_err()
    {
        return dialect;
    }
    let is_cut = head.len() as u64 >= HEAD_BYTES;
    let mut best: (usize, char, Vec<Vec<String>>) = (1, ',', Vec::new());
    for delimiter in DELIMITERS {
        let records = records(&text, delimiter, is_cut);
        let fields = records.first().map_or(0, Vec::len);
        let is_even = records.iter().all(|record| record.len() == fields);
        if delimiter == best.1 || (is_even && fields > best.0) {
            best = (if is_even { fields } else { 1 }, delimiter, records);
        }
    }
    let (_, delimiter, records) = best;
    if delimiter != ',' {
        let shown = if delimiter == '\t' {
            "tabs stand".to_owned()
        } else {
            format!("`{delimiter}` stands")
        };
        dialect.add(
            "delimiter",
            delimiter.to_string(),
            format!("{shown} between fields"),
        );
        add_marks(&records, &mut dialect);
    }
    if !has_header(&records) {
        dialect.add("header", false, "the first record is a row, and no header");
    }
    dialect
}

fn encoding_of(head: &[u8]) -> TextEncoding {
    if head.starts_with(b"\xff\xfe") || head.starts_with(b"\xfe\xff") {
        return TextEncoding::Utf16;
    }
    match std::str::from_utf8(head) {
        Ok(_) => TextEncoding::Utf8,
        // A letter may go on behind the bytes that are looked at.
        Err(error) if error.error_len().is_none() => TextEncoding::Utf8,
        Err(_) => TextEncoding::Windows1252,
    }
}

/// The first records, without one that may be cut off.
fn records(text: &[u8], delimiter: char, is_cut: bool) -> Vec<Vec<String>> {
    let reader = ReaderBuilder::new()
        .has_headers(false)
        .flexible(true)
        .delimiter(u8::try_from(delimiter).unwrap_or(b','))
        .from_reader(text);
    let mut records = Vec::new();
    for record in reader.into_byte_records().take(RECORDS_MAX) {
        let Ok(record) = record else { break };
        let fields = record
            .iter()
            .map(|field| String::from_utf8_lossy(field).into_owned());
        records.push(fields.collect());
    }
    if is_cut && records.len() < RECORDS_MAX {
        records.pop();
    }
    records
}

/// The values of a column below the first record.
fn column_texts(records: &[Vec<String>], at: usize) -> StringArray {
    let text = |record: &Vec<String>| record.get(at).filter(|text| !text.is_empty()).cloned();
    records.iter().skip(1).map(text).collect()
}

/// Adds decimal commas, where some column is of numbers with them alone.
fn add_marks(records: &[Vec<String>], dialect: &mut CsvDialect) {
    let marks = |decimal, thousands| TextRules {
        is_inferred: true,
        marks: NumberMarks { decimal, thousands },
    };
    let columns = records.first().map_or(0, Vec::len);
    let texts: Vec<StringArray> = (0..columns).map(|at| column_texts(records, at)).collect();
    let is_number = |rules: TextRules, texts: &StringArray| {
        texts.len() > texts.null_count() && rules.all_read(texts, &DataType::Float64)
    };
    let with_comma = |rules: TextRules| {
        texts.iter().any(|texts| {
            is_number(rules, texts) && texts.iter().flatten().any(|text| text.contains(','))
        })
    };
    // Numbers with points alone would be other numbers.
    let with_point = texts.iter().any(|texts| {
        is_number(TextRules::inferred(), texts)
            && texts.iter().flatten().any(|text| text.contains('.'))
    });
    let plain = with_comma(marks(b',', None));
    if (!plain && !with_comma(marks(b',', Some(b'.')))) || (plain && with_point) {
        return;
    }
    dialect.add("decimal", ",", "numbers have decimal commas");
    let in_groups = texts.iter().any(|texts| {
        !is_number(marks(b',', None), texts)
            && is_number(marks(b',', Some(b'.')), texts)
            && texts.iter().flatten().any(|text| text.contains('.'))
    });
    if in_groups {
        dialect.add("thousands", ".", "points stand between groups of digits");
    }
}

/// True if the first record names the columns: it is a row only where it has a number in each column of numbers.
fn has_header(records: &[Vec<String>]) -> bool {
    let Some((first, rows)) = records.split_first() else {
        return true;
    };
    if rows.is_empty() {
        return true;
    }
    let mut has_numbers = false;
    for (at, name) in first.iter().enumerate() {
        let texts = column_texts(records, at);
        let is_number =
            |texts: &StringArray| TextRules::inferred().all_read(texts, &DataType::Float64);
        if texts.len() == texts.null_count() || !is_number(&texts) {
            continue;
        }
        if !is_number(&StringArray::from(vec![name.as_str()])) {
            return true;
        }
        // Years are names of columns as often as they are numbers.
        has_numbers |= !is_year(name);
    }
    !has_numbers
}

fn is_year(name: &str) -> bool {
    name.len() == 4
        && name
            .parse::<u16>()
            .is_ok_and(|year| (1800..2200).contains(&year))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn files_tell_their_dialect() {
        for (text, expected) in [
            (&b"a,b\n1,x\n2,y\n"[..], json!({})),
            (
                b"a;b\n1,5;x\n2,25;y\n",
                json!({"delimiter": ";", "decimal": ","}),
            ),
            (
                b"a;b\n1.234,5;x\n2,25;y\n",
                json!({"delimiter": ";", "decimal": ",", "thousands": "."}),
            ),
            (b"a;b\n1.5;x\n2.25;y\n", json!({"delimiter": ";"})),
            (b"a\tb\n1\tx,y\n", json!({"delimiter": "\t"})),
            (b"1,2.5,x\n3,4.5,y\n", json!({"header": false})),
            (b"name,2020,2021\nx,1,2\n", json!({})),
            (b"2020,2021\n1,2\n", json!({})),
            (b"a,b\nM\xfcller,1\n", json!({"encoding": "windows-1252"})),
            (
                b"\xff\xfea\0;\0b\0\n\x001\0;\x002\0\n\0",
                json!({"encoding": "utf-16", "delimiter": ";"}),
            ),
            (b"a,b\n\"x;y;z\",\"1;2\"\n", json!({})),
            (b"a\nx\n", json!({})),
            (b"", json!({})),
        ] {
            let dialect = dialect_of(text);
            let shown = String::from_utf8_lossy(text);
            assert_eq!(Value::Object(dialect.options.clone()), expected, "{shown}");
            assert_eq!(dialect.findings.len(), dialect.options.len());
        }
    }
}
