//! `forebay check --perturb-future`: what knows the future is found on the data, with its cause.

use crate::support::{TestDirectory, has_pyarrow};

/// Three stores over forty days of 2016, with prices that go up and some missing quantities.
fn history(shop: &TestDirectory) {
    let mut text = String::from("store,day,qty,price,weather\n");
    for row in 0..120 {
        let store = ["a", "b", "c"][row % 3];
        let day = row / 3;
        let date = format!("2016-{:02}-{:02}", 1 + day / 31, 1 + day % 31);
        let qty = if row % 11 == 5 {
            String::new()
        } else {
            (row * 37 % 23).to_string()
        };
        let weather = ["sun", "rain", "snow"][row * 7 % 5 % 3];
        text += &format!("{store},{date},{qty},{}.5,{weather}\n", day + row % 3);
    }
    shop.write("history.csv", &text);
}

/// A spec with these items in the list of steps.
fn spec(steps: &str, rest: &str) -> String {
    let steps: String = steps
        .lines()
        .map(|line| format!("      {line}\n"))
        .collect();
    format!(
        "version: 1\nname: test\nsources:\n  demand:\n    csv: {{ path: history.csv }}\n    time: day\n    \
         keys: [store]\nsteps:\n  features:\n    from: demand\n    {rest}do:\n{steps}split:\n  train: \"day < DATE \
         '2016-01-21'\"\n  rest: \"day >= DATE '2016-01-21'\"\nsinks:\n  table: {{ from: features, parquet: {{ \
         path: out }} }}\n"
    )
}

/// Everything that the program says about a spec.
fn check_output(steps: &str, rest: &str, args: &[&str], code: i32) -> String {
    let shop = TestDirectory::new();
    history(&shop);
    shop.write("spec.yaml", &spec(steps, rest));
    let all = [
        &[
            "check",
            "spec.yaml",
            "--perturb-future",
            "--memory=256MiB",
            "-q",
        ],
        args,
    ]
    .concat();
    let call = shop.forebay(&all).expect(code);
    assert!(!shop.path("out").exists(), "a check wrote to the sink");
    let state = std::fs::read_dir(shop.path(".forebay"));
    assert_eq!(
        state.map_or(0, Iterator::count),
        0,
        "a check left something behind"
    );
    format!("{}{}", call.stdout, call.stderr)
}

const SOUND: &str = "\
- lag: { columns: [qty], by: [1d, 7d] }
- rolling: { columns: [qty], compute: [mean, max], over: [7d], gap: 1d }
- expanding: { columns: [price], compute: [mean] }
- pooled: { columns: [qty], compute: [mean], by: [weather], over: [7d], gap: 1d }
- seasonal_index: { columns: [qty], period: day_of_week, gap: 1d }
- min_max: { columns: [price] }
- standardize: { columns: [qty_mean_7d] }
- vocabulary: { columns: [weather] }";

#[test]
fn what_looks_back_is_proved() {
    let said = check_output(SOUND, "fit_on: train\n    ", &[], 0);
    let cuts = [("2016-01-20", 60), ("2016-01-28", 84), ("2016-02-05", 108)];
    let proved = |(day, rows): (&str, usize)| {
        format!(
            "demand: scrambled price, qty, weather in all rows after {day}\n\
             table: {rows} rows at or before {day}, the same bits in 10 columns\n"
        )
    };
    assert_eq!(said, cuts.map(proved).concat());
    let said = check_output(SOUND, "fit_on: train\n    ", &["--cuts=1"], 0);
    assert_eq!(said, proved(cuts[0]));
}

/// Values of the last days before a cut are known to models that are fitted on it, and none behind it.
#[test]
fn forecasts_as_features_are_proved() {
    let steps = "- forecast_feature: { columns: [qty], horizon: 3d, every: 1d, season: 7d }\n\
                 - forecast_feature: { columns: [price], horizon: 1d, every: 1d, refit: 7d, model: ets }";
    let output = check_output(steps, "", &[], 0);
    let proved = output.matches("the same bits in 5 columns").count();
    assert_eq!(proved, 3, "{output}");
}

