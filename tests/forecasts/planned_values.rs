//! What is planned for rows of the future must be there before anything is published, and forecasts have the units of
//! the rows that they continue.

use crate::support::TestDirectory;

/// Days of 2024, counted from 0.
fn date(day: u32) -> String {
    let mut day = day;
    for (number, days) in [31, 29, 31, 30].into_iter().enumerate() {
        if day < days {
            return format!("2024-{:02}-{:02}", number + 1, day + 1);
        }
        day -= days;
    }
    panic!("a day behind April")
}

/// The first eighty days of 2024 of two items, and a plan of prices for so many days.
fn shop(planned_days: u32) -> TestDirectory {
    let shop = TestDirectory::new();
    let mut history = String::from("item,day,y\n");
    let mut plan = String::from("item,day,price\n");
    for day in 0..planned_days {
        for item in ["a", "b"] {
            if day < 80 {
                history += &format!("{item},{},{}.5\n", date(day), day * 7 % 11);
            }
            plan += &format!("{item},{},{}.25\n", date(day), 1 + day % 3);
        }
    }
    shop.write("history.csv", &history);
    shop.write("plan.csv", &plan);
    shop
}

/// A forecast for a week with planned prices.
fn spec(behind: &str, train: &str, predict: &str) -> String {
    format!(
        "version: 1\nname: plans\nsources:\n  h: {{ csv: {{ path: history.csv }}, time: day, keys: [item] }}\n  plan: {{ \
         csv: {{ path: plan.csv }} }}\nsteps:\n  f:\n    from: h\n    do:\n      - future_rows: {{ horizon: 7d, every: 1d }}\n      \
         - join: {{ with: plan, on: [item, day] }}\n      - lag: {{ columns: [y], by: [7d] }}\n{behind}label: {{ column: y, \
         horizon: 7d, known: [price] }}\nsinks:\n  n: {{ from: f, train: {{ path: out/n, {train} }} }}\n  p: {{ from: f, \
         predict: {{ model: n, path: out/p{predict} }} }}\n"
    )
}

const TREES: &str =
    "model: gbdt, dense: [y_lag_7d, price], categorical: [], rounds: 3, min_leaf_rows: 2";

#[test]
fn a_plan_that_ends_with_the_history_is_a_fault() {
    let shop = shop(80);
    let run = |behind: &str, train: &str, predict: &str, code: i32| {
        shop.write("spec.yaml", &spec(behind, train, predict));
        let call = shop.forebay(&["run", "spec.yaml"]).expect(code);
        format!("{}{}", call.stdout, call.stderr)
    };
    let said = run("", TREES, "", 65);
    for word in [
        "FB0206",
        "`price` is known in advance, and has no value in 14 of 14 rows of the future in sink `p`",
        "the last time for which it is known is 2024-03-20",
        "`missing: accept`",
    ] {
        assert!(said.contains(word), "no `{word}` in:\n{said}");
    }
    assert!(!shop.path("out/p").exists() && !shop.path("out/n").exists());
    // What the model takes is computed of it.
    let derived = "      - derive: { double: \"price * 2\" }\n      - drop: [price]\n";
    let of_double = TREES.replace("price", "double");
    let said = run(derived, &of_double, "", 65);
    assert!(said.contains("`price` is known in advance"), "{said}");
    // No model takes it, or it is filled, or accepted.
    run("", &TREES.replace(", price", ""), "", 0);
    run(
        "      - impute: { columns: [price], with: median }\n",
        TREES,
        "",
        0,
    );
    let said = run("", TREES, ", missing: accept", 0);
    let warning = "warning: `price` is known in advance, and has no value in 14 of 14 rows of the future in sink `p`";
    assert!(said.contains(warning), "{said}");
    // A window that fills it looks at the history, too.
    run("      - fill_forward: { columns: [price] }\n", TREES, "", 0);
}

#[test]
fn a_plan_that_ends_inside_of_the_horizon_is_counted() {
    let shop = shop(84);
    shop.write("spec.yaml", &spec("", TREES, ""));
    let said = shop.forebay(&["run", "spec.yaml"]).expect(65).stderr;
    assert!(
        said.contains("no value in 6 of 14 rows of the future"),
        "{said}"
    );
    assert!(
        said.contains("the last time for which it is known is 2024-03-24"),
        "{said}"
    );
    let longer = self::shop(90);
    longer.write("spec.yaml", &spec("", TREES, ""));
    longer.forebay(&["run", "spec.yaml"]).expect(0);
}

