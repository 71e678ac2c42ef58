//! Words of other tools, and what they are called here.

/// Words of pandas, scikit-learn, Spark and SQL, with the words of specs for the same.
const SYNONYMS: &[(&str, &str)] = &[
    ("average", "mean"),
    ("avg", "mean"),
    ("stddev", "std"),
    ("std_dev", "std"),
    ("stdev", "std"),
    ("variance", "var"),
    ("maximum", "max"),
    ("minimum", "min"),
    ("total", "sum"),
    ("distinct", "n_unique"),
    ("count_distinct", "n_unique"),
    ("nunique", "n_unique"),
    ("approx_distinct", "approx_n_unique"),
    ("approx_count_distinct", "approx_n_unique"),
    ("size", "count"),
    ("normalise", "standardize"),
    ("normalize", "standardize"),
    ("zscore", "standardize"),
    ("z_score", "standardize"),
    ("standard_scaler", "standardize"),
    ("scale", "min_max"),
    ("minmax", "min_max"),
    ("min_max_scaler", "min_max"),
    ("shift", "lag"),
    ("window", "rolling"),
    ("moving_average", "rolling"),
    ("groupby", "aggregate"),
    ("group_by", "aggregate"),
    ("fillna", "impute"),
    ("fill_null", "impute"),
    ("ffill", "fill_forward"),
    ("merge", "join"),
    ("merge_asof", "as_of_join"),
    ("asof_join", "as_of_join"),
    ("where", "filter"),
    ("map", "derive"),
    ("mutate", "derive"),
    ("assign", "derive"),
    ("with_columns", "derive"),
    ("astype", "cast"),
    ("drop_duplicates", "dedupe"),
    ("unique", "dedupe"),
    ("get_dummies", "one_hot"),
    ("label_encode", "vocabulary"),
    ("label_encoder", "vocabulary"),
    ("ordinal_encoder", "ordinal"),
    ("cut", "bucketize"),
    ("qcut", "bucketize"),
    ("discretize", "bucketize"),
    ("hash", "hash_bucket"),
    ("log", "log1p"),
    ("winsorize", "clip"),
    ("json_lines", "json"),
    ("jsonl", "json"),
    ("ndjson", "json"),
    ("feather", "arrow"),
    ("ipc", "arrow"),
    ("tsv", "csv"),
    ("xgboost", "gbdt"),
    ("lightgbm", "gbdt"),
    ("catboost", "gbdt"),
    ("lr", "learning_rate"),
    ("n_epochs", "epochs"),
    ("batch_size", "batch_rows"),
];

/// What another tool's word is called among these words.
pub(super) fn synonym<'w>(word: &str, words: &[&'w str]) -> Option<String> {
    let lower = word.to_lowercase();
    let meant = SYNONYMS
        .iter()
        .filter(|(known, _)| *known == lower)
        .find_map(|(_, meant)| {
            words
                .iter()
                .find(|word| *word == meant)
                .map(|word: &&'w str| (*word).to_owned())
        });
    meant.or_else(|| quantile(&lower).filter(|_| words.contains(&"quantile")))
}

/// `quantile: 0.9` for `q90` and `p90`.
fn quantile(word: &str) -> Option<String> {
    let digits = word.strip_prefix(['q', 'p'])?;
    let percent: u32 = digits.parse().ok().filter(|percent| *percent < 100)?;
    Some(format!("quantile: {}", f64::from(percent) / 100.0))
}
