//! Exact token counts in vocabulary order.

use std::io::{Read, Write};
use std::sync::Arc;

use arrow::array::{ArrayRef, AsArray, BooleanArray, UInt64Array};
use arrow::buffer::Buffer;
use arrow::compute::{cast, concat, filter};
use arrow::datatypes::{DataType, UInt64Type};
use forebay_model::codes;
use forebay_model::{
    Analyzer, AnalyzerInput, Fault, Finding, MemoryRequest, Result, ScratchSpace, SpillWriter,
    StateDecoder, StateEncoder, StringColumn, TOKEN_BYTES_MAX, TextRef,
};
use serde_json::{Value, json};

use crate::dictionary_counts::{DictionaryCounts, string_elements};
use crate::numeric_column::single_column;
use crate::ranking::TokenRanking;
use crate::short_key_map::ShortKeyMap;
use crate::spill_map::SpillMap;
use crate::spill_runs::KeyOrder;
use crate::text_index::TextIndex;

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

/// The distinct tokens of one column with their exact counts.
///
/// Accepts strings in any layout, lists of strings (each element counts), and integers, booleans and dates as their
/// text. Nulls, including null lists, are counted separately; the empty string is a token. `top_k` selects the
/// tokens of highest count; `order` then only sorts those.
///
/// The finding has one row per token: `token` (Utf8; LargeUtf8 beyond 2 GiB of text), `count` (UInt64).
/// `TokenVocabularyState` spills beyond its budget. The finding has to fit in memory, which is checked before it is
/// built. A state of all rows keeps only the tokens selected by `top_k`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TokenVocabulary {
    /// Tokens with lower counts are dropped.
    pub min_count: u64,
    /// Most tokens, selected by highest count.
    pub top_k: Option<usize>,
    /// Order of tokens.
    pub order: VocabularyOrder,
}

impl Default for TokenVocabulary {
    fn default() -> Self {
        TokenVocabulary {
            min_count: 1,
            top_k: None,
            order: VocabularyOrder::default(),
        }
    }
}

/// State of `TokenVocabulary`.
pub struct TokenVocabularyState {
    counts: TokenCounts,
    dictionary: DictionaryCounts,
}

/// Counts of tokens. Short and long tokens are stored separately, because most are short.
struct TokenCounts {
    scratch: Arc<dyn ScratchSpace>,
    nulls: u64,
    short: ShortKeyMap,
    long: SpillMap<u64>,
}

impl TokenVocabularyState {
    fn flush(&mut self) -> Result<()> {
        let TokenVocabularyState { counts, dictionary } = self;
        dictionary.flush(|token, count| counts.add(token, count))
    }
}

impl TokenCounts {
    fn new(scratch: &Arc<dyn ScratchSpace>) -> Self {
        let long = SpillMap::new(&half_scratch(scratch), KeyOrder::Hash);
        TokenCounts {
            scratch: scratch.clone(),
            nulls: 0,
            short: ShortKeyMap::new(scratch),
            long,
        }
    }

    /// The tokens of at least `min_count`, limited to `top_k`.
    fn ranked(&mut self, vocabulary: &TokenVocabulary) -> Result<TokenRanking> {
        let mut ranking = TokenRanking::new(vocabulary.top_k, vocabulary.order, &self.scratch);
        let (tokens, bytes) = self.short.count_frequent(vocabulary.min_count)?;
        ranking.reserve(tokens, bytes)?;
        let mut push = |token: &[u8], count: u64| match count >= vocabulary.min_count {
            true => ranking.push(token, count),
            false => Ok(()),
        };
        self.short.for_each(&mut push)?;
        // Frees the table of short tokens for the ranking.
        self.short = ShortKeyMap::new(&self.scratch);
        self.long.for_each(|token, count| push(token, *count))?;
        self.long = SpillMap::new(&half_scratch(&self.scratch), KeyOrder::Hash);
        Ok(ranking)
    }

