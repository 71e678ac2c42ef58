//! Vocabularies whose ids hold still from night to night.

use std::collections::BTreeSet;
use std::os::unix::process::ExitStatusExt;

use arrow::array::{AsArray, RecordBatch};
use arrow::datatypes::Int64Type;
use serde_json::Value;

use crate::support::watched_command::WatchedCommand;
use crate::support::{ProgramOutput, TestDirectory};

/// Ids of reserved tokens, then of other values, then of tokens; beside them those of a vocabulary of each night alone.
const SPEC: &str = r#"
version: 1
name: nights
sources:
  visits: { csv: { path: "history/*.csv" }, time: day }
steps:
  features:
    from: visits
    do:
      - derive: { plain: page, page_text: page }
      - vocabulary: { columns: [page], stable: true, min_count: 2, reserved: ["<none>"], oov_buckets: 1 }
      - vocabulary: { columns: [plain], min_count: 2 }
sinks:
  table: { from: features, parquet: { path: out } }
"#;

/// Pages by day. `b` overtakes `a`, `e` is rare for a while, and `g` comes last.
const DAYS: [&str; 6] = ["aaabb", "bbbbcc", "cdde", "eab", "ffa", "gggggb"];

struct Visits {
    shop: TestDirectory,
}

impl Visits {
    fn new(days: usize) -> Visits {
        let shop = TestDirectory::new();
        shop.write("spec.yaml", SPEC);
        std::fs::create_dir_all(shop.path("history")).unwrap();
        let visits = Visits { shop };
        (0..days).for_each(|day| visits.show(day));
        visits
    }

    fn show(&self, day: usize) {
        let rows: String = DAYS[day]
            .chars()
            .map(|page| format!("{},{page}\n", date(day)))
            .collect();
        self.shop.write(
            &format!("history/{}.csv", date(day)),
            &format!("day,page\n{rows}"),
        );
    }

    fn hide(&self, day: usize) {
        std::fs::remove_file(self.shop.path(&format!("history/{}.csv", date(day)))).unwrap();
    }

    fn run(&self, args: &[&str], code: i32) -> Value {
        let call = self.shop.forebay(
            &[
                &["run", "spec.yaml", "--json", "--signal-nothing-new"],
                args,
            ]
            .concat(),
        );
        call.expect(code).summary()
    }

    fn interval(&self, day: usize, code: i32) -> Value {
        self.run(&["--interval", &date(day), &date(day + 1)], code)
    }
}

fn date(day: usize) -> String {
    format!("2024-03-{:02}", day + 1)
}

/// Counts of pages in some days, those of at least two, in the order of a vocabulary.
fn frequent(days: impl IntoIterator<Item = usize>) -> Vec<(char, u64)> {
    let text: String = days.into_iter().map(|day| DAYS[day]).collect();
    let mut pages: Vec<char> = text.chars().collect();
    pages.sort_unstable();
    pages.dedup();
    let count = |page: char| text.chars().filter(|known| *known == page).count() as u64;
    let mut found: Vec<(char, u64)> = pages.into_iter().map(|page| (page, count(page))).collect();
    found.retain(|(_, count)| *count >= 2);
    found.sort_by_key(|(page, count)| std::cmp::Reverse((*count, *page)));
    found
}

/// A vocabulary that appends what it does not have.
fn continued(vocabulary: &mut Vec<char>, days: impl IntoIterator<Item = usize>) {
    for (page, _) in frequent(days) {
        if !vocabulary.contains(&page) {
            vocabulary.push(page);
        }
    }
}

fn ids(rows: &RecordBatch, column: &str) -> Vec<i64> {
    rows.column_by_name(column)
        .unwrap()
        .as_primitive::<Int64Type>()
        .values()
        .to_vec()
}

