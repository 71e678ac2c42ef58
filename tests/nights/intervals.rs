//! Intervals of time, one after the other, in any order, and again.

use serde_json::Value;

use crate::nights::changed_history::NightlyFixture;

/// The rows of a whole run whose dates lie in some days.
pub fn expected(
    nights: &NightlyFixture,
    until: usize,
    days: std::ops::Range<usize>,
) -> arrow::array::RecordBatch {
    let dir = nights.shop.path("seen");
    let _ = std::fs::remove_dir_all(&dir);
    std::fs::create_dir_all(&dir).unwrap();
    for day in 0..until {
        let name = &nights.days[day];
        std::fs::copy(nights.shop.path("all").join(name), dir.join(name)).unwrap();
    }
    let spec = std::fs::read_to_string(nights.shop.path("spec.yaml")).unwrap();
    nights
        .shop
        .write("whole.yaml", &spec.replace("path: history", "path: seen"));
    let out = format!("whole-{until}");
    let param = format!("--param=out={out}");
    let state = format!("--state=state-{out}");
    nights
        .shop
        .forebay(&["run", "whole.yaml", "--json", &param, &state])
        .expect(0);
    let rows = nights.shop.visible(&out);
    let before = nights.rows(0..days.start) as usize;
    rows.slice(before, nights.rows(days) as usize)
}

pub fn day(nights: &NightlyFixture, day: usize) -> String {
    let name = nights.days[day].split('.').next().unwrap();
    name[name.len() - 10..].to_owned()
}

fn run(nights: &NightlyFixture, days: std::ops::Range<usize>, code: i32) -> Value {
    let from = day(nights, days.start);
    let to = day(nights, days.end);
    let args = [
        "run",
        "spec.yaml",
        "--json",
        "--signal-nothing-new",
        "--interval",
        &from,
        &to,
    ];
    nights.shop.forebay(&args).expect(code).summary()
}

fn rows_read(summary: &Value) -> u64 {
    let write = summary["passes"].as_array().unwrap().last().unwrap();
    write["rows_in"].as_u64().unwrap() - write["rows_kept"].as_u64().unwrap()
}

fn intervals(nights: &NightlyFixture) -> Vec<String> {
    let manifest = std::fs::read(nights.shop.path(".out.forebay/_manifest.json")).unwrap();
    let manifest: Value = serde_json::from_slice(&manifest).unwrap();
    let names = manifest["intervals"]
        .as_array()
        .unwrap()
        .iter()
        .map(|known| known["from"].as_str().unwrap().to_owned());
    names.collect()
}

#[test]
fn intervals_lie_side_by_side_and_know_nothing_of_what_comes_after() {
    for unbounded in [false, true] {
        let nights = NightlyFixture::new(unbounded);
        // History is there to its end; each run must see only what lies before the end of its interval.
        (0..40).for_each(|day| nights.show(day));
        let week = |first: usize| first..first + 7;
        let summary = run(&nights, week(24), 0);
        assert_eq!(
            summary["interval"]["from"].as_str(),
            Some(&*day(&nights, 24))
        );
        assert_eq!(
            rows_read(&summary),
            nights.rows(week(24)),
            "only the days of the interval are written"
        );
        let third = expected(&nights, 31, week(24));
        assert!(nights.shop.visible("out") == third);

        // An earlier one comes before it, and is that of its own time.
        run(&nights, week(17), 0);
        assert_eq!(intervals(&nights), [day(&nights, 17), day(&nights, 24)]);
        let rows = nights.shop.visible("out");
        let second = expected(&nights, 24, week(17));
        assert!(
            rows.slice(0, second.num_rows()) == second
                && rows.slice(second.num_rows(), third.num_rows()) == third
        );
        assert!(nights.shop.rows("out") == rows);

        // Again: nothing new. Restated: it alone is replaced.
        run(&nights, week(24), 99);
        let name = &nights.days[26];
        std::fs::copy(
            nights.shop.path("all").join(name),
            nights.shop.path("history").join(name),
        )
        .unwrap();
        run(&nights, week(24), 0);
        assert!(nights.shop.visible("out") == rows);

        // Neither mixtures nor overlaps.
        assert_eq!(run(&nights, 20..26, 78)["fault"]["code"], "FB0114");
        let whole = nights
            .shop
            .forebay(&["run", "spec.yaml", "--json"])
            .expect(78);
        assert_eq!(whole.summary()["fault"]["code"], "FB0114");
        assert_eq!(run(&nights, 26..26, 78)["fault"]["code"], "FB0104");
        assert!(nights.shop.visible("out") == rows);
        let kept = nights
            .shop
            .forebay(&["cache", "gc", "--max-size", "1kB", "--json"])
            .expect(0)
            .summary();
        assert_ne!(kept["bytes_in_use"], 0);
        run(&nights, week(24), 99);
    }
}

