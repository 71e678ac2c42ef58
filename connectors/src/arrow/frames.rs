//! The messages of an Arrow file or stream, checked before anything is decoded: the decoder
//! below trusts the lengths that it reads and would ask for any amount of memory.

use std::collections::VecDeque;
use std::io::{self, Read};
use std::sync::Arc;

use arrow::buffer::Buffer;
use arrow::datatypes::{Schema, SchemaRef};
use arrow::error::ArrowError;
use arrow::ipc::convert::fb_to_schema;
use arrow::ipc::reader::read_footer_length;
use arrow::ipc::{Block, CompressionType, Message, MessageHeader, root_as_footer, root_as_message};
use forebay_model::Result;

use crate::files::blob::FileHandle;
use crate::files::rows::InputFile;

/// Decompressed size of one buffer, at most.
const DECOMPRESSED_BYTES_MAX: u64 = 4 << 30;

/// Highest compression ratio of LZ4: one more byte of a length stands for 255 bytes of output.
const LZ4_RATIO_MAX: u64 = 255;

/// Highest compression ratio of zstd: a block of four bytes repeats one byte 128 KiB times.
const ZSTD_RATIO_MAX: u64 = (128 << 10) / 4;

/// What the file format begins and ends with; the stream format does not.
const MAGIC: &[u8] = b"ARROW1";

/// A message and the buffers that it tells of.
pub(super) struct IpcMessage {
    header: Vec<u8>,
    /// The message's buffers.
    pub(super) body: Buffer,
}

/// Messages in reading order.
pub(super) enum IpcMessageReader {
    /// Found by the file's footer.
    File {
        blob: FileHandle,
        path: Arc<str>,
        blocks: VecDeque<Block>,
    },
    /// One after the other.
    Stream {
        stream: Box<dyn Read + Send>,
        left: u64,
    },
}

fn ipc_error(what: &str) -> ArrowError {
    ArrowError::IpcError(what.to_owned())
}

fn io_error(fault: forebay_model::Fault) -> ArrowError {
    ArrowError::IoError(fault.to_string(), io::Error::other(fault))
}

impl IpcMessageReader {
    /// Opens a file, whichever of the two formats it has.
    pub(super) fn open(file: &InputFile) -> Result<(SchemaRef, IpcMessageReader), ArrowError> {
        let begins = file
            .blob
            .read(&file.path, 0..file.size.min(MAGIC.len() as u64))
            .map_err(io_error)?;
        if begins == MAGIC {
            Self::open_file(file)
        } else {
            Self::open_stream(file)
        }
    }

    fn open_file(file: &InputFile) -> Result<(SchemaRef, IpcMessageReader), ArrowError> {
        let end = file
            .size
            .checked_sub(10)
            .filter(|end| *end >= 8)
            .ok_or_else(|| ipc_error("the file has no footer"))?;
        let trailer = file
            .blob
            .read(&file.path, end..file.size)
            .map_err(io_error)?;
        let trailer: [u8; 10] = trailer
            .as_ref()
            .try_into()
            .map_err(|_| ipc_error("the file has no footer"))?;
        let length = read_footer_length(trailer)? as u64;
        let start = end
            .checked_sub(length)
            .filter(|start| *start >= 8)
            .ok_or_else(|| ipc_error("the footer is too long"))?;
        let bytes = file.blob.read(&file.path, start..end).map_err(io_error)?;
        let footer = root_as_footer(&bytes).map_err(|error| ipc_error(&error.to_string()))?;
        let schema = footer
            .schema()
            .ok_or_else(|| ipc_error("the footer has no schema"))?;
        if !schema.endianness().equals_to_target_endianness() {
            return Err(ipc_error("the file has the byte order of another machine"));
        }
        let all = footer
            .dictionaries()
            .into_iter()
            .flatten()
            .chain(footer.recordBatches().into_iter().flatten());
        let blocks: VecDeque<Block> = all.copied().collect();
        let inside = |block: &Block| {
            let header = u64::try_from(block.metaDataLength()).ok();
            let body = u64::try_from(block.bodyLength()).ok();
            let parts = u64::try_from(block.offset()).ok().zip(header.zip(body));
            let end = parts
                .and_then(|(offset, (header, body))| offset.checked_add(header)?.checked_add(body));
            end.is_some_and(|end| end <= start)
        };
        if !blocks.iter().all(inside) {
            return Err(ipc_error("a batch lies outside the file"));
        }
        let schema: Schema = fb_to_schema(schema);
        Ok((
            Arc::new(schema),
            IpcMessageReader::File {
                blob: file.blob.clone(),
                path: file.path.clone(),
                blocks,
            },
        ))
    }

    fn open_stream(file: &InputFile) -> Result<(SchemaRef, IpcMessageReader), ArrowError> {
        let stream = io::BufReader::with_capacity(64 << 10, file.blob.reader(file.size));
        let mut frames = IpcMessageReader::Stream {
            stream: Box::new(stream),
            left: file.size,
        };
        let first = frames
            .next()?
            .ok_or_else(|| ipc_error("the stream is empty"))?;
        let schema = first
            .message()?
            .header_as_schema()
            .ok_or_else(|| ipc_error("the stream does not begin with a schema"))?;
        if !schema.endianness().equals_to_target_endianness() {
            return Err(ipc_error(
                "the stream has the byte order of another machine",
            ));
        }
        Ok((Arc::new(fb_to_schema(schema)), frames))
    }

