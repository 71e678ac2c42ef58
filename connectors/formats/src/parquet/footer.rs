//! Footers: reading them, and keeping the last few.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use arrow::datatypes::{Schema, SchemaRef, TimeUnit};
use bytes::Bytes;
use forebay_model::{ContentId, Fault, FileRange, Result, codes};
use forebay_storage::StorageClient;
use parquet::arrow::arrow_reader::{ArrowReaderMetadata, ArrowReaderOptions};
use parquet::errors::ParquetError;
use parquet::file::metadata::{
    ColumnChunkMetaData, FooterTail, ParquetMetaData, ParquetMetaDataOptions, ParquetMetaDataReader,
};

use super::annotations::with_annotations;
use super::checksums::footer_checksum_matches;
use super::int96::with_microseconds;
use super::intervals::with_whole_intervals;
use super::known_fields::without_other_fields;
use super::page_index_cache::PageIndexCache;
use super::table::{KeptRows, TableFiles};
use crate::files::blob::{self, FileHandle, is_remote};
use crate::files::list::ListedFile;
use crate::files::nested_types::with_wide_decimals;
use crate::files::stamp::FileStamp;
use crate::guard::catch_decode_panic;

/// Bytes of the smallest file: magic bytes at both ends, and the length of an empty footer.
const SIZE_MIN: u64 = 12;

/// Bytes read from the end of a remote file in the hope that the footer is among them: a request less.
const TAIL_BYTES: u64 = 64 << 10;

/// Maximum size of remote files that are read whole with their footer, which saves a request.
const WHOLE_FILE_BYTES_MAX: u64 = 1 << 20;

/// Bytes of such files up to which discovery reads them whole: as many are kept until their rows are read.
const WHOLE_FILES_BYTES_MAX: u64 = 16 << 20;

/// Bytes at the end of a file that hold the length of its footer.
const ENDING_BYTES: u64 = 8;

/// Footers of at least these bytes are read once there is memory for them.
const LARGE_FOOTER_BYTES: u64 = 1 << 20;

/// Times of its bytes that a footer takes while it is parsed: its notes are copied to the schema, and each column chunk
/// has a record with statistics.
const PARSED_COPIES: u64 = 8;

/// Bytes of parsed footers to keep per source: reading a footer again soon after costs nothing, and
/// a hundred thousand files do not fill the memory.
const KEPT_BYTES_MAX: usize = 32 << 20;

/// A parsed footer.
#[derive(Debug)]
pub(crate) struct Footer {
    /// Metadata of the file.
    pub(crate) metadata: Arc<ParquetMetaData>,
    /// Schema of the columns, in the types that the file declares.
    pub(crate) schema: SchemaRef,
    /// The id of the footer's bytes.
    pub(crate) digest: ContentId,
    /// The file's version that it was read from.
    pub(crate) stamp: FileStamp,
    /// The object's etag, by which it is read.
    etag: Option<String>,
    /// Content of a small remote file.
    pub(super) file: Option<Bytes>,
}

impl Footer {
    /// Bytes that it takes in memory.
    fn memory_bytes(&self) -> usize {
        self.metadata.memory_size() + self.file.as_ref().map_or(0, Bytes::len)
    }

    /// True if it is the footer of the file in which a piece was found.
    fn is_of(&self, piece: &FileRange) -> bool {
        self.stamp
            .fingerprint(&piece.relative, &piece.partition, Some(self.digest))
            == piece.fingerprint
    }
}

/// The last few footers by path.
#[derive(Debug, Default)]
pub struct FooterCache {
    kept: Mutex<FooterCacheState>,
    /// Page indexes of the row groups that were read in parts.
    pub(super) page_indexes: PageIndexCache,
    /// Stamps and etags of objects by their paths, from the listing.
    listed: Mutex<HashMap<String, (FileStamp, String)>>,
    /// True if discovery reads small remote files whole.
    reads_small_files: AtomicBool,
    /// True if times of type INT96 are read in nanoseconds.
    reads_nanoseconds: AtomicBool,
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
    /// Keeps the etags of objects from the listing: their pieces are read by these.
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

