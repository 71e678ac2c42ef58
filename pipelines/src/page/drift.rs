//! Differences between the columns of a run and the baselines of rules.

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
    let runs = match drift.baseline_runs {
        Some(runs) => format!(" ({})", units::counted(runs, "run")),
        None => String::new(),
    };
    let (missing_before, missing_now) = match drift.missing {
        Some([before, now]) => (Some(before), Some(now)),
        None => (None, None),
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
        measure_cell(drift.js),
        measure_cell(drift.js_limit),
        share_cell(missing_now),
        share_cell(missing_before),
        share_cell(drift.missing_limit),
        measure_cell(drift.ks.or(drift.l_infinity)),
        measure_cell(drift.psi),
        share_cell(drift.new_values),
    ]
}

fn measure_cell(measure: Option<f64>) -> Cell {
    match measure {
        Some(measure) => Cell::number(format!("{measure:.4}")),
        None => Cell::number(String::new()),
    }
}

fn share_cell(share: Option<f64>) -> Cell {
    match share {
        Some(share) => Cell::number(format!("{:.2} %", 100.0 * share)),
        None => Cell::number(String::new()),
    }
}
