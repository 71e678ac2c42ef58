//! States of analyzers over all rows.

use std::collections::BTreeMap;
use std::io::Write;
use std::sync::Arc;

use forebay_model::{AnyAnalyzer, AnyState, ContentId, Finding, Result, ScratchSpace};
use forebay_storage::{ScratchDir, StorageLocation};

use super::StateStore;
use super::frame::{FrameBuffer, FrameHeader, FrameReader, WrittenFrame, write_frame};
use super::pack_index::PackedKind;
use super::packs::{PACKED_STATE_BYTES_MAX, SmallFrame};

impl StateStore {
    /// Location of the file of a state that has its own.
    pub(super) fn state_location(&self, kind: PackedKind, id: ContentId) -> StorageLocation {
        self.root.join(&format!("{}/{id}", kind.directory()))
    }

    /// Stores a state. Equal ids mean equal bytes, so that the first commit is kept. It is
    /// committed once [`StateStore::flush`] has returned. One that is `durable` survives a loss of
    /// power once [`StateStore::sync`] has returned; until then, its digest shows whether it is
    /// whole.
    pub fn put_state(
        &self,
        id: ContentId,
        analyzer: &dyn AnyAnalyzer,
        state: &mut AnyState,
        scratch: &ScratchDir,
        durable: bool,
    ) -> Result<()> {
        let header = FrameHeader::new(id, analyzer.kind(), analyzer.version());
        let frame = SmallFrame {
            kind: PackedKind::State,
            id,
            header: &header,
            scratch,
            durable,
        };
        self.put_small(&frame, &mut |out| analyzer.encode(state, out))
    }

    /// Reads a state back; `None` when it is absent, of another version, or broken.
    fn get_state(
        &self,
        id: ContentId,
        analyzer: &dyn AnyAnalyzer,
        scratch: &Arc<dyn ScratchSpace>,
    ) -> Result<Option<AnyState>> {
        let header = FrameHeader::new(id, analyzer.kind(), analyzer.version());
        self.get_small(PackedKind::State, id, &[header], |_, input| {
            analyzer.decode(input, scratch)
        })
    }

    /// Adds the finding of a committed state to the findings; false if the state is missing or not
    /// whole.
    pub fn load_finding(
        &self,
        id: ContentId,
        analyzer: &dyn AnyAnalyzer,
        scratch: &Arc<dyn ScratchSpace>,
        findings: &mut BTreeMap<ContentId, Arc<Finding>>,
    ) -> Result<bool> {
        let Some(state) = self.get_state(id, analyzer, scratch)? else {
            return Ok(false);
        };
        findings.insert(id, Arc::new(analyzer.finish(state)?));
        Ok(true)
    }

    /// Stores a frame, in a pack if it is small.
    pub(super) fn put_small(
        &self,
        new: &SmallFrame<'_>,
        body: &mut dyn FnMut(&mut dyn Write) -> Result<()>,
    ) -> Result<()> {
        let kind = new.kind;
        let id = new.id;
        let mut frame = FrameBuffer::new(new.scratch, PACKED_STATE_BYTES_MAX);
        write_frame(&mut frame, new.header, body)?;
        match frame.finish() {
            WrittenFrame::Small(frame) => self.put_packed(new, &frame),
            WrittenFrame::Large(file) => {
                let location = self.state_location(kind, id);
                self.persist_file(&location, file, false)?;
                match location.local {
                    Some(path) if new.durable => self.unsynced().push(path),
                    Some(_) => {}
                    None => self.record_large(kind, id)?,
                }
                Ok(())
            }
        }
    }

    /// Reads a frame that [`StateStore::put_small`] wrote; `body` receives the index of its kind.
    pub(super) fn get_small<T>(
        &self,
        kind: PackedKind,
        id: ContentId,
        headers: &[FrameHeader],
        body: impl Fn(usize, &mut FrameReader) -> Result<T>,
    ) -> Result<Option<T>> {
        while let Some(frame) = self.packed_frame(kind, id)? {
            if let Some(state) = FrameReader::of_bytes(frame).read(headers, &body) {
                return Ok(Some(state));
            }
            self.forget_packed(kind, id)?;
        }
        if self.may_be_large(kind, id)? {
            self.get_framed_of(&self.state_location(kind, id), headers, body)
        } else {
            Ok(None)
        }
    }
}