    /// Reads times of type INT96 in nanoseconds.
    pub(super) fn read_nanoseconds(&self) {
        self.reads_nanoseconds.store(true, Ordering::Relaxed);
    }

    /// Sets the table whose files are read.
    pub fn set_table(&self, table: Arc<dyn TableFiles>) {
        if let Ok(mut current) = self.table.lock() {
            *current = Some(table);
        }
    }

    /// Table of the files, if they belong to one.
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

    /// The footer of a file of a table, in one request, since the log has the file's size.
    pub(crate) fn open_logged(
        &self,
        io: &StorageClient,
        path: &str,
        size: u64,
    ) -> Result<OpenedFile> {
        let footer = self.get(path).filter(|footer| footer.stamp.size == size);
        if let Some(footer) = footer.filter(|footer| footer.etag.is_some()) {
            let etag = footer.etag.as_deref().unwrap_or_default();
            return Ok(OpenedFile {
                blob: blob::open_version(io, path, etag)?,
                footer,
            });
        }
        let tail = if is_remote(path) {
            blob::open_tail(io, path, size, TAIL_BYTES.min(size))?
        } else {
            None
        };
        if let Some((blob, stamp, tail)) = tail {
            return self.load(io, blob, path, stamp, Some(tail));
        }
        let Some((blob, stamp)) = blob::open_if_there(io, path)? else {
            return Err(self.unlike_log_fault(path, None));
        };
        if stamp.size != size {
            return Err(self.unlike_log_fault(path, Some(stamp.size)));
        }
        self.open_at(io, blob, path, stamp)
    }

    /// The fault for a file that is missing or has other bytes than the log of its table says.
    fn unlike_log_fault(&self, path: &str, stored_bytes: Option<u64>) -> Fault {
        match (self.table(), stored_bytes) {
            (Some(table), _) => table.unlike_log_fault(path, stored_bytes),
            (None, Some(_)) => blob::changed_fault(path),
            (None, None) => blob::gone_fault(path),
        }
    }

    /// Opens a file and returns its footer, from memory if the file has not changed.
    pub(super) fn open(&self, io: &StorageClient, path: &str) -> Result<OpenedFile> {
        let (blob, stamp) = blob::open_file(io, path)?;
        self.open_at(io, blob, path, stamp)
    }