fn texts(rows: &RecordBatch, column: &str) -> Vec<char> {
    let texts = arrow::compute::cast(
        rows.column_by_name(column).unwrap(),
        &arrow::datatypes::DataType::Utf8,
    )
    .unwrap();
    texts
        .as_string::<i32>()
        .iter()
        .map(|text| text.unwrap().chars().next().unwrap())
        .collect()
}

/// The ids of rows are those of a vocabulary: reserved 0, others 1, tokens from 2 on.
#[track_caller]
fn assert_ids(rows: &RecordBatch, vocabulary: &[char]) {
    let pages = texts(rows, "page_text");
    let expected = pages.iter().map(|page| {
        vocabulary
            .iter()
            .position(|known| known == page)
            .map_or(1, |id| id + 2)
    });
    assert_eq!(
        ids(rows, "page"),
        expected.map(|id| id as i64).collect::<Vec<_>>(),
        "{pages:?} by {vocabulary:?}"
    );
}

#[test]
fn ids_hold_still_while_days_come_and_go() {
    let visits = Visits::new(0);
    let mut vocabulary = Vec::new();
    for night in 0..DAYS.len() {
        visits.show(night);
        let known = vocabulary.len();
        continued(&mut vocabulary, 0..=night);
        let summary = visits.run(&[], 0);
        let rows = visits.shop.visible("out");
        assert_ids(&rows, &vocabulary);
        let alone = frequent(0..=night);
        let plain = |page: &char| {
            alone
                .iter()
                .position(|(known, _)| known == page)
                .map_or(-1, |id| id as i64)
        };
        assert_eq!(
            ids(&rows, "plain"),
            texts(&rows, "page_text")
                .iter()
                .map(plain)
                .collect::<Vec<_>>()
        );
        let [report] = summary["continued"].as_array().unwrap().as_slice() else {
            panic!("{summary}")
        };
        assert_eq!(report["tokens"], vocabulary.len());
        assert_eq!(report["added"], vocabulary.len() - known);
        assert_eq!(
            (&report["absent"], report["artifact"].is_null()),
            (&0.into(), night == 0)
        );
        // A repeat goes on from what the first attempt went on from.
        let again = visits.run(&[], 99);
        assert_eq!(
            (&again["artifact"], &again["continued"]),
            (&summary["artifact"], &summary["continued"])
        );
        assert!(visits.shop.visible("out") == rows);
    }
    assert_ne!(
        vocabulary,
        frequent(0..DAYS.len())
            .iter()
            .map(|(page, _)| *page)
            .collect::<Vec<_>>()
    );
    // Without the days of `g`, its place stays.
    visits.hide(5);
    let summary = visits.run(&[], 0);
    assert_eq!(
        (
            &summary["continued"][0]["absent"],
            &summary["continued"][0]["added"]
        ),
        (&1.into(), &0.into())
    );
    assert_ids(&visits.shop.visible("out"), &vocabulary);
    let explained = visits
        .shop
        .forebay(&["explain", "spec.yaml"])
        .expect(0)
        .stdout;
    assert!(explained.contains("the run goes on from it"), "{explained}");
    assert!(
        explained.contains("after that of the run before"),
        "{explained}"
    );
    // What an artifact learned is applied as it is, also where columns differ in this alone.
    let artifact = summary["artifact_path"].as_str().unwrap();
    let rows = visits.shop.visible("out");
    let args = [
        "apply",
        artifact,
        "--source=history/*.csv",
        "--output=applied",
        "--state=other",
    ];
    visits.shop.forebay(&args).expect(0);
    assert!(visits.shop.visible("applied") == rows);
}

