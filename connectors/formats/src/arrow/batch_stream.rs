//! A record batch that is decoded some rows at a time, for batches that do not fit into the memory of readers.
//!
//! The buffers of a batch lie one behind the other, compressed each as a whole. Each of them is read onwards from where
//! the last rows ended, so that only some rows of each column are in memory.

use std::io::{self, Cursor, Read};
use std::ops::Range;
use std::sync::Arc;

use arrow::array::{ArrayData, ArrayRef, RecordBatch, RecordBatchOptions, make_array};
use arrow::buffer::{Buffer, MutableBuffer};
use arrow::datatypes::{DataType, FieldRef, Schema, SchemaRef};
use arrow::error::ArrowError;
use arrow::ipc::{CompressionType, RecordBatch as BatchHeader};
use bytes::Bytes;
use forebay_storage::{MemoryShortage, ReadMemory};

use crate::files::blob::FileHandle;

/// Bytes that are read of a buffer at a time.
const BLOCK_BYTES: u64 = 256 << 10;

/// Values above this size are reserved before they are read.
const LARGE_BYTES: usize = 1 << 20;

/// The length of a compressed buffer that is not compressed after all.
const NOT_COMPRESSED: i64 = -1;

/// Rows of batches are a multiple of this, as far as there are as many, so that bitmaps begin with whole bytes.
const ROWS_MULTIPLE: usize = 64;

fn ipc_error(message: &str) -> ArrowError {
    ArrowError::IpcError(message.to_owned())
}

/// The body of a message.
#[derive(Clone)]
pub(super) enum MessageBody {
    Memory(Bytes),
    /// Bytes of a file, of which parts are read when they are needed.
    File {
        blob: FileHandle,
        path: Arc<str>,
        range: Range<u64>,
    },
}

impl MessageBody {
    pub(super) fn length(&self) -> u64 {
        match self {
            MessageBody::Memory(bytes) => bytes.len() as u64,
            MessageBody::File { range, .. } => range.end - range.start,
        }
    }

    /// Some bytes of it.
    pub(super) fn read(&self, range: Range<u64>) -> Result<Bytes, ArrowError> {
        if range.start > range.end || range.end > self.length() {
            return Err(ipc_error("a buffer lies outside of its batch"));
        }
        match self {
            MessageBody::Memory(bytes) => Ok(bytes.slice(range.start as usize..range.end as usize)),
            MessageBody::File {
                blob,
                path,
                range: body,
            } => {
                let bytes = blob.read(path, body.start + range.start..body.start + range.end);
                bytes.map_err(|fault| {
                    ArrowError::IoError(fault.to_string(), io::Error::other(fault))
                })
            }
        }
    }
}

/// A range of a body that is read onwards.
struct BodyReader {
    body: MessageBody,
    left: Range<u64>,
    block: Cursor<Bytes>,
}

impl Read for BodyReader {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = self.block.read(buffer)?;
        if read > 0 || self.left.is_empty() || buffer.is_empty() {
            return Ok(read);
        }
        let end = (self.left.start + BLOCK_BYTES).min(self.left.end);
        let block = self.body.read(self.left.start..end);
        self.block = Cursor::new(block.map_err(io::Error::other)?);
        self.left.start = end;
        self.block.read(buffer)
    }
}

/// A buffer that is read onwards, decompressed.
struct BufferStream(Box<dyn Read + Send>);

impl BufferStream {
    fn open(
        body: &MessageBody,
        range: Range<u64>,
        compression: Option<CompressionType>,
    ) -> Result<BufferStream, ArrowError> {
        let reader = |range: Range<u64>| BodyReader {
            body: body.clone(),
            left: range,
            block: Cursor::default(),
        };
        let Some(codec) = compression.filter(|_| range.end > range.start) else {
            return Ok(BufferStream(Box::new(reader(range))));
        };
        let content = range.start + 8..range.end;
        if decompressed_bytes(body, &range)? == NOT_COMPRESSED {
            return Ok(BufferStream(Box::new(reader(content))));
        }
        let stream: Box<dyn Read + Send> = match codec {
            CompressionType::ZSTD => Box::new(zstd::Decoder::new(reader(content))?),
            CompressionType::LZ4_FRAME => {
                Box::new(lz4_flex::frame::FrameDecoder::new(reader(content)))
            }
            _ => return Err(ipc_error("the compression of a batch is not known")),
        };
        Ok(BufferStream(stream))
    }

