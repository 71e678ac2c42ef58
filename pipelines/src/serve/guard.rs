//! Steps before and after each request: the token, the number of requests, and metrics.

use std::sync::Arc;
use std::time::Instant;

use axum::body::Body;
use axum::extract::{Request, State};
use axum::middleware::Next;
use http::header::{AUTHORIZATION, RETRY_AFTER};
use http::{HeaderMap, HeaderValue, Response, StatusCode};
use prometheus::IntGauge;
use tokio::sync::OwnedSemaphorePermit;
use tonic::Status;

use super::body::header_text;
use super::error::ServeError;
use super::grpc;
use super::refusal::error_response;
use super::service::ServeService;

/// Seconds after which a refused client should try again.
const RETRY_AFTER_SECONDS: &str = "1";

/// Statuses of a server that has no room at the moment.
const BUSY: [StatusCode; 2] = [
    StatusCode::TOO_MANY_REQUESTS,
    StatusCode::SERVICE_UNAVAILABLE,
];

/// Paths that need no token and count as no request: probes of orchestrators and load balancers.
const PROBES: [&str; 4] = ["/v2/health/live", "/v2/health/ready", "/ping", "/health"];

/// Name of the protocol of the operator, and of paths that no protocol has.
const ADMIN: &str = "admin";

/// Checks the token and the number of requests, and counts the answer.
pub(super) async fn guard(
    State(service): State<Arc<ServeService>>,
    request: Request,
    next: Next,
) -> Response<Body> {
    let path = request.uri().path().to_owned();
    if PROBES.contains(&path.as_str()) {
        return next.run(request).await;
    }
    let protocol = protocol_of(&path);
    let started = Instant::now();
    let mut response = match admit(&service, protocol, request.headers()) {
        Ok(request_place) => {
            let response = next.run(request).await;
            drop(request_place);
            response
        }
        Err(error) => refusal(protocol, error),
    };
    if BUSY.contains(&response.status()) {
        let seconds = HeaderValue::from_static(RETRY_AFTER_SECONDS);
        response.headers_mut().insert(RETRY_AFTER, seconds);
    }
    let status = status_of(&response);
    service
        .metrics
        .requests
        .with_label_values(&[protocol, &status])
        .inc();
    service
        .metrics
        .seconds
        .with_label_values(&[protocol])
        .observe(started.elapsed().as_secs_f64());
    response
}

/// One of the places of requests that are answered. It is given back when the client goes, too.
struct RequestPlace {
    gauge: IntGauge,
    _permit: OwnedSemaphorePermit,
}

impl RequestPlace {
    fn new(gauge: &IntGauge, permit: OwnedSemaphorePermit) -> RequestPlace {
        gauge.inc();
        RequestPlace {
            gauge: gauge.clone(),
            _permit: permit,
        }
    }
}

impl Drop for RequestPlace {
    fn drop(&mut self) {
        self.gauge.dec();
    }
}

/// The right to be answered: the token, and one of the places. Operators need none, so that they can
/// look at a full server and roll it back.
fn admit(
    service: &ServeService,
    protocol: &str,
    headers: &HeaderMap,
) -> Result<Option<RequestPlace>, ServeError> {
    if let Some(token) = &service.token {
        let header = header_text(headers, &AUTHORIZATION);
        let credential = header.and_then(|text| text.strip_prefix("Bearer "));
        if !credential.is_some_and(|text| token.matches(text.trim().as_bytes())) {
            return Err(ServeError::unauthorized());
        }
    }
    if protocol == ADMIN {
        return Ok(None);
    }
    let requests = service.requests.clone();
    let permit = requests.try_acquire_owned().map_err(|_| {
        let most = service.limits.in_flight_requests;
        ServeError::busy(format!("{most} requests are being answered already"))
    })?;
    let request_place = RequestPlace::new(&service.metrics.in_flight, permit);
    Ok(Some(request_place))
}

fn refusal(protocol: &str, error: ServeError) -> Response<Body> {
    if protocol == "grpc" {
        return grpc::error_response(Status::from(error));
    }
    error_response(&error)
}

/// Name of the protocol of a path, for metrics.
fn protocol_of(path: &str) -> &'static str {
    if path.starts_with(grpc::PATH) {
        return "grpc";
    }
    if path.starts_with("/v2") {
        return "open_inference";
    }
    match path {
        "/apply" => "apply",
        "/rows" => "rows",
        "/invocations" => "invocations",
        "/get-online-features" | "/push" | "/write-to-online-store" => "feast",
        _ => ADMIN,
    }
}

/// The status of an answer: that of gRPC where it has one.
fn status_of(response: &Response<Body>) -> String {
    let grpc_status = response.headers().get("grpc-status");
    match grpc_status.and_then(|status| status.to_str().ok()) {
        Some(status) => format!("grpc_{status}"),
        None => response.status().as_u16().to_string(),
    }
}
