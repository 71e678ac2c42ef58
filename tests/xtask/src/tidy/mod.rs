//! `cargo xtask tidy`: rules about code that neither the compiler nor Clippy knows.
//!
//! Breaches of a rule are counted by package. `tests/xtask/tidy.toml` keeps the counts of today; a count may
//! shrink and never grows. `cargo xtask bless` writes smaller counts down.

mod baseline;
mod circles;
mod figures;
mod report;
mod rules;
mod source_file;
mod walls;

use std::collections::BTreeMap;

use clap::Args;

use crate::workspace::{self, Outcome, Package};
use baseline::Baseline;
use figures::Figures;
use source_file::SourceFile;

#[derive(Args)]
pub struct TidyArguments {
    /// Prints the figures of each package
    #[arg(long)]
    report: bool,
    /// Prints each place that breaks this rule, as `tuple_lets`; for `circle` the imports within the largest one
    #[arg(long, value_name = "RULE")]
    list: Option<String>,
    /// Writes the counts of the checkout as those that must not grow
    #[arg(long)]
    bless: bool,
}

pub fn run(arguments: &TidyArguments) -> Outcome<()> {
    let house = House::read()?;
    if arguments.report {
        report::print(&house);
        return Ok(());
    }
    if let Some(rule) = &arguments.list {
        return list_breaches(&house, rule);
    }
    if arguments.bless {
        return Baseline::of(&house).write();
    }
    check_house(&house)
}

/// Fails where a count grew or a package depends on one that it must not know.
pub fn check() -> Outcome<()> {
    check_house(&House::read()?)
}

/// Writes the counts of the checkout as those that must not grow.
pub fn write_baseline() -> Outcome<()> {
    let house = House::read()?;
    Baseline::of(&house).write()
}

/// The product code of the workspace.
struct House {
    /// Files by the folder of their package
    files: BTreeMap<String, Vec<SourceFile>>,
    packages: Vec<Package>,
}

impl House {
    fn read() -> Outcome<House> {
        let packages = Package::all()?;
        let mut files: BTreeMap<String, Vec<SourceFile>> = BTreeMap::new();
        for path in workspace::rust_files()? {
            let folder = package_folder(&packages, &path);
            let file = SourceFile::read(&path)?;
            files.entry(folder).or_default().push(file);
        }
        Ok(House { files, packages })
    }

    fn figures(&self) -> BTreeMap<String, Figures> {
        let mut by_package = BTreeMap::new();
        for (folder, files) in &self.files {
            let mut figures = Figures::default();
            for file in files {
                figures.add(file);
            }
            by_package.insert(folder.clone(), figures);
        }
        by_package
    }
}

/// Folder of the package that the file belongs to: the longest one that the path begins with.
fn package_folder(packages: &[Package], path: &str) -> String {
    let mut longest = String::new();
    for package in packages {
        let folder = package.folder();
        if path.starts_with(&format!("{folder}/")) && folder.len() > longest.len() {
            longest = folder;
        }
    }
    // Files of no package of the workspace are whole jobs and examples of the facade.
    if longest.is_empty() {
        "tests".to_owned()
    } else {
        longest
    }
}

fn check_house(house: &House) -> Outcome<()> {
    let mut problems = walls::problems(&house.packages);
    let today = Baseline::of(house);
    problems.extend(today.problems_beside(&Baseline::read()?));
    if problems.is_empty() {
        return Ok(());
    }
    for problem in &problems {
        anstream::eprintln!("{problem}");
    }
    Err(format!("{} problems", problems.len()))
}

fn list_breaches(house: &House, rule: &str) -> Outcome<()> {
    if rule == "circle" {
        list_circles(house);
        return Ok(());
    }
    if !rules::NAMES.contains(&rule) {
        return Err(format!(
            "there is no rule `{rule}`; there are circle, {}",
            rules::NAMES.join(", ")
        ));
    }
    for files in house.files.values() {
        for file in files {
            for breach in rules::breaches(file) {
                if breach.rule == rule {
                    anstream::println!("{}:{}: {}", file.path, breach.line, breach.text);
                }
            }
        }
    }
    Ok(())
}

/// Prints the imports within the largest circle of each package.
fn list_circles(house: &House) {
    for files in house.files.values() {
        for import in circles::imports_of_largest(files) {
            anstream::println!("{import}");
        }
    }
}
