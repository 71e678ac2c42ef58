//! Feast's feature server: `/get-online-features`, `/push` and `/write-to-online-store`.
//!
//! The served name is both a feature view and a feature service; with `_facts` behind it, it is a view that takes facts.
//! Entities are columns of the source: keys, and what else the steps need of a row. Errors are a JSON text that holds an
//! object, as Feast's SDK reads them.

use std::sync::Arc;

use arrow::array::RecordBatch;
use axum::Router;
use axum::body::Body;
use axum::extract::{Request, State};
use axum::routing::post;
use http::{Response, StatusCode};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use super::batch_queue::AnswerForm;
use super::body::{read_body, respond_empty, respond_json, sized_work};
use super::error::ServeError;
use super::feast_columns::{entity_columns, fact_columns};
use super::model::ServedModel;
use super::service::{RowsQuestion, ServeService};
use super::tensor::OutputTensor;
use super::tensor_json::TensorRows;

/// The time of entities, which have none.
const ENTITY_TIME: &str = "1970-01-01T00:00:00Z";

/// End of the name of the view that facts are pushed to: the SDK sends columns of the view alone.
pub(crate) const FACTS_VIEW: &str = "_facts";

type Service = State<Arc<ServeService>>;

pub(super) fn routes() -> Router<Arc<ServeService>> {
    Router::new()
        .route("/get-online-features", post(online_features))
        .route("/push", post(push))
        .route("/write-to-online-store", post(write_to_online_store))
}

/// An error with the class that Feast's SDK raises.
struct FeastError {
    status: StatusCode,
    class: &'static str,
    message: String,
}

impl From<ServeError> for FeastError {
    fn from(error: ServeError) -> FeastError {
        FeastError {
            status: error.status,
            class: "FeastError",
            message: error.message,
        }
    }
}

impl FeastError {
    fn response(self) -> Response<Body> {
        let inner = json!({
            "module": "feast.errors",
            "class": self.class,
            "message": self.message,
        });
        respond_json(self.status, &inner.to_string())
    }
}

#[derive(Debug, Deserialize)]
struct OnlineRequest {
    entities: Map<String, Value>,
    features: Option<Vec<String>>,
    feature_service: Option<String>,
    #[serde(default)]
    full_feature_names: bool,
}

#[derive(Serialize)]
struct OnlineResponse<'a> {
    metadata: FeatureNames<'a>,
    results: Vec<FeatureVector<'a>>,
}

#[derive(Serialize)]
struct FeatureNames<'a> {
    feature_names: Vec<&'a str>,
}

#[derive(Serialize)]
struct FeatureVector<'a> {
    values: FeatureValues<'a>,
    statuses: Vec<&'static str>,
    event_timestamps: Vec<&'static str>,
}

/// Values of a column: those of an entity as they came, or computed ones.
#[derive(Serialize)]
#[serde(untagged)]
enum FeatureValues<'a> {
    Entity(&'a Value),
    Feature(TensorRows<'a>),
}

/// A requested feature: its column, and its name in the answer.
struct RequestedFeature {
    column: String,
    shown: String,
}

async fn online_features(State(service): Service, request: Request) -> Response<Body> {
    let answered = answer_online(&service, request).await;
    answered.unwrap_or_else(FeastError::response)
}

async fn answer_online(
    service: &Arc<ServeService>,
    request: Request,
) -> Result<Response<Body>, FeastError> {
    let request: OnlineRequest = read_json(service, request).await?;
    let model = service.versions.current();
    let features = requested_features(service, &model, &request)?;
    let rows = model.input_batch_of_json(entity_columns(&model, &request.entities)?)?;
    let question = RowsQuestion {
        rows: rows.clone(),
        form: AnswerForm::Aligned,
        version: None,
    };
    let answer = service.answer(question).await?;
    let tensors = feature_tensors(&features, &answer.rows)?;
    let known_series = model.known_series(&rows).map_err(ServeError::from)?;
    let statuses = FeatureStatuses { known_series };
    Ok(write_online(&request, &features, &tensors, &statuses))
}

async fn read_json<T: DeserializeOwned + Send + 'static>(
    service: &Arc<ServeService>,
    request: Request,
) -> Result<T, FeastError> {
    let (parts, body) = request.into_parts();
    let body = read_body(service, &parts.headers, body).await?;
    let bytes = body.bytes.clone();
    let read = sized_work(service, bytes.len(), move || {
        serde_json::from_slice(&bytes).map_err(|error| {
            ServeError::unprocessable(format!("the request cannot be read: {error}"))
        })
    });
    Ok(read.await?)
}

/// The features of a request: `view:feature`, or all of a service.
fn requested_features(
    service: &ServeService,
    model: &ServedModel,
    request: &OnlineRequest,
) -> Result<Vec<RequestedFeature>, FeastError> {
    let answer_name = |view: &str, column: &str| {
        if request.full_feature_names {
            format!("{view}__{column}")
        } else {
            column.to_owned()
        }
    };
    let Some(features) = &request.features else {
        check_view(
            service,
            request.feature_service.as_deref().unwrap_or_default(),
            "FeatureServiceNotFoundException",
        )?;
        let columns = model.outputs().fields().iter().map(|field| field.name());
        let columns = columns
            .filter(|name| !request.entities.contains_key(*name) && !model.is_repeated(name));
        return Ok(columns
            .map(|name| RequestedFeature {
                column: name.clone(),
                shown: answer_name(&service.name, name),
            })
            .collect());
    };
    let mut requested = Vec::new();
    for feature in features {
        let (view, column) = feature.split_once(':').ok_or_else(|| FeastError {
            status: StatusCode::BAD_REQUEST,
            class: "FeastError",
            message: format!("the feature `{feature}` is not written as view:feature"),
        })?;
        // A view may name its version, as in `view@v2`.
        let view = view.split('@').next().unwrap_or(view);
        check_view(service, view, "FeatureViewNotFoundException")?;
        if model.outputs().index_of(column).is_err() {
            let fault = forebay_plan::unknown_column(column, model.outputs());
            return Err(FeastError {
                status: StatusCode::NOT_FOUND,
                class: "FeastError",
                message: ServeError::from(fault).message,
            });
        }
        requested.push(RequestedFeature {
            column: column.to_owned(),
            shown: answer_name(view, column),
        });
    }
    Ok(requested)
}

