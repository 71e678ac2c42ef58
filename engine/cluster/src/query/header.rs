//! Headers of a query for each worker, sent in addition to its plan.

use std::path::PathBuf;

use base64::Engine;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use forebay_model::{Fault, Result};
use http::{HeaderMap, HeaderName, HeaderValue};
use serde::{Deserialize, Serialize};

use crate::protocol::bad_request;

const QUERY: HeaderName = HeaderName::from_static("forebay-query");

/// The attempt that a plan belongs to, and where its temporary files lie.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct QueryHeader {
    /// Id of this attempt.
    pub id: String,
    /// The state directory.
    pub state: String,
    /// Directory that relative paths begin at.
    pub base: PathBuf,
    /// The name in workers' certificates, where it is not the host's.
    pub tls_name: Option<String>,
    /// Partitions that a worker executes at a time: they share its memory.
    pub partitions: usize,
}

impl QueryHeader {
    pub fn to_headers(&self) -> Result<HeaderMap> {
        let unwritten = |error| Fault::internal("a query's header").cause(error);
        let text = BASE64_URL_SAFE_NO_PAD.encode(serde_json::to_vec(self).map_err(unwritten)?);
        let value = HeaderValue::from_str(&text)
            .map_err(|error| Fault::internal("a query's header").cause(error))?;
        Ok(HeaderMap::from_iter([(QUERY, value)]))
    }

    /// The header of a request; `None` if the request belongs to no query.
    pub fn of(headers: &HeaderMap) -> Result<Option<QueryHeader>> {
        let Some(value) = headers.get(QUERY) else {
            return Ok(None);
        };
        let bytes = BASE64_URL_SAFE_NO_PAD
            .decode(value)
            .map_err(|_| bad_request())?;
        serde_json::from_slice(&bytes)
            .map(Some)
            .map_err(|_| bad_request())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headers_come_back() {
        let header = QueryHeader {
            id: "a".into(),
            state: "s3://lake/stäte".into(),
            base: "/work".into(),
            tls_name: None,
            partitions: 4,
        };
        let mut headers = header.to_headers().unwrap();
        assert_eq!(QueryHeader::of(&headers).unwrap(), Some(header));
        assert_eq!(QueryHeader::of(&HeaderMap::new()).unwrap(), None);
        headers.insert(QUERY, HeaderValue::from_static("no header"));
        assert!(QueryHeader::of(&headers).is_err());
    }
}
