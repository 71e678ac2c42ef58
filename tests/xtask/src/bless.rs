//! `cargo xtask bless`: regenerates what is generated and checked in.

use crate::tidy;
use crate::workspace::{self, Outcome};

/// Tests that rewrite their expectations where `FOREBAY_BLESS` is set: package, target, filter.
const BLESSED_TESTS: [(&str, &[&str], &str); 3] = [
    ("forebay", &["--test", "forebay"], "references"),
    ("forebay", &["--test", "forebay"], "mistakes::"),
    ("forebay", &["--lib"], "spec::tests"),
];

pub fn run() -> Outcome<()> {
    for (package, target, filter) in BLESSED_TESTS {
        let mut test = workspace::cargo();
        test.env("FOREBAY_BLESS", "1");
        test.args(["test", "--package", package]);
        test.args(target);
        test.args(["--", filter]);
        workspace::run(&mut test)?;
    }
    // The types of the Python package follow the schema that the tests have just written.
    let generator = "pipelines/python/generate_types.py";
    workspace::run(workspace::program_in_root("python3").arg(generator))?;
    tidy::write_baseline()
}
