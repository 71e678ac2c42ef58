//! Description of a run for workers, which compile it themselves to the same program.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::Arc;

use forebay_cluster::{ReusedFindings, RunSpec, bad_request};
use forebay_commit::Artifact;
use forebay_model::{ContentId, Dataset, Fault, Finding, Interval, Pipeline, Result};
use forebay_plan::{AnalyzerId, BoundPipeline, Program};

use crate::degradation::{fitted_by_another, name_replaced, replace_findings};
use crate::predict::{LoadedModel, LoadedModels, PredictTransform};
use crate::serving_inputs::has_served_columns;
use crate::session::Session;

/// A run whose work units may go to workers.
pub(crate) struct RemoteRun<'a> {
    pub pipeline: &'a Pipeline,
    pub sinks: &'a [usize],
    /// True if all analyzers run, not only those that the sinks need.
    pub learns: bool,
    /// The analyzers that were answered when the run was compiled.
    pub known: BTreeSet<AnalyzerId>,
    /// The applied artifact, where nothing is learned.
    pub applies: Option<&'a Artifact>,
    /// The earlier artifact that a degraded run takes findings from.
    pub reuses: Option<ReusedArtifact<'a>>,
}

/// An artifact of an earlier run, and the analyzers of a run that take their findings from it.
pub(crate) struct ReusedArtifact<'a> {
    pub artifact: &'a Artifact,
    pub analyzers: BTreeSet<AnalyzerId>,
}

impl Session {
    /// Description of a run for workers; `None` without workers, or if it predicts with a model
    /// that is in the memory of this process only.
    pub(crate) fn run_spec(
        &self,
        run: RemoteRun<'_>,
        interval: Option<&Interval>,
        datasets: &BTreeMap<String, Dataset>,
    ) -> Result<Option<RunSpec>> {
        let RemoteRun {
            pipeline,
            sinks,
            learns,
            known,
            applies,
            reuses,
        } = run;
        // Workers do not know which columns their sources lack or hold as other types.
        let can_distribute =
            self.cluster.is_some() && self.as_of.is_none() && !has_served_columns(datasets);
        let Some(models) = model_paths(pipeline, &self.models)?.filter(|_| can_distribute) else {
            return Ok(None);
        };
        let reused_artifact = reuses.as_ref().map(|reused| reused.artifact);
        for artifact in applies.into_iter().chain(reused_artifact) {
            artifact.ensure_written(&self.io, &self.state()?, self.options.threads.max(1))?;
        }
        Ok(Some(RunSpec {
            // The coordinator keeps deadlines: workers do not need them or their webhooks.
            pipeline: pinned(
                Pipeline {
                    deadline: None,
                    ..pipeline.clone()
                },
                datasets,
            ),
            sinks: sinks.to_vec(),
            learns,
            known,
            interval: interval.cloned(),
            rows_from: self.served.from.clone(),
            continues: self.earlier_id(),
            held: self.held_steps(),
            numbering: self.numbering_spec(),
            applies: applies.map(|artifact| artifact.id),
            reuses: reuses.map(|reused| ReusedFindings {
                artifact: reused.artifact.id,
                analyzers: reused.analyzers,
            }),
            models,
            state: self.options.state.clone(),
            base: self.io.absolute_path(".")?,
            shared: self.shared_directories(pipeline, sinks)?,
            sources: datasets
                .iter()
                .map(|(name, dataset)| (name.clone(), dataset.fingerprint()))
                .collect(),
            batch_rows: self.options.batch_rows,
        }))
    }

    /// Local directories that workers must see. Buckets have the same address everywhere.
    fn shared_directories(&self, pipeline: &Pipeline, sinks: &[usize]) -> Result<Vec<PathBuf>> {
        let mut directories: Vec<PathBuf> = self.state()?.local.into_iter().collect();
        for sink in sinks {
            directories.extend(self.output(pipeline, *sink)?.local);
        }
        Ok(directories)
    }

    /// A run that is planned only: no worker gets to see it.
    pub(crate) fn explained_run(&self, pipeline: &Pipeline) -> Result<RunSpec> {
        Ok(RunSpec {
            pipeline: pipeline.clone(),
            sinks: Vec::new(),
            learns: true,
            known: BTreeSet::new(),
            interval: None,
            rows_from: None,
            continues: None,
            held: BTreeSet::new(),
            numbering: None,
            applies: None,
            reuses: None,
            models: Vec::new(),
            state: self.options.state.clone(),
            base: self.io.absolute_path(".")?,
            shared: Vec::new(),
            sources: BTreeMap::new(),
            batch_rows: self.options.batch_rows,
        })
    }

