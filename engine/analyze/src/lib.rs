//! Analyzers: mergeable aggregates over the whole data.
//!
//! Every state here is a function of the multiset of rows alone. Its bytes are therefore the same for any batch
//! size, thread count, division into spans, row-group size and order of files. Sums are exact, counts spill to
//! disk, and samples are chosen by row keys.

mod ask;
mod bins;
mod count;
mod dictionary;
mod distinct;
mod exact;
mod exact_quantiles;
mod first_rows;
mod group_keys;
mod histogram;
mod key_moments;
pub mod laws;
mod moment;
mod moments;
mod natural;
mod numbers;
mod quantiles;
mod ranking;
mod runs;
mod short_keys;
mod tally;
mod text_index;
mod vocabulary;

pub use ask::QuantileRequest;
pub use count::{ColumnCounts, ColumnCountsState};
pub use distinct::{DistinctCount, DistinctCountState};
pub use exact_quantiles::{ExactQuantiles, ExactQuantilesState};
pub use first_rows::FirstRows;
pub use histogram::{Histogram, HistogramState};
pub use key_moments::{GroupedMoments, GroupedMomentsState};
pub use moment::MomentAccumulator;
pub use moments::{ColumnMoments, ColumnMomentsState};
pub use quantiles::{SampledQuantiles, SampledQuantilesState};
pub use text_index::TextIndex;
pub use vocabulary::{TokenVocabulary, TokenVocabularyState, VocabularyOrder};
