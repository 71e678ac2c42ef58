//! A request to an object store as a span.

use std::time::SystemTime;

use forebay_storage::StorageRequest;

use super::otlp::{KeyValue, attribute};

/// Span of a request.
pub(super) struct RequestSpan {
    pub name: String,
    pub attributes: Vec<KeyValue>,
    pub began: SystemTime,
    pub end: SystemTime,
    /// The error, if any.
    pub error: Option<String>,
}

impl RequestSpan {
    pub fn of(request: StorageRequest) -> RequestSpan {
        let StorageRequest {
            method,
            host,
            path,
            range,
            status,
            bytes_written,
            bytes_read,
            began,
            took,
            ..
        } = request;
        let mut attributes = vec![
            attribute("http.request.method", method.as_str()),
            attribute("server.address", host),
            attribute("url.path", path),
            attribute("http.request.body.size", bytes_written),
            attribute("http.response.body.size", bytes_read),
        ];
        attributes.extend(range.map(|range| attribute("http.request.header.range", range)));
        attributes
            .extend(status.map(|status| attribute("http.response.status_code", u64::from(status))));
        let error = match status {
            None => Some("no answer".to_owned()),
            Some(status) if status >= 400 => Some(format!("status {status}")),
            Some(_) => None,
        };
        RequestSpan {
            name: method,
            attributes,
            began,
            end: began + took,
            error,
        }
    }
}
