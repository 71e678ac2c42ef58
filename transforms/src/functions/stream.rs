//! Checks on an Arrow stream before memory is taken for its messages.

use std::io::{Error, ErrorKind, Read, Result};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use arrow::ipc::{Message, RecordBatch, root_as_message};

/// The marker at the begin of each message.
const CONTINUATION: [u8; 4] = [0xff; 4];

/// Bytes of the marker and of the length of the metadata.
const PREFIX_BYTES: usize = 8;

/// Largest metadata of a message.
const METADATA_BYTES_MAX: usize = 16 << 20;

/// Facts about a stream that its reader and its thread share.
#[derive(Debug, Default)]
pub(super) struct StreamState {
    /// Largest body of a message.
    pub body_bytes_max: AtomicUsize,
    /// True once the stream has ended: by its end marker, or because the output has, even in a message.
    pub has_ended: AtomicBool,
}

/// Reads an Arrow stream and refuses what is none, and messages that are too large.
pub(super) struct CheckedStream<R> {
    input: R,
    state: Arc<StreamState>,
    /// The checked begin of a message: prefix and metadata.
    header: Vec<u8>,
    /// Bytes of the header that were passed on.
    header_read: usize,
    /// Bytes of the body that follow the header.
    body_bytes: usize,
}

impl<R: Read> CheckedStream<R> {
    /// A stream that `input` holds.
    pub fn new(input: R, state: Arc<StreamState>) -> CheckedStream<R> {
        CheckedStream {
            input,
            state,
            header: Vec::new(),
            header_read: 0,
            body_bytes: 0,
        }
    }

    /// Reads and checks the begin of the next message. At the end of the stream, the header is empty.
    fn next_message(&mut self) -> Result<()> {
        self.header.clear();
        self.header_read = 0;
        let mut prefix = [0u8; PREFIX_BYTES];
        let (marker, length) = prefix.split_at_mut(CONTINUATION.len());
        let marker_bytes = self.read_whole(marker)?;
        if marker_bytes == 0 {
            return Ok(());
        }
        if marker[..marker_bytes] != CONTINUATION[..marker_bytes] {
            let text = String::from_utf8_lossy(&marker[..marker_bytes]).into_owned();
            let message = format!("its output begins with {text:?} and is no Arrow stream");
            return Err(Error::new(ErrorKind::InvalidData, message));
        }
        let length_bytes = self.read_whole(length)?;
        if marker_bytes + length_bytes < PREFIX_BYTES {
            return Err(ErrorKind::UnexpectedEof.into());
        }
        let metadata_bytes = metadata_length(length);
        self.header.extend_from_slice(&prefix);
        if metadata_bytes == 0 {
            self.state.has_ended.store(true, Ordering::Relaxed);
            return Ok(());
        }
        if metadata_bytes > METADATA_BYTES_MAX {
            let message = format!("it writes metadata of {metadata_bytes} bytes");
            return Err(Error::new(ErrorKind::InvalidData, message));
        }
        let mut metadata = vec![0; metadata_bytes];
        if self.read_whole(&mut metadata)? < metadata_bytes {
            return Err(ErrorKind::UnexpectedEof.into());
        }
        self.body_bytes = self.checked_body(&metadata)?;
        self.header.extend_from_slice(&metadata);
        if is_compressed(&metadata) {
            self.check_compressed(&metadata)?;
        }
        Ok(())
    }

    /// Reads the body of a message with compressed buffers, which tell what they become, and passes it on with the begin.
    fn check_compressed(&mut self, metadata: &[u8]) -> Result<()> {
        let mut body = vec![0; std::mem::take(&mut self.body_bytes)];
        if self.read_whole(&mut body)? < body.len() {
            return Err(ErrorKind::UnexpectedEof.into());
        }
        let body_bytes_max = self.state.body_bytes_max.load(Ordering::Relaxed);
        let bytes = decompressed_bytes(metadata, &body);
        if bytes > body_bytes_max as u64 {
            let message = format!(
                "its compressed answer becomes {bytes} bytes, of at most {body_bytes_max} for \
                 this batch"
            );
            return Err(Error::new(ErrorKind::InvalidData, message));
        }
        self.header.extend_from_slice(&body);
        Ok(())
    }

