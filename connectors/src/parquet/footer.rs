//! Footers: reading them, and keeping the last few.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use arrow::datatypes::SchemaRef;
use bytes::Bytes;
use forebay_model::{ContentId, Fault, FileRange, Result, codes};
use forebay_storage::StorageClient;
use parquet::arrow::arrow_reader::{ArrowReaderMetadata, ArrowReaderOptions};
use parquet::errors::ParquetError;
use parquet::file::metadata::{
    FooterTail, ParquetMetaData, ParquetMetaDataOptions, ParquetMetaDataReader,
};

use super::checksums::footer_checksum_matches;
use super::int96::with_microseconds;
use super::page_index::PageIndexCache;
use super::table::{KeptRows, TableFiles};
use crate::files::blob::{self, FileHandle, is_remote};
use crate::files::list::ListedFile;
use crate::files::stamp::FileStamp;
use crate::guard::catch_decode_panic;

/// Bytes read from the end of a remote file in the hope that the footer is among them: a request less.
const TAIL_BYTES: u64 = 64 << 10;

/// Remote files of so many bytes at most are read whole with their footer: a request less.
const WHOLE_FILE_BYTES_MAX: u64 = 1 << 20;

/// Bytes of such files up to which discovery reads them whole: as many are kept until their rows are read.
const WHOLE_FILES_BYTES_MAX: u64 = 16 << 20;

/// The last bytes of a file, which tell how long its footer is.
const ENDING_BYTES: u64 = 8;

/// Bytes of parsed footers to keep per source: a second look at a file soon after the first one
/// costs nothing, and a hundred thousand files do not fill the memory.
const KEPT_BYTES_MAX: usize = 32 << 20;

/// A parsed footer.
#[derive(Debug)]
pub(crate) struct Footer {
    /// What the file holds.
    pub(crate) metadata: Arc<ParquetMetaData>,
    /// Its columns, in the types that the file asks for.
    pub(crate) schema: SchemaRef,
    /// The id of the footer's bytes.
    pub(crate) digest: ContentId,
    /// The file's version that it was read from.
    pub(crate) stamp: FileStamp,
    /// The object's etag, by which it is read.
    etag: Option<String>,
    /// All bytes of a small remote file.
    pub(super) file: Option<Bytes>,
}

impl Footer {
    /// Bytes that it takes in memory.
    fn memory_bytes(&self) -> usize {
        self.metadata.memory_size() + self.file.as_ref().map_or(0, Bytes::len)
    }

    /// Whether it is that of the file that a piece was found in.
    fn is_of(&self, piece: &FileRange) -> bool {
        self.stamp
            .fingerprint(&piece.relative, &piece.partition, Some(self.digest))
            == piece.fingerprint
    }
}

/// The last few footers by path.
#[derive(Debug, Default)]
pub(crate) struct FooterCache {
    kept: Mutex<FooterCacheState>,
    /// Where pages lie, of the row groups that were read in parts.
    pub(super) page_indexes: PageIndexCache,
    /// The stamps and etags of objects by their paths, as they were listed.
    listed: Mutex<HashMap<String, (FileStamp, String)>>,
    /// Whether discovery reads small remote files whole.
    reads_small_files: AtomicBool,
    /// The table whose log names the files, where no listing does.
    table: Mutex<Option<Arc<dyn TableFiles>>>,
}

#[derive(Debug, Default)]
struct FooterCacheState {
    by_path: HashMap<String, (Arc<Footer>, u64)>,
    bytes: usize,
    uses: u64,
}

/// An open file and its footer.
pub(crate) struct OpenedFile {
    pub blob: FileHandle,
    pub footer: Arc<Footer>,
}

impl FooterCache {
    /// Keeps the etags of objects as they were listed: their pieces are read by them.
    pub(super) fn keep_versions(&self, files: &[ListedFile]) {
        let small = files
            .iter()
            .map(|file| file.stamp.size)
            .filter(|size| *size <= WHOLE_FILE_BYTES_MAX);
        self.reads_small_files.store(
            small.sum::<u64>() <= WHOLE_FILES_BYTES_MAX,
            Ordering::Relaxed,
        );
        let version =
            |file: &ListedFile| Some((file.path.clone(), (file.stamp.clone(), file.etag.clone()?)));
        if let Ok(mut listed) = self.listed.lock() {
            *listed = files.iter().filter_map(version).collect();
        }
    }

