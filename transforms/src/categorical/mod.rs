//! Text and other categories: ids, indicator vectors, hashes.

mod cross;
mod hash_bucket;
mod multi_hot;
mod one_hot;
mod ordinal;
mod vocabulary;

pub use cross::Cross;
pub use hash_bucket::HashBucket;
pub use multi_hot::MultiHot;
pub use one_hot::{OneHot, OneHotAs};
pub use ordinal::{Ordinal, Unknown};
pub use vocabulary::{IdType, Order, Vocabulary};
