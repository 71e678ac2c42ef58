//! `forebay fmt`, which formats specs, and `forebay init`, which makes a project.

use std::path::PathBuf;
use std::process::Command;

use forebay::prelude::Forebay;
use forebay::spec;

use crate::support::watched_command::WatchedCommand;
use crate::support::{FOREBAY, ProgramOutput, TestDirectory, repository};

/// What `forebay check` compares: all parts of a pipeline, with its ids.
fn pipeline(text: &str) -> String {
    let pipeline = spec::parse(
        text,
        "spec.yaml",
        &Default::default(),
        &Forebay::new().spec_catalog(),
    );
    format!("{:?}", pipeline.unwrap())
}

fn ready_made() -> Vec<PathBuf> {
    let entries = std::fs::read_dir(repository().join("pipelines/specs")).unwrap();
    entries.map(|entry| entry.unwrap().path()).collect()
}

/// The comments of a spec, in order.
fn comments(text: &str) -> Vec<&str> {
    let lines = text.lines().filter_map(|line| {
        if line.trim_start().starts_with('#') {
            Some(line.trim())
        } else {
            line.find(" # ").map(|at| line[at..].trim())
        }
    });
    lines.collect()
}

/// The same values and comments in another form: what people write.
fn untidy(text: &str) -> String {
    let mut lines = Vec::new();
    for line in text.lines() {
        let indent = line.len() - line.trim_start().len();
        let body = line
            .trim_start()
            .replace("{ ", "{")
            .replace(" }", "}")
            .replace(", ", ",   ")
            .replace(": [", ":  [");
        lines.push(format!("{}{body}", " ".repeat(2 * indent)));
        if body.is_empty() {
            lines.push(String::new());
        }
    }
    lines.join("\n")
}

#[test]
fn specs_of_the_repository_are_formatted() {
    let shop = TestDirectory::new();
    let specs: Vec<String> = ready_made()
        .iter()
        .map(|path| path.display().to_string())
        .collect();
    assert!(specs.len() >= 6);
    let specs: Vec<&str> = specs.iter().map(String::as_str).collect();
    let check = shop
        .forebay(&[&["fmt", "--check"], &specs[..]].concat())
        .expect(0);
    assert_eq!(check.stdout, "");
}

#[test]
fn formatting_keeps_values_ids_and_comments() {
    let shop = TestDirectory::new();
    for path in ready_made() {
        let neat = std::fs::read_to_string(&path).unwrap();
        let untidy = untidy(&neat);
        shop.write("spec.yaml", &untidy);
        assert_eq!(
            shop.forebay(&["fmt", "--check", "spec.yaml"])
                .expect(78)
                .stdout,
            "spec.yaml is not formatted\n"
        );
        assert_eq!(
            std::fs::read_to_string(shop.path("spec.yaml")).unwrap(),
            untidy
        );
        assert_eq!(
            shop.forebay(&["fmt", "spec.yaml"]).expect(0).stdout,
            "formatted spec.yaml\n"
        );
        let formatted = std::fs::read_to_string(shop.path("spec.yaml")).unwrap();
        assert_eq!(pipeline(&formatted), pipeline(&neat), "{}", path.display());
        assert_eq!(
            comments(&formatted),
            comments(&untidy),
            "{}",
            path.display()
        );
        assert!(
            !comments(&neat).is_empty() || path.ends_with("forecast.yaml"),
            "{}",
            path.display()
        );
        // Once is enough.
        assert_eq!(shop.forebay(&["fmt", "spec.yaml"]).expect(0).stdout, "");
        shop.forebay(&["fmt", "--check", "spec.yaml"]).expect(0);
    }
}

#[test]
fn what_cannot_be_formatted_stays_as_it_is() {
    let shop = TestDirectory::new();
    let good = "version:   1\n";
    let texts = [
        ("a: [1\n", "spec.yaml:2:1"),
        ("a: 1\na: 2\n", "spec.yaml:2:1"),
        ("", "spec.yaml:1:1"),
    ];
    for (text, place) in texts {
        shop.write("spec.yaml", text);
        shop.write("good.yaml", good);
        let answer = shop.forebay(&["fmt", "spec.yaml", "good.yaml"]).expect(78);
        assert!(answer.stderr.contains(place), "{}", answer.stderr);
        assert_eq!(
            std::fs::read_to_string(shop.path("spec.yaml")).unwrap(),
            text
        );
        // A wrong spec does not keep others from being formatted.
        assert_eq!(
            std::fs::read_to_string(shop.path("good.yaml")).unwrap(),
            "version: 1\n"
        );
    }
    let missing = shop.forebay(&["fmt", "gud.yaml"]).expect(65);
    assert!(
        missing.stderr.contains("did you mean `good.yaml`?"),
        "{}",
        missing.stderr
    );
}

