//! The bytes of one file, wherever it is.

use std::collections::VecDeque;
use std::fs::File;
use std::io::{self, Cursor, Read};
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::sync::Arc;

use bytes::Bytes;
use forebay_model::{Fault, Result, codes, is_unusable_name};
use forebay_storage::{RangeFetch, StorageClient, StorageLocation, time_disk_wait};

use super::stamp::FileStamp;

/// Bytes of the first request of a sequential reader to a remote store: enough for a header.
pub(crate) const READ_BYTES_FIRST: u64 = 256 << 10;

/// Maximum bytes of later requests: enough to hide the latency of a request, and few enough to hold
/// several in memory.
const READ_BYTES_MAX: u64 = 8 << 20;

/// Maximum number of blocks that a sequential reader requests ahead.
const BLOCKS_AHEAD_MAX: usize = 16;

/// An open file.
#[derive(Clone)]
pub(crate) enum FileHandle {
    /// File on a local disk.
    Local(Arc<File>),
    /// Bytes that came in a request.
    Memory(Bytes),
    /// A file in a remote store: the object of this etag, if the store has etags.
    Remote(StorageClient, StorageLocation, Option<String>),
}

/// A fault for a file that was listed and is not there any more.
pub(crate) fn gone_fault(path: &str) -> Fault {
    let fault = Fault::new(codes::CHANGED, "the file has gone since it was found").file(path);
    fault.hint("run again when no other program changes the data")
}

/// True if a path is a URL of an object.
pub(crate) fn is_remote(path: &str) -> bool {
    path.contains("://")
}

/// Opens an object of an etag. Reads fail if its etag has changed.
pub(crate) fn open_version(io: &StorageClient, path: &str, etag: &str) -> Result<FileHandle> {
    Ok(FileHandle::Remote(
        io.clone(),
        io.resolve(path)?,
        Some(etag.to_owned()),
    ))
}

/// Opens an object of a known size by reading its end, which also gives its stamp. `None` if its
/// size has changed.
pub(crate) fn open_tail(
    io: &StorageClient,
    path: &str,
    size: u64,
    bytes: u64,
) -> Result<Option<(FileHandle, FileStamp, Bytes)>> {
    let location = io.resolve(path)?;
    let end_of_object = io.get_unversioned(&location, size.saturating_sub(bytes)..size)?;
    Ok(end_of_object
        .filter(|(meta, _)| meta.size == size)
        .map(|(meta, tail)| {
            let stamp = FileStamp::remote(&meta);
            (
                FileHandle::Remote(io.clone(), location, meta.e_tag),
                stamp,
                tail,
            )
        }))
}

/// Opens a file as listed; its stamp is the one at this moment.
pub(crate) fn open_file(io: &StorageClient, path: &str) -> Result<(FileHandle, FileStamp)> {
    open_if_there(io, path)?.ok_or_else(|| gone_fault(path))
}

/// Opens a file; its stamp is the one at this moment. `None` if there is none.
pub(crate) fn open_if_there(
    io: &StorageClient,
    path: &str,
) -> Result<Option<(FileHandle, FileStamp)>> {
    if is_remote(path) {
        let location = io.resolve(path)?;
        let Some(meta) = io.head(&location)? else {
            return Ok(None);
        };
        let stamp = FileStamp::remote(&meta);
        return Ok(Some((
            FileHandle::Remote(io.clone(), location, meta.e_tag),
            stamp,
        )));
    }
    let opened = File::open(path).and_then(|file| file.metadata().map(|meta| (file, meta)));
    match opened {
        Ok((file, meta)) => Ok(Some((
            FileHandle::Local(Arc::new(file)),
            FileStamp::local(&meta),
        ))),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(io_fault(path, error)),
    }
}

/// True if there is a file.
pub fn file_exists(io: &StorageClient, path: &str) -> Result<bool> {
    Ok(open_if_there(io, path)?.is_some())
}

/// Fault for an error of the file system, or the fault that made a read fail.
pub(crate) fn io_fault(path: &str, error: io::Error) -> Fault {
    let error = match error.downcast::<Fault>() {
        Ok(fault) => return fault.file(path),
        Err(error) => error,
    };
    if is_unusable_name(&error) {
        return Fault::unusable_name("the file cannot be read", error).file(path);
    }
    let (code, message) = match error.kind() {
        io::ErrorKind::PermissionDenied => (codes::ACCESS, "the file may not be read"),
        io::ErrorKind::NotADirectory => (codes::ACCESS, "a part of the path is a file"),
        io::ErrorKind::IsADirectory => (codes::ACCESS, "the path is a directory, not a file"),
        io::ErrorKind::UnexpectedEof => (codes::CORRUPT, "the file ends too early"),
        _ => (codes::STORAGE, "the file cannot be read"),
    };
    Fault::new(code, message).file(path).cause(error)
}

/// A fault for a file that is another one than it was.
pub(crate) fn changed_fault(path: &str) -> Fault {
    Fault::new(codes::CHANGED, "the file has changed since it was found")
        .file(path)
        .hint("run again when no other program writes to it")
}

impl FileHandle {
    /// The etag by which an object is read.
    pub(crate) fn etag(&self) -> Option<&str> {
        match self {
            FileHandle::Local(_) | FileHandle::Memory(_) => None,
            FileHandle::Remote(_, _, etag) => {
                etag.as_deref().filter(|etag| !etag.starts_with("W/"))
            }
        }
    }