    /// Sets the table whose files are read.
    pub(crate) fn set_table(&self, table: Arc<dyn TableFiles>) {
        if let Ok(mut current) = self.table.lock() {
            *current = Some(table);
        }
    }

    /// The table whose files are read, if they are those of one.
    pub(super) fn table(&self) -> Option<Arc<dyn TableFiles>> {
        self.table.lock().ok().and_then(|table| table.clone())
    }

    /// The rows of a file that its table still has; `None` means all.
    pub(super) fn kept_rows(
        &self,
        io: &StorageClient,
        path: &str,
    ) -> Result<Option<Arc<KeptRows>>> {
        self.table()
            .map_or(Ok(None), |table| table.kept_rows(io, path))
    }

    /// The footer of a file of a table, in one request. The log tells the file's size.
    pub(crate) fn open_logged(
        &self,
        io: &StorageClient,
        path: &str,
        size: u64,
    ) -> Result<OpenedFile> {
        let known = self.get(path).filter(|footer| footer.stamp.size == size);
        if let Some(footer) = known.filter(|footer| footer.etag.is_some()) {
            let etag = footer.etag.as_deref().unwrap_or_default();
            return Ok(OpenedFile {
                blob: blob::open_version(io, path, etag)?,
                footer,
            });
        }
        let tail = match is_remote(path) {
            true => blob::open_tail(io, path, size, TAIL_BYTES.min(size))?,
            false => None,
        };
        let opened = match tail {
            Some((blob, stamp, tail)) => self.load(blob, path, stamp, Some(tail))?,
            None => self.open(io, path)?,
        };
        if opened.footer.stamp.size == size {
            Ok(opened)
        } else {
            Err(blob::changed_fault(path))
        }
    }

    /// Opens a file and gives its footer, from memory when the file has not changed.
    pub(super) fn open(&self, io: &StorageClient, path: &str) -> Result<OpenedFile> {
        let (blob, stamp) = blob::open_file(io, path)?;
        match self.get(path).filter(|footer| footer.stamp == stamp) {
            Some(footer) => Ok(OpenedFile { blob, footer }),
            None => self.load(blob, path, stamp, None),
        }
    }

    /// The footer of a file as it was listed. An object that has changed since is a fault.
    pub(super) fn open_listed(&self, io: &StorageClient, file: &ListedFile) -> Result<OpenedFile> {
        let Some(etag) = &file.etag else {
            return self.open(io, &file.path);
        };
        let blob = blob::open_version(io, &file.path, etag)?;
        match self
            .get(&file.path)
            .filter(|footer| footer.stamp == file.stamp)
        {
            Some(footer) => Ok(OpenedFile { blob, footer }),
            None => {
                let tail_bytes = match self.reads_small_files.load(Ordering::Relaxed) {
                    true => opening_bytes(file.stamp.size),
                    false => TAIL_BYTES,
                };
                let tail = read_tail(&blob, &file.path, file.stamp.size, tail_bytes)?;
                self.load(blob, &file.path, file.stamp.clone(), Some(tail))
            }
        }
    }

    /// The footer of the file that a piece was found in, where it is in memory and the store checks at every read that
    /// the file is still the same.
    pub(super) fn known(&self, io: &StorageClient, piece: &FileRange) -> Option<OpenedFile> {
        let logged = self.table().and_then(|table| table.size(&piece.path));
        let is_of = |footer: &Footer| {
            logged.map_or_else(|| footer.is_of(piece), |size| footer.stamp.size == size)
        };
        let footer = self.get(&piece.path).filter(|footer| is_of(footer))?;
        let blob = blob::open_version(io, &piece.path, footer.etag.as_deref()?).ok()?;
        Some(OpenedFile { blob, footer })
    }

