//! The artifact of a run and its lineage.

use std::collections::BTreeMap;
use std::sync::Arc;

use forebay_commit::{Artifact, ArtifactFiles, ArtifactOrigin, LearnedFinding};
use forebay_model::{ContentId, Dataset, Fault, Finding, Result, Span};
use forebay_plan::{BaseDataset, part_name};
use forebay_storage::{BackgroundTask, StorageLocation};
use serde_json::{Value, json};

use super::RunExecutor;
use crate::leak_check::TimeRange;

/// The version that lineages name.
const VERSION: &str = env!("CARGO_PKG_VERSION");

/// An artifact that is not committed yet.
pub(crate) struct UncommittedArtifact {
    pub artifact: Artifact,
    files: ArtifactFiles,
    /// As JSON.
    lineage: Vec<u8>,
}

impl RunExecutor<'_> {
    /// Starts assembling the artifact after the current pass where no later pass has work to do, so that its memory is
    /// free.
    pub(super) fn assemble_early(&mut self) -> Result<()> {
        let later = &self.program.passes[self.pass_index + 1..];
        let is_last = later
            .iter()
            .all(|pass| self.fused_writes.contains_key(&pass.id));
        if self.makes_artifact && is_last {
            self.begin_artifact()
        } else {
            Ok(())
        }
    }

    /// The task that assembles the artifact.
    fn artifact_builder(
        &self,
    ) -> Result<impl FnOnce() -> Result<(Artifact, ArtifactFiles)> + Send + 'static> {
        let bound = &self.program.bound;
        let mut findings = Vec::new();
        for (index, ask) in bound.asks.iter().enumerate() {
            let finding = self.state.finding(&self.program, index)?;
            // A finding of one run's rows keeps its place among the findings, without content.
            let finding = if ask.ask.per_run {
                Arc::new(Finding::new(finding.table().slice(0, 0)))
            } else {
                finding
            };
            findings.push(LearnedFinding {
                step: bound.ops[ask.op].label.clone(),
                analyzer: ask.ask.analyzer.kind().to_owned(),
                columns: ask.ask.inputs.clone(),
                part: ask.part.as_deref().map(|part| part_name(part).to_owned()),
                finding,
            });
        }
        let schemas = bound
            .bases
            .iter()
            .zip(&bound.base_schemas)
            .filter_map(|(base, schema)| match base {
                BaseDataset::Source(name) => Some((name.clone(), schema.clone())),
                BaseDataset::Gathered(_) => None,
            })
            .collect();
        let (pipeline, threads) = (self.pipeline.clone(), self.session.options.threads);
        let fits = self.refits.fits();
        let origin = self.origin()?;
        Ok(move || Artifact::new(pipeline, schemas, findings, fits, origin, threads))
    }

    /// The begin of the sources and the labels of this run, for later applications of the artifact.
    fn origin(&self) -> Result<ArtifactOrigin> {
        let mut begins = BTreeMap::new();
        for source in &self.pipeline.sources {
            let (Some(time), Some(input)) = (&source.time, self.state.sources.get(&source.name))
            else {
                continue;
            };
            if let Some(range) = TimeRange::told(&input.dataset, time)? {
                begins.insert(source.name.clone(), range.first_text()?);
            }
        }
        let declared = self.pipeline.label.iter().map(|label| label.column.clone());
        let trainings = self.pipeline.trainings.iter();
        let trained = trainings.filter_map(|training| training.config["label"].as_str());
        Ok(ArtifactOrigin {
            begins,
            labels: declared.chain(trained.map(str::to_owned)).collect(),
        })
    }

    /// Starts assembling the artifact, unless that has begun.
    pub fn begin_artifact(&mut self) -> Result<()> {
        if self.artifact_task.is_none() {
            self.artifact_task = Some(BackgroundTask::spawn(self.artifact_builder()?));
        }
        Ok(())
    }

    /// The artifact, its files and its lineage, in memory.
    pub fn finish_artifact(
        &mut self,
        datasets: &BTreeMap<String, Dataset>,
    ) -> Result<UncommittedArtifact> {
        self.begin_artifact()?;
        // The lineage of a long history is long: it is written while the artifact is assembled.
        let lineage = self.lineage(datasets)?;
        let task = self
            .artifact_task
            .take()
            .ok_or_else(|| Fault::internal("an artifact that nothing assembles"))?;
        let (artifact, files) = task.join()?;
        Ok(UncommittedArtifact {
            artifact,
            files,
            lineage,
        })
    }

    /// Commits the artifact.
    pub fn commit_artifact(
        &self,
        uncommitted: UncommittedArtifact,
    ) -> Result<(ContentId, StorageLocation)> {
        let UncommittedArtifact {
            artifact,
            files,
            lineage,
        } = uncommitted;
        self.session.check_fence()?;
        let place = artifact.commit(files, &self.session.io, self.store.root(), lineage)?;
        self.session
            .record_fit(&self.program, &self.state, artifact.id)?;
        Ok((artifact.id, place))
    }

    /// The lineage of the artifact, as JSON.
    fn lineage(&self, datasets: &BTreeMap<String, Dataset>) -> Result<Vec<u8>> {
        let span = |span: &Span| {
            let fingerprint = span.fingerprint().to_string();
            json!({ "span": span.label(), "rows": span.rows(), "fingerprint": fingerprint })
        };
        let source = |dataset: &Dataset| {
            let spans: Vec<Value> = dataset.spans.iter().map(span).collect();
            let mut lineage =
                json!({ "fingerprint": dataset.fingerprint().to_string(), "spans": spans });
            if let Some(version) = dataset.version {
                lineage["version"] = version.into();
            }
            lineage
        };
        let mut lineage = json!({
            "forebay": VERSION,
            "run_id": self.session.options.run_id,
            "sources": datasets.iter().map(|(name, dataset)| (name, source(dataset))).collect::<BTreeMap<_, _>>(),
            "states": self.program.state_ids.iter().map(ContentId::to_string).collect::<Vec<_>>(),
            "ladder": self.degradation,
            "passes": self.program.passes.iter().map(|pass| pass.id.to_string()).collect::<Vec<_>>(),
        });
        if let Some(earlier) = self.session.continued_id() {
            lineage["continues"] = json!(earlier.to_string());
        }
        if let Some(learned_by) = self.session.learned_by(&self.refits, &self.program)? {
            lineage["learned_by"] = learned_by;
        }
        serde_json::to_vec_pretty(&lineage)
            .map_err(|error| Fault::internal("a lineage").cause(error))
    }
}
