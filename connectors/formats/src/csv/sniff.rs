//! Detection of the dialect of CSV files from their beginning.

use std::collections::BTreeSet;
use std::io::Read;

use arrow::array::{Array, StringArray};
use arrow::datatypes::DataType;
use forebay_model::{NumberMarks, Result, TextRules};
use forebay_storage::StorageClient;
use serde_json::{Map, Value};

use crate::files::encoding::{TextEncoding, looks_like_utf16};
use crate::files::list::list_files;
use crate::files::rows::{self, RowFormat};
use crate::files::stream::stream_fault;

use super::records::{
    CsvRecord, FieldKind, FieldSyntax, Malformed, QuoteProblem, RecordError, RecordReader,
    delimiter_line,
};
use super::text_place::text_place;
use super::{CsvDialect, CsvSource, StrayQuotes};

/// Bytes of the first file that are examined.
const HEAD_BYTES: u64 = 256 << 10;

/// Number of records that are examined.
const RECORDS_MAX: usize = 200;

/// Maximum number of records before the header.
const TITLES_MAX: usize = 20;

/// The field that stands for null in files of MySQL and PostgreSQL.
const MYSQL_NULL: &str = "\\N";

/// Words that people write where a number is missing, in small letters.
const NULL_WORDS: [&str; 11] = [
    "na", "n/a", "#n/a", "null", "none", "nil", "-", "--", "?", "unknown", "missing",
];

/// Characters that are tried between fields, the usual one first.
pub(super) const DELIMITERS: [char; 4] = [',', ';', '\t', '|'];

/// Detected options of a source that differ from the defaults, with a clause on each.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct CsvFindings {
    /// The options, as a spec has them.
    pub options: Map<String, Value>,
    /// A clause on each of them.
    pub findings: Vec<String>,
}

impl CsvFindings {
    fn add(&mut self, option: &str, value: impl Into<Value>, finding: impl Into<String>) {
        self.options.insert(option.to_owned(), value.into());
        self.findings.push(finding.into());
    }
}

/// The dialect of the files of a path, by the first of them.
pub fn sniff_csv(io: &StorageClient, path: &str) -> Result<CsvFindings> {
    let source = CsvSource::at(path);
    let listing = list_files(io, &RowFormat::paths(&source), &source.marks())?;
    let Some(first) = listing.files.first() else {
        return Ok(CsvFindings::default());
    };
    let file = rows::open(io, first)?;
    let mut head = Vec::new();
    file.stream()?
        .take(HEAD_BYTES)
        .read_to_end(&mut head)
        .map_err(|error| stream_fault(&file.path, error))?;
    Ok(dialect_of(&head))
}

/// A hint at the options of another dialect that the beginning of a file looks like.
pub(super) fn other_dialect(config: &CsvSource, head: &[u8]) -> Option<String> {
    let CsvFindings { options, .. } = dialect_of(head);
    let configured = serde_json::to_value(config).ok()?;
    let mut others = Vec::new();
    for option in DIALECT_OPTIONS {
        let Some(value) = options.get(option) else {
            continue;
        };
        // Words for null divide no fields.
        if Some(value) == configured.get(option) || (option == "nulls" && !has_mysql_null(value)) {
            continue;
        }
        let word = value
            .as_str()
            .filter(|text| text.chars().all(char::is_alphanumeric));
        let value_text = word.map_or_else(|| value.to_string(), str::to_owned);
        others.push(format!("`{option}: {value_text}`"));
    }
    let others = others.join(" and ");
    (!others.is_empty()).then(|| format!("the file looks as if it needs {others}"))
}

fn has_mysql_null(nulls: &Value) -> bool {
    let mut words = nulls.as_array().into_iter().flatten();
    words.any(|word| word == MYSQL_NULL)
}

/// Options by which fields are divided.
const DIALECT_OPTIONS: [&str; 6] = [
    "dialect",
    "delimiter",
    "escape",
    "stray_quotes",
    "skip_lines",
    "nulls",
];

/// A way of quoting, with the options that state it.
struct QuoteStyle {
    source: CsvSource,
    findings: CsvFindings,
}

