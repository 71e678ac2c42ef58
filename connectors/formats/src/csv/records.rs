//! Records of CSV: fields, quotes and escapes.
//!
//! A field that begins with a quote ends with one; a quote within it is doubled, or stands behind an escape. Quotes that
//! do not keep to that are faults, or text where the source says so:
//!
//! | quote | fault | `stray_quotes: text` |
//! |---|---|---|
//! | in a field that does not begin with one | at the quote | a letter of the field |
//! | that ends a field, with text behind it | at the text | the text, and quotes in it, belong to the field |
//! | that opens a field and is not closed | at the quote | a fault, too: the rest of the file would be one field |
//! | an escape at the end of the file | at the escape | a fault, too |

use std::io::{self, Read};

use forebay_model::RECORD_BYTES_MAX;
use memchr::{memchr, memchr2};

use crate::files::stream::BUFFER_BYTES;

/// The mark that some programs put before UTF-8.
const BYTE_ORDER_MARK: &[u8] = b"\xef\xbb\xbf";

/// The beginning of a first line that Excel reads for the delimiter.
pub(super) const DELIMITER_LINE: &[u8] = b"sep=";

/// The letter that stands for null behind an escape.
const NULL_LETTER: u8 = b'N';

/// The meaning of an escape.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum EscapeRule {
    /// In quotes, before a quote and before itself. Before other characters it is a letter.
    Quotes,
    /// Anywhere: the character behind it is a letter.
    Anywhere,
    /// Anywhere; some letters behind it stand for line ends, tabs and the like, and `N` alone for null.
    Letters,
}

/// The characters that divide a text into fields.
#[derive(Debug, Clone)]
pub(super) struct FieldSyntax {
    pub(super) delimiter: u8,
    pub(super) quote: Option<u8>,
    pub(super) escape: Option<(u8, EscapeRule)>,
    pub(super) comment: Option<u8>,
    /// Lines of a file before its first record.
    pub(super) lines_before: u32,
    /// True if stray quotes are text.
    pub(super) takes_stray_quotes: bool,
    /// True if a first line such as `sep=;` is no record.
    pub(super) has_delimiter_line: bool,
}

/// The fields of a record.
#[derive(Debug, Default)]
pub(super) struct CsvRecord {
    text: Vec<u8>,
    fields: Vec<CsvField>,
}

#[derive(Debug, Clone, Copy)]
struct CsvField {
    end: usize,
    kind: FieldKind,
}

/// The form in which a field is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum FieldKind {
    Plain,
    Quoted,
    /// An escape and `N`.
    Null,
}

impl CsvRecord {
    /// The number of fields.
    pub(super) fn len(&self) -> usize {
        self.fields.len()
    }

    /// The bytes of all fields.
    pub(super) fn bytes(&self) -> usize {
        self.text.len()
    }

    /// A field without quotes and escapes.
    pub(super) fn field(&self, at: usize) -> (&[u8], FieldKind) {
        let start = match at.checked_sub(1) {
            Some(before) => self.fields[before].end,
            None => 0,
        };
        let field = self.fields[at];
        (&self.text[start..field.end], field.kind)
    }

    /// True if a field is written as null.
    pub(super) fn has_null(&self) -> bool {
        let mut fields = self.fields.iter();
        fields.any(|field| field.kind == FieldKind::Null)
    }

    /// All fields in order.
    pub(super) fn iter(&self) -> impl Iterator<Item = &[u8]> {
        (0..self.len()).map(|at| self.field(at).0)
    }

    fn clear(&mut self) {
        self.text.clear();
        self.fields.clear();
    }

    fn end_field(&mut self, kind: FieldKind) {
        let end = self.text.len();
        self.fields.push(CsvField { end, kind });
    }
}

/// A way in which quotes are wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum QuoteProblem {
    /// A quote in a field that does not begin with one.
    InPlainField,
    /// Text behind the quote that ends a field.
    TextBehind,
    /// A quote that opens a field and is not closed.
    Unclosed,
    /// An escape with nothing behind it.
    EscapeAtEnd,
}

/// A place where quotes are wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Malformed {
    pub(super) problem: QuoteProblem,
    /// Bytes before it.
    pub(super) at: u64,
    /// The number of its field, from 0.
    pub(super) field: usize,
}

