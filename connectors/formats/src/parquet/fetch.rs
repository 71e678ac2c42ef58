//! Bytes of a file for the Parquet decoder.

use std::io::{self, BufRead, BufReader, Chain, Read};
use std::ops::Range;
use std::sync::Arc;

use bytes::Bytes;
use bytes::buf::{Buf, Reader};
use forebay_model::{ContentId, Result};
use forebay_storage::{FetchedParts, PlannedReads, StorageClient, StorageLocation};
use parquet::errors::ParquetError;
use parquet::file::metadata::RowGroupMetaData;
use parquet::file::reader::{ChunkReader, Length};

use crate::files::blob::{PositionedReader, read_exact};

/// A page's header is mostly shorter than this.
const HEADER_BYTES: usize = 256;

/// Bytes of a local row group that are read column by column, not page by page.
const WHOLE_BYTES_MAX: u64 = 1 << 20;

/// Source of the decoder's pages.
#[derive(Clone)]
pub(super) enum PageSource {
    /// A local file and its size, read page by page, and the cache of pages that are read again.
    Local(Arc<std::fs::File>, u64, Option<CachedFile>),
    /// The requested columns of one row group, fetched before.
    Fetched(Arc<FetchedParts>, u64),
}

/// File whose pages a run caches.
#[derive(Clone)]
pub(super) struct CachedFile {
    pub(super) io: StorageClient,
    /// Id of the content of the file.
    pub(super) id: ContentId,
}

/// A read of [`PageSource`] onwards from somewhere.
pub(super) enum PageStream {
    File(BufReader<PositionedReader>),
    /// The first bytes are known.
    Begun(Chain<Reader<Bytes>, BufReader<PositionedReader>>),
    Parts(PartsReader),
}

/// A reader of bytes from a position on, through consecutive parts.
pub(super) struct PartsReader {
    parts: Arc<FetchedParts>,
    /// The next byte after `part`.
    at: u64,
    part: Bytes,
}

impl Read for PartsReader {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let length = buffer.len().min(self.fill_buf()?.len());
        buffer[..length].copy_from_slice(&self.part.split_to(length));
        Ok(length)
    }
}

impl BufRead for PartsReader {
    fn fill_buf(&mut self) -> io::Result<&[u8]> {
        if self.part.is_empty() {
            self.part = self.parts.tail_at(self.at).unwrap_or_default();
            self.at += self.part.len() as u64;
        }
        Ok(&self.part)
    }

    fn consume(&mut self, bytes: usize) {
        self.part.advance(bytes);
    }
}

impl Read for PageStream {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match self {
            PageStream::File(file) => file.read(buffer),
            PageStream::Begun(file) => file.read(buffer),
            PageStream::Parts(parts) => parts.read(buffer),
        }
    }
}

impl BufRead for PageStream {
    fn fill_buf(&mut self) -> io::Result<&[u8]> {
        match self {
            PageStream::File(file) => file.fill_buf(),
            PageStream::Begun(file) => file.fill_buf(),
            PageStream::Parts(parts) => parts.fill_buf(),
        }
    }

    fn consume(&mut self, bytes: usize) {
        match self {
            PageStream::File(file) => file.consume(bytes),
            PageStream::Begun(file) => file.consume(bytes),
            PageStream::Parts(parts) => parts.consume(bytes),
        }
    }
}

impl Length for PageSource {
    fn len(&self) -> u64 {
        match self {
            PageSource::Local(_, size, _) | PageSource::Fetched(_, size) => *size,
        }
    }
}

impl PageSource {
    /// A file that is in memory.
    pub(super) fn of_file(bytes: &Bytes) -> PageSource {
        let parts = FetchedParts::new(vec![(0, bytes.clone())]);
        PageSource::Fetched(Arc::new(parts), bytes.len() as u64)
    }

    /// The requested columns of a local row group, if they are small enough to be read at once: a
    /// page takes two reads.
    pub(super) fn whole(
        file: &std::fs::File,
        size: u64,
        CachedFile { io, id }: &CachedFile,
        group: &RowGroupMetaData,
        leaves: &[usize],
    ) -> Option<PageSource> {
        let mut total = 0;
        for leaf in leaves {
            let (_, length) = group.column(*leaf).byte_range();
            total += length;
        }
        if total > WHOLE_BYTES_MAX {
            return None;
        }
        let mut parts = Vec::with_capacity(leaves.len());
        for leaf in leaves {
            let (start, length) = group.column(*leaf).byte_range();
            let length = length as usize;
            let read = || read_exact(file, start, length);
            // The page reader reports a failure, with the place of the page.
            let bytes = io.read_through_cache(*id, start, length, read).ok()?;
            parts.push((start, bytes));
        }
        let parts = Arc::new(FetchedParts::new(parts));
        Some(PageSource::Fetched(parts, size))
    }
}

