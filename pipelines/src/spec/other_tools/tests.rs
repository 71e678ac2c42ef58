mod public_names;

use std::collections::BTreeMap;

use self::public_names::PUBLIC_NAMES;
use super::*;
use crate::Forebay;
use crate::present::fault::{SpecText, plain};
use crate::spec;

const SPEC: &str = "\
version: 1
name: shop
sources:
  sales: { parquet: { path: sales }, time: date, keys: [store, item] }
  items: { parquet: { path: items } }
  prices: { parquet: { path: prices }, time: date }
steps:
  features:
    from: sales
    do:
";

/// The faults of a spec with this item of `do:`, as they are printed.
fn faults_of(item: &str) -> String {
    let text = format!("{SPEC}      {item}\n");
    let forebay = Forebay::new();
    let params = BTreeMap::new();
    let parsed = spec::parse_all(&text, "shop.yaml", &params, &forebay.spec_catalog()).unwrap();
    let source = SpecText {
        file: "shop.yaml",
        text: &text,
    };
    parsed
        .faults
        .iter()
        .map(|fault| plain(fault, Some(source)))
        .collect()
}

#[test]
fn every_step_of_the_table_is_one() {
    let mut count = 0;
    for name in all_names() {
        if let ForeignAnswer::Step(yaml) = name.answer {
            let faults = faults_of(yaml);
            assert!(
                faults.is_empty(),
                "{}: {:?}\n{faults}",
                name.tool,
                name.words
            );
            count += 1;
        }
    }
    assert!(count > 130, "{count} steps");
}

#[test]
fn a_name_stands_in_one_row_of_its_tool() {
    let mut rows: BTreeMap<(&str, String), Vec<&str>> = BTreeMap::new();
    for name in all_names() {
        for word in &name.words {
            let row = rows
                .entry((name.tool, bare_name(word)))
                .or_insert_with(|| name.words.clone());
            assert_eq!(*row, name.words, "{word} of {}", name.tool);
        }
    }
    assert!(rows.len() > 400, "{} names", rows.len());
}

/// No name of another tool is answered with the list of all transforms.
#[test]
fn every_name_is_answered() {
    let forebay = Forebay::new();
    let catalog = forebay.spec_catalog();
    let transforms: Vec<&str> = catalog.registry.kinds().map(|kind| kind.name).collect();
    for name in all_names() {
        for word in &name.words {
            let is_answered = transform_hint(word, &transforms).is_some() || name.is_nearly(word);
            assert!(is_answered, "{word} of {}", name.tool);
        }
    }
}

#[test]
fn check_answers_with_the_step() {
    for (item, hint) in [
        (
            "- StandardScaler: { columns: [price] }",
            "`StandardScaler` of scikit-learn is `- standardize: { columns: [price], zero_variance: zero }` here",
        ),
        (
            "- tft.scale_to_z_score: { columns: [price] }",
            "`tft.scale_to_z_score` of tf.Transform and Beam is `- standardize: { columns: [price] }` here",
        ),
        (
            "- Categorify: { columns: [item] }",
            "`Categorify` of NVTabular is `- vocabulary: ",
        ),
        (
            "- withColumn: { revenue: \"qty * price\" }",
            "`withColumn` of Spark is `- derive: { revenue: \"qty * price\" }` here",
        ),
        (
            "- fillna: { price: 0 }",
            "`fillna` of pandas is `- impute: { columns: [price], with: { constant: 0 } }` here",
        ),
        (
            "- IterativeImputer: { columns: [price] }",
            "no transform does what `IterativeImputer` of scikit-learn does: ",
        ),
        (
            "- train_test_split: { test_size: 0.2 }",
            "`train_test_split` of scikit-learn: `split: ",
        ),
        // An item that is a text.
        (
            "- StandardScaler",
            "`StandardScaler` of scikit-learn is `- standardize: ",
        ),
        (
            "- MinMaxScaler(price)",
            "`MinMaxScaler` of scikit-learn is `- min_max: ",
        ),
        (
            "- standardize(price)",
            "write `- standardize: { columns: [price] }`",
        ),
        ("- filter(qty)", "write `- filter: ...`"),
    ] {
        let faults = faults_of(item);
        assert!(faults.contains(hint), "{item}\n{faults}");
        assert!(!faults.contains("use one of"), "{faults}");
    }
}

#[test]
fn every_page_has_a_tool_and_rows_that_are_complete() {
    for page in PAGES {
        assert!(page.starts_with(TITLE));
        let rows = page.lines().filter(|line| line.starts_with("| `")).count();
        assert!(rows > 10, "{rows} rows");
    }
    for name in all_names() {
        if let ForeignAnswer::Missing = name.answer {
            assert!(!name.note.is_empty(), "{:?} of {}", name.words, name.tool);
        }
    }
}

#[test]
fn every_public_name_of_a_package_is_in_its_table() {
    for package in PUBLIC_NAMES {
        let mut unlisted = Vec::new();
        for word in package.names {
            let bare = bare_name(word);
            let is_listed =
                all_names().any(|name| name.tool == package.tool && name.has_word(&bare));
            if !is_listed {
                unlisted.push(word);
            }
        }
        assert!(unlisted.is_empty(), "{}: {unlisted:?}", package.tool);
    }
}
