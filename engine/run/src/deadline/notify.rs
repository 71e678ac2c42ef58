//! Webhooks: a POST of JSON, which may fail without failing the run.

use std::time::Duration;

use bytes::Bytes;
use forebay_model::{Fault, Result, codes};
use forebay_storage::StorageClient;
use object_store::ClientOptions;
use object_store::client::{HttpConnector, HttpRequest, ReqwestConnector};
use serde_json::Value;

/// Time limit for an answer.
const ANSWER_MAX: Duration = Duration::from_secs(5);

/// The receiver of the messages.
#[derive(Debug, Clone)]
pub(crate) struct Webhook {
    pub io: StorageClient,
    pub url: String,
}

impl Webhook {
    /// Posts once. Faults do not repeat the address: it may hold a secret.
    pub fn post(&self, body: &Value) -> Result<()> {
        let failed = |message: String| Fault::new(codes::STORAGE, message);
        let wrong = || Fault::new(codes::BAD_VALUE, "the webhook's address is no URL");
        let mut request = HttpRequest::new(Bytes::from(body.to_string()).into());
        *request.method_mut() = "POST".parse().map_err(|_| wrong())?;
        *request.uri_mut() = self.url.parse().map_err(|_| wrong())?;
        request.headers_mut().insert("content-type", "application/json".parse().map_err(|_| wrong())?);
        let options = ClientOptions::new().with_timeout(ANSWER_MAX).with_allow_http(true);
        let answer = self.io.block_on(async {
            let client = ReqwestConnector::default().connect(&options).map_err(|_| wrong())?;
            client.execute(request).await.map_err(|_| failed("the webhook cannot be reached".into()))
        })??;
        match answer.status().is_success() {
            true => Ok(()),
            false => Err(failed(format!("the webhook answered {}", answer.status().as_u16()))),
        }
    }
}