fn check_view(service: &ServeService, name: &str, class: &'static str) -> Result<(), FeastError> {
    service.check_name(name).map_err(|error| FeastError {
        class,
        ..FeastError::from(error)
    })
}

/// Facts go to the view of features, or to that of facts.
fn check_fact_view(
    service: &ServeService,
    name: &str,
    class: &'static str,
) -> Result<(), FeastError> {
    match name.strip_suffix(FACTS_VIEW) {
        Some(features) if features == service.name => Ok(()),
        _ => check_view(service, name, class),
    }
}

fn feature_tensors(
    features: &[RequestedFeature],
    answers: &RecordBatch,
) -> Result<Vec<OutputTensor>, FeastError> {
    let mut tensors = Vec::new();
    for feature in features {
        let column = super::open_inference::output_column(answers, &feature.column)?;
        tensors.push(OutputTensor::new(&feature.column, column)?);
    }
    Ok(tensors)
}

/// The statuses of values.
struct FeatureStatuses {
    /// For each row, true if the state has its series; `None` without a state.
    known_series: Option<Vec<bool>>,
}

impl FeatureStatuses {
    fn of(&self, row: usize, is_null: bool) -> &'static str {
        if !is_null {
            return "PRESENT";
        }
        let known_series = self.known_series.as_ref();
        match known_series.and_then(|rows| rows.get(row)) {
            Some(false) => "NOT_FOUND",
            _ => "NULL_VALUE",
        }
    }
}

fn write_online(
    request: &OnlineRequest,
    features: &[RequestedFeature],
    tensors: &[OutputTensor],
    statuses: &FeatureStatuses,
) -> Response<Body> {
    let mut names = Vec::new();
    let mut results = Vec::new();
    for (name, values) in &request.entities {
        let rows = values.as_array().map_or(0, Vec::len);
        names.push(name.as_str());
        results.push(FeatureVector {
            values: FeatureValues::Entity(values),
            statuses: vec!["PRESENT"; rows],
            event_timestamps: vec![ENTITY_TIME; rows],
        });
    }
    for (feature, tensor) in features.iter().zip(tensors) {
        let rows = tensor.rows();
        let statuses_of_rows = (0..rows).map(|row| statuses.of(row, tensor.is_null_row(row)));
        names.push(&feature.shown);
        results.push(FeatureVector {
            values: FeatureValues::Feature(TensorRows(tensor)),
            statuses: statuses_of_rows.collect(),
            event_timestamps: vec![ENTITY_TIME; rows],
        });
    }
    let response = OnlineResponse {
        metadata: FeatureNames {
            feature_names: names,
        },
        results,
    };
    respond_json(StatusCode::OK, &response)
}

#[derive(Debug, Deserialize)]
struct PushRequest {
    push_source_name: String,
    df: Map<String, Value>,
    #[serde(default = "default_store")]
    to: String,
}

fn default_store() -> String {
    "online".to_owned()
}

#[derive(Debug, Deserialize)]
struct WriteRequest {
    feature_view_name: String,
    df: Map<String, Value>,
}

async fn push(State(service): Service, request: Request) -> Response<Body> {
    let pushed = answer_push(&service, request).await;
    pushed.unwrap_or_else(FeastError::response)
}

async fn answer_push(
    service: &Arc<ServeService>,
    request: Request,
) -> Result<Response<Body>, FeastError> {
    let request: PushRequest = read_json(service, request).await?;
    check_fact_view(
        service,
        &request.push_source_name,
        "PushSourceNotFoundException",
    )
    .map_err(|error| FeastError {
        status: StatusCode::UNPROCESSABLE_ENTITY,
        ..error
    })?;
    if request.to == "offline" {
        return Err(FeastError {
            status: StatusCode::UNPROCESSABLE_ENTITY,
            class: "FeastError",
            message: "the server has no offline store; write facts to the source's dataset"
                .to_owned(),
        });
    }
    append_facts(service, request.df).await
}

async fn write_to_online_store(State(service): Service, request: Request) -> Response<Body> {
    let written = answer_write(&service, request).await;
    written.unwrap_or_else(FeastError::response)
}

async fn answer_write(
    service: &Arc<ServeService>,
    request: Request,
) -> Result<Response<Body>, FeastError> {
    let request: WriteRequest = read_json(service, request).await?;
    check_fact_view(
        service,
        &request.feature_view_name,
        "FeatureViewNotFoundException",
    )?;
    append_facts(service, request.df).await
}

/// Adds facts: columns of the source, whose time may be called `event_timestamp`.
async fn append_facts(
    service: &Arc<ServeService>,
    columns: Map<String, Value>,
) -> Result<Response<Body>, FeastError> {
    let model = service.versions.current();
    let rows = model.input_batch_of_json(fact_columns(&model, columns)?)?;
    let appended = service.append(rows).await;
    appended.map_err(|error| FeastError {
        // The SDK repeats requests that end with 5xx.
        status: if error.status.is_server_error() {
            error.status
        } else {
            StatusCode::UNPROCESSABLE_ENTITY
        },
        ..FeastError::from(error)
    })?;
    Ok(respond_empty(StatusCode::OK))
}
