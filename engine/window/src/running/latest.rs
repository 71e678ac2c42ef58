//! The last value that is not missing.

use forebay_model::{Decoder, Encoder, Result};

use super::{Accumulator, Asked, Entry, Own};
use crate::words::NO_BITS;

/// Parameters of an output.
#[derive(Debug, Clone)]
pub(crate) struct Wanted {
    /// Most rows back.
    pub limit: u64,
    /// Whether to output its time instead of its value.
    pub time: bool,
}

/// The last value that is not missing, and its position.
#[derive(Debug, Clone, Default)]
pub(crate) struct Latest {
    /// Index of its entry plus one; 0 if there is none.
    after: u64,
    word: u64,
    time: i64,
}

impl Accumulator for Latest {
    type Config = ();
    type Question = Wanted;

    #[inline]
    fn take(&mut self, _: &(), entry: Entry) {
        if !entry.is_missing {
            *self = Latest { after: entry.number + 1, word: entry.word, time: entry.time };
        }
    }

    #[inline]
    fn answer(&self, _: &(), ask: &Asked<Wanted>, own: &Own<'_>) -> u64 {
        let is_there = self.after > 0 && own.row.number + 1 - self.after <= ask.question.limit;
        match (ask.question.time, is_there) {
            (true, true) => self.time as u64,
            (true, false) => NO_BITS,
            (false, true) => self.word,
            (false, false) => own.keep.missing(),
        }
    }

    fn encode(&self, out: &mut Encoder<'_>) -> Result<()> {
        out.varint(self.after)?;
        out.word(self.word)?;
        out.signed(self.time)
    }

    fn decode(_: &(), input: &mut Decoder<'_>) -> Result<Self> {
        Ok(Latest { after: input.varint()?, word: input.word()?, time: input.signed()? })
    }
}