/// NaN is no value either: models take it as missing.
#[test]
fn a_plan_without_numbers_is_a_fault() {
    let shop = shop(90);
    let unknown = "      - derive: { price: \"CASE WHEN day > DATE '2024-03-22' THEN (price - price) / (price - price) ELSE price END\" }\n";
    shop.write("spec.yaml", &spec(unknown, TREES, ""));
    let said = shop.forebay(&["run", "spec.yaml"]).expect(65).stderr;
    for words in [
        "no value in 10 of 14 rows of the future",
        "the last time for which it is known is 2024-03-22",
    ] {
        assert!(said.contains(words), "{said}");
    }
}

/// A model's forecasts need the plan as those of its run do.
#[test]
fn a_plan_that_ends_is_a_fault_for_later_forecasts() {
    let shop = shop(80);
    let plan = std::fs::read_to_string(shop.path("plan.csv")).unwrap();
    shop.write("short.csv", &plan);
    shop.write(
        "plan.csv",
        &std::fs::read_to_string(self::shop(90).path("plan.csv")).unwrap(),
    );
    let predict = |plan: &str, output: &str, code: i32| -> String {
        let plan = format!("plan={plan}");
        let words = [
            "predict",
            "out/n",
            "--source",
            "h=history.csv",
            "--source",
            &plan,
            "--output",
            output,
        ];
        shop.forebay(&words).expect(code).stderr
    };
    // The table of a lookup is that of the fit; rows that are shuffled are those of the prediction.
    let spec = spec("", TREES, "");
    let spec = spec.replace("on: [item, day] }", "on: [item, day], strategy: shuffle }");
    shop.write("spec.yaml", &spec);
    shop.forebay(&["run", "spec.yaml"]).expect(0);
    let said = predict("short.csv", "never", 65);
    let words = "`price` is known in advance, and has no value in 14 of 14 rows";
    assert!(said.contains(words), "{said}");
    assert!(!shop.path("never").exists());
    predict("plan.csv", "whole", 0);
}

/// A model that accepts the end of a plan is asked for no more of it.
#[test]
fn a_plan_that_may_end_is_none_for_later_forecasts() {
    let shop = shop(80);
    let spec = spec("", TREES, ", missing: accept");
    let spec = spec.replace("on: [item, day] }", "on: [item, day], strategy: shuffle }");
    shop.write("spec.yaml", &spec);
    shop.forebay(&["run", "spec.yaml"]).expect(0);
    let words = [
        "predict",
        "out/n",
        "--source=h=history.csv",
        "--source=plan=plan.csv",
        "--output=accepted",
    ];
    shop.forebay(&words).expect(0);
}

/// A model is judged by the spec of the last run, although it is that of a run before.
#[test]
fn later_forecasts_follow_a_changed_policy() {
    let shop = shop(90);
    let short = std::fs::read_to_string(self::shop(80).path("plan.csv")).unwrap();
    shop.write("short.csv", &short);
    for (round, (policy, code)) in [(", missing: accept", 0), ("", 65), (", missing: accept", 0)]
        .into_iter()
        .enumerate()
    {
        let spec = spec("", TREES, policy);
        let spec = spec.replace("on: [item, day] }", "on: [item, day], strategy: shuffle }");
        shop.write("spec.yaml", &spec);
        shop.forebay(&["run", "spec.yaml"]).expect(0);
        let words = [
            "predict",
            "out/n",
            "--source=h=history.csv",
            "--source=plan=short.csv",
            &format!("--output=forecast-{round}"),
        ];
        let said = shop.forebay(&words).expect(code).stderr;
        assert_eq!(said.contains("FB0206"), code == 65, "{policy}: {said}");
    }
}