    /// The footer of an open file, from memory if the file has not changed.
    fn open_at(
        &self,
        io: &StorageClient,
        blob: FileHandle,
        path: &str,
        stamp: FileStamp,
    ) -> Result<OpenedFile> {
        match self.get(path).filter(|footer| footer.stamp == stamp) {
            Some(footer) => Ok(OpenedFile { blob, footer }),
            None => self.load(io, blob, path, stamp, None),
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
                let tail_bytes = if self.reads_small_files.load(Ordering::Relaxed) {
                    opening_bytes(file.stamp.size)
                } else {
                    TAIL_BYTES
                };
                let tail = read_tail(&blob, &file.path, file.stamp.size, tail_bytes)?;
                self.load(io, blob, &file.path, file.stamp.clone(), Some(tail))
            }
        }
    }

    /// The footer of the file that a piece was found in, where it is in memory and the store checks at every read that
    /// the file is still the same.
    pub(super) fn known(&self, io: &StorageClient, piece: &FileRange) -> Option<OpenedFile> {
        let footer = self.get(&piece.path)?;
        let logged_size = self.table().and_then(|table| table.size(&piece.path));
        let is_same = match logged_size {
            Some(size) => footer.stamp.size == size,
            None => footer.is_of(piece),
        };
        if !is_same {
            return None;
        }
        let blob = blob::open_version(io, &piece.path, footer.etag.as_deref()?).ok()?;
        Some(OpenedFile { blob, footer })
    }

    /// Opens the file that a piece was found in. One that has changed since is a fault.
    pub(super) fn open_piece(&self, io: &StorageClient, piece: &FileRange) -> Result<OpenedFile> {
        if let Some(opened) = self.known(io, piece) {
            return Ok(opened);
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
            let opened = self.load(io, blob, &piece.path, stamp, Some(tail))?;
            return if opened.footer.is_of(piece) {
                Ok(opened)
            } else {
                Err(blob::changed_fault(&piece.path))
            };
        }
        // The bytes of a piece that is a whole file are the file's size.
        let tail = match piece.row_groups {
            None if is_remote(&piece.path) && piece.bytes > 0 => {
                blob::open_tail(io, &piece.path, piece.bytes, opening_bytes(piece.bytes))?
            }
            _ => None,
        };
        let opened = match tail {
            Some((blob, stamp, tail)) => self.load(io, blob, &piece.path, stamp, Some(tail))?,
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
        io: &StorageClient,
        blob: FileHandle,
        path: &str,
        stamp: FileStamp,
        tail: Option<Bytes>,
    ) -> Result<OpenedFile> {
        let unit = if self.reads_nanoseconds.load(Ordering::Relaxed) {
            TimeUnit::Nanosecond
        } else {
            TimeUnit::Microsecond
        };
        let footer = Arc::new(load_footer(io, &blob, path, stamp, tail, unit)?);
        self.keep(path, &footer);
        Ok(OpenedFile { blob, footer })
    }

    fn get(&self, path: &str) -> Option<Arc<Footer>> {
        let mut cache = self.kept.lock().ok()?;
        cache.uses += 1;
        let now = cache.uses;
        let (footer, used) = cache.by_path.get_mut(path)?;
        *used = now;
        Some(footer.clone())
    }

    fn keep(&self, path: &str, footer: &Arc<Footer>) {
        let Ok(mut cache) = self.kept.lock() else {
            return;
        };
        cache.uses += 1;
        let now = cache.uses;
        cache.bytes += footer.memory_bytes();
        if let Some((replaced, _)) = cache.by_path.insert(path.to_owned(), (footer.clone(), now)) {
            cache.bytes -= replaced.memory_bytes();
        }
        if cache.bytes <= KEPT_BYTES_MAX {
            return;
        }
        // Half of them at a time, so that the search for the oldest costs little per footer.
        let mut ages: Vec<(u64, String)> = cache
            .by_path
            .iter()
            .map(|(path, (_, used))| (*used, path.clone()))
            .collect();
        ages.sort_unstable();
        for (_, path) in ages {
            if cache.bytes <= KEPT_BYTES_MAX / 2 {
                break;
            }
            if let Some((footer, _)) = cache.by_path.remove(&path) {
                cache.bytes -= footer.memory_bytes();
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

pub(super) fn load_footer(
    io: &StorageClient,
    blob: &FileHandle,
    path: &str,
    stamp: FileStamp,
    tail: Option<Bytes>,
    int96: TimeUnit,
) -> Result<Footer> {
    // A copy: what the store gave counts as read ahead as long as it is held.
    let is_whole = matches!(blob, FileHandle::Remote(..)) && stamp.size <= WHOLE_FILE_BYTES_MAX;
    let file = tail
        .as_ref()
        .filter(|tail| is_whole && tail.len() as u64 == stamp.size);
    let file = file.map(|bytes| Bytes::copy_from_slice(bytes));
    let (metadata, digest) = read_metadata(io, blob, path, &stamp, tail)?;
    let read = catch_decode_panic::<_, ParquetError>(|| {
        let arrow = ArrowReaderMetadata::try_new(metadata.clone(), ArrowReaderOptions::new())?;
        let schema = if int96 == TimeUnit::Nanosecond {
            arrow.schema().clone()
        } else {
            with_microseconds(arrow.schema(), &metadata)
        };
        let fields = with_wide_decimals(schema.fields());
        let schema = Schema::new_with_metadata(fields, schema.metadata().clone());
        let schema = with_whole_intervals(&Arc::new(schema), &metadata);
        Ok(with_annotations(&schema, &metadata))
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

/// Decodes a footer. Fields that the format has under another type are left out.
fn decode_footer(bytes: &[u8]) -> Result<ParquetMetaData, ParquetError> {
    let decode = |bytes: &[u8]| {
        catch_decode_panic::<_, ParquetError>(|| {
            // How many pages have which encoding decides how strings are read.
            let options = ParquetMetaDataOptions::new().with_encoding_stats_as_mask(false);
            ParquetMetaDataReader::decode_metadata_with_options(bytes, Some(&options))
        })
    };
    match without_other_fields(bytes) {
        Some(footer) => decode(&footer),
        None => decode(bytes),
    }
}

/// Reads the metadata in the footer of a file, and computes the id of the footer's bytes. `tail` is the end of the file
/// if it was read already.
fn read_metadata(
    io: &StorageClient,
    blob: &FileHandle,
    path: &str,
    stamp: &FileStamp,
    tail: Option<Bytes>,
) -> Result<(Arc<ParquetMetaData>, ContentId)> {
    let size = stamp.size;
    if size < SIZE_MIN {
        let message = format!("the file is not Parquet: it has only {size} bytes");
        return Err(corrupt_fault(path, message));
    }
    let tail = match tail {
        Some(tail) => tail,
        None => {
            // A remote store is asked once for the end of the file and, usually, all of the footer.
            let tail_bytes = match blob {
                FileHandle::Local(_) | FileHandle::Memory(_) => ENDING_BYTES,
                FileHandle::Remote(..) => TAIL_BYTES,
            };
            blob.read(path, size - size.min(tail_bytes)..size)?
        }
    };
    let ending = &tail[tail.len() - ENDING_BYTES as usize..];
    let ending = FooterTail::try_from(ending).map_err(|error| {
        corrupt_fault(path, "the file does not end like Parquet".to_owned())
            .cause(error)
            .hint("it may have been cut off while it was written or copied")
    })?;
    if ending.is_encrypted_footer() {
        return Err(Fault::new(codes::UNSUPPORTED, "the file is encrypted").file(path));
    }
    let length = ending.metadata_length() as u64;
    if length > size - SIZE_MIN {
        let message =
            format!("the footer should have {length} bytes, but the file has only {size}");
        return Err(corrupt_fault(path, message));
    }
    let _reservation = if length >= LARGE_FOOTER_BYTES {
        let reserved = io.read_memory().reserve(length * PARSED_COPIES, true);
        Some(reserved.map_err(|shortage| {
            let hint = format!(
                "write the file with shorter notes and statistics, or give {}",
                shortage.sufficient_option()
            );
            shortage.fault("reading the footer").file(path).hint(hint)
        })?)
    } else {
        None
    };
    let bytes = if tail.len() as u64 >= length + ENDING_BYTES {
        let end = tail.len() - ENDING_BYTES as usize;
        tail.slice(end - length as usize..end)
    } else {
        let end = size - ENDING_BYTES;
        blob.read(path, end - length..end)?
    };
    let metadata = decode_footer(&bytes).map_err(|error| footer_fault(path, error))?;
    if !footer_checksum_matches(&metadata, &bytes) {
        let message = "the footer is not the one that was written".to_owned();
        return Err(corrupt_fault(path, message));
    }
    for (i, group) in metadata.row_groups().iter().enumerate() {
        let mut columns = group.columns().iter();
        let is_inside = columns.all(|column| ends_within(column, size));
        if !is_inside || group.num_rows() < 0 {
            let message = "a row group lies outside the file".to_owned();
            return Err(corrupt_fault(path, message).row_group(i));
        }
    }
    Ok((Arc::new(metadata), ContentId::of(&bytes)))
}

/// True for a column chunk that lies within a file of this size.
fn ends_within(column: &ColumnChunkMetaData, size: u64) -> bool {
    let start = column
        .dictionary_page_offset()
        .unwrap_or(column.data_page_offset());
    match start.checked_add(column.compressed_size()) {
        Some(end) => start >= 0 && end >= start && end as u64 <= size,
        None => false,
    }
}
