//! Profiles of the columns of a dataset, and differences between two profiles.
//!
//! A profile is a `profile` step after a step or source, learned like any statistic: per span, kept
//! between runs, merged. A daily run profiles the new day only.

mod column;
mod dataset_profile;
mod distribution;
mod drift;
mod merge;
mod pairs;
mod series;

use std::collections::BTreeMap;

use forebay_commit::Artifact;
use forebay_model::{Fault, Finding, NodeInput, Pipeline, PipelineNode, Result, Step, codes};
use forebay_storage::StorageLocation;
use serde_json::json;

use crate::report::RunReport;
use crate::sample::RunSample;
use crate::session::Session;

pub use self::column::{
    ColumnProfile, FrequentValue, HistogramBin, LengthProfile, NumericProfile, TimeProfile,
};
pub use self::dataset_profile::DatasetProfile;
pub use self::drift::{ColumnDrift, DriftOptions, DriftReport, compare_profiles};
pub(crate) use self::drift::{compare_columns, jensen_shannon};
pub(crate) use self::merge::merge_columns;
pub use self::pairs::ColumnPair;
pub use self::series::SeriesProfile;

/// The name of the transform that learns a profile.
const STEP: &str = "profile";

/// The version of a stored profile; grows when a field changes its meaning or goes away.
const FORMAT: u32 = 1;

/// A profile that a run has learned.
#[derive(Debug, Clone)]
pub struct LearnedProfile {
    /// The node whose step learned it.
    pub node: String,
    /// The learned profile.
    pub profile: DatasetProfile,
}

/// A profile with that of the run before.
#[derive(Debug, Clone)]
pub struct ComparedProfile {
    /// Profile of the run.
    pub profile: DatasetProfile,
    /// Profile of the run before, where that learned it.
    pub before: Option<DatasetProfile>,
}

/// Options of a profile.
#[derive(Debug, Clone, Default)]
pub struct ProfileOptions {
    /// The part of the split; all rows without it.
    pub part: Option<String>,
    /// Columns of which each two are compared.
    pub pairs: Option<Vec<String>>,
    /// The column of numbers whose values other than 0 are demands of series [default: the label].
    pub demand: Option<String>,
    /// Sample of the sources that is read; everything without it.
    pub sample: Option<RunSample>,
}

impl DatasetProfile {
    /// Reads a profile that was stored as JSON.
    pub fn from_json(bytes: &[u8]) -> Result<DatasetProfile> {
        let corrupt = |error: serde_json::Error| {
            Fault::new(codes::CORRUPT, "the profile cannot be read").cause(error)
        };
        let profile: DatasetProfile = serde_json::from_slice(bytes).map_err(corrupt)?;
        match profile.format {
            FORMAT => Ok(profile),
            other => {
                let message =
                    format!("the profile has format {other}, this program reads {FORMAT}");
                Err(Fault::new(codes::STATE_VERSION, message)
                    .hint("make it again: `forebay profile`"))
            }
        }
    }

    /// The profile of a column.
    pub fn column(&self, name: &str) -> Option<&ColumnProfile> {
        self.columns.iter().find(|column| column.name == name)
    }
}

impl Session {
    /// Profiles the rows of a step or source: all of them, or those of a part of the split.
    pub fn profile(
        &self,
        pipeline: &Pipeline,
        from: &str,
        part: Option<&str>,
    ) -> Result<DatasetProfile> {
        let options = ProfileOptions {
            part: part.map(str::to_owned),
            ..ProfileOptions::default()
        };
        self.profile_with(pipeline, from, &options)
    }

