//! Files of a web server.

use std::sync::Arc;

use forebay_model::{Fault, Result, codes};
use object_store::http::HttpBuilder;
use object_store::{ClientOptions, ObjectStore};

use crate::io::object_url::ObjectUrl;
use crate::io::retry::{CountingConnector, RetryBudget};

/// A client of one host.
pub fn connect(
    url: &ObjectUrl,
    retry: RetryBudget,
    connector: CountingConnector,
) -> Result<Arc<dyn ObjectStore>> {
    let store = HttpBuilder::new()
        .with_url(url.root)
        .with_client_options(ClientOptions::new().with_allow_http(url.root.starts_with("http://")))
        .with_retry(retry.retry_config())
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
