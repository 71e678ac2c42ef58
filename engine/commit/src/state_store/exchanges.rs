//! Exchanges: objects that workers write for each other during a run.

use std::fs::File;
use std::io::{Read, Write};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;

use arrow::array::RecordBatch;
use arrow::buffer::Buffer;
use arrow::ipc::reader::StreamDecoder;
use arrow::ipc::writer::StreamWriter;
use forebay_model::{ContentId, Fault, Finding, Result};
use forebay_storage::{ScratchDir, StorageLocation};

use super::frame::{FrameHeader, framed_body};
use super::{StateStore, if_exists};
use crate::mapped_file;
use crate::output::remove_directory;

/// Names of a finding and of its index among the exchanged objects.
const FINDING: &str = "finding";
const INDEX: &str = "index";

/// Kind and version in the headers of exchanges.
const EXCHANGED: &str = "exchanged";
const EXCHANGED_VERSION: u32 = 1;

impl StateStore {
    fn shared_location(&self, of: ContentId, name: &str) -> StorageLocation {
        self.root.join(&format!("exchanges/{of}/{name}"))
    }

    /// Leaves something for other workers. One that is lost with the machine's power is made again.
    pub fn put_shared(
        &self,
        of: ContentId,
        name: &str,
        scratch: &ScratchDir,
        write: &mut dyn FnMut(&mut dyn Write) -> Result<()>,
    ) -> Result<()> {
        let header = FrameHeader::new(of, EXCHANGED, EXCHANGED_VERSION);
        self.put_framed(
            &self.shared_location(of, name),
            &header,
            scratch,
            false,
            write,
        )
    }

    /// Reads an object of another worker; `None` if it is absent or broken.
    pub fn get_shared<T>(
        &self,
        of: ContentId,
        name: &str,
        read: impl FnOnce(&mut dyn Read) -> Result<T>,
    ) -> Result<Option<T>> {
        self.get_framed(
            &self.shared_location(of, name),
            &FrameHeader::new(of, EXCHANGED, EXCHANGED_VERSION),
            read,
        )
    }

    /// Like [`StateStore::get_shared`], for a body that the caller holds as a whole.
    pub fn get_shared_bytes(&self, of: ContentId, name: &str) -> Result<Option<Buffer>> {
        self.shared_bytes(of, name, false)
    }

    /// The names of all that workers left under an id.
    pub fn shared_names(&self, of: ContentId) -> Result<Vec<String>> {
        let folder = self.root.join(&format!("exchanges/{of}"));
        let mut names = Vec::new();
        for object in self.io.list(&folder)? {
            names.extend(object.location.filename().map(str::to_owned));
        }
        Ok(names)
    }

    /// Leaves for workers what a committed state comes to, so that they need not find it out each for itself, and
    /// the index to look things up in it.
    pub fn share_finding(
        &self,
        id: ContentId,
        finding: &Finding,
        index: Option<&Buffer>,
        scratch: &ScratchDir,
    ) -> Result<()> {
        let failed = |error| Fault::disk("an index cannot be written", error);
        if let Some(index) = index {
            self.put_shared(id, INDEX, scratch, &mut |out| {
                out.write_all(index).map_err(failed)
            })?;
        }
        self.put_shared(id, FINDING, scratch, &mut |out| {
            let mut writer = StreamWriter::try_new(out, finding.table().schema_ref())?;
            writer.write(finding.table())?;
            Ok(writer.finish()?)
        })
    }

    /// A state that a process of this cluster stored, with its index. With `mapped`, the processes of a machine share
    /// one copy in memory.
    pub fn shared_finding(&self, id: ContentId, mapped: bool) -> Result<Option<Finding>> {
        let Some(finding) = self.shared_table(id, mapped)? else {
            return Ok(None);
        };
        Ok(Some(match self.shared_bytes(id, INDEX, mapped)? {
            Some(index) => finding.with_index(index),
            None => finding,
        }))
    }

    /// Like `shared_finding`, without the index.
    pub fn shared_table(&self, id: ContentId, mapped: bool) -> Result<Option<Finding>> {
        let Some(stream) = self.shared_bytes(id, FINDING, mapped)? else {
            return Ok(None);
        };
        // The decoder panics on some bytes that are no Arrow stream.
        let table = catch_unwind(AssertUnwindSafe(|| only_table(stream)));
        Ok(table.ok().flatten().map(Finding::new))
    }

    /// The whole stored file as one buffer; `None` when it is absent or broken.
    fn shared_bytes(&self, of: ContentId, name: &str, mapped: bool) -> Result<Option<Buffer>> {
        let location = self.shared_location(of, name);
        let bytes = match &location.local {
            Some(path) if mapped => map_file(path)?,
            Some(path) => self.read_file(&location, path)?.map(Buffer::from_vec),
            None => self.io.get(&location)?.map(Buffer::from),
        };
        let header = FrameHeader::new(of, EXCHANGED, EXCHANGED_VERSION);
        Ok(bytes.and_then(|bytes| framed_body(&bytes, &header)))
    }