#[test]
fn rules_judge_rows_of_the_future_where_they_say_so() {
    let shop = shop(80);
    let run = |rule: &str, code: i32| {
        let expect = format!("      - expect: [{{ not_null: [price] }}, {rule}]\n");
        shop.write("spec.yaml", &spec(&expect, TREES, ", missing: accept"));
        let call = shop.forebay(&["run", "spec.yaml"]).expect(code);
        format!("{}{}", call.stdout, call.stderr)
    };
    let said = run("{ not_null: [price], where: future }", 65);
    assert!(
        said.contains("FB0216") && said.contains("`not_null: price, where: future`"),
        "{said}"
    );
    assert!(said.contains("14 of 14 rows"), "{said}");
    let said = run("{ not_null: [price], where: future, policy: warn }", 0);
    assert!(
        said.contains("1 of 2 rules hold, 1 of them about rows of the future"),
        "{said}"
    );
    // Behind a window, the history comes before them and is not judged.
    let windowed = "{ not_null: [y_lag_7d], where: future }";
    let said = run(windowed, 0);
    assert!(
        said.contains("2 of 2 rules hold, 1 of them about rows of the future"),
        "{said}"
    );
    let said = run("{ rows: { min: 1 } }", 0);
    assert!(
        said.contains("2 of 2 rules hold, all about known rows"),
        "{said}"
    );
    let said = run(
        "{ not_null: [price], where: future, policy: quarantine }",
        78,
    );
    assert!(said.contains("known rows alone"), "{said}");
}

#[test]
fn a_label_that_changes_behind_future_rows_is_refused() {
    let shop = shop(90);
    let changes = [
        ("- log1p: { columns: [y] }", "y", "`f.log1p`"),
        (
            "- standardize: { columns: [y], by: [item] }",
            "y",
            "`f.standardize`",
        ),
        ("- min_max: { columns: [y] }", "y", "`f.min_max`"),
        ("- derive: { y: \"ln(y + 1)\" }", "y", "`f.derive`"),
        ("- derive: { small: \"ln(y + 1)\" }", "small", "`f.derive`"),
        (
            "- rename: { y: raw }\n      - derive: { y: \"raw * 2\" }\n      - drop: [raw]",
            "y",
            "`f.derive`",
        ),
        (
            "- log1p: { columns: [y], suffix: _log }\n      - drop: [y]\n      - rename: { y_log: y }",
            "y",
            "`f.log1p`",
        ),
    ];
    for (change, label, by) in changes {
        let train = format!("{TREES}, label: {label}");
        shop.write("spec.yaml", &spec(&format!("      {change}\n"), &train, ""));
        let said = shop.forebay(&["check", "spec.yaml"]).expect(78).stderr;
        let message = format!("{by} changes the label `{label}` behind `future_rows`");
        assert!(said.contains(&message), "{change}:\n{said}");
        assert!(
            said.contains("train on the label as `future_rows` has it"),
            "{said}"
        );
    }
    // Values that are filled or cut keep their units, and so do those in front of the step.
    for kept in [
        "- impute: { columns: [y], with: { constant: 0 } }",
        "- clip: { columns: [y], min: 0 }",
    ] {
        shop.write("spec.yaml", &spec(&format!("      {kept}\n"), TREES, ""));
        shop.forebay(&["check", "spec.yaml"]).expect(0);
    }
    let before = spec("", TREES, "").replace(
        "      - future_rows",
        "      - log1p: { columns: [y] }\n      - future_rows",
    );
    shop.write("spec.yaml", &before);
    shop.forebay(&["check", "spec.yaml"]).expect(0);
}

/// A carried column has the value of the last row of its series. Where that has none, nothing ended, and the run warns.
#[test]
fn a_carried_column_without_a_value_is_warned_of() {
    let shop = TestDirectory::new();
    let mut history = String::from("item,day,y,price\n");
    for day in 0..80 {
        let price = if day == 79 { "" } else { "1.5" };
        history += &format!(
            "a,{},{}.5,2.5\nb,{},{}.5,{price}\n",
            date(day),
            day % 7,
            date(day),
            day % 5
        );
    }
    shop.write("history.csv", &history);
    let text = spec("", TREES, "")
        .replace("  plan: { csv: { path: plan.csv } }\n", "")
        .replace("      - join: { with: plan, on: [item, day] }\n", "")
        .replace("every: 1d }", "every: 1d, carry: [price] }");
    shop.write("spec.yaml", &text);
    let said = shop.forebay(&["run", "spec.yaml"]).expect(0).stderr;
    let words = "`price` is null or NaN in the last row of some series, and so in 7 of 14 rows of the future in sink `p`";
    assert!(said.contains(words), "{said}");
    // A column that nothing brings is another matter.
    shop.write("spec.yaml", &text.replace(", carry: [price]", ""));
    let said = shop.forebay(&["run", "spec.yaml"]).expect(65).stderr;
    assert!(
        said.contains("no value in 14 of 14 rows of the future"),
        "{said}"
    );
}

