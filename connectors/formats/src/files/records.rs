//! Positions of the records of a text file, for files that are divided into spans.
//!
//! A span of a text file is a range of bytes: the records that begin in it. The position of the
//! first one, and its row number, depend on everything before: in CSV, an end of line may lie
//! inside of quotes. The bytes before a range are scanned once for that, by the first reader that
//! needs the result. No position is guessed.

use std::collections::HashMap;
use std::fmt::{Debug, Formatter};
use std::io::{BufRead, BufReader, ErrorKind, Read};
use std::ops::Range;
use std::sync::{Arc, Mutex};

use forebay_model::{FileRange, RECORD_BYTES_MAX, Result};
use forebay_threads::lock;
use memchr::{memchr, memchr3};

use super::input_file::{FilePart, InputFile};
use super::stream::{self, BUFFER_BYTES};

/// Syntax of the end of a record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RecordSyntax {
    /// An end of line outside of quotes; empty lines are no records.
    Csv { delimiter: u8 },
    /// An end of line; blank lines are no records.
    Lines,
}

/// True if a file may be divided: compressed bytes can only be read from the first on.
pub(crate) fn is_divisible(path: &str) -> bool {
    let name = path.to_ascii_lowercase();
    !name.ends_with(".gz") && !name.ends_with(".zst")
}

/// Divided files of a source, and their known records.
#[derive(Debug)]
pub(crate) struct RecordIndexes {
    span_bytes: u64,
    /// Indexes by path and content.
    indexes: Mutex<HashMap<String, Arc<RecordIndex>>>,
}

impl RecordIndexes {
    pub(crate) fn new(span_bytes: u64) -> Self {
        RecordIndexes {
            span_bytes,
            indexes: Mutex::default(),
        }
    }

    /// The ranges of bytes that a file is divided into; none for a small one.
    pub(crate) fn byte_ranges(&self, size: u64) -> Vec<(u64, u64)> {
        if size <= self.span_bytes {
            return Vec::new();
        }
        let starts = (0..size.div_ceil(self.span_bytes)).map(|span| span * self.span_bytes);
        starts
            .map(|start| (start, (start + self.span_bytes).min(size)))
            .collect()
    }

    /// The part of a file that a piece with a range of bytes stands for.
    pub(crate) fn part(
        &self,
        piece: &FileRange,
        range: Range<u64>,
        file: &InputFile,
        syntax: RecordSyntax,
    ) -> Result<FilePart> {
        let key = format!("{} {}", piece.path, piece.fingerprint);
        let index = lock(&self.indexes)?.entry(key).or_default().clone();
        let mut scan = lock(&index.scan)?;
        let scan = scan.get_or_insert_with(|| RecordScan {
            scanner: RecordScanner::new(syntax),
            at: 0,
            stream: None,
            starts: vec![(0, 0)],
        });
        let from = range.start;
        let to = range.end;
        let (start, records_before) =
            scan.first_record(from / self.span_bytes, self.span_bytes, file)?;
        let end = if to >= file.size {
            file.size
        } else {
            scan.first_record(to / self.span_bytes, self.span_bytes, file)?
                .0
        };
        Ok(FilePart {
            bytes: start..end.max(start),
            records_before,
            names: index.names.clone(),
        })
    }
}

/// Known records of a file.
#[derive(Debug, Default)]
struct RecordIndex {
    scan: Mutex<Option<RecordScan>>,
    names: Arc<Mutex<Option<Vec<String>>>>,
}

/// Scan that continues where the last reader that needed it stopped.
struct RecordScan {
    scanner: RecordScanner,
    /// The next byte to scan.
    at: u64,
    stream: Option<BufReader<Box<dyn Read + Send>>>,
    /// For each range, the position of the first record that begins at or after its first byte, and
    /// the number of records before it.
    starts: Vec<(u64, u64)>,
}

impl Debug for RecordScan {
    fn fmt(&self, f: &mut Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("RecordScan")
            .field("at", &self.at)
            .finish_non_exhaustive()
    }
}

impl RecordScan {
    /// The first record of a range, and the number of records before it.
    fn first_record(
        &mut self,
        range: u64,
        span_bytes: u64,
        file: &InputFile,
    ) -> Result<(u64, u64)> {
        loop {
            if let Some(start) = self.starts.get(range as usize) {
                return Ok(*start);
            }
            let start = self.scan_to(self.starts.len() as u64 * span_bytes, file)?;
            self.starts.push(start);
        }
    }

