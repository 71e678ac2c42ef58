//! Drift against the trailing week: night by night, with nights of a few rows and a planted shift.

use std::collections::BTreeMap;
use std::sync::Arc;

use arrow::array::{ArrayRef, Date32Array, Float64Array, Int32Array, StringArray};
use arrow::temporal_conversions::date32_to_datetime;
use serde_json::{Value, json};

use crate::steps::edge_values::write;
use crate::support::{ProgramOutput, TestDirectory};

const CATEGORIES: [&str; 4] = ["bakery", "dairy", "fruit", "meat"];

/// Thresholds near nothing: the noise of a night of a few rows is far above them.
const RULE: &str = "drift: { columns: [price, category, product], against: trailing_week, js: 0.01, missing: 0.01 }";

fn date(day: i32) -> String {
    date32_to_datetime(day).unwrap().date().to_string()
}

/// The rows of a night.
#[derive(Clone, Copy)]
struct Night {
    seed: u64,
    day: i32,
    rows: u64,
    /// Prices are multiples of it.
    scale: f64,
    /// The share of rows without a price, in percent.
    missing: u64,
}

impl Night {
    fn usual(seed: u64, day: i32) -> Night {
        Night {
            seed,
            day,
            rows: 900 + 40 * (day as u64 % 5),
            scale: 1.0,
            missing: 3,
        }
    }

    /// A number that looks like chance.
    fn draw(&self, row: u64, what: u64) -> u64 {
        let mixed = (self.seed << 40) ^ ((self.day as u64) << 24) ^ (row << 4) ^ what;
        let mixed = mixed.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed ^ (mixed >> 31)) >> 8
    }

    /// Half of the rows are of the first one, a quarter of the second one.
    fn category(&self, row: u64) -> &'static str {
        CATEGORIES[[0, 0, 0, 0, 1, 1, 2, 3][self.draw(row, 1) as usize % 8]]
    }

    /// More values than a profile lists.
    fn product(&self, row: u64) -> String {
        format!("product {}", self.draw(row, 5) % 800)
    }

    fn counts(&self) -> BTreeMap<&'static str, f64> {
        let mut counts = BTreeMap::new();
        (0..self.rows).for_each(|row| *counts.entry(self.category(row)).or_default() += 1.0);
        counts
    }

    /// A fifth of the prices are free, the others have a long tail.
    fn price(&self, row: u64) -> Option<f64> {
        let uniform = (self.draw(row, 2) % 1_000_000) as f64 / 1e6;
        let price = if self.draw(row, 3).is_multiple_of(5) {
            0.0
        } else {
            -self.scale * (1.0 - uniform).ln()
        };
        (self.draw(row, 4) % 100 >= self.missing).then_some(price)
    }

    fn write(&self, shop: &TestDirectory) {
        let day = std::iter::repeat_n(self.day, self.rows as usize);
        let columns: [(&str, ArrayRef); 5] = [
            ("date", Arc::new(Date32Array::from_iter_values(day))),
            (
                "item",
                Arc::new(Int32Array::from_iter_values(0..self.rows as i32)),
            ),
            (
                "category",
                Arc::new(StringArray::from_iter_values(
                    (0..self.rows).map(|row| self.category(row)),
                )),
            ),
            (
                "product",
                Arc::new(StringArray::from_iter_values(
                    (0..self.rows).map(|row| self.product(row)),
                )),
            ),
            (
                "price",
                Arc::new(Float64Array::from_iter(
                    (0..self.rows).map(|row| self.price(row)),
                )),
            ),
        ];
        write(shop, &format!("days/{}.parquet", self.day), columns);
    }

    /// Writes the rows, and runs the night.
    fn run(&self, shop: &TestDirectory, more: &[&str]) -> ProgramOutput {
        self.write(shop);
        let from = date(self.day);
        let to = date(self.day + 1);
        let night = format!("--param=night={from}");
        shop.forebay(
            &[
                &[
                    "run",
                    "spec.yaml",
                    "--json",
                    &night,
                    "--interval",
                    &from,
                    &to,
                ],
                more,
            ]
            .concat(),
        )
    }
}

/// A spec with these rules about the rows of a night.
fn shop(rules: &str) -> TestDirectory {
    let shop = TestDirectory::new();
    std::fs::create_dir(shop.path("days")).unwrap();
    let text = format!(
        "version: 1\nname: nights\nparams: {{ night: {{ type: date }} }}\nsources:\n  rows: {{ parquet: {{ path: days \
         }}, time: date, keys: [item] }}\nsteps:\n  night:\n    from: rows\n    do:\n      - filter: \"date = DATE \
         '${{night}}'\"\n      - expect: [{rules}]\nsinks:\n  out: {{ from: night, parquet: {{ path: out }} }}\n"
    );
    shop.write("spec.yaml", &text);
    shop
}

