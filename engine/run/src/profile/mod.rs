//! Profiles: what the columns of a dataset hold, and how two profiles differ.
//!
//! A profile is a `profile` step behind a step or source, learned as any statistic is: per span, kept between runs,
//! merged. A night profiles the new day only.

mod column;
mod distribution;
mod drift;

use std::collections::BTreeMap;

use forebay_commit::Artifact;
use forebay_model::{Fault, Finding, NodeInput, Pipeline, PipelineNode, Result, Step, codes};
use serde::{Deserialize, Serialize};
use serde_json::json;

use crate::session::Session;

pub use self::column::{ColumnProfile, FrequentValue, HistogramBin, LengthProfile, NumericProfile, TimeProfile};
pub use self::drift::{ColumnDrift, DriftOptions, DriftReport, compare_profiles};
pub(crate) use self::drift::{compare_columns, jensen_shannon};

/// The name of the transform that learns a profile.
const STEP: &str = "profile";

/// Bins of the histogram of a numeric column.
const HISTOGRAM_BINS: usize = 20;

/// The version of a stored profile; grows when a field changes its meaning or goes away.
const FORMAT: u32 = 1;

/// What the columns of a dataset hold.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct DatasetProfile {
    /// The version of its fields.
    pub format: u32,
    /// The step or source whose rows were profiled.
    pub of: String,
    /// The part of the split, if not all rows.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub part: Option<String>,
    /// Its rows.
    pub rows: u64,
    /// In the order of the columns.
    pub columns: Vec<ColumnProfile>,
}

impl DatasetProfile {
    /// Reads a profile that was stored as JSON.
    pub fn from_json(bytes: &[u8]) -> Result<DatasetProfile> {
        let corrupt = |error: serde_json::Error| Fault::new(codes::CORRUPT, "the profile cannot be read").cause(error);
        let profile: DatasetProfile = serde_json::from_slice(bytes).map_err(corrupt)?;
        match profile.format {
            FORMAT => Ok(profile),
            other => {
                let message = format!("the profile has format {other}, this program reads {FORMAT}");
                Err(Fault::new(codes::STATE_VERSION, message).hint("make it again: `forebay profile`"))
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
    pub fn profile(&self, pipeline: &Pipeline, from: &str, part: Option<&str>) -> Result<DatasetProfile> {
        if pipeline.node(from).is_none() && pipeline.source(from).is_none() {
            let names = pipeline.nodes.iter().map(|node| &node.name);
            let names: Vec<&str> =
                names.chain(pipeline.sources.iter().map(|source| &source.name)).map(String::as_str).collect();
            let fault = Fault::new(codes::UNKNOWN_NAME, format!("there is no step or source `{from}`"));
            return Err(fault.hint(format!("there are {}", names.join(", "))));
        }
        if let Some(part) = part.filter(|part| !pipeline.split.iter().any(|split| split.parts().contains(part))) {
            let parts = pipeline.split.as_ref().map(|split| split.parts().join(", ")).unwrap_or_default();
            let fault = Fault::new(codes::UNKNOWN_NAME, format!("the split has no part `{part}`"));
            return Err(fault.hint(match parts.is_empty() {
                true => "the spec has no split".to_owned(),
                false => format!("its parts are {parts}"),
            }));
        }
        let mut own = pipeline.learning_anew();
        own.name = format!("{}.profile", pipeline.name);
        own.deadline = None;
        (own.sinks, own.trainings, own.predictions) = Default::default();
        let mut name = format!("{from}_profile");
        while own.node(&name).is_some() || own.source(&name).is_some() {
            name.push('_');
        }
        let steps = vec![Step { kind: STEP.to_owned(), config: json!({}), at: None }];
        let node = PipelineNode::new(&name, NodeInput::From(from.to_owned()), steps);
        own.nodes.push(PipelineNode { fit_on: part.map(str::to_owned), ..node });
        let report = self.fit(&own)?;
        let path = report.artifact_path.ok_or_else(|| Fault::internal("a profile without an artifact"))?;
        let artifact = Artifact::load(&self.io, &self.io.resolve(&path)?)?;
        self.read_profile(&artifact, &name, from, part)
    }

    /// The profile that a step of an artifact has learned.
    fn read_profile(&self, artifact: &Artifact, node: &str, of: &str, part: Option<&str>) -> Result<DatasetProfile> {
        let bound = artifact.bind(&self.registry, &self.sql)?;
        let flow = bound.flows.get(node).ok_or_else(|| Fault::internal("a profile of no step"))?;
        let mut findings: BTreeMap<&str, BTreeMap<&str, &Finding>> = BTreeMap::new();
        let step = format!("{node}.{STEP}");
        for learned in artifact.findings.iter().filter(|learned| learned.step == step) {
            if let [column] = learned.columns.as_slice() {
                findings.entry(column).or_default().insert(&learned.analyzer, &learned.finding);
            }
        }
        let none = BTreeMap::new();
        let columns: Vec<ColumnProfile> = flow
            .schema
            .fields()
            .iter()
            .map(|field| ColumnProfile::read(field, findings.get(field.name().as_str()).unwrap_or(&none)))
            .collect::<Result<_>>()?;
        let rows = columns.iter().map(|column| column.rows).max().unwrap_or(0);
        Ok(DatasetProfile { format: FORMAT, of: of.to_owned(), part: part.map(str::to_owned), rows, columns })
    }
}
