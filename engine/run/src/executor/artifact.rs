//! The artifact of a run and its lineage.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use arrow::datatypes::Field;
use forebay_analyze::ColumnMoments;
use forebay_commit::{
    Artifact, ArtifactFiles, ArtifactOrigin, LearnedFinding, PieceWriter, ServingManifest,
};
use forebay_model::{ContentId, Dataset, Fault, Finding, Result, Span, tick_nanoseconds};
use forebay_plan::{
    AnalyzerRequest, BaseDataset, BoundAnalyzer, OpList, OpStream, needed_history, part_name,
};
use forebay_storage::{BackgroundTask, StorageLocation};
use serde_json::{Value, json};

use super::RunExecutor;
use crate::leak_check::{TimeRange, time_text};
use crate::predict::known_by_step;

/// The version that lineages name.
const VERSION: &str = env!("CARGO_PKG_VERSION");

/// An artifact that is not committed yet.
pub(crate) struct UncommittedArtifact {
    pub artifact: Artifact,
    files: ArtifactFiles,
    /// Lineage as JSON.
    lineage: Vec<u8>,
    /// Description of the serving state, whose pieces are written.
    serving: Option<ServingManifest>,
}

impl RunExecutor<'_> {
    /// Starts assembling the artifact after the current pass where no later pass has work to do, so that its memory is
    /// free.
    pub(super) fn assemble_early(&mut self) -> Result<()> {
        let following_passes = &self.program.passes[self.pass_index + 1..];
        let is_last = following_passes
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
        let pipeline = self.pipeline.clone();
        let threads = self.session.options.threads;
        let fits = self.refits.fits();
        let origin = self.origin()?;
        Ok(move || Artifact::new(pipeline, schemas, findings, fits, origin, threads))
    }

    /// The begin of the sources and the labels of this run, for later applications of the artifact.
    fn origin(&self) -> Result<ArtifactOrigin> {
        let mut begins = BTreeMap::new();
        let mut unrecorded = Vec::new();
        for source in &self.pipeline.sources {
            let Some(time) = &source.time else {
                continue;
            };
            let Some(input) = self.state.sources.get(&source.name) else {
                continue;
            };
            if let Some(range) = TimeRange::of_bounds(&input.dataset, time)? {
                begins.insert(source.name.clone(), range.first_text()?);
            } else {
                let time = input.dataset.schema.field_with_name(time)?;
                unrecorded.push((source.name.clone(), time.clone()));
            }
        }
        if !unrecorded.is_empty() {
            let looked_back = self.sources_with_history();
            unrecorded.retain(|(source, _)| looked_back.contains(source));
            begins.extend(self.learn_begins(unrecorded)?);
        }
        let mut labels = BTreeSet::new();
        labels.extend(
            self.pipeline
                .label
                .as_ref()
                .map(|label| label.column.clone()),
        );
        for training in &self.pipeline.trainings {
            let label = self.session.trainer(training)?.feed().label;
            labels.extend(label.map(|label| label.column().to_owned()));
        }
        Ok(ArtifactOrigin {
            begins,
            labels,
            known: known_by_step(self.session, self.pipeline, &self.program.bound)?,
        })
    }

    /// Sources of which steps read rows before those that they compute.
    fn sources_with_history(&self) -> BTreeSet<String> {
        let bound = &self.program.bound;
        let sinks = self.pipeline.sinks.iter();
        let trainings = self.pipeline.trainings.iter();
        let predictions = self.pipeline.predictions.iter();
        let mut sources = BTreeSet::new();
        for taker in sinks.chain(trainings).chain(predictions) {
            let Some(flow) = bound.flows.get(&taker.from) else {
                continue;
            };
            let streams = flow.streams_of(taker.split.as_deref()).0;
            let columns = flow.column_names();
            let needed = needed_history(self.pipeline, bound, &streams, &columns);
            let looking_back = needed.into_iter().filter(|history| history.looks_back());
            sources.extend(looking_back.map(|history| history.source));
        }
        sources
    }

    /// The first times of sources whose files do not record them. Files that have not changed are not read again.
    fn learn_begins(&self, sources: Vec<(String, Field)>) -> Result<BTreeMap<String, String>> {
        let bases = &self.program.bound.bases;
        let mut analyzers = Vec::new();
        let mut columns = Vec::new();
        for (source, time) in sources {
            let base = bases.iter().position(
                |base| matches!(base, BaseDataset::Source(of_base) if *of_base == source),
            );
            let has_order =
                tick_nanoseconds(time.data_type()).is_some() || time.data_type().is_integer();
            let Some(base) = base.filter(|_| has_order) else {
                continue;
            };
            let rows = OpStream {
                base,
                ops: OpList::default(),
            };
            analyzers.push(BoundAnalyzer {
                op: 0,
                ask: AnalyzerRequest::new(ColumnMoments, [time.name()]).per_run(),
                streams: vec![rows],
                part: None,
                carried: None,
                held: None,
            });
            columns.push((source, time));
        }
        let mut begins = BTreeMap::new();
        for ((source, time), finding) in columns.into_iter().zip(self.learn_extra(analyzers)?) {
            if let Some(first) = finding.number("min")? {
                begins.insert(source, time_text(first as i64, &time)?);
            }
        }
        Ok(begins)
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
        let (artifact, mut files) = task.join()?;
        let serving = self.serving_state(artifact.id)?;
        if let Some(serving) = &serving {
            files.push(serving.to_file()?);
        }
        Ok(UncommittedArtifact {
            artifact,
            files,
            lineage,
            serving,
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
            serving,
        } = uncommitted;
        self.session.check_fence()?;
        let io = &self.session.io;
        let location = artifact.commit(files, io, self.store.root(), lineage)?;
        if let Some(serving) = &serving {
            PieceWriter::new(io, location.clone(), None).remove_unnamed(serving)?;
        }
        self.session
            .record_fit(&self.program, &self.state, artifact.id)?;
        Ok((artifact.id, location))
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
        let sources: BTreeMap<&String, Value> = datasets
            .iter()
            .map(|(name, dataset)| (name, source(dataset)))
            .collect();
        let states: Vec<String> = self
            .program
            .state_ids
            .iter()
            .map(ContentId::to_string)
            .collect();
        let passes: Vec<String> = self
            .program
            .passes
            .iter()
            .map(|pass| pass.id.to_string())
            .collect();
        let mut lineage = json!({
            "forebay": VERSION,
            "run_id": self.session.options.run_id,
            "sources": sources,
            "states": states,
            "ladder": self.degradation,
            "passes": passes,
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