/// Ways of quoting, the usual one first and the loosest last.
fn quote_styles() -> Vec<QuoteStyle> {
    let mut spark = CsvFindings::default();
    spark.add(
        "dialect",
        "spark",
        "backslashes stand before quotes, as Spark writes them",
    );
    let mut pandas = CsvFindings::default();
    pandas.add(
        "dialect",
        "pandas",
        "characters stand behind an escape, as pandas writes them",
    );
    pandas.add("escape", "\\", "the escape is a backslash");
    let mut stray = CsvFindings::default();
    stray.add(
        "stray_quotes",
        "text",
        "quotes stand in fields that do not begin with one",
    );
    let style = |source: CsvSource, findings| QuoteStyle { source, findings };
    let usual = CsvSource::default();
    vec![
        style(usual.clone(), CsvFindings::default()),
        style(usual.clone().dialect(CsvDialect::Spark), spark),
        style(
            usual.clone().dialect(CsvDialect::Pandas).escape("\\"),
            pandas,
        ),
        style(usual.stray_quotes(StrayQuotes::Text), stray),
    ]
}

/// The first records as a dialect reads them.
struct SniffedRecords {
    delimiter: char,
    /// From the header on.
    records: Vec<Vec<String>>,
    /// Lines before the header.
    lines_before: u64,
    findings: CsvFindings,
}

impl SniffedRecords {
    /// The number of fields, where all records have as many.
    fn even_fields(&self) -> usize {
        even_fields(&self.records).unwrap_or(1)
    }

    /// True where a delimiter is likelier than another one. A header may lack the decimal commas of the rows, and is no
    /// title then: of two that divide the rows, that which divides the header as well.
    fn is_likelier_than(&self, other: &SniffedRecords) -> bool {
        let fields = self.even_fields();
        let other_fields = other.even_fields();
        let has_titles = self.lines_before > 0;
        let other_has_titles = other.lines_before > 0;
        if fields > 1 && other_fields > 1 && has_titles != other_has_titles {
            return other_has_titles;
        }
        fields > other_fields
    }
}

/// The number of fields of each record; `None` where these differ.
fn even_fields(records: &[Vec<String>]) -> Option<usize> {
    let fields = records.first().map_or(0, Vec::len);
    records
        .iter()
        .all(|record| record.len() == fields)
        .then_some(fields)
}

/// Number of records before the header: titles have values in half of the columns at most.
fn title_records(records: &[Vec<String>]) -> usize {
    if even_fields(records).is_some() {
        return 0;
    }
    let is_header = |number: &usize| {
        let (titles, rows) = records.split_at(*number);
        let Some(fields) = even_fields(rows).filter(|_| rows.len() > 1) else {
            return false;
        };
        let values = |title: &Vec<String>| title.iter().filter(|text| !text.is_empty()).count();
        titles.iter().all(|title| values(title) * 2 <= fields) && has_header(rows)
    };
    (1..=TITLES_MAX.min(records.len()))
        .find(is_header)
        .unwrap_or(0)
}

/// Number of lines before a record.
fn lines_before(text: &[u8], syntax: FieldSyntax, number: usize) -> Option<u64> {
    let stream = Box::new(std::io::Cursor::new(text.to_vec()));
    let mut reader = RecordReader::new(stream, syntax, true).ok()?;
    let mut record = CsvRecord::default();
    for _ in 0..=number {
        reader.read(&mut record).ok()?;
    }
    let record_start = text_place(text, reader.record_start()).ok()?;
    Some(record_start.line - 1)
}

/// The first records, by the delimiter that divides them into the most fields and the usual way of quoting that fits.
fn sniff_records(text: &[u8], is_cut: bool) -> Option<SniffedRecords> {
    let mut best: Option<SniffedRecords> = None;
    for delimiter in DELIMITERS {
        let sniffed = quote_styles().into_iter().find_map(|style| {
            let source = style.source.delimiter(delimiter.to_string());
            let mut records = records(text, source.field_syntax(), is_cut)?;
            let titles = title_records(&records);
            let mut lines = 0;
            if titles > 0 {
                lines = lines_before(text, source.field_syntax(), titles)?;
                records.drain(..titles);
            }
            Some(SniffedRecords {
                delimiter,
                records,
                lines_before: lines,
                findings: style.findings,
            })
        });
        let Some(sniffed) = sniffed else {
            continue;
        };
        let is_likelier = match &best {
            // The usual delimiter stands for files of one column, too.
            None => delimiter == DELIMITERS[0] || sniffed.even_fields() > 1,
            Some(best) => sniffed.is_likelier_than(best),
        };
        if is_likelier {
            best = Some(sniffed);
        }
    }
    best
}