/// The result of a scan for a record.
#[derive(Debug, PartialEq, Eq)]
enum ScanStep {
    /// The record that begins at a byte, with its end, used so many bytes.
    Record { start: usize, used: usize },
    /// The record goes on behind the bytes; it begins at this one or later.
    More(usize),
    /// There is no further record.
    End,
}

/// The end of a run of bytes, or nothing where it goes on behind them.
type ScanEnd = Result<Option<usize>, Malformed>;

/// Finds records by their syntax.
struct FieldScanner {
    syntax: FieldSyntax,
    /// True if an empty line is a record with an empty field.
    keeps_empty_lines: bool,
    /// For each byte, whether it means something outside of quotes.
    is_special: [bool; 256],
}

impl FieldScanner {
    fn new(syntax: FieldSyntax) -> FieldScanner {
        let mut is_special = [false; 256];
        let escape = syntax
            .escape
            .filter(|(_, rule)| *rule != EscapeRule::Quotes);
        let bytes = [syntax.delimiter, b'\n', b'\r'].into_iter();
        let bytes = bytes.chain(syntax.quote);
        for byte in bytes.chain(escape.map(|(byte, _)| byte)) {
            is_special[usize::from(byte)] = true;
        }
        FieldScanner {
            keeps_empty_lines: matches!(syntax.escape, Some((_, EscapeRule::Letters))),
            syntax,
            is_special,
        }
    }

    fn malformed(problem: QuoteProblem, at: usize, record: &CsvRecord) -> Malformed {
        Malformed {
            problem,
            at: at as u64,
            field: record.len(),
        }
    }

    fn ends_field(&self, byte: u8) -> bool {
        byte == self.syntax.delimiter || byte == b'\n' || byte == b'\r'
    }

    /// The escape outside of quotes.
    fn plain_escape(&self) -> Option<(u8, EscapeRule)> {
        self.syntax
            .escape
            .filter(|(_, rule)| *rule != EscapeRule::Quotes)
    }

    /// True if a carriage return is a letter unless an end of line follows it: programs that write escapes anywhere put
    /// none before it.
    fn keeps_returns(&self) -> bool {
        self.plain_escape().is_some()
    }

    /// The end of a line whose first byte stands at a place, or nothing where the block ends before it is known.
    fn line_end(block: &[u8], at: usize, is_last: bool) -> Option<usize> {
        match (block[at], block.get(at + 1)) {
            (b'\r', Some(b'\n')) => Some(at + 2),
            (b'\r', None) if !is_last => None,
            _ => Some(at + 1),
        }
    }

    /// Scans the first record of a block. `is_last` says that nothing follows the block.
    fn scan(
        &self,
        block: &[u8],
        is_last: bool,
        record: &mut CsvRecord,
    ) -> Result<ScanStep, Malformed> {
        record.clear();
        let mut at = 0;
        loop {
            match block.get(at) {
                Some(b'\n' | b'\r') if self.keeps_empty_lines => break,
                Some(b'\r') if self.keeps_returns() => match block.get(at + 1) {
                    Some(b'\n') => at += 2,
                    Some(_) => break,
                    None if is_last => at += 1,
                    None => return Ok(ScanStep::More(at)),
                },
                Some(b'\n' | b'\r') => at += 1,
                Some(byte) if Some(*byte) == self.syntax.comment => {
                    let end = match memchr2(b'\n', b'\r', &block[at..]) {
                        Some(length) => Self::line_end(block, at + length, is_last),
                        None if is_last => return Ok(ScanStep::End),
                        None => None,
                    };
                    match end {
                        Some(end) => at = end,
                        None => return Ok(ScanStep::More(at)),
                    }
                }
                Some(_) => break,
                None if is_last => return Ok(ScanStep::End),
                None => return Ok(ScanStep::More(at)),
            }
        }
        let start = at;
        loop {
            let end = if self.syntax.quote.is_some() && block.get(at).copied() == self.syntax.quote
            {
                self.scan_quoted(block, at, is_last, record)?
            } else {
                self.scan_plain(block, at, at, is_last, record)?
            };
            let Some(end) = end else {
                return Ok(ScanStep::More(start));
            };
            match block.get(end) {
                Some(byte) if *byte == self.syntax.delimiter => at = end + 1,
                Some(_) => {
                    return Ok(match Self::line_end(block, end, is_last) {
                        Some(used) => ScanStep::Record { start, used },
                        None => ScanStep::More(start),
                    });
                }
                None => return Ok(ScanStep::Record { start, used: end }),
            }
        }
    }