    /// Opens the file that a piece was found in. One that has changed since is a fault.
    pub(super) fn open_piece(&self, io: &StorageClient, piece: &FileRange) -> Result<OpenedFile> {
        if let Some(known) = self.known(io, piece) {
            return Ok(known);
        }
        if let Some(size) = self.table().and_then(|table| table.size(&piece.path)) {
            return self.open_logged(io, &piece.path, size);
        }
        let listed = self
            .listed
            .lock()
            .ok()
            .and_then(|listed| listed.get(&piece.path).cloned());
        if let Some((stamp, etag)) = listed {
            let blob = blob::open_version(io, &piece.path, &etag)?;
            let tail = read_tail(&blob, &piece.path, stamp.size, opening_bytes(stamp.size))?;
            let opened = self.load(blob, &piece.path, stamp, Some(tail))?;
            return if opened.footer.is_of(piece) {
                Ok(opened)
            } else {
                Err(blob::changed_fault(&piece.path))
            };
        }
        // A whole file tells its size.
        let tail = match piece.row_groups {
            None if is_remote(&piece.path) && piece.bytes > 0 => {
                blob::open_tail(io, &piece.path, piece.bytes, opening_bytes(piece.bytes))?
            }
            _ => None,
        };
        let opened = match tail {
            Some((blob, stamp, tail)) => self.load(blob, &piece.path, stamp, Some(tail))?,
            None => self.open(io, &piece.path)?,
        };
        if opened.footer.is_of(piece) {
            Ok(opened)
        } else {
            Err(blob::changed_fault(&piece.path))
        }
    }

    fn load(
        &self,
        blob: FileHandle,
        path: &str,
        stamp: FileStamp,
        tail: Option<Bytes>,
    ) -> Result<OpenedFile> {
        let footer = Arc::new(load_footer(&blob, path, stamp, tail)?);
        self.keep(path, &footer);
        Ok(OpenedFile { blob, footer })
    }

    fn get(&self, path: &str) -> Option<Arc<Footer>> {
        let mut kept = self.kept.lock().ok()?;
        kept.uses += 1;
        let now = kept.uses;
        let (footer, used) = kept.by_path.get_mut(path)?;
        *used = now;
        Some(footer.clone())
    }

    fn keep(&self, path: &str, footer: &Arc<Footer>) {
        let Ok(mut kept) = self.kept.lock() else {
            return;
        };
        kept.uses += 1;
        let now = kept.uses;
        kept.bytes += footer.memory_bytes();
        if let Some((before, _)) = kept.by_path.insert(path.to_owned(), (footer.clone(), now)) {
            kept.bytes -= before.memory_bytes();
        }
        if kept.bytes <= KEPT_BYTES_MAX {
            return;
        }
        // Half of them at a time, so that the search for the oldest costs little per footer.
        let mut ages: Vec<(u64, String)> = kept
            .by_path
            .iter()
            .map(|(path, (_, used))| (*used, path.clone()))
            .collect();
        ages.sort_unstable();
        for (_, path) in ages {
            if kept.bytes <= KEPT_BYTES_MAX / 2 {
                break;
            }
            if let Some((footer, _)) = kept.by_path.remove(&path) {
                kept.bytes -= footer.memory_bytes();
            }
        }
    }
}

/// Bytes to read of a remote file whose rows are read next.
fn opening_bytes(size: u64) -> u64 {
    if size <= WHOLE_FILE_BYTES_MAX {
        size
    } else {
        TAIL_BYTES
    }
}

/// The last bytes of a remote file.
fn read_tail(blob: &FileHandle, path: &str, size: u64, bytes: u64) -> Result<Bytes> {
    blob.read(path, size.saturating_sub(bytes)..size)
}

