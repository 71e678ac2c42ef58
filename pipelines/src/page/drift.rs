//! How the columns of a run differ from those that rules compare them with.

use forebay_run::{DriftMeasures, ExpectationReport};

use super::{Block, Cell};
use crate::present::units;

/// A row for each rule about a distribution.
pub(super) fn drift_blocks(rules: &[ExpectationReport]) -> Vec<Block> {
    let measured = rules
        .iter()
        .filter_map(|rule| Some((rule, rule.drift.as_deref()?)));
    let rows: Vec<Vec<Cell>> = measured.map(|(rule, drift)| cells(rule, drift)).collect();
    if rows.is_empty() {
        return Vec::new();
    }
    let head = [
        "",
        "column",
        "against",
        "step",
        "#rows",
        "#before",
        "#JS",
        "#at most",
        "#missing",
        "#before",
        "#change at most",
        "#KS, L-inf",
        "#PSI",
        "#new",
    ];
    vec![Block::table("Drift", &head, rows)]
}

fn cells(rule: &ExpectationReport, drift: &DriftMeasures) -> Vec<Cell> {
    let (text, class) = match (drift.baseline_rows, rule.holds) {
        (None, _) => ("no earlier run to compare with", None),
        (Some(_), true) => ("holds", Some("good")),
        (Some(_), false) => ("does not hold", Some("bad")),
    };
    let runs = drift
        .baseline_runs
        .map(|runs| format!(" ({})", units::counted(runs, "run")))
        .unwrap_or_default();
    let measure = |value: Option<f64>| {
        Cell::number(value.map(|value| format!("{value:.4}")).unwrap_or_default())
    };
    let share = |value: Option<f64>| {
        Cell::number(
            value
                .map(|value| format!("{:.2} %", 100.0 * value))
                .unwrap_or_default(),
        )
    };
    vec![
        Cell {
            class,
            ..Cell::text(text)
        },
        Cell::text(drift.column.clone()),
        Cell::text(format!("{}{runs}", drift.against)),
        Cell::text(rule.step.clone()),
        Cell::number(units::grouped(rule.rows)),
        Cell::number(drift.baseline_rows.map(units::grouped).unwrap_or_default()),
        measure(drift.js),
        measure(drift.js_limit),
        share(drift.missing.map(|[_, now]| now)),
        share(drift.missing.map(|[before, _]| before)),
        share(drift.missing_limit),
        measure(drift.ks.or(drift.l_infinity)),
        measure(drift.psi),
        share(drift.new_values),
    ]
}