fn dialect_of(head: &[u8]) -> CsvFindings {
    let mut dialect = CsvFindings::default();
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
    if let Some((delimiter, _)) = delimiter_line(&text) {
        add_excel(&text, char::from(delimiter), is_cut, &mut dialect);
        return dialect;
    }
    if let Some(records) = mysql_records(&text, is_cut) {
        dialect.add(
            "dialect",
            "mysql",
            "fields stand between tabs, and `\\N` for null, as MySQL writes them",
        );
        add_header(&records, &mut dialect);
        return dialect;
    }
    let Some(sniffed) = sniff_records(&text, is_cut) else {
        return dialect;
    };
    let SniffedRecords {
        delimiter,
        mut records,
        lines_before,
        findings,
    } = sniffed;
    dialect.options.extend(findings.options);
    dialect.findings.extend(findings.findings);
    if delimiter != ',' {
        let subject = if delimiter == '\t' {
            "tabs stand".to_owned()
        } else {
            format!("`{delimiter}` stands")
        };
        dialect.add(
            "delimiter",
            delimiter.to_string(),
            format!("{subject} between fields"),
        );
    }
    if lines_before > 0 {
        let finding = format!("the header is in line {}", lines_before + 1);
        dialect.add("skip_lines", lines_before, finding);
    }
    if records.iter().flatten().any(|field| field == MYSQL_NULL) {
        let nulls = vec![Value::from(""), Value::from(MYSQL_NULL)];
        dialect.add("nulls", nulls, "`\\N` stands for null");
        for field in records.iter_mut().flatten() {
            if field == MYSQL_NULL {
                field.clear();
            }
        }
    } else {
        add_null_words(&mut records, &mut dialect);
    }
    if has_all_in_quotes(&text, delimiter, lines_before) {
        dialect.add(
            "quoted_nulls",
            true,
            "all fields are in quotes, also those without a value",
        );
    }
    if delimiter != ',' {
        add_marks(&records, &mut dialect);
    }
    add_header(&records, &mut dialect);
    dialect
}

/// True if all fields of several columns are in quotes, empty ones among them: their writer does not tell empty texts from
/// null.
fn has_all_in_quotes(text: &[u8], delimiter: char, lines_before: u64) -> bool {
    let source = CsvSource::default()
        .delimiter(delimiter.to_string())
        .skip_lines(u32::try_from(lines_before).unwrap_or(u32::MAX));
    let stream = Box::new(std::io::Cursor::new(text.to_vec()));
    let Ok(mut reader) = RecordReader::new(stream, source.field_syntax(), true) else {
        return false;
    };
    let mut record = CsvRecord::default();
    let mut has_empty = false;
    for number in 0..RECORDS_MAX {
        if !matches!(reader.read(&mut record), Ok(true)) {
            break;
        }
        // Programs that put values in quotes may leave the header without.
        if number == 0 {
            continue;
        }
        for at in 0..record.len() {
            let (field, kind) = record.field(at);
            if kind != FieldKind::Quoted || record.len() == 1 {
                return false;
            }
            has_empty |= field.is_empty();
        }
    }
    has_empty
}

/// The first records of a file as MySQL writes it; `None` where they are of no such file: fields stand between tabs, and
/// some of them are null.
fn mysql_records(text: &[u8], is_cut: bool) -> Option<Vec<Vec<String>>> {
    let source = CsvSource::default().dialect(CsvDialect::Mysql);
    let stream = Box::new(std::io::Cursor::new(text.to_vec()));
    let mut reader = RecordReader::new(stream, source.field_syntax(), true).ok()?;
    let mut record = CsvRecord::default();
    let mut has_null = false;
    for _ in 0..RECORDS_MAX {
        if !matches!(reader.read(&mut record), Ok(true)) {
            break;
        }
        has_null |= record.has_null();
    }
    let records = records(text, source.field_syntax(), is_cut).filter(|_| has_null)?;
    let fields = records.first()?.len();
    let is_even = records.iter().all(|record| record.len() == fields);
    is_even.then_some(records)
}

/// Adds the dialect of a file whose first line names the delimiter.
fn add_excel(text: &[u8], delimiter: char, is_cut: bool, dialect: &mut CsvFindings) {
    dialect.add(
        "dialect",
        "excel",
        format!("the first line names `{delimiter}` as the delimiter, as Excel reads it"),
    );
    let source = CsvSource::default().dialect(CsvDialect::Excel);
    let Some(records) = records(text, source.field_syntax(), is_cut) else {
        return;
    };
    if delimiter != ',' {
        add_marks(&records, dialect);
    }
    add_header(&records, dialect);
}

fn add_header(records: &[Vec<String>], dialect: &mut CsvFindings) {
    if !has_header(records) {
        dialect.add("header", false, "the first record is a row, and no header");
    }
}