impl ChunkReader for PageSource {
    type T = PageStream;

    fn get_read(&self, start: u64) -> parquet::errors::Result<PageStream> {
        match self {
            PageSource::Local(file, size, content) => {
                let reader_from = |at| {
                    BufReader::with_capacity(
                        HEADER_BYTES,
                        PositionedReader {
                            file: file.clone(),
                            at,
                        },
                    )
                };
                let Some(CachedFile { io, id }) = content else {
                    return Ok(PageStream::File(reader_from(start)));
                };
                let length = HEADER_BYTES.min(size.saturating_sub(start) as usize);
                let first =
                    io.read_through_cache(*id, start, length, || read_exact(file, start, length))?;
                Ok(PageStream::Begun(
                    first.reader().chain(reader_from(start + length as u64)),
                ))
            }
            PageSource::Fetched(parts, _) => Ok(PageStream::Parts(PartsReader {
                parts: parts.clone(),
                at: start,
                part: Bytes::new(),
            })),
        }
    }

    fn get_bytes(&self, start: u64, length: usize) -> parquet::errors::Result<Bytes> {
        match self {
            PageSource::Local(_, size, _) if start.saturating_add(length as u64) > *size => {
                Err(ParquetError::EOF(format!(
                    "{length} bytes at {start} lie beyond the end of the file"
                )))
            }
            PageSource::Local(file, _, None) => Ok(read_exact(file, start, length)?),
            PageSource::Local(file, _, Some(CachedFile { io, id })) => {
                Ok(io.read_through_cache(*id, start, length, || read_exact(file, start, length))?)
            }
            PageSource::Fetched(parts, _) => {
                parts.slice(start..start + length as u64).ok_or_else(|| {
                    ParquetError::EOF(format!(
                        "{length} bytes at {start} lie beyond the end of the column"
                    ))
                })
            }
        }
    }
}

/// Reads of the requested columns of a remote file's row groups, in the order in which they are
/// decoded.
pub(super) struct RowGroupReads {
    reads: PlannedReads,
    content: CachedFile,
    groups: Vec<GroupRanges>,
    /// The next row group.
    next: usize,
}

/// The requested columns of a row group.
#[derive(Default)]
struct GroupRanges {
    wanted: Vec<Range<u64>>,
    /// Columns that the run has read before.
    known: Vec<(u64, Bytes)>,
}

/// Ranges of the requested columns in a row group.
pub(super) fn column_ranges(group: &RowGroupMetaData, leaves: &[usize]) -> Vec<Range<u64>> {
    let ranges = leaves.iter().map(|leaf| group.column(*leaf).byte_range());
    ranges
        .map(|(start, length)| start..start + length)
        .collect()
}

impl RowGroupReads {
    /// Submits ranges of row groups; those that are closer together than `gap` share a request.
    pub(super) fn start(
        content: CachedFile,
        location: &StorageLocation,
        etag: Option<&str>,
        groups: impl Iterator<Item = Vec<Range<u64>>>,
        gap: u64,
    ) -> Self {
        let divide = |ranges: Vec<Range<u64>>| {
            let mut divided = GroupRanges::default();
            for range in ranges {
                match content.io.cached_range(
                    content.id,
                    range.start,
                    (range.end - range.start) as usize,
                ) {
                    Some(bytes) => divided.known.push((range.start, bytes)),
                    None => divided.wanted.push(range),
                }
            }
            divided
        };
        let groups: Vec<GroupRanges> = groups.map(divide).collect();
        let ranges: Vec<Vec<Range<u64>>> =
            groups.iter().map(|group| group.wanted.clone()).collect();
        RowGroupReads {
            reads: content.io.plan_reads(location, etag, &ranges, gap),
            content,
            groups,
            next: 0,
        }
    }

    /// Waits for the next row group.
    pub(super) fn next_group(&mut self, size: u64) -> Result<PageSource> {
        let group = self
            .groups
            .get_mut(self.next)
            .map(std::mem::take)
            .unwrap_or_default();
        let mut parts = self.reads.take(self.next)?;
        self.next += 1;
        for range in group.wanted {
            let length = (range.end - range.start) as usize;
            self.content
                .io
                .cache_range(self.content.id, range.start, length, || parts.slice(range));
        }
        for (start, bytes) in group.known {
            parts.insert(start, bytes);
        }
        Ok(PageSource::Fetched(Arc::new(parts), size))
    }
}