/// The mean of a week knows its last day. The first cut falls between two weeks, where that moves nothing.
#[test]
fn a_leak_inside_of_periods_is_found_by_another_cut() {
    let steps = "- drop: [qty]";
    let week = "date_bin(INTERVAL '7 days', day, TIMESTAMP '2015-12-31')";
    let shop = TestDirectory::new();
    history(&shop);
    let text = spec(steps, "").replace(
        "from: demand",
        &format!(
            "sql: \"SELECT *, avg(price) OVER (PARTITION BY store, {week}) AS mean FROM demand\""
        ),
    );
    shop.write("spec.yaml", &text);
    let check = |args: &[&str], code| {
        let all = [
            &["check", "spec.yaml", "--perturb-future", "--memory=256MiB"],
            args,
        ]
        .concat();
        shop.forebay(&all).expect(code).stdout
    };
    assert!(check(&["--cuts=1"], 0).contains("the same bits"));
    let found = check(&[], 65);
    assert!(
        found.contains("table: 60 rows at or before 2016-01-20, the same bits in"),
        "{found}"
    );
    assert!(found.contains("1 of 3 columns moved"), "{found}");
}

#[test]
fn a_statistic_of_all_rows_is_named() {
    let said = check_output("- standardize: { columns: [price] }", "", &[], 65);
    let expected = "\
demand: scrambled price, qty, weather in all rows after 2016-01-20
table: 60 rows at or before 2016-01-20, 1 of 3 columns moved
error[FB0214]: `price` in sink `table` moves when later rows are scrambled
  --> spec.yaml:12:34
   |
12 |       - standardize: { columns: [price] }
   |                                  ^^^^^
hint: set `fit_on` to a part of the split that ends before
note: `features.standardize` learned from all rows, those after 2016-01-20 too
note: 60 of 60 rows at or before 2016-01-20 moved, first in row 0 (store=a, day=2016-01-01): -1.7714811918119178 \
         became -1.4532516750869324
";
    assert_eq!(said, expected);
}

#[test]
fn a_part_that_reaches_into_the_future_is_named() {
    let steps = "- standardize: { columns: [price] }\n- lag: { columns: [qty], by: [1d] }";
    let said = check_output(steps, "fit_on: train\n    ", &["--at", "2016-01-10"], 65);
    let expected = "\
hint: let `train` end earlier, or check a later time with `--at`
note: `features.standardize` learned from `train`, which has rows after 2016-01-10
note: 30 of 30 rows at or before 2016-01-10 moved";
    assert!(said.contains(expected), "{said}");
    assert!(said.contains("1 of 4 columns moved"), "{said}");
}

#[test]
fn a_filling_from_the_future_is_named() {
    let said = check_output(
        "- interpolate: { columns: [qty] }",
        "",
        &["--at=2016-01-21"],
        65,
    );
    assert!(
        said.contains("note: `features.interpolate` reads the rows that follow"),
        "{said}"
    );
    assert!(said.contains(
        "1 of 63 rows at or before 2016-01-21 moved, first in row 60 (store=a, day=2016-01-21)"
    ));
}

#[test]
fn a_query_that_leads_is_named() {
    let shop = TestDirectory::new();
    history(&shop);
    let text = spec("- drop: [weather]", "").replace(
        "from: demand",
        "sql: \"SELECT *, LEAD(qty) OVER (PARTITION BY store ORDER BY day) AS next FROM demand\"",
    );
    shop.write("spec.yaml", &text);
    let call = shop
        .forebay(&[
            "check",
            "spec.yaml",
            "--perturb-future",
            "--json",
            "--memory=256MiB",
        ])
        .expect(65);
    let summary = call.summary();
    assert_eq!(summary["fault"]["code"], "FB0214");
    let moved = &summary["perturbed"]["cuts"][0]["sinks"][0]["moved"];
    assert_eq!(moved[0]["column"], "next");
    assert_eq!(moved[0]["step"], "features.sql");
    assert_eq!(moved[0]["rows"], 3);
    assert_eq!(moved.as_array().unwrap().len(), 1);
}

