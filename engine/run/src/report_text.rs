//! Reports as text: a few lines for the end of a program. The command line prints more.

use std::fmt::{Display, Formatter, Result};

use crate::backtest::BacktestReport;
use crate::profile::{DatasetProfile, DriftReport};
use crate::report::{ForecastReport, ModelReport, OutputReport, RunReport};

/// A line for each output, model, forecast, broken rule and warning, and the artifact in the last.
impl Display for RunReport {
    fn fmt(&self, formatter: &mut Formatter<'_>) -> Result {
        for output in &self.outputs {
            writeln!(formatter, "{output}")?;
        }
        for model in &self.models {
            writeln!(formatter, "{model}")?;
        }
        for forecast in &self.forecasts {
            writeln!(formatter, "{forecast}")?;
        }
        for rule in self.expectations.iter().filter(|rule| !rule.holds) {
            writeln!(formatter, "{}: `{}`: {}", rule.step, rule.rule, rule.found)?;
        }
        for warning in &self.warnings {
            writeln!(formatter, "warning: {warning}")?;
        }
        if self.nothing_new {
            writeln!(formatter, "nothing new: everything was known already")?;
        }
        match &self.artifact_path {
            Some(path) => write!(formatter, "artifact: {path}"),
            None => write!(formatter, "no artifact"),
        }
    }
}

impl Display for OutputReport {
    fn fmt(&self, formatter: &mut Formatter<'_>) -> Result {
        let OutputReport {
            sink,
            rows,
            files,
            bytes,
            path,
            ..
        } = self;
        write!(
            formatter,
            "{sink}: {rows} rows, {bytes} bytes in {files} files at {path}"
        )
    }
}

impl Display for ModelReport {
    fn fmt(&self, formatter: &mut Formatter<'_>) -> Result {
        let origin = if self.reused {
            "trained by an earlier run"
        } else {
            "trained"
        };
        let rows = self.learned.rows;
        write!(
            formatter,
            "{}: {origin} on {rows} rows, at {}",
            self.sink, self.path
        )
    }
}

impl Display for ForecastReport {
    fn fmt(&self, formatter: &mut Formatter<'_>) -> Result {
        let ForecastReport {
            sink,
            rows,
            series,
            steps,
            path,
            ..
        } = self;
        write!(
            formatter,
            "{sink}: {rows} rows = {series} series x {steps} steps, at {path}"
        )
    }
}

/// A line for each forecaster of each sink.
impl Display for BacktestReport {
    fn fmt(&self, formatter: &mut Formatter<'_>) -> Result {
        write!(
            formatter,
            "{}: forecast as of {} days",
            self.label,
            self.folds.len()
        )?;
        for forecast in &self.forecasts {
            for forecaster in &forecast.forecasters {
                let name = &forecaster.forecaster;
                let score = &forecaster.overall;
                write!(
                    formatter,
                    "\n{}, {name}: {} rows",
                    forecast.sink, score.rows
                )?;
                if let Some(wmape) = score.wmape {
                    write!(formatter, ", wMAPE {wmape:.4}")?;
                }
            }
        }
        Ok(())
    }
}

/// The number of columns that have drifted, and a line for each of them.
impl Display for DriftReport {
    fn fmt(&self, formatter: &mut Formatter<'_>) -> Result {
        let drifted = self
            .columns
            .iter()
            .filter(|column| !column.reasons.is_empty());
        write!(
            formatter,
            "{} of {} columns have drifted",
            drifted.clone().count(),
            self.columns.len()
        )?;
        for column in drifted {
            write!(
                formatter,
                "\n{}: {}",
                column.name,
                column.reasons.join(", ")
            )?;
        }
        Ok(())
    }
}

/// The number of rows, and a line for each column.
impl Display for DatasetProfile {
    fn fmt(&self, formatter: &mut Formatter<'_>) -> Result {
        write!(formatter, "{}: {} rows", self.of, self.rows)?;
        for column in &self.columns {
            write!(
                formatter,
                "\n{} ({}): {} nulls",
                column.name, column.r#type, column.nulls
            )?;
            if let Some(distinct) = column.distinct {
                write!(formatter, ", {distinct} distinct")?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::profile::ColumnDrift;

    #[test]
    fn a_drift_lists_its_columns() {
        let column = |name: &str, reasons: &[&str]| ColumnDrift {
            name: name.to_owned(),
            reasons: reasons.iter().map(|reason| (*reason).to_owned()).collect(),
            ..ColumnDrift::default()
        };
        let report = DriftReport {
            baseline_rows: 10,
            rows: 10,
            drifted: true,
            columns: vec![column("qty", &[]), column("price", &["js", "missing"])],
        };
        assert_eq!(
            report.to_string(),
            "1 of 2 columns have drifted\nprice: js, missing"
        );
    }
}
