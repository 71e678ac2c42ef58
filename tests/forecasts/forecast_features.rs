//! Forecasts of statistical models as features of trees.

use serde_json::Value;

use crate::forecasts::quantiles::{date, numbers, spec};
use crate::support::TestDirectory;

/// The spec of a forecast by trees, which also read forecasts of `horizon` by a theta model.
fn write_spec(shop: &TestDirectory, until: &str, horizon: &str) {
    spec(shop, "history", until, "", "");
    let text = std::fs::read_to_string(shop.path("spec.yaml")).unwrap();
    let step = format!(
        "      - forecast_feature: {{ columns: [qty], horizon: {horizon}, every: 1d, season: 7d }}\n"
    );
    let text = text
        .replace("      - lag:", &format!("{step}      - lag:"))
        .replace("dense: [", &format!("dense: [qty_theta_{horizon}, "));
    shop.write("spec.yaml", &text);
}

/// True if trees split by a column.
fn is_split_by(summary: &Value, column: &str) -> bool {
    let importance = summary["models"][0]["importance"].as_array().unwrap();
    importance
        .iter()
        .any(|of_column| of_column["column"] == column && of_column["gain"].as_f64() > Some(0.0))
}

#[test]
fn trees_learn_from_forecasts_of_series() {
    let shop = TestDirectory::new();
    let days = shop.days("history");
    let until = date(&days, 33);
    write_spec(&shop, &until, "3d");
    let run = |options: &[&str]| {
        let call = shop.forebay(&[&["run", "spec.yaml", "--json"], options].concat());
        (call.expect(0).summary(), shop.rows("out/forecast"))
    };
    let (summary, rows) = run(&["--threads=1"]);
    assert!(is_split_by(&summary, "qty_theta_3d"), "{summary}");
    assert!(rows.num_rows() > 50);
    assert!(numbers(&rows, "prediction").iter().all(Option::is_some));
    // Threads change no bit.
    let (_, other_rows) = run(&["--threads=3", "--state=again"]);
    assert!(other_rows == rows);
    // Values of yesterday are not known three days ahead.
    write_spec(&shop, &until, "2d");
    let call = shop.forebay(&["check", "spec.yaml"]);
    let is_refused = call.code == 78 && call.stderr.contains("`qty_theta_2d`");
    assert!(is_refused, "{}", call.stderr);
}
