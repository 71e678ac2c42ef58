//! The Open Inference Protocol, version 2, by HTTP: JSON, and the extension for binary tensors.
//!
//! A column of a row is a tensor. See <https://github.com/kserve/open-inference-protocol> and the binary data extension of
//! Triton: the header `Inference-Header-Content-Length` holds the length of the JSON, and tensors follow in their order.

use std::collections::HashSet;
use std::sync::Arc;

use arrow::array::{ArrayRef, RecordBatch};
use axum::Router;
use axum::body::Body;
use axum::extract::{Path, Request, State};
use axum::routing::{get, post};
use bytes::Bytes;
use http::{HeaderName, HeaderValue, Response, StatusCode};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use super::batch_queue::AnswerForm;
use super::body::{content_type, header_text, read_body, respond, respond_json, sized_work};
use super::error::ServeError;
use super::formats::{ARROW_STREAM, NamedColumns, value_bytes};
use super::model::ServedModel;
use super::refusal::error_response;
use super::rows::answer_arrow;
use super::service::{RowsQuestion, ServeService};
use super::tensor::{
    NULL_ROWS, OutputTensor, TensorShape, TensorType, column_shape, null_rows_are_no_text,
    read_binary, with_null_rows,
};
use super::tensor_json::{TensorData, read_json};

/// Header with the length of the JSON in front of binary tensors.
const JSON_LENGTH: HeaderName = HeaderName::from_static("inference-header-content-length");

type Service = State<Arc<ServeService>>;

pub(super) fn routes() -> Router<Arc<ServeService>> {
    Router::new()
        .route("/v2", get(server_metadata))
        .route("/v2/", get(server_metadata))
        .route("/v2/health/live", get(live))
        .route("/v2/health/ready", get(ready))
        .route("/v2/models/{model}", get(metadata))
        .route("/v2/models/{model}/ready", get(model_ready))
        .route("/v2/models/{model}/infer", post(infer))
        .route(
            "/v2/models/{model}/versions/{version}",
            get(version_metadata),
        )
        .route(
            "/v2/models/{model}/versions/{version}/ready",
            get(version_ready),
        )
        .route(
            "/v2/models/{model}/versions/{version}/infer",
            post(infer_version),
        )
}

async fn server_metadata() -> Response<Body> {
    let body = json!({
        "name": "forebay",
        "version": env!("CARGO_PKG_VERSION"),
        "extensions": ["binary_tensor_data"],
    });
    respond_json(StatusCode::OK, &body)
}

async fn live() -> Response<Body> {
    respond_json(StatusCode::OK, &json!({ "live": true }))
}

async fn ready(State(service): Service) -> Response<Body> {
    readiness(&service, "")
}

fn readiness(service: &ServeService, name: &str) -> Response<Body> {
    let is_ready = service.is_ready();
    let status = if is_ready {
        StatusCode::OK
    } else {
        StatusCode::SERVICE_UNAVAILABLE
    };
    respond_json(status, &json!({ "name": name, "ready": is_ready }))
}

async fn model_ready(State(service): Service, Path(model): Path<String>) -> Response<Body> {
    match service.check_name(&model) {
        Ok(()) => readiness(&service, &model),
        Err(error) => error_response(&error),
    }
}

async fn version_ready(
    State(service): Service,
    Path((model, version)): Path<(String, String)>,
) -> Response<Body> {
    let checked = service.check_name(&model);
    match checked.and_then(|()| service.model(Some(&version))) {
        Ok(_) => readiness(&service, &model),
        Err(error) => error_response(&error),
    }
}

async fn metadata(State(service): Service, Path(model): Path<String>) -> Response<Body> {
    model_metadata(&service, &model, None)
}

async fn version_metadata(
    State(service): Service,
    Path((model, version)): Path<(String, String)>,
) -> Response<Body> {
    model_metadata(&service, &model, Some(&version))
}

