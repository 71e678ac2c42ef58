//! The routes of SageMaker, with the bodies of MLflow's scoring server.
//!
//! See <https://mlflow.org/docs/latest/ml/deployment/deploy-model-locally/#local-inference-server-spec>.

use std::sync::Arc;

use arrow::array::RecordBatch;
use axum::Router;
use axum::body::Body;
use axum::extract::{Request, State};
use axum::routing::{get, post};
use bytes::Bytes;
use forebay_connectors::RequestFormat;
use http::{HeaderMap, Response, StatusCode};
use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::batch_queue::AnswerForm;
use super::body::{content_type, read_body, respond, respond_empty, respond_json, sized_work};
use super::error::ServeError;
use super::formats::{
    ARROW_STREAM, NamedColumns, column_of_values, columns_of, columns_of_lists, columns_of_records,
    read_csv, read_file, write_arrow, write_named_records,
};
use super::model::ServedModel;
use super::service::{RowsQuestion, ServeService};

/// Content types of Parquet files.
const PARQUET: [&str; 2] = ["application/vnd.apache.parquet", "application/x-parquet"];

type Service = State<Arc<ServeService>>;

pub(super) fn routes() -> Router<Arc<ServeService>> {
    Router::new()
        .route("/ping", get(ping))
        .route("/health", get(ping))
        .route("/version", get(version))
        .route("/invocations", post(invoke))
}

/// Rows in the forms of MLflow: exactly one of them.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ScoringInput {
    dataframe_split: Option<SplitFrame>,
    dataframe_records: Option<Vec<Map<String, Value>>>,
    instances: Option<Value>,
    inputs: Option<Value>,
    /// Parameters of the model, of which there are none.
    #[serde(default)]
    params: Map<String, Value>,
}

/// A frame as pandas writes it with `orient="split"`.
#[derive(Deserialize)]
struct SplitFrame {
    columns: Vec<String>,
    data: Vec<Vec<Value>>,
}

async fn ping(State(service): Service) -> Response<Body> {
    if service.is_ready() {
        respond_empty(StatusCode::OK)
    } else {
        respond_empty(StatusCode::SERVICE_UNAVAILABLE)
    }
}

async fn version() -> Response<Body> {
    respond(StatusCode::OK, "text/plain", env!("CARGO_PKG_VERSION"))
}

async fn invoke(State(service): Service, request: Request) -> Response<Body> {
    match answer(&service, request).await {
        Ok(response) => response,
        Err(error) => {
            let code = if error.status.is_server_error() {
                "INTERNAL_ERROR"
            } else {
                "BAD_REQUEST"
            };
            let body = json!({ "error_code": code, "message": error.message });
            respond_json(error.status, &body)
        }
    }
}

async fn answer(
    service: &Arc<ServeService>,
    request: Request,
) -> Result<Response<Body>, ServeError> {
    let (parts, body) = request.into_parts();
    let body = read_body(service, &parts.headers, body).await?;
    let model = service.model(None)?;
    let question = RowsQuestion {
        rows: read_rows(service, &model, &parts.headers, &body.bytes).await?,
        form: AnswerForm::Aligned,
        version: None,
    };
    let answer = service.answer(question).await?;
    if accepts_arrow(&parts.headers) {
        let stream = write_arrow(service, answer.rows).await?;
        return Ok(respond(StatusCode::OK, ARROW_STREAM, stream));
    }
    let text = write_named_records(service, "predictions", answer.rows).await?;
    Ok(respond(StatusCode::OK, "application/json", text))
}

fn accepts_arrow(headers: &HeaderMap) -> bool {
    let accept = super::body::header_text(headers, &http::header::ACCEPT);
    accept.is_some_and(|accept| accept.contains(ARROW_STREAM))
}

async fn read_rows(
    service: &ServeService,
    model: &Arc<ServedModel>,
    headers: &HeaderMap,
    bytes: &Bytes,
) -> Result<RecordBatch, ServeError> {
    let rows = match content_type(headers) {
        "application/json" => return read_json(service, model, bytes).await,
        "text/csv" => {
            let rows_max = service.limits.request_rows;
            let bytes = bytes.clone();
            sized_work(service, bytes.len(), move || read_csv(&bytes, rows_max)).await?
        }
        ARROW_STREAM => read_file(service, RequestFormat::Arrow, bytes).await?,
        parquet if PARQUET.contains(&parquet) => {
            read_file(service, RequestFormat::Parquet, bytes).await?
        }
        other => {
            return Err(ServeError::unknown_media_type(format!(
                "the content type `{other}` is not supported; application/json, text/csv, {} and \
                 {ARROW_STREAM} are",
                PARQUET[0]
            )));
        }
    };
    model.input_batch(columns_of(&rows))
}

