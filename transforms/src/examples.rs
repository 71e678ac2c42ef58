//! An example of each transform: a spec with tests, which hold the rows in and the rows out.

/// Names of transforms, each with the text of its file in `examples`.
macro_rules! examples {
    ($($name:literal)*) => {
        &[$(($name, include_str!(concat!("../examples/", $name, ".yaml")))),*]
    };
}

/// The examples by the names of their transforms. `forebay test` runs each file.
pub const TRANSFORM_EXAMPLES: &[(&str, &str)] = examples! {
    "aggregate" "apply_buckets" "as_of_join" "bag_of_tokens" "bucketize" "calendar" "cast" "clip"
    "command" "cross" "date_parts" "dedupe" "derive" "diff" "distance" "drop" "estimator" "ewm"
    "expanding" "expect" "explode" "fill_forward" "filter" "forecast_feature" "frequency_encoding"
    "future_rows" "g_and_h" "geohash" "group_rare" "hash_bucket" "impute" "interpolate" "join"
    "k_bins" "keep_best" "knn_impute" "lag" "list_statistics" "log1p" "max_abs" "min_max"
    "missing_indicator" "multi_hot" "ngrams" "normal_quantiles" "normalize" "normalize_text"
    "one_hot" "ordinal" "pca" "pct_change" "polynomial" "pooled" "power" "profile" "python"
    "quantiles" "rename" "robust_scale" "rolling" "sample" "seasonal_index" "seasonal_rolling"
    "select" "spline" "standardize" "target" "target_encoding" "tf_idf" "violations" "vocabulary"
    "winsorize"
};