    fn read(&mut self, bytes: usize) -> Result<MutableBuffer, ArrowError> {
        let mut buffer = MutableBuffer::from_len_zeroed(bytes);
        self.0.read_exact(buffer.as_slice_mut())?;
        Ok(buffer)
    }

    fn skip(&mut self, bytes: u64) -> Result<(), ArrowError> {
        let skipped = io::copy(&mut (&mut self.0).take(bytes), &mut io::sink())?;
        if skipped == bytes {
            Ok(())
        } else {
            Err(ipc_error("a buffer is too short"))
        }
    }
}

/// The decompressed size that a compressed buffer begins with.
fn decompressed_bytes(body: &MessageBody, range: &Range<u64>) -> Result<i64, ArrowError> {
    let prefix = body.read(range.start..range.start + 8)?;
    let prefix: [u8; 8] = prefix
        .as_ref()
        .try_into()
        .map_err(|_| ipc_error("a buffer is too short"))?;
    Ok(i64::from_le_bytes(prefix))
}

/// A bitmap that is read onwards.
struct BitStream {
    stream: BufferStream,
    /// The last byte that was read, and how many of its bits are used.
    last: u8,
    used: usize,
}

impl BitStream {
    fn new(stream: BufferStream) -> BitStream {
        BitStream {
            stream,
            last: 0,
            used: 8,
        }
    }

    fn read(&mut self, bits: usize) -> Result<Buffer, ArrowError> {
        let pending = 8 - self.used;
        let read = self.stream.read(bits.saturating_sub(pending).div_ceil(8))?;
        let buffer = if pending == 0 {
            read
        } else {
            // Bits move to lower places by those of the last byte that are used.
            let mut moved = MutableBuffer::from_len_zeroed(bits.div_ceil(8));
            let mut low = self.last >> self.used;
            for (to, byte) in moved.iter_mut().enumerate() {
                let high = read.get(to).copied().unwrap_or(0);
                *byte = low | high << pending;
                low = (u16::from(high) >> self.used) as u8;
            }
            self.keep_last(read.last().copied(), bits, pending);
            return Ok(moved.into());
        };
        self.keep_last(buffer.last().copied(), bits, pending);
        Ok(buffer.into())
    }

    /// Keeps the byte with the bits that come next.
    fn keep_last(&mut self, last: Option<u8>, bits: usize, pending: usize) {
        match last {
            Some(last) => {
                self.last = last;
                self.used = (bits - pending - 1) % 8 + 1;
            }
            None => self.used += bits,
        }
    }
}

/// A column, or a column inside of one, that is read onwards.
struct ColumnStream {
    data_type: DataType,
    validity: Option<BitStream>,
    values: ValueStream,
}

enum ValueStream {
    Null,
    Bits(BitStream),
    /// Values of so many bytes.
    Fixed(BufferStream, usize),
    Bytes(OffsetStream, BufferStream),
    List(OffsetStream, Box<ColumnStream>),
    FixedList(usize, Box<ColumnStream>),
    Struct(Vec<ColumnStream>),
}

/// Offsets of texts or lists that are read onwards.
struct OffsetStream {
    stream: BufferStream,
    is_large: bool,
    /// The offset that was read last.
    last: Option<i64>,
}

impl OffsetStream {
    fn offset(&self, bytes: &[u8]) -> Result<i64, ArrowError> {
        let short = || ipc_error("an offset is too short");
        let offset = if self.is_large {
            i64::from_le_bytes(bytes.try_into().map_err(|_| short())?)
        } else {
            i64::from(i32::from_le_bytes(bytes.try_into().map_err(|_| short())?))
        };
        Ok(offset)
    }