    /// Scans to the first record that begins at or after a byte.
    fn scan_to(&mut self, from: u64, file: &InputFile) -> Result<(u64, u64)> {
        if self.at > 0 && self.scanner.record_start == self.at && self.at >= from {
            return Ok((self.at, self.scanner.records));
        }
        loop {
            if self.at >= file.size || self.scanner.is_endless(self.at) {
                // The reader of a record that has no end says so: there is nothing after it.
                self.stream = None;
                return Ok((file.size, self.scanner.records));
            }
            let open_stream = || {
                BufReader::with_capacity(BUFFER_BYTES, file.blob.range_reader(self.at..file.size))
            };
            let mut stream = self.stream.take().unwrap_or_else(open_stream);
            let block = match stream.fill_buf() {
                Err(error) if error.kind() == ErrorKind::Interrupted => {
                    self.stream = Some(stream);
                    continue;
                }
                block => block.map_err(|error| stream::stream_fault(&file.path, error))?,
            };
            if block.is_empty() {
                self.at = file.size;
                continue;
            }
            let line_end = self.scanner.scan(block, self.at, from);
            let scanned = line_end.map_or(block.len() as u64, |(offset, _)| offset - self.at);
            stream.consume(scanned as usize);
            self.at += scanned;
            self.stream = Some(stream);
            if let Some(line_end) = line_end {
                return Ok(line_end);
            }
        }
    }
}

/// Counts records from the first byte of a file on.
#[derive(Debug)]
struct RecordScanner {
    syntax: RecordSyntax,
    state: ScanState,
    /// The byte before the next one.
    before: u8,
    /// True if the current record has a byte that makes it one.
    has_content: bool,
    /// Position of the current record's first byte.
    record_start: u64,
    /// Records that have ended.
    records: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ScanState {
    Plain,
    Quoted,
    /// After a quote inside of quotes: the end, or the first half of an escaped quote.
    QuoteInQuotes,
}

/// The mark that some programs put before UTF-8.
const BYTE_ORDER_MARK: &[u8] = b"\xef\xbb\xbf";

impl RecordScanner {
    fn new(syntax: RecordSyntax) -> Self {
        let state = ScanState::Plain;
        RecordScanner {
            syntax,
            state,
            before: b'\n',
            has_content: false,
            record_start: 0,
            records: 0,
        }
    }

    /// True if the current record is longer than records may be.
    fn is_endless(&self, at: u64) -> bool {
        at - self.record_start > RECORD_BYTES_MAX as u64
    }

    /// Scans the bytes at an offset of the file, up to the first place at or after `from` where a record begins. Returns
    /// the place and the number of records before it.
    fn scan(&mut self, block: &[u8], offset: u64, from: u64) -> Option<(u64, u64)> {
        let mut at = 0;
        if offset == 0 && block.starts_with(BYTE_ORDER_MARK) {
            at = BYTE_ORDER_MARK.len();
        }
        while at < block.len() {
            let ended = match self.syntax {
                RecordSyntax::Csv { delimiter } => self.scan_csv(block, &mut at, delimiter),
                RecordSyntax::Lines => self.scan_line(block, &mut at),
            };
            if ended {
                self.record_start = offset + at as u64;
                if self.record_start >= from {
                    return Some((self.record_start, self.records));
                }
            }
        }
        None
    }

    /// Scans to the end of a line or of the block; returns true if a line has ended.
    fn scan_line(&mut self, block: &[u8], at: &mut usize) -> bool {
        let unread = &block[*at..];
        let end = memchr(b'\n', unread);
        let line = &unread[..end.unwrap_or(unread.len())];
        self.has_content = self.has_content || !line.iter().all(u8::is_ascii_whitespace);
        *at += line.len() + usize::from(end.is_some());
        if end.is_some() {
            self.end_record();
        }
        end.is_some()
    }

    fn end_record(&mut self) {
        self.records += u64::from(std::mem::take(&mut self.has_content));
    }

