//! Statistics of the fit of the columns that served rows have: a server compares them with those of its requests.

use std::collections::BTreeMap;

use forebay_commit::{Artifact, LearnedFinding};
use forebay_model::Result;

use super::stream::ServedStream;

/// The kind of the analyzer of mean and variance.
const MOMENTS: &str = "moments";

/// Statistics of the fit of a column of numbers.
#[derive(Debug, Clone, PartialEq)]
pub struct ColumnFit {
    /// The column of the source.
    pub column: String,
    /// Mean of its values.
    pub mean: f64,
    /// Standard deviation of its values, with the divisor n.
    pub deviation: f64,
    /// Share of its rows without a value.
    pub missing: f64,
}

impl ColumnFit {
    /// The statistics that the steps of an artifact have learned of columns as the source has them, in order of names.
    /// Columns of dates and times are left out, since their mean moves with the data.
    pub(super) fn of_steps(
        served: &ServedStream<'_>,
        artifact: &Artifact,
    ) -> Result<Vec<ColumnFit>> {
        let base = &served.bound.base_schemas[served.stream.base];
        let mut fits = BTreeMap::new();
        for (position, analyzer) in served.analyzers() {
            let Some(learned) = artifact.findings.get(analyzer) else {
                continue;
            };
            if learned.analyzer != MOMENTS {
                continue;
            }
            let [column] = learned.columns.as_slice() else {
                continue;
            };
            let Some(column) = served.source_column(position, column) else {
                continue;
            };
            // The other side of a join has columns of its own.
            let Ok(field) = base.field_with_name(&column) else {
                continue;
            };
            if !field.data_type().is_numeric() {
                continue;
            }
            if let Some(fit) = ColumnFit::of_finding(&column, learned)? {
                fits.insert(column, fit);
            }
        }
        Ok(fits.into_values().collect())
    }

    /// `None` for a column without values, and for one with infinite values.
    fn of_finding(column: &str, learned: &LearnedFinding) -> Result<Option<ColumnFit>> {
        let finding = &learned.finding;
        let mean = finding.number("mean")?;
        let variance = finding.number("var")?;
        let Some((mean, variance)) = mean.zip(variance) else {
            return Ok(None);
        };
        if !mean.is_finite() || !variance.is_finite() {
            return Ok(None);
        }
        let values = finding.number("count")?.unwrap_or_default();
        let nulls = finding.number("nulls")?.unwrap_or_default();
        let nans = finding.number("nans")?.unwrap_or_default();
        let missing = nulls + nans;
        Ok(Some(ColumnFit {
            column: column.to_owned(),
            mean,
            deviation: variance.sqrt(),
            missing: missing / (values + missing),
        }))
    }
}