    fn add(&mut self, token: Option<&str>, count: u64) -> Result<()> {
        match token {
            None => self.nulls += count,
            Some(token) if self.short.add(token.as_bytes(), count)? => {}
            Some(token) if token.len() > TOKEN_BYTES_MAX => {
                let message = format!(
                    "a token of {} bytes is longer than {TOKEN_BYTES_MAX}",
                    token.len()
                );
                return Err(Fault::new(codes::LIMIT, message)
                    .hint("hash such values, or leave the column out"));
            }
            Some(token) => {
                self.long.add(token.as_bytes(), &count)?;
                self.short.set_other_bytes(self.long.size_bytes());
            }
        }
        Ok(())
    }
}

/// A scratch space with half the budget, for long tokens; short tokens use what long ones leave free.
fn half_scratch(scratch: &Arc<dyn ScratchSpace>) -> Arc<dyn ScratchSpace> {
    struct HalfScratch(Arc<dyn ScratchSpace>);
    impl ScratchSpace for HalfScratch {
        fn budget_bytes(&self) -> usize {
            self.0.budget_bytes() / 2
        }
        fn create(&self) -> Result<Box<dyn SpillWriter>> {
            self.0.create()
        }
        fn admit(&self, more: MemoryRequest) -> Result<()> {
            self.0.admit(more)
        }
    }
    Arc::new(HalfScratch(scratch.clone()))
}

impl Analyzer for TokenVocabulary {
    type State = TokenVocabularyState;

    fn kind(&self) -> &'static str {
        "vocabulary"
    }

    fn config(&self) -> Value {
        let order = match self.order {
            VocabularyOrder::CountThenReverse => "count_then_reverse",
            VocabularyOrder::CountThenValue => "count_then_value",
            VocabularyOrder::Value => "value",
        };
        json!({ "min_count": self.min_count, "top_k": self.top_k, "order": order })
    }

    fn zero(&self, scratch: &Arc<dyn ScratchSpace>) -> Result<TokenVocabularyState> {
        Ok(TokenVocabularyState {
            counts: TokenCounts::new(scratch),
            dictionary: DictionaryCounts::default(),
        })
    }

    fn update(&self, state: &mut TokenVocabularyState, input: &AnalyzerInput<'_>) -> Result<()> {
        let TokenVocabularyState { counts, dictionary } = state;
        let (parts, null_lists) = string_elements(single_column(input)?)?;
        counts.nulls += null_lists;
        for part in &parts {
            dictionary.push(&StringColumn::of(part)?, |token, count| {
                counts.add(token, count)
            })?;
        }
        if dictionary.size_bytes() > counts.long.budget_bytes() / 2 {
            state.flush()?;
        }
        Ok(())
    }

    fn merge(
        &self,
        state: &mut TokenVocabularyState,
        mut later: TokenVocabularyState,
    ) -> Result<()> {
        later.flush()?;
        state.flush()?;
        state.counts.nulls += later.counts.nulls;
        state.counts.short.merge(later.counts.short)?;
        state.counts.long.merge(later.counts.long)
    }

    fn encode(&self, state: &mut TokenVocabularyState, out: &mut dyn Write) -> Result<()> {
        state.flush()?;
        StateEncoder(out).varint(state.counts.nulls)?;
        state.counts.short.encode(out)?;
        state.counts.long.encode(out)
    }

    fn decode(
        &self,
        input: &mut dyn Read,
        scratch: &Arc<dyn ScratchSpace>,
    ) -> Result<TokenVocabularyState> {
        let nulls = StateDecoder(input).varint()?;
        let short = ShortKeyMap::decode(input, scratch)?;
        let long = SpillMap::decode(input, &half_scratch(scratch), KeyOrder::Hash)?;
        let counts = TokenCounts {
            scratch: scratch.clone(),
            nulls,
            short,
            long,
        };
        Ok(TokenVocabularyState {
            counts,
            dictionary: DictionaryCounts::default(),
        })
    }

    fn divisible_bytes(&self, state: &TokenVocabularyState) -> Option<u64> {
        let TokenVocabularyState { counts, dictionary } = state;
        Some(
            counts.short.encoded_bytes()
                + counts.long.encoded_bytes()
                + dictionary.size_bytes() as u64,
        )
    }

    fn encode_shares(
        &self,
        state: &mut TokenVocabularyState,
        shares: &mut [&mut dyn Write],
    ) -> Result<()> {
        state.flush()?;
        let counts = &mut state.counts;
        for (number, share) in shares.iter_mut().enumerate() {
            StateEncoder(share).varint(if number == 0 { counts.nulls } else { 0 })?;
        }
        counts.short.encode_shares(shares)?;
        counts.long.encode_shares(shares)
    }

    fn condense(&self, state: &mut TokenVocabularyState) -> Result<()> {
        if self.top_k.is_none() {
            return Ok(());
        }
        state.flush()?;
        let counts = &mut state.counts;
        let ranking = counts.ranked(self)?;
        ranking.into_selected().each(|token, count| {
            let token = std::str::from_utf8(token).map_err(|_| {
                Fault::new(codes::CORRUPT, "a state holds a token that is not text")
            })?;
            counts.add(Some(token), count)
        })
    }

    fn finish(&self, mut state: TokenVocabularyState) -> Result<Finding> {
        state.flush()?;
        state.counts.ranked(self)?.finish()
    }

    fn index(&self, finding: &Finding) -> Result<Option<Buffer>> {
        let texts = TextRef::new(finding.column("token")?);
        Ok(texts.map(|texts| TextIndex::new(texts).bytes().clone()))
    }

    fn size_bytes(&self, state: &TokenVocabularyState) -> usize {
        size_of::<TokenVocabularyState>()
            + state.counts.short.size_bytes()
            + state.counts.long.size_bytes()
            + state.dictionary.size_bytes()
    }
}

