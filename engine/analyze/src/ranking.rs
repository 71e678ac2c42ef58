//! Sorts tokens into vocabulary order and keeps the first ones.

use std::cmp::Ordering;
use std::sync::Arc;

use arrow::array::{ArrayRef, LargeStringArray, StringArray, UInt64Array};
use arrow::buffer::{Buffer, OffsetBuffer, ScalarBuffer};
use forebay_model::{Finding, MemoryRequest, Result, ScratchSpace};

use crate::spill_runs::bytes_prefix;

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

/// Order of tokens.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum VocabularyOrder {
    /// Count descending, ties by bytes descending, as in tf.Transform.
    #[default]
    CountThenReverse,
    /// Count descending, ties by bytes ascending, as in Spark.
    CountThenValue,
    /// Bytes ascending, as in scikit-learn.
    Value,
}

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
        // Higher counts come first.
        let by_count = other.count.cmp(&self.count);
        match order {
            VocabularyOrder::CountThenReverse => {
                by_count.then_with(|| self.compare_bytes(other, arena).reverse())
            }
            VocabularyOrder::CountThenValue => {
                by_count.then_with(|| self.compare_bytes(other, arena))
            }
            VocabularyOrder::Value => self.compare_bytes(other, arena),
        }
    }

    /// Compares the first eight bytes as a number before all of them.
    fn compare_bytes(&self, other: &Self, arena: &[u8]) -> Ordering {
        let by_prefix = self.prefix.cmp(&other.prefix);
        by_prefix.then_with(|| self.token(arena).cmp(other.token(arena)))
    }
}

/// The selected tokens.
pub(crate) struct SelectedTokens {
    arena: Vec<u8>,
    candidates: Vec<TokenCandidate>,
}

impl SelectedTokens {
    /// Visits each token with its count.
    pub(crate) fn each(&self, mut visit: impl FnMut(&[u8], u64) -> Result<()>) -> Result<()> {
        for candidate in &self.candidates {
            visit(candidate.token(&self.arena), candidate.count)?;
        }
        Ok(())
    }
}

/// Accumulates tokens and ranks them.
pub(crate) struct TokenRanking {
    top_k: Option<usize>,
    order: VocabularyOrder,
    arena: Vec<u8>,
    candidates: Vec<TokenCandidate>,
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
            candidates: Vec::new(),
            scratch: scratch.clone(),
        }
    }

    /// Reserves memory for `tokens` more tokens of `bytes` bytes in total.
    pub(crate) fn reserve(&mut self, tokens: usize, bytes: usize) -> Result<()> {
        if self.top_k.is_none() && tokens > 0 {
            self.grow(tokens, bytes)?;
        }
        Ok(())
    }

    /// Requests memory for the tokens and for the finding built from them, before allocating.
    fn grow(&mut self, tokens: usize, bytes: usize) -> Result<()> {
        // A buffer that has to grow exists twice while its content moves.
        let mut needed = 0;
        let token_count = self.candidates.len() + tokens;
        if token_count > self.candidates.capacity() {
            needed += token_count * size_of::<TokenCandidate>();
        }
        let text_bytes = self.arena.len() + bytes;
        if text_bytes > self.arena.capacity() {
            needed += text_bytes;
        }
        let finding = self.candidates.len() * FOUND_TOKEN_BYTES + self.arena.len();
        let _admitted = self.scratch.admit(MemoryRequest {
            now: needed + finding,
            later: 0,
        })?;
        self.candidates.reserve_exact(tokens);
        self.arena.reserve_exact(bytes);
        Ok(())
    }

    /// Adds one token.
    pub(crate) fn push(&mut self, token: &[u8], count: u64) -> Result<()> {
        let tokens = self.candidates.len();
        let bytes = self.arena.len();
        if tokens == self.candidates.capacity() {
            self.grow((tokens / 4).max(ROOM_TOKENS_MIN), 0)?;
        }
        if bytes + token.len() > self.arena.capacity() {
            self.grow(0, (bytes / 4).max(ROOM_BYTES_MIN).max(token.len()))?;
        }
        let offset = self.arena.len();
        let length = token.len() as u32;
        self.arena.extend_from_slice(token);
        self.candidates.push(TokenCandidate {
            count,
            prefix: bytes_prefix(token),
            offset,
            length,
        });
        if let Some(top_k) = self.top_k
            && self.candidates.len() >= (2 * top_k).max(CUT_TOKENS_MIN)
        {
            self.truncate(top_k);
            // Moves the texts that are left together, so that the arena does not grow without bound.
            let mut arena = Vec::with_capacity(self.arena.len() / 2);
            for candidate in &mut self.candidates {
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
        if self.candidates.len() > top_k {
            let order = match self.order {
                VocabularyOrder::Value => VocabularyOrder::CountThenValue,
                other => other,
            };
            let arena = &self.arena;
            self.candidates
                .select_nth_unstable_by(top_k, |a, b| a.compare(b, arena, order));
            self.candidates.truncate(top_k);
        }
    }

    /// The tokens selected by `top_k`, in unspecified order.
    pub(crate) fn into_selected(mut self) -> SelectedTokens {
        if let Some(top_k) = self.top_k {
            self.truncate(top_k);
        }
        SelectedTokens {
            arena: self.arena,
            candidates: self.candidates,
        }
    }

    /// Builds the vocabulary finding.
    pub(crate) fn finish(self) -> Result<Finding> {
        let order = self.order;
        let scratch = self.scratch.clone();
        let SelectedTokens {
            arena,
            mut candidates,
        } = self.into_selected();
        candidates.sort_unstable_by(|a, b| a.compare(b, &arena, order));
        let bytes: usize = candidates.iter().map(|token| token.length as usize).sum();
        // The transform that uses the finding needs its memory after this state is dropped.
        let _admitted = scratch.admit(MemoryRequest {
            now: candidates.len() * FOUND_TOKEN_BYTES + bytes,
            later: candidates.len() * USED_TOKEN_BYTES + 2 * bytes,
        })?;
        let mut text = Vec::with_capacity(bytes);
        let mut offsets: Vec<i64> = Vec::with_capacity(candidates.len() + 1);
        offsets.push(0);
        for candidate in &candidates {
            text.extend_from_slice(candidate.token(&arena));
            offsets.push(text.len() as i64);
        }
        drop(arena);
        let counts = UInt64Array::from_iter_values(candidates.iter().map(|token| token.count));
        let text = Buffer::from_vec(text);
        let tokens: ArrayRef = if i32::try_from(bytes).is_ok() {
            let narrow: ScalarBuffer<i32> = offsets.iter().map(|&offset| offset as i32).collect();
            let offsets = OffsetBuffer::new(narrow);
            Arc::new(StringArray::try_new(offsets, text, None)?)
        } else {
            let offsets = OffsetBuffer::new(offsets.into());
            Arc::new(LargeStringArray::try_new(offsets, text, None)?)
        };
        Finding::of([("token", tokens), ("count", Arc::new(counts) as ArrayRef)])
    }
}
