//! `cargo xtask test`: the suite, or the part of it that ends within minutes.

use clap::Args;

use crate::workspace::{self, Outcome, Package};

/// The target that holds whole jobs: real programs, worker processes, servers.
const WHOLE_JOBS: &str = "forebay";

#[derive(Args)]
pub struct TestArguments {
    /// Leaves out whole jobs: the tests of single crates alone
    #[arg(long)]
    quick: bool,
    /// Part of a test's name
    filter: Option<String>,
}

pub fn run(arguments: &TestArguments) -> Outcome<()> {
    let mut test = workspace::cargo();
    test.args(["test", "--workspace"]);
    if arguments.quick {
        test.arg("--lib");
        for target in targets_without_whole_jobs()? {
            test.args(["--test", &target]);
        }
    }
    if let Some(filter) = &arguments.filter {
        test.args(["--", filter]);
    }
    workspace::run(&mut test)
}

fn targets_without_whole_jobs() -> Outcome<Vec<String>> {
    let mut names = Vec::new();
    for package in Package::all()? {
        for target in package.targets {
            let is_test = target.kind.iter().any(|kind| kind == "test");
            if is_test && target.test && target.name != WHOLE_JOBS {
                names.push(target.name);
            }
        }
    }
    names.sort();
    names.dedup();
    Ok(names)
}
