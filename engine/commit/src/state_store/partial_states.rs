//! States of parts of a history: whole, or where they are large and workers merge them, in shares by the hash
//! of their keys.
//!
//! ```text
//! partials/<hash>.pack       small states; see `packs.rs`
//! partials/<id>              a large state; or only that it lies in shares, all of them
//! partials/<id>.shares/0     the first share
//! ```

use std::io::Write;
use std::sync::Arc;

use forebay_model::{AnyAnalyzer, AnyState, ContentId, Result, ScratchSpace};
use forebay_storage::failpoint::test_bytes;
use forebay_storage::{ScratchDir, StorageLocation};

use super::StateStore;
use super::frame::{ChecksumWriter, FrameHeader, read_compressed, write_compressed};
use super::packs::PackedKind;
use super::states::SmallFrame;

/// Shares of a large state: as many workers can merge it at a time.
pub const SHARES: usize = 16;

/// Bytes that the states of a question's parts have together from which on they are kept in shares: below, a
/// coordinator merges them in half a second, and sooner than it puts merged shares together.
const DIVIDED_BYTES_MIN: u64 = 128 << 20;

/// States that one task of a worker merges at most. The coordinator then merges one state for each task.
const SOURCES_PER_MERGE: u64 = 64;

/// Merging tasks below which the coordinator merges sooner than workers begin.
pub const MERGES_MIN: usize = 4;

/// Shares of a state that are fetched at the same time.
pub const SHARES_AT_ONCE: usize = 16;

/// What the headers of states say that lie in shares, and the version of that.
const SHARED: &str = "shares";
const SHARED_VERSION: u32 = 1;

/// From how many bytes on states are kept in shares, unless tests say otherwise: they have little data.
pub fn shares_bytes_min() -> u64 {
    test_bytes("FOREBAY_DIVIDED_BYTES").unwrap_or(DIVIDED_BYTES_MIN)
}

/// How many states one task of a worker merges at most, unless tests say otherwise.
pub fn sources_per_merge() -> usize {
    test_bytes("FOREBAY_SOURCES_PER_MERGE")
        .unwrap_or(SOURCES_PER_MERGE)
        .max(2) as usize
}

impl StateStore {
    fn partial_location(&self, id: ContentId) -> StorageLocation {
        self.state_location(PackedKind::Partial, id)
    }

    fn share_location(&self, id: ContentId, share: usize) -> StorageLocation {
        self.root.join(&format!("partials/{id}.shares/{share}"))
    }

    /// What the header of a state says that is packed.
    fn compressed_header(id: ContentId, analyzer: &dyn AnyAnalyzer) -> FrameHeader {
        FrameHeader::new(
            id,
            &format!("{}, packed", analyzer.kind()),
            analyzer.version(),
        )
    }

    /// Puts the state of a part: compressed where it is for other nights, as it is for the run alone. It is committed
    /// once [`StateStore::flush`] has returned.
    pub fn put_partial(
        &self,
        id: ContentId,
        analyzer: &dyn AnyAnalyzer,
        state: &mut AnyState,
        scratch: &ScratchDir,
        for_nights: bool,
    ) -> Result<()> {
        let header = match for_nights {
            true => StateStore::compressed_header(id, analyzer),
            false => FrameHeader::new(id, analyzer.kind(), analyzer.version()),
        };
        let frame = SmallFrame {
            kind: PackedKind::Partial,
            id,
            header: &header,
            scratch,
            durable: false,
        };
        self.put_small(&frame, &mut |out| match for_nights {
            true => write_compressed(out, &mut |out| analyzer.encode(state, out)),
            false => analyzer.encode(state, out),
        })
    }

    /// The same in shares.
    pub fn put_partial_shares(
        &self,
        id: ContentId,
        analyzer: &dyn AnyAnalyzer,
        state: &mut AnyState,
        scratch: &ScratchDir,
    ) -> Result<()> {
        let header = FrameHeader::new(id, analyzer.kind(), analyzer.version());
        let mut files = (0..SHARES)
            .map(|_| scratch.file())
            .collect::<Result<Vec<_>>>()?;
        let outs = files
            .iter_mut()
            .map(|file| ChecksumWriter::begin(file.as_file_mut(), &header));
        let mut outs = outs.collect::<Result<Vec<_>>>()?;
        let mut shares: Vec<&mut dyn Write> =
            outs.iter_mut().map(|out| out as &mut dyn Write).collect();
        analyzer.encode_shares(state, &mut shares)?;
        outs.into_iter().try_for_each(ChecksumWriter::end)?;
        for (share, file) in files.into_iter().enumerate() {
            self.persist_file(&self.share_location(id, share), file, false)?;
        }
        self.mark_shares_complete(id, scratch)
    }

    /// Keeps one share of a state; the others are for others to keep.
    pub fn put_partial_share(
        &self,
        id: ContentId,
        share: usize,
        analyzer: &dyn AnyAnalyzer,
        state: &mut AnyState,
        scratch: &ScratchDir,
    ) -> Result<()> {
        let header = FrameHeader::new(id, analyzer.kind(), analyzer.version());
        let place = self.share_location(id, share);
        self.put_framed(&place, &header, scratch, false, &mut |out| {
            analyzer.encode(state, out)
        })
    }