    /// The next message.
    pub(super) fn next(&mut self) -> Result<Option<IpcMessage>, ArrowError> {
        let frame = match self {
            IpcMessageReader::File { blob, path, blocks } => {
                let Some(block) = blocks.pop_front() else {
                    return Ok(None);
                };
                let (start, cut) = (block.offset() as u64, block.metaDataLength() as usize);
                let end = start + cut as u64 + block.bodyLength() as u64;
                let bytes = Buffer::from(blob.read(path, start..end).map_err(io_error)?);
                let prefix = if bytes.starts_with(&[0xff; 4]) { 8 } else { 4 };
                let header = bytes
                    .get(prefix..cut)
                    .ok_or_else(|| ipc_error("a message is too short"))?
                    .to_vec();
                IpcMessage {
                    header,
                    body: bytes.slice(cut),
                }
            }
            IpcMessageReader::Stream { stream, left } => {
                let mut word = || -> Result<Option<u32>, ArrowError> {
                    let mut bytes = [0; 4];
                    match *left {
                        0 => return Ok(None),
                        1..4 => return Err(ipc_error("the stream ends inside of a message")),
                        _ => *left -= 4,
                    }
                    stream.read_exact(&mut bytes)?;
                    Ok(Some(u32::from_le_bytes(bytes)))
                };
                let length = match word()? {
                    Some(u32::MAX) => word()?,
                    other => other,
                };
                let Some(length @ 1..) = length else {
                    return Ok(None);
                };
                let header = read_bytes(stream, left, u64::from(length))?;
                let message =
                    root_as_message(&header).map_err(|error| ipc_error(&error.to_string()))?;
                let length = u64::try_from(message.bodyLength())
                    .map_err(|_| ipc_error("a length is negative"))?;
                let body = Buffer::from_vec(read_bytes(stream, left, length)?);
                IpcMessage { header, body }
            }
        };
        frame.check_buffers()?;
        Ok(Some(frame))
    }
}

fn read_bytes(stream: &mut dyn Read, left: &mut u64, length: u64) -> Result<Vec<u8>, ArrowError> {
    *left = left
        .checked_sub(length)
        .ok_or_else(|| ipc_error("the stream ends inside of a message"))?;
    let mut bytes = vec![0; length as usize];
    stream.read_exact(&mut bytes)?;
    Ok(bytes)
}

impl IpcMessage {
    /// What it tells.
    pub(super) fn message(&self) -> Result<Message<'_>, ArrowError> {
        root_as_message(&self.header).map_err(|error| ipc_error(&error.to_string()))
    }

    fn check_buffers(&self) -> Result<(), ArrowError> {
        let message = self.message()?;
        let batch = match message.header_type() {
            MessageHeader::RecordBatch => message.header_as_record_batch(),
            MessageHeader::DictionaryBatch => message
                .header_as_dictionary_batch()
                .and_then(|batch| batch.data()),
            _ => None,
        };
        let Some(batch) = batch else { return Ok(()) };
        for buffer in batch.buffers().into_iter().flatten() {
            let start = usize::try_from(buffer.offset()).ok();
            let end = start
                .zip(usize::try_from(buffer.length()).ok())
                .and_then(|(start, length)| start.checked_add(length));
            let bytes = start
                .zip(end)
                .and_then(|(start, end)| self.body.get(start..end));
            let bytes = bytes.ok_or_else(|| ipc_error("a buffer lies outside of its batch"))?;
            if let Some(compression) = batch.compression()
                && let Some((prefix, compressed)) = bytes.split_first_chunk::<8>()
            {
                check_decompressed(i64::from_le_bytes(*prefix), compression.codec(), compressed)?;
            }
        }
        Ok(())
    }
}

/// Refuses a decompressed size that the compressed bytes cannot have: the decoder allocates that many bytes
/// before it decompresses.
fn check_decompressed(
    size: i64,
    codec: CompressionType,
    compressed: &[u8],
) -> Result<(), ArrowError> {
    const NOT_COMPRESSED: i64 = -1;
    if size == NOT_COMPRESSED {
        return Ok(());
    }
    let length = compressed.len() as u64;
    let bound = match codec {
        CompressionType::ZSTD => match zstd::zstd_safe::get_frame_content_size(compressed) {
            Ok(Some(told)) => told.min(length.saturating_mul(ZSTD_RATIO_MAX)),
            // The frame does not tell its size, or is broken, which the decoder finds.
            _ => length.saturating_mul(ZSTD_RATIO_MAX),
        },
        _ => length.saturating_mul(LZ4_RATIO_MAX),
    };
    match u64::try_from(size) {
        Ok(size) if size <= bound.min(DECOMPRESSED_BYTES_MAX) => Ok(()),
        _ => Err(ipc_error("the decompressed size of a buffer is wrong")),
    }
}
