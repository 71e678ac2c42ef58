//! Checkpoints of trainings.

use forebay_model::{ContentId, Fault, Result, codes};
use forebay_storage::{ScratchDir, StorageLocation};

use super::StateStore;
use super::frame::FrameHeader;

/// What the headers of checkpoints say.
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
        let place = self.checkpoint_location(id);
        self.put_framed(&place, &header, scratch, true, &mut |out| {
            out.write_all(checkpoint).map_err(failed)
        })
    }

    /// How far a training is. What is broken, or of another version, is as if it were not there; one of
    /// another training is a fault.
    pub fn get_checkpoint(&self, id: ContentId) -> Result<Option<Vec<u8>>> {
        let (place, header) = (
            self.checkpoint_location(id),
            FrameHeader::new(id, CHECKPOINT, CHECKPOINT_VERSION),
        );
        if let Some(found) = self.open_framed(&place)?.and_then(|input| input.header)
            && found.id() != header.id()
        {
            let short = found.id().get(..8).unwrap_or(found.id());
            let message = format!(
                "the checkpoint belongs to training {short}, not to {}",
                id.short()
            );
            let fault = Fault::new(codes::OTHER_DATA, message).file(&place.shown);
            return Err(fault.hint("remove the file: the training then begins anew"));
        }
        self.get_framed(&place, &header, |input| {
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