    /// Reads a range of bytes.
    pub(crate) fn read(&self, path: &str, range: Range<u64>) -> Result<Bytes> {
        if range.is_empty() {
            return Ok(Bytes::new());
        }
        match self {
            FileHandle::Local(file) => {
                read_exact(file, range.start, (range.end - range.start) as usize)
                    .map_err(|error| io_fault(path, error))
            }
            FileHandle::Memory(bytes) => {
                let start = usize::try_from(range.start).unwrap_or(usize::MAX);
                let end = usize::try_from(range.end).unwrap_or(usize::MAX);
                if start > end || end > bytes.len() {
                    return Err(io_fault(path, io::ErrorKind::UnexpectedEof.into()));
                }
                Ok(bytes.slice(start..end))
            }
            FileHandle::Remote(io, place, etag) => Ok(io
                .fetch(place, etag.as_deref(), vec![range])
                .finish()?
                .pop()
                .unwrap_or_default()),
        }
    }

    /// Fails if the file has changed since it was opened. Call it after reading: a file that was
    /// overwritten in the meantime may be half old and half new.
    pub(crate) fn check_unchanged(&self, path: &str, stamp: &FileStamp) -> Result<()> {
        let now = match self {
            FileHandle::Local(file) => file
                .metadata()
                .map(|meta| FileStamp::local(&meta))
                .map_err(|error| io_fault(path, error))?,
            FileHandle::Memory(_) => return Ok(()),
            // Every read was conditional on the etag.
            FileHandle::Remote(_, _, Some(_)) => return Ok(()),
            FileHandle::Remote(io, place, None) => match io.head(place)? {
                Some(meta) => FileStamp::remote(&meta),
                None => return Err(changed_fault(path)),
            },
        };
        if now.same_version(stamp) {
            Ok(())
        } else {
            Err(changed_fault(path))
        }
    }

    /// A fault met while reading, or the better explanation that the file has changed.
    pub(crate) fn explain_fault(&self, path: &str, stamp: &FileStamp, fault: Fault) -> Fault {
        match self.check_unchanged(path, stamp) {
            Err(changed) if changed.code() == codes::CHANGED => changed.cause(fault),
            _ => fault,
        }
    }

    /// A reader from the first byte to the last.
    pub(crate) fn reader(&self, size: u64) -> Box<dyn Read + Send> {
        match self {
            FileHandle::Local(file) => Box::new(PositionedReader {
                file: file.clone(),
                at: 0,
            }),
            FileHandle::Memory(_) | FileHandle::Remote(..) => self.range_reader(0..size),
        }
    }

    /// A reader of a range of bytes.
    pub(crate) fn range_reader(&self, range: Range<u64>) -> Box<dyn Read + Send> {
        match self {
            FileHandle::Local(file) => {
                let reader = PositionedReader {
                    file: file.clone(),
                    at: range.start,
                };
                Box::new(reader.take(range.end.saturating_sub(range.start)))
            }
            FileHandle::Memory(bytes) => {
                let mut reader = Cursor::new(bytes.clone());
                reader.set_position(range.start);
                Box::new(reader.take(range.end.saturating_sub(range.start)))
            }
            FileHandle::Remote(io, place, etag) => Box::new(RemotePrefetchReader::new(
                io.clone(),
                place.clone(),
                etag.clone(),
                range,
            )),
        }
    }
}

/// Reads a range of bytes of a local file without its cursor, so that threads can share the file.
pub(crate) fn read_exact(file: &File, start: u64, length: usize) -> io::Result<Bytes> {
    let mut buffer = vec![0; length];
    time_disk_wait(|| file.read_exact_at(&mut buffer, start))?;
    Ok(buffer.into())
}

/// A place in a local file that is read onwards.
pub(crate) struct PositionedReader {
    /// The file.
    pub(crate) file: Arc<File>,
    /// The next byte.
    pub(crate) at: u64,
}

impl Read for PositionedReader {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = time_disk_wait(|| self.file.read_at(buffer, self.at))?;
        self.at += read as u64;
        Ok(read)
    }
}

/// Reads an object onwards, some blocks ahead: the more, the further it was read. A reader of a header reads no more.
struct RemotePrefetchReader {
    io: StorageClient,
    place: StorageLocation,
    etag: Option<String>,
    end: u64,
    asked: u64,
    length: u64,
    block: Bytes,
    /// Requested blocks.
    next: VecDeque<RangeFetch>,
    /// Number of blocks that are requested ahead.
    ahead: usize,
}

impl RemotePrefetchReader {
    fn new(
        io: StorageClient,
        location: StorageLocation,
        etag: Option<String>,
        range: Range<u64>,
    ) -> Self {
        let length = READ_BYTES_FIRST;
        let block = Bytes::new();
        let next = VecDeque::new();
        let mut reader = RemotePrefetchReader {
            io,
            place: location,
            etag,
            end: range.end,
            asked: range.start,
            length,
            block,
            next,
            ahead: 1,
        };
        reader.read_ahead();
        reader
    }

    fn read_ahead(&mut self) {
        while self.asked < self.end && self.next.len() < self.ahead {
            let range = self.asked..(self.asked + self.length).min(self.end);
            self.asked = range.end;
            self.length = (self.length * 2).min(READ_BYTES_MAX);
            self.next.push_back(
                self.io
                    .fetch(&self.place, self.etag.as_deref(), vec![range]),
            );
        }
    }
}

impl Read for RemotePrefetchReader {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if self.block.is_empty() {
            let Some(next) = self.next.pop_front() else {
                return Ok(0);
            };
            self.block = next
                .finish()
                .map_err(io::Error::other)?
                .pop()
                .unwrap_or_default();
            self.ahead = (self.ahead + 1).min(BLOCKS_AHEAD_MAX);
            self.read_ahead();
        }
        let length = buffer.len().min(self.block.len());
        buffer[..length].copy_from_slice(&self.block.split_to(length));
        Ok(length)
    }
}