    /// A whole local file; `None` when it is absent. Its memory is reserved before it is read.
    fn read_file(&self, location: &StorageLocation, path: &Path) -> Result<Option<Vec<u8>>> {
        let Some(file) = if_exists(File::open(path))? else {
            return Ok(None);
        };
        let bytes = file.metadata().map_err(read_failed)?.len();
        let _reservation = self.io.reserve_file(location, bytes)?;
        let mut content = Vec::with_capacity(bytes as usize);
        // Exchanged files do not grow once they have their names.
        file.take(bytes)
            .read_to_end(&mut content)
            .map_err(read_failed)?;
        Ok(Some(content))
    }

    /// Removes all exchanged objects under a name.
    pub fn drop_shared(&self, of: ContentId) -> Result<()> {
        remove_directory(&self.io, &self.root.join(&format!("exchanges/{of}")))
    }
}

fn read_failed(error: std::io::Error) -> Fault {
    Fault::disk("a state cannot be read", error)
}

/// The one table of a stream.
fn only_table(mut stream: Buffer) -> Option<RecordBatch> {
    let mut decoder = StreamDecoder::new();
    let table = decoder.decode(&mut stream).ok()??;
    let is_last = matches!(decoder.decode(&mut stream), Ok(None)) && decoder.finish().is_ok();
    is_last.then_some(table)
}

/// A file in the state directory, mapped: all processes of the machine that need it share its memory.
fn map_file(path: &Path) -> Result<Option<Buffer>> {
    let Some(file) = if_exists(File::open(path))? else {
        return Ok(None);
    };
    let mapped = mapped_file::map_file(&file)
        .map_err(|error| Fault::disk("a file cannot be mapped", error))?;
    Ok(Some(Buffer::from(mapped)))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow::array::{ArrayRef, Int64Array, StringArray};
    use forebay_model::codes;
    use forebay_storage::{IgnoreEvents, StorageClient};

    use super::super::frame::ALIGNED;
    use super::*;

    #[test]
    fn files_beyond_memory_are_refused_before_they_are_read() {
        let io = StorageClient::new().unwrap();
        io.read_memory().set_limit(64 << 20, 1);
        let folder = tempfile::tempdir().unwrap();
        let root = io.resolve(folder.path().to_str().unwrap()).unwrap();
        let store = StateStore::new(io, root);
        let id = ContentId::of(b"a finding");
        let path = store.shared_location(id, FINDING).local.unwrap();
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        // Zeros take no room on the disk.
        File::create(&path).unwrap().set_len(8 << 30).unwrap();
        for fault in [
            store.shared_table(id, false).map(drop).unwrap_err(),
            store.get_shared_bytes(id, FINDING).map(drop).unwrap_err(),
        ] {
            assert_eq!(fault.code(), codes::MEMORY);
            let hint = fault.hint_text().unwrap_or_default();
            assert!(hint.contains("--memory"), "{hint}");
        }
    }

    #[test]
    fn shared_findings_round_trip() {
        let io = StorageClient::new().unwrap();
        let folder = tempfile::tempdir().unwrap();
        let store = StateStore::new(
            io.clone(),
            io.resolve(folder.path().to_str().unwrap()).unwrap(),
        );
        let scratch = ScratchDir::new(None, Arc::new(IgnoreEvents)).unwrap();
        for rows in [0, 1, 3] {
            let tokens = Arc::new(StringArray::from_iter_values(
                ["b", "a", "c"].into_iter().take(rows),
            ));
            let counts = Arc::new(Int64Array::from_iter_values((0..rows as i64).rev()));
            let columns: [(&str, ArrayRef); 2] = [("token", tokens), ("count", counts)];
            let left = Finding::new(RecordBatch::try_from_iter(columns).unwrap());
            let id = ContentId::of(&[rows as u8]);
            assert!(store.shared_finding(id, true).unwrap().is_none());
            for index in [None, Some(Buffer::from_vec(vec![1u64, 2, 3]))] {
                store
                    .share_finding(id, &left, index.as_ref(), &scratch)
                    .unwrap();
                for mapped in [false, true] {
                    let found = store.shared_finding(id, mapped).unwrap().unwrap();
                    assert_eq!(found, left, "{rows} rows");
                    assert_eq!(found.index(), index.as_ref());
                }
            }
            // Nothing that is broken is used.
            let path = folder.path().join(format!("exchanges/{id}/{FINDING}"));
            let whole = std::fs::read(&path).unwrap();
            assert_eq!(
                whole.iter().position(|byte| *byte == b'\n'),
                Some(2 * ALIGNED - 1)
            );
            for at in [3, whole.len() / 2, whole.len() - 1] {
                let mut broken = whole.clone();
                broken[at] ^= 1;
                std::fs::write(&path, broken).unwrap();
                assert!(
                    store.shared_finding(id, true).unwrap().is_none(),
                    "byte {at}"
                );
            }
            std::fs::write(&path, []).unwrap();
            assert!(store.shared_finding(id, true).unwrap().is_none());
        }
    }
}
