//! Texts: their form, their parts, and counts of parts.

mod bag_of_tokens;
mod ngrams;
mod normalize_text;
mod tf_idf;

pub use bag_of_tokens::{BagOfTokens, bag_of_tokens};
pub use ngrams::{NgramUnit, Ngrams, ngrams};
pub use normalize_text::{
    AccentPolicy, LetterCase, NormalizeText, PunctuationPolicy, UnicodeForm, normalize_text,
};
pub use tf_idf::{TfIdf, TokenCounts, TokenNorm, tf_idf};
