//! Frames: a header line, a body, and the digest of both. Everything that a state directory keeps
//! in binary form lies in frames, so that a reader can check that it is whole.

use std::cell::RefCell;
use std::fs::File;
use std::io::{BufRead, BufReader, BufWriter, Cursor, Read, Write};

use arrow::buffer::Buffer;
use bytes::Bytes;
use forebay_model::{ContentId, Fault, Result, codes};
use forebay_storage::ScratchDir;
use serde::{Deserialize, Serialize};
use tempfile::NamedTempFile;
use xxhash_rust::xxh3::{Xxh3, xxh3_128};
use zstd::zstd_safe;
use zstd::zstd_safe::{CCtx, CParameter, DCtx, ResetDirective};

/// The version of everything in a state directory.
pub(super) const FORMAT: u32 = 1;

/// Alignment of headers, which are padded to a multiple of this number of bytes: the numbers of a
/// mapped file can then be used in place.
pub const ALIGNED: usize = 64;

/// Bytes of a header at most.
const HEADER_BYTES_MAX: usize = 4096;

/// Bytes of the digest at the end of a frame.
const DIGEST_BYTES: usize = 16;

/// The compression level of carries and partial states: they are mostly small numbers, and the next
/// run reads carries instead of the rows within the reach of windows if the carries are smaller.
const COMPRESSION_LEVEL: i32 = 1;

/// The first line of a frame.
#[derive(PartialEq, Eq, Serialize, Deserialize)]
pub struct FrameHeader {
    format: u32,
    id: String,
    analyzer: String,
    version: u32,
}

impl FrameHeader {
    pub fn new(id: ContentId, analyzer: &str, version: u32) -> Self {
        FrameHeader {
            format: FORMAT,
            id: id.to_string(),
            analyzer: analyzer.to_owned(),
            version,
        }
    }

    pub fn id(&self) -> &str {
        &self.id
    }
}

/// Writes a frame.
pub fn write_frame<W: Write>(
    out: W,
    header: &FrameHeader,
    body: &mut dyn FnMut(&mut dyn Write) -> Result<()>,
) -> Result<()> {
    let mut out = ChecksumWriter::begin(out, header)?;
    body(&mut out)?;
    out.end()
}

/// A frame while it is written.
pub struct ChecksumWriter<W> {
    inner: W,
    digest: Xxh3,
}

impl<W: Write> ChecksumWriter<BufWriter<W>> {
    pub fn begin(file: W, header: &FrameHeader) -> Result<Self> {
        let header = serde_json::to_string(header)
            .map_err(|error| Fault::internal("a header").cause(error))?;
        let mut out = ChecksumWriter {
            inner: BufWriter::with_capacity(1 << 16, file),
            digest: Xxh3::new(),
        };
        // With the end of the line.
        let width = (header.len() + 1).next_multiple_of(ALIGNED) - 1;
        writeln!(out, "{header:width$}").map_err(write_failed)?;
        Ok(out)
    }

    pub fn end(mut self) -> Result<()> {
        let digest = self.digest.digest128().to_le_bytes();
        self.inner
            .write_all(&digest)
            .and_then(|()| self.inner.flush())
            .map_err(write_failed)
    }
}

pub fn write_failed(error: std::io::Error) -> Fault {
    Fault::disk("a state cannot be written", error)
}

impl<W: Write> Write for ChecksumWriter<W> {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        let written = self.inner.write(bytes)?;
        self.digest.update(&bytes[..written]);
        Ok(written)
    }

    fn flush(&mut self) -> std::io::Result<()> {
        self.inner.flush()
    }
}

/// A frame that is written to memory while it is small, and to a temporary file from then on.
pub struct FrameBuffer<'a> {
    scratch: &'a ScratchDir,
    bytes_max: usize,
    memory: Vec<u8>,
    file: Option<NamedTempFile>,
}

/// A whole frame.
pub enum WrittenFrame {
    Small(Vec<u8>),
    Large(NamedTempFile),
}

impl<'a> FrameBuffer<'a> {
    pub fn new(scratch: &'a ScratchDir, bytes_max: usize) -> Self {
        FrameBuffer {
            scratch,
            bytes_max,
            memory: Vec::new(),
            file: None,
        }
    }

    pub fn finish(self) -> WrittenFrame {
        match self.file {
            Some(file) => WrittenFrame::Large(file),
            None => WrittenFrame::Small(self.memory),
        }
    }
}

impl Write for FrameBuffer<'_> {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        if self.file.is_none() && self.memory.len() + bytes.len() > self.bytes_max {
            let mut file = self.scratch.file().map_err(std::io::Error::other)?;
            file.write_all(&std::mem::take(&mut self.memory))?;
            self.file = Some(file);
        }
        match &mut self.file {
            Some(file) => file.write(bytes),
            None => self.memory.write(bytes),
        }
    }

    fn flush(&mut self) -> std::io::Result<()> {
        self.file.as_mut().map_or(Ok(()), |file| file.flush())
    }
}

/// A frame while it is read: the body of the frame after its header.
pub struct FrameReader {
    inner: std::io::Take<Box<dyn BufRead>>,
    digest: Xxh3,
    /// `None` where the header cannot be read.
    pub header: Option<FrameHeader>,
}

impl FrameReader {
    pub fn of_file(file: File) -> Self {
        let bytes = file.metadata().map(|meta| meta.len()).unwrap_or(0);
        Self::new(Box::new(BufReader::with_capacity(1 << 16, file)), bytes)
    }

    pub fn of_bytes(bytes: Bytes) -> Self {
        let length = bytes.len() as u64;
        Self::new(Box::new(Cursor::new(bytes)), length)
    }