#[test]
fn a_filter_that_depends_on_the_future_is_named() {
    let steps = "- standardize: { columns: [price], suffix: _z }\n- filter: \"price_z > 0\"";
    let said = check_output(steps, "", &["--at=2016-01-20"], 65);
    assert!(
        said.contains("come or go when later rows are scrambled"),
        "{said}"
    );
}

#[test]
fn sinks_need_not_write_the_time() {
    let steps = "- derive: { double: \"qty * 2\" }\n- interpolate: { columns: [qty] }\n- rename: { double: twice }\n";
    let said = check_output(
        &format!("{steps}- select: [twice, price]"),
        "",
        &["--at=2016-01-21"],
        0,
    );
    assert!(
        said.contains("table: 63 rows at or before 2016-01-21, the same bits in 2 columns"),
        "{said}"
    );
    let said = check_output(
        &format!("{steps}- drop: [day]"),
        "",
        &["--at=2016-01-21"],
        65,
    );
    assert!(said.contains("`qty` in sink `table` moves"), "{said}");
    let lost = "- drop: [day]\n- derive: { double: \"qty * 2\" }";
    let said = check_output(lost, "", &["--at=2016-01-21"], 78);
    assert!(
        said.contains("sink `table` does not write the time of its rows"),
        "{said}"
    );
}

#[test]
fn times_without_a_past_or_a_future_prove_nothing() {
    for (at, word) in [
        ("2017-01-01", "no row is after"),
        ("2015-01-01", "no sink writes a row at or before"),
    ] {
        let said = check_output("- lag: { columns: [qty], by: [1d] }", "", &["--at", at], 65);
        assert!(
            said.contains(word) && said.contains("2016-01-01 and 2016-02-09"),
            "{said}"
        );
    }
    let said = check_output(
        "- lag: { columns: [qty], by: [1d] }",
        "",
        &["--at=soon"],
        78,
    );
    assert!(said.contains("`soon` is no time of `day`"), "{said}");
    TestDirectory::new()
        .forebay(&["check", "spec.yaml", "--at=2016-01-01"])
        .expect(64);
}

/// What is declared of a query is proved up to the horizon: a mean of three days on both sides, called seven days old,
/// moves within the week after a cut. One that ends with its row does not.
#[test]
fn declared_ages_are_proved_within_the_horizon() {
    let check = |frame: &str, horizon: &str, code: i32| {
        let shop = TestDirectory::new();
        history(&shop);
        // A horizon in rows, and a lag by rows.
        let (lag, feature) = match horizon {
            "7d" => ("by: [7d]", "near_lag_7d"),
            rows => (&*format!("by: [{rows}], gaps: count_rows"), "near_lag_7"),
        };
        let text = format!(
            "version: 1\nname: test\nsources:\n  demand:\n    csv: {{ path: history.csv }}\n    time: day\n    keys: \
             [store]\nsteps:\n  q:\n    sql: \"SELECT *, avg(price) OVER (PARTITION BY store ORDER BY day ROWS BETWEEN 3 \
             PRECEDING AND {frame}) AS near FROM demand\"\n    data_age: {{ near: 0d }}\n  features:\n    from: q\n    \
             do:\n      - lag: {{ columns: [near], {lag}, time: day, keys: [store] }}\nlabel: {{ column: qty, horizon: \
             \"{horizon}\" }}\nsinks:\n  net: {{ from: features, train: {{ path: out, model: gbdt, dense: [{feature}], \
             categorical: [], rounds: 3 }} }}\n"
        );
        shop.write("spec.yaml", &text);
        shop.forebay(&["check", "spec.yaml"]).expect(0);
        let args = ["check", "spec.yaml", "--perturb-future", "--at=2016-01-20"];
        let call = shop.forebay(&[&args[..], &["--memory=256MiB"]].concat());
        let call = call.expect(code);
        format!("{}{}", call.stdout, call.stderr)
    };
    for (horizon, feature) in [("7d", "near_lag_7d"), ("7", "near_lag_7")] {
        let leaks = check("3 FOLLOWING", horizon, 65);
        let moves = format!("`{feature}` in sink `net` moves when later rows are scrambled");
        assert!(leaks.contains(&moves), "{leaks}");
        assert!(
            leaks.contains("of 21 rows within the horizon after 2016-01-20 moved"),
            "{leaks}"
        );
        let sound = check("CURRENT ROW", horizon, 0);
        assert!(
            sound.contains(
                "60 rows at or before 2016-01-20, 21 rows within the horizon after it, the same bits"
            ),
            "{sound}"
        );
    }
}

