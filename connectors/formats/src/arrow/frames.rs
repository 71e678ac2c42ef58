//! The messages of an Arrow file or stream, checked before anything is decoded: the decoder below
//! trusts the lengths that it reads and would allocate any amount of memory.

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
use forebay_storage::{ReadLease, ReadMemory};

use super::batch_stream::MessageBody;
use crate::files::blob::FileHandle;
use crate::files::input_file::InputFile;

/// Decompressed size of one buffer, at most.
const DECOMPRESSED_BYTES_MAX: u64 = 4 << 30;

/// Highest compression ratio of LZ4: one more byte of a length stands for 255 bytes of output.
const LZ4_RATIO_MAX: u64 = 255;

/// Highest compression ratio of zstd: a block of four bytes repeats one byte 128 KiB times.
const ZSTD_RATIO_MAX: u64 = (128 << 10) / 4;

/// First and last bytes of the file format; the stream format has none.
const MAGIC: &[u8] = b"ARROW1";

/// Bytes of the header of a message, and of the footer of a file, at most: a schema of a hundred thousand columns takes
/// less than 6 MiB.
const HEADER_BYTES_MAX: u32 = 64 << 20;

/// Bytes before the first message of a file: `MAGIC`, padded.
const MAGIC_BYTES: u64 = 8;

/// Bytes at the end of a file: the length of the footer, and `MAGIC`.
const TRAILER_BYTES: u64 = 10;

/// A message with its buffers.
pub(super) struct IpcMessage {
    header: Vec<u8>,
    /// The message's buffers.
    pub(super) body: MessageBody,
    /// The memory of the body, where it is in memory.
    pub(super) lease: Option<ReadLease>,
    /// Bytes of all compressed buffers, decompressed, where the body is in memory.
    pub(super) decompressed_bytes: u64,
}

/// Messages in reading order.
pub(super) enum IpcMessageReader {
    /// Found by the file's footer.
    File {
        blob: FileHandle,
        path: Arc<str>,
        blocks: VecDeque<Block>,
    },
    /// Messages in sequence.
    Stream {
        stream: Box<dyn Read + Send>,
        left: u64,
        /// Bytes of the body, for bodies that are read in parts.
        file: InputFile,
    },
}

fn ipc_error(message: &str) -> ArrowError {
    ArrowError::IpcError(message.to_owned())
}

fn io_error(fault: forebay_model::Fault) -> ArrowError {
    ArrowError::IoError(fault.to_string(), io::Error::other(fault))
}

impl IpcMessageReader {
    /// Opens a file of either of the two formats.
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
            .checked_sub(TRAILER_BYTES)
            .filter(|end| *end >= MAGIC_BYTES)
            .ok_or_else(|| ipc_error("the file has no footer"))?;
        let trailer = file
            .blob
            .read(&file.path, end..file.size)
            .map_err(io_error)?;
        let trailer: [u8; TRAILER_BYTES as usize] = trailer
            .as_ref()
            .try_into()
            .map_err(|_| ipc_error("the file has no footer"))?;
        let length = read_footer_length(trailer)? as u64;
        let start = end
            .checked_sub(length)
            .filter(|start| *start >= MAGIC_BYTES && length <= u64::from(HEADER_BYTES_MAX))
            .ok_or_else(|| ipc_error("the footer is too long"))?;
        let bytes = file.blob.read(&file.path, start..end).map_err(io_error)?;
        let footer = root_as_footer(&bytes).map_err(|error| ipc_error(&error.to_string()))?;
        let schema = footer
            .schema()
            .ok_or_else(|| ipc_error("the footer has no schema"))?;
        if !schema.endianness().equals_to_target_endianness() {
            return Err(ipc_error("the file has the byte order of another machine"));
        }
        let dictionaries = footer.dictionaries().into_iter().flatten();
        let batches = footer.recordBatches().into_iter().flatten();
        let mut blocks = VecDeque::new();
        for block in dictionaries.chain(batches) {
            if block_end(block).is_none_or(|end| end > start) {
                return Err(ipc_error("a batch lies outside the file"));
            }
            blocks.push_back(*block);
        }
        let schema: Schema = fb_to_schema(schema);
        let reader = IpcMessageReader::File {
            blob: file.blob.clone(),
            path: file.path.clone(),
            blocks,
        };
        Ok((Arc::new(schema), reader))
    }

    fn open_stream(file: &InputFile) -> Result<(SchemaRef, IpcMessageReader), ArrowError> {
        let stream = io::BufReader::with_capacity(64 << 10, file.blob.reader(file.size));
        let mut frames = IpcMessageReader::Stream {
            stream: Box::new(stream),
            left: file.size,
            file: file.whole(),
        };
        let first = frames
            .next(&file.memory)?
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

    /// The next message. Its body stays in the file if readers have no memory for it.
    pub(super) fn next(
        &mut self,
        memory: &Arc<ReadMemory>,
    ) -> Result<Option<IpcMessage>, ArrowError> {
        let mut message = match self {
            IpcMessageReader::File { blob, path, blocks } => {
                let Some(block) = blocks.pop_front() else {
                    return Ok(None);
                };
                file_message(blob, path, &block, memory)?
            }
            IpcMessageReader::Stream { stream, left, file } => {
                match stream_message(stream.as_mut(), left, file, memory)? {
                    Some(message) => message,
                    None => return Ok(None),
                }
            }
        };
        if let MessageBody::Memory(body) = &message.body {
            message.decompressed_bytes = message.check_buffers(body, memory)?;
        }
        Ok(Some(message))
    }
}