/// Inputs of a union with rows of the future of their own, or without any, are found before anything is computed.
#[test]
fn a_forecast_behind_a_union_needs_one_future() {
    let shop = shop(90);
    let future_step = "{ future_rows: { horizon: 7d, every: 1d } }";
    let target = "{ target: { column: y, do: [log1p] } }";
    let part = |item: &str, behind: &str| -> String {
        format!("  {item}: {{ from: h, do: [ {{ filter: \"item = '{item}'\" }}{behind} ] }}\n")
    };
    let cases = [
        (
            part("a", &format!(", {future_step}")) + &part("b", ""),
            "no rows of the future",
        ),
        (
            part("a", "") + &part("b", &format!(", {future_step}")),
            "no rows of the future",
        ),
        (
            part("a", &format!(", {future_step}")) + &part("b", &format!(", {future_step}")),
            "needs one `future_rows`",
        ),
        (
            part("a", &format!(", {future_step}, {target}")) + &part("b", &format!(", {target}")),
            "future",
        ),
    ];
    for (parts, words) in cases {
        let text = format!(
            "version: 1\nname: united\nsources: {{ h: {{ csv: {{ path: history.csv }}, time: day, keys: [item] }} }}\nsteps:\n{parts}  \
             u: {{ union: [a, b], do: [ {{ lag: {{ columns: [y], by: [7d] }} }} ] }}\nlabel: {{ column: y, horizon: 7d }}\nsinks:\n  \
             n: {{ from: u, train: {{ path: out/n, model: gbdt, dense: [y_lag_7d], categorical: [], rounds: 3 }} }}\n  \
             p: {{ from: u, predict: {{ model: n, path: out/p }} }}\n"
        );
        shop.write("spec.yaml", &text);
        for command in ["check", "run"] {
            let refused = shop.forebay(&[command, "spec.yaml"]).expect(78).stderr;
            assert!(refused.contains(words), "{parts}:\n{refused}");
            assert!(!refused.contains("FB0901"), "{refused}");
        }
        assert!(!shop.path("out/n").exists());
    }
}

/// The shop with temperatures of so many days. The demand of a day follows the temperature of the week before.
fn shop_with_weather(days: u32) -> TestDirectory {
    let shop = shop(80);
    let mut weather = String::from("town,day,degrees\n");
    for day in 0..days {
        weather += &format!("x,{},{}.25\n", date(day), (day + 7) * 7 % 11);
    }
    shop.write("weather.csv", &weather);
    shop
}

/// A forecast from the temperature of the week before: no column has to be known in advance.
fn weather_spec(train: &str, predict: &str) -> String {
    format!(
        "version: 1\nname: weather\nsources:\n  h: {{ csv: {{ path: history.csv }}, time: day, keys: [item] }}\n  weather: {{ \
         csv: {{ path: weather.csv }}, time: day, keys: [town] }}\nsteps:\n  f:\n    from: h\n    do:\n      - future_rows: {{ \
         horizon: 7d, every: 1d }}\n      - join: {{ with: weather, on: [day], columns: [degrees] }}\n      - lag: {{ columns: [y, \
         degrees], by: [7d] }}\n      - drop: [degrees]\nlabel: {{ column: y, horizon: 7d }}\nsinks:\n  n: {{ from: f, train: {{ \
         path: out/n, {train} }} }}\n  p: {{ from: f, predict: {{ model: n, path: out/p{predict} }} }}\n"
    )
}

const DEGREES_TREES: &str =
    "model: gbdt, dense: [degrees_lag_7d, y_lag_7d], categorical: [], rounds: 3, min_leaf_rows: 2";
const NO_DEGREES: &str =
    "`degrees_lag_7d` has no value in any of the 14 rows of the future in sink `p`";