fn encoding_of(head: &[u8]) -> TextEncoding {
    let has_mark = head.starts_with(b"\xff\xfe") || head.starts_with(b"\xfe\xff");
    if has_mark || looks_like_utf16(head) {
        return TextEncoding::Utf16;
    }
    match std::str::from_utf8(head) {
        Ok(_) => TextEncoding::Utf8,
        // A letter may go on behind the bytes that are looked at.
        Err(error) if error.error_len().is_none() => TextEncoding::Utf8,
        Err(_) => TextEncoding::Windows1252,
    }
}

/// The first records, without one that may be cut off; `None` where quotes are wrong.
fn records(text: &[u8], syntax: FieldSyntax, is_cut: bool) -> Option<Vec<Vec<String>>> {
    let stream = Box::new(std::io::Cursor::new(text.to_vec()));
    let mut reader = RecordReader::new(stream, syntax, true).ok()?;
    let mut record = CsvRecord::default();
    let mut records = Vec::new();
    while records.len() < RECORDS_MAX {
        match reader.read(&mut record) {
            Ok(true) => {}
            Ok(false) => break,
            // The rest is cut off.
            Err(RecordError::Malformed(Malformed {
                problem: QuoteProblem::Unclosed | QuoteProblem::EscapeAtEnd,
                ..
            })) if is_cut => return Some(records),
            Err(_) => return None,
        }
        let fields = record
            .iter()
            .map(|field| String::from_utf8_lossy(field).into_owned());
        records.push(fields.collect());
    }
    if is_cut && records.len() < RECORDS_MAX {
        records.pop();
    }
    Some(records)
}

/// The values of a column below the first record.
fn column_texts(records: &[Vec<String>], at: usize) -> StringArray {
    let text = |record: &Vec<String>| record.get(at).filter(|text| !text.is_empty()).cloned();
    records.iter().skip(1).map(text).collect()
}

/// Rules that read numbers with these marks.
fn rules_of_marks(decimal: u8, thousands: Option<char>) -> TextRules {
    TextRules {
        is_inferred: true,
        marks: NumberMarks { decimal, thousands },
    }
}

/// Adds the words that stand for null in columns that are of numbers but for them, and takes them
/// out of the records. A word that a column of texts has, too, may be one of its values: it stays.
fn add_null_words(records: &mut [Vec<String>], dialect: &mut CsvFindings) {
    let columns = records.first().map_or(0, Vec::len);
    let mut in_numbers: BTreeSet<String> = BTreeSet::new();
    let mut in_texts: BTreeSet<String> = BTreeSet::new();
    for at in 0..columns {
        let texts = column_texts(records, at);
        let mut words: BTreeSet<String> = BTreeSet::new();
        let mut values: Vec<&str> = Vec::new();
        for text in texts.iter().flatten() {
            if NULL_WORDS.contains(&text.to_lowercase().as_str()) {
                words.insert(text.to_owned());
            } else {
                values.push(text);
            }
        }
        if is_of_numbers(&StringArray::from(values)) {
            in_numbers.extend(words);
        } else {
            in_texts.extend(words);
        }
    }
    let words: Vec<String> = in_numbers.difference(&in_texts).cloned().collect();
    if words.is_empty() {
        return;
    }
    for field in records.iter_mut().skip(1).flatten() {
        if words.contains(field) {
            field.clear();
        }
    }
    let named: Vec<String> = words.iter().map(|word| format!("`{word}`")).collect();
    let verb = if words.len() == 1 { "stands" } else { "stand" };
    let finding = format!("{} {verb} for null among numbers", named.join(", "));
    let nulls: Vec<String> = std::iter::once(String::new()).chain(words).collect();
    dialect.add("nulls", nulls, finding);
}

/// True if texts are numbers with a decimal point or with a decimal comma.
fn is_of_numbers(texts: &StringArray) -> bool {
    let forms = [
        TextRules::inferred(),
        rules_of_marks(b',', None),
        rules_of_marks(b',', Some('.')),
    ];
    !texts.is_empty()
        && forms
            .iter()
            .any(|rules| rules.all_read(texts, &DataType::Float64))
}