    /// Reads the offsets of some rows, of which the first becomes 0. Returns the number of values between them, too, and
    /// the number of values to skip before the first.
    fn read(&mut self, rows: usize) -> Result<(Buffer, usize, u64), ArrowError> {
        let width = if self.is_large { 8 } else { 4 };
        let (first, skipped) = match self.last {
            Some(last) => (last, 0),
            None => {
                let first = self.stream.read(width)?;
                let first = self.offset(&first)?;
                let skipped =
                    u64::try_from(first).map_err(|_| ipc_error("an offset is negative"))?;
                (first, skipped)
            }
        };
        let mut ends = self.stream.read(rows * width)?;
        let mut offsets = MutableBuffer::with_capacity((rows + 1) * width);
        offsets.extend_zeros(width);
        let mut last = first;
        for end in ends.as_slice_mut().chunks_exact(width) {
            let end = self.offset(end)?;
            if end < last {
                return Err(ipc_error("the offsets of a buffer are not in order"));
            }
            last = end;
            if self.is_large {
                offsets.extend_from_slice(&(end - first).to_le_bytes())
            } else {
                offsets.extend_from_slice(&((end - first) as i32).to_le_bytes())
            }
        }
        self.last = Some(last);
        Ok((offsets.into(), (last - first) as usize, skipped))
    }
}

/// A reason for which rows are not decoded.
pub(super) enum StreamError {
    Decode(ArrowError),
    Shortage(MemoryShortage),
}

impl From<ArrowError> for StreamError {
    fn from(error: ArrowError) -> Self {
        StreamError::Decode(error)
    }
}

impl ColumnStream {
    fn read(&mut self, rows: usize, memory: &Arc<ReadMemory>) -> Result<ArrayData, StreamError> {
        let mut builder = ArrayData::builder(self.data_type.clone())
            .len(rows)
            .align_buffers(true);
        if let Some(validity) = &mut self.validity {
            builder = builder.null_bit_buffer(Some(validity.read(rows)?));
        }
        builder = match &mut self.values {
            ValueStream::Null => builder,
            ValueStream::Bits(bits) => builder.add_buffer(bits.read(rows)?),
            ValueStream::Fixed(stream, width) => {
                builder.add_buffer(stream.read(rows * *width)?.into())
            }
            ValueStream::Bytes(offsets, stream) => {
                let (offsets, bytes, skipped) = offsets.read(rows)?;
                stream.skip(skipped)?;
                let reservation = if bytes > LARGE_BYTES {
                    Some(
                        memory
                            .reserve(bytes as u64, true)
                            .map_err(StreamError::Shortage)?,
                    )
                } else {
                    None
                };
                let values = stream.read(bytes)?;
                drop(reservation);
                builder.add_buffer(offsets).add_buffer(values.into())
            }
            ValueStream::List(offsets, items) => {
                let (offsets, count, skipped) = offsets.read(rows)?;
                items.skip(skipped, memory)?;
                builder
                    .add_buffer(offsets)
                    .add_child_data(items.read(count, memory)?)
            }
            ValueStream::FixedList(width, items) => {
                builder.add_child_data(items.read(rows * *width, memory)?)
            }
            ValueStream::Struct(columns) => {
                for column in columns {
                    builder = builder.add_child_data(column.read(rows, memory)?);
                }
                builder
            }
        };
        Ok(builder.build()?)
    }

    fn skip(&mut self, rows: u64, memory: &Arc<ReadMemory>) -> Result<(), StreamError> {
        const ROWS_AT_ONCE: u64 = 1024;
        let mut rows_left = rows;
        while rows_left > 0 {
            let rows = rows_left.min(ROWS_AT_ONCE);
            self.read(rows as usize, memory)?;
            rows_left -= rows;
        }
        Ok(())
    }
}

/// Takes the nodes and buffers of a batch in order.
struct BatchWalk<'a> {
    batch: BatchHeader<'a>,
    body: &'a MessageBody,
    node: usize,
    buffer: usize,
    /// Bytes of the buffers of columns that are read, decompressed.
    decoded_bytes: u64,
}

