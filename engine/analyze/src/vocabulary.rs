//! Exact token counts in vocabulary order.

use std::io::{Read, Write};
use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, BooleanArray, BooleanBufferBuilder, UInt64Array};
use arrow::buffer::Buffer;
use arrow::compute::{cast, concat, filter};
use arrow::datatypes::{DataType, UInt64Type};
use forebay_model::codes;
use forebay_model::{
    AdmittedMemory, Analyzer, AnalyzerInput, Fault, Finding, KeySample, MemoryRequest, Result,
    ScratchSpace, SpillWriter, StateDecoder, StateEncoder, StringColumn, TOKEN_BYTES_MAX, TextRef,
};
use serde_json::{Value, json};

use crate::dictionary_counts::{DictionaryCounts, string_elements};
use crate::numeric_column::single_column;
use crate::ranking::{TokenRanking, VocabularyOrder};
use crate::short_key_map::ShortKeyMap;
use crate::spill_map::SpillMap;
use crate::spill_runs::KeyOrder;
use crate::text_index::TextIndex;

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
        let mut push = |token: &[u8], count: u64| {
            if count >= vocabulary.min_count {
                ranking.push(token, count)?;
            }
            Ok(())
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
                let bytes = token.len();
                let message = format!("a token of {bytes} bytes is longer than {TOKEN_BYTES_MAX}");
                let fault = Fault::new(codes::LIMIT, message);
                return Err(fault.hint("hash such values, or leave the column out"));
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
        fn admit(&self, request: MemoryRequest) -> Result<AdmittedMemory> {
            self.0.admit(request)
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
        mut later_state: TokenVocabularyState,
    ) -> Result<()> {
        later_state.flush()?;
        state.flush()?;
        state.counts.nulls += later_state.counts.nulls;
        state.counts.short.merge(later_state.counts.short)?;
        state.counts.long.merge(later_state.counts.long)
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
        let nulls = StateDecoder(input).count()?;
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
        let tokens = counts.short.encoded_bytes() + counts.long.encoded_bytes();
        Some(tokens + dictionary.size_bytes() as u64)
    }

    fn encode_shares(
        &self,
        state: &mut TokenVocabularyState,
        shares: &mut [&mut dyn Write],
    ) -> Result<Option<KeySample>> {
        state.flush()?;
        let counts = &mut state.counts;
        // The first share has all nulls.
        for (number, share) in shares.iter_mut().enumerate() {
            let nulls = if number == 0 { counts.nulls } else { 0 };
            StateEncoder(share).varint(nulls)?;
        }
        counts.short.encode_shares(shares)?;
        counts.long.encode_shares(shares)?;
        // A vocabulary is a table of its tokens in any case.
        Ok(None)
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

/// Continues a vocabulary: tokens of the earlier one keep their positions, and those that are new follow in the order of
/// the current one. Counts are the current ones, 0 for tokens that are no longer there.
pub fn continue_vocabulary(earlier: &Finding, current: &Finding) -> Result<Finding> {
    let earlier_tokens = earlier.column("token")?;
    let current_tokens = current.column("token")?;
    let Some(earlier_texts) = TextRef::new(earlier_tokens) else {
        return Err(no_text());
    };
    let Some(current_texts) = TextRef::new(current_tokens) else {
        return Err(no_text());
    };
    let current_counts = current.column("count")?.as_primitive_opt::<UInt64Type>();
    let current_counts =
        current_counts.ok_or_else(|| Fault::internal("a vocabulary without counts"))?;
    let earlier_index = TextIndex::new(earlier_texts);
    let current_index = TextIndex::new(current_texts);
    let mut counts: Vec<u64> = Vec::new();
    for token in earlier_texts.iter() {
        let position = token.and_then(|token| current_index.find(token, current_texts));
        counts.push(match position {
            Some(position) => current_counts.value(position as usize),
            None => 0,
        });
    }
    let mut is_new = BooleanBufferBuilder::new(current_tokens.len());
    for token in current_texts.iter() {
        is_new.append(match token {
            Some(token) => earlier_index.find(token, earlier_texts).is_none(),
            None => false,
        });
    }
    let is_new = BooleanArray::new(is_new.finish(), None);
    let new_counts = filter(current_counts, &is_new)?;
    counts.extend(new_counts.as_primitive::<UInt64Type>().values());
    let new_tokens = filter(current_tokens, &is_new)?;
    let new_bytes = TextRef::new(&new_tokens).map_or(0, text_bytes);
    // Texts beyond 2 GiB need wide offsets.
    let text_type = if text_bytes(earlier_texts) + new_bytes > i32::MAX as usize {
        DataType::LargeUtf8
    } else {
        DataType::Utf8
    };
    let earlier_tokens = cast(earlier_tokens, &text_type)?;
    let new_tokens = cast(&new_tokens, &text_type)?;
    let tokens = concat(&[earlier_tokens.as_ref(), new_tokens.as_ref()])?;
    let counts: ArrayRef = Arc::new(UInt64Array::from(counts));
    Finding::of([("token", tokens), ("count", counts)])
}

fn no_text() -> Fault {
    Fault::internal("a vocabulary is not text")
}

fn text_bytes(texts: TextRef<'_>) -> usize {
    texts.iter().flatten().map(str::len).sum()
}
