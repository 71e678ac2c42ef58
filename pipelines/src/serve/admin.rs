//! Routes of the operator: metrics, versions, the rollback, the report of the second version, the OpenAPI document.

use std::sync::Arc;

use axum::Router;
use axum::body::Body;
use axum::extract::State;
use axum::routing::{get, post};
use http::{Response, StatusCode};
use serde_json::{Value, json};

use super::body::{respond, respond_json};
use super::error::ServeError;
use super::openapi::document;
use super::refusal::error_response;
use super::service::ServeService;
use crate::metrics::MetricsPage;

type Service = State<Arc<ServeService>>;

pub(super) fn routes() -> Router<Arc<ServeService>> {
    Router::new()
        .route("/", get(index))
        .route("/metrics", get(metrics))
        .route("/versions", get(versions))
        .route("/versions/rollback", post(roll_back))
        .route("/shadow", get(shadow))
        .route("/openapi.json", get(openapi))
}

async fn index(State(service): Service) -> Response<Body> {
    let text = format!(
        "`{}`, served by Forebay {}: see /openapi.json, /v2/models/{}, /versions, /metrics\n",
        service.name,
        env!("CARGO_PKG_VERSION"),
        service.name
    );
    respond(StatusCode::OK, "text/plain; charset=utf-8", text)
}

async fn metrics(State(service): Service) -> Response<Body> {
    service.refresh_state_metrics();
    service.refresh_drift_metrics();
    match service.page.text() {
        Ok(text) => respond(StatusCode::OK, MetricsPage::CONTENT_TYPE, text),
        Err(fault) => error_response(&ServeError::from(fault)),
    }
}

async fn versions(State(service): Service) -> Response<Body> {
    respond_json(StatusCode::OK, &service.versions.card())
}

async fn roll_back(State(service): Service) -> Response<Body> {
    match service.roll_back() {
        Ok(version) => respond_json(StatusCode::OK, &json!({ "version": version })),
        Err(error) => error_response(&error),
    }
}

async fn shadow(State(service): Service) -> Response<Body> {
    let card = service.shadow.as_ref().map(|shadow| shadow.card());
    match card {
        Some(card) => respond_json(StatusCode::OK, &card),
        None => error_response(&ServeError::not_found(
            "the server has no second version; `--shadow PATH` adds one",
        )),
    }
}

async fn openapi(State(service): Service) -> Response<Body> {
    let model = service.versions.current();
    let body: Value = document(&service.name, &model, service.token.is_some());
    respond_json(StatusCode::OK, &body)
}