    /// Profiles the rows of a step or source, with options.
    pub fn profile_with(
        &self,
        pipeline: &Pipeline,
        from: &str,
        options: &ProfileOptions,
    ) -> Result<DatasetProfile> {
        let part = options.part.as_deref();
        if pipeline.node(from).is_none() && pipeline.source(from).is_none() {
            let names = pipeline.nodes.iter().map(|node| &node.name);
            let names: Vec<&str> = names
                .chain(pipeline.sources.iter().map(|source| &source.name))
                .map(String::as_str)
                .collect();
            let fault = Fault::new(
                codes::UNKNOWN_NAME,
                format!("there is no step or source `{from}`"),
            );
            return Err(fault.hint(format!("there are {}", names.join(", "))));
        }
        if let Some(part) = part.filter(|part| {
            !pipeline
                .split
                .iter()
                .any(|split| split.parts().contains(part))
        }) {
            let parts = pipeline
                .split
                .as_ref()
                .map(|split| split.parts().join(", "))
                .unwrap_or_default();
            let fault = Fault::new(
                codes::UNKNOWN_NAME,
                format!("the split has no part `{part}`"),
            );
            return Err(fault.hint(if parts.is_empty() {
                "the spec has no split".to_owned()
            } else {
                format!("its parts are {parts}")
            }));
        }
        let mut profile_pipeline = pipeline.learning_anew();
        profile_pipeline.name = format!("{}.profile", pipeline.name);
        profile_pipeline.deadline = None;
        profile_pipeline.sinks.clear();
        profile_pipeline.trainings.clear();
        profile_pipeline.predictions.clear();
        let mut name = format!("{from}_profile");
        while profile_pipeline.node(&name).is_some() || profile_pipeline.source(&name).is_some() {
            name.push('_');
        }
        let label = || pipeline.label.as_ref().map(|label| label.column.clone());
        let demand = options.demand.clone().or_else(label);
        let mut config = json!({ "series": {} });
        if let Some(demand) = demand {
            config["series"]["demand"] = demand.into();
        }
        if let Some(pairs) = &options.pairs {
            config["pairs"] = json!(pairs);
        }
        let steps = vec![Step {
            kind: STEP.to_owned(),
            config,
            at: None,
        }];
        // Rows are profiled even if the steps before learned from no rows.
        for node in &mut profile_pipeline.nodes {
            node.allow_empty = true;
        }
        let node = PipelineNode::new(&name, NodeInput::From(from.to_owned()), steps);
        profile_pipeline.nodes.push(PipelineNode {
            fit_on: part.map(str::to_owned),
            ..node
        });
        let sampled = options
            .sample
            .map(|sample| self.sampled(&profile_pipeline, sample))
            .transpose()?;
        let report = match &sampled {
            Some((session, profile_pipeline)) => session.fit(profile_pipeline)?,
            None => self.fit(&profile_pipeline)?,
        };
        let path = report
            .artifact_path
            .ok_or_else(|| Fault::internal("a profile without an artifact"))?;
        let artifact = Artifact::load(&self.io, &self.io.resolve(&path)?)?;
        self.read_profile(&artifact, &name, from, part)
    }

    /// The profiles that a run has learned of the rows of a node or source: those of nodes that
    /// begin with a `profile` step.
    pub fn learned_profiles(
        &self,
        pipeline: &Pipeline,
        report: &RunReport,
    ) -> Result<Vec<LearnedProfile>> {
        let Some(path) = report.artifact_path.as_deref() else {
            return Ok(Vec::new());
        };
        self.profiles_of(pipeline, &self.io.resolve(path)?)
    }

    /// Profiles of a run, each with that of the run before it.
    pub fn compared_profiles(
        &self,
        pipeline: &Pipeline,
        report: &RunReport,
    ) -> Result<Vec<ComparedProfile>> {
        self.beside_earlier(pipeline, self.learned_profiles(pipeline, report)?)
    }

    /// The profiles of the last run of the pipeline, if there was one, each with that of the run
    /// before it.
    pub fn last_profiles(&self, pipeline: &Pipeline) -> Result<Vec<ComparedProfile>> {
        match Artifact::latest(&self.io, &self.state()?, &pipeline.name)? {
            Some(location) => self.beside_earlier(pipeline, self.profiles_of(pipeline, &location)?),
            None => Ok(Vec::new()),
        }
    }

    /// Pairs profiles of the last run of the pipeline with those of the run before it.
    fn beside_earlier(
        &self,
        pipeline: &Pipeline,
        profiles: Vec<LearnedProfile>,
    ) -> Result<Vec<ComparedProfile>> {
        let mut earlier = Vec::new();
        if !profiles.is_empty()
            && let Some(location) =
                Artifact::before_latest(&self.io, &self.state()?, &pipeline.name)?
        {
            // It may have been removed, or be one of an earlier version.
            earlier = self.profiles_of(pipeline, &location).unwrap_or_default();
        }
        let mut compared = Vec::with_capacity(profiles.len());
        for LearnedProfile { node, profile } in profiles {
            let position = earlier.iter().position(|learned| learned.node == node);
            compared.push(ComparedProfile {
                profile,
                before: position.map(|at| earlier.swap_remove(at).profile),
            });
        }
        Ok(compared)
    }