/// End of a message of a file; `None` if it overflows or has a negative length.
fn block_end(block: &Block) -> Option<u64> {
    let offset = u64::try_from(block.offset()).ok()?;
    let header = u64::try_from(block.metaDataLength()).ok()?;
    let body = u64::try_from(block.bodyLength()).ok()?;
    offset.checked_add(header)?.checked_add(body)
}

/// Reads a message of a file. Its body stays there if readers have no memory for it.
fn file_message(
    blob: &FileHandle,
    path: &Arc<str>,
    block: &Block,
    memory: &Arc<ReadMemory>,
) -> Result<IpcMessage, ArrowError> {
    let start = block.offset() as u64;
    let header_bytes = block.metaDataLength() as usize;
    if header_bytes > HEADER_BYTES_MAX as usize {
        return Err(ipc_error("the header of a message is too long"));
    }
    let body_start = start + header_bytes as u64;
    let end = body_start + block.bodyLength() as u64;
    let lease = memory.lease(end - start);
    let read_until = if lease.is_some() { end } else { body_start };
    let bytes = blob.read(path, start..read_until).map_err(io_error)?;
    // Before version 0.15 of the format, the length had no marker before it.
    let prefix = if bytes.starts_with(&[0xff; 4]) { 8 } else { 4 };
    let header = bytes
        .get(prefix..header_bytes)
        .ok_or_else(|| ipc_error("a message is too short"))?
        .to_vec();
    let body = if lease.is_some() {
        MessageBody::Memory(bytes.slice(header_bytes..))
    } else {
        MessageBody::File {
            blob: blob.clone(),
            path: path.clone(),
            range: body_start..end,
        }
    };
    Ok(IpcMessage {
        header,
        body,
        lease,
        decompressed_bytes: 0,
    })
}

/// Reads the next message of a stream; `None` at its end. Its body is skipped if readers have no memory for it, and
/// then read from the file.
fn stream_message(
    stream: &mut dyn Read,
    bytes_left: &mut u64,
    file: &InputFile,
    memory: &Arc<ReadMemory>,
) -> Result<Option<IpcMessage>, ArrowError> {
    let mut header_length = read_word(stream, bytes_left)?;
    // Before version 0.15 of the format, the length had no marker before it.
    if header_length == Some(u32::MAX) {
        header_length = read_word(stream, bytes_left)?;
    }
    let Some(header_length @ 1..) = header_length else {
        return Ok(None);
    };
    if header_length > HEADER_BYTES_MAX {
        return Err(ipc_error("the header of a message is too long"));
    }
    let header = read_bytes(stream, bytes_left, u64::from(header_length))?;
    let message = root_as_message(&header).map_err(|error| ipc_error(&error.to_string()))?;
    let length =
        u64::try_from(message.bodyLength()).map_err(|_| ipc_error("a length is negative"))?;
    let lease = memory.lease(length);
    let body = if lease.is_some() {
        MessageBody::Memory(read_bytes(stream, bytes_left, length)?.into())
    } else {
        let start = file.size - *bytes_left;
        *bytes_left = bytes_left
            .checked_sub(length)
            .ok_or_else(|| ipc_error("the stream ends inside of a message"))?;
        io::copy(&mut stream.take(length), &mut io::sink())?;
        MessageBody::File {
            blob: file.blob.clone(),
            path: file.path.clone(),
            range: start..start + length,
        }
    };
    Ok(Some(IpcMessage {
        header,
        body,
        lease,
        decompressed_bytes: 0,
    }))
}

/// Reads a word of a stream; `None` at its end.
fn read_word(stream: &mut dyn Read, bytes_left: &mut u64) -> Result<Option<u32>, ArrowError> {
    match *bytes_left {
        0 => return Ok(None),
        1..4 => return Err(ipc_error("the stream ends inside of a message")),
        _ => *bytes_left -= 4,
    }
    let mut bytes = [0; 4];
    stream.read_exact(&mut bytes)?;
    Ok(Some(u32::from_le_bytes(bytes)))
}

