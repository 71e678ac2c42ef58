//! Terms of other tools, and the equivalent terms in specs.

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
    ("zscore", "standardize"),
    ("z_score", "standardize"),
    ("scale", "min_max"),
    ("minmax", "min_max"),
    ("asof_join", "as_of_join"),
    ("label_encode", "vocabulary"),
    ("discretize", "bucketize"),
    ("hash", "hash_bucket"),
    ("log", "log1p"),
    ("winsorize", "clip"),
    ("variance_threshold", "keep_best"),
    ("select_k_best", "keep_best"),
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
    // Types of columns and of parameters.
    ("text", "string"),
    ("str", "string"),
    ("varchar", "string"),
    ("utf8", "string"),
    ("int", "int64"),
    ("int", "integer"),
    ("integer", "int64"),
    ("long", "int64"),
    ("bigint", "int64"),
    ("float", "float64"),
    ("float", "number"),
    ("double", "float64"),
    ("double", "number"),
    ("bool", "boolean"),
    ("datetime", "timestamp"),
];

/// The word among `words` that means the same as another tool's word.
pub(super) fn synonym(word: &str, words: &[&str]) -> Option<String> {
    let lower = word.to_lowercase();
    for (synonym, meant) in SYNONYMS {
        if *synonym == lower && words.contains(meant) {
            return Some((*meant).to_owned());
        }
    }
    // `p90` and the like are written as a quantile.
    if words.contains(&"quantile") {
        return quantile(&lower);
    }
    None
}

/// `quantile: 0.9` for `q90` and `p90`.
fn quantile(word: &str) -> Option<String> {
    let digits = word.strip_prefix(['q', 'p'])?;
    let percent: u32 = digits.parse().ok().filter(|percent| *percent < 100)?;
    Some(format!("quantile: {}", f64::from(percent) / 100.0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn types_have_the_names_of_specs() {
        let columns = ["int64", "float64", "string", "boolean", "timestamp"];
        let parameters = ["string", "integer", "number", "boolean", "timestamp"];
        for (word, of_column, of_parameter) in [
            ("text", "string", "string"),
            ("INT", "int64", "integer"),
            ("double", "float64", "number"),
            ("bool", "boolean", "boolean"),
            ("datetime", "timestamp", "timestamp"),
        ] {
            assert_eq!(synonym(word, &columns).as_deref(), Some(of_column));
            assert_eq!(synonym(word, &parameters).as_deref(), Some(of_parameter));
        }
    }
}
