//! `forebay profile`.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Args;
use forebay_model::{Fault, Pipeline, Result};
use forebay_run::{DatasetProfile, ProfileOptions, RunSample, Session};
use serde_json::json;

use super::new::{data_pipeline, name_of};
use super::options::{RunArgs, SpecArgs};
use super::usage;
use super::workers::WorkersArgs;
use crate::page::{Page, PageArgs, parts_page, profile_page};
use crate::present;
use crate::present::report::RunReporter;

/// Profile the columns of some data, or of a step: types, nulls, distinct values, quantiles,
/// frequent values.
///
/// Profiles are kept in the state directory: of a history that grew, only the new files are read.
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
    /// Profile each part of the spec's split by itself; the page shows them side by side.
    #[arg(long, conflicts_with_all = ["split", "output"])]
    parts: bool,
    /// Compare each two of these columns, too: the correlation of numbers, Cramér's V of categories; all columns where
    /// none is named.
    #[arg(
        long,
        value_name = "COLUMNS",
        num_args = 0..=1,
        require_equals = true,
        value_delimiter = ','
    )]
    #[arg(default_missing_value = "*")]
    pairs: Option<Vec<String>>,
    /// The column of times of data that no spec describes.
    #[arg(long, value_name = "COLUMN", requires = "keys")]
    time: Option<String>,
    /// The columns that identify its series.
    #[arg(long, value_name = "COLUMNS", value_delimiter = ',', requires = "time")]
    keys: Vec<String>,
    /// The column of numbers by which series are intermittent: values other than 0 are demands [default: the label of
    /// the spec, else each row is a demand]
    #[arg(long, value_name = "COLUMN")]
    demand: Option<String>,
    /// Profile a share of the series of each source, such as 1% (of the rows, where a source declares no keys).
    #[arg(
        long,
        value_name = "SHARE",
        conflicts_with_all = ["limit", "workers", "local_workers", "on"]
    )]
    sample: Option<RunSample>,
    /// Profile the first N rows of each source.
    #[arg(long, value_name = "N", conflicts_with_all = ["workers", "local_workers", "on"])]
    limit: Option<u64>,
    /// Write the profile to this file or URL, as JSON, for `forebay drift`.
    #[arg(long, value_name = "FILE")]
    output: Option<String>,
    #[command(flatten)]
    page: PageArgs,
    #[command(flatten)]
    options: RunArgs,
    #[command(flatten)]
    workers: WorkersArgs,
}

impl ProfileCommand {
    pub fn run(self) -> Result<ExitCode> {
        let reporter = self.options.reporter();
        let page = self.page.begin(&*self.data)?;
        let profiles = page.finish(self.learn(&reporter), |profiles| Ok(page_of(profiles)));
        let profiles = match profiles {
            Ok(profiles) => profiles,
            Err(fault) => return reporter.failed(fault, json!({})),
        };
        if reporter.json() {
            return reporter.done(&match profiles.as_slice() {
                [profile] => json!({ "profile": profile }),
                profiles => json!({ "profiles": profiles }),
            });
        }
        let texts: Vec<String> = profiles.iter().map(present::profile::text).collect();
        super::write_text(&texts.join("\n"))?;
        Ok(ExitCode::SUCCESS)
    }

    /// Profiles, and writes the profile to a file if requested.
    fn learn(&self, reporter: &RunReporter) -> Result<Vec<DatasetProfile>> {
        let watch = reporter.watch();
        let session = self.options.session(watch.clone())?;
        let (_workers, session) = self.workers.apply(session, &self.options, &watch, &[])?;
        let profiles = self.profiles(&session)?;
        if let (Some(path), [profile]) = (&self.output, profiles.as_slice()) {
            write_profile(&session, profile, path)?;
        }
        Ok(profiles)
    }

    /// One profile, or one for each part of the split.
    fn profiles(&self, session: &Session) -> Result<Vec<DatasetProfile>> {
        if !self.parts {
            return Ok(vec![self.profile(session)?]);
        }
        if !is_spec(&self.data) {
            return Err(usage("`--parts` are those of a spec's split")
                .hint("give a spec (.yaml) with a split"));
        }
        let (pipeline, step) = self.spec_step()?;
        let parts = pipeline
            .split
            .as_ref()
            .map(|split| split.parts())
            .unwrap_or_default();
        if parts.len() < 2 {
            return Err(usage("`--parts` needs a spec with a split"));
        }
        let profile = |part: &&str| {
            let options = ProfileOptions {
                part: Some((*part).to_owned()),
                ..self.profile_options()
            };
            session.profile_with(&pipeline, &step, &options)
        };
        parts.iter().map(profile).collect()
    }

    fn profile(&self, session: &Session) -> Result<DatasetProfile> {
        if !is_spec(&self.data) {
            if let Some(step) = &self.step {
                return Err(usage(format!(
                    "`{step}` is a step, and `{}` is no spec",
                    self.data
                ))
                .hint("give a spec (.yaml) before the name of its step"));
            }
            let name = name_of(&self.data);
            let mut pipeline = data_pipeline(&name, &self.data)?;
            for source in &mut pipeline.sources {
                source.time.clone_from(&self.time);
                source.keys.clone_from(&self.keys);
            }
            return session.profile_with(&pipeline, &name, &self.profile_options());
        }
        if self.time.is_some() {
            return Err(usage(
                "`--time` and `--keys` are for data that no spec describes",
            ));
        }
        let (pipeline, step) = self.spec_step()?;
        session.profile_with(&pipeline, &step, &self.profile_options())
    }

    /// The spec, and the step of it that is profiled.
    fn spec_step(&self) -> Result<(Pipeline, String)> {
        let pipeline = SpecArgs {
            spec: PathBuf::from(&self.data),
            params: self.params.clone(),
        }
        .pipeline()?;
        let step = match &self.step {
            Some(step) => step.clone(),
            None => first_source(&pipeline)?,
        };
        Ok((pipeline, step))
    }

    fn profile_options(&self) -> ProfileOptions {
        let sample = self.sample.or(self.limit.map(RunSample::Rows));
        ProfileOptions {
            part: self.split.clone(),
            pairs: self.pairs.clone(),
            demand: self.demand.clone(),
            sample,
        }
    }
}

/// The page of one profile, or of those of the parts of a split.
fn page_of(profiles: &[DatasetProfile]) -> Page {
    match profiles {
        [profile] => profile_page(profile),
        profiles => parts_page(profiles.first().map_or("", |profile| &profile.of), profiles),
    }
}

/// Profiles data that no spec describes.
pub(super) fn profile_data(session: &Session, data: &str) -> Result<DatasetProfile> {
    let name = name_of(data);
    session.profile(&data_pipeline(&name, data)?, &name, None)
}

fn first_source(pipeline: &Pipeline) -> Result<String> {
    let source = pipeline
        .sources
        .first()
        .ok_or_else(|| usage("the spec has no source"))?;
    Ok(source.name.clone())
}

fn is_spec(data: &str) -> bool {
    let ending = Path::new(data)
        .extension()
        .and_then(|ending| ending.to_str());
    matches!(ending, Some("yaml" | "yml"))
}

fn write_profile(session: &Session, profile: &DatasetProfile, path: &str) -> Result<()> {
    let bytes = serde_json::to_vec_pretty(profile)
        .map_err(|error| Fault::internal("a profile").cause(error))?;
    session.io().put(&session.io().resolve(path)?, bytes.into())
}
