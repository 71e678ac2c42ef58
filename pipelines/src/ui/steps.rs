//! Pages of the steps of an artifact: their rows and profiles, computed when a browser requests them.

use forebay_model::{ContentId, Pipeline, Result, codes};
use forebay_run::{Artifact, PreviewOptions, RunRecord, Session};
use forebay_storage::CancellationToken;

use super::service::UiService;
use crate::page::{
    Page, StepPages, missing_artifact_page, run_steps_page, step_fault_page, step_profile_page,
    step_rows_page, uncomputed_step_page,
};

/// Rows of a step that are computed for its page.
const PREVIEW_ROWS: usize = 1_000;

/// Rows of each source that these are computed from: its first ones.
const PREVIEW_SAMPLE_ROWS: u64 = 10_000;

/// Rows of each source that a profile is computed from: its first ones.
const PROFILE_SAMPLE_ROWS: u64 = 100_000;

/// Transforms that call programs, which the server does not do for a reader of pages.
const PROGRAM_STEPS: [&str; 3] = ["command", "estimator", "python"];

/// Artifact that a request names.
#[derive(Debug)]
pub(super) enum ArtifactName {
    /// The newest one of a pipeline.
    NewestOf(String),
    /// The one that a run has left, by the name of its record.
    OfRun(String),
}

/// View of a step that a request names.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum StepView {
    /// Some rows.
    Rows,
    /// Profile of many rows.
    Profile,
}

/// Request for a page of a step.
#[derive(Debug)]
pub(super) struct StepRequest {
    pub artifact: ArtifactName,
    /// The step or source.
    pub step: String,
    pub view: StepView,
    /// Ends the computation.
    pub interrupt: CancellationToken,
}

impl StepRequest {
    /// A request whose computation nothing ends yet.
    pub fn new(artifact: ArtifactName, step: String, view: StepView) -> StepRequest {
        StepRequest {
            artifact,
            step,
            view,
            interrupt: CancellationToken::default(),
        }
    }

    /// Path of the page.
    pub fn path(&self) -> String {
        let steps = match &self.artifact {
            ArtifactName::NewestOf(pipeline) => format!("/pipelines/{pipeline}/steps"),
            ArtifactName::OfRun(run) => format!("/runs/{run}/steps"),
        };
        match self.view {
            StepView::Rows => format!("{steps}/{}", self.step),
            StepView::Profile => format!("{steps}/{}/profile", self.step),
        }
    }
}

impl UiService {
    /// The steps of the artifact of a run.
    pub fn run_steps(&self, run: &str) -> Result<Option<Page>> {
        let Some(record) = self.history.record(run)? else {
            return Ok(None);
        };
        match self.artifact_of_run(&record)? {
            None => Ok(Some(missing_artifact_page(&record))),
            Some(artifact) => Ok(Some(run_steps_page(&record, &artifact.pipeline))),
        }
    }

    /// Rows or profile of a step or source of an artifact.
    pub fn step(&self, request: &StepRequest) -> Result<Option<Page>> {
        match &request.artifact {
            ArtifactName::NewestOf(pipeline) => {
                let Some(artifact) = self.newest_artifact(pipeline)? else {
                    return Ok(None);
                };
                let records = self.records_of(pipeline)?;
                self.step_page(request, &artifact, None, &records)
            }
            ArtifactName::OfRun(run) => {
                let Some(record) = self.history.record(run)? else {
                    return Ok(None);
                };
                let Some(artifact) = self.artifact_of_run(&record)? else {
                    return Ok(Some(missing_artifact_page(&record)));
                };
                let records = std::slice::from_ref(&record);
                self.step_page(request, &artifact, Some(&record), records)
            }
        }
    }

