//! Bytes of a file for the Parquet decoder.

use std::io::{self, BufReader, Chain, Read};
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

/// Where the decoder reads pages from.
#[derive(Clone)]
pub(super) enum PageSource {
    /// A local file and its size, read page by page; and what keeps pages that are read again.
    Local(Arc<std::fs::File>, u64, Option<CachedFile>),
    /// The wanted columns of one row group, fetched before.
    Fetched(Arc<FetchedParts>, u64),
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
    Parts(PartsReader),
}

/// A read of parts onwards from somewhere, through all that follow one another.
pub(super) struct PartsReader {
    parts: Arc<FetchedParts>,
    /// The next byte after `part`.
    at: u64,
    part: Bytes,
}

impl Read for PartsReader {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if self.part.is_empty() {
            self.part = self.parts.tail_at(self.at).unwrap_or_default();
            self.at += self.part.len() as u64;
        }
        let length = buffer.len().min(self.part.len());
        buffer[..length].copy_from_slice(&self.part.split_to(length));
        Ok(length)
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
            let bytes = io
                .read_through_cache(*id, start, length, || read_exact(file, start, length))
                .ok()?;
            Some((start, bytes))
        };
        let parts = ranges().map(read).collect::<Option<Vec<_>>>()?;
        Some(PageSource::Fetched(
            Arc::new(FetchedParts::new(parts)),
            size,
        ))
    }
}

impl ChunkReader for PageSource {
    type T = PageStream;

    fn get_read(&self, start: u64) -> parquet::errors::Result<PageStream> {
        match self {
            PageSource::Local(file, size, content) => {
                let rest = |at| {
                    BufReader::with_capacity(
                        HEADER_BYTES,
                        PositionedReader {
                            file: file.clone(),
                            at,
                        },
                    )
                };
                let Some(CachedFile { io, id }) = content else {
                    return Ok(PageStream::File(rest(start)));
                };
                let length = HEADER_BYTES.min(size.saturating_sub(start) as usize);
                let first =
                    io.read_through_cache(*id, start, length, || read_exact(file, start, length))?;
                Ok(PageStream::Begun(
                    first.reader().chain(rest(start + length as u64)),
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

/// The wanted columns of the row groups of a remote file, on their way in the order in which they are decoded.
pub(super) struct RowGroupReads {
    reads: PlannedReads,
    content: CachedFile,
    groups: Vec<GroupRanges>,
    /// The next row group.
    next: usize,
}

/// The wanted columns of a row group.
#[derive(Default)]
struct GroupRanges {
    wanted: Vec<Range<u64>>,
    /// Those that the run has read before.
    known: Vec<(u64, Bytes)>,
}

/// Where the wanted columns of a row group lie.
pub(super) fn column_ranges(group: &RowGroupMetaData, leaves: &[usize]) -> Vec<Range<u64>> {
    let ranges = leaves.iter().map(|leaf| group.column(*leaf).byte_range());
    ranges
        .map(|(start, length)| start..start + length)
        .collect()
}

impl RowGroupReads {
    /// Asks for ranges of row groups; those that are closer together than `gap` are asked for together.
    pub(super) fn start(
        content: CachedFile,
        place: &StorageLocation,
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
        let wanted: Vec<Vec<Range<u64>>> =
            groups.iter().map(|group| group.wanted.clone()).collect();
        RowGroupReads {
            reads: content.io.plan_reads(place, etag, &wanted, gap),
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
        group
            .known
            .into_iter()
            .for_each(|(start, bytes)| parts.insert(start, bytes));
        Ok(PageSource::Fetched(Arc::new(parts), size))
    }
}