fn load_footer(
    blob: &FileHandle,
    path: &str,
    stamp: FileStamp,
    tail: Option<Bytes>,
) -> Result<Footer> {
    // A copy: what the store gave counts as read ahead as long as it is held.
    let is_whole = matches!(blob, FileHandle::Remote(..)) && stamp.size <= WHOLE_FILE_BYTES_MAX;
    let file = tail
        .as_ref()
        .filter(|tail| is_whole && tail.len() as u64 == stamp.size);
    let file = file.map(|bytes| Bytes::copy_from_slice(bytes));
    let (metadata, digest) = read_metadata(blob, path, &stamp, tail)?;
    let read = catch_decode_panic::<_, ParquetError>(|| {
        let arrow = ArrowReaderMetadata::try_new(metadata.clone(), ArrowReaderOptions::new())?;
        Ok(with_microseconds(arrow.schema(), &metadata))
    });
    let schema = read.map_err(|error| footer_fault(path, error))?;
    Ok(Footer {
        metadata,
        schema,
        digest,
        stamp,
        etag: blob.etag().map(str::to_owned),
        file,
    })
}

fn corrupt_fault(path: &str, message: impl Into<String>) -> Fault {
    let fault = Fault::new(codes::CORRUPT, message).file(path);
    fault.hint("write or copy the file anew, or take it out of the source")
}

fn footer_fault(path: &str, error: ParquetError) -> Fault {
    corrupt_fault(path, "the footer cannot be understood").cause(error)
}

/// Reads what a file says that it holds, with the id of the bytes that say it. `tail` is its end where that is known.
fn read_metadata(
    blob: &FileHandle,
    path: &str,
    stamp: &FileStamp,
    tail: Option<Bytes>,
) -> Result<(Arc<ParquetMetaData>, ContentId)> {
    let corrupt = |message: String| corrupt_fault(path, message);
    let size = stamp.size;
    if size < 12 {
        return Err(corrupt(format!(
            "the file is not Parquet: it has only {size} bytes"
        )));
    }
    let tail_bytes = if matches!(blob, FileHandle::Local(_)) {
        ENDING_BYTES
    } else {
        TAIL_BYTES
    };
    let tail = tail.map_or_else(|| blob.read(path, size - size.min(tail_bytes)..size), Ok)?;
    let ending =
        FooterTail::try_from(&tail[tail.len() - ENDING_BYTES as usize..]).map_err(|error| {
            corrupt("the file does not end like Parquet".to_owned())
                .cause(error)
                .hint("it may have been cut off while it was written or copied")
        })?;
    if ending.is_encrypted_footer() {
        return Err(Fault::new(codes::UNSUPPORTED, "the file is encrypted").file(path));
    }
    let length = ending.metadata_length() as u64;
    if length > size - 12 {
        return Err(corrupt(format!(
            "the footer should have {length} bytes, but the file has only {size}"
        )));
    }
    let bytes = match tail.len() as u64 >= length + 8 {
        true => tail.slice(tail.len() - 8 - length as usize..tail.len() - 8),
        false => blob.read(path, size - 8 - length..size - 8)?,
    };
    let decoded = catch_decode_panic::<_, ParquetError>(|| {
        // How many pages have which encoding decides how strings are read.
        let options = ParquetMetaDataOptions::new().with_encoding_stats_as_mask(false);
        ParquetMetaDataReader::decode_metadata_with_options(&bytes, Some(&options))
    });
    let metadata = decoded.map_err(|error| footer_fault(path, error))?;
    if !footer_checksum_matches(&metadata, &bytes) {
        return Err(corrupt(
            "the footer is not the one that was written".to_owned(),
        ));
    }
    for (i, group) in metadata.row_groups().iter().enumerate() {
        let ends = group.columns().iter().map(|column| {
            let start = column
                .dictionary_page_offset()
                .unwrap_or(column.data_page_offset());
            start
                .checked_add(column.compressed_size())
                .filter(|end| start >= 0 && *end >= start)
        });
        let inside = ends
            .into_iter()
            .all(|end| end.is_some_and(|end| end as u64 <= size));
        if !inside || group.num_rows() < 0 {
            return Err(corrupt("a row group lies outside the file".to_owned()).row_group(i));
        }
    }
    Ok((Arc::new(metadata), ContentId::of(&bytes)))
}
