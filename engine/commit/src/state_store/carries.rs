//! Carries: the state of windows and as-of joins at points of a history.

use std::io::{Read, Write};

use forebay_model::{ContentId, Result};
use forebay_storage::{ScratchDir, StorageLocation};

use super::StateStore;
use super::frame::{FrameHeader, read_compressed, write_compressed};

/// What the headers of carries say.
const CARRY: &str = "carry";

/// The version of carries; windows have versions of their own inside.
const CARRY_VERSION: u32 = 2;

impl StateStore {
    fn carry_location(&self, id: ContentId) -> StorageLocation {
        self.root.join(&format!("carries/{id}"))
    }

    /// Commits what windows or a join remember at some point of a history, unless it is there.
    pub fn put_carry(
        &self,
        id: ContentId,
        scratch: &ScratchDir,
        write: &mut dyn FnMut(&mut dyn Write) -> Result<()>,
    ) -> Result<()> {
        if self.carry_bytes(id)?.is_some() {
            return Ok(());
        }
        let header = FrameHeader::new(id, CARRY, CARRY_VERSION);
        self.put_framed(
            &self.carry_location(id),
            &header,
            scratch,
            true,
            &mut |out| write_compressed(out, write),
        )
    }

    /// The bytes of what windows remember at some point, if that is kept.
    pub fn carry_bytes(&self, id: ContentId) -> Result<Option<u64>> {
        Ok(self
            .io
            .head(&self.carry_location(id))?
            .map(|meta| meta.size))
    }

    /// Reads what windows remember; `None` when it is absent, of another version, or broken: then it goes.
    pub fn get_carry<T>(
        &self,
        id: ContentId,
        read: impl FnOnce(&mut dyn Read) -> Result<T>,
    ) -> Result<Option<T>> {
        let place = self.carry_location(id);
        let header = FrameHeader::new(id, CARRY, CARRY_VERSION);
        let found = self.get_framed(&place, &header, |input| read_compressed(input, read))?;
        if found.is_none() && self.io.head(&place)?.is_some() {
            self.io.delete(&place)?;
        }
        Ok(found)
    }
}
