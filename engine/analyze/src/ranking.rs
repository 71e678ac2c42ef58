//! Sorting tokens into vocabulary order, and keeping the first ones only.

use std::cmp::Ordering;
use std::sync::Arc;

use arrow::array::{ArrayRef, LargeStringArray, StringArray, UInt64Array};
use arrow::buffer::{Buffer, OffsetBuffer, ScalarBuffer};
use forebay_model::{Finding, Result};

use crate::runs::bytes_prefix;
use crate::vocabulary::VocabularyOrder;

/// Tokens kept before the first cut to `top_k`, so that small cuts are not made too often.
const CUT_TOKENS_MIN: usize = 4096;

/// A token that may make it; its bytes lie in the arena.
#[derive(Debug, Clone, Copy)]
struct Candidate {
    count: u64,
    prefix: u64,
    offset: usize,
    length: u32,
}

impl Candidate {
    fn token<'a>(&self, arena: &'a [u8]) -> &'a [u8] {
        &arena[self.offset..self.offset + self.length as usize]
    }

    fn compare(&self, other: &Self, arena: &[u8], order: VocabularyOrder) -> Ordering {
        let by_value = || self.prefix.cmp(&other.prefix).then_with(|| self.token(arena).cmp(other.token(arena)));
        let by_count = other.count.cmp(&self.count);
        match order {
            VocabularyOrder::CountThenReverse => by_count.then_with(|| by_value().reverse()),
            VocabularyOrder::CountThenValue => by_count.then_with(by_value),
            VocabularyOrder::Value => by_value(),
        }
    }
}

/// The tokens to be ranked.
pub(crate) struct Ranking {
    top_k: Option<usize>,
    order: VocabularyOrder,
    arena: Vec<u8>,
    kept: Vec<Candidate>,
}

impl Ranking {
    pub(crate) fn new(top_k: Option<usize>, order: VocabularyOrder) -> Self {
        Ranking { top_k, order, arena: Vec::new(), kept: Vec::new() }
    }

    /// Room for so many more tokens of so many bytes in all.
    pub(crate) fn reserve(&mut self, tokens: usize, bytes: usize) {
        if self.top_k.is_none() {
            self.kept.reserve_exact(tokens);
            self.arena.reserve_exact(bytes);
        }
    }

    /// Takes one token in.
    pub(crate) fn push(&mut self, token: &[u8], count: u64) {
        let (offset, length) = (self.arena.len(), token.len() as u32);
        self.arena.extend_from_slice(token);
        self.kept.push(Candidate { count, prefix: bytes_prefix(token), offset, length });
        if let Some(top_k) = self.top_k
            && self.kept.len() >= (2 * top_k).max(CUT_TOKENS_MIN)
        {
            self.cut(top_k);
            let mut arena = Vec::with_capacity(self.arena.len() / 2);
            for candidate in &mut self.kept {
                let offset = arena.len();
                arena.extend_from_slice(candidate.token(&self.arena));
                candidate.offset = offset;
            }
            self.arena = arena;
        }
    }

    /// Drops all but the first `top_k`: those of high counts, whatever the final order.
    fn cut(&mut self, top_k: usize) {
        if self.kept.len() > top_k {
            let order = match self.order {
                VocabularyOrder::Value => VocabularyOrder::CountThenValue,
                other => other,
            };
            let arena = &self.arena;
            self.kept.select_nth_unstable_by(top_k, |a, b| a.compare(b, arena, order));
            self.kept.truncate(top_k);
        }
    }

    /// The vocabulary.
    pub(crate) fn finish(mut self) -> Result<Finding> {
        if let Some(top_k) = self.top_k {
            self.cut(top_k);
        }
        let Ranking { order, arena, mut kept, .. } = self;
        kept.sort_unstable_by(|a, b| a.compare(b, &arena, order));
        let bytes: usize = kept.iter().map(|token| token.length as usize).sum();
        let mut text = Vec::with_capacity(bytes);
        kept.iter().for_each(|token| text.extend_from_slice(token.token(&arena)));
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
            Arc::new(StringArray::try_new(OffsetBuffer::new(offsets), text, None)?)
        } else {
            Arc::new(LargeStringArray::try_new(OffsetBuffer::new(offsets.into()), text, None)?)
        };
        Finding::of([("token", tokens), ("count", Arc::new(counts) as ArrayRef)])
    }
}