fn model_metadata(service: &ServeService, name: &str, version: Option<&str>) -> Response<Body> {
    let model = service
        .check_name(name)
        .and_then(|()| service.model(version));
    match model {
        Ok(model) => {
            let body = json!({
                "name": service.name,
                "versions": service.versions.ids(),
                "platform": model.platform(),
                "inputs": tensor_descriptions(model.inputs()),
                "outputs": tensor_descriptions(model.outputs()),
            });
            respond_json(StatusCode::OK, &body)
        }
        Err(error) => error_response(&error),
    }
}

fn tensor_descriptions(schema: &arrow::datatypes::Schema) -> Vec<Value> {
    let describe = |field: &Arc<arrow::datatypes::Field>| {
        json!({
            "name": field.name(),
            "datatype": TensorType::of_column(field.data_type()).name(),
            "shape": column_shape(field.data_type()),
        })
    };
    schema.fields().iter().map(describe).collect()
}

/// The JSON of a request.
#[derive(Debug, Deserialize)]
struct InferRequest {
    id: Option<String>,
    #[serde(default)]
    parameters: Map<String, Value>,
    inputs: Vec<InferInput>,
    #[serde(default)]
    outputs: Vec<RequestedOutput>,
}

#[derive(Debug, Deserialize)]
struct InferInput {
    name: String,
    datatype: String,
    shape: Vec<i64>,
    #[serde(default)]
    parameters: Map<String, Value>,
    data: Option<Value>,
}

#[derive(Debug, Deserialize)]
struct RequestedOutput {
    name: String,
    #[serde(default)]
    parameters: Map<String, Value>,
}

#[derive(Serialize)]
struct InferResponse<'a> {
    model_name: &'a str,
    model_version: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    id: Option<&'a str>,
    outputs: Vec<InferOutput<'a>>,
}

#[derive(Serialize)]
struct InferOutput<'a> {
    name: &'a str,
    datatype: &'static str,
    shape: &'a [i64],
    #[serde(skip_serializing_if = "Map::is_empty")]
    parameters: Map<String, Value>,
    #[serde(skip_serializing_if = "Option::is_none")]
    data: Option<TensorData<'a>>,
}

async fn infer(
    State(service): Service,
    Path(model): Path<String>,
    request: Request,
) -> Response<Body> {
    let answered = answer_infer(&service, &model, None, request).await;
    answered.unwrap_or_else(|error| error_response(&error))
}

async fn infer_version(
    State(service): Service,
    Path((model, version)): Path<(String, String)>,
    request: Request,
) -> Response<Body> {
    let answered = answer_infer(&service, &model, Some(version), request).await;
    answered.unwrap_or_else(|error| error_response(&error))
}

async fn answer_infer(
    service: &Arc<ServeService>,
    name: &str,
    version: Option<String>,
    request: Request,
) -> Result<Response<Body>, ServeError> {
    service.check_name(name)?;
    let (parts, body) = request.into_parts();
    let body = read_body(service, &parts.headers, body).await?;
    if content_type(&parts.headers) == ARROW_STREAM {
        return answer_arrow(service, &body.bytes, version).await;
    }
    let json_length = match header_text(&parts.headers, &JSON_LENGTH) {
        None => body.bytes.len(),
        Some(text) => json_length(text, body.bytes.len())?,
    };
    let text = body.bytes.slice(..json_length);
    let tensors = body.bytes.slice(json_length..);
    let model = service.model(version.as_deref())?;
    let decoded = sized_work(service, body.bytes.len(), move || {
        DecodedRequest::read(&text, tensors, &model)
    });
    let DecodedRequest { rows, form } = decoded.await?;
    let question = RowsQuestion {
        rows,
        form: AnswerForm::Aligned,
        version,
    };
    let answer = service.answer(question).await?;
    let name = service.name.clone();
    sized_work(service, value_bytes(&answer.rows), move || {
        let outputs = requested_outputs(&form, &answer.rows)?;
        write_response(&name, &form, &answer.version, &outputs)
    })
    .await
}

/// A request whose tensors have become columns.
struct DecodedRequest {
    rows: RecordBatch,
    form: RequestedForm,
}

/// The parts of a request that say what its answer looks like.
struct RequestedForm {
    id: Option<String>,
    parameters: Map<String, Value>,
    outputs: Vec<RequestedOutput>,
}

