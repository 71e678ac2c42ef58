//! Text and other categories: ids, indicator vectors, hashes.

mod cross;
mod hash_bucket;
mod multi_hot;
mod one_hot;
mod ordinal;
mod vocabulary;

pub use cross::FeatureCross;
pub use hash_bucket::HashBucket;
pub use multi_hot::MultiHot;
pub use one_hot::{OneHot, OneHotLayout};
pub use ordinal::{OrdinalEncoder, UnknownPolicy};
pub use vocabulary::{IdType, TokenOrder, VocabularyEncoder};
