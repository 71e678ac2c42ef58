//! Files that are read from front to back, unpacked on the way.

use std::io::{self, BufReader, Read};

use flate2::read::MultiGzDecoder;
use forebay_model::{Fault, Result, codes};

use super::blob::{Blob, refused};

/// Bytes to unpack or parse at a time.
pub(crate) const BUFFER_BYTES: usize = 256 << 10;

/// The bytes of a file, unpacked when its name ends in `.gz` or `.zst`.
pub(crate) fn open(blob: &Blob, path: &str, size: u64) -> Result<Box<dyn Read + Send>> {
    let raw = blob.reader(size);
    let name = path.to_ascii_lowercase();
    if name.ends_with(".gz") {
        Ok(Box::new(MultiGzDecoder::new(BufReader::with_capacity(BUFFER_BYTES, raw))))
    } else if name.ends_with(".zst") {
        let unpacked = zstd::Decoder::new(raw).map_err(|error| refused(path, error))?;
        Ok(Box::new(unpacked))
    } else {
        Ok(raw)
    }
}

/// The first `length` bytes of a stream, or all when there are fewer, without a byte order mark.
pub(crate) fn head(stream: &mut dyn Read, length: usize, path: &str) -> Result<Vec<u8>> {
    let mut head = Vec::new();
    stream.take(length as u64).read_to_end(&mut head).map_err(|error| broken(path, error))?;
    if head.starts_with(b"\xef\xbb\xbf") {
        head.drain(..3);
    }
    Ok(head)
}

/// A fault for a stream that cannot be read on: packed bytes that are broken, or storage.
pub(crate) fn broken(path: &str, error: io::Error) -> Fault {
    match error.kind() {
        _ if error.get_ref().is_some_and(|inner| inner.is::<Fault>()) => refused(path, error),
        io::ErrorKind::InvalidInput | io::ErrorKind::InvalidData | io::ErrorKind::UnexpectedEof => {
            Fault::new(codes::CORRUPT, "the file is broken").file(path).cause(error)
        }
        // zstd gives its own complaints the kind `Other`, as remote stores do with theirs.
        io::ErrorKind::Other if path.to_ascii_lowercase().ends_with(".zst") && !path.contains("://") => {
            Fault::new(codes::CORRUPT, "the file is broken").file(path).cause(error)
        }
        _ => refused(path, error),
    }
}
