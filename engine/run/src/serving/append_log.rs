//! The log of facts that were appended to a serving state: what was acknowledged survives a crash.
//!
//! A record is the length of its rows' bytes (4 bytes, little-endian), their XXH3 hash (8 bytes), and the rows as an Arrow
//! IPC stream. The first record that is cut or whose hash differs ends the log: its append was never acknowledged.

use std::fs::{File, OpenOptions, TryLockError};
use std::io::{Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

use arrow::array::RecordBatch;
use forebay_commit::{read_table, write_table};
use forebay_model::{Fault, Result, codes};
use xxhash_rust::xxh3::xxh3_64;

/// Bytes before the rows of a record.
const HEAD_BYTES: usize = 12;

/// Most bytes of the rows of a record.
const RECORD_BYTES_MAX: usize = 1 << 30;

/// A log of appended facts.
pub(crate) struct AppendLog {
    path: PathBuf,
    /// Open once rows were appended: this process then has the log alone.
    file: Option<File>,
    /// Bytes of whole records that this process has seen.
    bytes: u64,
}

impl AppendLog {
    /// A log at a path, where there may be none yet.
    pub fn at(path: PathBuf) -> AppendLog {
        AppendLog {
            path,
            file: None,
            bytes: 0,
        }
    }

    /// The rows of the records that were not read before.
    pub fn read_new(&mut self) -> Result<Vec<RecordBatch>> {
        let mut file = match File::open(&self.path) {
            Ok(file) => file,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
            Err(error) => return Err(self.fault("the log of facts cannot be read", error)),
        };
        let mut batches = Vec::new();
        let failed = |error| disk_fault(&self.path, "the log of facts cannot be read", error);
        file.seek(SeekFrom::Start(self.bytes)).map_err(failed)?;
        let mut bytes = self.bytes;
        while let Some(record) = read_record(&mut file).map_err(failed)? {
            bytes += (HEAD_BYTES + record.len()) as u64;
            let batch = read_table(&record);
            batches.push(batch.map_err(|fault| fault.file(self.path.display().to_string()))?);
        }
        self.bytes = bytes;
        Ok(batches)
    }

    /// The path of the log.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Lets others append. The next append of this process takes the log again, with what others have appended.
    pub fn release(&mut self) {
        self.file = None;
    }

    /// The rows of all whole records, read anew.
    pub fn read_all(&self) -> Result<Vec<RecordBatch>> {
        AppendLog::at(self.path.clone()).read_new()
    }

    /// Takes the log for this process alone; returns the rows that others have appended since it was read.
    pub fn take(&mut self) -> Result<Vec<RecordBatch>> {
        if self.file.is_some() {
            return Ok(Vec::new());
        }
        let path = self.path.clone();
        let failed = |error| disk_fault(&path, "the log of facts cannot be written", error);
        if let Some(folder) = path.parent() {
            std::fs::create_dir_all(folder).map_err(failed)?;
        }
        let file = OpenOptions::new()
            .create(true)
            .truncate(false)
            .read(true)
            .write(true)
            .open(&path)
            .map_err(failed)?;
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                let message = "another process appends facts to this serving state";
                return Err(Fault::new(codes::IN_USE, message)
                    .file(self.path.display().to_string())
                    .hint(
                        "append all facts through one process, or copy the artifact's directory",
                    ));
            }
            Err(TryLockError::Error(error)) => return Err(failed(error)),
        }
        let batches = self.read_new()?;
        // An append that was cut is overwritten, and nothing of it stays behind.
        file.set_len(self.bytes).map_err(failed)?;
        self.file = Some(file);
        Ok(batches)
    }

    /// Appends rows, and returns once they are on the disk. The log must be taken.
    pub fn append(&mut self, batch: &RecordBatch) -> Result<()> {
        let rows = write_table(batch)?;
        if rows.len() > RECORD_BYTES_MAX {
            let message = format!(
                "one append has {} MiB of rows, and {} MiB is the most",
                rows.len() >> 20,
                RECORD_BYTES_MAX >> 20
            );
            return Err(Fault::new(codes::LIMIT, message).hint("append fewer rows at once"));
        }
        let Some(file) = &mut self.file else {
            return Err(Fault::internal("a log of facts that was not taken"));
        };
        let mut record = Vec::with_capacity(HEAD_BYTES + rows.len());
        record.extend_from_slice(&(rows.len() as u32).to_le_bytes());
        record.extend_from_slice(&xxh3_64(&rows).to_le_bytes());
        record.extend_from_slice(&rows);
        let written = file
            .seek(SeekFrom::Start(self.bytes))
            .and_then(|_| file.write_all(&record))
            .and_then(|()| file.sync_data());
        if let Err(error) = written {
            // The next append overwrites the incomplete record.
            let _ = file.set_len(self.bytes);
            return Err(self.fault("the log of facts cannot be written", error));
        }
        self.bytes += record.len() as u64;
        Ok(())
    }

    fn fault(&self, message: &str, error: std::io::Error) -> Fault {
        disk_fault(&self.path, message, error)
    }
}

