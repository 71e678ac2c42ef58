//! Drift, for people.

use forebay_run::{ColumnDrift, DriftReport};

use super::units;

/// Columns that drifted first, each with its reasons; then all measures.
pub(crate) fn text(report: &DriftReport) -> String {
    let mut text = format!("{} compared with {}\n", units::rows(report.rows), units::rows(report.baseline_rows));
    let drifted: Vec<&ColumnDrift> = report.columns.iter().filter(|column| !column.reasons.is_empty()).collect();
    if drifted.is_empty() {
        text += "no column has drifted\n";
    }
    for column in &drifted {
        text += &format!("{}: {}\n", column.name, column.reasons.join("; "));
    }
    let name_width = report.columns.iter().map(|column| column.name.chars().count()).chain([6]).max().unwrap_or(6);
    let head = ["JS", "of chance", "KS", "L-inf", "PSI", "missing", "new"];
    text += &format!("\n{:<name_width$}{}\n", "column", cells(head.map(str::to_owned)));
    for column in &report.columns {
        let missing = column.missing.map(|[_, now]| now);
        let measures = [column.js, column.js_of_chance, column.ks, column.l_infinity, column.psi, missing];
        let measures = measures.into_iter().chain([column.new_values]).map(cell);
        text += &format!("{:<name_width$}{}\n", column.name, cells(measures));
    }
    text
}

fn cells(texts: impl IntoIterator<Item = String>) -> String {
    texts.into_iter().map(|text| format!(" {text:>9}")).collect()
}

fn cell(value: Option<f64>) -> String {
    value.map_or_else(|| "-".to_owned(), |value| format!("{value:.4}"))
}