#[test]
fn new_writes_a_formatted_spec() {
    let shop = TestDirectory::new();
    shop.demand("demand", 1000);
    shop.forebay(&["new", "demand", "--out", "spec.yaml", "--label", "qty"])
        .expect(0);
    shop.forebay(&["fmt", "--check", "spec.yaml"]).expect(0);
    shop.clicks("clicks", 1000);
    // Long lists of columns are divided.
    shop.forebay(&["new", "clicks", "--out", "wide.yaml"])
        .expect(0);
    shop.forebay(&["fmt", "--check", "wide.yaml"]).expect(0);
    shop.forebay(&["check", "wide.yaml"]).expect(0);
}

/// Names of columns and of files are data: whatever is in them, the spec can be read, and means them.
#[test]
fn new_writes_names_of_any_letters() {
    let shop = TestDirectory::new();
    std::fs::create_dir(shop.path("odd")).unwrap();
    shop.write("odd/a.csv", "\"a\nsteps: b\",\"${c}\"\n1,x\n2,y\n");
    shop.write("odd/notes.bin", "\u{1}");
    shop.write("${x}.csv", "a,b\n1,x\n2,y\n");
    for (data, spec) in [("odd", "odd.yaml"), ("${x}.csv", "named.yaml")] {
        shop.forebay(&["new", data, "--out", spec]).expect(0);
        shop.forebay(&["fmt", "--check", spec]).expect(0);
        shop.forebay(&["check", spec]).expect(0);
    }
    let text = std::fs::read_to_string(shop.path("odd.yaml")).unwrap();
    let left_out = "# 1 file left out: `notes.bin`";
    assert!(text.contains(left_out), "{text}");
    shop.forebay(&["run", "odd.yaml"]).expect(0);
}

/// The project's own test.
fn project_test(shop: &TestDirectory, args: &[&str]) -> ProgramOutput {
    let mut command = Command::new("bash");
    command
        .arg("test")
        .args(args)
        .current_dir(shop.path("shop"))
        .env("FOREBAY_BIN", FOREBAY)
        .env("NO_COLOR", "1");
    command
        .env("XDG_CONFIG_HOME", shop.path(".config"))
        .env_remove("FOREBAY_STATE")
        .watched()
        .into()
}

#[test]
fn init_makes_a_project_whose_test_passes_and_can_fail() {
    let shop = TestDirectory::new();
    let made = shop.forebay(&["init", "shop"]).expect(0);
    assert!(made.stdout.contains("cd shop && ./test"), "{}", made.stdout);
    let passed = project_test(&shop, &[]).expect(0).stdout;
    let last =
        "ok    windows_end_the_day_before\n1 test, all passed\nshop: all features as expected\n";
    assert!(passed.ends_with(last), "{passed}");
    // The features are right: a lag is the value of seven days before.
    let history = shop.rows("shop/data");
    let column = |name: &str| history.column_by_name(name).unwrap().clone();
    let text =
        |name: &str, row| arrow::util::display::array_value_to_string(&column(name), row).unwrap();
    let expected = std::fs::read_to_string(shop.path("shop/expected/features.csv")).unwrap();
    let names: Vec<&str> = expected.lines().next().unwrap().split(',').collect();
    assert_eq!(
        names[..6],
        [
            "date",
            "store_id",
            "item_id",
            "qty",
            "qty_lag_7d",
            "qty_lag_14d"
        ]
    );
    let sum = |day: &str, name: &str| -> f64 {
        let rows = (0..history.num_rows()).filter(|row| text("date", *row) == day);
        rows.map(|row| text(name, row).parse().unwrap_or(0.0)).sum()
    };
    let total = |index: usize| -> f64 {
        expected
            .lines()
            .skip(1)
            .map(|line| line.split(',').nth(index).unwrap().parse().unwrap_or(0.0))
            .sum()
    };
    assert!(expected.lines().count() > 20);
    assert_eq!(total(3), sum("2016-05-22", "qty"));
    assert!(total(4) > 0.0 && total(4) <= sum("2016-05-15", "qty"));
    // A change that nothing says is found, and accepted when it is meant.
    let spec = std::fs::read_to_string(shop.path("shop/shop.yaml")).unwrap();
    shop.write(
        "shop/shop.yaml",
        &spec.replace("by: [7d, 14d]", "by: [6d, 14d]"),
    );
    let changed = project_test(&shop, &[]).expect(1);
    assert!(changed.stdout.contains("qty_lag_6d"), "{}", changed.stdout);
    project_test(&shop, &["--accept"]).expect(0);
    project_test(&shop, &[]).expect(0);
    // The settings of the project are in force in it.
    let mut doctor = shop.command(&["doctor"]);
    let doctor: ProgramOutput = doctor.current_dir(shop.path("shop")).watched().into();
    assert!(
        doctor
            .expect(0)
            .stdout
            .contains(".forebay, from forebay.toml:")
    );
    for file in [
        ".gitignore",
        "README.md",
        ".github/workflows/shop.yaml",
        "dags/shop_nightly.py",
    ] {
        let text = std::fs::read_to_string(shop.path("shop").join(file)).unwrap();
        assert!(
            !text.contains("NAME") && !text.contains("REPOSITORY"),
            "{file}:\n{text}"
        );
    }
    // Nothing of the user is overwritten.
    shop.forebay(&["init", "shop"]).expect(64);
    shop.forebay(&["init", "other", "--name", "Not a name"])
        .expect(64);
}