impl DecodedRequest {
    fn read(
        text: &Bytes,
        tensors: Bytes,
        model: &ServedModel,
    ) -> Result<DecodedRequest, ServeError> {
        let request = read_request(text)?;
        let columns = input_columns(&request, tensors)?;
        Ok(DecodedRequest {
            rows: model.input_batch(columns)?,
            form: RequestedForm {
                id: request.id,
                parameters: request.parameters,
                outputs: request.outputs,
            },
        })
    }
}

fn json_length(text: &str, bytes: usize) -> Result<usize, ServeError> {
    let length = text.trim().parse().ok();
    length.filter(|length| *length <= bytes).ok_or_else(|| {
        ServeError::bad_request(format!(
            "the header {JSON_LENGTH} is `{text}`, and the body has {bytes} bytes"
        ))
    })
}

fn read_request(text: &Bytes) -> Result<InferRequest, ServeError> {
    serde_json::from_slice(text).map_err(|error| {
        let has_nan = [&b"NaN"[..], &b"Infinity"[..]]
            .iter()
            .any(|word| text.windows(word.len()).any(|window| window == *word));
        let hint = if has_nan {
            "; JSON has no NaN and no Infinity: write null for a missing value, or send binary \
             tensors"
        } else {
            ""
        };
        ServeError::bad_request(format!(
            "the request is no inference request: {error}{hint}"
        ))
    })
}

/// The columns of a request's tensors. Binary tensors lie one behind the other.
fn input_columns(request: &InferRequest, mut tensors: Bytes) -> Result<NamedColumns, ServeError> {
    let mut columns = NamedColumns::new();
    let mut rows = None;
    for input in &request.inputs {
        let name = &input.name;
        let shape = TensorShape::read(name, &input.shape)?;
        check_rows(name, shape, &mut rows)?;
        let tensor_type = TensorType::parse(&input.datatype)?;
        let values = match (&input.data, input.parameters.get("binary_data_size")) {
            (Some(data), None) => read_json(name, tensor_type, shape.values(name)?, data)?,
            (None, Some(size)) => {
                let size = size.as_u64().and_then(|size| usize::try_from(size).ok());
                let size = size.filter(|size| *size <= tensors.len()).ok_or_else(|| {
                    ServeError::bad_request(format!(
                        "input `{name}`: binary_data_size reaches beyond the end of the body"
                    ))
                })?;
                let bytes = tensors.split_to(size);
                read_binary(name, tensor_type, shape.values(name)?, &bytes)?
            }
            _ => {
                return Err(ServeError::bad_request(format!(
                    "input `{name}` needs either `data` or the parameter `binary_data_size`; \
                     shared memory is not supported"
                )));
            }
        };
        let column = shape.column(values)?;
        let column = match input.parameters.get(NULL_ROWS) {
            Some(Value::String(null_rows)) => with_null_rows(name, column, null_rows)?,
            Some(_) => return Err(null_rows_are_no_text(name)),
            None => column,
        };
        add_column(&mut columns, name, column)?;
    }
    if columns.is_empty() {
        return Err(ServeError::bad_request("the request has no inputs"));
    }
    if !tensors.is_empty() {
        return Err(ServeError::bad_request(format!(
            "{} bytes behind the last binary tensor belong to no input",
            tensors.len()
        )));
    }
    Ok(columns)
}

/// Refuses tensors of different lengths.
pub(super) fn check_rows(
    name: &str,
    shape: TensorShape,
    rows: &mut Option<usize>,
) -> Result<(), ServeError> {
    let expected = *rows.get_or_insert(shape.rows);
    if expected == shape.rows {
        return Ok(());
    }
    Err(ServeError::bad_request(format!(
        "input `{name}` has {} rows, and the inputs before it have {expected}",
        shape.rows
    )))
}

/// Adds a column, and refuses a second one of its name.
pub(super) fn add_column(
    columns: &mut NamedColumns,
    name: &str,
    column: ArrayRef,
) -> Result<(), ServeError> {
    match columns.insert(name.to_owned(), column) {
        None => Ok(()),
        Some(_) => Err(ServeError::bad_request(format!(
            "input `{name}` is there twice"
        ))),
    }
}