#[test]
fn intervals_go_on_from_those_before_them() {
    let visits = Visits::new(DAYS.len());
    let mut vocabulary = Vec::new();
    let mut nights = Vec::new();
    for (day, pages) in DAYS.iter().enumerate() {
        continued(&mut vocabulary, 0..=day);
        let summary = visits.interval(day, 0);
        nights.push(summary["artifact"].clone());
        let rows = visits.shop.visible("out");
        assert_ids(
            &rows.slice(rows.num_rows() - pages.len(), pages.len()),
            &vocabulary,
        );
    }
    // An earlier one again is what it was.
    let rows = visits.shop.visible("out");
    for day in [2, 0, 5] {
        assert_eq!(visits.interval(day, 99)["artifact"], nights[day]);
        assert!(visits.shop.visible("out") == rows);
    }
    // A backfill comes to the same, whatever goes side by side.
    for args in [["--beside=1", "--threads=2"], ["--beside=3", "--threads=3"]] {
        for place in ["out", ".out.forebay", ".forebay", "state"] {
            let _ = std::fs::remove_dir_all(visits.shop.path(place));
        }
        let from = date(0);
        let to = date(DAYS.len());
        let fixed = [
            "backfill",
            "spec.yaml",
            "--json",
            "--from",
            &from,
            "--to",
            &to,
        ];
        visits
            .shop
            .forebay(&[&fixed[..], &args[..]].concat())
            .expect(0);
        assert!(visits.shop.visible("out") == rows);
    }
}

/// The tokens and ids that an output shows, each pair once.
fn shown_ids(rows: &RecordBatch) -> BTreeSet<(char, i64)> {
    texts(rows, "page_text")
        .into_iter()
        .zip(ids(rows, "page"))
        .filter(|(_, id)| *id >= 2)
        .collect()
}

/// No two tokens have one id.
#[track_caller]
fn assert_unambiguous(shown: &BTreeSet<(char, i64)>) {
    let ids: BTreeSet<i64> = shown.iter().map(|(_, id)| *id).collect();
    let tokens: BTreeSet<char> = shown.iter().map(|(token, _)| *token).collect();
    assert_eq!(
        (ids.len(), tokens.len()),
        (shown.len(), shown.len()),
        "{shown:?}"
    );
}

#[test]
fn ids_outlast_the_artifacts_that_gave_them() {
    let visits = Visits::new(5);
    let nights: Vec<Value> = (0..4).map(|day| visits.interval(day, 0)).collect();
    let rows = visits.shop.visible("out");
    visits
        .shop
        .forebay(&["cache", "gc", "--older-than", "0s"])
        .expect(0);
    for night in &nights[..3] {
        let removed = night["artifact_path"].as_str().unwrap();
        assert!(!visits.shop.path(removed).exists(), "{removed}");
    }
    // A repeat comes to what it was.
    for (day, code) in [(2, 0), (0, 0), (3, 99)] {
        let again = visits.interval(day, code);
        assert_eq!(again["artifact"], nights[day]["artifact"], "day {day}");
        assert!(visits.shop.visible("out") == rows, "day {day}");
    }
    let mut vocabulary = Vec::new();
    for day in 0..5 {
        continued(&mut vocabulary, 0..=day);
    }
    let last = visits.interval(4, 0);
    assert_eq!(last["continued"][0]["artifact"], nights[3]["artifact"]);
    let rows = visits.shop.visible("out");
    let pages = DAYS[4].len();
    assert_ids(&rows.slice(rows.num_rows() - pages, pages), &vocabulary);
}

#[test]
fn late_tokens_get_ids_of_their_own() {
    let visits = Visits::new(4);
    (0..4).for_each(|day| {
        visits.interval(day, 0);
    });
    let before = shown_ids(&visits.shop.visible("out"));
    // Tokens that no run has seen come late, beside some that a later interval has seen.
    let rows: String = "yyxxxeeb"
        .chars()
        .map(|page| format!("{},{page}\n", date(1)))
        .collect();
    visits.shop.write(
        &format!("history/{}.csv", date(1)),
        &format!("day,page\n{rows}"),
    );
    visits.interval(1, 0);
    let after = shown_ids(&visits.shop.visible("out"));
    assert_unambiguous(&after);
    for (token, id) in &after {
        let known = before.iter().find(|(known, _)| known == token);
        assert!(
            known.is_none_or(|(_, known)| known == id),
            "{token} had another id"
        );
    }
    // The intervals behind it go on from there, and show nothing else.
    for day in [2, 3] {
        visits.interval(day, 0);
        assert_unambiguous(&shown_ids(&visits.shop.visible("out")));
    }
}

