//! Estimators of Python in whole jobs: the order of what they learn from, their artifacts and their faults.

use forebay::{Artifact, Forebay};
use serde_json::{Value, json};

use crate::support::{ProgramOutput, TestDirectory, has_pyarrow};

/// Writes down the rows that it learns from, batch by batch, and returns that for each row.
const DIARY: &str = "class Diary:
    text = ''

    def partial_fit(self, batch, y=None):
        rows = '-'.join(str(value) for value in batch['k'].to_pylist())
        labels = '' if y is None else '=' + '-'.join(str(value) for value in y.to_pylist())
        self.text += rows + labels + '.'

    def transform(self, batch):
        return [self.text] * batch.num_rows
";

/// Divides by the greatest value.
const PORTION: &str = "class Portion:
    greatest = 0.0

    def partial_fit(self, batch):
        self.greatest = max([self.greatest] + batch['x'].to_pylist())

    def transform(self, batch):
        return [value / self.greatest for value in batch['x'].to_pylist()]
";

fn shop() -> TestDirectory {
    let shop = TestDirectory::new();
    std::fs::create_dir(shop.path("data")).unwrap();
    shop.write("data/1.csv", "k,x,s\n1,1.0,a\n2,2.0,b\n3,4.0,\n");
    shop.write("data/2.csv", "k,x,s\n4,0.5,a\n5,3.0,b\n");
    shop.write("models.py", &format!("{DIARY}\n\n{PORTION}"));
    shop
}

/// Writes a spec with this step, which learns from `fit_on`, a part of the rows.
fn spec(shop: &TestDirectory, fit_on: Option<&str>, step: &str) {
    let mut split = String::new();
    let mut node = String::new();
    if let Some(part) = fit_on {
        split.push_str("split: { few: \"k < 3\", many: \"k >= 3\" }\n");
        node = format!("    fit_on: {part}\n");
    }
    let text = format!(
        "version: 1\nname: test\nsources:\n  a: {{ csv: {{ path: 'data/*.csv' }} }}\n{split}steps:\n  f:\n    from: \
         a\n{node}    do:\n      - {step}\nsinks:\n  t: {{ from: f, parquet: {{ path: out }} }}\n"
    );
    shop.write("spec.yaml", &text);
}

fn run(shop: &TestDirectory, more: &[&str]) -> ProgramOutput {
    shop.forebay(&[&["run", "spec.yaml", "--json"][..], more].concat())
}

/// The texts of a column of an output, of which all rows have the same.
fn text(shop: &TestDirectory, name: &str) -> String {
    let rows = shop.rows("out");
    let column = rows.column_by_name(name).unwrap();
    let texts: Vec<String> = (0..column.len())
        .map(|row| arrow::util::display::array_value_to_string(column, row).unwrap())
        .collect();
    assert_eq!(texts.len(), 5);
    assert!(texts.iter().all(|text| *text == texts[0]), "{texts:?}");
    texts[0].clone()
}

#[test]
fn an_estimator_learns_in_the_order_of_rows() {
    if !has_pyarrow() {
        return;
    }
    let shop = shop();
    let settings = "columns: [k], returns: { seen: string }, frames: arrow, fit_rows: 2";
    let cases = [
        (None, "", "1-2.3-4-5."),
        (Some("few"), "", "1-2."),
        (None, ", label: s", "1-2=a-b.4-5=a-b."),
    ];
    for (case, (fit_on, label, seen)) in cases.into_iter().enumerate() {
        let step = format!("estimator: {{ function: 'models:Diary', {settings}{label} }}");
        spec(&shop, fit_on, &step);
        for (number, more) in [
            vec!["--threads=1"],
            vec!["--threads=4"],
            vec!["--local-workers=2", "--memory=512MiB"],
        ]
        .into_iter()
        .enumerate()
        {
            let state = format!("--state=state_{case}_{number}");
            run(&shop, &[&more[..], &[state.as_str()]].concat()).expect(0);
            assert_eq!(text(&shop, "seen"), seen, "{fit_on:?}{label} {more:?}");
            shop.remove_output("out");
        }
    }
}

#[test]
fn explain_says_where_an_estimator_learns() {
    if !has_pyarrow() {
        return;
    }
    let shop = shop();
    let step = "estimator: { function: 'models:Diary', columns: [k], returns: { seen: string }, \
                frames: arrow }";
    spec(&shop, None, step);
    let explained = shop
        .forebay(&["explain", "spec.yaml", "--json"])
        .expect(0)
        .stdout;
    let explained: Value = serde_json::from_str(&explained).unwrap();
    let pass = &explained["passes"][0];
    assert_eq!(pass["work"], "learn");
    assert_eq!(
        pass["runs_on"],
        "the coordinator, which needs all rows at once"
    );
}

