//! Text and other categories: ids, indicator vectors, hashes.

mod cross;
mod hash_bucket;
mod multi_hot;
mod one_hot;
mod ordinal;
mod vocabulary;

pub use cross::{FeatureCross, cross};
pub use hash_bucket::{HashBucket, hash_bucket};
pub use multi_hot::{MultiHot, multi_hot};
pub use one_hot::{OneHot, OneHotLayout, one_hot};
pub use ordinal::{OrdinalEncoder, UnknownPolicy, ordinal};
pub use vocabulary::{IdType, TokenOrder, VocabularyEncoder, vocabulary};
