//! The stores that URLs name: one file for each, with the credentials that it looks for.

mod azure;
mod environment;
mod gcs;
mod gcs_federation;
mod http;
mod s3;
mod s3_credentials;

use std::sync::Arc;

use forebay_model::{Fault, Result, codes};
use object_store::ObjectStore;

use super::object_url::{ObjectUrl, StoreKind};
use super::retry::{CountingConnector, RetryBudget};

pub use s3_credentials::is_refreshable;

impl ObjectUrl<'_> {
    /// A client of the store, with credentials from the environment.
    pub fn connect(
        &self,
        retry: RetryBudget,
        connector: CountingConnector,
    ) -> Result<Arc<dyn ObjectStore>> {
        match self.kind {
            StoreKind::S3 => s3::connect(self.bucket, retry, connector),
            StoreKind::Gcs => gcs::connect(self, retry, connector),
            StoreKind::Azure => azure::connect(self, retry, connector),
            StoreKind::Http => http::connect(self, retry, connector),
        }
    }

    /// A fault for credentials that are not there.
    fn access_fault(&self, message: impl Into<String>) -> Fault {
        Fault::new(codes::ACCESS, message).file(self.root)
    }
}