/// A column that no model takes may know the future: what is made of it is what counts.
#[test]
fn columns_that_no_model_takes_are_not_compared() {
    let check = |dense: &str, sinks: &str, code: i32| {
        let shop = TestDirectory::new();
        history(&shop);
        let text = format!(
            "version: 1\nname: test\nsources:\n  demand:\n    csv: {{ path: history.csv }}\n    time: day\n    keys: \
             [store]\nsteps:\n  q:\n    sql: \"SELECT d.*, e.price AS next FROM demand d LEFT JOIN demand e ON d.store = \
             e.store AND e.day = d.day + 1\"\n  features:\n    from: q\n    \
             do:\n      - lag: {{ columns: [next], by: [8d], time: day, keys: [store] }}\nsinks:\n  net: {{ from: \
             features, train: {{ path: out, model: gbdt, label: qty, dense: [{dense}], categorical: [], rounds: 3 }} }}\n{sinks}"
        );
        shop.write("spec.yaml", &text);
        let args = ["check", "spec.yaml", "--perturb-future", "--at=2016-01-20"];
        let call = shop.forebay(&[&args[..], &["--memory=256MiB"]].concat());
        let call = call.expect(code);
        format!("{}{}", call.stdout, call.stderr)
    };
    let sound = check("next_lag_8d", "", 0);
    assert!(sound.contains("the same bits in 1 column"), "{sound}");
    let moves = |sink: &str| format!("`next` in sink `{sink}` moves when later rows are scrambled");
    let leaks = check("next, next_lag_8d", "", 65);
    assert!(leaks.contains(&moves("net")), "{leaks}");
    // A table of features is compared in all columns.
    let table = "  table: { from: features, parquet: { path: table } }\n";
    let leaks = check("next_lag_8d", table, 65);
    assert!(leaks.contains(&moves("table")), "{leaks}");
}

/// Rows within the horizon that are in one of the runs alone are not compared, which is said.
#[test]
fn rows_that_are_not_compared_are_counted() {
    let check = |horizon: &str, lag: &str, filter: &str| {
        let shop = TestDirectory::new();
        history(&shop);
        let text = format!(
            "version: 1\nname: test\nsources:\n  demand:\n    csv: {{ path: history.csv }}\n    time: day\n    keys: \
             [store]\nsteps:\n  features:\n    from: demand\n    \
             do:\n      - lag: {{ columns: [price], {lag} }}\n{filter}label: {{ column: qty, horizon: \
             \"{horizon}\" }}\nsinks:\n  net: {{ from: features, train: {{ path: out, model: gbdt, dense: [\"price_lag_*\"], \
             categorical: [], rounds: 3 }} }}\n"
        );
        shop.write("spec.yaml", &text);
        let args = ["check", "spec.yaml", "--perturb-future", "--at=2016-01-20"];
        let call = shop.forebay(&[&args[..], &["--memory=256MiB"]].concat());
        let call = call.expect(0);
        format!("{}{}", call.stdout, call.stderr)
    };
    for (horizon, lag) in [("7d", "by: [7d]"), ("7", "by: [7], gaps: count_rows")] {
        let all = check(horizon, lag, "");
        assert!(all.contains("21 rows within the horizon after it"), "{all}");
        assert!(!all.contains("not compared"), "{all}");
        let filtered = check(horizon, lag, "      - filter: \"qty IS NOT NULL\"\n");
        assert!(
            filtered.contains("rows within the horizon not compared: they are in one of the runs"),
            "{filtered}"
        );
    }
}

