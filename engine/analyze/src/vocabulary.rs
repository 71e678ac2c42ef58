//! Exact counts of tokens, in vocabulary order.

use std::io::{Read, Write};
use std::sync::Arc;

use forebay_model::codes;
use forebay_model::{Analyzer, Decoder, Encoder, Fault, Finding, Input, Result, Scratch, Strings, TOKEN_BYTES_MAX};
use serde_json::{Value, json};

use crate::dictionary::{DictionaryCounts, elements};
use crate::numbers::only_column;
use crate::ranking::Ranking;
use crate::runs::KeyOrder;
use crate::tally::Tally;

/// The order of tokens.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum VocabularyOrder {
    /// Count descending, ties by bytes descending: tf.Transform's.
    #[default]
    CountThenReverse,
    /// Count descending, ties by bytes ascending: Spark's.
    CountThenValue,
    /// Bytes ascending: scikit-learn's.
    Value,
}

/// The distinct tokens of one column with their exact counts.
///
/// Takes strings in any layout, lists of strings (each element counts), and integers, booleans
/// and dates as their text. Nulls, null lists included, are counted apart; the empty string is a
/// token. Where `top_k` cuts, tokens of high count stay; in value order `order` only sorts those.
///
/// The finding has one row per token: `token` (Utf8; LargeUtf8 beyond 2 GiB of text), `count`
/// (UInt64). [`VocabularyState`] spills beyond its budget; the finding itself has to fit memory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Vocabulary {
    /// Tokens seen less often are left out.
    pub min_count: u64,
    /// At most so many tokens, those of the highest counts.
    pub top_k: Option<usize>,
    /// The order of tokens.
    pub order: VocabularyOrder,
}

impl Default for Vocabulary {
    fn default() -> Self {
        Vocabulary { min_count: 1, top_k: None, order: VocabularyOrder::default() }
    }
}

/// What [`Vocabulary`] knows.
pub struct VocabularyState {
    nulls: u64,
    tally: Tally<u64>,
    dictionary: DictionaryCounts,
}

impl VocabularyState {
    fn flush(&mut self) -> Result<()> {
        self.dictionary.flush(|token, count| add(&mut self.tally, &mut self.nulls, token, count))
    }
}

fn add(tally: &mut Tally<u64>, nulls: &mut u64, token: Option<&str>, count: u64) -> Result<()> {
    match token {
        None => *nulls += count,
        Some(token) if token.len() > TOKEN_BYTES_MAX => {
            let message = format!("a token of {} bytes is longer than {TOKEN_BYTES_MAX}", token.len());
            return Err(Fault::new(codes::LIMIT, message).hint("hash such values, or leave the column out"));
        }
        Some(token) => tally.add(token.as_bytes(), &count)?,
    }
    Ok(())
}

impl Analyzer for Vocabulary {
    type State = VocabularyState;

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

    fn zero(&self, scratch: &Arc<dyn Scratch>) -> Result<VocabularyState> {
        let tally = Tally::new(scratch, KeyOrder::Hash);
        Ok(VocabularyState { nulls: 0, tally, dictionary: DictionaryCounts::default() })
    }

    fn update(&self, state: &mut VocabularyState, input: &Input<'_>) -> Result<()> {
        let VocabularyState { nulls, tally, dictionary } = state;
        let (parts, null_lists) = elements(only_column(input)?)?;
        *nulls += null_lists;
        for part in &parts {
            dictionary.push(&Strings::of(part)?, |token, count| add(tally, nulls, token, count))?;
        }
        if dictionary.size_bytes() > tally.budget_bytes() / 4 {
            state.flush()?;
        }
        Ok(())
    }

    fn merge(&self, state: &mut VocabularyState, mut later: VocabularyState) -> Result<()> {
        later.flush()?;
        state.flush()?;
        state.nulls += later.nulls;
        state.tally.merge(later.tally)
    }

    fn encode(&self, state: &mut VocabularyState, out: &mut dyn Write) -> Result<()> {
        state.flush()?;
        Encoder(out).varint(state.nulls)?;
        state.tally.encode(out)
    }

    fn decode(&self, input: &mut dyn Read, scratch: &Arc<dyn Scratch>) -> Result<VocabularyState> {
        let nulls = Decoder(input).varint()?;
        let tally = Tally::decode(input, scratch, KeyOrder::Hash)?;
        Ok(VocabularyState { nulls, tally, dictionary: DictionaryCounts::default() })
    }

    fn finish(&self, mut state: VocabularyState) -> Result<Finding> {
        state.flush()?;
        let mut ranking = Ranking::new(self.top_k, self.order);
        match state.tally.into_memory() {
            Ok((entries, arena)) => ranking.take_table(entries, arena, self.min_count),
            Err(mut tally) => tally.for_each(|token, &count| {
                if count >= self.min_count {
                    ranking.push(token, count);
                }
                Ok(())
            })?,
        }
        ranking.finish()
    }

    fn size_bytes(&self, state: &VocabularyState) -> usize {
        size_of::<VocabularyState>() + state.tally.size_bytes() + state.dictionary.size_bytes()
    }
}
