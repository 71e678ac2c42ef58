//! Embeds a model in a service of axum: rows are answered, and facts become part of later answers.
//!
//! ```text
//! cargo run -p forebay --example serve_http -- .forebay/artifacts/1c291ca3d5f0
//! curl -d '{"date": "2024-02-01", "store": "s1", "item": "a"}' http://127.0.0.1:8090/features
//! ```
#![allow(clippy::print_stdout)] // Printing is what it is for.

use std::sync::Arc;

use arrow::array::RecordBatch;
use arrow::datatypes::Schema;
use axum::Router;
use axum::body::Bytes;
use axum::extract::State;
use axum::http::StatusCode;
use axum::routing::post;
use forebay::model::codes;
use forebay::prelude::*;
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::server::conn::auto;
use hyper_util::service::TowerToHyperService;
use serde_json::{Map, Value, json};
use tokio::net::TcpListener;

/// Status and body of an answer.
type Answer = (StatusCode, String);

/// The routes of a model, which all requests share.
pub fn router(model: Arc<ServingModel>) -> Router {
    Router::new()
        .route("/features", post(features))
        .route("/facts", post(append))
        .with_state(model)
}

/// Answers a row of JSON. A loaded model does not wait for the disk here.
async fn features(State(model): State<Arc<ServingModel>>, body: Bytes) -> Answer {
    answer(features_of(&model, &body))
}

fn features_of(model: &ServingModel, body: &[u8]) -> Result<Value> {
    let row: Map<String, Value> = serde_json::from_slice(body)
        .map_err(|error| Fault::new(codes::BAD_ROW, "the row is no object of JSON").cause(error))?;
    Ok(Value::from(model.apply_row(&row)?))
}

/// Appends facts, one object of JSON a line. They are on the disk before they are acknowledged, which a thread for
/// blocking work waits for.
async fn append(State(model): State<Arc<ServingModel>>, body: Bytes) -> Answer {
    let appended = tokio::task::spawn_blocking(move || {
        let report = model.append(&facts_of(&model, &body)?)?;
        Ok::<Value, Fault>(json!({ "rows": report.rows }))
    });
    let failed = |error| Fault::internal("facts could not be appended").cause(error);
    answer(appended.await.map_err(failed).flatten())
}

fn facts_of(model: &ServingModel, lines: &[u8]) -> Result<RecordBatch> {
    let fields = model.input().fields().iter();
    let fields = fields.map(|field| field.as_ref().clone().with_nullable(true));
    let schema = Arc::new(Schema::new(fields.collect::<Vec<_>>()));
    let mut decoder = arrow::json::ReaderBuilder::new(schema).build_decoder()?;
    decoder.decode(lines)?;
    let facts = decoder.flush()?;
    facts.ok_or_else(|| Fault::new(codes::EMPTY, "the request has no facts"))
}

/// Faults of rows are mistakes of the client: requests that end with 5xx are repeated.
fn answer(result: Result<Value>) -> Answer {
    match result {
        Ok(value) => (StatusCode::OK, value.to_string()),
        Err(fault) => (StatusCode::BAD_REQUEST, fault.to_string()),
    }
}

/// Serves connections. With axum's default features, `axum::serve(listener, router)` does the same.
async fn serve(listener: TcpListener, router: Router) -> std::io::Result<()> {
    loop {
        let (stream, _) = listener.accept().await?;
        let service = TowerToHyperService::new(router.clone());
        tokio::spawn(async move {
            let connection = auto::Builder::new(TokioExecutor::new());
            // A connection that breaks concerns its client alone.
            let _ = connection
                .serve_connection(TokioIo::new(stream), service)
                .await;
        });
    }
}

fn main() -> Result<()> {
    let path = std::env::args().nth(1);
    let path = path.ok_or_else(|| Fault::new(codes::USAGE, "give an artifact's directory"))?;
    let forebay = Forebay::new();
    let model = forebay.model(&forebay.artifact(&path)?, None)?;
    let failed = |error| Fault::disk("the service cannot listen", error);
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .map_err(failed)?;
    let served = runtime.block_on(async {
        let listener = TcpListener::bind("127.0.0.1:8090").await?;
        println!("http://{}", listener.local_addr()?);
        serve(listener, router(Arc::new(model))).await
    });
    served.map_err(failed)
}
