//! Tables in and out (`/apply`), and new facts (`/rows`): rows of JSON, or Arrow streams.

use std::sync::Arc;

use arrow::array::RecordBatch;
use axum::Router;
use axum::body::Body;
use axum::extract::{Request, State};
use axum::routing::post;
use bytes::Bytes;
use forebay_connectors::RequestFormat;
use http::{HeaderValue, Response, StatusCode};
use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::batch_queue::AnswerForm;
use super::body::{content_type, read_body, respond, respond_json, sized_work};
use super::error::ServeError;
use super::formats::{
    ARROW_STREAM, NamedColumns, columns_of, columns_of_records, read_file, write_arrow,
    write_named_records,
};
use super::refusal::error_response;
use super::service::{RowsQuestion, ServeService};

/// Header with the version that answered.
const VERSION: &str = "forebay-version";

type Service = State<Arc<ServeService>>;

pub(super) fn routes() -> Router<Arc<ServeService>> {
    Router::new()
        .route("/apply", post(apply))
        .route("/rows", post(append))
}

/// A row in JSON.
type JsonRow = Map<String, Value>;

/// An object with the list `rows`.
#[derive(Deserialize)]
#[serde(expecting = "an object with the list `rows`")]
struct NamedRows {
    rows: Vec<JsonRow>,
}

async fn apply(State(service): Service, request: Request) -> Response<Body> {
    let answered = answer_apply(&service, request).await;
    answered.unwrap_or_else(|error| error_response(&error))
}

async fn answer_apply(
    service: &Arc<ServeService>,
    request: Request,
) -> Result<Response<Body>, ServeError> {
    let (parts, body) = request.into_parts();
    let body = read_body(service, &parts.headers, body).await?;
    if content_type(&parts.headers) == ARROW_STREAM {
        return answer_arrow(service, &body.bytes, None).await;
    }
    let question = RowsQuestion {
        rows: read_json_rows(service, &body.bytes).await?,
        form: AnswerForm::Aligned,
        version: None,
    };
    let answer = service.answer(question).await?;
    let text = write_named_records(service, "rows", answer.rows).await?;
    let response = respond(StatusCode::OK, "application/json", text);
    Ok(with_version(response, &answer.version))
}

/// Answers an Arrow stream with one. Rows that the pipeline removes are missing in the answer.
pub(super) async fn answer_arrow(
    service: &Arc<ServeService>,
    bytes: &Bytes,
    version: Option<String>,
) -> Result<Response<Body>, ServeError> {
    let rows = read_file(service, RequestFormat::Arrow, bytes).await?;
    let model = service.model(version.as_deref())?;
    let question = RowsQuestion {
        rows: model.input_batch(columns_of(&rows))?,
        form: AnswerForm::Filtered,
        version,
    };
    let answer = service.answer(question).await?;
    let stream = write_arrow(service, answer.rows).await?;
    let response = respond(StatusCode::OK, ARROW_STREAM, stream);
    Ok(with_version(response, &answer.version))
}

fn with_version(mut response: Response<Body>, version: &str) -> Response<Body> {
    if let Ok(version) = HeaderValue::from_str(version) {
        response.headers_mut().insert(VERSION, version);
    }
    response
}

async fn read_json_rows(service: &ServeService, bytes: &Bytes) -> Result<RecordBatch, ServeError> {
    let model = service.versions.current();
    let bytes = bytes.clone();
    sized_work(service, bytes.len(), move || {
        model.input_batch_of_json(columns_of_json(&bytes)?)
    })
    .await
}

/// The columns of a list of objects, or of an object with the list `rows`.
fn columns_of_json(bytes: &Bytes) -> Result<NamedColumns, ServeError> {
    let mut letters = bytes.iter().filter(|byte| !byte.is_ascii_whitespace());
    let rows: serde_json::Result<Vec<JsonRow>> = if letters.next() == Some(&b'[') {
        serde_json::from_slice(bytes)
    } else {
        serde_json::from_slice(bytes).map(|NamedRows { rows }| rows)
    };
    let rows = rows.map_err(|error| {
        ServeError::bad_request(format!(
            "the rows are no list of JSON objects, and no object with the list `rows`: {error}"
        ))
    })?;
    if rows.is_empty() {
        return Err(ServeError::bad_request("the request has no rows"));
    }
    columns_of_records(&rows)
}

async fn append(State(service): Service, request: Request) -> Response<Body> {
    let appended = append_rows(&service, request).await;
    appended.unwrap_or_else(|error| error_response(&error))
}

async fn append_rows(
    service: &Arc<ServeService>,
    request: Request,
) -> Result<Response<Body>, ServeError> {
    let (parts, body) = request.into_parts();
    let body = read_body(service, &parts.headers, body).await?;
    let rows = if content_type(&parts.headers) == ARROW_STREAM {
        let rows = read_file(service, RequestFormat::Arrow, &body.bytes).await?;
        service.versions.current().input_batch(columns_of(&rows))?
    } else {
        read_json_rows(service, &body.bytes).await?
    };
    let appended = service.append(rows).await?;
    Ok(respond_json(StatusCode::OK, &json!({ "rows": appended })))
}