async fn read_json(
    service: &ServeService,
    model: &Arc<ServedModel>,
    bytes: &Bytes,
) -> Result<RecordBatch, ServeError> {
    let model = model.clone();
    let bytes = bytes.clone();
    sized_work(service, bytes.len(), move || {
        model.input_batch_of_json(read_scoring_input(&model, &bytes)?)
    })
    .await
}

fn read_scoring_input(model: &ServedModel, bytes: &Bytes) -> Result<NamedColumns, ServeError> {
    let input: ScoringInput = serde_json::from_slice(bytes)
        .map_err(|error| ServeError::bad_request(format!("the body cannot be read: {error}")))?;
    if !input.params.is_empty() {
        return Err(ServeError::bad_request("the model has no `params`"));
    }
    match (
        input.dataframe_split,
        input.dataframe_records,
        input.instances,
        input.inputs,
    ) {
        (Some(frame), None, None, None) => columns_of_split(&frame),
        (None, Some(records), None, None) => columns_of_records(&records),
        (None, None, Some(instances), None) => columns_of_instances(model, &instances),
        (None, None, None, Some(inputs)) => columns_of_instances(model, &inputs),
        _ => Err(ServeError::bad_request(
            "the body needs exactly one of `dataframe_split`, `dataframe_records`, `instances` and \
             `inputs`",
        )),
    }
}

fn columns_of_split(frame: &SplitFrame) -> Result<NamedColumns, ServeError> {
    let width = frame.columns.len();
    if let Some(row) = frame.data.iter().position(|row| row.len() != width) {
        return Err(ServeError::bad_request(format!(
            "row {row} of `dataframe_split` has {} values, and there are {width} columns",
            frame.data[row].len()
        )));
    }
    let mut columns = NamedColumns::new();
    for (index, name) in frame.columns.iter().enumerate() {
        let values: Vec<&Value> = frame.data.iter().map(|row| &row[index]).collect();
        columns.insert(name.clone(), column_of_values(name, &values)?);
    }
    Ok(columns)
}

/// Rows as objects, columns as lists, or lists of values for a model with one input.
fn columns_of_instances(
    model: &ServedModel,
    instances: &Value,
) -> Result<NamedColumns, ServeError> {
    match instances {
        Value::Object(lists) => columns_of_lists(lists),
        Value::Array(rows) if rows.iter().all(Value::is_object) => {
            let records: Vec<Map<String, Value>> = rows
                .iter()
                .filter_map(|row| row.as_object().cloned())
                .collect();
            columns_of_records(&records)
        }
        Value::Array(rows) => columns_of_matrix(model, rows),
        _ => Err(ServeError::bad_request(
            "`instances` and `inputs` are a list of rows, or an object of columns",
        )),
    }
}

/// Rows of values in the order of the model's inputs.
fn columns_of_matrix(model: &ServedModel, rows: &[Value]) -> Result<NamedColumns, ServeError> {
    let names: Vec<&String> = model
        .inputs()
        .fields()
        .iter()
        .map(|field| field.name())
        .filter(|name| !model.is_optional(name))
        .collect();
    let mut columns = NamedColumns::new();
    for (index, name) in names.iter().enumerate() {
        let value = |row: &'_ Value| match row {
            Value::Array(values) if values.len() == names.len() => Some(values[index].clone()),
            Value::Array(_) => None,
            value if names.len() == 1 => Some(value.clone()),
            _ => None,
        };
        let values: Option<Vec<Value>> = rows.iter().map(value).collect();
        let values = values.ok_or_else(|| {
            ServeError::bad_request(format!(
                "a row of values needs one for each of the {} inputs, in their order; objects with \
                 names are rows, too",
                names.len()
            ))
        })?;
        let values: Vec<&Value> = values.iter().collect();
        columns.insert((*name).clone(), column_of_values(name, &values)?);
    }
    Ok(columns)
}