/// Adds decimal commas, where some column is of numbers with them alone.
fn add_marks(records: &[Vec<String>], dialect: &mut CsvFindings) {
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
    let plain = with_comma(rules_of_marks(b',', None));
    if (!plain && !with_comma(rules_of_marks(b',', Some('.')))) || (plain && with_point) {
        return;
    }
    dialect.add("decimal", ",", "numbers have decimal commas");
    let in_groups = texts.iter().any(|texts| {
        !is_number(rules_of_marks(b',', None), texts)
            && is_number(rules_of_marks(b',', Some('.')), texts)
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
            // Texts with commas, which the header has not.
            (
                b"item;price\nA;1,50 EUR\nB;2,25 EUR\n",
                json!({"delimiter": ";"}),
            ),
            (
                b"item\trate\nA\t1,5%\nB\t2,2%\n",
                json!({"delimiter": "\t"}),
            ),
            (b"a\tb\n1\tx,y\n", json!({"delimiter": "\t"})),
            (b"1,2.5,x\n3,4.5,y\n", json!({"header": false})),
            (b"name,2020,2021\nx,1,2\n", json!({})),
            (b"2020,2021\n1,2\n", json!({})),
            (b"a,b\nM\xfcller,1\n", json!({"encoding": "windows-1252"})),
            (
                b"\xff\xfea\0;\0b\0\n\x001\0;\x002\0\n\0",
                json!({"encoding": "utf-16", "delimiter": ";"}),
            ),
            // Without a mark, in both orders of bytes.
            (
                b"a\0;\0b\0\n\x001\0;\x002\0\n\0",
                json!({"encoding": "utf-16", "delimiter": ";"}),
            ),
            (
                b"\0a\0;\0b\0\n\x001\0;\x002\0\n",
                json!({"encoding": "utf-16", "delimiter": ";"}),
            ),
            (b"a,b\n\"x;y;z\",\"1;2\"\n", json!({})),
            (b"a,b\n\"x\",\"\"\n", json!({"quoted_nulls": true})),
            (b"a;b\n\"\";1\n", json!({"delimiter": ";"})),
            (b"a\n\"\"\n", json!({})),
            (
                b"Sales of shops\n\nday,shop,qty\n2024-01-01,a,1\n2024-01-02,b,2\n",
                json!({"skip_lines": 2}),
            ),
            (
                b"\"Source\",\"Bank\",\r\n\r\n\"name\",\"code\",\"2020\",\"2021\",\r\n\
                  \"x\",\"X\",\"1\",\"2\",\r\n",
                json!({"skip_lines": 2}),
            ),
            (
                b"title\na;b\n1,5;x\n",
                json!({"delimiter": ";", "decimal": ",", "skip_lines": 1}),
            ),
            (b"a,b\n1,2,3\n4,5,6\n", json!({})),
            (b"a,b\nx,y,\nz,w,\n", json!({})),
            (b"a\n1,2\n3,4\n", json!({})),
            (b"a\nx\n", json!({})),
            (
                b"a,b\n\"x \\\"y\\\", z\",\"\"\n",
                json!({"dialect": "spark"}),
            ),
            (
                b"a;b\nx \\\"y\\\";1\nx\\;y;2\n",
                json!({"dialect": "pandas", "escape": "\\", "delimiter": ";"}),
            ),
            (b"a,b\n5\" pipe,1\n", json!({"stray_quotes": "text"})),
            (b"a\tb\n\\N\tx\n", json!({"dialect": "mysql"})),
            (
                b"1\tx\n2\ty\n\\N\tz\n",
                json!({"dialect": "mysql", "header": false}),
            ),
            (b"a,b\n\\N,x\n", json!({"nulls": ["", "\\N"]})),
            (
                b"a,b\n1,x\nn/a,y\n?,z\n2.5,n/a!\n",
                json!({"nulls": ["", "?", "n/a"]}),
            ),
            (
                b"a;b\n1.234,5;x\nunknown;y\n2,25;y\n",
                json!({
                    "delimiter": ";",
                    "nulls": ["", "unknown"],
                    "decimal": ",",
                    "thousands": "."
                }),
            ),
            // A value of another column, and a column of such words alone.
            (b"a,b\n1,none\nnone,some\n", json!({})),
            (b"a,b\nNA,x\nUK,y\n", json!({})),
            (b"a,b\nna,x\nna,y\n", json!({})),
            (
                b"sep=;\r\na;b\r\n1,5;x\r\n",
                json!({"dialect": "excel", "decimal": ","}),
            ),
            (b"", json!({})),
        ] {
            let dialect = dialect_of(text);
            let shown = String::from_utf8_lossy(text);
            assert_eq!(Value::Object(dialect.options.clone()), expected, "{shown}");
            assert_eq!(dialect.findings.len(), dialect.options.len());
        }
    }
}