fn disk_fault(path: &Path, message: &str, error: std::io::Error) -> Fault {
    Fault::disk(message, error).file(path.display().to_string())
}

/// The rows of the next record; `None` at the end, and at a record that is cut or damaged.
fn read_record(file: &mut File) -> std::io::Result<Option<Vec<u8>>> {
    let mut head = [0; HEAD_BYTES];
    if !read_whole(file, &mut head)? {
        return Ok(None);
    }
    let (length, hash) = head.split_at(4);
    let length = length
        .iter()
        .rev()
        .fold(0, |length, &byte| length << 8 | usize::from(byte));
    let hash = hash
        .iter()
        .rev()
        .fold(0, |hash, &byte| hash << 8 | u64::from(byte));
    if length > RECORD_BYTES_MAX {
        return Ok(None);
    }
    let mut rows = Vec::new();
    let read = file.take(length as u64).read_to_end(&mut rows)?;
    Ok((read == length && xxh3_64(&rows) == hash).then_some(rows))
}

/// Fills a buffer; false where the file ends before.
fn read_whole(file: &mut File, buffer: &mut [u8]) -> std::io::Result<bool> {
    match file.read_exact(buffer) {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == std::io::ErrorKind::UnexpectedEof => Ok(false),
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow::array::Int64Array;

    use super::*;

    fn rows(value: i64) -> RecordBatch {
        let column = Arc::new(Int64Array::from(vec![value, value + 1]));
        RecordBatch::try_from_iter([("x", column as _)]).unwrap()
    }

    #[test]
    fn a_log_that_was_cut_anywhere_keeps_its_whole_records() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("log");
        let mut log = AppendLog::at(path.clone());
        log.take().unwrap();
        log.append(&rows(1)).unwrap();
        let first = log.bytes;
        log.append(&rows(5)).unwrap();
        drop(log);
        let whole = std::fs::read(&path).unwrap();
        for length in first..whole.len() as u64 {
            std::fs::write(&path, &whole[..length as usize]).unwrap();
            let mut log = AppendLog::at(path.clone());
            assert_eq!(log.read_new().unwrap(), [rows(1)]);
            log.take().unwrap();
            log.append(&rows(7)).unwrap();
            drop(log);
            let again = AppendLog::at(path.clone()).read_new().unwrap();
            assert_eq!(again, [rows(1), rows(7)]);
        }
        let mut damaged = whole.clone();
        let last = damaged.len() - 1;
        damaged[last] ^= 1;
        std::fs::write(&path, damaged).unwrap();
        assert_eq!(AppendLog::at(path).read_new().unwrap(), [rows(1)]);
    }

    #[test]
    fn two_writers_are_refused() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("log");
        let mut log = AppendLog::at(path.clone());
        log.take().unwrap();
        let fault = AppendLog::at(path).take().unwrap_err();
        assert!(
            fault.message().contains("another process"),
            "{}",
            fault.message()
        );
    }
}
