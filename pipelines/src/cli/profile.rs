//! `forebay profile`.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Args;
use forebay_model::{Fault, Pipeline, Result};
use forebay_run::{DatasetProfile, Session};
use serde_json::json;

use super::new::{data_pipeline, name_of};
use super::options::{RunArgs, SpecArgs};
use super::usage;
use crate::page::{PageArgs, profile_page};
use crate::present;

/// Tell what the columns of some data, or of a step, hold: types, nulls, distinct values, quantiles, frequent values.
///
/// What was profiled once is kept in the state directory: of a history that grew, the new files are read.
#[derive(Debug, Args)]
pub(crate) struct ProfileCommand {
    /// The data (a file, a directory or a pattern; Parquet, Arrow, CSV or JSON lines), or a spec (a YAML file).
    #[arg(value_name = "DATA|SPEC")]
    data: String,
    /// The step or source of the spec whose rows are profiled [default: its first source]
    step: Option<String>,
    /// A value for a parameter of the spec. Can be given many times.
    #[arg(long = "param", value_name = "NAME=VALUE")]
    params: Vec<String>,
    /// Profile the rows of this part of the spec's split only.
    #[arg(long, value_name = "PART")]
    split: Option<String>,
    /// Write the profile to this file or URL, as JSON, for `forebay drift`.
    #[arg(long, value_name = "FILE")]
    output: Option<String>,
    #[command(flatten)]
    page: PageArgs,
    #[command(flatten)]
    options: RunArgs,
}

impl ProfileCommand {
    pub fn run(self) -> Result<ExitCode> {
        let reporter = self.options.reporter();
        let session = self.options.session(reporter.watch())?;
        let profile = match self.profile(&session) {
            Ok(profile) => profile,
            Err(fault) => return reporter.failed(fault, json!({})),
        };
        if let Some(path) = &self.output {
            write_profile(&session, &profile, path)?;
        }
        self.page.write(|| Ok(profile_page(&profile)))?;
        if reporter.json() {
            return reporter.done(&json!({ "profile": profile }));
        }
        super::write_text(&present::profile::text(&profile))?;
        Ok(ExitCode::SUCCESS)
    }

    fn profile(&self, session: &Session) -> Result<DatasetProfile> {
        if !is_spec(&self.data) {
            if let Some(step) = &self.step {
                return Err(usage(format!("`{step}` is a step, and `{}` is no spec", self.data))
                    .hint("give a spec (.yaml) before the name of its step"));
            }
            return profile_data(session, &self.data);
        }
        let pipeline = SpecArgs { spec: PathBuf::from(&self.data), params: self.params.clone() }.pipeline()?;
        let step = match &self.step {
            Some(step) => step.clone(),
            None => first_source(&pipeline)?,
        };
        session.profile(&pipeline, &step, self.split.as_deref())
    }
}

/// Profiles data that no spec describes.
pub(super) fn profile_data(session: &Session, data: &str) -> Result<DatasetProfile> {
    let name = name_of(data);
    session.profile(&data_pipeline(&name, data)?, &name, None)
}

fn first_source(pipeline: &Pipeline) -> Result<String> {
    let source = pipeline.sources.first().ok_or_else(|| usage("the spec has no source"))?;
    Ok(source.name.clone())
}

fn is_spec(data: &str) -> bool {
    let ending = Path::new(data).extension().and_then(|ending| ending.to_str());
    matches!(ending, Some("yaml" | "yml"))
}

fn write_profile(session: &Session, profile: &DatasetProfile, path: &str) -> Result<()> {
    let bytes = serde_json::to_vec_pretty(profile).map_err(|error| Fault::internal("a profile").cause(error))?;
    session.io().put(&session.io().resolve(path)?, bytes.into())
}