    /// The page of a step; `records` say where the data of the sources lies, the first of them that names a source.
    fn step_page(
        &self,
        request: &StepRequest,
        artifact: &Artifact,
        run: Option<&RunRecord>,
        records: &[RunRecord],
    ) -> Result<Option<Page>> {
        let step = &request.step;
        let pipeline = &artifact.pipeline;
        if !has_step(pipeline, step) {
            return Ok(None);
        }
        let pages = StepPages { pipeline, run };
        if calls_programs(pipeline) {
            let reason = "Steps of this pipeline call programs, which this server does not run: \
                          `forebay preview` and `forebay profile` show the rows.";
            return Ok(Some(uncomputed_step_page(pages, step, reason)));
        }
        let Some(located) = with_source_paths(pipeline, records) else {
            let reason = "No run has recorded where the data of all sources lies: \
                          `forebay preview` and `forebay profile` show the rows.";
            return Ok(Some(uncomputed_step_page(pages, step, reason)));
        };
        let session = self.session.with_interrupt(request.interrupt.clone());
        let computation = StepComputation {
            session: &session,
            pages,
            located: &located,
            artifact,
            step,
        };
        let computed = match request.view {
            StepView::Rows => computation.rows_page(),
            StepView::Profile => computation.profile_page(),
        };
        match computed {
            Ok(page) => Ok(Some(page)),
            Err(fault) if fault.code() == codes::INTERRUPTED => {
                let reason = "This takes longer than a page may: `forebay preview` and `forebay \
                              profile` have the time for it.";
                Ok(Some(uncomputed_step_page(pages, step, reason)))
            }
            // A store that does not answer now may answer again.
            Err(fault) if fault.code() == codes::STORAGE => Err(fault),
            Err(fault) => Ok(Some(step_fault_page(pages, step, &fault))),
        }
    }

    /// The records of the runs of a pipeline, the latest first.
    fn records_of(&self, pipeline: &str) -> Result<Vec<RunRecord>> {
        let mut records = self.history.view()?.records;
        records.retain(|record| record.pipeline == pipeline);
        records.sort_by(|first, second| second.name.cmp(&first.name));
        Ok(records)
    }

    /// The newest artifact of a pipeline. Only pipelines with runs have pages.
    pub fn newest_artifact(&self, pipeline: &str) -> Result<Option<Artifact>> {
        let view = self.history.view()?;
        if view
            .records
            .iter()
            .all(|record| record.pipeline != pipeline)
        {
            return Ok(None);
        }
        let io = self.session.io();
        let newest = Artifact::latest(io, &self.session.state()?, pipeline)?;
        newest
            .map(|location| Artifact::load(io, &location))
            .transpose()
    }

    /// The artifact that a run has left; `None` if it left none, or if it is not there any more.
    fn artifact_of_run(&self, record: &RunRecord) -> Result<Option<Artifact>> {
        let Some(id) = record.artifact.as_deref().and_then(ContentId::parse) else {
            return Ok(None);
        };
        let directory = Artifact::directory(&self.session.state()?, id);
        match Artifact::load(self.session.io(), &directory) {
            Ok(artifact) => Ok(Some(artifact)),
            Err(fault) if fault.code() == codes::NOT_FOUND => Ok(None),
            Err(fault) => Err(fault),
        }
    }
}

/// Computation of a page of a step.
struct StepComputation<'a> {
    session: &'a Session,
    pages: StepPages<'a>,
    /// The pipeline over the data that is read.
    located: &'a Pipeline,
    artifact: &'a Artifact,
    step: &'a str,
}

impl StepComputation<'_> {
    fn rows_page(&self) -> Result<Page> {
        let mut nodes = self.located.nodes.iter();
        let options = PreviewOptions {
            step: Some(self.step.to_owned()),
            rows: PREVIEW_ROWS,
            sample_rows: PREVIEW_SAMPLE_ROWS,
            // Windows have no values at the begin of a series; sources have none.
            fullest: nodes.any(|node| node.name == self.step),
            ..PreviewOptions::default()
        };
        let session = self.session;
        let preview = session.preview_of_artifact(self.located, self.artifact, &options)?;
        step_rows_page(self.pages, self.step, &preview)
    }

    fn profile_page(&self) -> Result<Page> {
        let rows = PROFILE_SAMPLE_ROWS;
        let session = self.session;
        let profile = session.profile_of_artifact(self.located, self.artifact, self.step, rows)?;
        Ok(step_profile_page(self.pages, self.step, &profile, rows))
    }
}

/// The pipeline of an artifact, which reads what runs have read; `None` if no record names a source's path.
fn with_source_paths(pipeline: &Pipeline, records: &[RunRecord]) -> Option<Pipeline> {
    let mut located = pipeline.clone();
    for source in &mut located.sources {
        let mut paths = records
            .iter()
            .filter_map(|record| record.source_paths.get(&source.name));
        let path = paths.next()?;
        source.set_path(path.clone());
    }
    Some(located)
}

fn has_step(pipeline: &Pipeline, step: &str) -> bool {
    let mut sources = pipeline.sources.iter();
    let mut nodes = pipeline.nodes.iter();
    sources.any(|source| source.name == step) || nodes.any(|node| node.name == step)
}

fn calls_programs(pipeline: &Pipeline) -> bool {
    let mut steps = pipeline.nodes.iter().flat_map(|node| &node.steps);
    steps.any(|step| PROGRAM_STEPS.contains(&step.kind.as_str()))
}
