//! Amazon S3 and stores with its protocol.

use std::sync::Arc;

use forebay_model::{Fault, Result, codes};
use object_store::ObjectStore;
use object_store::aws::AmazonS3Builder;

use super::environment::{env_config, env_value};
use super::s3_credentials::credential_provider;
use crate::io::retry::{CountingConnector, RetryBudget};

/// A client of one bucket. Endpoint, region, path style and credentials come from the variables that begin with `AWS_`.
pub fn connect(
    bucket: &str,
    retry: RetryBudget,
    connector: CountingConnector,
) -> Result<Arc<dyn ObjectStore>> {
    let set = env_config("AWS_").into_iter();
    let mut builder = set
        .fold(AmazonS3Builder::new(), |builder, (key, value)| {
            builder.with_config(key, value)
        })
        .with_bucket_name(bucket)
        .with_retry(retry.retry_config())
        .with_http_connector(connector);
    let endpoints = ["AWS_ENDPOINT_URL", "AWS_ENDPOINT", "AWS_ENDPOINT_URL_S3"];
    if endpoints
        .into_iter()
        .filter_map(env_value)
        .any(|url| url.starts_with("http://"))
    {
        builder = builder.with_allow_http(true);
    }
    if let Some(provider) = credential_provider(bucket)? {
        builder = builder.with_credentials(provider);
    }
    let store = builder.build().map_err(|error| {
        Fault::new(
            codes::ACCESS,
            format!("S3 is not configured for `{bucket}`"),
        )
        .cause(error)
        .hint("look at the variables that begin with AWS_")
    })?;
    Ok(Arc::new(store))
}
