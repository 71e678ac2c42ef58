//! Refusals as answers of HTTP.

use axum::body::Body;
use http::Response;
use serde_json::json;

use super::body::respond_json;
use super::error::ServeError;

/// An error in the form of the Open Inference Protocol.
pub(super) fn error_response(error: &ServeError) -> Response<Body> {
    respond_json(error.status, &json!({ "error": error.message }))
}
