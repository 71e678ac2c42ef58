//! Pages of a file for the decoder, each admitted before it is decompressed.
//!
//! The header of a page tells the size that it will have. The decoder believes it and allocates as much, so that some
//! bytes of a file can make gigabytes. Some codecs decompress to the end of a page whatever size its header tells: what
//! such pages become is measured before they are decoded.

use std::io::{BufRead, Read};
use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use forebay_model::Fault;
use forebay_storage::{MemoryShortage, ReadMemory, ReadReservation};
use parquet::errors::ParquetError;
use parquet::file::metadata::RowGroupMetaData;
use parquet::file::reader::{ChunkReader, Length};

use super::fetch::{PageSource, PageStream};
use super::page_header::PageHeader;
use super::page_sizes::UnboundedCodec;

/// Pages below this size are part of what their row group was admitted with.
const LARGE_PAGE_BYTES: u64 = 4 << 20;

/// Bytes in which the header of a page has to end.
const HEADER_BYTES_MAX: usize = 1 << 20;

/// Bytes in which most headers end.
const HEADER_BYTES_FIRST: usize = 1 << 10;

/// Pages that are admitted before they are decoded.
#[derive(Clone)]
pub(super) struct GatedPages {
    pages: PageSource,
    pub(super) gate: Arc<PageGate>,
    /// True if the decoder finds pages by an index: it reads a page with its header then.
    is_indexed: bool,
    headers: Arc<Mutex<PageHeaders>>,
}

/// Headers of the pages of one column. The decoder may read the header of a page long before the page.
#[derive(Debug, Clone, Copy, Default)]
struct PageHeaders {
    /// The header that was read last, of a page whose bytes come next, and the offset of these bytes.
    next_page: Option<(PageHeader, u64)>,
    /// The header of the page whose bytes were read last.
    page: Option<PageHeader>,
}

/// Memory that large pages of one reader take.
#[derive(Debug)]
pub(super) struct PageGate {
    memory: Arc<ReadMemory>,
    /// Bytes of the file in which pages may become larger than their headers tell.
    unbounded: Vec<(Range<u64>, UnboundedCodec)>,
    state: Mutex<GateState>,
}

#[derive(Debug, Default)]
struct GateState {
    /// Those of the call of the decoder that is under way.
    reservations: Vec<ReadReservation>,
    /// True if the reader holds a reservation of its own, so that it must not wait for others.
    is_inside: bool,
    refusal: Option<PageRefusal>,
}

/// A page that is too large for the memory.
#[derive(Debug, Clone, Copy)]
pub(super) struct PageRefusal {
    pub(super) shortage: MemoryShortage,
    /// Offset of the page in the file.
    pub(super) offset: u64,
    /// The bytes of the page once it is decompressed.
    pub(super) page_bytes: u64,
}

impl PageRefusal {
    /// The fault of the page, without its place.
    pub(super) fn fault(&self) -> Fault {
        let page = format!("a page of {} MiB", self.page_bytes >> 20);
        self.shortage.fault(&page).hint(format!(
            "write the column in smaller pages, or give {}",
            self.shortage.sufficient_option()
        ))
    }
}

impl PageGate {
    /// A gate for the pages of a row group.
    pub(super) fn new(memory: Arc<ReadMemory>, group: &RowGroupMetaData) -> Arc<PageGate> {
        let mut unbounded = Vec::new();
        for column in group.columns() {
            if let Some(codec) = UnboundedCodec::of(column.compression()) {
                let (start, length) = column.byte_range();
                unbounded.push((start..start.saturating_add(length), codec));
            }
        }
        PageGate::with_codecs(memory, unbounded)
    }

    fn with_codecs(
        memory: Arc<ReadMemory>,
        unbounded: Vec<(Range<u64>, UnboundedCodec)>,
    ) -> Arc<PageGate> {
        Arc::new(PageGate {
            memory,
            unbounded,
            state: Mutex::default(),
        })
    }

    /// The codec of a page whose size has to be measured.
    fn codec_at(&self, offset: u64) -> Option<UnboundedCodec> {
        let measured = self
            .unbounded
            .iter()
            .find(|(range, _)| range.contains(&offset));
        measured.map(|(_, codec)| *codec)
    }

    pub(super) fn memory(&self) -> &Arc<ReadMemory> {
        &self.memory
    }

    /// Ends the reservations of a call of the decoder: its pages are resident now.
    pub(super) fn settle(&self) {
        self.state().reservations.clear();
    }

    /// Tells whether the reader holds a reservation of its own.
    pub(super) fn set_inside(&self, is_inside: bool) {
        self.state().is_inside = is_inside;
    }

    /// The page that made the decoder fail, if one did.
    pub(super) fn take_refusal(&self) -> Option<PageRefusal> {
        self.state().refusal.take()
    }

    fn state(&self) -> MutexGuard<'_, GateState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Admits the page of a header.
    fn admit(&self, header: Option<PageHeader>, offset: u64) -> parquet::errors::Result<()> {
        // The decoder may find a header where this one finds none, with any size.
        let Some(page) = header else {
            return Err(ParquetError::General(format!(
                "there is no header of a page at byte {offset}"
            )));
        };
        let mut state = self.state();
        let codec = self.codec_at(offset);
        if page.uncompressed >= LARGE_PAGE_BYTES {
            let may_wait = state.reservations.is_empty() && !state.is_inside;
            let buffer_bytes = codec.map_or(0, |codec| codec.buffer_bytes(page.uncompressed));
            match self
                .memory
                .reserve(page.decoded_bytes() + buffer_bytes, may_wait)
            {
                Ok(reservation) => state.reservations.push(reservation),
                Err(shortage) => {
                    state.refusal = Some(PageRefusal {
                        shortage,
                        offset,
                        page_bytes: page.uncompressed,
                    });
                    return Err(ParquetError::General(
                        "a page is too large for the memory".to_owned(),
                    ));
                }
            }
        }
        Ok(())
    }

