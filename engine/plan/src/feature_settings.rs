//! Settings of a training or a feed that name columns of its rows.

use forebay_model::{Pipeline, PipelineFeed, PipelineSink};
use serde_json::Value;

/// Settings of a training or a feed that decide which columns its model takes. The plan reads no
/// other settings of them, and reads these here only: their names are part of the contract of a
/// trainer's configuration.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct FeatureSettings {
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

/// Settings with lists of columns that a model takes in addition to its features.
const EXTRA: [&str; 2] = ["by", "beside"];

impl FeatureSettings {
    /// Settings of a training.
    pub fn of_training(training: &PipelineSink) -> FeatureSettings {
        FeatureSettings::read(&training.config)
    }

    /// Settings of a feed.
    pub fn of_feed(feed: &PipelineFeed) -> FeatureSettings {
        FeatureSettings::read(&feed.config)
    }

    fn read(config: &Value) -> FeatureSettings {
        let mut extra = Vec::new();
        for setting in EXTRA {
            extra.extend(column_names(&config[setting]).into_iter().flatten());
        }
        extra.extend(column_name(&config["fallback"]["column"]));
        FeatureSettings {
            dense: column_names(&config["dense"]),
            categorical: column_names(&config["categorical"]),
            extra,
            label: column_name(&config["label"]),
            weight: column_name(&config["weight"]),
            replaces_missing: !config["missing"].is_null(),
            strategy: config["strategy"].as_str().and_then(StepStrategy::parse),
        }
    }
}

/// Columns of a setting that is a list of them.
fn column_names(setting: &Value) -> Option<Vec<String>> {
    let items = setting.as_array()?;
    Some(items.iter().filter_map(column_name).collect())
}

/// Column of a setting: its name, or a map with `column`.
fn column_name(item: &Value) -> Option<String> {
    let name = item.as_str().or_else(|| item["column"].as_str());
    name.map(str::to_owned)
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
    /// Strategy of a training; `None` if its features are known for the whole horizon.
    pub fn of(training: &PipelineSink) -> Option<StepStrategy> {
        FeatureSettings::of_training(training).strategy
    }

    /// Strategy by which the rows of a feed are judged: they may have what a training on them may
    /// have.
    pub fn of_feed(pipeline: &Pipeline, from: &str) -> Option<StepStrategy> {
        for training in &pipeline.trainings {
            if training.from == from && StepStrategy::of(training).is_some() {
                return Some(StepStrategy::PerStep);
            }
        }
        None
    }

    /// Word of the setting.
    pub(crate) fn word(self) -> &'static str {
        match self {
            StepStrategy::PerStep => "per_step",
            StepStrategy::Recursive => "recursive",
        }
    }

    fn parse(word: &str) -> Option<StepStrategy> {
        let strategies = [StepStrategy::PerStep, StepStrategy::Recursive];
        strategies
            .into_iter()
            .find(|strategy| strategy.word() == word)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn names(names: &[&str]) -> Vec<String> {
        names.iter().map(|name| (*name).to_owned()).collect()
    }

    #[test]
    fn settings_without_columns_leave_the_choice_open() {
        for config in [json!({}), json!(null), json!({ "strategy": "direct" })] {
            assert_eq!(FeatureSettings::read(&config), FeatureSettings::default());
        }
    }

    #[test]
    fn columns_are_names_or_maps_with_a_column() {
        let config = json!({
            "dense": ["price", { "column": "prices", "width": 7 }],
            "categorical": [],
            "by": ["store"],
            "beside": ["week"],
            "fallback": { "column": "qty_lag_7d" },
            "label": { "column": "qty" },
            "weight": "weight",
            "missing": 0.0,
            "strategy": "recursive",
        });
        let expected = FeatureSettings {
            dense: Some(names(&["price", "prices"])),
            categorical: Some(Vec::new()),
            extra: names(&["store", "week", "qty_lag_7d"]),
            label: Some("qty".to_owned()),
            weight: Some("weight".to_owned()),
            replaces_missing: true,
            strategy: Some(StepStrategy::Recursive),
        };
        assert_eq!(FeatureSettings::read(&config), expected);
    }

    #[test]
    fn other_fallbacks_name_no_column() {
        let settings = FeatureSettings::read(&json!({ "fallback": "parent" }));
        assert_eq!(settings.extra, names(&[]));
    }
}