/// Continues a vocabulary: tokens of the earlier one keep their places, and those that are new follow in the order of
/// the current one. Counts are the current ones, 0 for tokens that are no longer there.
pub fn continue_vocabulary(earlier: &Finding, current: &Finding) -> Result<Finding> {
    let (before, now) = (earlier.column("token")?, current.column("token")?);
    let wrong = || Fault::internal("a vocabulary is not text");
    let (Some(before_texts), Some(now_texts)) = (TextRef::new(before), TextRef::new(now)) else {
        return Err(wrong());
    };
    let counts = current.column("count")?.as_primitive_opt::<UInt64Type>();
    let counts = counts.ok_or_else(|| Fault::internal("a vocabulary without counts"))?;
    let (before_index, now_index) = (TextIndex::new(before_texts), TextIndex::new(now_texts));
    let kept = before_texts.iter().map(|token| {
        let place = token.and_then(|token| now_index.find(token, now_texts));
        place.map_or(0, |place| counts.value(place as usize))
    });
    let mut all: Vec<u64> = kept.collect();
    let is_new = |token: Option<&str>| {
        token.is_some_and(|token| before_index.find(token, before_texts).is_none())
    };
    let new: BooleanArray = now_texts.iter().map(|token| Some(is_new(token))).collect();
    all.extend(filter(counts, &new)?.as_primitive::<UInt64Type>().values());
    let added = filter(now, &new)?;
    let bytes = |texts: TextRef<'_>| texts.iter().flatten().map(str::len).sum::<usize>();
    let is_large = bytes(before_texts) + TextRef::new(&added).map_or(0, bytes) > i32::MAX as usize;
    let text = if is_large {
        DataType::LargeUtf8
    } else {
        DataType::Utf8
    };
    let (before, added) = (cast(before, &text)?, cast(&added, &text)?);
    let tokens = concat(&[before.as_ref(), added.as_ref()])?;
    Finding::of([
        ("token", tokens),
        ("count", Arc::new(UInt64Array::from(all)) as ArrayRef),
    ])
}
