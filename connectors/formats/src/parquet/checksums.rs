//! Checksums of written files: of each page, in the field that Parquet has for it, and of the
//! footer.
//!
//! The writer of the library leaves both out. Readers of other programs check the pages, too; the
//! footer's checksum is a key and value of its metadata that they ignore.

use std::fmt::Debug;
use std::io::{self, Write};
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use parquet::arrow::arrow_writer::{PageKey, PageStore, PageStoreArgs, PageStoreFactory};
use parquet::errors::{ParquetError, Result};
use parquet::file::metadata::{KeyValue, ParquetMetaData};

/// The key of the footer's checksum.
const FOOTER_KEY: &str = "forebay.footer.crc32";

/// Placeholder of the footer's checksum while it is computed.
const ZEROS: &str = "00000000";

/// The first field of a page's header, and each of the two that follow: an `i32`, one more than the field before it.
const NEXT_I32: u8 = 0x15;

/// The type of a page, as its header encodes it.
const DICTIONARY_PAGE: u8 = 4;

/// Bytes that a checksum adds to a header at most.
pub(super) const CHECKSUM_BYTES_MAX: usize = 6;

/// Appends a page whose header is encoded without a checksum, and adds the checksum of its body.
pub(super) fn append_page(header: &[u8], body: &[u8], out: &mut Vec<u8>) -> Result<()> {
    let sizes_end = page_sizes_end(header)
        .ok_or_else(|| ParquetError::General("a page's header is no header".to_owned()))?;
    out.extend_from_slice(&header[..sizes_end]);
    out.push(NEXT_I32);
    let checksum = crc32fast::hash(body) as i32;
    let mut zigzag = ((checksum << 1) ^ (checksum >> 31)) as u32;
    while zigzag >= 0x80 {
        out.push(zigzag as u8 | 0x80);
        zigzag >>= 7;
    }
    out.push(zigzag as u8);
    // The field after it was two or more later than the sizes, and is one less than that now.
    out.push(header[sizes_end] - 0x10);
    out.extend_from_slice(&header[sizes_end + 1..]);
    out.extend_from_slice(body);
    Ok(())
}

/// Offset of the end of the third field of a page's header, if the fourth, the checksum, is absent.
fn page_sizes_end(header: &[u8]) -> Option<usize> {
    let mut at = 0;
    for _ in 0..3 {
        if *header.get(at)? != NEXT_I32 {
            return None;
        }
        at += 2 + header
            .get(at + 1..)?
            .iter()
            .position(|byte| byte & 0x80 == 0)?;
    }
    (*header.get(at)? >= 0x20).then_some(at)
}

/// A page of the general writer.
#[derive(Debug, Clone, Default)]
pub(super) struct GeneralPage {
    pub(super) header: Bytes,
    pub(super) body: Bytes,
}

impl GeneralPage {
    /// True for a dictionary, which comes last and is written first.
    pub(super) fn is_dictionary(&self) -> bool {
        self.header.get(1) == Some(&DICTIONARY_PAGE)
    }
}

/// Receives the pages of the general writer, one column chunk at a time.
#[derive(Debug, Clone, Default)]
pub(super) struct GeneralPages {
    chunks: Arc<Mutex<Vec<SharedPages>>>,
}

type SharedPages = Arc<Mutex<Vec<GeneralPage>>>;

fn poison_error<E>(_: E) -> ParquetError {
    ParquetError::General("another thread failed while it held the pages".to_owned())
}

impl GeneralPages {
    /// The pages of each column chunk, in the order in which their writers were made.
    pub(super) fn take(&self) -> Result<Vec<Vec<GeneralPage>>> {
        let chunks = std::mem::take(&mut *self.chunks.lock().map_err(poison_error)?);
        chunks
            .into_iter()
            .map(|chunk| Ok(std::mem::take(&mut *chunk.lock().map_err(poison_error)?)))
            .collect()
    }
}

impl PageStoreFactory for GeneralPages {
    fn create(&self, _: &PageStoreArgs<'_>) -> Result<Box<dyn PageStore>> {
        let pages = SharedPages::default();
        self.chunks
            .lock()
            .map_err(poison_error)?
            .push(pages.clone());
        Ok(Box::new(GeneralChunk {
            pages,
            blobs: 0,
            bytes: 0,
        }))
    }
}

