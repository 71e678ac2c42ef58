//! Streams of files that are read from front to back and decompressed while they are read.

use std::io::{self, BufReader, Read};

use flate2::read::MultiGzDecoder;
use forebay_model::{Fault, RECORD_BYTES_MAX, Result, WINDOW_LOG_MAX, codes};

use super::blob::{FileHandle, io_fault};

/// Bytes to unpack or parse at a time.
pub(crate) const BUFFER_BYTES: usize = 256 << 10;

/// The first bytes of every gzip file.
const GZIP_MAGIC: [u8; 2] = [0x1f, 0x8b];

/// The first bytes of every zstd frame.
const ZSTD_MAGIC: [u8; 4] = [0x28, 0xb5, 0x2f, 0xfd];

/// The way in which a file is packed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Packing {
    None,
    Gzip,
    Zstd,
}

impl Packing {
    fn of_name(path: &str) -> Packing {
        let name = path.to_ascii_lowercase();
        if name.ends_with(".gz") {
            Packing::Gzip
        } else if name.ends_with(".zst") {
            Packing::Zstd
        } else {
            Packing::None
        }
    }

    /// Packing by the first bytes. No text in UTF-8, UTF-16 or a code page of Windows begins with them.
    fn of_bytes(first: &[u8]) -> Packing {
        if first.starts_with(&GZIP_MAGIC) {
            Packing::Gzip
        } else if first.starts_with(&ZSTD_MAGIC) {
            Packing::Zstd
        } else {
            Packing::None
        }
    }
}

/// Bytes at the beginning of a file that tell how it is packed.
const MAGIC_BYTES: u64 = 10;

/// Name of a packing that is not read, by the first bytes of a file.
fn unread_packing(first: &[u8]) -> Option<&'static str> {
    const MAGIC: [(&[u8], &str); 5] = [
        (b"\xfd7zXZ\0", "xz"),
        (b"\x04\x22\x4d\x18", "LZ4"),
        (b"7z\xbc\xaf\x27\x1c", "7-Zip"),
        (b"PK\x03\x04", "ZIP"),
        (b"\xff\x06\0\0sNaP", "Snappy"),
    ];
    // A digit tells the size of blocks.
    if first.starts_with(b"BZh") && first.get(4..10) == Some(b"1AY&SY".as_slice()) {
        return Some("bzip2");
    }
    let mut magic = MAGIC.into_iter();
    magic
        .find(|(bytes, _)| first.starts_with(bytes))
        .map(|(_, name)| name)
}

/// True if the first bytes of a file are those of a packed one.
pub(crate) fn is_packed(blob: &FileHandle, path: &str, size: u64) -> Result<bool> {
    let first = blob.read(path, 0..size.min(MAGIC_BYTES))?;
    Ok(Packing::of_bytes(&first) != Packing::None || unread_packing(&first).is_some())
}

/// The bytes of a file, unpacked when its name ends in `.gz` or `.zst`, or its first bytes are those of such a file.
pub(crate) fn open_decompressed(
    blob: &FileHandle,
    path: &str,
    size: u64,
) -> Result<Box<dyn Read + Send>> {
    let mut raw = blob.reader(size);
    let mut packing = Packing::of_name(path);
    if packing == Packing::None {
        let mut first = Vec::with_capacity(MAGIC_BYTES as usize);
        let mut begin = raw.take(MAGIC_BYTES);
        begin
            .read_to_end(&mut first)
            .map_err(|error| stream_fault(path, error))?;
        packing = Packing::of_bytes(&first);
        if let Some(name) = unread_packing(&first) {
            let message = format!("the file is packed with {name}");
            let fault = Fault::new(codes::UNSUPPORTED, message).file(path);
            return Err(fault.hint("unpack it, or pack it with gzip or zstd"));
        }
        raw = Box::new(io::Cursor::new(first).chain(begin.into_inner()));
    }
    match packing {
        Packing::None => Ok(raw),
        Packing::Gzip => {
            let buffered = BufReader::with_capacity(BUFFER_BYTES, raw);
            Ok(Box::new(MultiGzDecoder::new(buffered)))
        }
        Packing::Zstd => {
            let mut unpacked = zstd::Decoder::new(raw).map_err(|error| io_fault(path, error))?;
            unpacked
                .window_log_max(WINDOW_LOG_MAX)
                .map_err(|error| io_fault(path, error))?;
            Ok(Box::new(unpacked))
        }
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
        // The library reports this only in the text of its error.
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
            if Packing::of_name(path) == Packing::Zstd && !path.contains("://") =>
        {
            Fault::new(codes::CORRUPT, "the file is broken")
                .file(path)
                .cause(error)
        }
        _ => io_fault(path, error),
    }
}
