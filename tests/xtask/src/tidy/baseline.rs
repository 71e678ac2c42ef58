//! `tests/xtask/tidy.toml`: counts that may shrink and never grow.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::path::PathBuf;

use serde::Deserialize;

use super::circles;
use super::{House, rules};
use crate::workspace::{self, Outcome};

const HEADER: &str = "\
# Breaches of the rules of `cargo xtask tidy`, by package. A count may shrink and never grows:
# `cargo xtask tidy --list RULE` names the places, `cargo xtask bless` writes the counts of the checkout.
# `circle` is the number of files in the largest circle of imports.
";

#[derive(Deserialize)]
#[serde(transparent)]
pub struct Baseline {
    /// Counts by package and rule
    counts: BTreeMap<String, BTreeMap<String, usize>>,
}

impl Baseline {
    pub fn of(house: &House) -> Baseline {
        let mut counts = BTreeMap::new();
        for (folder, figures) in house.figures() {
            if figures.files == 0 {
                continue;
            }
            let mut package_counts = BTreeMap::new();
            for rule in rules::NAMES {
                package_counts.insert(rule.to_owned(), figures.breaches_of(rule));
            }
            let circle = circles::largest(&house.files[&folder]);
            package_counts.insert("circle".to_owned(), circle);
            counts.insert(folder, package_counts);
        }
        Baseline { counts }
    }

    pub fn read() -> Outcome<Baseline> {
        let text = workspace::read(&path())?;
        toml::from_str(&text).map_err(|error| format!("{}: {error}", path().display()))
    }

    pub fn write(&self) -> Outcome<()> {
        let mut text = HEADER.to_owned();
        for (folder, package_counts) in &self.counts {
            let _ = write!(text, "\n[\"{folder}\"]\n");
            for (rule, count) in package_counts {
                if *count > 0 {
                    let _ = writeln!(text, "{rule} = {count}");
                }
            }
        }
        workspace::write(&path(), &text)
    }

    /// A sentence for each count that is larger here than in `allowed`.
    pub fn problems_beside(&self, allowed: &Baseline) -> Vec<String> {
        let mut problems = Vec::new();
        for (folder, package_counts) in &self.counts {
            for (rule, count) in package_counts {
                let allowed_count = allowed.count(folder, rule);
                if *count > allowed_count {
                    problems.push(format!(
                        "{folder}: {rule} has {count} breaches, and {allowed_count} were allowed; \
                         see `cargo xtask tidy --list {rule}`"
                    ));
                }
            }
        }
        problems
    }

    fn count(&self, folder: &str, rule: &str) -> usize {
        let package_counts = self.counts.get(folder);
        let count = package_counts.and_then(|counts| counts.get(rule));
        count.copied().unwrap_or(0)
    }
}

fn path() -> PathBuf {
    workspace::root().join("tests/xtask/tidy.toml")
}
