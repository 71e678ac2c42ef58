//! Late data: days that are written already, and whose files change afterwards.

use serde_json::Value;

use crate::nights::changed_history::NightlyFixture;
use crate::nights::intervals::{day, expected};

/// Nights whose source may change three days back.
fn nights() -> NightlyFixture {
    let nights = NightlyFixture::new(false);
    let spec = std::fs::read_to_string(nights.shop.path("spec.yaml")).unwrap();
    nights.shop.write(
        "spec.yaml",
        &spec.replace("time: date,", "time: date, lookback: 3d,"),
    );
    (0..40).for_each(|day| nights.show(day));
    nights
}

/// A day comes again, with a row less.
fn restate(nights: &NightlyFixture, day: usize) {
    for folder in ["all", "history"] {
        let file = nights.shop.path(folder).join(&nights.days[day]);
        let rows = crate::support::read_files(std::slice::from_ref(&file));
        let out = std::fs::File::create(&file).unwrap();
        let mut writer = parquet::arrow::ArrowWriter::try_new(out, rows.schema(), None).unwrap();
        writer.write(&rows.slice(0, rows.num_rows() - 1)).unwrap();
        writer.close().unwrap();
    }
}

fn run(nights: &NightlyFixture, number: usize) -> Value {
    let args = [
        "run",
        "spec.yaml",
        "--json",
        "--signal-nothing-new",
        "--interval",
    ];
    let interval = [day(nights, number), day(nights, number + 1)];
    nights
        .shop
        .forebay(&[&args[..], &[&interval[0], &interval[1]]].concat())
        .expect(0)
        .summary()
}

fn rewritten_intervals(summary: &Value) -> Vec<String> {
    let again = summary["again"].as_array().into_iter().flatten();
    again
        .map(|interval| interval["from"].as_str().unwrap().to_owned())
        .collect()
}

#[test]
fn an_interval_rewrites_late_days() {
    let nights = nights();
    for number in 20..24 {
        let summary = run(&nights, number);
        let back = (number.saturating_sub(3).max(20)..number).map(|number| day(&nights, number));
        assert_eq!(rewritten_intervals(&summary), back.collect::<Vec<_>>());
    }
    restate(&nights, 22);
    let before = nights.shop.visible("out");
    run(&nights, 24);
    let rows = nights.shop.visible("out");
    let at = |number: usize| nights.rows(20..number) as usize;
    for number in [22, 23, 24] {
        let today = expected(&nights, number + 1, number..number + 1);
        assert!(
            rows.slice(at(number), today.num_rows()) == today,
            "day {number}"
        );
    }
    assert!(rows.slice(0, at(22)) == before.slice(0, at(22)));
    // Out of reach: the run does not check this day.
    restate(&nights, 20);
    let rows = nights.shop.visible("out").num_rows();
    let args = ["--interval", &day(&nights, 24), &day(&nights, 25)].map(str::to_owned);
    let args: Vec<&str> = ["run", "spec.yaml"]
        .into_iter()
        .chain(args.iter().map(String::as_str))
        .collect();
    nights.shop.forebay(&args).expect(0);
    assert_eq!(nights.shop.visible("out").num_rows(), rows);
}

#[test]
fn a_backfill_rewrites_late_days() {
    let nights = nights();
    let backfill = |to: usize| -> Vec<bool> {
        let from = day(&nights, 20);
        let to = day(&nights, to);
        let call = nights
            .shop
            .forebay(&[
                "backfill",
                "spec.yaml",
                "--from",
                &from,
                "--to",
                &to,
                "--json",
            ])
            .expect(0);
        let done = call.summary();
        let done = done["intervals"].as_array().unwrap().iter();
        done.map(|interval| !interval["skipped"].as_bool().unwrap())
            .collect()
    };
    assert_eq!(backfill(25), [true; 5]);
    restate(&nights, 23);
    // Before the end where all are there, else before the first that is not.
    assert_eq!(backfill(25), [false, false, true, true, true]);
    let rows = nights.shop.visible("out");
    assert_eq!(rows.num_rows() as u64, nights.rows(20..25));
    assert_eq!(backfill(27), [false, false, true, true, true, true, true]);
    let last = expected(&nights, 27, 26..27);
    let rows = nights.shop.visible("out");
    assert!(rows.slice(rows.num_rows() - last.num_rows(), last.num_rows()) == last);
}
