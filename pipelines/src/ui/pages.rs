//! Routes: each makes a page from the records of the state directory, on a thread that may wait for storage.

use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use axum::extract::{Path, Request, State};
use forebay_model::{Fault, Pipeline, Result, codes};
use forebay_run::{Artifact, ClusterToken, PreviewOptions, RunRecord, Session};
use http::header::CONTENT_TYPE;
use http::{HeaderValue, Response, StatusCode};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::history::RunHistory;
use super::report_file::report_text;
use crate::page::{
    Page, SCRIPT, index_page, missing_page, missing_report_page, pipeline_graph_page,
    pipeline_page, recorded_run_page, server_fault_page, step_rows_page,
};

/// Time that a request waits until its page can be made.
const WAIT_MAX: Duration = Duration::from_secs(10);

/// Rows of a step that are computed for its page.
const PREVIEW_ROWS: usize = 1_000;

/// Rows of each source that these are computed from: its first ones.
const PREVIEW_SAMPLE_ROWS: u64 = 10_000;

/// Transforms that call programs, which the server does not do for a reader of pages.
const PROGRAM_STEPS: [&str; 2] = ["command", "python"];

const HTML: &str = "text/html; charset=utf-8";

/// Parts that all requests share.
pub(super) struct UiService {
    pub history: RunHistory,
    /// Reads artifacts of the state directory, and computes some rows of their steps.
    pub session: Session,
    /// The token that requests carry; without one, requests come from this machine.
    pub token: Option<ClusterToken>,
    /// Permits to make a page.
    pub pages: Arc<Semaphore>,
    /// The turn to compute rows: each computation may take the memory of the session. A request
    /// waits for it without a permit to make a page, so that other pages go on.
    pub previews: Arc<Semaphore>,
}

type Service = State<Arc<UiService>>;

pub(super) async fn index(State(service): Service) -> Response<Body> {
    respond(service, "/".to_owned(), |service| {
        Ok(Some(index_page(&service.history.view()?)))
    })
    .await
}

pub(super) async fn pipeline(
    State(service): Service,
    Path(pipeline): Path<String>,
) -> Response<Body> {
    respond(service, format!("/pipelines/{pipeline}"), move |service| {
        Ok(pipeline_page(&service.history.view()?, &pipeline))
    })
    .await
}

pub(super) async fn pipeline_graph(
    State(service): Service,
    Path(pipeline): Path<String>,
) -> Response<Body> {
    let path = format!("/pipelines/{pipeline}/graph");
    respond(service, path, move |service| service.graph(&pipeline)).await
}

pub(super) async fn step_rows(
    State(service): Service,
    Path((pipeline, step)): Path<(String, String)>,
) -> Response<Body> {
    let path = format!("/pipelines/{pipeline}/steps/{step}");
    let Some(turn) = permit_of(&service.previews).await else {
        return busy();
    };
    respond(service, path, move |service| {
        let page = service.step_rows(&pipeline, &step);
        drop(turn);
        page
    })
    .await
}

pub(super) async fn run(State(service): Service, Path(run): Path<String>) -> Response<Body> {
    respond(service, format!("/runs/{run}"), move |service| {
        let Some(record) = service.history.record(&run)? else {
            return Ok(None);
        };
        Ok(Some(recorded_run_page(&service.history.view()?, &record)))
    })
    .await
}

pub(super) async fn run_report(State(service): Service, Path(run): Path<String>) -> Response<Body> {
    let path = format!("/runs/{run}/report");
    respond_with(service, path, move |service| service.run_report(&run)).await
}

pub(super) async fn script() -> Response<Body> {
    response(
        StatusCode::OK,
        "text/javascript; charset=utf-8",
        SCRIPT.to_owned(),
    )
}

pub(super) async fn missing(request: Request) -> Response<Body> {
    page_response(StatusCode::NOT_FOUND, &missing_page(request.uri().path()))
}

impl UiService {
    /// The graph of the newest artifact of a pipeline.
    fn graph(&self, pipeline: &str) -> Result<Option<Page>> {
        let Some(artifact) = self.newest_artifact(pipeline)? else {
            return Ok(None);
        };
        pipeline_graph_page(&artifact, &self.session).map(Some)
    }

    /// Rows of a step or source of the newest artifact of a pipeline.
    fn step_rows(&self, pipeline: &str, step: &str) -> Result<Option<Page>> {
        let Some(artifact) = self.newest_artifact(pipeline)? else {
            return Ok(None);
        };
        let pipeline = &artifact.pipeline;
        if !has_step(pipeline, step) {
            return Ok(None);
        }
        if calls_programs(pipeline) {
            let reason = "Steps of this pipeline call programs, which this server does not run: \
                          `forebay preview` shows the rows.";
            return step_rows_page(pipeline, step, Err(reason)).map(Some);
        }
        let Some(pipeline) = &self.with_source_paths(pipeline)? else {
            let reason = "No run has recorded where the data of all sources lies: \
                          `forebay preview` shows the rows.";
            return step_rows_page(pipeline, step, Err(reason)).map(Some);
        };
        let options = PreviewOptions {
            step: Some(step.to_owned()),
            rows: PREVIEW_ROWS,
            sample_rows: PREVIEW_SAMPLE_ROWS,
            newest_artifact: true,
            // Windows have no values at the begin of a series; sources have none.
            fullest: pipeline.nodes.iter().any(|node| node.name == step),
            ..PreviewOptions::default()
        };
        let preview = self.session.preview(pipeline, &options)?;
        step_rows_page(pipeline, step, Ok(&preview)).map(Some)
    }

