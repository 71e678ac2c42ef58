//! Open files that are read from front to back, and their parts.

use std::io::Read;
use std::ops::Range;
use std::sync::{Arc, Mutex};

use forebay_model::{RECORDS_BYTES_TARGET, Result};
use forebay_storage::{ReadMemory, ReadReservation};

use super::blob::FileHandle;
use super::stream;

/// Copies that a reader makes of the bytes of records until they are columns.
const RECORD_COPIES: u64 = 4;

/// Records of at least this many bytes are reserved before they are decoded.
const LARGE_RECORDS_BYTES: usize = 4 << 20;

/// An open file.
#[derive(Clone)]
pub(crate) struct InputFile {
    pub(crate) blob: FileHandle,
    pub(crate) path: Arc<str>,
    pub(crate) size: u64,
    /// The part of it that is read, if not all.
    pub(crate) part: Option<FilePart>,
    /// The memory that its readers ask for what they decode.
    pub(crate) memory: Arc<ReadMemory>,
}

impl InputFile {
    /// The bytes to read, decompressed.
    pub(crate) fn stream(&self) -> Result<Box<dyn Read + Send>> {
        match &self.part {
            None => stream::open_decompressed(&self.blob, &self.path, self.size),
            Some(part) if part.bytes.start == 0 => Ok(self.blob.range_reader(part.bytes.clone())),
            // Readers take a mark of byte order at the beginning for none of the text.
            Some(part) => Ok(Box::new(
                (&b"\n"[..]).chain(self.blob.range_reader(part.bytes.clone())),
            )),
        }
    }

    /// The row of the file that comes first.
    pub(crate) fn first_row(&self, header_records: u64) -> u64 {
        self.part
            .as_ref()
            .map_or(0, |part| part.records_before.saturating_sub(header_records))
    }

    /// True if it is read from its first byte on.
    pub(crate) fn is_from_start(&self) -> bool {
        self.part.as_ref().is_none_or(|part| part.bytes.start == 0)
    }

    /// Bytes of records that are decoded together: a batch is made of some copies of them.
    pub(crate) fn records_bytes_target(&self) -> usize {
        let fitting = self.memory.chunk_bytes() / RECORD_COPIES;
        fitting.min(RECORDS_BYTES_TARGET as u64) as usize
    }

    /// Reserves memory to decode records of so many bytes, of which the first is this row. A reader that holds such a
    /// reservation must not wait for another one.
    pub(crate) fn reserve_records(
        &self,
        bytes: usize,
        first_row: u64,
        may_wait: bool,
    ) -> Result<Option<ReadReservation>> {
        if bytes < LARGE_RECORDS_BYTES {
            return Ok(None);
        }
        let reserved = self.memory.reserve(bytes as u64 * RECORD_COPIES, may_wait);
        reserved.map(Some).map_err(|shortage| {
            let records = format!("decoding records of {} MiB", bytes >> 20);
            shortage
                .fault(&records)
                .file(self.path.as_ref())
                .rows([first_row])
                .hint(format!(
                    "store the long texts elsewhere, lower `--threads`, or give {}",
                    shortage.sufficient_option()
                ))
        })
    }

    /// All of the file.
    pub(crate) fn whole(&self) -> InputFile {
        InputFile {
            blob: self.blob.clone(),
            path: self.path.clone(),
            size: self.size,
            part: None,
            memory: self.memory.clone(),
        }
    }
}

/// The part of a file that a span reads.
#[derive(Debug, Clone)]
pub(crate) struct FilePart {
    /// Bytes from its first record to the begin of the record after it.
    pub(crate) bytes: Range<u64>,
    /// The number of records before it.
    pub(crate) records_before: u64,
    /// The names of the file's columns, once a reader has found them.
    pub(crate) names: Arc<Mutex<Option<Vec<String>>>>,
}