    /// Bytes of the body that follows the metadata of a message.
    fn checked_body(&self, metadata: &[u8]) -> Result<usize> {
        let message = root_as_message(metadata).map_err(|error| {
            Error::new(
                ErrorKind::InvalidData,
                format!("it writes a message that is none of Arrow's: {error}"),
            )
        })?;
        let body_bytes_max = self.state.body_bytes_max.load(Ordering::Relaxed);
        match usize::try_from(message.bodyLength()) {
            Ok(bytes) if bytes <= body_bytes_max => Ok(bytes),
            _ => {
                let message = format!(
                    "it answers with {} bytes, of at most {body_bytes_max} for this batch",
                    message.bodyLength()
                );
                Err(Error::new(ErrorKind::InvalidData, message))
            }
        }
    }

    /// Fills a buffer, or as much of it as there is before the end.
    fn read_whole(&mut self, buffer: &mut [u8]) -> Result<usize> {
        let mut filled = 0;
        while filled < buffer.len() {
            let bytes = self.read_some(&mut buffer[filled..])?;
            if bytes == 0 {
                break;
            }
            filled += bytes;
        }
        Ok(filled)
    }

    /// Reads what there is, and notes the end.
    fn read_some(&mut self, buffer: &mut [u8]) -> Result<usize> {
        loop {
            match self.input.read(buffer) {
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Ok(0) => {
                    self.state.has_ended.store(true, Ordering::Relaxed);
                    return Ok(0);
                }
                outcome => return outcome,
            }
        }
    }
}

/// The batch of a message, or that of its dictionary.
fn batch_of<'m>(message: &Message<'m>) -> Option<RecordBatch<'m>> {
    let dictionary = message.header_as_dictionary_batch();
    message
        .header_as_record_batch()
        .or_else(|| dictionary.and_then(|dictionary| dictionary.data()))
}

fn is_compressed(metadata: &[u8]) -> bool {
    let message = root_as_message(metadata).ok();
    let batch = message.as_ref().and_then(batch_of);
    batch.is_some_and(|batch| batch.compression().is_some())
}

/// Bytes of the compressed buffers of a message, decompressed, as they tell them. Each begins with its length.
fn decompressed_bytes(metadata: &[u8], body: &[u8]) -> u64 {
    let message = root_as_message(metadata).ok();
    let buffers = message.as_ref().and_then(batch_of);
    let buffers = buffers.and_then(|batch| batch.buffers());
    let mut bytes = 0_u64;
    for buffer in buffers.into_iter().flatten() {
        let start = usize::try_from(buffer.offset()).unwrap_or(usize::MAX);
        let prefix = body.get(start..).and_then(<[u8]>::first_chunk);
        if let Some(prefix) = prefix.filter(|_| buffer.length() > 0) {
            // A buffer that is not compressed has -1 there.
            let length = i64::from_le_bytes(*prefix).max(0);
            bytes = bytes.saturating_add(length as u64);
        }
    }
    bytes
}

fn metadata_length(bytes: &[u8]) -> usize {
    let mut length = 0;
    // The least significant byte comes first.
    for byte in bytes.iter().rev() {
        length = length << 8 | usize::from(*byte);
    }
    length
}

impl<R: Read> Read for CheckedStream<R> {
    fn read(&mut self, buffer: &mut [u8]) -> Result<usize> {
        if buffer.is_empty() {
            return Ok(0);
        }
        if self.header_read == self.header.len() && self.body_bytes == 0 {
            self.next_message()?;
        }
        let header = &self.header[self.header_read..];
        if !header.is_empty() {
            let bytes = header.len().min(buffer.len());
            buffer[..bytes].copy_from_slice(&header[..bytes]);
            self.header_read += bytes;
            return Ok(bytes);
        }
        if self.body_bytes == 0 {
            return Ok(0);
        }
        let length = self.body_bytes.min(buffer.len());
        let bytes = self.read_some(&mut buffer[..length])?;
        self.body_bytes -= bytes;
        Ok(bytes)
    }
}