    /// The pipeline of an artifact, which reads what its runs have read; `None` if no record names a source's path.
    fn with_source_paths(&self, pipeline: &Pipeline) -> Result<Option<Pipeline>> {
        let view = self.history.view()?;
        let mut records: Vec<&RunRecord> = view
            .records
            .iter()
            .filter(|record| record.pipeline == pipeline.name)
            .collect();
        records.sort_by(|first, second| second.name.cmp(&first.name));
        let mut located = pipeline.clone();
        for source in &mut located.sources {
            let mut paths = records
                .iter()
                .filter_map(|record| record.source_paths.get(&source.name));
            let Some(path) = paths.next() else {
                return Ok(None);
            };
            source.set_path(path.clone());
        }
        Ok(Some(located))
    }

    /// The page that a run has written itself.
    fn run_report(&self, run: &str) -> Result<Option<Response<Body>>> {
        let Some(record) = self.history.record(run)? else {
            return Ok(None);
        };
        let Some(file) = &record.page else {
            return Ok(None);
        };
        let answer = match report_text(&record, file) {
            Some(text) => response(StatusCode::OK, HTML, text),
            None => page_response(StatusCode::NOT_FOUND, &missing_report_page(&record, file)),
        };
        Ok(Some(answer))
    }

    /// The newest artifact of a pipeline. Only pipelines with runs have pages.
    fn newest_artifact(&self, pipeline: &str) -> Result<Option<Artifact>> {
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

/// Answers with a page, which is made on a thread of its own; without a page, nothing is at the path.
async fn respond(
    service: Arc<UiService>,
    path: String,
    make: impl FnOnce(&UiService) -> Result<Option<Page>> + Send + 'static,
) -> Response<Body> {
    respond_with(service, path, |service| {
        let page = make(service)?;
        Ok(page.map(|page| page_response(StatusCode::OK, &page)))
    })
    .await
}

/// Answers with what is made on a thread of its own; without it, nothing is at the path.
async fn respond_with(
    service: Arc<UiService>,
    path: String,
    make: impl FnOnce(&UiService) -> Result<Option<Response<Body>>> + Send + 'static,
) -> Response<Body> {
    let Some(permit) = permit_of(&service.pages).await else {
        return busy();
    };
    let work = tokio::task::spawn_blocking(move || {
        let answer = make(&service);
        drop(permit);
        answer
    });
    let answer = work
        .await
        .unwrap_or_else(|error| Err(Fault::internal("a page that cannot be made").cause(error)));
    match answer {
        Ok(Some(answer)) => answer,
        Ok(None) => page_response(StatusCode::NOT_FOUND, &missing_page(&path)),
        Err(fault) => page_response(fault_status(&fault), &server_fault_page(&fault)),
    }
}

/// A permit of a request, once one is free; `None` where it takes too long.
async fn permit_of(permits: &Arc<Semaphore>) -> Option<OwnedSemaphorePermit> {
    let waiting = permits.clone().acquire_owned();
    tokio::time::timeout(WAIT_MAX, waiting).await.ok()?.ok()
}

/// The answer to a request that has waited for too long.
fn busy() -> Response<Body> {
    let text = "too many pages are being made; try again\n".to_owned();
    response(StatusCode::SERVICE_UNAVAILABLE, "text/plain", text)
}

/// The status of an answer that explains a fault.
fn fault_status(fault: &Fault) -> StatusCode {
    if fault.code() == codes::STORAGE {
        StatusCode::SERVICE_UNAVAILABLE
    } else {
        StatusCode::INTERNAL_SERVER_ERROR
    }
}

fn page_response(status: StatusCode, page: &Page) -> Response<Body> {
    match page.html() {
        Ok(text) => response(status, HTML, text),
        Err(fault) => response(
            StatusCode::INTERNAL_SERVER_ERROR,
            "text/plain; charset=utf-8",
            format!("{}\n", fault.message()),
        ),
    }
}

fn response(status: StatusCode, content_type: &'static str, text: String) -> Response<Body> {
    let mut response = Response::new(Body::from(text));
    *response.status_mut() = status;
    let content_type = HeaderValue::from_static(content_type);
    response.headers_mut().insert(CONTENT_TYPE, content_type);
    response
}
