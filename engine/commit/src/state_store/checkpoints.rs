//! Checkpoints of trainings.

use std::io::Read;

use forebay_model::{ContentId, Fault, Result, codes};
use forebay_storage::{ScratchDir, StorageLocation};

use super::StateStore;
use super::frame::FrameHeader;

/// Kind in the headers of checkpoints.
const CHECKPOINT: &str = "checkpoint";

/// The version of checkpoints; trainers have versions of their own inside.
const CHECKPOINT_VERSION: u32 = 1;

impl StateStore {
    /// Keeps how far a training is. One that is lost with the machine's power is one that is not there.
    pub fn put_checkpoint(
        &self,
        id: ContentId,
        checkpoint: &[u8],
        scratch: &ScratchDir,
    ) -> Result<()> {
        let failed = |error| Fault::disk("a checkpoint cannot be written", error);
        let header = FrameHeader::new(id, CHECKPOINT, CHECKPOINT_VERSION);
        let location = self.checkpoint_location(id);
        self.put_framed(&location, &header, scratch, true, &mut |out| {
            out.write_all(checkpoint).map_err(failed)
        })
    }

    /// Checkpoint of a training. A broken one, or one of another version, counts as missing; one of
    /// another training is a fault.
    pub fn get_checkpoint(&self, id: ContentId) -> Result<Option<Vec<u8>>> {
        let location = self.checkpoint_location(id);
        let header = FrameHeader::new(id, CHECKPOINT, CHECKPOINT_VERSION);
        let Some(input) = self.open_framed(&location)? else {
            return Ok(None);
        };
        if let Some(stored_header) = &input.header
            && stored_header.id() != header.id()
        {
            let short = stored_header.id().get(..8).unwrap_or(stored_header.id());
            let message = format!(
                "the checkpoint belongs to training {short}, not to {}",
                id.short()
            );
            let fault = Fault::new(codes::OTHER_DATA, message).file(&location.shown);
            return Err(fault.hint("remove the file: the training then begins anew"));
        }
        if input.header.as_ref() != Some(&header) {
            return Ok(None);
        }
        let bytes = input.body_bytes();
        let _reservation = self.io.reserve_file(&location, bytes)?;
        Ok(input.read(std::slice::from_ref(&header), |_, body| {
            let mut checkpoint = Vec::with_capacity(bytes as usize);
            let failed = |error| Fault::disk("a checkpoint cannot be read", error);
            body.read_to_end(&mut checkpoint).map_err(failed)?;
            Ok(checkpoint)
        }))
    }

    /// Forgets how far a training was, once its model is published.
    pub fn drop_checkpoint(&self, id: ContentId) -> Result<()> {
        self.io.delete(&self.checkpoint_location(id))
    }

    fn checkpoint_location(&self, id: ContentId) -> StorageLocation {
        self.root.join(&format!("checkpoints/{id}"))
    }
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::sync::Arc;

    use forebay_storage::{IgnoreEvents, StorageClient};

    use super::*;

    #[test]
    fn checkpoints_beyond_memory_are_refused_before_they_are_read() {
        let io = StorageClient::new().unwrap();
        io.read_memory().set_limit(64 << 20, 1);
        let folder = tempfile::tempdir().unwrap();
        let root = io.resolve(folder.path().to_str().unwrap()).unwrap();
        let store = StateStore::new(io, root);
        let scratch = ScratchDir::new(None, Arc::new(IgnoreEvents)).unwrap();
        let id = ContentId::of(b"a training");
        assert_eq!(store.get_checkpoint(id).unwrap(), None);
        store.put_checkpoint(id, &[7; 90], &scratch).unwrap();
        assert_eq!(store.get_checkpoint(id).unwrap(), Some(vec![7; 90]));
        let path = store.checkpoint_location(id).local.unwrap();
        let file = File::options().write(true).open(&path).unwrap();
        // Zeros take no room on the disk.
        file.set_len(8 << 30).unwrap();
        let fault = store.get_checkpoint(id).unwrap_err();
        assert_eq!(fault.code(), codes::MEMORY);
        // Without a header, it counts as missing.
        File::create(&path).unwrap().set_len(8 << 30).unwrap();
        assert_eq!(store.get_checkpoint(id).unwrap(), None);
    }
}