#[cfg(test)]
mod tests {
    use arrow::array::{ArrayRef, Int64Array, RecordBatch};
    use arrow::ipc::CompressionType;
    use arrow::ipc::reader::StreamReader;
    use arrow::ipc::writer::{IpcWriteOptions, StreamWriter};

    use super::*;

    /// A stream of two batches, the second one without rows.
    fn stream() -> Vec<u8> {
        let numbers: ArrayRef = Arc::new(Int64Array::from(vec![1, 2, 3]));
        let batch = RecordBatch::try_from_iter([("n", numbers)]).unwrap();
        let mut writer = StreamWriter::try_new(Vec::new(), &batch.schema()).unwrap();
        writer.write(&batch).unwrap();
        writer.write(&batch.slice(0, 0)).unwrap();
        writer.into_inner().unwrap()
    }

    fn rows(bytes: &[u8], body_bytes_max: usize) -> std::result::Result<Vec<usize>, String> {
        let state = Arc::new(StreamState::default());
        state
            .body_bytes_max
            .store(body_bytes_max, Ordering::Relaxed);
        let checked = CheckedStream::new(bytes, state);
        let reader = StreamReader::try_new(checked, None).map_err(|error| error.to_string())?;
        let mut rows = Vec::new();
        for batch in reader {
            rows.push(batch.map_err(|error| error.to_string())?.num_rows());
        }
        Ok(rows)
    }

    #[test]
    fn streams_pass_and_others_do_not() {
        let stream = stream();
        assert_eq!(rows(&stream, 1 << 20), Ok(vec![3, 0]));
        let cases: [(&[u8], usize, &str); 4] = [
            (&stream, 8, "of at most 8 for this batch"),
            (b"hello, world", 1 << 20, "begins with \"hell\""),
            (b"hi", 1 << 20, "begins with \"hi\""),
            (&[0xff; 64], 1 << 20, "metadata of 4294967295 bytes"),
        ];
        for (bytes, body_bytes_max, words) in cases {
            let error = rows(bytes, body_bytes_max).unwrap_err();
            assert!(error.contains(words), "{error}");
        }
    }

    #[test]
    fn compressed_answers_count_with_what_they_become() {
        let numbers: ArrayRef = Arc::new(Int64Array::from(vec![7; 100_000]));
        let batch = RecordBatch::try_from_iter([("n", numbers)]).unwrap();
        let options = IpcWriteOptions::default()
            .try_with_compression(Some(CompressionType::ZSTD))
            .unwrap();
        let schema = batch.schema();
        let mut writer = StreamWriter::try_new_with_options(Vec::new(), &schema, options).unwrap();
        writer.write(&batch).unwrap();
        let stream = writer.into_inner().unwrap();
        assert!(stream.len() < 100_000);
        assert_eq!(rows(&stream, 1 << 20), Ok(vec![100_000]));
        let error = rows(&stream, 700_000).unwrap_err();
        assert!(
            error.contains("bytes, of at most 700000 for this batch"),
            "{error}"
        );
    }

    #[test]
    fn a_stream_that_breaks_off_is_no_answer() {
        let stream = stream();
        for length in 0..stream.len() - PREFIX_BYTES {
            let state = Arc::new(StreamState::default());
            state.body_bytes_max.store(1 << 20, Ordering::Relaxed);
            let checked = CheckedStream::new(&stream[..length], state.clone());
            let answers = match StreamReader::try_new(checked, None) {
                Ok(reader) => reader.map_while(std::result::Result::ok).count(),
                Err(_) => 0,
            };
            assert!(answers <= 2, "{length}: {answers}");
            assert!(state.has_ended.load(Ordering::Relaxed), "{length}");
        }
    }
}
