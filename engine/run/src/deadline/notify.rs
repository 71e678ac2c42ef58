//! Webhooks: a POST of JSON, which may fail without failing the run.

use forebay_model::Result;
use forebay_storage::{StorageClient, WebClient};
use serde_json::Value;

/// The receiver of the messages.
#[derive(Debug, Clone)]
pub(crate) struct Webhook {
    pub io: StorageClient,
    pub url: String,
}

impl Webhook {
    /// Posts once. Faults do not repeat the address: it may hold a secret.
    pub fn post(&self, body: &Value) -> Result<()> {
        let client = WebClient::new(&self.io, "the webhook", Vec::new())?;
        client
            .post(&self.url, "application/json", body.to_string().into_bytes())
            .map(drop)
    }
}