impl BatchWalk<'_> {
    fn next_node(&mut self) -> Result<i64, ArrowError> {
        let nodes = self.batch.nodes();
        let node = nodes
            .filter(|nodes| self.node < nodes.len())
            .map(|nodes| *nodes.get(self.node));
        self.node += 1;
        node.map(|node| node.null_count())
            .ok_or_else(|| ipc_error("a batch has too few columns"))
    }

    fn next_range(&mut self) -> Result<Range<u64>, ArrowError> {
        let buffers = self.batch.buffers();
        let buffer = buffers
            .filter(|buffers| self.buffer < buffers.len())
            .map(|buffers| *buffers.get(self.buffer));
        self.buffer += 1;
        let buffer = buffer.ok_or_else(|| ipc_error("a batch has too few buffers"))?;
        let outside = || ipc_error("a buffer lies outside of its batch");
        let start = u64::try_from(buffer.offset()).map_err(|_| outside())?;
        let length = u64::try_from(buffer.length()).map_err(|_| outside())?;
        let end = start.checked_add(length).ok_or_else(outside)?;
        Ok(start..end)
    }

    fn next_buffer(&mut self, is_read: bool) -> Result<Option<BufferStream>, ArrowError> {
        let range = self.next_range()?;
        if !is_read {
            return Ok(None);
        }
        let compression = self
            .batch
            .compression()
            .map(|compression| compression.codec());
        let stored = range.end - range.start;
        let decoded = match compression {
            Some(_) if stored > 0 => decompressed_bytes(self.body, &range)?,
            _ => NOT_COMPRESSED,
        };
        self.decoded_bytes += u64::try_from(decoded).unwrap_or(stored);
        BufferStream::open(self.body, range, compression).map(Some)
    }

    /// The next column, with its streams if it `is_read`; `None` also if its type cannot be read onwards.
    fn column(&mut self, field: &FieldRef, is_read: bool) -> Result<Walked, ArrowError> {
        let of = field.data_type();
        if !can_stream(of) {
            return Ok(Walked::Unsupported);
        }
        let nulls = self.next_node()?;
        let validity = match of {
            DataType::Null => None,
            _ => self.next_buffer(is_read && nulls > 0)?,
        };
        let validity = validity.map(BitStream::new);
        let is_large = matches!(
            of,
            DataType::LargeUtf8 | DataType::LargeBinary | DataType::LargeList(_)
        );
        let offsets = |stream| OffsetStream {
            stream,
            is_large,
            last: None,
        };
        let values = match of {
            DataType::Null => Some(ValueStream::Null),
            DataType::Boolean => self
                .next_buffer(is_read)?
                .map(|stream| ValueStream::Bits(BitStream::new(stream))),
            DataType::Utf8 | DataType::Binary | DataType::LargeUtf8 | DataType::LargeBinary => {
                let ends = self.next_buffer(is_read)?;
                let bytes = self.next_buffer(is_read)?;
                ends.zip(bytes)
                    .map(|(ends, bytes)| ValueStream::Bytes(offsets(ends), bytes))
            }
            DataType::List(items) | DataType::LargeList(items) | DataType::Map(items, _) => {
                let ends = self.next_buffer(is_read)?;
                match self.column(items, is_read)? {
                    Walked::Unsupported => return Ok(Walked::Unsupported),
                    Walked::Skipped => None,
                    Walked::Column(items) => {
                        ends.map(|ends| ValueStream::List(offsets(ends), items))
                    }
                }
            }
            DataType::FixedSizeList(items, width) => match self.column(items, is_read)? {
                Walked::Unsupported => return Ok(Walked::Unsupported),
                Walked::Skipped => None,
                Walked::Column(items) => {
                    Some(ValueStream::FixedList((*width).max(0) as usize, items))
                }
            },
            DataType::Struct(fields) => {
                let mut columns = Vec::with_capacity(fields.len());
                for field in fields {
                    match self.column(field, is_read)? {
                        Walked::Unsupported => return Ok(Walked::Unsupported),
                        Walked::Skipped => {}
                        Walked::Column(column) => columns.push(*column),
                    }
                }
                Some(ValueStream::Struct(columns))
            }
            DataType::FixedSizeBinary(width) => self
                .next_buffer(is_read)?
                .map(|stream| ValueStream::Fixed(stream, (*width).max(0) as usize)),
            other => {
                let width = other.primitive_width().unwrap_or_default();
                self.next_buffer(is_read)?
                    .map(|stream| ValueStream::Fixed(stream, width))
            }
        };
        Ok(match values.filter(|_| is_read) {
            Some(values) => Walked::Column(Box::new(ColumnStream {
                data_type: of.clone(),
                validity,
                values,
            })),
            None => Walked::Skipped,
        })
    }
}