/// What the rule about a column found.
fn rule<'s>(summary: &'s Value, column: &str) -> &'s Value {
    let rules = summary["expectations"].as_array().unwrap();
    rules
        .iter()
        .find(|rule| rule["drift"]["column"] == column)
        .unwrap_or_else(|| panic!("{column}: {rules:?}"))
}

/// The Jensen-Shannon divergence of two counts, in bits.
fn jensen_shannon(p: &BTreeMap<&str, f64>, q: &BTreeMap<&str, f64>) -> f64 {
    let shares = |counts: &BTreeMap<&str, f64>| {
        let all: f64 = counts.values().sum();
        CATEGORIES.map(|category| counts.get(category).unwrap_or(&0.0) / all)
    };
    let p = shares(p);
    let q = shares(q);
    let part = |share: f64, middle: f64| {
        if share > 0.0 {
            share * (share / middle).log2()
        } else {
            0.0
        }
    };
    let cell = |(p, q): (&f64, &f64)| (part(*p, (p + q) / 2.0) + part(*q, (p + q) / 2.0)) / 2.0;
    p.iter().zip(&q).map(cell).sum()
}

#[test]
fn quiet_nights_and_small_days_do_not_alarm_and_a_shift_does() {
    for seed in 1..=3 {
        let shop = shop(&format!("{{ {RULE} }}"));
        let nights = (16_000..16_010).map(|day| Night::usual(seed, day));
        let nights: Vec<Night> = nights
            .map(|night| {
                if night.day == 16_008 {
                    Night { rows: 15, ..night }
                } else {
                    night
                }
            })
            .collect();
        for (number, night) in nights.iter().enumerate() {
            let summary = night.run(&shop, &[]).expect(0).summary();
            let week = &nights[number.saturating_sub(7)..number];
            for column in ["price", "category", "product"] {
                let found = rule(&summary, column);
                assert_eq!(
                    (&found["holds"], &found["rows"]),
                    (&json!(true), &json!(night.rows)),
                    "{seed}: {found}"
                );
                let rows: u64 = week.iter().map(|night| night.rows).sum();
                let rows = (number > 0).then_some(rows);
                let drift = &found["drift"];
                let told = (
                    &drift["baseline_runs"],
                    &drift["baseline_rows"],
                    &drift["against"],
                );
                assert_eq!(
                    told,
                    (&json!(week.len()), &json!(rows), &json!("trailing_week")),
                    "{seed}: {found}"
                );
                assert_eq!(drift["js"].is_null(), number == 0, "{seed}: {found}");
                // Only its size keeps a night of 15 rows from an alarm.
                let is_small = night.rows < 100;
                assert!(
                    !is_small || column != "price" || drift["js"].as_f64() > Some(0.05),
                    "{seed}: {found}"
                );
                assert!(
                    !is_small || drift["js_limit"].as_f64() > drift["js"].as_f64(),
                    "{seed}: {found}"
                );
            }
            if number > 0 {
                // That of all rows of the week together, each once.
                let mut before = BTreeMap::new();
                for (category, count) in week.iter().flat_map(Night::counts) {
                    *before.entry(category).or_default() += count;
                }
                let js = rule(&summary, "category")["drift"]["js"].as_f64().unwrap();
                assert!(
                    (js - jensen_shannon(&before, &night.counts())).abs() < 1e-12,
                    "{seed} {number}: {js}"
                );
            }
        }
        // A shift, in the same night: nothing is published, and it is no part of later weeks.
        let last = Night::usual(seed, 16_010);
        let shifted = Night { scale: 1.8, ..last }
            .run(&shop, &[])
            .expect(65)
            .stderr;
        let message = "`drift: price against trailing_week` does not hold in step night.expect: the Jensen-Shannon";
        assert!(
            shifted.contains(message) && shifted.matches("`drift: ").count() == 1,
            "{seed}: {shifted}"
        );
        let missing = Night {
            missing: 10,
            ..last
        }
        .run(&shop, &[])
        .expect(65)
        .stderr;
        assert!(
            missing.contains("`drift: price") && missing.contains("rows without a value"),
            "{seed}: {missing}"
        );
        for _again in 0..2 {
            // Done again, a night has the same days before it.
            let summary = last.run(&shop, &[]).expect(0).summary();
            let drift = &rule(&summary, "price")["drift"];
            let rows: u64 = nights[3..].iter().map(|night| night.rows).sum();
            assert_eq!(
                (&drift["baseline_runs"], &drift["baseline_rows"]),
                (&json!(7), &json!(rows)),
                "{drift}"
            );
        }
        // Eight days later there is nothing to compare with.
        let summary = Night {
            day: 16_018,
            ..last
        }
        .run(&shop, &[])
        .expect(0)
        .summary();
        assert_eq!(rule(&summary, "price")["drift"]["baseline_runs"], 0);
    }
}