    /// Refuses the bytes of a page that become more than its header tells.
    fn check_size(
        &self,
        offset: u64,
        header: Option<PageHeader>,
        stored: &[u8],
    ) -> parquet::errors::Result<()> {
        let Some(codec) = self.codec_at(offset) else {
            return Ok(());
        };
        let Some(page) = header else {
            return Ok(());
        };
        if !page.is_compressed {
            return Ok(());
        }
        let levels = usize::try_from(page.levels_bytes).unwrap_or(usize::MAX);
        let compressed = stored.get(levels..).unwrap_or_default();
        let size = page.uncompressed.saturating_sub(page.levels_bytes);
        // So much more does no harm.
        let harmless = size.max(self.memory.chunk_bytes());
        if codec.most_bytes(compressed.len()) <= harmless || codec.is_within(compressed, size) {
            return Ok(());
        }
        Err(ParquetError::General(format!(
            "the page at byte {offset} becomes more than the {size} bytes that its header tells"
        )))
    }
}

impl PageHeaders {
    /// True if the bytes at an offset are those of the page whose header was read last.
    fn is_next_page(&self, offset: u64) -> bool {
        // Behind a page without bytes, the next header has the same offset.
        self.next_page
            .is_some_and(|(page, start)| start == offset && page.compressed > 0)
    }
}

impl GatedPages {
    pub(super) fn new(pages: PageSource, gate: Arc<PageGate>, is_indexed: bool) -> GatedPages {
        GatedPages {
            pages,
            gate,
            is_indexed,
            headers: Arc::default(),
        }
    }

    /// These pages for one column, whose headers are its own.
    pub(super) fn of_column(&self) -> GatedPages {
        GatedPages::new(self.pages.clone(), self.gate.clone(), self.is_indexed)
    }

    /// The size, decompressed, of the page that was read last.
    pub(super) fn uncompressed_bytes(&self) -> Option<usize> {
        let page = self.headers().page?;
        usize::try_from(page.uncompressed).ok()
    }

    fn headers(&self) -> MutexGuard<'_, PageHeaders> {
        self.headers.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The header of a page; `None` where there is none.
    fn header(&self, start: u64) -> parquet::errors::Result<Option<PageHeader>> {
        let mut stream = self.pages.get_read(start)?;
        let mut bytes = Vec::new();
        let mut header_bytes = HEADER_BYTES_FIRST;
        loop {
            let missing = header_bytes - bytes.len();
            let read = (&mut stream).take(missing as u64).read_to_end(&mut bytes)?;
            let header = PageHeader::parse(&bytes);
            if header.is_some() || read < missing || header_bytes >= HEADER_BYTES_MAX {
                return Ok(header);
            }
            header_bytes *= 8;
        }
    }
}

impl Length for GatedPages {
    fn len(&self) -> u64 {
        self.pages.len()
    }
}

impl ChunkReader for GatedPages {
    type T = PageStream;

    fn get_read(&self, start: u64) -> parquet::errors::Result<PageStream> {
        let mut stream = self.pages.get_read(start)?;
        // The decoder opens a page whose header it has looked at before, and reads no header.
        if self.headers().is_next_page(start) {
            return Ok(stream);
        }
        let header = match PageHeader::parse(stream.fill_buf()?) {
            Some(header) => Some(header),
            None => self.header(start)?,
        };
        self.gate.admit(header, start)?;
        self.headers().next_page = header.map(|page| (page, start + page.header_bytes as u64));
        Ok(stream)
    }

    fn get_bytes(&self, start: u64, length: usize) -> parquet::errors::Result<Bytes> {
        if self.is_indexed {
            let header = self.header(start)?;
            self.gate.admit(header, start)?;
            self.headers().page = header;
            let bytes = self.pages.get_bytes(start, length)?;
            let header_bytes = header.map_or(0, |header| header.header_bytes);
            let stored = bytes.get(header_bytes..).unwrap_or_default();
            self.gate.check_size(start, header, stored)?;
            return Ok(bytes);
        }
        let next_page = self.headers().next_page.take();
        let header = next_page.map(|(page, _)| page);
        self.headers().page = header;
        let bytes = self.pages.get_bytes(start, length)?;
        self.gate.check_size(start, header, &bytes)?;
        Ok(bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::parquet::page_header::tests::header;

    #[test]
    fn a_page_beyond_the_memory_is_refused_before_it_is_read() {
        let memory = Arc::new(ReadMemory::default());
        memory.set_limit(64 << 20, 1);
        let gate = PageGate::with_codecs(memory, Vec::new());
        let page = |uncompressed: u32| PageHeader::parse(&header([0, uncompressed, 100]));
        assert!(gate.admit(page(8 << 20), 4).is_ok());
        assert!(gate.admit(page(2_000_000_000), 77).is_err());
        let refusal = gate.take_refusal().unwrap();
        assert_eq!((refusal.offset, refusal.page_bytes), (77, 2_000_000_000));
        assert!(gate.take_refusal().is_none());
        assert!(gate.admit(None, 4).is_err());
        assert!(gate.take_refusal().is_none());
    }
}