    /// Scans the rest of a field that is not in quotes. The field begins at `start`.
    fn scan_plain(
        &self,
        block: &[u8],
        start: usize,
        from: usize,
        is_last: bool,
        record: &mut CsvRecord,
    ) -> ScanEnd {
        let escape = self.plain_escape();
        let is_special = |byte: &u8| self.is_special[usize::from(*byte)];
        let mut at = from;
        loop {
            let remaining = &block[at..];
            let length = remaining
                .iter()
                .position(is_special)
                .unwrap_or(remaining.len());
            record.text.extend_from_slice(&remaining[..length]);
            at += length;
            let Some(byte) = block.get(at).copied() else {
                if !is_last {
                    return Ok(None);
                }
                break;
            };
            if byte == b'\r' && self.keeps_returns() {
                match block.get(at + 1) {
                    Some(b'\n') => break,
                    None if is_last => break,
                    None => return Ok(None),
                    Some(_) => {
                        record.text.push(byte);
                        at += 1;
                        continue;
                    }
                }
            }
            if self.ends_field(byte) {
                break;
            }
            if let Some((_, rule)) = escape.filter(|(escape, _)| *escape == byte) {
                let Some(letter) = block.get(at + 1) else {
                    return self.end_in_escape(at, is_last, record);
                };
                record.text.push(escaped(*letter, rule));
                at += 2;
                continue;
            }
            if !self.syntax.takes_stray_quotes {
                return Err(Self::malformed(QuoteProblem::InPlainField, at, record));
            }
            record.text.push(byte);
            at += 1;
        }
        match escape {
            Some((escape, EscapeRule::Letters)) if block[start..at] == [escape, NULL_LETTER] => {
                record.text.pop();
                record.end_field(FieldKind::Null);
            }
            _ => record.end_field(FieldKind::Plain),
        }
        Ok(Some(at))
    }

    fn end_in_escape(&self, at: usize, is_last: bool, record: &CsvRecord) -> ScanEnd {
        if is_last {
            return Err(Self::malformed(QuoteProblem::EscapeAtEnd, at, record));
        }
        Ok(None)
    }

    /// Scans a field whose first byte is a quote.
    fn scan_quoted(
        &self,
        block: &[u8],
        open: usize,
        is_last: bool,
        record: &mut CsvRecord,
    ) -> ScanEnd {
        let quote = block[open];
        let mut at = open + 1;
        loop {
            let remaining = &block[at..];
            let next = match self.syntax.escape {
                Some((escape, _)) => memchr2(quote, escape, remaining),
                None => memchr(quote, remaining),
            };
            let Some(length) = next else {
                if is_last {
                    return Err(Self::malformed(QuoteProblem::Unclosed, open, record));
                }
                return Ok(None);
            };
            record.text.extend_from_slice(&remaining[..length]);
            at += length;
            let behind = block.get(at + 1).copied();
            if block[at] != quote {
                let Some(letter) = behind else {
                    return self.end_in_escape(at, is_last, record);
                };
                match self.syntax.escape {
                    Some((escape, EscapeRule::Quotes)) if letter != quote && letter != escape => {
                        record.text.extend_from_slice(&[escape, letter]);
                    }
                    Some((_, rule)) => record.text.push(escaped(letter, rule)),
                    None => {}
                }
                at += 2;
                continue;
            }
            match behind {
                Some(byte) if byte == quote => {
                    record.text.push(quote);
                    at += 2;
                }
                Some(byte) if !self.ends_field(byte) => {
                    if !self.syntax.takes_stray_quotes {
                        return Err(Self::malformed(QuoteProblem::TextBehind, at + 1, record));
                    }
                    return self.scan_plain(block, open, at + 1, is_last, record);
                }
                None if !is_last => return Ok(None),
                _ => {
                    record.end_field(FieldKind::Quoted);
                    return Ok(Some(at + 1));
                }
            }
        }
    }
}

