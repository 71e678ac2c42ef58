//! Files that a crash of the machine cut short, emptied or filled with zeros: the next run comes to the same result
//! or ends with a fault, and `cache verify` names the file.
//!
//! The quick form damages one file of each kind in one way. The long one damages every file in all ways:
//!
//! ```text
//! FOREBAY_TORN=1 cargo test -p forebay --test forebay storage::damaged_files::
//! ```

use std::collections::BTreeSet;
use std::path::Path;
use std::process::Command;

use arrow::array::RecordBatch;
use serde_json::Value;

use crate::nights::changed_history::NightlyFixture;
use crate::support::{ProgramOutput, content};

/// What is left of a file whose bytes did not all reach the disk.
#[derive(Debug, Clone, Copy)]
enum FileDamage {
    Empty,
    Half,
    LastByte,
    Zeros,
}

const DAMAGES: [FileDamage; 4] = [
    FileDamage::Half,
    FileDamage::Empty,
    FileDamage::LastByte,
    FileDamage::Zeros,
];

impl FileDamage {
    /// Damages a file in place: links to it see the same.
    fn apply(self, file: &Path) {
        let mut bytes = std::fs::read(file).unwrap();
        match self {
            FileDamage::Empty => bytes.clear(),
            FileDamage::Half => bytes.truncate(bytes.len() / 2),
            FileDamage::LastByte => bytes.truncate(bytes.len().saturating_sub(1)),
            FileDamage::Zeros => bytes.fill(0),
        }
        std::fs::write(file, bytes).unwrap();
    }
}

fn run(nights: &NightlyFixture) -> ProgramOutput {
    nights.shop.forebay(&[
        "run",
        "spec.yaml",
        "--json",
        "--threads=2",
        "--param=out=out",
        "--state=state",
    ])
}

fn copy(nights: &NightlyFixture, from: &str, to: &str) {
    let _ = std::fs::remove_dir_all(nights.shop.path(to));
    let copied = Command::new("cp")
        .arg("-a")
        .args([nights.shop.path(from), nights.shop.path(to)])
        .status()
        .unwrap();
    assert!(copied.success());
}

/// State and output as the night before left them.
fn restore(nights: &NightlyFixture) {
    copy(nights, "state-before", "state");
    copy(nights, "out-before", "out");
    copy(nights, "root-before", ".out.forebay");
}

fn result(nights: &NightlyFixture, call: ProgramOutput) -> (Value, RecordBatch) {
    (
        call.expect(0).summary()["artifact"].clone(),
        nights.shop.visible("out"),
    )
}

#[test]
fn truncated_files_are_detected() {
    let nights = NightlyFixture::new(true);
    (0..10).for_each(|day| nights.show(day));
    run(&nights).expect(0);
    copy(&nights, "state", "state-before");
    copy(&nights, "out", "out-before");
    copy(&nights, ".out.forebay", "root-before");
    nights.show(10);
    let expected = result(&nights, run(&nights));

    let long = std::env::var_os("FOREBAY_TORN").is_some();
    let of = |root: &'static str| {
        let files = content(&nights.shop.path(&format!("{root}-before"))).into_iter();
        files
            .filter(|(_, bytes)| !bytes.is_empty())
            .map(move |(name, _)| (root, name))
    };
    let victims: Vec<(&str, String)> = of("state").chain(of("root")).collect();
    let mut kinds = BTreeSet::new();
    for (number, (root, name)) in victims.into_iter().enumerate() {
        let kind = (root, name.split('/').next().unwrap().to_owned());
        if !kinds.insert(kind) && !long {
            continue;
        }
        let damages: Vec<FileDamage> = if long {
            DAMAGES.into()
        } else {
            vec![DAMAGES[(kinds.len() + number) % 4]]
        };
        for damage in damages {
            restore(&nights);
            let directory = if root == "root" {
                nights.shop.root("out")
            } else {
                nights.shop.path(root)
            };
            let file = directory.join(&name);
            damage.apply(&file);
            let verified = nights
                .shop
                .forebay(&["cache", "verify", "--state=state", "--json"]);
            // Of an artifact, verify names the directory.
            let shown = name.strip_suffix("/artifact.json").unwrap_or(&name);
            let told = verified.code == 65 && verified.stdout.contains(shown);
            assert!(
                told || name == "_manifest.json",
                "{damage:?} of {name} is not told: {}",
                verified.stdout
            );
            let call = run(&nights);
            let said = format!(
                "{damage:?} of {root}/{name}:\n{}\n{}",
                call.stdout, call.stderr
            );
            println!(
                "{damage:?} of {root}/{name}: verify told {told}, the run ended with {}",
                call.code
            );
            match call.code {
                0 => assert!(
                    result(&nights, call) == expected,
                    "another result after {said}"
                ),
                65 | 75 | 78 => assert!(call.stderr.contains("hint"), "no hint after {said}"),
                _ => panic!("{said}"),
            }
        }
    }
    assert!(kinds.len() >= 8, "{kinds:?}");
}