/// A column of a batch.
enum Walked {
    Column(Box<ColumnStream>),
    Skipped,
    Unsupported,
}

fn can_stream(of: &DataType) -> bool {
    of.is_primitive()
        || matches!(
            of,
            DataType::Null
                | DataType::Boolean
                | DataType::Utf8
                | DataType::LargeUtf8
                | DataType::Binary
                | DataType::LargeBinary
                | DataType::FixedSizeBinary(_)
                | DataType::List(_)
                | DataType::LargeList(_)
                | DataType::FixedSizeList(..)
                | DataType::Map(..)
                | DataType::Struct(_)
        )
}

/// A batch that is decoded some rows at a time.
pub(super) struct BatchStream {
    schema: SchemaRef,
    columns: Vec<ColumnStream>,
    rows_left: usize,
    /// Bytes of a decoded row.
    row_bytes: u64,
}

impl BatchStream {
    /// Opens some columns of a batch; `None` if one of its columns has a type that is only decoded as a whole.
    pub(super) fn open(
        batch: BatchHeader<'_>,
        schema: &SchemaRef,
        body: &MessageBody,
        selected: &[usize],
    ) -> Result<Option<BatchStream>, ArrowError> {
        let mut walk = BatchWalk {
            batch,
            body,
            node: 0,
            buffer: 0,
            decoded_bytes: 0,
        };
        let mut columns = Vec::with_capacity(selected.len());
        for (at, field) in schema.fields().iter().enumerate() {
            match walk.column(field, selected.contains(&at))? {
                Walked::Unsupported => return Ok(None),
                Walked::Skipped => {}
                Walked::Column(column) => columns.push(*column),
            }
        }
        let rows = usize::try_from(batch.length())
            .map_err(|_| ipc_error("the number of rows is negative"))?;
        let decoded_bytes = walk.decoded_bytes;
        Ok(Some(BatchStream {
            schema: Arc::new(schema.project(selected)?),
            columns,
            rows_left: rows,
            row_bytes: decoded_bytes.div_ceil(rows.max(1) as u64).max(1),
        }))
    }

    /// The next rows, at most so many; `None` after the last.
    pub(super) fn next(
        &mut self,
        batch_rows: usize,
        memory: &Arc<ReadMemory>,
    ) -> Result<Option<RecordBatch>, StreamError> {
        if self.rows_left == 0 {
            return Ok(None);
        }
        let fitting = (memory.chunk_bytes() / self.row_bytes).min(batch_rows as u64) as usize;
        let whole = fitting / ROWS_MULTIPLE * ROWS_MULTIPLE;
        let rows = if whole > 0 { whole } else { fitting.max(1) };
        let rows = rows.min(self.rows_left);
        let mut columns: Vec<ArrayRef> = Vec::with_capacity(self.columns.len());
        for column in &mut self.columns {
            columns.push(make_array(column.read(rows, memory)?));
        }
        self.rows_left -= rows;
        let options = RecordBatchOptions::new().with_row_count(Some(rows));
        let schema: SchemaRef = Arc::new(nullable(&self.schema));
        Ok(Some(RecordBatch::try_new_with_options(
            schema, columns, &options,
        )?))
    }
}

/// A schema in which all columns may be null: what files declare is not checked.
fn nullable(schema: &Schema) -> Schema {
    let fields = schema
        .fields()
        .iter()
        .map(|field| Arc::new(field.as_ref().clone().with_nullable(true)));
    Schema::new(fields.collect::<Vec<_>>())
}
