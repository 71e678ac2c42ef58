//! `cargo xtask check`: everything that is checked without running a test.

use crate::tidy;
use crate::workspace::{self, Outcome};

pub fn run() -> Outcome<()> {
    workspace::run(workspace::cargo().args(["fmt", "--all", "--check"]))?;
    workspace::run(workspace::cargo().args([
        "clippy",
        "--workspace",
        "--all-targets",
        "--",
        "-D",
        "warnings",
    ]))?;
    let mut documentation = workspace::cargo();
    documentation.env("RUSTDOCFLAGS", "-D warnings");
    documentation.args(["doc", "--workspace", "--no-deps", "--quiet"]);
    workspace::run(&mut documentation)?;
    tidy::check()
}
