//! Profiles of other tools: options that together give a tool's numbers and names.

use schemars::JsonSchema;
use serde::Deserialize;

use super::node::{YamlData, YamlKey, YamlNode};

/// A tool whose numbers and names transforms give where tools differ. It sets options of transforms; options that a
/// transform has in the spec stay. Transforms without such an option are as ever.
#[derive(Debug, Clone, Copy, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[schemars(rename = "Compat")]
pub(super) enum YamlCompat {
    /// tf.Transform.
    Tft,
    /// scikit-learn.
    Sklearn,
    /// NVTabular.
    Nvtabular,
    /// mlforecast.
    Mlforecast,
    /// Spark's ML.
    Spark,
}

/// An option of transforms that a profile sets.
struct ProfileOption {
    profile: &'static str,
    transforms: &'static [&'static str],
    field: &'static str,
    value: OptionValue,
    /// A field beside which the option has no meaning.
    unless: Option<&'static str>,
}

/// The value of an option.
#[derive(Clone, Copy)]
enum OptionValue {
    Word(&'static str),
    Whole(u32),
    No,
}

impl OptionValue {
    fn data(self) -> YamlData {
        match self {
            OptionValue::Word(word) => YamlData::Text(word.to_owned()),
            OptionValue::Whole(number) => YamlData::Number(number.into()),
            OptionValue::No => YamlData::Bool(false),
        }
    }
}

const fn option(
    profile: &'static str,
    transforms: &'static [&'static str],
    field: &'static str,
    value: OptionValue,
) -> ProfileOption {
    ProfileOption {
        profile,
        transforms,
        field,
        value,
        unless: None,
    }
}

/// All options. The page *Coming from other tools* lists them.
const OPTIONS: [ProfileOption; 13] = [
    ProfileOption {
        unless: Some("seed"),
        ..option("tft", &["hash_bucket"], "hash", OptionValue::Word("farm"))
    },
    option("tft", &["tf_idf"], "counts", OptionValue::Word("share")),
    option("tft", &["tf_idf"], "norm", OptionValue::Word("none")),
    option(
        "sklearn",
        &["standardize"],
        "zero_variance",
        OptionValue::Word("zero"),
    ),
    option(
        "sklearn",
        &["min_max"],
        "zero_range",
        OptionValue::Word("lower"),
    ),
    option(
        "sklearn",
        &["vocabulary"],
        "order",
        OptionValue::Word("value"),
    ),
    ProfileOption {
        unless: Some("spread"),
        ..option("nvtabular", &["standardize"], "ddof", OptionValue::Whole(1))
    },
    option(
        "mlforecast",
        &["lag", "rolling", "seasonal_rolling", "expanding", "ewm"],
        "names",
        OptionValue::Word("mlforecast"),
    ),
    ProfileOption {
        unless: Some("half_life"),
        ..option("mlforecast", &["ewm"], "adjust", OptionValue::No)
    },
    ProfileOption {
        unless: Some("spread"),
        ..option("spark", &["standardize"], "ddof", OptionValue::Whole(1))
    },
    option(
        "spark",
        &["standardize"],
        "zero_variance",
        OptionValue::Word("zero"),
    ),
    option(
        "spark",
        &["min_max"],
        "zero_range",
        OptionValue::Word("middle"),
    ),
    option(
        "spark",
        &["vocabulary"],
        "order",
        OptionValue::Word("count_then_value"),
    ),
];

/// Adds the options of the profiles that the spec and its steps name. The profile of a step replaces that of the spec.
pub(super) fn add_options(root: &mut YamlNode) {
    let spec_profile = profile_of(root);
    let Some(YamlData::Map(steps)) = field_mut(root, "steps") else {
        return;
    };
    for (_, step) in steps {
        let Some(profile) = profile_of(step).or_else(|| spec_profile.clone()) else {
            continue;
        };
        let Some(YamlData::List(items)) = field_mut(step, "do") else {
            continue;
        };
        for item in items {
            add_to_item(item, &profile);
        }
    }
}

/// The profile that a spec or step names.
fn profile_of(node: &YamlNode) -> Option<String> {
    node.get("compat")?.text().map(str::to_owned)
}