/// The character that a letter behind an escape stands for.
fn escaped(letter: u8, rule: EscapeRule) -> u8 {
    match (rule, letter) {
        (EscapeRule::Letters, b'n') => b'\n',
        (EscapeRule::Letters, b't') => b'\t',
        (EscapeRule::Letters, b'r') => b'\r',
        (EscapeRule::Letters, b'0') => 0,
        (EscapeRule::Letters, b'b') => 8,
        (EscapeRule::Letters, b'Z') => 26,
        _ => letter,
    }
}

/// The delimiter that a first line such as `sep=;` names, and the length of the line without its end.
pub(super) fn delimiter_line(head: &[u8]) -> Option<(u8, usize)> {
    let line = head.strip_prefix(BYTE_ORDER_MARK).unwrap_or(head);
    let named = line.strip_prefix(DELIMITER_LINE)?;
    let delimiter = *named.first().filter(|byte| byte.is_ascii())?;
    let is_whole = matches!(named.get(1), None | Some(b'\n' | b'\r'));
    let length = head.len() - named.len() + 1;
    (is_whole && !b"\n\r".contains(&delimiter)).then_some((delimiter, length))
}

/// A record that cannot be read.
#[derive(Debug)]
pub(super) enum RecordError {
    Io(io::Error),
    Malformed(Malformed),
    TooLong,
}

/// Reads records one after the other.
pub(super) struct RecordReader {
    stream: Box<dyn Read + Send>,
    scanner: FieldScanner,
    buffer: Vec<u8>,
    /// The next byte of the buffer to scan.
    at: usize,
    /// The bytes of the buffer that were read.
    read_bytes: usize,
    /// The bytes of the stream before the buffer.
    bytes_before: u64,
    /// The bytes of the stream before the last record.
    record_start: u64,
    is_over: bool,
}

impl RecordReader {
    /// Begins to read records. `is_from_start` says that the stream is that of a whole file.
    pub(super) fn new(
        stream: Box<dyn Read + Send>,
        syntax: FieldSyntax,
        is_from_start: bool,
    ) -> io::Result<RecordReader> {
        let mut reader = RecordReader {
            stream,
            scanner: FieldScanner::new(syntax),
            buffer: vec![0; BUFFER_BYTES],
            at: 0,
            read_bytes: 0,
            bytes_before: 0,
            record_start: 0,
            is_over: false,
        };
        if is_from_start {
            reader.fill()?;
            let head = &reader.buffer[..reader.read_bytes];
            if reader.scanner.syntax.has_delimiter_line
                && let Some((delimiter, length)) = delimiter_line(head)
            {
                let mut syntax = reader.scanner.syntax.clone();
                syntax.delimiter = delimiter;
                reader.scanner = FieldScanner::new(syntax);
                reader.at = length;
                reader.skip_line()?;
            } else if head.starts_with(BYTE_ORDER_MARK) {
                reader.at = BYTE_ORDER_MARK.len();
            }
            for _ in 0..reader.scanner.syntax.lines_before {
                reader.skip_line()?;
            }
        }
        Ok(reader)
    }

    /// Goes on behind the end of a line: one of `\n`, `\r\n` and `\r`.
    fn skip_line(&mut self) -> io::Result<()> {
        loop {
            let block = &self.buffer[self.at..self.read_bytes];
            if let Some(end) = memchr2(b'\n', b'\r', block) {
                let is_return = block[end] == b'\r';
                self.at += end + 1;
                if is_return {
                    self.skip_line_feed()?;
                }
                return Ok(());
            }
            self.at = self.read_bytes;
            if self.is_over {
                return Ok(());
            }
            self.fill()?;
        }
    }

    fn skip_line_feed(&mut self) -> io::Result<()> {
        if self.at == self.read_bytes && !self.is_over {
            self.fill()?;
        }
        if self.buffer[self.at..self.read_bytes].first() == Some(&b'\n') {
            self.at += 1;
        }
        Ok(())
    }

    /// Reads empty lines as records with an empty field from here on.
    pub(super) fn keep_empty_lines(&mut self) {
        self.scanner.keeps_empty_lines = true;
    }

    /// The bytes of the stream before the record that was read last.
    pub(super) fn record_start(&self) -> u64 {
        self.record_start
    }