/// The pages of one column chunk: the writer gives a header and a body in turn.
struct GeneralChunk {
    pages: SharedPages,
    blobs: u64,
    bytes: usize,
}

impl PageStore for GeneralChunk {
    fn put(&mut self, value: Bytes) -> Result<PageKey> {
        let mut pages = self.pages.lock().map_err(poison_error)?;
        self.bytes += value.len();
        match pages.last_mut() {
            Some(page) if self.blobs % 2 == 1 => page.body = value,
            _ => pages.push(GeneralPage {
                header: value,
                body: Bytes::new(),
            }),
        }
        self.blobs += 1;
        Ok(PageKey::new(self.blobs - 1))
    }

    fn take(&mut self, _: PageKey) -> Result<Bytes> {
        Err(ParquetError::General("pages are taken together".to_owned()))
    }

    fn memory_size(&self) -> usize {
        self.bytes
    }
}

/// The pair of a footer's metadata that will hold its checksum.
pub(super) fn footer_checksum_pair() -> KeyValue {
    KeyValue::new(FOOTER_KEY.to_owned(), ZEROS.to_owned())
}

/// Offset of the checksum in a footer that has one.
fn footer_checksum_offset(footer: &[u8]) -> Option<usize> {
    // The value follows its key as a string of eight bytes.
    let pair = [FOOTER_KEY.as_bytes(), &[0x18, ZEROS.len() as u8]].concat();
    let at = footer
        .windows(pair.len())
        .rposition(|window| window == pair)?
        + pair.len();
    (at + ZEROS.len() <= footer.len()).then_some(at)
}

/// The checksum of a footer, as it is computed with zeros in its own place.
fn footer_checksum(footer: &[u8], offset: usize) -> String {
    let mut checksum = crc32fast::Hasher::new();
    for part in [
        &footer[..offset],
        ZEROS.as_bytes(),
        &footer[offset + ZEROS.len()..],
    ] {
        checksum.update(part);
    }
    format!("{:08x}", checksum.finalize())
}

/// True if a footer matches its checksum, or has none.
pub(super) fn footer_checksum_matches(metadata: &ParquetMetaData, footer: &[u8]) -> bool {
    let pairs = metadata.file_metadata().key_value_metadata();
    let recorded = pairs
        .into_iter()
        .flatten()
        .rfind(|pair| pair.key == FOOTER_KEY)
        .and_then(|pair| pair.value.as_deref());
    match recorded {
        Some(recorded) => footer_checksum_offset(footer)
            .is_some_and(|offset| footer_checksum(footer, offset) == recorded),
        None => true,
    }
}

/// Destination of a file. The end of the file is held back until the footer's checksum is in it.
pub(super) struct FooterChecksumWriter {
    out: Box<dyn Write + Send>,
    held: Option<Vec<u8>>,
}

impl FooterChecksumWriter {
    pub(super) fn new(out: Box<dyn Write + Send>) -> Self {
        FooterChecksumWriter { out, held: None }
    }

    /// Holds back all later writes.
    pub(super) fn hold_back(&mut self) {
        self.held = Some(Vec::new());
    }

    /// Writes the held-back bytes, which end with the footer, its length and the magic bytes.
    pub(super) fn finish(&mut self) -> io::Result<()> {
        let mut footer_bytes = self.held.take().unwrap_or_default();
        let end = footer_bytes.len().saturating_sub(8);
        let length = footer_bytes
            .get(end..end + 4)
            .and_then(|length| length.try_into().ok())
            .map(u32::from_le_bytes);
        let start = length.and_then(|length| end.checked_sub(length as usize));
        if let Some(start) = start
            && let Some(offset) = footer_checksum_offset(&footer_bytes[start..end])
        {
            let checksum = footer_checksum(&footer_bytes[start..end], offset);
            footer_bytes[start + offset..start + offset + ZEROS.len()]
                .copy_from_slice(checksum.as_bytes());
        }
        self.out.write_all(&footer_bytes)?;
        self.out.flush()
    }
}

impl Write for FooterChecksumWriter {
    fn write(&mut self, buffer: &[u8]) -> io::Result<usize> {
        match &mut self.held {
            Some(footer_bytes) => footer_bytes.write(buffer),
            None => self.out.write(buffer),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        self.out.flush()
    }
}
