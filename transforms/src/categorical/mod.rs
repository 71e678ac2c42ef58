//! Text and other categories: ids, indicator vectors, hashes.

mod cross;
mod frequency_encoding;
mod group_rare;
mod hash_bucket;
mod multi_hot;
mod one_hot;
mod ordinal;
mod target_encoding;
mod vocabulary;

pub use cross::{FeatureCross, cross};
pub use frequency_encoding::{CategoryFrequency, FrequencyEncoding, frequency_encoding};
pub use group_rare::{GroupRare, group_rare};
pub use hash_bucket::{BucketHash, HashBucket, hash_bucket};
pub use multi_hot::{MultiHot, multi_hot};
pub use one_hot::{OneHot, OneHotLayout, one_hot};
pub(crate) use one_hot::{vector_array, vector_field};
pub use ordinal::{OrdinalEncoder, UnknownPolicy, ordinal};
pub use target_encoding::{
    CrossFit, TargetEncoding, TargetSmoothing, TargetStatistic, target_encoding,
};
pub(crate) use vocabulary::with_element_type;
pub use vocabulary::{IdType, TokenOrder, VocabularyEncoder, vocabulary};