    /// Scans to the next byte with a meaning; returns true if a line has ended.
    fn scan_csv(&mut self, block: &[u8], at: &mut usize, delimiter: u8) -> bool {
        let unread = &block[*at..];
        match self.state {
            ScanState::Plain => {
                let end = memchr3(b'"', b'\n', b'\r', unread);
                let plain = &unread[..end.unwrap_or(unread.len())];
                self.has_content |= !plain.is_empty();
                self.before = plain.last().copied().unwrap_or(self.before);
                let Some(end) = end else {
                    *at = block.len();
                    return false;
                };
                *at += end + 1;
                let byte = unread[end];
                // Elsewhere in a field, a quote is a letter like others.
                let begins_field =
                    self.before == delimiter || self.before == b'\n' || self.before == b'\r';
                if byte == b'"' {
                    self.has_content = true;
                    self.state = if begins_field {
                        ScanState::Quoted
                    } else {
                        ScanState::Plain
                    };
                    self.before = byte;
                    return false;
                }
                self.before = byte;
                self.end_record();
                true
            }
            ScanState::Quoted => {
                match memchr(b'"', unread) {
                    Some(end) => {
                        self.state = ScanState::QuoteInQuotes;
                        *at += end + 1;
                    }
                    None => *at = block.len(),
                }
                false
            }
            ScanState::QuoteInQuotes => {
                if unread[0] == b'"' {
                    self.state = ScanState::Quoted;
                    *at += 1;
                } else {
                    // What follows the end of quotes belongs to the field.
                    self.state = ScanState::Plain;
                    self.before = b'"';
                }
                false
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Positions of the records of a text, found block by block.
    fn starts(syntax: RecordSyntax, text: &[u8], block_bytes: usize) -> Vec<(u64, u64)> {
        let mut found = Vec::new();
        for from in 1..=text.len() as u64 {
            let mut scanner = RecordScanner::new(syntax);
            let mut offset = 0;
            let blocks = text.chunks(block_bytes);
            let first = blocks.into_iter().find_map(|block| {
                let start = scanner.scan(block, offset, from);
                offset += block.len() as u64;
                start
            });
            found.extend(first);
        }
        found.dedup();
        found
    }

    fn csv_records(text: &[u8]) -> Vec<csv::ByteRecord> {
        let reader = csv::ReaderBuilder::new()
            .has_headers(false)
            .flexible(true)
            .from_reader(text);
        reader
            .into_byte_records()
            .map(std::result::Result::unwrap)
            .collect()
    }

    #[test]
    fn records_begin_where_the_csv_reader_finds_them() {
        let csv = RecordSyntax::Csv { delimiter: b',' };
        let words: [&[u8]; 9] = [
            b"a", b"\"", b"\"\"", b",", b"\n", b"\r\n", b"\r", b"\n\n", b"bc",
        ];
        let mut seed = 7u64;
        for round in 0..240 {
            let mut text = Vec::new();
            for _ in 0..round % 24 {
                seed = seed
                    .wrapping_mul(6_364_136_223_846_793_005)
                    .wrapping_add(1_442_695_040_888_963_407);
                text.extend(words[(seed >> 33) as usize % words.len()]);
            }
            let shown = String::from_utf8_lossy(&text).into_owned();
            let expected = csv_records(&text);
            for block in [1, 3, 100] {
                for (offset, records) in starts(csv, &text, block) {
                    let rest = csv_records(&text[offset as usize..]);
                    assert_eq!(
                        rest,
                        expected[records as usize..],
                        "from {offset} of {shown:?} in blocks of {block}"
                    );
                }
            }
        }
    }

    #[test]
    fn lines_that_are_blank_are_no_records() {
        let text = b"\xef\xbb\xbf{}\n\n  \r\n{\"a\": \"\\n\"}\n{}";
        let found = starts(RecordSyntax::Lines, text, 4);
        assert_eq!(found, [(6, 1), (7, 1), (11, 1), (23, 2)]);
    }

    #[test]
    fn files_are_divided_into_even_ranges() {
        let indexes = RecordIndexes::new(10);
        assert_eq!(indexes.byte_ranges(10), []);
        assert_eq!(indexes.byte_ranges(25), [(0, 10), (10, 20), (20, 25)]);
        assert!(
            is_divisible("s3://a/b.csv")
                && !is_divisible("b.CSV.gz")
                && !is_divisible("b.json.zst")
        );
    }
}
