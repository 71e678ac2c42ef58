//! Artifacts that earlier runs have left.

use std::sync::Arc;

use forebay_commit::{Artifact, LearnedFinding};
use forebay_model::{ContentId, Finding, Pipeline, Result};
use forebay_plan::{BoundPipeline, analyzer_identities};
use forebay_storage::StorageLocation;

/// An artifact of a pipeline that an earlier run has left.
pub(crate) struct PreviousArtifact {
    pub artifact: Artifact,
    pub location: StorageLocation,
    /// Id of the analyzer that each finding answers.
    identities: Vec<ContentId>,
}

impl PreviousArtifact {
    /// An artifact that was read from a location, with its pipeline bound to its own columns.
    pub fn of_bound(
        artifact: Artifact,
        location: StorageLocation,
        bound: &BoundPipeline,
    ) -> Result<PreviousArtifact> {
        let identities = analyzer_identities(bound, &artifact.pipeline)?;
        Ok(PreviousArtifact {
            artifact,
            location,
            identities,
        })
    }

    /// Findings of the artifact for all analyzers of a pipeline; `None` if an analyzer, or an
    /// operation before it, has changed since.
    pub fn findings_for(
        &self,
        pipeline: &Pipeline,
        bound: &BoundPipeline,
    ) -> Option<Vec<Arc<Finding>>> {
        let matches = self.matches(pipeline, bound).ok()?;
        matches
            .into_iter()
            .map(|learned| Some(learned?.finding.clone()))
            .collect()
    }

    /// Finding of the artifact for each analyzer of a pipeline; `None` for those that have changed
    /// since.
    pub fn matches(
        &self,
        pipeline: &Pipeline,
        bound: &BoundPipeline,
    ) -> Result<Vec<Option<&LearnedFinding>>> {
        // Each finding answers one analyzer, even where several of a step ask for the same.
        let mut unmatched: Vec<_> = self
            .identities
            .iter()
            .zip(&self.artifact.findings)
            .collect();
        let mut matches = Vec::new();
        let identities = analyzer_identities(bound, pipeline)?;
        for (analyzer, wanted_identity) in bound.asks.iter().zip(identities) {
            let step = &bound.ops[analyzer.op].label;
            let position = unmatched.iter().position(|(identity, learned)| {
                **identity == wanted_identity && learned.step == *step
            });
            matches.push(position.map(|position| unmatched.remove(position).1));
        }
        Ok(matches)
    }
}
