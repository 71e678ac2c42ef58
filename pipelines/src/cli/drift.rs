//! `forebay drift`.

use std::path::Path;
use std::process::ExitCode;

use clap::Args;
use forebay_model::{Fault, Result, codes};
use forebay_run::{DatasetProfile, DriftOptions, Session, compare_profiles};
use serde_json::json;

use super::options::RunArgs;
use super::profile::profile_data;
use crate::present;

/// Bytes of a file that are read to distinguish a profile from data.
const HEAD_BYTES: usize = 64;

/// Compare two datasets, or profiles of them: distributions, values that are new, rows without a value.
///
/// A small dataset does not alarm: a difference counts only where samples of these sizes show it less than once in a
/// thousand times.
#[derive(Debug, Args)]
pub(crate) struct DriftCommand {
    /// The baseline: data, or a profile that `forebay profile --output` wrote.
    baseline: String,
    /// The data to compare, or a profile of it.
    now: String,
    /// Greatest Jensen-Shannon divergence of a column, in bits: 0 for equal distributions, 1 for those that share no
    /// value.
    #[arg(long, value_name = "BITS", default_value_t = DriftOptions::default().js)]
    js: f64,
    /// Greatest change of the share of rows without a value.
    #[arg(long, value_name = "SHARE", default_value_t = DriftOptions::default().missing)]
    missing: f64,
    /// End with a fault (exit 65) where a column has drifted.
    #[arg(long)]
    fail: bool,
    #[command(flatten)]
    options: RunArgs,
}

impl DriftCommand {
    pub fn run(self) -> Result<ExitCode> {
        let reporter = self.options.reporter();
        let session = self.options.session(reporter.watch())?;
        let profiles = read(&session, &self.baseline)
            .and_then(|baseline| Ok((baseline, read(&session, &self.now)?)));
        let (baseline, now) = match profiles {
            Ok(profiles) => profiles,
            Err(fault) => return reporter.failed(fault, json!({})),
        };
        let report = compare_profiles(
            &baseline,
            &now,
            &DriftOptions {
                js: self.js,
                missing: self.missing,
            },
        );
        let body = json!({ "drift": report });
        if !reporter.json() {
            super::write_text(&present::drift::text(&report))?;
        }
        if self.fail && report.drifted {
            let names = report
                .columns
                .iter()
                .filter(|column| !column.reasons.is_empty());
            let names: Vec<&str> = names.map(|column| column.name.as_str()).collect();
            let fault = Fault::new(
                codes::BAD_ROW,
                format!("columns have drifted: {}", names.join(", ")),
            );
            return reporter.failed(fault.file(&self.now), body);
        }
        if reporter.json() {
            reporter.done(&body)
        } else {
            Ok(ExitCode::SUCCESS)
        }
    }
}

/// Reads a stored profile, or profiles data.
fn read(session: &Session, path: &str) -> Result<DatasetProfile> {
    if Path::new(path)
        .extension()
        .is_some_and(|ending| ending == "json")
    {
        let bytes = session.io().get(&session.io().resolve(path)?)?;
        let bytes = bytes
            .ok_or_else(|| Fault::new(codes::NOT_FOUND, "there is no such file").file(path))?;
        // Data may have this ending, too.
        let head: Vec<u8> = bytes
            .iter()
            .take(HEAD_BYTES)
            .copied()
            .filter(|byte| !byte.is_ascii_whitespace())
            .collect();
        if head.starts_with(b"{\"format\":") {
            return DatasetProfile::from_json(&bytes).map_err(|fault| fault.file(path));
        }
    }
    profile_data(session, path)
}
