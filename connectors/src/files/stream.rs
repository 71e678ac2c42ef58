//! Files that are read from front to back, unpacked on the way.

use std::io::{self, BufReader, Read};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use flate2::read::MultiGzDecoder;
use forebay_model::{Fault, RECORD_BYTES_MAX, Result, WINDOW_LOG_MAX, codes};

use super::blob::{FileHandle, io_fault};

/// Bytes to unpack or parse at a time.
pub(crate) const BUFFER_BYTES: usize = 256 << 10;

/// The bytes of a file, unpacked when its name ends in `.gz` or `.zst`.
pub(crate) fn open_decompressed(
    blob: &FileHandle,
    path: &str,
    size: u64,
) -> Result<Box<dyn Read + Send>> {
    let raw = blob.reader(size);
    let name = path.to_ascii_lowercase();
    if name.ends_with(".gz") {
        Ok(Box::new(MultiGzDecoder::new(BufReader::with_capacity(
            BUFFER_BYTES,
            raw,
        ))))
    } else if name.ends_with(".zst") {
        let mut unpacked = zstd::Decoder::new(raw).map_err(|error| io_fault(path, error))?;
        unpacked
            .window_log_max(WINDOW_LOG_MAX)
            .map_err(|error| io_fault(path, error))?;
        Ok(Box::new(unpacked))
    } else {
        Ok(raw)
    }
}

/// A stream that ends with a fault where a record is longer than [`RECORD_BYTES_MAX`]: what reads records keeps each
/// whole.
pub(crate) struct RecordLimitReader {
    stream: Box<dyn Read + Send>,
    read: Arc<AtomicUsize>,
}

/// Tells a [`RecordLimitReader`] where records begin.
#[derive(Clone, Default)]
pub(crate) struct RecordStart(Arc<AtomicUsize>);

impl RecordStart {
    /// A record begins.
    pub(crate) fn mark_start(&self) {
        self.0.store(0, Ordering::Relaxed);
    }
}

impl RecordLimitReader {
    pub(crate) fn new(stream: Box<dyn Read + Send>, start: &RecordStart) -> Self {
        RecordLimitReader {
            stream,
            read: start.0.clone(),
        }
    }
}

impl Read for RecordLimitReader {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if self.read.load(Ordering::Relaxed) > RECORD_BYTES_MAX {
            return Err(io::Error::other(record_length_fault()));
        }
        let read = self.stream.read(buffer)?;
        self.read.fetch_add(read, Ordering::Relaxed);
        Ok(read)
    }
}

/// A fault for a record that is too long.
pub(crate) fn record_length_fault() -> Fault {
    let fault = Fault::new(
        codes::BAD_ROW,
        format!("the record has more than {RECORD_BYTES_MAX} bytes"),
    );
    fault.hint("is a quote left open, or an end of line missing?")
}

/// A fault for a stream that cannot be read on: packed bytes that are broken, or storage.
pub(crate) fn stream_fault(path: &str, error: io::Error) -> Fault {
    match error.kind() {
        _ if error.get_ref().is_some_and(|inner| inner.is::<Fault>()) => io_fault(path, error),
        // The library tells this by its words alone.
        _ if error.to_string().contains("too much memory") => {
            let message = format!(
                "unpacking the file takes more than {} MiB",
                (1u64 << WINDOW_LOG_MAX) >> 20
            );
            let fault = Fault::new(codes::LIMIT, message).file(path).cause(error);
            fault.hint("pack it again with a smaller window (`zstd --long=27` at most)")
        }
        io::ErrorKind::InvalidInput | io::ErrorKind::InvalidData | io::ErrorKind::UnexpectedEof => {
            Fault::new(codes::CORRUPT, "the file is broken")
                .file(path)
                .cause(error)
        }
        // zstd gives its own complaints the kind `Other`, as remote stores do with theirs.
        io::ErrorKind::Other
            if path.to_ascii_lowercase().ends_with(".zst") && !path.contains("://") =>
        {
            Fault::new(codes::CORRUPT, "the file is broken")
                .file(path)
                .cause(error)
        }
        _ => io_fault(path, error),
    }
}