#[test]
fn ids_that_are_not_known_are_not_given_again() {
    let visits = Visits::new(4);
    (0..3).for_each(|day| {
        visits.interval(day, 0);
    });
    let rows = visits.shop.visible("out");
    let forget = || {
        for place in [".forebay", "state"] {
            let _ = std::fs::remove_dir_all(visits.shop.path(place));
        }
    };
    forget();
    let interval = ["--interval", &date(3), &date(4)];
    let refused = visits.run(&interval, 78)["fault"].take();
    assert_eq!(refused["code"], "FB0114", "{refused}");
    assert!(refused.to_string().contains("--renumber"), "{refused}");
    assert!(visits.shop.visible("out") == rows);
    // Other reserved tokens would move all ids.
    visits.run(&[&interval[..], &["--renumber"]].concat(), 0);
    visits
        .shop
        .write("spec.yaml", &SPEC.replace("\"<none>\"", "\"<none>\", x"));
    let moved = visits.run(&["--interval", &date(2), &date(3)], 78)["fault"].take();
    assert_eq!(moved["code"], "FB0114", "{moved}");
    visits.shop.write("spec.yaml", SPEC);
    // Once the other intervals are run again, all ids are those of one numbering.
    for day in 0..3 {
        visits.run(&["--interval", &date(day), &date(day + 1)], 0);
    }
    assert_unambiguous(&shown_ids(&visits.shop.visible("out")));
    // Where no ids hold still, there is nothing to give anew.
    visits
        .shop
        .write("spec.yaml", &SPEC.replace("stable: true, ", ""));
    visits.run(&["--renumber"], 78);
}

#[test]
fn a_killed_night_comes_to_what_it_would_have_come_to() {
    let prepare = || {
        let visits = Visits::new(2);
        visits.run(&[], 0);
        (2..5).for_each(|day| visits.show(day));
        visits
    };
    let whole = prepare();
    let steps = whole.shop.path("steps");
    let command = |visits: &Visits| visits.shop.command(&["run", "spec.yaml", "--json"]);
    let call: ProgramOutput = command(&whole)
        .env("FOREBAY_KILL_LOG", &steps)
        .watched()
        .into();
    let expected = (
        call.expect(0).summary()["artifact"].clone(),
        whole.shop.visible("out"),
    );
    let steps = std::fs::read_to_string(steps).unwrap().lines().count();
    for at in (1..steps).step_by((steps / 8).max(1)) {
        let visits = prepare();
        let killed = command(&visits)
            .env("FOREBAY_KILL_AT", at.to_string())
            .watched();
        assert_eq!(killed.status.signal(), Some(9), "step {at} of {steps}");
        let summary = visits
            .shop
            .forebay(&["run", "spec.yaml", "--json"])
            .expect(0)
            .summary();
        assert!(
            (&summary["artifact"], visits.shop.visible("out")) == (&expected.0, expected.1.clone()),
            "step {at}"
        );
        visits.run(&[], 99);
    }
}

#[test]
fn workers_give_the_same_ids() {
    let alone = Visits::new(2);
    let together = Visits::new(2);
    for night in 2..4 {
        [&alone, &together]
            .iter()
            .for_each(|visits| visits.show(night));
        let expected = alone.run(&[], 0);
        let found = together.run(&["--local-workers=2"], 0);
        assert_eq!(
            (&found["artifact"], &found["continued"]),
            (&expected["artifact"], &expected["continued"])
        );
        assert!(together.shop.visible("out") == alone.shop.visible("out"));
    }
}
