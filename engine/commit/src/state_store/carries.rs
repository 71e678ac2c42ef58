//! Carries: the state of windows and as-of joins at points of a history.

use std::io::{Read, Write};

use forebay_model::{ContentId, Result};
use forebay_storage::{ScratchDir, StorageLocation};

use super::StateStore;
use super::frame::{FrameHeader, read_compressed, write_compressed};

/// Kind in the headers of window states.
const CARRY: &str = "carry";

/// The version of carries; windows have versions of their own inside.
const CARRY_VERSION: u32 = 2;

impl StateStore {
    fn carry_location(&self, id: ContentId) -> StorageLocation {
        self.root.join(&format!("carries/{id}"))
    }

    /// Commits the state of windows or of a join at some point of a history, unless it exists.
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

    /// Bytes of the state at some point, if it is kept.
    pub fn carry_bytes(&self, id: ContentId) -> Result<Option<u64>> {
        Ok(self
            .io
            .head(&self.carry_location(id))?
            .map(|meta| meta.size))
    }

    /// Reads a state; `None` if it is absent, of another version, or broken. A broken one is
    /// removed.
    pub fn get_carry<T>(
        &self,
        id: ContentId,
        read: impl FnOnce(&mut dyn Read) -> Result<T>,
    ) -> Result<Option<T>> {
        let location = self.carry_location(id);
        let header = FrameHeader::new(id, CARRY, CARRY_VERSION);
        let carry = self.get_framed(&location, &header, |input| read_compressed(input, read))?;
        if carry.is_none() && self.io.head(&location)?.is_some() {
            self.io.delete(&location)?;
        }
        Ok(carry)
    }
}