#[test]
fn a_new_file_is_learned_from_with_all_others() {
    if !has_pyarrow() {
        return;
    }
    let shop = shop();
    let step = "estimator: { function: 'models:Diary', columns: [k], returns: { seen: string }, \
                frames: arrow, fit_rows: 3 }";
    spec(&shop, None, step);
    let first = run(&shop, &[]).expect(0).summary();
    assert_eq!(text(&shop, "seen"), "1-2-3.4-5.");
    // The fit is not repeated.
    shop.remove_output("out");
    let second = run(&shop, &[]).expect(0).summary();
    assert_eq!(second["artifact"], first["artifact"]);
    shop.write("data/2.csv", "k,x,s\n4,0.5,a\n6,3.0,b\n");
    run(&shop, &[]).expect(0);
    assert_eq!(text(&shop, "seen"), "1-2-3.4-6.");
}

#[test]
fn an_artifact_has_the_estimator() {
    if !has_pyarrow() {
        return;
    }
    let shop = shop();
    let step = "estimator: { function: 'models:Portion', columns: [x], returns: { y: float64 }, frames: arrow }";
    spec(&shop, None, step);
    let summary = run(&shop, &[]).expect(0).summary();
    let artifact = summary["artifact_path"].as_str().unwrap();
    let shown = shop.forebay(&["show", artifact]).expect(0).stdout;
    let words = "f.estimator: estimator of x\n  estimator ";
    assert!(shown.contains(words), "{shown}");
    assert!(shown.contains(", count 5\n"), "{shown}");
    shop.write("new.csv", "k,x,s\n9,8.0,a\n");
    let apply = [
        "apply",
        artifact,
        "--source=a=new.csv",
        "--output=applied",
        "--state=other",
    ];
    shop.forebay(&apply).expect(0);
    let applied = shop.rows("applied");
    let y = applied.column_by_name("y").unwrap();
    assert_eq!(
        arrow::util::display::array_value_to_string(y, 0).unwrap(),
        "2.0"
    );
    // A pickle has no classes: it needs the code that it was made with.
    shop.write("models.py", &format!("{DIARY}\n\n{PORTION}\n# changed\n"));
    shop.remove_output("applied");
    let refused = shop.forebay(&apply);
    assert_ne!(refused.code, 0);
    let words = "the estimator `models:Portion` was fitted by other code";
    assert!(refused.stderr.contains(words), "{}", refused.stderr);
    run(&shop, &[]).expect(0);
}

#[test]
fn an_estimator_answers_single_rows() {
    if !has_pyarrow() {
        return;
    }
    let shop = shop();
    let code = PORTION.replace('\n', "\n            ");
    let step = format!(
        "estimator:\n          function: Portion\n          columns: [x]\n          returns: {{ y: float64 }}\n          \
         frames: arrow\n          code: |\n            {code}"
    );
    spec(&shop, None, &step);
    let summary = run(&shop, &[]).expect(0).summary();
    let relative_path = summary["artifact_path"].as_str().unwrap();
    let path = shop.path(relative_path).display().to_string();
    let front = Forebay::new();
    let session = front.clone().session().unwrap();
    let artifact = Artifact::load(session.io(), &session.io().resolve(&path).unwrap()).unwrap();
    let model = front.model(&artifact, None).unwrap();
    let row: Value = json!({ "k": 7, "x": 1.0, "s": "a" });
    let answer = model.apply_row(row.as_object().unwrap()).unwrap();
    assert_eq!(answer["y"].as_f64(), Some(0.25));
}

#[test]
fn exceptions_of_estimators_name_rows() {
    if !has_pyarrow() {
        return;
    }
    let shop = shop();
    let module = "class Picky:\n    def partial_fit(self, batch):\n        if 3 in batch['k'].to_pylist():\n            \
                  raise ValueError('no 3, please')\n\n    def transform(self, batch):\n        \
                  return batch['k']\n\n\n\
                  class Late:\n    def partial_fit(self, batch):\n        pass\n\n    def transform(self, batch):\n        \
                  if 3 in batch['k'].to_pylist():\n            raise ValueError('not 3 again')\n        \
                  return batch['k']\n\n\n\
                  class Never:\n    def transform(self, batch):\n        return batch['k']\n";
    shop.write("models.py", module);
    let cases: [(&str, &[&str]); 3] = [
        (
            "Picky",
            &[
                "the estimator `models:Picky` failed: ValueError: no 3, please",
                "the first rows of the batch are",
                "k: 3",
                "it had learned from 2 rows before",
                "models.py\", line 4, in partial_fit",
                "spec.yaml:",
            ],
        ),
        (
            "Late",
            &[
                "the estimator `models:Late` failed: ValueError: not 3 again",
                "row 2",
                "in transform",
            ],
        ),
        (
            "Never",
            &["its estimator, of the class Never, has no method `partial_fit`"],
        ),
    ];
    for (class, expected) in cases {
        let step = format!(
            "estimator: {{ function: 'models:{class}', columns: [k], returns: {{ y: int64 }}, frames: arrow, \
             fit_rows: 2 }}"
        );
        spec(&shop, None, &step);
        let refused = shop
            .forebay(&["run", "spec.yaml", "--threads=1"])
            .expect(65);
        for words in expected {
            assert!(
                refused.stderr.contains(words),
                "{words}: {}",
                refused.stderr
            );
        }
    }
}