/// Nothing is known in advance, and what the model learned from ends before the last week of the history.
#[test]
fn a_feature_without_a_value_in_the_future_is_a_fault() {
    let shop = shop_with_weather(73);
    let run = |train: &str, predict: &str, code: i32| {
        shop.write("spec.yaml", &weather_spec(train, predict));
        let call = shop.forebay(&["run", "spec.yaml"]).expect(code);
        format!("{}{}", call.stdout, call.stderr)
    };
    let said = run(DEGREES_TREES, "", 65);
    for words in [
        "FB0206",
        NO_DEGREES,
        "under the label's `known`",
        "`missing: accept` under `predict`",
        "nothing was published",
    ] {
        assert!(said.contains(words), "no `{words}` in:\n{said}");
    }
    assert!(!shop.root("out/p").join("_manifest.json").exists());
    // A model that does not take it predicts as before.
    let without = DEGREES_TREES.replace("degrees_lag_7d, ", "");
    let said = run(&without, "", 0);
    assert!(!said.contains("has no value in any"), "{said}");
    // A forecast that accepts it warns, and counts the rows.
    let said = run(DEGREES_TREES, ", missing: accept", 0);
    assert!(said.contains(&format!("warning: {NO_DEGREES}")), "{said}");
    assert!(
        said.contains("`degrees_lag_7d`: 14 missing, predicted without"),
        "{said}"
    );
    let words = [
        "predict",
        "out/n",
        "--source=h=history.csv",
        "--source=weather=weather.csv",
        "--output=by_hand",
    ];
    let said = shop.forebay(&words).expect(0).stderr;
    let words = "warning: `degrees_lag_7d` has no value in any of the 14 rows of the future";
    assert!(said.contains(words), "{said}");
    // A model that fills it says so.
    let linear =
        "model: linear, dense: [degrees_lag_7d, y_lag_7d], categorical: [], epochs: 1, missing: 0";
    let said = run(linear, "", 0);
    let words = format!("warning: {NO_DEGREES}: the model takes in its place what `missing` says");
    assert!(said.contains(&words), "{said}");
}

#[test]
fn a_feature_with_values_in_the_future_is_none() {
    for days in [74, 80] {
        let shop = shop_with_weather(days);
        shop.write("spec.yaml", &weather_spec(DEGREES_TREES, ""));
        let said = shop.forebay(&["run", "spec.yaml"]).expect(0).stderr;
        assert!(!said.contains("has no value in any"), "{days}: {said}");
    }
}

/// A column that steps replace by zeros is known as long as before.
#[test]
fn a_plan_that_ends_is_a_fault_behind_an_encoding() {
    let shop = shop(80);
    let encoded =
        "      - cast: { columns: { price: string } }\n      - one_hot: { columns: [price] }\n";
    shop.write("spec.yaml", &spec(encoded, TREES, ""));
    let said = shop.forebay(&["run", "spec.yaml"]).expect(65).stderr;
    let words =
        "`price` is known in advance, and has no value in 14 of 14 rows of the future in sink `p`";
    assert!(said.contains(words), "{said}");
    assert!(said.contains("2024-03-20"), "{said}");
    let longer = self::shop(90);
    longer.write("spec.yaml", &spec(encoded, TREES, ""));
    longer.forebay(&["run", "spec.yaml"]).expect(0);
}

