//! What several transforms need.

mod by_key;
mod keys;
mod lists;
mod names;
mod numbers;
mod quantile;
mod tokens;

pub(crate) use by_key::{KeyedMoments, scale_by_moments};
pub(crate) use keys::KeyIndex;
pub(crate) use lists::{each_element, element_field, is_text_or_list};
pub(crate) use names::{
    bad_value, finding_at, output_field, output_name, refuse_repeated_categories,
};
pub(crate) use numbers::{doubles, float_type, map_doubles, map_doubles_with_row, to_float_type};
pub(crate) use quantile::ask_quantiles;
pub(crate) use tokens::{DictionaryCache, TokenIndex, gather_ids, scaled_hash};
