//! Bytes of a file for the Parquet decoder.

use std::io::{self, BufReader, Chain, Read};
use std::ops::Range;
use std::sync::Arc;

use bytes::Bytes;
use bytes::buf::{Buf, Reader};
use forebay_model::{ContentId, Result};
use forebay_storage::{COALESCE_BYTES_DEFAULT, RangeFetch, StorageClient, StorageLocation};
use parquet::errors::ParquetError;
use parquet::file::metadata::RowGroupMetaData;
use parquet::file::reader::{ChunkReader, Length};

use crate::files::blob::{PositionedReader, read_exact};

/// A page's header is mostly shorter than this.
const HEADER_BYTES: usize = 256;

/// Bytes of a local row group that are read column by column, not page by page.
const WHOLE_BYTES_MAX: u64 = 1 << 20;

/// Where the decoder reads pages from.
pub(super) enum PageSource {
    /// A local file and its size, read page by page; and what keeps pages that are read again.
    Local(Arc<std::fs::File>, u64, Option<CachedFile>),
    /// The wanted columns of one row group, fetched before: where each begins, and its bytes.
    Fetched(Vec<(u64, Bytes)>, u64),
}

/// A file of which a run keeps what it reads.
#[derive(Clone)]
pub(super) struct CachedFile {
    pub(super) io: StorageClient,
    /// Names what the file holds.
    pub(super) id: ContentId,
}

/// A read of [`PageSource`] onwards from somewhere.
pub(super) enum PageStream {
    File(BufReader<PositionedReader>),
    /// The first bytes are known.
    Begun(Chain<Reader<Bytes>, BufReader<PositionedReader>>),
    Bytes(Reader<Bytes>),
}

impl Read for PageStream {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match self {
            PageStream::File(file) => file.read(buffer),
            PageStream::Begun(file) => file.read(buffer),
            PageStream::Bytes(bytes) => bytes.read(buffer),
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
    /// The wanted columns of a local row group, where they are so small that each is read at once: a page is two reads.
    pub(super) fn whole(
        file: &std::fs::File,
        size: u64,
        CachedFile { io, id }: &CachedFile,
        group: &RowGroupMetaData,
        leaves: &[usize],
    ) -> Option<PageSource> {
        let ranges = || leaves.iter().map(|leaf| group.column(*leaf).byte_range());
        if ranges().map(|(_, length)| length).sum::<u64>() > WHOLE_BYTES_MAX {
            return None;
        }
        let read = |(start, length): (u64, u64)| {
            let length = length as usize;
            let bytes = io.read_through_cache(*id, start, length, || read_exact(file, start, length)).ok()?;
            Some((start, bytes))
        };
        let mut parts = ranges().map(read).collect::<Option<Vec<_>>>()?;
        parts.sort_unstable_by_key(|(start, _)| *start);
        Some(PageSource::Fetched(parts, size))
    }

    fn from(&self, start: u64) -> parquet::errors::Result<Bytes> {
        let PageSource::Fetched(parts, _) = self else { return Ok(Bytes::new()) };
        let after = parts.partition_point(|(at, _)| *at <= start);
        let part = after.checked_sub(1).and_then(|i| parts.get(i));
        let inside = part.filter(|(at, bytes)| start - at <= bytes.len() as u64);
        match inside {
            Some((at, bytes)) => Ok(bytes.slice((start - at) as usize..)),
            None => Err(ParquetError::EOF(format!("byte {start} is outside of the row group's columns"))),
        }
    }
}

impl ChunkReader for PageSource {
    type T = PageStream;

    fn get_read(&self, start: u64) -> parquet::errors::Result<PageStream> {
        match self {
            PageSource::Local(file, size, content) => {
                let rest = |at| BufReader::with_capacity(HEADER_BYTES, PositionedReader { file: file.clone(), at });
                let Some(CachedFile { io, id }) = content else { return Ok(PageStream::File(rest(start))) };
                let length = HEADER_BYTES.min(size.saturating_sub(start) as usize);
                let first = io.read_through_cache(*id, start, length, || read_exact(file, start, length))?;
                Ok(PageStream::Begun(first.reader().chain(rest(start + length as u64))))
            }
            PageSource::Fetched(..) => Ok(PageStream::Bytes(self.from(start)?.reader())),
        }
    }

    fn get_bytes(&self, start: u64, length: usize) -> parquet::errors::Result<Bytes> {
        match self {
            PageSource::Local(_, size, _) if start.saturating_add(length as u64) > *size => {
                Err(ParquetError::EOF(format!("{length} bytes at {start} lie beyond the end of the file")))
            }
            PageSource::Local(file, _, None) => Ok(read_exact(file, start, length)?),
            PageSource::Local(file, _, Some(CachedFile { io, id })) => {
                Ok(io.read_through_cache(*id, start, length, || read_exact(file, start, length))?)
            }
            PageSource::Fetched(..) => {
                let bytes = self.from(start)?;
                if bytes.len() < length {
                    return Err(ParquetError::EOF(format!(
                        "{length} bytes at {start} lie beyond the end of the column"
                    )));
                }
                Ok(bytes.slice(..length))
            }
        }
    }
}

/// The wanted columns of a row group, those that are on their way from a remote store among them.
pub(super) struct RowGroupFetch {
    fetch: RangeFetch,
    content: CachedFile,
    /// Where each begins that is on its way.
    starts: Vec<u64>,
    /// Those that the run has read before.
    known: Vec<(u64, Bytes)>,
}

impl RowGroupFetch {
    /// Asks for them.
    pub(super) fn start(
        content: CachedFile,
        place: &StorageLocation,
        etag: Option<&str>,
        group: &RowGroupMetaData,
        leaves: &[usize],
    ) -> Self {
        let whole = leaves.iter().map(|leaf| group.column(*leaf).byte_range());
        let ranges = whole.map(|(start, length)| start..start + length);
        RowGroupFetch::start_ranges(content, place, etag, ranges, COALESCE_BYTES_DEFAULT)
    }

    /// Asks for parts of them; those that are closer together than `gap` are asked for together.
    pub(super) fn start_ranges(
        content: CachedFile,
        place: &StorageLocation,
        etag: Option<&str>,
        wanted: impl IntoIterator<Item = Range<u64>>,
        gap: u64,
    ) -> Self {
        let mut known = Vec::new();
        let mut ranges: Vec<Range<u64>> = Vec::new();
        for range in wanted {
            match content.io.cached_range(content.id, range.start, (range.end - range.start) as usize) {
                Some(bytes) => known.push((range.start, bytes)),
                None => ranges.push(range),
            }
        }
        ranges.sort_unstable_by_key(|range| range.start);
        let starts = ranges.iter().map(|range| range.start).collect();
        RowGroupFetch { fetch: content.io.fetch_apart(place, etag, ranges, gap), content, starts, known }
    }

    /// Waits for them.
    pub(super) fn finish(self, size: u64) -> Result<PageSource> {
        let RowGroupFetch { fetch, content, starts, known } = self;
        let mut parts: Vec<(u64, Bytes)> = starts.into_iter().zip(fetch.finish()?).collect();
        parts.iter().for_each(|(start, bytes)| content.io.cache_range(content.id, *start, bytes));
        parts.extend(known);
        parts.sort_unstable_by_key(|(start, _)| *start);
        Ok(PageSource::Fetched(parts, size))
    }
}
