//! Features without a value in any row of the future: a forecast says nothing that its model learned of them.

use forebay_commit::Manifest;
use forebay_contract::MissingKnown;
use forebay_model::{Fault, LedgerEntry, PipelineSink, Result, RowChange, codes};
use forebay_storage::Event;

use super::step::PredictTransform;
use crate::executor::RunExecutor;

/// Columns that a fault or a warning names.
const COLUMNS_LISTED_MAX: usize = 8;

/// The features of a forecast that are missing in all of its rows.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct MissingFeatures {
    /// Columns in whose place the model takes a constant, since its training says so.
    filled: Vec<String>,
    /// Columns that the model goes without.
    pub unfilled: Vec<String>,
}

impl MissingFeatures {
    /// The features whose counts are those of all rows; `step` is the one that predicts.
    pub fn new(entries: &[LedgerEntry], rows: u64, step: &str) -> MissingFeatures {
        let mut features = MissingFeatures::default();
        if rows == 0 {
            return features;
        }
        for entry in entries {
            let Some(column) = &entry.column else {
                continue;
            };
            if entry.count != rows || entry.step != step {
                continue;
            }
            match entry.change {
                RowChange::Imputed => features.filled.push(column.clone()),
                RowChange::Missing => features.unfilled.push(column.clone()),
                _ => {}
            }
        }
        features
    }
}

impl RunExecutor<'_> {
    /// Refuses a forecast whose model predicts by a feature that is missing in all rows of the future. Where the model
    /// fills it, or the forecast accepts it, the run warns. Columns that are known in advance are checked before.
    pub(super) fn check_missing_features(
        &self,
        sink: &PipelineSink,
        manifest: &Manifest,
    ) -> Result<()> {
        let rows = manifest.rows;
        let step = format!("{}.{}", sink.from, PredictTransform::NAME);
        let counts = manifest.counts();
        let mut features = MissingFeatures::new(counts.changes.entries(), rows, &step);
        let known_names = self.known_names();
        features.filled.retain(|name| !known_names.contains(&name));
        features
            .unfilled
            .retain(|name| !known_names.contains(&name));
        if !features.filled.is_empty() {
            let message = format!(
                "{}: the model takes in its place what `missing` says",
                missing_text(&features.filled, rows, &sink.name)
            );
            self.session.watch.on_event(Event::Warning { message });
        }
        if features.unfilled.is_empty() {
            return Ok(());
        }
        let message = missing_text(&features.unfilled, rows, &sink.name);
        if self.accepts_missing_features(sink)? {
            let message = format!("{message}: the model predicts without");
            self.session.watch.on_event(Event::Warning { message });
            return Ok(());
        }
        let fault = Fault::new(
            codes::BAD_ROW,
            format!("{message}, and its model learned from it"),
        );
        let fault = match features.unfilled.as_slice() {
            [only] => fault.column(only),
            _ => fault,
        };
        let hint = "list the column that it is computed of under the label's `known` and give its \
                    values for rows of the future, lag it by at least the horizon and let its \
                    source reach to the end of the history, drop it, or accept it: `missing: \
                    accept` under `predict`";
        Err(fault.hint(hint))
    }

    /// True for forecasts that accept missing values. Those of a model by hand do: no spec says otherwise.
    pub(super) fn accepts_missing_features(&self, sink: &PipelineSink) -> Result<bool> {
        let mut predictions = self.pipeline.predictions.iter();
        let Some(prediction) = predictions.find(|prediction| prediction.name == sink.name) else {
            return Ok(true);
        };
        let config = self.session.predict_config(prediction)?;
        Ok(config.missing == MissingKnown::Accept)
    }
}

/// "`a` and `b` have no value in any of the 14 rows of the future in sink `p`".
pub(super) fn missing_text(columns: &[String], rows: u64, sink: &str) -> String {
    let listed: Vec<String> = columns
        .iter()
        .take(COLUMNS_LISTED_MAX)
        .map(|name| format!("`{name}`"))
        .collect();
    let others = columns.len() - listed.len();
    let mut names = listed.join(", ");
    if others > 0 {
        names += &format!(" and {others} more features");
    }
    let verb = if columns.len() == 1 { "has" } else { "have" };
    format!("{names} {verb} no value in any of the {rows} rows of the future in sink `{sink}`")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(step: &str, column: Option<&str>, change: RowChange, count: u64) -> LedgerEntry {
        LedgerEntry {
            step: step.to_owned(),
            column: column.map(str::to_owned),
            change,
            count,
            examples: Vec::new(),
        }
    }

    #[test]
    fn features_are_missing_where_all_rows_lack_them() {
        let entries = [
            entry("p.predict", Some("degrees"), RowChange::Missing, 14),
            entry("p.predict", Some("some"), RowChange::Missing, 13),
            entry("p.predict", Some("rain"), RowChange::Imputed, 14),
            entry("p.predict", None, RowChange::Imputed, 14),
            entry("p.predict", Some("prediction"), RowChange::Clipped, 14),
            entry("f.impute", Some("price"), RowChange::Imputed, 14),
        ];
        let features = MissingFeatures::new(&entries, 14, "p.predict");
        assert_eq!(features.unfilled, ["degrees"]);
        assert_eq!(features.filled, ["rain"]);
        let none = MissingFeatures::new(&entries, 0, "p.predict");
        assert_eq!(none, MissingFeatures::default());
    }

    #[test]
    fn long_lists_are_cut() {
        let columns: Vec<String> = (0..10).map(|number| format!("c{number}")).collect();
        let text = missing_text(&columns, 3, "p");
        assert!(text.starts_with("`c0`, `c1`"), "{text}");
        let end = "`c7` and 2 more features have no value in any of the 3 rows of the future in \
                   sink `p`";
        assert!(text.ends_with(end), "{text}");
        let text = missing_text(&columns[..1], 3, "p");
        assert!(text.starts_with("`c0` has no value"), "{text}");
    }
}