/// Steps that write values for nulls hide that nothing is known of the future.
#[test]
fn a_hidden_feature_without_a_value_in_the_future_is_found() {
    let shop = shop_with_weather(73);
    let run = |steps: &str, train: &str, predict: &str, code: i32| {
        let spec = weather_spec(train, predict).replace(
            "      - drop: [degrees]\n",
            &format!("      - drop: [degrees]\n{steps}"),
        );
        shop.write("spec.yaml", &spec);
        let call = shop.forebay(&["run", "spec.yaml"]).expect(code);
        format!("{}{}", call.stdout, call.stderr)
    };
    let encoded = "      - cast: { columns: { degrees_lag_7d: string } }\n      \
                   - one_hot: { columns: [degrees_lag_7d], suffix: _kind }\n";
    let trees =
        "model: gbdt, dense: [degrees_lag_7d_kind], categorical: [], rounds: 3, min_leaf_rows: 2";
    let said = run(encoded, trees, "", 65);
    let words = format!("{NO_DEGREES}, and its model learned from what `f.one_hot` makes of it");
    for words in ["FB0206", &words, "`missing: accept` under `predict`"] {
        assert!(said.contains(words), "no `{words}` in:\n{said}");
    }
    assert!(!shop.root("out/p").join("_manifest.json").exists());
    let said = run(encoded, trees, ", missing: accept", 0);
    let words = format!("warning: {NO_DEGREES}: the model takes what `f.one_hot` makes of nulls");
    assert!(said.contains(&words), "{said}");
    // A step that fills it was written to do so.
    let filled = "      - impute: { columns: [degrees_lag_7d], with: median }\n";
    let said = run(filled, DEGREES_TREES, "", 0);
    let words =
        format!("warning: {NO_DEGREES}: the model takes what `f.impute` writes in its place");
    assert!(said.contains(&words), "{said}");
    // So was an expression that does.
    let filled_by_hand = "      - derive: { warm: \"coalesce(degrees_lag_7d, 0)\" }\n";
    let trees = "model: gbdt, dense: [warm], categorical: [], rounds: 3, min_leaf_rows: 2";
    let said = run(filled_by_hand, trees, "", 0);
    let words =
        format!("warning: {NO_DEGREES}: the model takes what `f.derive` writes in its place");
    assert!(said.contains(&words), "{said}");
    // A model that takes none of it, and features that are filled in some rows alone, are as before.
    let without = DEGREES_TREES.replace("degrees_lag_7d, ", "");
    for steps in [encoded, filled] {
        let said = run(steps, &without, "", 0);
        assert!(!said.contains("has no value in any"), "{said}");
    }
    let warm = shop_with_weather(74);
    let spec = weather_spec(DEGREES_TREES, "");
    warm.write(
        "spec.yaml",
        &spec.replace(
            "      - drop: [degrees]\n",
            &format!("      - drop: [degrees]\n{filled}"),
        ),
    );
    let said = warm.forebay(&["run", "spec.yaml"]).expect(0).stderr;
    assert!(!said.contains("has no value in any"), "{said}");
}

/// A step that fills a column hides that its table ends early: the ledger counts those rows among the other fills.
#[test]
fn filled_columns_that_end_early_are_told() {
    let imputed = "impute: { columns: [degrees], with: { constant: 0.0 } }";
    let repeated = "fill_forward: { columns: [degrees] }";
    for (fill, days, expected) in [
        (imputed, 73, Some(("2024-03-13", 14))),
        (imputed, 76, Some(("2024-03-16", 8))),
        (imputed, 80, None),
        (repeated, 73, Some(("2024-03-13", 14))),
        (repeated, 90, None),
    ] {
        let shop = shop_with_weather(days);
        let spec = weather_spec(DEGREES_TREES, "");
        let spec = spec.replace("      - lag:", &format!("      - {fill}\n      - lag:"));
        shop.write("spec.yaml", &spec);
        let call = shop.forebay(&["run", "spec.yaml", "--json"]).expect(0);
        let step = fill.split(':').next().unwrap();
        let said = call.summary()["warnings"].to_string();
        let Some((until, rows)) = expected else {
            assert!(!said.contains("last value"), "{fill}, {days}: {said}");
            continue;
        };
        let words = format!(
            "`degrees` has its last value at {until} in front of `f.{step}`, which fills it: {rows} \
             of 14 rows of the future in sink `p`"
        );
        assert!(said.contains(&words), "{fill}, {days}: {said}");
    }
}

/// A plan that a step fills is told where it ends, and one of some days alone is not.
#[test]
fn filled_plans_that_end_early_are_told() {
    let shop = shop(84);
    let imputed = "      - impute: { columns: [price], with: median }\n";
    shop.write("spec.yaml", &spec(imputed, TREES, ""));
    let said = shop.forebay(&["run", "spec.yaml"]).expect(0).stderr;
    let words = "`price` has its last value at 2024-03-24 in front of `f.impute`, which fills it: \
                 6 of 14 rows of the future in sink `p`";
    assert!(said.contains(words), "{said}");
    // A price every third day.
    let plan = std::fs::read_to_string(shop.path("plan.csv")).unwrap();
    let some_days: Vec<&str> = plan
        .lines()
        .filter(|line| !line.ends_with(",1.25") && !line.ends_with(",2.25"))
        .collect();
    shop.write("plan.csv", &(some_days.join("\n") + "\n"));
    let said = shop.forebay(&["run", "spec.yaml"]).expect(0).stderr;
    assert!(!said.contains("last value"), "{said}");
}
