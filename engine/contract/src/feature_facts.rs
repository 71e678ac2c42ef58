//! Facts of a training or a feed that the checks of a plan judge by.

use forebay_feed::{FeatureColumn, FeedConfig};

/// Facts of a training or a feed that decide which columns its model takes. The type that owns the
/// configuration gives them: the plan reads no setting of a trainer.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct FeatureFacts {
    /// Features that are numbers, as names or patterns; all columns of numbers if `None`.
    pub dense: Option<Vec<String>>,
    /// Features that are ids, as names or patterns; all columns of ids if `None`.
    pub categorical: Option<Vec<String>>,
    /// Columns that the model takes in addition to its features, such as those of its groups.
    pub extra: Vec<String>,
    /// The predicted column; that of the pipeline's label if `None`.
    pub label: Option<String>,
    /// The column with the weight of each row.
    pub weight: Option<String>,
    /// True if missing numbers are replaced by a value.
    pub replaces_missing: bool,
    /// Division of the horizon among models; `None` if features are known for all of it.
    pub strategy: Option<StepStrategy>,
}

/// Division of the horizon's steps by a training, where its features need only be known one step
/// ahead.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StepStrategy {
    /// A model for each step.
    PerStep,
    /// One model, whose predictions of a step are values of the label for the next.
    Recursive,
}

impl StepStrategy {
    /// Word of the setting.
    pub fn word(self) -> &'static str {
        match self {
            StepStrategy::PerStep => "per_step",
            StepStrategy::Recursive => "recursive",
        }
    }
}

/// True for an item of a selection that stands for any number of columns.
pub fn is_pattern(item: &str) -> bool {
    item.contains('*') || item.starts_with("type:")
}

/// Facts of the columns that batches of a configuration have.
pub fn batch_facts(config: &FeedConfig) -> FeatureFacts {
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
