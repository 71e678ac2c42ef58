//! Drift, for people.

use forebay_run::{ColumnDrift, DriftMeasures, DriftReport, ExpectationReport};

use super::units;

/// Rules about distributions that a summary shows.
const RULES_SHOWN: usize = 20;

/// Columns that drifted first, each with its reasons; then all measures.
pub(crate) fn text(report: &DriftReport) -> String {
    let mut text = format!(
        "{} compared with {}\n",
        units::rows(report.rows),
        units::rows(report.baseline_rows)
    );
    let drifted: Vec<&ColumnDrift> = report
        .columns
        .iter()
        .filter(|column| !column.reasons.is_empty())
        .collect();
    if drifted.is_empty() {
        text += "no column has drifted\n";
    }
    for column in &drifted {
        text += &format!("{}: {}\n", column.name, column.reasons.join("; "));
    }
    let name_width = report
        .columns
        .iter()
        .map(|column| column.name.chars().count())
        .chain([6])
        .max()
        .unwrap_or(6);
    let head = ["JS", "of chance", "KS", "L-inf", "PSI", "missing", "new"];
    text += &format!(
        "\n{:<name_width$}{}\n",
        "column",
        cells(head.map(str::to_owned))
    );
    for column in &report.columns {
        let missing = column.missing.map(|[_, now]| now);
        let measures = [
            column.js,
            column.js_of_chance,
            column.ks,
            column.l_infinity,
            column.psi,
            missing,
        ];
        let measures = measures.into_iter().chain([column.new_values]).map(cell);
        text += &format!("{:<name_width$}{}\n", column.name, cells(measures));
    }
    text
}

/// Measures of rules about distributions: those of broken rules first, then those nearest to their
/// limit.
pub(crate) fn rules_text(rules: &[ExpectationReport]) -> String {
    let mut measured: Vec<(&ExpectationReport, &DriftMeasures)> = rules
        .iter()
        .filter_map(|rule| Some((rule, rule.drift.as_deref()?)))
        .collect();
    if measured.is_empty() {
        return String::new();
    }
    let nearness = |drift: &DriftMeasures| match (drift.js, drift.js_limit) {
        (Some(js), Some(limit)) if limit > 0.0 => js / limit,
        _ => 0.0,
    };
    measured.sort_by(|(a, of_a), (b, of_b)| {
        a.holds
            .cmp(&b.holds)
            .then(nearness(of_b).total_cmp(&nearness(of_a)))
    });
    let mut text = "drift:\n".to_owned();
    for (rule, drift) in measured.iter().take(RULES_SHOWN) {
        let state = if rule.holds { "holds" } else { "does not hold" };
        let DriftMeasures {
            column, against, ..
        } = drift;
        let measures = match drift.baseline_rows {
            Some(_) => format!("{state}{}", measures_text(drift)),
            None => "no earlier run to compare with".to_owned(),
        };
        text += &format!(
            "  {}: {column} against {against}{}: {measures}\n",
            rule.step,
            baseline_text(drift)
        );
    }
    let hidden = measured.len().saturating_sub(RULES_SHOWN);
    if hidden > 0 {
        text += &format!(
            "  and {} (see --json)\n",
            units::counted(hidden as u64, "more rule")
        );
    }
    text
}

/// ` (7 runs, 7,000 rows)`.
fn baseline_text(drift: &DriftMeasures) -> String {
    let Some(rows) = drift.baseline_rows else {
        return String::new();
    };
    let runs = drift
        .baseline_runs
        .map(|runs| format!("{}, ", units::counted(runs, "run")));
    format!(" ({}{})", runs.unwrap_or_default(), units::rows(rows))
}

fn measures_text(drift: &DriftMeasures) -> String {
    let mut text = String::new();
    if let (Some(js), Some(limit)) = (drift.js, drift.js_limit) {
        text += &format!(", JS {js:.4} of at most {limit:.4}");
    }
    if let (Some([share_before, now]), Some(limit)) = (drift.missing, drift.missing_limit) {
        let [percent_before, now, limit] = [share_before, now, limit].map(|share| 100.0 * share);
        text += &format!(
            ", without a value {now:.2} %, {percent_before:.2} % before (change at most \
             {limit:.2} %)"
        );
    }
    text
}

fn cells(texts: impl IntoIterator<Item = String>) -> String {
    texts
        .into_iter()
        .map(|text| format!(" {text:>9}"))
        .collect()
}

fn cell(value: Option<f64>) -> String {
    value.map_or_else(|| "-".to_owned(), |value| format!("{value:.4}"))
}
