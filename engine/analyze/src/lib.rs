//! Analyzers: questions about the whole data whose answers merge.
//!
//! Every state here is a function of the multiset of rows alone. Its bytes are therefore the same
//! for any batch size, thread count, span cut, row-group size and order of files. Sums are exact,
//! counts spill to disk, samples are chosen by row keys.

mod ask;
mod bins;
mod count;
mod dictionary;
mod exact;
pub mod laws;
mod moment;
mod moments;
mod natural;
mod numbers;
mod quantiles;
mod ranking;
mod runs;
mod tally;
mod vocabulary;

pub use ask::Ask;
pub use count::{Counts, CountsState};
pub use moments::{Moments, MomentsState};
pub use quantiles::{Quantiles, QuantilesState};
pub use vocabulary::{Vocabulary, VocabularyOrder, VocabularyState};