/// The value of a field of a map.
fn field_mut<'n>(node: &'n mut YamlNode, name: &str) -> Option<&'n mut YamlData> {
    let YamlData::Map(entries) = &mut node.data else {
        return None;
    };
    let entry = entries.iter_mut().find(|(key, _)| key.text == name);
    entry.map(|(_, value)| &mut value.data)
}

/// Adds the options of a profile to an item of `do:`. An item that is no map with one key is reported by the check.
fn add_to_item(item: &mut YamlNode, profile: &str) {
    let YamlData::Map(entries) = &mut item.data else {
        return;
    };
    let [(key, config)] = entries.as_mut_slice() else {
        return;
    };
    for profile_option in &OPTIONS {
        let is_of_profile = profile_option.profile == profile
            && profile_option.transforms.contains(&key.text.as_str());
        let is_written = config.get(profile_option.field).is_some();
        let is_moot = profile_option
            .unless
            .is_some_and(|field| config.get(field).is_some());
        if !is_of_profile || is_written || is_moot {
            continue;
        }
        if let YamlData::Map(fields) = &mut config.data {
            // Where a fault is about the option, it shows the transform.
            let field = YamlKey {
                text: profile_option.field.to_owned(),
                mark: key.mark,
            };
            let value = YamlNode {
                data: profile_option.value.data(),
                mark: key.mark,
            };
            fields.push((field, value));
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use serde_json::Value;

    use super::*;
    use crate::{Forebay, spec};

    /// The page that lists the options.
    const PAGE: &str = include_str!("../../docs/coming-from/index.md");

    /// The configurations of a step's transforms. Both fields are lines of the spec, or nothing.
    fn configs(spec_field: &str, step_field: &str, items: &[&str]) -> Vec<Value> {
        let mut text = format!(
            "version: 1\nname: shop\n{spec_field}\
             sources: {{ sales: {{ parquet: {{ path: sales }}, time: date, keys: [item] }} }}\n\
             steps:\n  features:\n    from: sales\n{step_field}    do:\n"
        );
        for item in items {
            text.push_str(&format!("      - {item}\n"));
        }
        let forebay = Forebay::new();
        let parsed = spec::parse(
            &text,
            "shop.yaml",
            &BTreeMap::new(),
            &forebay.spec_catalog(),
        );
        let pipeline = parsed.unwrap_or_else(|fault| panic!("{text}{fault}"));
        let steps = &pipeline.nodes[0].steps;
        steps.iter().map(|step| step.config.clone()).collect()
    }

    /// A profile, an item of `do:`, and the item with the options of the profile.
    const CASES: [(&str, &str, &str); 19] = [
        (
            "tft",
            "hash_bucket: { columns: [item], buckets: 9 }",
            "hash_bucket: { columns: [item], buckets: 9, hash: farm }",
        ),
        (
            "tft",
            "tf_idf: { columns: [words] }",
            "tf_idf: { columns: [words], counts: share, norm: none }",
        ),
        (
            "tft",
            "standardize: { columns: [price] }",
            "standardize: { columns: [price] }",
        ),
        (
            "sklearn",
            "standardize: { columns: [price] }",
            "standardize: { columns: [price], zero_variance: zero }",
        ),
        (
            "sklearn",
            "min_max: { columns: [price] }",
            "min_max: { columns: [price], zero_range: lower }",
        ),
        (
            "sklearn",
            "vocabulary: { columns: [item] }",
            "vocabulary: { columns: [item], order: value }",
        ),
        (
            "nvtabular",
            "standardize: { columns: [price] }",
            "standardize: { columns: [price], ddof: 1 }",
        ),
        (
            "mlforecast",
            "lag: { columns: [qty], by: [7d] }",
            "lag: { columns: [qty], by: [7d], names: mlforecast }",
        ),
        (
            "mlforecast",
            "rolling: { columns: [qty], compute: [mean], over: [7d] }",
            "rolling: { columns: [qty], compute: [mean], over: [7d], names: mlforecast }",
        ),
        (
            "mlforecast",
            "seasonal_rolling: { columns: [qty], compute: [mean], season: 7d, over: [4] }",
            "seasonal_rolling: { columns: [qty], compute: [mean], season: 7d, over: [4], \
             names: mlforecast }",
        ),
        (
            "mlforecast",
            "expanding: { columns: [qty], compute: [mean] }",
            "expanding: { columns: [qty], compute: [mean], names: mlforecast }",
        ),
        (
            "mlforecast",
            "ewm: { columns: [qty], compute: [mean], alpha: 0.3 }",
            "ewm: { columns: [qty], compute: [mean], alpha: 0.3, names: mlforecast, \
             adjust: false }",
        ),
        (
            "spark",
            "standardize: { columns: [price] }",
            "standardize: { columns: [price], ddof: 1, zero_variance: zero }",
        ),
        (
            "spark",
            "min_max: { columns: [price] }",
            "min_max: { columns: [price], zero_range: middle }",
        ),
        (
            "spark",
            "vocabulary: { columns: [item] }",
            "vocabulary: { columns: [item], order: count_then_value }",
        ),
        // Options that are written stay.
        (
            "spark",
            "min_max: { columns: [price], zero_range: sigmoid }",
            "min_max: { columns: [price], zero_range: sigmoid }",
        ),
        // Options that have no meaning beside others are left out.
        (
            "spark",
            "standardize: { columns: [price], spread: range }",
            "standardize: { columns: [price], spread: range, zero_variance: zero }",
        ),
        (
            "mlforecast",
            "ewm: { columns: [qty], compute: [mean], half_life: 7d }",
            "ewm: { columns: [qty], compute: [mean], half_life: 7d, names: mlforecast }",
        ),
        (
            "tft",
            "hash_bucket: { columns: [item], buckets: 9, seed: 3 }",
            "hash_bucket: { columns: [item], buckets: 9, seed: 3 }",
        ),
    ];

    #[test]
    fn a_profile_sets_what_is_not_written() {
        for (profile, item, written) in CASES {
            let expected = configs("", "", &[written]);
            let field = format!("compat: {profile}\n");
            assert_eq!(configs(&field, "", &[item]), expected, "{profile}: {item}");
            let step_field = format!("    {field}");
            assert_eq!(
                configs("", &step_field, &[item]),
                expected,
                "{profile}: {item}"
            );
            // The profile of the step counts.
            let other = if profile == "tft" { "spark" } else { "tft" };
            let other_field = format!("compat: {other}\n");
            assert_eq!(
                configs(&other_field, &step_field, &[item]),
                expected,
                "{profile}: {item}"
            );
        }
    }

    #[test]
    fn a_profile_is_for_each_item() {
        let items = [
            "standardize: { columns: [price] }",
            "log1p: { columns: [qty] }",
            "filter: \"qty > 0\"",
            "min_max: { columns: [qty] }",
        ];
        let written = [
            "standardize: { columns: [price], zero_variance: zero }",
            items[1],
            items[2],
            "min_max: { columns: [qty], zero_range: lower }",
        ];
        let expected = configs("", "", &written);
        assert_eq!(configs("compat: sklearn\n", "", &items), expected);
    }

    #[test]
    fn every_option_is_tried_and_listed() {
        for profile_option in &OPTIONS {
            let ProfileOption { profile, field, .. } = profile_option;
            let value = match profile_option.value {
                OptionValue::Word(word) => word.to_owned(),
                OptionValue::Whole(number) => number.to_string(),
                OptionValue::No => "false".to_owned(),
            };
            let setting = format!("{field}: {value}");
            let begin = format!("| `compat: {profile}` |");
            let row = PAGE.lines().find(|line| line.starts_with(&begin));
            let row = row.unwrap_or_else(|| panic!("no row `{begin}`"));
            assert!(row.contains(&setting), "{row} {setting}");
            for transform in profile_option.transforms {
                assert!(row.contains(&format!("`{transform}")), "{row} {transform}");
                let is_tried = CASES.iter().any(|(tried_profile, item, written)| {
                    tried_profile == profile
                        && item.starts_with(&format!("{transform}: "))
                        && written.contains(&setting)
                });
                assert!(is_tried, "{profile}: {transform} {setting}");
            }
        }
    }

    #[test]
    fn an_unknown_profile_is_refused() {
        let text = "version: 1\nname: shop\ncompat: sklern\n\
                    sources: { sales: { parquet: { path: sales } } }\n";
        let forebay = Forebay::new();
        let parsed = spec::parse(text, "shop.yaml", &BTreeMap::new(), &forebay.spec_catalog());
        let fault = parsed.unwrap_err();
        assert!(fault.to_string().contains("`compat`"), "{fault}");
    }
}
