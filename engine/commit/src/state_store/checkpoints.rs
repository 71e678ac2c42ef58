//! Checkpoints of trainings.

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
        if let Some(stored_header) = self.open_framed(&location)?.and_then(|input| input.header)
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
        self.get_framed(&location, &header, |input| {
            let mut checkpoint = Vec::new();
            let failed = |error| Fault::disk("a checkpoint cannot be read", error);
            input.read_to_end(&mut checkpoint).map_err(failed)?;
            Ok(checkpoint)
        })
    }

    /// Forgets how far a training was, once its model is published.
    pub fn drop_checkpoint(&self, id: ContentId) -> Result<()> {
        self.io.delete(&self.checkpoint_location(id))
    }

    fn checkpoint_location(&self, id: ContentId) -> StorageLocation {
        self.root.join(&format!("checkpoints/{id}"))
    }
}
