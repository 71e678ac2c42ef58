//! Analyzers: questions about the whole data whose answers merge.
//!
//! Every state here is a function of the multiset of rows alone. Its bytes are therefore the same
//! for any batch size, thread count, span cut, row-group size and order of files. Sums are exact,
//! counts spill to disk, samples are chosen by row keys.

mod bins;
mod count;
mod exact;
mod moment;
mod moments;
mod natural;
mod numbers;

pub use count::{Counts, CountsState};
pub use moments::{Moments, MomentsState};
