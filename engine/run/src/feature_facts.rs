//! Columns of batches as facts for the checks of a plan.

use forebay_feed::{FeatureColumn, FeedConfig};
use forebay_plan::FeatureFacts;

/// Facts of the columns that batches of a configuration have.
pub(crate) fn batch_facts(config: &FeedConfig) -> FeatureFacts {
    FeatureFacts {
        dense: config.dense.as_deref().map(column_names),
        categorical: config.categorical.as_deref().map(column_names),
        extra: config.beside.clone(),
        label: config.label.as_ref().map(column_name),
        weight: config.weight.as_ref().map(column_name),
        replaces_missing: config.missing.is_some(),
        strategy: None,
    }
}

fn column_names(columns: &[FeatureColumn]) -> Vec<String> {
    columns.iter().map(column_name).collect()
}

fn column_name(column: &FeatureColumn) -> String {
    column.column().to_owned()
}

#[cfg(test)]
mod tests {
    use forebay_feed::DetailedFeature;

    use super::*;

    fn names(names: &[&str]) -> Vec<String> {
        names.iter().map(|name| (*name).to_owned()).collect()
    }

    #[test]
    fn a_configuration_without_columns_leaves_the_choice_open() {
        assert_eq!(batch_facts(&FeedConfig::default()), FeatureFacts::default());
    }

    #[test]
    fn columns_are_named_with_and_without_details() {
        let prices = DetailedFeature {
            column: "prices".to_owned(),
            width: Some(7),
            missing: None,
        };
        let config = FeedConfig {
            dense: Some(vec!["price".into(), FeatureColumn::Detailed(prices)]),
            categorical: Some(Vec::new()),
            beside: names(&["store"]),
            label: Some("qty".into()),
            weight: Some("share".into()),
            missing: Some(0.0),
            ..FeedConfig::default()
        };
        let expected = FeatureFacts {
            dense: Some(names(&["price", "prices"])),
            categorical: Some(Vec::new()),
            extra: names(&["store"]),
            label: Some("qty".to_owned()),
            weight: Some("share".to_owned()),
            replaces_missing: true,
            strategy: None,
        };
        assert_eq!(batch_facts(&config), expected);
    }
}