#[test]
fn summaries_and_pages_tell_of_drift_against_weeks_runs_and_parts() {
    let rules = [
        format!("{{ {RULE}, policy: warn }}"),
        "{ drift: { columns: [price], against: last_run } }".to_owned(),
        "{ drift: { columns: [price], of: test, against: train } }".to_owned(),
    ];
    let shop = shop(&rules.join(", "));
    let text = std::fs::read_to_string(shop.path("spec.yaml")).unwrap();
    let split = "split:\n  train: \"item % 3 > 0\"\n  test: \"item % 3 = 0\"\nsinks:";
    shop.write("spec.yaml", &text.replace("sinks:", split));
    let nights: Vec<Night> = (16_000..16_003).map(|day| Night::usual(9, day)).collect();
    for night in &nights[..2] {
        night.run(&shop, &["--report=run.html"]).expect(0);
    }
    let section = |page: &str| {
        let (_, section) = page
            .split_once("<section id=\"drift\"")
            .unwrap_or_else(|| panic!("no drift in {page}"));
        section.split("</section>").next().unwrap().to_owned()
    };
    let page = section(&std::fs::read_to_string(shop.path("run.html")).unwrap());
    for against in ["trailing_week (1 run)", "last_run (1 run)", "train<"] {
        assert!(page.contains(against), "no {against} in {page}");
    }
    assert_eq!(
        (
            page.matches("holds").count(),
            page.matches("does not hold").count()
        ),
        (5, 0),
        "{page}"
    );
    // In text, what does not hold comes first.
    let night = Night {
        scale: 2.0,
        ..nights[2]
    };
    night.write(&shop);
    let from = date(night.day);
    let to = date(night.day + 1);
    let param = format!("--param=night={from}");
    let told = shop
        .forebay(&["run", "spec.yaml", &param, "--interval", &from, &to])
        .expect(0)
        .stdout;
    let (_, drift) = told
        .split_once("drift:\n")
        .unwrap_or_else(|| panic!("{told}"));
    let lines: Vec<&str> = drift.lines().take(5).map(str::trim).collect();
    let week =
        "night.expect: price against trailing_week (2 runs, 1,840 rows): does not hold, JS 0.";
    assert!(
        lines[0].starts_with(week) && lines[0].contains(" of at most 0.01"),
        "{drift}"
    );
    for part in [
        "price against last_run (1 run, ",
        "price against train (",
        "category against trailing_week (2 runs, ",
    ] {
        assert!(
            lines[1..]
                .iter()
                .any(|line| line.contains(part) && line.contains(": holds, JS 0.")),
            "{part}: {drift}"
        );
    }
    // The page of a run that failed has it, too, and a first run says that there is nothing to compare with.
    let spec = std::fs::read_to_string(shop.path("spec.yaml")).unwrap();
    shop.write(
        "spec.yaml",
        &spec
            .replace(", policy: warn", "")
            .replace("name: nights", "name: others"),
    );
    shop.remove_output("out");
    nights[0].run(&shop, &["--report=run.html"]).expect(0);
    let first = section(&std::fs::read_to_string(shop.path("run.html")).unwrap());
    assert_eq!(
        first.matches("no earlier run to compare with").count(),
        4,
        "{first}"
    );
    Night {
        scale: 5.0,
        ..nights[1]
    }
    .run(&shop, &["--report=run.html"])
    .expect(65);
    let failed = section(&std::fs::read_to_string(shop.path("run.html")).unwrap());
    assert_eq!(failed.matches("does not hold").count(), 2, "{failed}");
}

/// A spec whose rule sees the whole history behind some steps.
fn history_shop(steps: &str, rule: &str) -> TestDirectory {
    let shop = shop(rule);
    let text = std::fs::read_to_string(shop.path("spec.yaml")).unwrap();
    let filter = "      - filter: \"date = DATE '${night}'\"\n";
    assert!(text.contains(filter));
    shop.write(
        "spec.yaml",
        &text.replace(filter, steps).replace(
            "night: { type: date }",
            "night: { type: date, default: 2000-01-01 }",
        ),
    );
    shop
}