    /// The next record; false at the end.
    pub(super) fn read(&mut self, record: &mut CsvRecord) -> Result<bool, RecordError> {
        loop {
            let block = &self.buffer[self.at..self.read_bytes];
            let block_bytes = block.len() as u64;
            match self.scanner.scan(block, self.is_over, record) {
                Ok(ScanStep::Record { start, used }) => {
                    if used - start > RECORD_BYTES_MAX {
                        return Err(RecordError::TooLong);
                    }
                    self.record_start = self.bytes_before + (self.at + start) as u64;
                    self.at += used;
                    return Ok(true);
                }
                Ok(ScanStep::End) => return Ok(false),
                Ok(ScanStep::More(start)) => {
                    self.at += start;
                    if self.read_bytes - self.at > RECORD_BYTES_MAX {
                        return Err(RecordError::TooLong);
                    }
                    self.fill().map_err(RecordError::Io)?;
                }
                // The field of a quote that is not closed goes on to the end.
                Err(Malformed {
                    problem: QuoteProblem::Unclosed,
                    at,
                    ..
                }) if block_bytes - at > RECORD_BYTES_MAX as u64 => {
                    return Err(RecordError::TooLong);
                }
                Err(malformed) => {
                    let at = self.bytes_before + self.at as u64 + malformed.at;
                    return Err(RecordError::Malformed(Malformed { at, ..malformed }));
                }
            }
        }
    }