#[test]
fn an_artifact_is_applied_interval_by_interval() {
    let nights = NightlyFixture::new(true);
    (0..40).for_each(|day| nights.show(day));
    let run = nights
        .shop
        .forebay(&["run", "spec.yaml", "--json", "--param=out=whole"])
        .expect(0)
        .summary();
    let artifact = run["artifact_path"].as_str().unwrap();
    let apply = |more: &[&str]| {
        nights
            .shop
            .forebay(&[&["apply", artifact, "--source=history", "--json"], more].concat())
    };
    for days in [31..38, 24..31] {
        let from = day(&nights, days.start);
        let to = day(&nights, days.end);
        let summary = apply(&["--output=parts", "--interval", &from, &to])
            .expect(0)
            .summary();
        assert_eq!(
            summary["outputs"][0]["rows"],
            nights.rows(days),
            "{summary}"
        );
    }
    let before = nights.rows(0..24) as usize;
    let rows = nights.rows(24..38) as usize;
    assert!(nights.shop.visible("parts") == nights.shop.visible("whole").slice(before, rows));
    assert_eq!(
        apply(&["--output=parts"]).expect(78).summary()["fault"]["code"],
        "FB0114"
    );
}

#[test]
fn a_file_that_reaches_beyond_the_end_is_read_up_to_it() {
    let nights = NightlyFixture::new(true);
    let days: Vec<_> = (0..40)
        .map(|day| nights.shop.path("all").join(&nights.days[day]))
        .collect();
    let rows = crate::support::read_files(&days);
    let file = std::fs::File::create(nights.shop.path("history/all.parquet")).unwrap();
    let mut writer = parquet::arrow::ArrowWriter::try_new(file, rows.schema(), None).unwrap();
    writer.write(&rows).unwrap();
    writer.close().unwrap();
    run(&nights, 30..33, 0);
    assert!(nights.shop.visible("out") == expected(&nights, 33, 30..33));
}

#[test]
fn an_output_without_its_time_has_no_intervals() {
    let nights = NightlyFixture::new(false);
    (0..12).for_each(|day| nights.show(day));
    let spec = std::fs::read_to_string(nights.shop.path("spec.yaml")).unwrap();
    nights.shop.write(
        "spec.yaml",
        &spec.replace(
            "      - bucketize",
            "      - drop: [date]\n      - bucketize",
        ),
    );
    let fault = run(&nights, 9..11, 78)["fault"].take();
    assert!(
        fault["message"]
            .as_str()
            .unwrap()
            .contains("do not tell their time"),
        "{fault}"
    );
}

#[test]
fn an_interval_is_explained() {
    let nights = NightlyFixture::new(false);
    (0..40).for_each(|day| nights.show(day));
    let explain = |days: std::ops::Range<usize>| -> Value {
        let from = day(&nights, days.start);
        let to = day(&nights, days.end);
        let args = ["explain", "spec.yaml", "--json", "--interval", &from, &to];
        serde_json::from_str(&nights.shop.forebay(&args).expect(0).stdout).unwrap()
    };
    let all_done = |days| {
        explain(days)["passes"]
            .as_array()
            .unwrap()
            .iter()
            .all(|pass| pass["reused"] == true)
    };
    assert!(!all_done(20..21));
    run(&nights, 20..21, 0);
    assert!(all_done(20..21) && !all_done(21..22));
}

