//! The last value that is not missing.

use forebay_model::{Result, StateDecoder, StateEncoder};

use super::{ConsumedEntry, OutputRow, StatAccumulator, StatRequest};
use crate::special_words::NO_BITS;

/// Parameters of an output.
#[derive(Debug, Clone)]
pub(crate) struct LastValidRequest {
    /// Most rows back.
    pub limit: u64,
    /// True to output its time instead of its value.
    pub time: bool,
}

/// The last value that is not missing, and its position.
#[derive(Debug, Clone, Default)]
pub(crate) struct LastValidAccumulator {
    /// Index of its entry plus one; 0 if there is none.
    after: u64,
    word: u64,
    time: i64,
}

impl StatAccumulator for LastValidAccumulator {
    type Config = ();
    type Question = LastValidRequest;

    #[inline]
    fn accumulate(&mut self, _: &(), entry: ConsumedEntry) {
        if !entry.is_missing {
            *self = LastValidAccumulator {
                after: entry.number + 1,
                word: entry.word,
                time: entry.time,
            };
        }
    }

    #[inline]
    fn output_word(
        &self,
        _: &(),
        request: &StatRequest<LastValidRequest>,
        output: &OutputRow<'_>,
    ) -> u64 {
        let is_there =
            self.after > 0 && output.row.number + 1 - self.after <= request.question.limit;
        match (request.question.time, is_there) {
            (true, true) => self.time as u64,
            (true, false) => NO_BITS,
            (false, true) => self.word,
            (false, false) => output.keep.missing(),
        }
    }

    fn encode(&self, out: &mut StateEncoder<'_>) -> Result<()> {
        out.varint(self.after)?;
        out.word(self.word)?;
        out.signed(self.time)
    }

    fn decode(_: &(), input: &mut StateDecoder<'_>) -> Result<Self> {
        Ok(LastValidAccumulator {
            after: input.varint()?,
            word: input.word()?,
            time: input.signed()?,
        })
    }
}