    fn profiles_of(
        &self,
        pipeline: &Pipeline,
        location: &StorageLocation,
    ) -> Result<Vec<LearnedProfile>> {
        let mut profiled: Vec<(&PipelineNode, &String)> = Vec::new();
        for node in &pipeline.nodes {
            if let NodeInput::From(from) = &node.input
                && node.steps.first().is_some_and(|step| step.kind == STEP)
            {
                profiled.push((node, from));
            }
        }
        if profiled.is_empty() {
            return Ok(Vec::new());
        }
        let artifact = Artifact::load(&self.io, location)?;
        let mut profiles = Vec::new();
        for (node, from) in profiled {
            // The spec may have changed since.
            if !profiles_alike(&artifact.pipeline, node, from) {
                continue;
            }
            let part = node.fit_on.as_deref();
            profiles.push(LearnedProfile {
                node: node.name.clone(),
                profile: self.read_profile(&artifact, &node.name, from, part)?,
            });
        }
        Ok(profiles)
    }

    /// Profile that a node of an artifact has learned of the rows of another node or source.
    fn read_profile(
        &self,
        artifact: &Artifact,
        node: &str,
        of: &str,
        part: Option<&str>,
    ) -> Result<DatasetProfile> {
        let bound = artifact.bind(&self.registry, &self.sql)?;
        let flow = bound
            .flows
            .get(of)
            .ok_or_else(|| Fault::internal("a profile of no step"))?;
        let mut findings: BTreeMap<&str, BTreeMap<&str, &Finding>> = BTreeMap::new();
        let step = format!("{node}.{STEP}");
        for learned in artifact
            .findings
            .iter()
            .filter(|learned| learned.step == step)
        {
            if let [column] = learned.columns.as_slice() {
                findings
                    .entry(column)
                    .or_default()
                    .insert(&learned.analyzer, &learned.finding);
            }
        }
        let none = BTreeMap::new();
        let columns: Vec<ColumnProfile> = flow
            .schema
            .fields()
            .iter()
            .map(|field| {
                ColumnProfile::read(field, findings.get(field.name().as_str()).unwrap_or(&none))
            })
            .collect::<Result<_>>()?;
        let rows = columns.iter().map(|column| column.rows).max().unwrap_or(0);
        let step_findings = || {
            artifact
                .findings
                .iter()
                .filter(|learned| learned.step == step)
        };
        let pairs = step_findings().filter_map(|learned| ColumnPair::read(learned).transpose());
        let mut pairs = pairs.collect::<Result<Vec<_>>>()?;
        pairs.sort_by(|a, b| b.strength().total_cmp(&a.strength()));
        let local = step_findings().find(|learned| learned.analyzer == "local_series_shape");
        let series = step_findings()
            .find(|learned| learned.analyzer == "series_shape")
            .map(|learned| {
                let fields = learned
                    .columns
                    .iter()
                    .map(|name| flow.schema.field_with_name(name));
                let fields = fields.collect::<std::result::Result<Vec<_>, _>>()?;
                let keys = flow.series.keys.as_ref().map_or(0, Vec::len);
                let local = local.map(|learned| learned.finding.as_ref());
                SeriesProfile::read(&learned.finding, local, &fields, keys)
            });
        let of = of.to_owned();
        let part = part.map(str::to_owned);
        let series = series.transpose()?;
        Ok(DatasetProfile {
            format: FORMAT,
            of,
            part,
            rows,
            columns,
            series,
            pairs,
        })
    }
}

/// True if a node of an earlier spec profiled the rows that a node profiles, with the first step of that.
fn profiles_alike(earlier: &Pipeline, node: &PipelineNode, from: &str) -> bool {
    let has_input = earlier.node(from).is_some() || earlier.source(from).is_some();
    let Some(earlier_node) = earlier.node(&node.name).filter(|_| has_input) else {
        return false;
    };
    let has_same_step = match (earlier_node.steps.first(), node.steps.first()) {
        (Some(earlier_step), Some(step)) => {
            earlier_step.kind == step.kind && earlier_step.config == step.config
        }
        (None, None) => true,
        _ => false,
    };
    has_same_step && earlier_node.input == node.input
}