    /// Says that all shares of a state are there.
    pub fn mark_shares_complete(&self, id: ContentId, scratch: &ScratchDir) -> Result<()> {
        let header = FrameHeader::new(id, SHARED, SHARED_VERSION);
        self.put_framed(
            &self.partial_location(id),
            &header,
            scratch,
            false,
            &mut |_| Ok(()),
        )?;
        self.record_large(PackedKind::Partial, id)
    }

    /// Which states of parts of a history are kept.
    pub fn has_partials(&self, ids: impl Iterator<Item = ContentId>) -> Result<Vec<bool>> {
        let ids: Vec<ContentId> = ids.collect();
        let mut known = self.are_packed(PackedKind::Partial, &ids)?;
        if self.root.local.is_some() {
            let is_file = |id: ContentId| {
                self.partial_location(id)
                    .local
                    .is_some_and(|path| path.exists())
            };
            known
                .iter_mut()
                .zip(&ids)
                .filter(|(known, _)| !**known)
                .for_each(|(known, id)| *known = is_file(*id));
        }
        Ok(known)
    }

    /// Fetches many states at once from a remote store, before they are read one by one.
    pub fn fetch_partials(&self, ids: impl Iterator<Item = ContentId>) -> Result<()> {
        self.fetch_packs(PackedKind::Partial, ids)
    }

    /// Reads the state of a part of a history back; what is broken is removed.
    pub fn get_partial(
        &self,
        id: ContentId,
        analyzer: &dyn AnyAnalyzer,
        scratch: &Arc<dyn ScratchSpace>,
    ) -> Result<Option<AnyState>> {
        let place = self.partial_location(id);
        let kinds = [
            FrameHeader::new(id, analyzer.kind(), analyzer.version()),
            StateStore::compressed_header(id, analyzer),
        ];
        let read = || {
            self.get_small(PackedKind::Partial, id, &kinds, |kind, input| match kind {
                0 => analyzer.decode(input, scratch),
                _ => read_compressed(input, |input| analyzer.decode(input, scratch)),
            })
        };
        let mut found = read()?;
        if found.is_none() {
            // Another process may have committed it.
            self.refresh_kind(PackedKind::Partial)?;
            found = read()?;
        }
        if found.is_none() && self.is_in_shares(id)? {
            found = merge_pairwise(
                analyzer,
                (0..SHARES).map(|share| self.get_stored_share(id, share, analyzer, scratch)),
            )?;
        }
        if found.is_none() {
            self.forget_large(PackedKind::Partial, id)?;
            if self.io.head(&place)?.is_some() {
                self.io.delete(&place)?;
            }
        }
        Ok(found)
    }

    /// Reads one share of it, also of one that is kept whole.
    pub fn get_partial_share(
        &self,
        id: ContentId,
        share: usize,
        analyzer: &dyn AnyAnalyzer,
        scratch: &Arc<dyn ScratchSpace>,
    ) -> Result<Option<AnyState>> {
        if let Some(found) = self.get_stored_share(id, share, analyzer, scratch)? {
            return Ok(Some(found));
        }
        let Some(mut state) = self.get_partial(id, analyzer, scratch)? else {
            return Ok(None);
        };
        let mut bytes = vec![Vec::new(); SHARES];
        let mut shares: Vec<&mut dyn Write> =
            bytes.iter_mut().map(|out| out as &mut dyn Write).collect();
        analyzer.encode_shares(&mut state, &mut shares)?;
        analyzer
            .decode(&mut bytes.swap_remove(share).as_slice(), scratch)
            .map(Some)
    }

    fn is_in_shares(&self, id: ContentId) -> Result<bool> {
        let header = FrameHeader::new(id, SHARED, SHARED_VERSION);
        Ok(self
            .get_framed(&self.partial_location(id), &header, |_| Ok(()))?
            .is_some())
    }

    fn get_stored_share(
        &self,
        id: ContentId,
        share: usize,
        analyzer: &dyn AnyAnalyzer,
        scratch: &Arc<dyn ScratchSpace>,
    ) -> Result<Option<AnyState>> {
        let header = FrameHeader::new(id, analyzer.kind(), analyzer.version());
        self.get_framed(&self.share_location(id, share), &header, |input| {
            analyzer.decode_large(input, scratch)
        })
    }
}

/// States merged as the leaves of a tree are, so that each key moves a few times only. `None` where one of
/// them is not there.
pub fn merge_pairwise(
    analyzer: &dyn AnyAnalyzer,
    states: impl Iterator<Item = Result<Option<AnyState>>>,
) -> Result<Option<AnyState>> {
    // How many states each has been merged of, which falls.
    let mut merged: Vec<(usize, AnyState)> = Vec::new();
    let join = |merged: &mut Vec<(usize, AnyState)>, same: bool| -> Result<bool> {
        let (Some((count, later)), Some((before, mut state))) = (merged.pop(), merged.pop()) else {
            return Ok(false);
        };
        if same && before > count {
            merged.extend([(before, state), (count, later)]);
            return Ok(false);
        }
        analyzer.merge(&mut state, later)?;
        merged.push((before + count, state));
        Ok(true)
    };
    for state in states {
        let Some(state) = state? else { return Ok(None) };
        merged.push((1, state));
        while merged.len() > 1 && join(&mut merged, true)? {}
    }
    while merged.len() > 1 {
        join(&mut merged, false)?;
    }
    Ok(merged.pop().map(|(_, state)| state))
}
