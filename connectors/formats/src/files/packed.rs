//! Files of text that sinks write, plain or packed.

use std::io::{self, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use flate2::Compression;
use flate2::write::GzEncoder;
use forebay_contract::{EncodedBatch, EncodedPiece, FileWriter};
use forebay_model::{Fault, Result};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The level at which zstd packs best for its time.
const ZSTD_LEVEL: i32 = 3;

/// Compression of files of text.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum TextCompression {
    /// Not at all.
    #[default]
    None,
    /// As gzip does; the names of files end in `.gz`.
    Gzip,
    /// As zstd does, smaller and faster; the names of files end in `.zst`.
    Zstd,
}

impl TextCompression {
    pub(crate) fn is_none(&self) -> bool {
        *self == TextCompression::None
    }

    /// Rows as a part of a file. Parts that gzip packs can follow each other in a file.
    pub(crate) fn encode(self, text: Vec<u8>) -> Result<EncodedPiece> {
        let bytes = match self {
            TextCompression::Gzip if !text.is_empty() => gzip(&text).map_err(write_fault)?,
            _ => text,
        };
        Ok(EncodedPiece {
            bytes: bytes.len() as u64,
            payload: Box::new(bytes),
        })
    }

    /// Begins a file with some text.
    pub(crate) fn open_writer(
        self,
        out: Box<dyn Write + Send>,
        header: Vec<u8>,
    ) -> Result<Box<dyn FileWriter>> {
        let bytes = Arc::new(AtomicU64::new(0));
        let mut out: Box<dyn Write + Send> = Box::new(ByteCountingWriter {
            out,
            bytes: bytes.clone(),
        });
        if self == TextCompression::Zstd {
            // One frame: some programs read no further than the first one.
            let mut packed = zstd::Encoder::new(out, ZSTD_LEVEL).map_err(write_fault)?;
            packed.include_checksum(true).map_err(write_fault)?;
            packed.write_all(&header).map_err(write_fault)?;
            return Ok(Box::new(ZstdFileWriter { packed, bytes }));
        }
        let header = match self {
            // A file without any row must be one that can be unpacked.
            TextCompression::Gzip => gzip(&header).map_err(write_fault)?,
            _ => header,
        };
        out.write_all(&header).map_err(write_fault)?;
        Ok(Box::new(TextFileWriter { out, bytes }))
    }
}

fn gzip(text: &[u8]) -> io::Result<Vec<u8>> {
    let mut packed = GzEncoder::new(Vec::new(), Compression::default());
    packed.write_all(text)?;
    packed.finish()
}

fn write_fault(error: io::Error) -> Fault {
    Fault::disk("the file cannot be written", error)
}

fn write_part(out: &mut dyn Write, part: EncodedBatch) -> Result<()> {
    for piece in part.pieces {
        let text = piece
            .payload
            .downcast::<Vec<u8>>()
            .map_err(|_| Fault::internal("the rows were encoded by another sink"))?;
        out.write_all(&text).map_err(write_fault)?;
    }
    Ok(())
}

/// A file whose parts are written as they are.
struct TextFileWriter {
    out: Box<dyn Write + Send>,
    bytes: Arc<AtomicU64>,
}

impl FileWriter for TextFileWriter {
    fn append(&mut self, part: EncodedBatch) -> Result<()> {
        write_part(&mut self.out, part)
    }

    fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Relaxed)
    }

    fn finish(mut self: Box<Self>) -> Result<()> {
        self.out.flush().map_err(write_fault)
    }
}

/// A file whose parts are packed one behind the other.
struct ZstdFileWriter {
    packed: zstd::Encoder<'static, Box<dyn Write + Send>>,
    bytes: Arc<AtomicU64>,
}

impl FileWriter for ZstdFileWriter {
    fn append(&mut self, part: EncodedBatch) -> Result<()> {
        write_part(&mut self.packed, part)
    }

    fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Relaxed)
    }

    fn finish(self: Box<Self>) -> Result<()> {
        let mut out = self.packed.finish().map_err(write_fault)?;
        out.flush().map_err(write_fault)
    }
}

/// Counts what goes through.
pub(crate) struct ByteCountingWriter {
    pub(crate) out: Box<dyn Write + Send>,
    pub(crate) bytes: Arc<AtomicU64>,
}

impl Write for ByteCountingWriter {
    fn write(&mut self, buffer: &[u8]) -> io::Result<usize> {
        let written = self.out.write(buffer)?;
        self.bytes.fetch_add(written as u64, Ordering::Relaxed);
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.out.flush()
    }
}
