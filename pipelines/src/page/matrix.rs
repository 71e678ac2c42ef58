//! Columns of a run's outputs with all that the run has measured of them: distribution, nulls, drift, importance.

use forebay_contract::ColumnImportance;
use forebay_model::type_text_label;
use forebay_run::{ColumnProfile, ComparedProfile, HistogramBin, OutputColumn, RunReport};

use super::{Block, Cell, Page, SCRIPT, Section};

/// Columns that are listed.
const COLUMNS_MAX: usize = 1_000;

/// Pixels of a distribution.
const SPARK_WIDTH: f64 = 96.0;
const SPARK_HEIGHT: f64 = 20.0;

/// Everything that a run has measured of its columns.
struct Measures<'a> {
    report: &'a RunReport,
    profiles: &'a [ComparedProfile],
}

impl Page {
    /// Adds the columns of all outputs behind the tiles, if the run has measured anything of them.
    pub(super) fn add_matrix(&mut self, report: &RunReport, profiles: &[ComparedProfile]) {
        let measures = Measures { report, profiles };
        let columns = measures.columns();
        let rows = columns.iter().take(COLUMNS_MAX);
        let rows: Vec<Vec<Cell>> = rows
            .map(|(sink, column)| measures.row(sink, column))
            .collect();
        if !measures.is_any() || rows.is_empty() {
            return;
        }
        let head = [
            "column",
            "type",
            "distribution",
            "#nulls",
            "#drift (bits)",
            "#gain",
            "#loss when shuffled",
        ];
        let text = "Distributions and nulls are those of the profiles that steps have learned, as \
                    rows enter the step. Drift is the greatest Jensen-Shannon divergence of a \
                    rule, and importance the greatest of any model.";
        let mut blocks = vec![
            Block::text(text),
            Block::stacked_table("Columns", &head, rows),
        ];
        let hidden = columns.len().saturating_sub(COLUMNS_MAX);
        if hidden > 0 {
            blocks.push(Block::text(format!("{hidden} more are not listed.")));
        }
        let section = Section {
            id: "columns",
            title: "Columns",
            blocks,
        };
        let second = self.sections.len().min(1);
        self.sections.insert(second, section);
        self.inline_script = Some(SCRIPT);
    }
}

impl<'a> Measures<'a> {
    /// Columns of all outputs with their sinks, each name once.
    fn columns(&self) -> Vec<(&'a str, &'a OutputColumn)> {
        let mut columns: Vec<(&str, &OutputColumn)> = Vec::new();
        let mut names = std::collections::BTreeSet::new();
        for output in &self.report.outputs {
            for column in &output.columns {
                if names.insert(&column.name) {
                    columns.push((output.sink.as_str(), column));
                }
            }
        }
        columns
    }

    /// True if there is more to show than names and types.
    fn is_any(&self) -> bool {
        let has_importance = self
            .report
            .models
            .iter()
            .any(|model| !model.learned.importance.is_empty());
        let has_drift = self
            .report
            .expectations
            .iter()
            .any(|rule| rule.drift.is_some());
        !self.profiles.is_empty() || has_importance || has_drift
    }

    fn row(&self, sink: &str, column: &OutputColumn) -> Vec<Cell> {
        let profile = self.profile(&column.name);
        let numeric = profile.and_then(|profile| profile.numeric.as_ref());
        let nulls = profile
            .filter(|profile| profile.rows > 0)
            .map(|profile| profile.nulls as f64 / profile.rows as f64);
        let importance = self.importance(&column.name);
        let shuffled = importance.and_then(|importance| importance.shuffled);
        vec![
            Cell::column(sink, column),
            Cell::text(type_text_label(&column.data_type)),
            Cell {
                svg: numeric.and_then(|numeric| sparkline(&numeric.histogram)),
                ..Cell::default()
            },
            percent_cell(nulls),
            match self.drift(&column.name) {
                Some(drift) => Cell::measure(format!("{drift:.4}"), drift),
                None => Cell::number(""),
            },
            percent_cell(importance.map(|importance| importance.gain)),
            percent_cell(shuffled),
        ]
    }

    /// The first profile that has the column.
    fn profile(&self, column: &str) -> Option<&'a ColumnProfile> {
        let mut profiles = self.profiles.iter();
        profiles.find_map(|compared| compared.profile.column(column))
    }

    /// The greatest divergence of the column that a rule measured.
    fn drift(&self, column: &str) -> Option<f64> {
        let mut greatest: Option<f64> = None;
        for rule in &self.report.expectations {
            let Some(drift) = &rule.drift else { continue };
            if drift.column == column
                && let Some(js) = drift.js
            {
                greatest = Some(greatest.map_or(js, |other| other.max(js)));
            }
        }
        greatest
    }

    /// The importance of the column for the model that it gains most for.
    fn importance(&self, column: &str) -> Option<&'a ColumnImportance> {
        let models = self.report.models.iter();
        models
            .flat_map(|model| &model.learned.importance)
            .filter(|importance| importance.column == column)
            .max_by(|a, b| a.gain.total_cmp(&b.gain))
    }
}

fn percent_cell(share: Option<f64>) -> Cell {
    match share {
        Some(share) => Cell::measure(format!("{:.1} %", share * 100.0), share),
        None => Cell::number(""),
    }
}

/// Bars of the shares of a histogram, without axes; `None` if there is nothing to draw.
pub(super) fn sparkline(bins: &[HistogramBin]) -> Option<String> {
    let most = bins.iter().map(|bin| bin.share).fold(0.0, f64::max);
    if bins.is_empty() || most <= 0.0 || !most.is_finite() {
        return None;
    }
    let width = SPARK_WIDTH / bins.len() as f64;
    let size = format!("width=\"{SPARK_WIDTH}\" height=\"{SPARK_HEIGHT}\"");
    let mut svg = format!("<svg class=\"spark\" {size} aria-hidden=\"true\">");
    for (number, bin) in bins.iter().enumerate() {
        let height = SPARK_HEIGHT * bin.share / most;
        let x = width * number as f64;
        let y = SPARK_HEIGHT - height;
        svg += &format!(
            "<rect x=\"{x:.1}\" y=\"{y:.1}\" width=\"{:.1}\" height=\"{height:.1}\"/>",
            (width - 0.5).max(0.5)
        );
    }
    svg += "</svg>";
    Some(svg)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sparkline_has_a_bar_for_each_bin() {
        let bin = |share: f64| HistogramBin {
            lower: 0.0,
            upper: 1.0,
            share,
        };
        assert_eq!(sparkline(&[]), None);
        assert_eq!(sparkline(&[bin(0.0)]), None);
        let svg = sparkline(&[bin(0.5), bin(0.25)]).unwrap();
        assert_eq!(svg.matches("<rect").count(), 2);
        assert!(
            svg.contains("x=\"48.0\" y=\"10.0\" width=\"47.5\" height=\"10.0\""),
            "{svg}"
        );
    }
}
