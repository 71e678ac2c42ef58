//! Notes of sources: metadata of their files that a source has read.

use std::io::Read;

use forebay_model::{ContentId, Fault, Result};
use forebay_storage::{METADATA_CACHE_BYTES_MAX, ScratchDir, StorageLocation};

use super::StateStore;
use super::frame::FrameHeader;

/// Kind in the headers of notes.
const NOTES: &str = "notes";

/// The version of notes; formats have versions of their own inside.
const NOTES_VERSION: u32 = 2;

/// Compression level of notes: every run reads and writes those of all files.
const COMPRESSION_LEVEL: i32 = 1;

impl StateStore {
    fn metadata_location(&self, id: ContentId) -> StorageLocation {
        self.root.join(&format!("notes/{id}"))
    }

    /// Stores the notes of a source.
    pub fn put_metadata(&self, id: ContentId, notes: &[u8], scratch: &ScratchDir) -> Result<()> {
        let failed = |error| Fault::disk("the notes of a source cannot be written", error);
        let header = FrameHeader::new(id, NOTES, NOTES_VERSION);
        let packed = zstd::encode_all(notes, COMPRESSION_LEVEL).map_err(failed)?;
        self.put_framed(
            &self.metadata_location(id),
            &header,
            scratch,
            false,
            &mut |out| out.write_all(&packed).map_err(failed),
        )
    }

    /// Notes of a source, if they exist and are whole.
    pub fn get_metadata(&self, id: ContentId) -> Result<Option<Vec<u8>>> {
        self.get_framed(
            &self.metadata_location(id),
            &FrameHeader::new(id, NOTES, NOTES_VERSION),
            |input| {
                let mut notes = Vec::new();
                let failed = |error| Fault::disk("the notes of a source cannot be read", error);
                let mut unpacked = zstd::Decoder::new(input)
                    .map_err(failed)?
                    .take(METADATA_CACHE_BYTES_MAX as u64);
                unpacked.read_to_end(&mut notes).map_err(failed)?;
                Ok(notes)
            },
        )
    }
}