fn read_bytes(
    stream: &mut dyn Read,
    bytes_left: &mut u64,
    length: u64,
) -> Result<Vec<u8>, ArrowError> {
    *bytes_left = bytes_left
        .checked_sub(length)
        .ok_or_else(|| ipc_error("the stream ends inside of a message"))?;
    let mut bytes = vec![0; length as usize];
    stream.read_exact(&mut bytes)?;
    Ok(bytes)
}

impl IpcMessage {
    /// Decodes the header of the message.
    pub(super) fn message(&self) -> Result<Message<'_>, ArrowError> {
        root_as_message(&self.header).map_err(|error| ipc_error(&error.to_string()))
    }

    /// Loads a body that was left in the file.
    pub(super) fn load(&mut self, memory: &Arc<ReadMemory>) -> Result<Buffer, ArrowError> {
        let body = self.body.read(0..self.body.length())?;
        if matches!(self.body, MessageBody::File { .. }) {
            self.decompressed_bytes = self.check_buffers(&body, memory)?;
            self.body = MessageBody::Memory(body.clone());
        }
        Ok(Buffer::from(body))
    }

    /// Checks that the buffers lie inside of the body and can have the sizes that they tell. Returns the bytes of the
    /// compressed ones, decompressed.
    fn check_buffers(&self, body: &[u8], memory: &ReadMemory) -> Result<u64, ArrowError> {
        let message = self.message()?;
        let batch = match message.header_type() {
            MessageHeader::RecordBatch => message.header_as_record_batch(),
            MessageHeader::DictionaryBatch => message
                .header_as_dictionary_batch()
                .and_then(|batch| batch.data()),
            _ => None,
        };
        let Some(batch) = batch else { return Ok(0) };
        let mut decompressed = 0_u64;
        for buffer in batch.buffers().into_iter().flatten() {
            let start = usize::try_from(buffer.offset()).ok();
            let end = start
                .zip(usize::try_from(buffer.length()).ok())
                .and_then(|(start, length)| start.checked_add(length));
            let bytes = start.zip(end).and_then(|(start, end)| body.get(start..end));
            let bytes = bytes.ok_or_else(|| ipc_error("a buffer lies outside of its batch"))?;
            if let Some(compression) = batch.compression()
                && let Some((prefix, compressed)) = bytes.split_first_chunk::<8>()
            {
                let size = i64::from_le_bytes(*prefix);
                check_decompressed(size, compression.codec(), compressed, memory)?;
                decompressed = decompressed.saturating_add(u64::try_from(size).unwrap_or(0));
            }
        }
        Ok(decompressed)
    }
}

/// Refuses a decompressed size that the compressed bytes cannot have: the decoder allocates that many bytes
/// before it decompresses. That of LZ4 goes on to the end of its input, so a size that is too small is refused, too, where
/// more would not fit.
fn check_decompressed(
    size: i64,
    codec: CompressionType,
    compressed: &[u8],
    memory: &ReadMemory,
) -> Result<(), ArrowError> {
    const NOT_COMPRESSED: i64 = -1;
    if size == NOT_COMPRESSED {
        return Ok(());
    }
    let length = compressed.len() as u64;
    let bound = match codec {
        CompressionType::ZSTD => match zstd::zstd_safe::get_frame_content_size(compressed) {
            Ok(Some(size)) => size.min(length.saturating_mul(ZSTD_RATIO_MAX)),
            // The frame does not record its size, or is broken, which the decoder detects.
            _ => length.saturating_mul(ZSTD_RATIO_MAX),
        },
        _ => length.saturating_mul(LZ4_RATIO_MAX),
    };
    let wrong = || ipc_error("the decompressed size of a buffer is wrong");
    let size = u64::try_from(size)
        .ok()
        .filter(|size| *size <= bound.min(DECOMPRESSED_BYTES_MAX))
        .ok_or_else(wrong)?;
    let is_lz4 = codec == CompressionType::LZ4_FRAME;
    if is_lz4 && bound > size.max(memory.chunk_bytes()) && !is_within(compressed, size) {
        return Err(wrong());
    }
    Ok(())
}

/// True if a frame of LZ4 becomes no more than so many bytes. The decoder stops where it is damaged.
fn is_within(compressed: &[u8], bytes: u64) -> bool {
    let frame = lz4_flex::frame::FrameDecoder::new(compressed);
    let mut read = frame.take(bytes.saturating_add(1));
    match io::copy(&mut read, &mut io::sink()) {
        Ok(count) => count <= bytes,
        Err(_) => true,
    }
}
