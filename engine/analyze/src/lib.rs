//! Analyzers: mergeable aggregates over the whole data.
//!
//! Every state here is a function of the multiset of rows alone. Its bytes are therefore the same for any batch
//! size, thread count, division into spans, row-group size and order of files. Sums are exact, counts spill to
//! disk, and samples are chosen by row keys.

mod batch_codes;
mod biguint;
mod category_association;
mod column_correlation;
mod column_examples;
mod column_moments;
mod count;
mod dictionary_counts;
mod exact_quantiles;
mod exact_sum;
mod exponent_bins;
mod first_rows;
mod group_by;
mod group_keys;
mod grouped_moments;
mod histogram;
mod hyperloglog;
mod interner;
mod key_range;
mod latest_rows;
pub mod laws;
mod moment_accumulator;
mod numeric_column;
mod pair_counts;
mod part_counts;
mod profile_limits;
mod quantile_request;
mod ranking;
mod sampled_quantiles;
mod series_shape;
mod short_key_map;
mod spill_map;
mod spill_runs;
mod text_index;
mod value_examples;
mod value_shape;
mod vocabulary;

pub use category_association::{CategoryAssociation, CategoryAssociationState};
pub use column_correlation::{ColumnCorrelation, ColumnCorrelationState};
pub use column_examples::{ColumnExamples, ColumnExamplesState};
pub use column_moments::{ColumnMoments, ColumnMomentsState};
pub use count::{ColumnCounts, ColumnCountsState};
pub use exact_quantiles::{ExactQuantiles, ExactQuantilesState};
pub use first_rows::{FileRowKeys, FirstRows, FirstRowsState};
pub use group_by::{GroupByAnalyzer, GroupByState, SortedGroups};
pub use grouped_moments::{GroupedMoments, GroupedMomentsState};
pub use histogram::{Histogram, HistogramState};
pub use hyperloglog::{DistinctCount, DistinctCountState};
pub use key_range::{KeyRange, KeyRangeState};
pub use latest_rows::{LatestRows, LatestRowsState};
pub use moment_accumulator::MomentAccumulator;
pub use part_counts::{PartCounts, PartCountsState};
pub use profile_limits::{PROFILE_FREQUENT_VALUES, PROFILE_QUANTILE_PARTS};
pub use quantile_request::QuantileRequest;
pub use sampled_quantiles::{SampledQuantiles, SampledQuantilesState};
pub use series_shape::{SeriesShape, SeriesShapeState};
pub use text_index::TextIndex;
pub use value_shape::{ValueShape, ValueShapeState};
pub use vocabulary::{TokenVocabulary, TokenVocabularyState, VocabularyOrder, continue_vocabulary};
