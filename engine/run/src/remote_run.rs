//! What workers need to know of a run: they compile it themselves, and come to the same program.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use forebay_cluster::RunSpec;
use forebay_commit::Artifact;
use forebay_model::{ContentId, Dataset, Fault, Finding, Interval, Pipeline, Result};
use forebay_plan::{AnalyzerId, BoundPipeline, CarriedFinding, ConfiguredTransform, Program};

use crate::degradation::replace_findings;
use crate::predict::{LoadedModel, PredictTransform};
use crate::session::Session;

/// A run whose work units may go to workers.
pub(crate) struct RemoteRun<'a> {
    pub pipeline: &'a Pipeline,
    pub sinks: &'a [usize],
    /// Whether all analyzers run, or only those that the sinks need.
    pub learns: bool,
    /// The analyzers that were answered when the run was compiled.
    pub known: BTreeSet<AnalyzerId>,
    /// What is applied, where nothing is learned.
    pub applies: Option<&'a Artifact>,
}

impl Session {
    /// What workers need to know of a run; `None` without workers, or where a model that it predicts with is in the
    /// memory of this process alone.
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
        } = run;
        let (true, Some(models)) = (
            self.cluster.is_some() && self.as_of.is_none(),
            model_places(pipeline)?,
        ) else {
            return Ok(None);
        };
        if let Some(artifact) = applies {
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
            continues: self.earlier_id(),
            held: self.held_steps(),
            numbering: self.numbering_spec(),
            applies: applies.map(|artifact| artifact.id),
            models,
            state: self.options.state.clone(),
            base: self.io.absolute_path(".")?,
            sources: datasets
                .iter()
                .map(|(name, dataset)| (name.clone(), dataset.fingerprint()))
                .collect(),
            batch_rows: self.options.batch_rows,
        }))
    }

    /// A run that is planned only: no worker gets to see it.
    pub(crate) fn explained_run(&self, pipeline: &Pipeline) -> Result<RunSpec> {
        Ok(RunSpec {
            pipeline: pipeline.clone(),
            sinks: Vec::new(),
            learns: true,
            known: BTreeSet::new(),
            interval: None,
            continues: None,
            held: BTreeSet::new(),
            numbering: None,
            applies: None,
            models: Vec::new(),
            state: self.options.state.clone(),
            base: self.io.absolute_path(".")?,
            sources: BTreeMap::new(),
            batch_rows: self.options.batch_rows,
        })
    }

    /// On a worker: loads the models with which a run's steps predict. Steps find them while they are held.
    pub(crate) fn load_models(&self, run: &RunSpec) -> Result<Vec<Arc<LoadedModel>>> {
        let load = |place: &String| {
            let place = self.io.resolve(place)?;
            let predictor = self
                .connectors
                .predictor(&|name: &str| self.io.get(&place.join(name)))?;
            Ok(LoadedModel::new(predictor, Some(&place)))
        };
        run.models.iter().map(load).collect()
    }

    /// On a worker: the artifact that a run applies.
    pub(crate) fn applied_artifact(&self, run: &RunSpec) -> Result<Option<Artifact>> {
        let load = |id| Artifact::load(&self.io, &Artifact::directory(&self.state()?, id));
        run.applies.map(load).transpose()
    }
}

/// The directories of the models with which the steps of a pipeline predict; `None` where one has none.
fn model_places(pipeline: &Pipeline) -> Result<Option<Vec<String>>> {
    let mut places = BTreeSet::new();
    let steps = pipeline.nodes.iter().flat_map(|node| &node.steps);
    for step in steps.filter(|step| step.kind == PredictTransform::NAME) {
        let unreadable = |error| Fault::internal("a step that predicts").cause(error);
        let step: PredictTransform =
            serde_json::from_value(step.config.clone()).map_err(unreadable)?;
        let Some(place) = &LoadedModel::find(&step.model)?.place else {
            return Ok(None);
        };
        places.insert(place.clone());
    }
    Ok(Some(places.into_iter().collect()))
}

/// Names findings that continue or hold earlier ones by their content in an artifact: of two analyzers with the same rows, one
/// may continue an earlier finding and the other not.
pub(crate) fn name_by_artifact(bound: &mut BoundPipeline, artifact: &Artifact) -> Result<()> {
    let is_held = |step: &str| {
        artifact
            .pipeline
            .node(step)
            .is_some_and(|node| node.refit.is_some())
    };
    for (ask, learned) in artifact.findings.iter().enumerate().take(bound.asks.len()) {
        if bound.asks[ask].ask.continues.is_some() || is_held(bound.step_of(ask)) {
            bound.asks[ask].carried = Some(CarriedFinding::continued(&learned.finding)?);
        }
    }
    Ok(())
}

/// Lets what an artifact learned stand for all that a program does not learn in each run.
pub(crate) fn apply_findings(
    program: &mut Program,
    pipeline: &Pipeline,
    artifact: &Artifact,
    findings: &mut BTreeMap<ContentId, Arc<Finding>>,
) -> Result<()> {
    let answers: Vec<Arc<Finding>> = artifact
        .findings
        .iter()
        .map(|learned| learned.finding.clone())
        .collect();
    let all = (0..program.bound.asks.len()).collect();
    replace_findings(program, pipeline, &all, &answers, findings)
}

/// A pipeline that reads the versions of tables that were found, whatever is committed to them in the meantime.
fn pinned(mut pipeline: Pipeline, datasets: &BTreeMap<String, Dataset>) -> Pipeline {
    for source in &mut pipeline.sources {
        let version = datasets
            .get(&source.name)
            .and_then(|dataset| dataset.version);
        if let (Some(version), Some(config)) = (version, source.config.as_object_mut()) {
            config.remove("timestamp");
            config.insert("version".to_owned(), version.into());
        }
    }
    pipeline
}