    fn new(reader: Box<dyn BufRead>, bytes: u64) -> Self {
        let inner = reader.take(bytes.saturating_sub(DIGEST_BYTES as u64));
        let mut input = FrameReader {
            inner,
            digest: Xxh3::new(),
            header: None,
        };
        let mut line = Vec::new();
        let read = (&mut input.inner)
            .take(HEADER_BYTES_MAX as u64)
            .read_until(b'\n', &mut line);
        input.digest.update(&line);
        input.header = read
            .ok()
            .and_then(|_| serde_json::from_slice::<FrameHeader>(&line).ok());
        input
    }

    /// Bytes of the body that are not read yet.
    pub fn body_bytes(&self) -> u64 {
        self.inner.limit()
    }

    /// Reads the body of a frame of one of several kinds; `body` receives the index of the kind.
    /// `None` where the frame is broken or of another kind.
    pub fn read<T>(
        mut self,
        kinds: &[FrameHeader],
        body: impl FnOnce(usize, &mut FrameReader) -> Result<T>,
    ) -> Option<T> {
        let header = self.header.take()?;
        let kind = kinds.iter().position(|kind| *kind == header)?;
        let content = body(kind, &mut self).ok()?;
        // Nothing may follow.
        let trailing_bytes = std::io::copy(&mut self, &mut std::io::sink()).unwrap_or(1);
        (trailing_bytes == 0 && self.digest_matches()).then_some(content)
    }

    /// Checks a frame of an id, and returns its defect, if any.
    pub fn check(mut self, id: &str) -> Option<&'static str> {
        let Some(header) = self.header.take() else {
            return Some("it has no header");
        };
        if header.id != id {
            return Some("its header is of another id");
        }
        if header.format != FORMAT {
            return Some("its header is of another format");
        }
        let read = std::io::copy(&mut self, &mut std::io::sink()).is_ok();
        (!read || !self.digest_matches()).then_some("its digest is another")
    }

    /// True if the digest matches the bytes that were read.
    fn digest_matches(self) -> bool {
        let mut digest = [0; DIGEST_BYTES];
        self.inner.into_inner().read_exact(&mut digest).is_ok()
            && self.digest.digest128().to_le_bytes() == digest
    }
}

impl Read for FrameReader {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        let read = self.inner.read(buffer)?;
        self.digest.update(&buffer[..read]);
        Ok(read)
    }
}

/// Body of a frame in memory, if it is complete and has this header.
pub fn framed_body(bytes: &Buffer, expected: &FrameHeader) -> Option<Buffer> {
    let (whole, digest) = bytes.split_last_chunk::<DIGEST_BYTES>()?;
    let line = whole
        .iter()
        .take(HEADER_BYTES_MAX)
        .position(|byte| *byte == b'\n')?;
    let header = serde_json::from_slice::<FrameHeader>(&whole[..line]).ok()?;
    let is_whole = header == *expected && xxh3_128(whole).to_le_bytes() == *digest;
    is_whole.then(|| bytes.slice_with_length(line + 1, whole.len() - line - 1))
}

thread_local! {
    /// Compression contexts of the thread: states are small and come by the hundred, and to create
    /// a context takes longer than to use it.
    static COMPRESSOR: RefCell<Option<CCtx<'static>>> = const { RefCell::new(None) };
    static DECOMPRESSOR: RefCell<Option<DCtx<'static>>> = const { RefCell::new(None) };
}

/// Writes something compressed.
pub fn write_compressed(
    out: &mut dyn Write,
    write: &mut dyn FnMut(&mut dyn Write) -> Result<()>,
) -> Result<()> {
    let failed = |code| write_failed(std::io::Error::other(zstd_safe::get_error_name(code)));
    let mut compressor = COMPRESSOR.take().unwrap_or_else(CCtx::create);
    compressor
        .reset(ResetDirective::SessionAndParameters)
        .map_err(failed)?;
    compressor
        .set_parameter(CParameter::CompressionLevel(COMPRESSION_LEVEL))
        .map_err(failed)?;
    {
        // Numbers come one by one.
        let mut compressed =
            BufWriter::with_capacity(1 << 16, zstd::Encoder::with_context(out, &mut compressor));
        write(&mut compressed)?;
        compressed
            .into_inner()
            .map_err(|error| write_failed(error.into_error()))?
            .finish()
            .map_err(write_failed)?;
    }
    COMPRESSOR.set(Some(compressor));
    Ok(())
}

/// Reads the output of [`write_compressed`] to its end.
pub fn read_compressed<T>(
    input: &mut dyn Read,
    read: impl FnOnce(&mut dyn Read) -> Result<T>,
) -> Result<T> {
    let failed = |error| Fault::disk("a state cannot be read", error);
    let broken = |code| failed(std::io::Error::other(zstd_safe::get_error_name(code)));
    let mut decompressor = DECOMPRESSOR.take().unwrap_or_else(DCtx::create);
    decompressor
        .reset(ResetDirective::SessionAndParameters)
        .map_err(broken)?;
    let (content, trailing_bytes) = {
        let input = BufReader::with_capacity(1 << 16, input);
        let mut plain = BufReader::with_capacity(
            1 << 16,
            zstd::Decoder::with_context(input, &mut decompressor),
        );
        (
            read(&mut plain)?,
            std::io::copy(&mut plain, &mut std::io::sink()).map_err(failed)?,
        )
    };
    DECOMPRESSOR.set(Some(decompressor));
    match trailing_bytes {
        0 => Ok(content),
        _ => Err(Fault::new(
            codes::CORRUPT,
            "more is kept of a state than there should be",
        )),
    }
}
