//! Parts that several transforms share.

mod by_key;
mod farm_fingerprint;
mod key_values;
mod keys;
mod lists;
mod marked_values;
mod names;
mod numbers;
mod packed_index;
mod portable_keys;
mod quantile;
mod tokens;

pub(crate) use by_key::{KeyedMoments, MomentScaler, keyed_moments, scale_by_moments};
pub(crate) use farm_fingerprint::farm_fingerprint;
pub(crate) use keys::KeyIndex;
pub(crate) use lists::{RowTexts, each_element, element_field, is_text_or_list, large_lists};
pub(crate) use marked_values::{mark_numberless, mark_outside, mark_values};
pub(crate) use names::{
    bad_value, finding_at, output_field, output_name, refuse_repeated_categories,
};
pub(crate) use numbers::{doubles, float_type, map_doubles, map_doubles_with_row, to_float_type};
pub(crate) use portable_keys::{portable_by_keys, portable_keys};
pub(crate) use quantile::{ask_quantiles, ask_weighted_quantiles, check_weight};
pub(crate) use tokens::{DictionaryCache, TokenIndex, gather_ids, murmur3, scaled_hash};
