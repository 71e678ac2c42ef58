//! States of parts of a history: whole, or where they are large and workers merge them, in shares by the hash
//! of their keys.
//!
//! ```text
//! partials/<hash>.pack       small states; see `packs.rs`
//! partials/<id>              a large state; or only that it lies in shares, all of them
//! partials/<id>.shares/0     the first share
//! ```

use std::io::{Read, Write};
use std::sync::Arc;

use forebay_model::{AnyAnalyzer, AnyState, ContentId, KeySample, Result, ScratchSpace};
use forebay_storage::failpoint::test_bytes;
use forebay_storage::{ScratchDir, StorageLocation};

use super::StateStore;
use super::frame::{ChecksumWriter, FrameHeader, read_compressed, write_compressed};
use super::pack_index::PackedKind;
use super::packs::SmallFrame;

/// Shares of a large state: as many workers can merge it at a time.
pub const SHARES: usize = 16;

/// Total bytes of the states of a question's parts from which on they are kept in shares: smaller
/// ones are merged by a coordinator in half a second, which is faster than combining merged shares.
const DIVIDED_BYTES_MIN: u64 = 128 << 20;

/// States that one task of a worker merges at most. The coordinator then merges one state for each task.
const SOURCES_PER_MERGE: u64 = 64;

/// Merging tasks below which the coordinator merges sooner than workers begin.
pub const MERGES_MIN: usize = 4;

/// Shares of a state that are fetched at the same time.
pub const SHARES_AT_ONCE: usize = 16;

/// The part of its memory beyond which a whole state is read as a large one: a table of its keys
/// would fill the memory and be written to the scratch space again.
const TABLE_SHARE_MAX: u64 = 4;

/// Kind and version in the headers of states that are stored in shares.
const SHARED: &str = "shares";
const SHARED_VERSION: u32 = 1;

/// Size in bytes from which states are stored in shares. Tests, which have little data, set another
/// value.
pub fn shares_bytes_min() -> u64 {
    test_bytes("FOREBAY_DIVIDED_BYTES").unwrap_or(DIVIDED_BYTES_MIN)
}

