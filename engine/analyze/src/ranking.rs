//! Sorts tokens into vocabulary order and keeps the first ones.

use std::cmp::Ordering;
use std::sync::Arc;

use arrow::array::{ArrayRef, LargeStringArray, StringArray, UInt64Array};
use arrow::buffer::{Buffer, OffsetBuffer, ScalarBuffer};
use forebay_model::{Finding, MemoryRequest, Result, ScratchSpace};

use crate::spill_runs::bytes_prefix;
use crate::vocabulary::VocabularyOrder;

/// Fewest tokens before the first truncation to `top_k`, so that truncation is rare.
const CUT_TOKENS_MIN: usize = 4096;

/// Smallest growth in tokens and bytes. Otherwise buffers grow by a quarter: doubling could request twice the
/// memory that is needed.
const ROOM_TOKENS_MIN: usize = 4096;
const ROOM_BYTES_MIN: usize = 64 << 10;

/// Bytes of a token in the finding, besides its text: its count, and its offset in two widths during construction.
const FOUND_TOKEN_BYTES: usize = 20;

/// Bytes of a token while the finding is used, besides its text: its slot in the index, and its count in the artifact.
const USED_TOKEN_BYTES: usize = 28;

/// A token under consideration; its bytes are in the arena.
#[derive(Debug, Clone, Copy)]
struct TokenCandidate {
    count: u64,
    prefix: u64,
    offset: usize,
    length: u32,
}

impl TokenCandidate {
    fn token<'a>(&self, arena: &'a [u8]) -> &'a [u8] {
        &arena[self.offset..self.offset + self.length as usize]
    }

    fn compare(&self, other: &Self, arena: &[u8], order: VocabularyOrder) -> Ordering {
        let by_value = || {
            self.prefix
                .cmp(&other.prefix)
                .then_with(|| self.token(arena).cmp(other.token(arena)))
        };
        let by_count = other.count.cmp(&self.count);
        match order {
            VocabularyOrder::CountThenReverse => by_count.then_with(|| by_value().reverse()),
            VocabularyOrder::CountThenValue => by_count.then_with(by_value),
            VocabularyOrder::Value => by_value(),
        }
    }
}

/// The selected tokens.
pub(crate) struct SelectedTokens {
    arena: Vec<u8>,
    kept: Vec<TokenCandidate>,
}

impl SelectedTokens {
    /// Visits each token with its count.
    pub(crate) fn each(&self, mut visit: impl FnMut(&[u8], u64) -> Result<()>) -> Result<()> {
        self.kept
            .iter()
            .try_for_each(|token| visit(token.token(&self.arena), token.count))
    }
}

/// Accumulates tokens and ranks them.
pub(crate) struct TokenRanking {
    top_k: Option<usize>,
    order: VocabularyOrder,
    arena: Vec<u8>,
    kept: Vec<TokenCandidate>,
    scratch: Arc<dyn ScratchSpace>,
}

impl TokenRanking {
    pub(crate) fn new(
        top_k: Option<usize>,
        order: VocabularyOrder,
        scratch: &Arc<dyn ScratchSpace>,
    ) -> Self {
        TokenRanking {
            top_k,
            order,
            arena: Vec::new(),
            kept: Vec::new(),
            scratch: scratch.clone(),
        }
    }

    /// Reserves memory for `tokens` more tokens of `bytes` bytes in total.
    pub(crate) fn reserve(&mut self, tokens: usize, bytes: usize) -> Result<()> {
        if self.top_k.is_none() && tokens > 0 {
            self.grow(tokens, bytes)
        } else {
            Ok(())
        }
    }

    /// Requests memory for the tokens and for the finding built from them, before allocating.
    fn grow(&mut self, tokens: usize, bytes: usize) -> Result<()> {
        let (held, text) = (self.kept.len(), self.arena.len());
        let room = |held: usize, capacity: usize, more: usize| {
            if held + more > capacity {
                held + more
            } else {
                0
            }
        };
        let candidates = room(held, self.kept.capacity(), tokens) * size_of::<TokenCandidate>();
        let found = held * FOUND_TOKEN_BYTES + text;
        self.scratch.admit(MemoryRequest {
            now: candidates + room(text, self.arena.capacity(), bytes) + found,
            later: 0,
        })?;
        self.kept.reserve_exact(tokens);
        self.arena.reserve_exact(bytes);
        Ok(())
    }

