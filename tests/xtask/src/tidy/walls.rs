//! Walls between packages: which member of the workspace may depend on which.

use crate::workspace::Package;

/// Packages from the ground up. A package depends on packages of earlier floors alone.
const FLOORS: [&[&str]; 12] = [
    &["forebay-model", "forebay-setters", "forebay-fuzz"],
    &[
        "forebay-analyze",
        "forebay-series",
        "forebay-threads",
        "forebay-window",
    ],
    &["forebay-feed", "forebay-storage"],
    &["forebay-contract", "forebay-device"],
    &["forebay-plan", "forebay-formats", "forebay-train"],
    &["forebay-commit", "forebay-transforms", "forebay-cluster"],
    &["forebay-execute", "forebay-delta"],
    &["forebay-run", "forebay-connectors"],
    &["forebay-generate"],
    &["forebay"],
    &["forebay-python", "forebay-simulation"],
    &["xtask", "forebay-fake-cuda"],
];

/// A sentence for each dependency of the product that goes up, sideways or to an unknown package.
pub fn problems(packages: &[Package]) -> Vec<String> {
    let mut problems = Vec::new();
    for package in packages {
        let Some(floor) = floor_of(&package.name) else {
            let name = &package.name;
            problems.push(format!(
                "{name} has no floor in tests/xtask/src/tidy/walls.rs"
            ));
            continue;
        };
        for dependency in &package.dependencies {
            if dependency.kind.is_some() {
                continue;
            }
            let Some(lower) = floor_of(&dependency.name) else {
                continue;
            };
            if lower >= floor {
                problems.push(format!(
                    "{} must not depend on {}: see tests/xtask/src/tidy/walls.rs",
                    package.name, dependency.name
                ));
            }
        }
    }
    problems
}

fn floor_of(package: &str) -> Option<usize> {
    FLOORS.iter().position(|floor| floor.contains(&package))
}