    /// Loads the models with which a run's steps predict, on a worker. Steps find them while they
    /// are held.
    pub(crate) fn load_models(&self, run: &RunSpec) -> Result<Vec<Arc<LoadedModel>>> {
        let mut models = Vec::with_capacity(run.models.len());
        for path in &run.models {
            let location = self.io.resolve(path)?;
            let predictor = self
                .connectors
                .predictor(&|name: &str| self.io.get(&location.join(name)))?;
            models.push(self.models.load(predictor, Some(&location)));
        }
        Ok(models)
    }

    /// Artifact that a run applies, on a worker.
    pub(crate) fn applied_artifact(&self, run: &RunSpec) -> Result<Option<Artifact>> {
        let load = |id| Artifact::load(&self.io, &Artifact::directory(&self.state()?, id));
        run.applies.map(load).transpose()
    }

    /// The findings of the earlier artifact that a degraded run takes, on a worker; `None` where it
    /// takes none.
    pub(crate) fn reused_answers(
        &self,
        run: &RunSpec,
        bound: &BoundPipeline,
    ) -> Result<Option<Vec<Arc<Finding>>>> {
        let Some(reused) = &run.reuses else {
            return Ok(None);
        };
        let analyzer_count = bound.asks.len();
        if reused.analyzers.iter().any(|ask| *ask >= analyzer_count) {
            return Err(bad_request());
        }
        let earlier = self.earlier_artifact(reused.artifact)?;
        let answers = earlier.findings_for(&run.pipeline, bound);
        answers.ok_or_else(fitted_by_another).map(Some)
    }
}

/// The directories of the models with which the steps of a pipeline predict; `None` where one has none.
fn model_paths(pipeline: &Pipeline, models: &LoadedModels) -> Result<Option<Vec<String>>> {
    let mut paths = BTreeSet::new();
    let steps = pipeline.nodes.iter().flat_map(|node| &node.steps);
    for step in steps.filter(|step| step.kind == PredictTransform::NAME) {
        let unreadable = |error| Fault::internal("a step that predicts").cause(error);
        let step: PredictTransform =
            serde_json::from_value(step.config.clone()).map_err(unreadable)?;
        let Some(path) = &models.find(&step.model)?.path else {
            return Ok(None);
        };
        paths.insert(path.clone());
    }
    Ok(Some(paths.into_iter().collect()))
}

/// Names the findings that an artifact replaces by their content there, before the pipeline is
/// compiled.
pub(crate) fn name_by_artifact(bound: &mut BoundPipeline, artifact: &Artifact) -> Result<()> {
    let replaced = all_analyzers(bound);
    name_replaced(bound, &replaced, &answers_of(artifact))
}

/// Replaces all findings that a program does not learn in each run by those of an artifact.
pub(crate) fn apply_findings(
    program: &mut Program,
    artifact: &Artifact,
    findings: &mut BTreeMap<ContentId, Arc<Finding>>,
) -> Result<()> {
    let replaced = all_analyzers(&program.bound);
    replace_findings(program, &replaced, &answers_of(artifact), findings)
}

/// The findings of an artifact, in the order of the analyzers.
pub(crate) fn answers_of(artifact: &Artifact) -> Vec<Arc<Finding>> {
    let learned = artifact.findings.iter();
    learned.map(|learned| learned.finding.clone()).collect()
}

/// All analyzers of a pipeline.
pub(crate) fn all_analyzers(bound: &BoundPipeline) -> BTreeSet<AnalyzerId> {
    (0..bound.asks.len()).collect()
}

/// Pins the pipeline to the versions of tables that were found, since others may be committed
/// during the run.
fn pinned(mut pipeline: Pipeline, datasets: &BTreeMap<String, Dataset>) -> Pipeline {
    for source in &mut pipeline.sources {
        let dataset = datasets.get(&source.name);
        if let Some(version) = dataset.and_then(|dataset| dataset.version) {
            source.pin_version(version);
        }
    }
    pipeline
}