    /// Adds one token.
    pub(crate) fn push(&mut self, token: &[u8], count: u64) -> Result<()> {
        let (tokens, bytes) = (self.kept.len(), self.arena.len());
        if tokens == self.kept.capacity() {
            self.grow((tokens / 4).max(ROOM_TOKENS_MIN), 0)?;
        }
        if bytes + token.len() > self.arena.capacity() {
            self.grow(0, (bytes / 4).max(ROOM_BYTES_MIN).max(token.len()))?;
        }
        let (offset, length) = (self.arena.len(), token.len() as u32);
        self.arena.extend_from_slice(token);
        self.kept.push(TokenCandidate {
            count,
            prefix: bytes_prefix(token),
            offset,
            length,
        });
        if let Some(top_k) = self.top_k
            && self.kept.len() >= (2 * top_k).max(CUT_TOKENS_MIN)
        {
            self.truncate(top_k);
            let mut arena = Vec::with_capacity(self.arena.len() / 2);
            for candidate in &mut self.kept {
                let offset = arena.len();
                arena.extend_from_slice(candidate.token(&self.arena));
                candidate.offset = offset;
            }
            self.arena = arena;
        }
        Ok(())
    }

    /// Drops all but `top_k` tokens: those with the highest counts, whatever the final order.
    fn truncate(&mut self, top_k: usize) {
        if self.kept.len() > top_k {
            let order = match self.order {
                VocabularyOrder::Value => VocabularyOrder::CountThenValue,
                other => other,
            };
            let arena = &self.arena;
            self.kept
                .select_nth_unstable_by(top_k, |a, b| a.compare(b, arena, order));
            self.kept.truncate(top_k);
        }
    }

    /// The tokens selected by `top_k`, in unspecified order.
    pub(crate) fn into_selected(mut self) -> SelectedTokens {
        if let Some(top_k) = self.top_k {
            self.truncate(top_k);
        }
        SelectedTokens {
            arena: self.arena,
            kept: self.kept,
        }
    }

    /// Builds the vocabulary finding.
    pub(crate) fn finish(self) -> Result<Finding> {
        let (order, scratch) = (self.order, self.scratch.clone());
        let SelectedTokens { arena, mut kept } = self.into_selected();
        kept.sort_unstable_by(|a, b| a.compare(b, &arena, order));
        let bytes: usize = kept.iter().map(|token| token.length as usize).sum();
        let later = kept.len() * USED_TOKEN_BYTES + 2 * bytes;
        scratch.admit(MemoryRequest {
            now: kept.len() * FOUND_TOKEN_BYTES + bytes,
            later,
        })?;
        let mut text = Vec::with_capacity(bytes);
        kept.iter()
            .for_each(|token| text.extend_from_slice(token.token(&arena)));
        drop(arena);
        let counts = UInt64Array::from_iter_values(kept.iter().map(|token| token.count));
        let text = Buffer::from_vec(text);
        let ends = kept.iter().scan(0, |end, token| {
            *end += i64::from(token.length);
            Some(*end)
        });
        let offsets: Vec<i64> = std::iter::once(0).chain(ends).collect();
        let tokens: ArrayRef = if i32::try_from(bytes).is_ok() {
            let offsets: ScalarBuffer<i32> = offsets.iter().map(|&offset| offset as i32).collect();
            Arc::new(StringArray::try_new(
                OffsetBuffer::new(offsets),
                text,
                None,
            )?)
        } else {
            Arc::new(LargeStringArray::try_new(
                OffsetBuffer::new(offsets.into()),
                text,
                None,
            )?)
        };
        Finding::of([("token", tokens), ("count", Arc::new(counts) as ArrayRef)])
    }
}