/// A column that is listed as known counts as planned, unless it is computed from the label: that one is compared.
#[test]
fn known_columns_made_of_the_label_are_compared() {
    let check = |steps: &str, label: &str, code: i32| {
        let shop = TestDirectory::new();
        history(&shop);
        let text = format!(
            "version: 1\nname: test\nsources:\n  demand:\n    csv: {{ path: history.csv }}\n    time: day\n    keys: \
             [store]\nsteps:\n  features:\n    from: demand\n    do:\n{steps}label: {{ {label} }}\nsinks:\n  net: {{ from: \
             features, train: {{ path: out, model: gbdt, label: qty, dense: [planned], categorical: [], rounds: 3 }} }}\n"
        );
        shop.write("spec.yaml", &text);
        let args = ["check", "spec.yaml", "--perturb-future", "--at=2016-01-20"];
        let call = shop.forebay(&[&args[..], &["--memory=256MiB"]].concat());
        let call = call.expect(code);
        format!("{}{}", call.stdout, call.stderr)
    };
    let lag = |by: &str, column: &str| {
        format!(
            "      - lag: {{ columns: [{column}], by: [{by}] }}\n      - rename: {{ {column}_lag_{by}: planned }}\n"
        )
    };
    let known = "column: qty, horizon: 7d, known: [planned]";
    let all = check(&lag("1d", "qty"), known, 65);
    assert!(
        all.contains("`planned` in sink `net` moves when later rows are scrambled"),
        "{all}"
    );
    check(&lag("7d", "qty"), known, 0);
    check(&lag("1d", "price"), known, 0);
}

#[test]
fn real_flights() {
    let Some(data) = crate::support::real_data("flights") else {
        return;
    };
    let shop = TestDirectory::new();
    let spec = crate::support::ready_made("flights.yaml");
    let data = format!("--param=data={}", data.display());
    let call = shop
        .forebay(&["check", &spec, &data, "--perturb-future", "--memory=256MiB"])
        .expect(0);
    assert!(
        call.stdout
            .contains("before 2013-11-01, the same bits in 13 columns"),
        "{}",
        call.stdout
    );
}

/// What a step declares of a function is proved on the data.
#[test]
fn a_function_of_whole_series_that_looks_ahead_is_named() {
    if !has_pyarrow() {
        return;
    }
    let step = |body: &str, looks_ahead: &str| {
        format!(
            "- python: {{ function: f, code: \"def f(batch): return {body}\", columns: [price], returns: {{ seen: float64 \
             }}, by: series, looks_ahead: {looks_ahead} }}"
        )
    };
    let prices = "batch['price'].to_pylist()";
    let sound = step(&format!("[{prices}[0]] * batch.num_rows"), "none");
    check_output(&sound, "", &[], 0);
    let reversed = step(&format!("{prices}[::-1]"), "none");
    let output_text = check_output(&reversed, "", &[], 65);
    for words in [
        "`seen` in sink `table` moves when later rows are scrambled",
        "`features.python` is given whole series, and uses the rows that follow",
        "rows up to its own",
    ] {
        assert!(output_text.contains(words), "{words}: {output_text}");
    }
}
