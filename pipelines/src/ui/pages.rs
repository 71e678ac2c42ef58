//! Routes: each makes a page from the records of the state directory, on a thread that may wait for storage.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use axum::body::Body;
use axum::extract::{Path, Request, State};
use forebay_model::{Fault, Result, codes};
use forebay_storage::CancellationToken;
use http::header::CONTENT_TYPE;
use http::{HeaderValue, Response, StatusCode};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::report_file::report_text;
use super::service::UiService;
use super::steps::{ArtifactName, StepRequest, StepView};
use crate::page::{
    Page, SCRIPT, index_page, missing_page, missing_report_page, pipeline_graph_page,
    pipeline_page, recorded_run_page, server_fault_page,
};

/// Time that a request waits until its page can be made.
const WAIT_MAX: Duration = Duration::from_secs(10);

/// Time that the rows of a step may be computed for.
const COMPUTED_WITHIN: Duration = Duration::from_secs(60);

const HTML: &str = "text/html; charset=utf-8";

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
    let artifact = ArtifactName::NewestOf(pipeline);
    respond_computed(service, StepRequest::new(artifact, step, StepView::Rows)).await
}

pub(super) async fn step_profile(
    State(service): Service,
    Path((pipeline, step)): Path<(String, String)>,
) -> Response<Body> {
    let artifact = ArtifactName::NewestOf(pipeline);
    respond_computed(service, StepRequest::new(artifact, step, StepView::Profile)).await
}

pub(super) async fn run_steps(State(service): Service, Path(run): Path<String>) -> Response<Body> {
    let path = format!("/runs/{run}/steps");
    respond(service, path, move |service| service.run_steps(&run)).await
}

pub(super) async fn run_step_rows(
    State(service): Service,
    Path((run, step)): Path<(String, String)>,
) -> Response<Body> {
    let artifact = ArtifactName::OfRun(run);
    respond_computed(service, StepRequest::new(artifact, step, StepView::Rows)).await
}

pub(super) async fn run_step_profile(
    State(service): Service,
    Path((run, step)): Path<(String, String)>,
) -> Response<Body> {
    let artifact = ArtifactName::OfRun(run);
    respond_computed(service, StepRequest::new(artifact, step, StepView::Profile)).await
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
}

/// Answers with a page of a step, which is computed once it is the turn of this request. The computation ends where it
/// takes too long, or where the reader has gone.
async fn respond_computed(service: Arc<UiService>, request: StepRequest) -> Response<Body> {
    let Some(turn) = permit_of(&service.previews).await else {
        return busy();
    };
    let end = EndOnDrop(request.interrupt.clone());
    let mut answer = Box::pin(respond(service, request.path(), move |service| {
        let page = service.step(&request);
        drop(turn);
        page
    }));
    if let Ok(answer) = tokio::time::timeout(COMPUTED_WITHIN, answer.as_mut()).await {
        return answer;
    }
    drop(end);
    answer.await
}

/// Ends a computation when it is dropped.
struct EndOnDrop(CancellationToken);

impl Drop for EndOnDrop {
    fn drop(&mut self) {
        self.0.flag().store(true, Ordering::Relaxed);
    }
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
