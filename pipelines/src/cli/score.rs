//! `forebay score`.

use std::collections::BTreeMap;
use std::process::ExitCode;

use clap::Args;
use forebay_model::{Pipeline, Result};
use forebay_run::{BacktestReport, ScoreOptions};

use super::options::{RunArgs, SpecArgs};
use super::sources::insert_once;
use super::usage;
use crate::Forebay;
use crate::page::{PageArgs, score_page};
use crate::present::backtest;
use crate::present::report::RunReporter;
use crate::spec;

/// Compare published forecasts with the values that came since.
///
/// The forecasts are those that the spec's `predict` sinks show now, before the next run replaces them, or copies of
/// earlier ones (`--forecast`). Values come from the spec's sources. The model is compared with the seasonal naive
/// forecast, where the `predict` sink declares its `season`, and with the last value, both made of the rows before the
/// forecast. Nothing is trained or published. A rule of the sink (`expect: { skill: 0 }`) that does not hold is exit
/// code 65.
#[derive(Debug, Args)]
pub(crate) struct ScoreCommand {
    #[command(flatten)]
    spec: SpecArgs,
    /// Directory of a forecast: NAME=PATH, or only PATH if there is one `predict` sink. Can be given many times.
    #[arg(long = "forecast", value_name = "NAME=PATH")]
    forecasts: Vec<String>,
    /// Score the groups of these columns, too: keys or `columns` of the `predict` sink, with commas between them.
    #[arg(long, value_name = "NAMES", value_delimiter = ',')]
    by: Vec<String>,
    #[command(flatten)]
    page: PageArgs,
    #[command(flatten)]
    options: RunArgs,
}

impl ScoreCommand {
    pub fn run(self) -> Result<ExitCode> {
        let reporter = self.options.reporter();
        let page = self.page.begin(self.spec.shown())?;
        let done = page.finish(self.score(&reporter), |report| Ok(score_page(report)));
        backtest::report(&reporter, "score", done)
    }

    fn score(self, reporter: &RunReporter) -> Result<BacktestReport> {
        let session = self.options.session(reporter.watch())?;
        let text = self.spec.text()?;
        let values = self.spec.values()?;
        let forebay = Forebay::new();
        let catalog = forebay.spec_catalog();
        let pipeline = spec::parse(&text, &self.spec.shown(), &values, &catalog)?;
        let options = ScoreOptions {
            by: self.by,
            forecasts: forecast_paths(&pipeline, &self.forecasts)?,
        };
        session.score(&pipeline, &options)
    }
}

/// Reads `NAME=PATH`, or only `PATH` where there is one `predict` sink.
fn forecast_paths(pipeline: &Pipeline, arguments: &[String]) -> Result<BTreeMap<String, String>> {
    let names: Vec<&str> = pipeline
        .predictions
        .iter()
        .map(|sink| sink.name.as_str())
        .collect();
    let mut paths = BTreeMap::new();
    for text in arguments {
        let named = text
            .split_once('=')
            .filter(|(name, _)| names.contains(name));
        let (name, path) = match (named, names.as_slice()) {
            (Some(named), _) => named,
            (None, [only]) => (*only, text.as_str()),
            (None, _) => {
                let fault = usage(format!("`--forecast {text}` names no `predict` sink"));
                return Err(fault.hint(format!(
                    "write NAME=PATH; the sinks are {}",
                    names.join(", ")
                )));
            }
        };
        insert_once(&mut paths, "--forecast", name, path)?;
    }
    Ok(paths)
}