#[test]
fn of_a_history_the_new_day_alone_is_compared() {
    // All rows of the history beside those of the last run hide the same shift.
    let rule = "{ drift: { columns: [price], against: trailing_week, js: 0.02 } }, { drift: { columns: [price], against: \
                last_run, js: 0.02 } }";
    let first = 16_000;
    // What the rule compares in a night: its own rows, or all of them.
    let cases = [
        ("nothing before it", "", true),
        (
            "rows are taken out",
            "      - filter: \"item >= 100\"\n",
            true,
        ),
        (
            "a statistic of all rows",
            "      - filter: \"price > 0\"\n      - standardize: { columns: [price] }\n",
            true,
        ),
        (
            "windows over other columns",
            "      - derive: { one: \"1\" }\n      - lag: { columns: [one], by: [1d] }\n",
            true,
        ),
        (
            "windows over the column",
            "      - lag: { columns: [price], by: [1d] }\n      - rename: { price: other, price_lag_1d: price }\n",
            false,
        ),
    ];
    for (what, steps, is_new_alone) in cases {
        let shop = history_shop(steps, rule);
        let kept = |night: &Night| match what {
            "rows are taken out" => night.rows - 100,
            "a statistic of all rows" => (0..night.rows)
                .filter(|row| night.price(*row) > Some(0.0))
                .count() as u64,
            _ => night.rows,
        };
        let history: Vec<Night> = (first..first + 30)
            .map(|day| Night::usual(5, day))
            .collect();
        history[..29].iter().for_each(|night| night.write(&shop));
        let summary = history[29].run(&shop, &[]).expect(0).summary();
        let found = rule_of(&summary);
        let before: u64 = history.iter().map(kept).sum();
        assert_eq!(
            (&found["rows"], &found["drift"]["baseline_runs"]),
            (&json!(before), &json!(0)),
            "{what}: {found}"
        );
        // A quiet night.
        let night = Night::usual(5, first + 30);
        let summary = night.run(&shop, &[]).expect(0).summary();
        let found = rule_of(&summary);
        let rows = if is_new_alone {
            kept(&night)
        } else {
            before + kept(&night)
        };
        assert_eq!(found["rows"], rows, "{what}: {found}");
        assert_eq!(found["drift"]["baseline_rows"], before, "{what}: {found}");
        // Done again, with nothing new in between.
        let again = shop.forebay(&[
            "run",
            "spec.yaml",
            "--json",
            "--interval",
            &date(night.day),
            &date(night.day + 1),
        ]);
        let again = again.expect(0).summary();
        assert_eq!(rule_of(&again), found, "{what}");
        // A shift in one night of a month.
        let next = Night::usual(5, first + 31);
        let shifted = Night { scale: 2.0, ..next }.run(&shop, &[]);
        if !is_new_alone {
            shifted.expect(0);
            continue;
        }
        let told = shifted.expect(65).stderr;
        assert!(
            told.contains("`drift: price against trailing_week` does not hold"),
            "{what}: {told}"
        );
        assert_eq!(told.matches("does not hold").count(), 1, "{what}: {told}");
        // It is no part of later weeks, and the night is done again without it.
        let summary = next.run(&shop, &[]).expect(0).summary();
        let drift = &rule_of(&summary)["drift"];
        let week = before + kept(&night);
        assert_eq!(
            (&drift["baseline_runs"], &drift["baseline_rows"]),
            (&json!(2), &json!(week)),
            "{what}: {drift}"
        );
        // A day without a file: nothing is compared, and it is no day of later weeks.
        let from = date(next.day + 1);
        let to = date(next.day + 2);
        let summary = shop
            .forebay(&["run", "spec.yaml", "--json", "--interval", &from, &to])
            .expect(0)
            .summary();
        let found = rule_of(&summary);
        assert_eq!(
            (&found["holds"], &found["rows"]),
            (&json!(true), &json!(0)),
            "{what}: {found}"
        );
        let last = Night::usual(5, first + 33);
        let summary = last.run(&shop, &[]).expect(0).summary();
        let drift = &rule_of(&summary)["drift"];
        assert_eq!(
            (&drift["baseline_runs"], &drift["baseline_rows"]),
            (&json!(3), &json!(week + kept(&next))),
            "{what}: {drift}"
        );
    }
}

fn rule_of(summary: &Value) -> &Value {
    rule(summary, "price")
}

#[test]
fn a_filter_to_the_night_compares_rows_of_known_files_too() {
    let shop = shop("{ drift: { columns: [price], against: trailing_week } }");
    // All days are there before the first night.
    let nights: Vec<Night> = (16_000..16_005).map(|day| Night::usual(3, day)).collect();
    nights.iter().for_each(|night| night.write(&shop));
    for (number, night) in nights.iter().enumerate() {
        // The runs are of days after all files.
        let day = 16_010 + number as i32;
        let param = format!("--param=night={}", date(night.day));
        let summary = shop.forebay(&[
            "run",
            "spec.yaml",
            "--json",
            &param,
            "--interval",
            &date(day),
            &date(day + 1),
        ]);
        let summary = summary.expect(0).summary();
        assert_eq!(rule_of(&summary)["rows"], night.rows, "{number}: {summary}");
    }
}