#[test]
fn a_backfill_goes_on_where_it_ended() {
    let nights = NightlyFixture::new(true);
    (0..40).for_each(|day| nights.show(day));
    let backfill = |to: usize, every: &str, code: i32| {
        let from = day(&nights, 20);
        let to = day(&nights, to);
        nights
            .shop
            .forebay(&[
                "backfill",
                "spec.yaml",
                "--from",
                &from,
                "--to",
                &to,
                "--every",
                every,
                "--json",
            ])
            .expect(code)
    };
    // It stops at the first fault: a day that cannot be read.
    let broken = nights.shop.path("history").join(&nights.days[23]);
    let whole = std::fs::read(&broken).unwrap();
    std::fs::write(&broken, "nonsense").unwrap();
    assert_eq!(
        backfill(26, "1d", 65).summary()["intervals"],
        serde_json::json!([])
    );
    std::fs::write(&broken, whole).unwrap();
    let filled = |summary: Value| -> Vec<bool> {
        let done = summary["intervals"].as_array().unwrap().iter();
        done.map(|interval| !interval["skipped"].as_bool().unwrap())
            .collect()
    };
    assert_eq!(filled(backfill(23, "1d", 0).summary()), [true; 3]);
    assert_eq!(
        filled(backfill(26, "1d", 0).summary()),
        [false, false, false, true, true, true]
    );
    assert_eq!(
        intervals(&nights),
        (20..26)
            .map(|number| day(&nights, number))
            .collect::<Vec<_>>()
    );
    let rows = nights.shop.visible("out");
    let last = nights.rows([25]) as usize;
    assert!(rows.slice(rows.num_rows() - last, last) == expected(&nights, 26, 25..26));
    assert_eq!(backfill(26, "3d", 78).summary()["fault"]["code"], "FB0114");
    for every in ["0d", "d", "1y", "-1d"] {
        backfill(26, every, 64);
    }
    backfill(19, "1d", 64);
}

/// A feed of an output that was written interval by interval delivers the rows of all of them.
#[test]
fn intervals_are_fed_together() {
    let nights = NightlyFixture::new(false);
    (0..40).for_each(|day| nights.show(day));
    for first in [17, 24] {
        run(&nights, first..first + 7, 0);
    }
    let spec = std::fs::read_to_string(nights.shop.path("spec.yaml")).unwrap();
    nights.shop.write(
        "fed.yaml",
        &format!("{spec}\nfeed: {{ missing: 0, missing_id: 0 }}\n"),
    );
    let fed = nights
        .shop
        .forebay(&[
            "feed", "fed.yaml", "--json", "--last", "short", "--rows", "64",
        ])
        .expect(0);
    assert_eq!(fed.summary()["rows"].as_u64().unwrap(), nights.rows(17..31));
}

/// Months are counted from the first day: none is short because February is.
#[test]
fn a_backfill_by_months_keeps_the_day_of_the_month() {
    let shop = crate::support::TestDirectory::new();
    let first: jiff::civil::Date = "2024-01-01".parse().unwrap();
    let days = (0..130).map(|day| first.saturating_add(jiff::Span::new().days(day)));
    let rows: String = days.map(|day| format!("{day},1\n")).collect();
    shop.write("days.csv", &format!("day,qty\n{rows}"));
    shop.write(
        "spec.yaml",
        "version: 1\nname: months\nsources:\n  s: { csv: { path: days.csv }, time: day }\n\
         sinks:\n  table: { from: s, parquet: { path: out } }\n",
    );
    for (from, to, every, begins) in [
        (
            "2024-01-31",
            "2024-04-30",
            "1mo",
            &["2024-01-31", "2024-02-29", "2024-03-31"][..],
        ),
        ("2024-01-01", "2024-05-01", "1q", &["2024-01-01"]),
        ("2024-01-30", "2024-02-29", "1mo", &["2024-01-30"]),
    ] {
        let args = ["--from", from, "--to", to, "--every", every, "--json"];
        let call = shop.forebay(&[&["backfill", "spec.yaml"][..], &args].concat());
        let summary = call.expect(0).summary();
        let done = summary["intervals"].as_array().unwrap();
        let starts: Vec<&str> = done
            .iter()
            .map(|interval| interval["from"].as_str().unwrap())
            .collect();
        assert_eq!(starts, begins, "{from} by {every}");
        for place in ["out", ".out.forebay", ".forebay"] {
            let _ = std::fs::remove_dir_all(shop.path(place));
        }
    }
}