/// Maximum number of states that one task of a worker merges. Tests set another value.
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

    /// Header of a compressed state.
    fn compressed_header(id: ContentId, analyzer: &dyn AnyAnalyzer) -> FrameHeader {
        FrameHeader::new(
            id,
            &format!("{}, packed", analyzer.kind()),
            analyzer.version(),
        )
    }

    /// Writes the state of a part: compressed if later runs use it, uncompressed if only this run
    /// does. It is committed once [`StateStore::flush`] has returned.
    pub fn put_partial(
        &self,
        id: ContentId,
        analyzer: &dyn AnyAnalyzer,
        state: &mut AnyState,
        scratch: &ScratchDir,
        for_nights: bool,
    ) -> Result<()> {
        let header = if for_nights {
            StateStore::compressed_header(id, analyzer)
        } else {
            FrameHeader::new(id, analyzer.kind(), analyzer.version())
        };
        let frame = SmallFrame {
            kind: PackedKind::Partial,
            id,
            header: &header,
            scratch,
            durable: false,
        };
        self.put_small(&frame, &mut |out| {
            if for_nights {
                write_compressed(out, &mut |out| analyzer.encode(state, out))
            } else {
                analyzer.encode(state, out)
            }
        })
    }

    /// Stores a state of a part of a history in shares; returns a sample of its keys, if the
    /// analyzer takes one.
    pub fn put_partial_shares(
        &self,
        id: ContentId,
        analyzer: &dyn AnyAnalyzer,
        state: &mut AnyState,
        scratch: &ScratchDir,
    ) -> Result<Option<KeySample>> {
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
        let sample = analyzer.encode_shares(state, &mut shares)?;
        outs.into_iter().try_for_each(ChecksumWriter::end)?;
        for (share, file) in files.into_iter().enumerate() {
            self.persist_file(&self.share_location(id, share), file, false)?;
        }
        self.mark_shares_complete(id, scratch)?;
        Ok(sample)
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
        let location = self.share_location(id, share);
        self.put_framed(&location, &header, scratch, false, &mut |out| {
            analyzer.encode(state, out)
        })
    }

    /// Marks all shares of a state as written.
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

    /// For each id, true if the state of that part of a history is kept.
    pub fn has_partials(&self, ids: impl Iterator<Item = ContentId>) -> Result<Vec<bool>> {
        let ids: Vec<ContentId> = ids.collect();
        let mut is_stored = self.are_packed(PackedKind::Partial, &ids)?;
        if self.root.local.is_some() {
            let is_file = |id: ContentId| {
                self.partial_location(id)
                    .local
                    .is_some_and(|path| path.exists())
            };
            is_stored
                .iter_mut()
                .zip(&ids)
                .filter(|(is_stored, _)| !**is_stored)
                .for_each(|(is_stored, id)| *is_stored = is_file(*id));
        }
        Ok(is_stored)
    }

    /// Fetches many states at once from a remote store, before they are read one by one.
    pub fn fetch_partials(&self, ids: impl Iterator<Item = ContentId>) -> Result<()> {
        self.fetch_packs(PackedKind::Partial, ids)
    }

    /// Reads the state of a part of a history; a broken one is removed.
    pub fn get_partial(
        &self,
        id: ContentId,
        analyzer: &dyn AnyAnalyzer,
        scratch: &Arc<dyn ScratchSpace>,
    ) -> Result<Option<AnyState>> {
        let location = self.partial_location(id);
        let kinds = [
            FrameHeader::new(id, analyzer.kind(), analyzer.version()),
            StateStore::compressed_header(id, analyzer),
        ];
        let read = || {
            self.get_small(PackedKind::Partial, id, &kinds, |kind, input| {
                let is_large = input.body_bytes() > scratch.budget_bytes() as u64 / TABLE_SHARE_MAX;
                match kind {
                    0 => read_state(analyzer, input, scratch, is_large),
                    _ => read_compressed(input, |input| {
                        read_state(analyzer, input, scratch, is_large)
                    }),
                }
            })
        };
        let mut state = read()?;
        if state.is_none() {
            // Another process may have committed it.
            self.refresh_kind(PackedKind::Partial)?;
            state = read()?;
        }
        if state.is_none() && self.is_in_shares(id)? {
            state = merge_pairwise(
                analyzer,
                (0..SHARES).map(|share| self.get_stored_share(id, share, analyzer, scratch)),
            )?;
        }
        if state.is_none() {
            self.forget_large(PackedKind::Partial, id)?;
            if self.io.head(&location)?.is_some() {
                self.io.delete(&location)?;
            }
        }
        Ok(state)
    }

    /// Reads one share of it, also of one that is kept whole.
    pub fn get_partial_share(
        &self,
        id: ContentId,
        share: usize,
        analyzer: &dyn AnyAnalyzer,
        scratch: &Arc<dyn ScratchSpace>,
    ) -> Result<Option<AnyState>> {
        if let Some(state) = self.get_stored_share(id, share, analyzer, scratch)? {
            return Ok(Some(state));
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

fn read_state(
    analyzer: &dyn AnyAnalyzer,
    input: &mut dyn Read,
    scratch: &Arc<dyn ScratchSpace>,
    is_large: bool,
) -> Result<AnyState> {
    if is_large {
        analyzer.decode_large(input, scratch)
    } else {
        analyzer.decode(input, scratch)
    }
}

/// States merged as the leaves of a tree are, so that each key moves a few times only. `None` where one of
/// them is not there.
pub fn merge_pairwise(
    analyzer: &dyn AnyAnalyzer,
    states: impl Iterator<Item = Result<Option<AnyState>>>,
) -> Result<Option<AnyState>> {
    // Subtrees of falling size: equal ones are merged at once, as the digits of a counter carry.
    let mut subtrees: Vec<MergedSubtree> = Vec::new();
    for state in states {
        let Some(state) = state? else { return Ok(None) };
        subtrees.push(MergedSubtree { leaves: 1, state });
        while ends_with_equals(&subtrees) {
            merge_last_two(analyzer, &mut subtrees)?;
        }
    }
    while subtrees.len() > 1 {
        merge_last_two(analyzer, &mut subtrees)?;
    }
    Ok(subtrees.pop().map(|subtree| subtree.state))
}

/// A state that is merged of `leaves` consecutive states.
struct MergedSubtree {
    leaves: usize,
    state: AnyState,
}

fn ends_with_equals(subtrees: &[MergedSubtree]) -> bool {
    match subtrees {
        [.., first, second] => first.leaves <= second.leaves,
        _ => false,
    }
}

fn merge_last_two(analyzer: &dyn AnyAnalyzer, subtrees: &mut Vec<MergedSubtree>) -> Result<()> {
    let Some(second) = subtrees.pop() else {
        return Ok(());
    };
    let Some(first) = subtrees.last_mut() else {
        return Ok(());
    };
    analyzer.merge(&mut first.state, second.state)?;
    first.leaves += second.leaves;
    Ok(())
}

#[cfg(test)]
mod tests {
    use forebay_model::{Analyzer, AnalyzerInput, Fault, Finding, MemoryScratch};
    use forebay_storage::{IgnoreEvents, StorageClient};
    use serde_json::{Value, json};

    use super::*;

    /// Keeps bytes, and how they were read.
    #[derive(Debug)]
    struct KeptBytes;

    #[derive(Debug, Default, PartialEq)]
    struct BytesState {
        bytes: Vec<u8>,
        is_large: bool,
    }

    impl Analyzer for KeptBytes {
        type State = BytesState;

        fn kind(&self) -> &'static str {
            "kept_bytes"
        }

        fn config(&self) -> Value {
            json!({})
        }

        fn zero(&self, _: &Arc<dyn ScratchSpace>) -> Result<BytesState> {
            Ok(BytesState::default())
        }

        fn update(&self, _: &mut BytesState, _: &AnalyzerInput<'_>) -> Result<()> {
            Ok(())
        }

        fn merge(&self, state: &mut BytesState, later_state: BytesState) -> Result<()> {
            state.bytes.extend(later_state.bytes);
            Ok(())
        }

        fn encode(&self, state: &mut BytesState, out: &mut dyn Write) -> Result<()> {
            out.write_all(&state.bytes)
                .map_err(|error| Fault::disk("a state cannot be written", error))
        }

        fn decode(&self, input: &mut dyn Read, _: &Arc<dyn ScratchSpace>) -> Result<BytesState> {
            let mut bytes = Vec::new();
            input
                .read_to_end(&mut bytes)
                .map_err(|error| Fault::disk("a state cannot be read", error))?;
            Ok(BytesState {
                bytes,
                is_large: false,
            })
        }

        fn decode_large(
            &self,
            input: &mut dyn Read,
            scratch: &Arc<dyn ScratchSpace>,
        ) -> Result<BytesState> {
            Ok(BytesState {
                is_large: true,
                ..Analyzer::decode(self, input, scratch)?
            })
        }

        fn finish(&self, _: BytesState) -> Result<Finding> {
            Err(Fault::internal("bytes have no finding"))
        }

        fn size_bytes(&self, state: &BytesState) -> usize {
            state.bytes.len()
        }
    }

    #[test]
    fn states_that_would_fill_their_memory_are_read_as_large_ones() {
        let io = StorageClient::new().unwrap();
        let folder = tempfile::tempdir().unwrap();
        let root = io.resolve(folder.path().to_str().unwrap()).unwrap();
        let store = StateStore::new(io, root);
        let scratch = ScratchDir::new(None, Arc::new(IgnoreEvents)).unwrap();
        let memory: Arc<dyn ScratchSpace> = Arc::new(MemoryScratch {
            budget_bytes: 8 << 20,
        });
        // Bytes that compression leaves as many: a small state, which lies in a pack, and others.
        for (bytes_count, is_large) in [(100, false), (3 << 19, false), (6 << 19, true)] {
            for for_nights in [false, true] {
                let mut hash = 7_u64;
                let mut bytes = Vec::new();
                for _ in 0..bytes_count {
                    hash = hash.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(1);
                    bytes.push((hash >> 56) as u8);
                }
                let id = ContentId::of(&[u8::from(for_nights), (bytes_count >> 19) as u8]);
                let mut state: AnyState = Box::new(BytesState {
                    bytes: bytes.clone(),
                    is_large: false,
                });
                store
                    .put_partial(id, &KeptBytes, &mut state, &scratch, for_nights)
                    .unwrap();
                let found = store.get_partial(id, &KeptBytes, &memory).unwrap();
                let found = found.unwrap().downcast::<BytesState>().unwrap();
                let expected = BytesState { bytes, is_large };
                assert!(*found == expected, "{bytes_count} bytes, {for_nights}");
            }
        }
    }
}
