//! `forebay backtest`.

use std::collections::BTreeMap;
use std::num::NonZeroUsize;
use std::process::ExitCode;

use clap::Args;
use forebay_model::{Fault, Pipeline, Result, codes};
use forebay_run::{BacktestOptions, BacktestReport, ForecastOrigin};
use jiff::SignedDuration;
use jiff::civil::DateTime;

use super::options::{RunArgs, SpecArgs};
use crate::page::{PageArgs, backtest_page};
use crate::present::backtest;
use crate::present::report::RunReporter;
use crate::{Forebay, spec};

/// Test forecasts on the past: train and forecast as of several days of the past, and compare with the
/// values observed later.
///
/// Each fold runs the spec with the rows that were known at its origin, in a temporary directory;
/// outputs and models of the spec stay as they are. Parameters of type `date` or `timestamp` on
/// which the split depends move with the folds: they keep their distance to the end of what is
/// known. The model is compared with the seasonal naive forecast, where the `predict` sink declares
/// its `season`, and with the last value.
#[derive(Debug, Args)]
pub(crate) struct BacktestCommand {
    #[command(flatten)]
    spec: SpecArgs,
    /// Number of folds.
    #[arg(long, value_name = "COUNT", default_value = "4")]
    folds: NonZeroUsize,
    /// The distance between the origins of folds, such as 28d [default: the horizon]
    #[arg(long, value_name = "LENGTH")]
    every: Option<String>,
    /// Leave out all rows at or after this time, such as a day whose rows are not complete.
    #[arg(long, value_name = "TIME")]
    until: Option<String>,
    /// Score the groups of these columns, too: keys or `columns` of the `predict` sink, with commas between them.
    #[arg(long, value_name = "NAMES", value_delimiter = ',')]
    by: Vec<String>,
    #[command(flatten)]
    page: PageArgs,
    #[command(flatten)]
    options: RunArgs,
}

impl BacktestCommand {
    pub fn run(self) -> Result<ExitCode> {
        let reporter = self.options.reporter();
        let page = self.page.begin(self.spec.shown())?;
        let done = page.finish(self.backtest(&reporter), |report| Ok(backtest_page(report)));
        backtest::report(&reporter, "backtest", done)
    }

    fn backtest(self, reporter: &RunReporter) -> Result<BacktestReport> {
        let session = self.options.session(reporter.watch())?;
        let spec = FoldSpec::read(&self.spec)?;
        let pipeline = spec.pipeline(&spec.values)?;
        let folds = self.folds.get();
        let every = self.every;
        let until = self.until;
        let by = self.by;
        let options = BacktestOptions {
            folds,
            every,
            until,
            by,
        };
        session.backtest(&pipeline, &options, &|origin| spec.at(&pipeline, origin))
    }
}

/// A spec whose dates move with the folds.
struct FoldSpec {
    text: String,
    shown: String,
    values: BTreeMap<String, String>,
    dates: BTreeMap<String, String>,
}

impl FoldSpec {
    fn read(spec: &SpecArgs) -> Result<FoldSpec> {
        let text = spec.text()?;
        let file = spec.shown();
        let values = spec.values()?;
        let dates = spec::date_params(&text, &file, &values)?;
        Ok(FoldSpec {
            text,
            shown: file,
            values,
            dates,
        })
    }

    fn pipeline(&self, values: &BTreeMap<String, String>) -> Result<Pipeline> {
        spec::parse(
            &self.text,
            &self.shown,
            values,
            &Forebay::new().spec_catalog(),
        )
    }

    /// The pipeline of a fold: dates on which the split depends are moved.
    fn at(&self, today: &Pipeline, origin: &ForecastOrigin) -> Result<Pipeline> {
        let Some(behind) = origin.behind else {
            return Ok(today.clone());
        };
        let mut values = self.values.clone();
        for (name, date) in &self.dates {
            let mut trial = self.values.clone();
            let moved = earlier(date, behind)?;
            trial.insert(name.clone(), moved.clone());
            if self.pipeline(&trial)?.split != today.split {
                values.insert(name.clone(), moved);
            }
        }
        self.pipeline(&values)
    }
}

/// Subtracts a duration from a date or timestamp.
fn earlier(date: &str, behind: SignedDuration) -> Result<String> {
    let wrong = || {
        Fault::new(
            codes::BAD_VALUE,
            format!("`{date}` cannot be moved by {behind:#}"),
        )
    };
    let is_day = !date.contains(['T', ' ', ':']);
    let (date, zone) = match date.strip_suffix('Z') {
        Some(local) => (local, "Z"),
        None => (date, ""),
    };
    let time: DateTime = date.parse().map_err(|_| wrong())?;
    let moved = time.checked_sub(behind).map_err(|_| wrong())?;
    Ok(if is_day {
        moved.date().to_string()
    } else {
        format!("{moved}{zone}")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_move_with_the_folds() {
        let behind = SignedDuration::from_hours(36);
        for (date, moved) in [
            ("2016-05-22", "2016-05-20"),
            ("2016-05-22T06:30:00", "2016-05-20T18:30:00"),
            ("2016-05-22T06:30:00Z", "2016-05-20T18:30:00Z"),
        ] {
            assert_eq!(earlier(date, behind).unwrap_or_default(), moved);
        }
        assert!(earlier("soon", behind).is_err());
    }
}
