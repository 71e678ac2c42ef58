//! Files of a web server.

use std::sync::Arc;

use forebay_model::{Fault, Result, codes};
use object_store::http::HttpBuilder;
use object_store::{ClientOptions, ObjectStore};

use super::ObjectUrl;
use crate::io::retry::{CountingConnector, RetryBudget};

/// A client of one host.
pub fn connect(
    url: &ObjectUrl,
    patience: RetryBudget,
    connector: CountingConnector,
) -> Result<Arc<dyn ObjectStore>> {
    let store = HttpBuilder::new()
        .with_url(url.root)
        .with_client_options(ClientOptions::new().with_allow_http(url.root.starts_with("http://")))
        .with_retry(patience.retry_config())
        .with_http_connector(connector)
        .build()
        .map_err(|error| {
            Fault::new(
                codes::BAD_VALUE,
                format!("`{}` is not a valid URL", url.root),
            )
            .cause(error)
        })?;
    Ok(Arc::new(store))
}

/// Refuses what a URL may hold besides host and path: a query or a password would be kept in artifacts and reports.
pub fn require_plain(text: &str, host: &str) -> Result<()> {
    let refuse = |what: &str| {
        let fault = Fault::new(codes::UNSUPPORTED, format!("a URL with {what} is not read"));
        Err(fault.hint(
            "URLs are kept in artifacts and reports, which must hold no secrets: use s3://, gs:// or az://, \
                        whose credentials come from the environment, or copy the file",
        ))
    };
    if host.contains('@') {
        return refuse("a user name or password");
    }
    match text.contains(['?', '#']) {
        true => refuse("a query or a fragment"),
        false => Ok(()),
    }
}