/// A tensor of an answer, and its form.
struct WrittenOutput {
    tensor: OutputTensor,
    is_binary: bool,
}

fn requested_outputs(
    form: &RequestedForm,
    answers: &RecordBatch,
) -> Result<Vec<WrittenOutput>, ServeError> {
    let all_binary = flag(&form.parameters, "binary_data_output");
    let mut outputs = Vec::new();
    if form.outputs.is_empty() {
        let fields = answers.schema_ref().fields().iter();
        for (field, column) in fields.zip(answers.columns()) {
            outputs.push(WrittenOutput {
                tensor: OutputTensor::new(field.name(), column)?,
                is_binary: all_binary.unwrap_or(false),
            });
        }
    }
    let mut seen = HashSet::new();
    for requested in &form.outputs {
        if !seen.insert(&requested.name) {
            continue;
        }
        let column = output_column(answers, &requested.name)?;
        let is_binary = flag(&requested.parameters, "binary_data").or(all_binary);
        outputs.push(WrittenOutput {
            tensor: OutputTensor::new(&requested.name, column)?,
            is_binary: is_binary.unwrap_or(false),
        });
    }
    Ok(outputs)
}

/// A column of an answer by its name.
pub(super) fn output_column<'a>(
    answers: &'a RecordBatch,
    name: &str,
) -> Result<&'a ArrayRef, ServeError> {
    answers.column_by_name(name).ok_or_else(|| {
        let fault = forebay_plan::unknown_column(name, answers.schema_ref());
        ServeError::from(fault)
    })
}

fn flag(parameters: &Map<String, Value>, name: &str) -> Option<bool> {
    parameters.get(name)?.as_bool()
}

fn write_response(
    name: &str,
    form: &RequestedForm,
    version: &str,
    outputs: &[WrittenOutput],
) -> Result<Response<Body>, ServeError> {
    let mut binary = Vec::new();
    let mut described = Vec::new();
    let mut has_binary = false;
    for output in outputs {
        let tensor = &output.tensor;
        let mut parameters = Map::new();
        if output.is_binary {
            has_binary = true;
            let bytes = tensor.to_binary();
            parameters.insert("binary_data_size".to_owned(), json!(bytes.len()));
            if let Some(rows) = tensor.null_rows() {
                parameters.insert(NULL_ROWS.to_owned(), json!(rows));
            }
            binary.extend(bytes);
        }
        described.push(InferOutput {
            name: &tensor.name,
            datatype: tensor.tensor_type.name(),
            shape: &tensor.shape,
            parameters,
            data: (!output.is_binary).then_some(TensorData(tensor)),
        });
    }
    let response = InferResponse {
        model_name: name,
        model_version: version,
        id: form.id.as_deref(),
        outputs: described,
    };
    let mut text =
        serde_json::to_vec(&response).map_err(|error| ServeError::internal(error.to_string()))?;
    if !has_binary {
        return Ok(respond(StatusCode::OK, "application/json", text));
    }
    let length = HeaderValue::from(text.len());
    text.extend(binary);
    let mut response = respond(StatusCode::OK, "application/octet-stream", text);
    response.headers_mut().insert(JSON_LENGTH, length);
    Ok(response)
}

/// Description of a version's tensors for gRPC.
pub(super) fn described_columns(
    schema: &arrow::datatypes::Schema,
) -> Vec<(String, &'static str, Vec<i64>)> {
    let fields = schema.fields().iter();
    let describe = |field: &Arc<arrow::datatypes::Field>| {
        let tensor_type = TensorType::of_column(field.data_type());
        (
            field.name().clone(),
            tensor_type.name(),
            column_shape(field.data_type()),
        )
    };
    fields.map(describe).collect()
}

/// The model that a request names, for protocols beside HTTP.
pub(super) fn named_model(
    service: &ServeService,
    name: &str,
    version: &str,
) -> Result<Arc<ServedModel>, ServeError> {
    service.check_name(name)?;
    service.model(Some(version))
}