    /// Reads on until the buffer is full. A record that fills it makes it grow, so that few records are scanned twice.
    fn fill(&mut self) -> io::Result<()> {
        self.buffer.copy_within(self.at..self.read_bytes, 0);
        self.bytes_before += self.at as u64;
        self.read_bytes -= self.at;
        self.at = 0;
        if self.read_bytes * 2 > self.buffer.len() {
            self.buffer.resize(self.buffer.len() * 2, 0);
        }
        while self.read_bytes < self.buffer.len() {
            match self.stream.read(&mut self.buffer[self.read_bytes..]) {
                Ok(0) => {
                    self.is_over = true;
                    break;
                }
                Ok(read) => self.read_bytes += read,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PLAIN: FieldSyntax = FieldSyntax {
        delimiter: b',',
        quote: Some(b'"'),
        escape: None,
        comment: None,
        lines_before: 0,
        takes_stray_quotes: false,
        has_delimiter_line: false,
    };

    /// A stream that gives a few bytes at a time.
    struct Drops(io::Cursor<Vec<u8>>, usize);

    impl Read for Drops {
        fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
            let length = buffer.len().min(self.1);
            self.0.read(&mut buffer[..length])
        }
    }

    /// Records as texts; null as `None`, fields in quotes in brackets.
    type Records = Vec<Vec<Option<String>>>;

    fn read(syntax: &FieldSyntax, text: &[u8], drop: usize) -> Result<Records, Malformed> {
        read_all(reader_of(syntax, text, drop))
    }

    fn reader_of(syntax: &FieldSyntax, text: &[u8], drop: usize) -> RecordReader {
        let stream = Drops(io::Cursor::new(text.to_vec()), drop);
        RecordReader::new(Box::new(stream), syntax.clone(), true).unwrap()
    }

    fn read_all(mut reader: RecordReader) -> Result<Records, Malformed> {
        let mut records = Vec::new();
        let mut record = CsvRecord::default();
        loop {
            match reader.read(&mut record) {
                Ok(false) => return Ok(records),
                Err(RecordError::Malformed(malformed)) => return Err(malformed),
                Err(error) => panic!("{error:?}"),
                Ok(true) => {}
            }
            let fields = (0..record.len()).map(|at| {
                let (text, kind) = record.field(at);
                let text = String::from_utf8_lossy(text).into_owned();
                match kind {
                    FieldKind::Plain => Some(text),
                    FieldKind::Quoted => Some(format!("[{text}]")),
                    FieldKind::Null => None,
                }
            });
            records.push(fields.collect());
        }
    }

    fn shown(records: &Records) -> String {
        let field = |field: &Option<String>| field.clone().unwrap_or("null".to_owned());
        let record =
            |fields: &Vec<Option<String>>| fields.iter().map(field).collect::<Vec<_>>().join("|");
        records.iter().map(record).collect::<Vec<_>>().join(" / ")
    }

    #[test]
    fn records_have_fields_with_and_without_quotes() {
        let spark = FieldSyntax {
            escape: Some((b'\\', EscapeRule::Quotes)),
            ..PLAIN
        };
        let pandas = FieldSyntax {
            escape: Some((b'\\', EscapeRule::Anywhere)),
            ..PLAIN
        };
        let mysql = FieldSyntax {
            delimiter: b'\t',
            quote: None,
            escape: Some((b'\\', EscapeRule::Letters)),
            ..PLAIN
        };
        let stray = FieldSyntax {
            takes_stray_quotes: true,
            ..PLAIN
        };
        let comments = FieldSyntax {
            comment: Some(b'#'),
            ..PLAIN
        };
        let excel = FieldSyntax {
            has_delimiter_line: true,
            ..PLAIN
        };
        let titled = FieldSyntax {
            lines_before: 2,
            ..PLAIN
        };
        for (syntax, text, expected) in [
            (&titled, "\u{feff}A \"title\r\n\r\na,b\r\n1,2", "a|b / 1|2"),
            (&titled, "x\ry\ra,b\r", "a|b"),
            (&titled, "x\n", ""),
            (&PLAIN, "a,b\n1,\"x\"\n", "a|b / 1|[x]"),
            (&PLAIN, "\u{feff}\"a\",b\r\n\r\n1,2\r3,", "[a]|b / 1|2 / 3|"),
            (&PLAIN, "\"a \"\"b\"\"\",\"\",\"\n,\"", "[a \"b\"]|[]|[\n,]"),
            (&PLAIN, ",\n\n ,\\\n", "| /  |\\"),
            (&PLAIN, "sep=;\n#,1\n", "sep=; / #|1"),
            (
                &spark,
                r#""a \"b\" \\ c\d","","",\"#,
                r#"[a "b" \ c\d]|[]|[]|\"#,
            ),
            (&pandas, r#"a\,b,\"c\",\\,"d\"e\n""#, r#"a,b|"c"|\|[d"en]"#),
            (
                &mysql,
                "\\N\ta\\tb\t\\\\N\tc\\\td\\\ne\t\"\t\\N x\tN\n\\N",
                "null|a\tb|\\N|c\td\ne|\"|N x|N / null",
            ),
            (&mysql, "a\rb\tc\r\\\nd\r\n\ne", "a\rb|c\r\nd /  / e"),
            (&pandas, "a\r,b\r\n\r\n\rc,d\r", "a\r|b / \rc|d"),
            (&stray, "5\" x,\"a\"b\"c,\"d\"\n", "5\" x|ab\"c|[d]"),
            (&comments, "#a,\"\n1,#2\n#", "1|#2"),
            (&excel, "sep=;\r\na;b,c\n", "a|b,c"),
            (&excel, "\u{feff}sep=\t\na\tb", "a|b"),
            (&excel, "a,b\nsep=;\n", "a|b / sep=;"),
        ] {
            for drop in [1, 2, 3, 1000] {
                let records = read(syntax, text.as_bytes(), drop).unwrap();
                assert_eq!(shown(&records), expected, "{text:?} by {drop}");
            }
        }
    }

    #[test]
    fn empty_lines_are_records_where_they_are_kept() {
        let comments = FieldSyntax {
            comment: Some(b'#'),
            ..PLAIN
        };
        let excel = FieldSyntax {
            has_delimiter_line: true,
            ..PLAIN
        };
        for (syntax, text, expected) in [
            (&PLAIN, "a\n\n\"\"\nb\n\n", "a /  / [] / b / "),
            (&PLAIN, "\r\n\r\na\r\n\r\nb", " /  / a /  / b"),
            (&PLAIN, "a\r\rb\r", "a /  / b"),
            (&PLAIN, "", ""),
            (&comments, "#x\r\na\r\n#\n\n#", "a / "),
            (&excel, "sep=;\r\n\na\n", " / a"),
        ] {
            // Streams of few bytes end within line ends.
            for drop in [1, 2, 1000] {
                let mut reader = reader_of(syntax, text.as_bytes(), drop);
                reader.keep_empty_lines();
                let records = read_all(reader).unwrap();
                assert_eq!(shown(&records), expected, "{text:?} by {drop}");
            }
        }
    }

    #[test]
    fn each_way_in_which_quotes_are_wrong_is_a_fault_at_its_place() {
        let escape = |rule| FieldSyntax {
            escape: Some((b'\\', rule)),
            ..PLAIN
        };
        let stray = FieldSyntax {
            takes_stray_quotes: true,
            ..PLAIN
        };
        for (syntax, text, problem, at, field) in [
            (&PLAIN, "a,b\n1,x\"y\n", QuoteProblem::InPlainField, 7, 1),
            (&PLAIN, "a, \"b\"", QuoteProblem::InPlainField, 3, 1),
            (&PLAIN, "\"a\" ,b", QuoteProblem::TextBehind, 3, 0),
            (&PLAIN, "\"a\"b\"", QuoteProblem::TextBehind, 3, 0),
            (&PLAIN, "\"a\\\"b\"", QuoteProblem::TextBehind, 4, 0),
            (&PLAIN, "a\n\"b\nc", QuoteProblem::Unclosed, 2, 0),
            (&stray, "a\n\"b\nc", QuoteProblem::Unclosed, 2, 0),
            (&PLAIN, "a\n\"b\"\"\n", QuoteProblem::Unclosed, 2, 0),
            (
                &escape(EscapeRule::Quotes),
                "\"a\\\"",
                QuoteProblem::Unclosed,
                0,
                0,
            ),
            (
                &escape(EscapeRule::Quotes),
                "\"a\\",
                QuoteProblem::EscapeAtEnd,
                2,
                0,
            ),
            (
                &escape(EscapeRule::Anywhere),
                "a\\",
                QuoteProblem::EscapeAtEnd,
                1,
                0,
            ),
        ] {
            for drop in [1, 1000] {
                let malformed = read(syntax, text.as_bytes(), drop).unwrap_err();
                let expected = Malformed { problem, at, field };
                assert_eq!(malformed, expected, "{text:?}");
            }
        }
    }

    /// Texts without stray quotes are read as the csv crate reads them.
    #[test]
    fn records_are_those_of_the_csv_crate() {
        let words = [
            "a",
            "\"\"",
            "\"b,\n\"",
            ",",
            ",",
            "\n",
            "\r\n",
            "\r",
            "\"x\"\"y\"",
            "long text",
            " ",
        ];
        let stray = FieldSyntax {
            takes_stray_quotes: true,
            ..PLAIN
        };
        let mut seed = 7u64;
        let mut compared = 0;
        for round in 0..400 {
            let mut text = String::new();
            for _ in 0..round % 40 {
                seed = seed
                    .wrapping_mul(6_364_136_223_846_793_005)
                    .wrapping_add(1_442_695_040_888_963_407);
                text += words[(seed >> 33) as usize % words.len()];
            }
            let expected: Vec<Vec<String>> = csv::ReaderBuilder::new()
                .has_headers(false)
                .flexible(true)
                .from_reader(text.as_bytes())
                .into_records()
                .map(|record| record.unwrap().iter().map(str::to_owned).collect())
                .collect();
            // A quote may be left open.
            let Ok(records) = read(&stray, text.as_bytes(), 5) else {
                continue;
            };
            compared += 1;
            let plain = |field: Option<String>| {
                let field = field.unwrap();
                let bare = field
                    .strip_prefix('[')
                    .and_then(|text| text.strip_suffix(']'));
                bare.map_or(field.clone(), str::to_owned)
            };
            let records: Vec<Vec<String>> = records
                .into_iter()
                .map(|record| record.into_iter().map(plain).collect())
                .collect();
            assert_eq!(records, expected, "{text:?}");
        }
        assert!(compared > 200, "{compared}");
    }

    #[test]
    fn long_records_are_read_and_endless_ones_refused() {
        let long = format!("\"{}\",b\n1,2\n", "x\n".repeat(BUFFER_BYTES));
        let records = read(&PLAIN, long.as_bytes(), 10_000).unwrap();
        assert_eq!(records.len(), 2);
        let endless = io::repeat(b'x');
        let mut reader = RecordReader::new(Box::new(endless), PLAIN, true).unwrap();
        let error = reader.read(&mut CsvRecord::default()).unwrap_err();
        assert!(matches!(error, RecordError::TooLong));
        let blank = io::repeat(b'\n').take(3 * RECORD_BYTES_MAX as u64);
        let mut reader = RecordReader::new(Box::new(blank), PLAIN, true).unwrap();
        assert!(!reader.read(&mut CsvRecord::default()).unwrap());
    }
}
