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
        "`price` is known in advance, and null in 14 of 14 rows of the future in sink `p`",
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
    run("", TREES, ", missing: accept", 0);
    // A window that fills it looks at the history, too.
    run("      - fill_forward: { columns: [price] }\n", TREES, "", 0);
}

#[test]
fn a_plan_that_ends_inside_of_the_horizon_is_counted() {
    let shop = shop(84);
    shop.write("spec.yaml", &spec("", TREES, ""));
    let said = shop.forebay(&["run", "spec.yaml"]).expect(65).stderr;
    assert!(
        said.contains("null in 6 of 14 rows of the future"),
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
    let words = "`price` is null in the last row of some series, and so in 7 of 14 rows of the future in sink `p`";
    assert!(said.contains(words), "{said}");
    // A column that nothing brings is another matter.
    shop.write("spec.yaml", &text.replace(", carry: [price]", ""));
    let said = shop.forebay(&["run", "spec.yaml"]).expect(65).stderr;
    assert!(
        said.contains("null in 14 of 14 rows of the future"),
        "{said}"
    );
}
