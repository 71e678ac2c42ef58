//! Google Cloud Storage.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use forebay_model::{Fault, Result, codes};
use object_store::gcp::{GoogleCloudStorageBuilder, GoogleConfigKey};
use object_store::{ClientConfigKey, ObjectStore};
use serde::Deserialize;

use super::{ObjectUrl, env_flag, env_value, metadata_service_responds};
use crate::io::retry::{CountingConnector, RetryBudget};

/// Where a virtual machine or pod of Google tells its tokens.
const METADATA_HOST: &str = "metadata.google.internal";

const HINT: &str = "set GOOGLE_APPLICATION_CREDENTIALS or GOOGLE_SERVICE_ACCOUNT to the path of a key file, or \
                    GOOGLE_SERVICE_ACCOUNT_KEY to its content, or run `gcloud auth application-default login`; for \
                    public data, GOOGLE_SKIP_SIGNATURE=true";

/// A client of one bucket. Credentials are looked for in the order that Google's own libraries keep; tokens are
/// renewed before they end.
pub fn connect(url: &ObjectUrl, patience: RetryBudget, connector: CountingConnector) -> Result<Arc<dyn ObjectStore>> {
    let mut builder = GoogleCloudStorageBuilder::from_env()
        .with_bucket_name(url.bucket)
        .with_retry(patience.retry_config())
        .with_http_connector(connector);
    if env_value("GOOGLE_BASE_URL").is_some_and(|base| base.starts_with("http://")) {
        builder = builder.with_config(GoogleConfigKey::Client(ClientConfigKey::AllowHttp), "true");
    }
    require_credentials(url)?;
    let store = builder.build().map_err(|error| {
        url.access_fault(format!("Google Cloud Storage is not configured for `{}`", url.bucket))
            .cause(error)
            .hint("look at the variables that begin with GOOGLE_")
    })?;
    Ok(Arc::new(store))
}

/// Refuses an environment without credentials: else each request would ask for a token of a machine that has none.
fn require_credentials(url: &ObjectUrl) -> Result<()> {
    if env_flag("GOOGLE_SKIP_SIGNATURE") || env_value("GOOGLE_SERVICE_ACCOUNT_KEY").is_some() {
        return Ok(());
    }
    let variables = ["GOOGLE_SERVICE_ACCOUNT", "GOOGLE_SERVICE_ACCOUNT_PATH", "SERVICE_ACCOUNT"];
    if let Some(file) = variables.into_iter().find_map(env_value) {
        return require_key_file(Path::new(&file), false);
    }
    if let Some(file) = env_value("GOOGLE_APPLICATION_CREDENTIALS") {
        return require_key_file(Path::new(&file), true);
    }
    if let Some(file) = default_credentials_file().filter(|file| file.exists()) {
        return require_key_file(&file, true);
    }
    let host = env_value("GCE_METADATA_HOST").unwrap_or_else(|| METADATA_HOST.to_owned());
    match metadata_service_responds(&format!("http://{host}")) {
        true => Ok(()),
        false => {
            let message = format!("there are no credentials for the bucket `{}`", url.bucket);
            Err(url.access_fault(message).hint(HINT))
        }
    }
}

/// Where `gcloud auth application-default login` leaves its credentials.
fn default_credentials_file() -> Option<PathBuf> {
    Some(std::env::home_dir()?.join(".config/gcloud/application_default_credentials.json"))
}

/// Refuses a key file that cannot be read, or whose kind cannot be used.
fn require_key_file(file: &Path, is_default: bool) -> Result<()> {
    #[derive(Deserialize)]
    struct KeyFile {
        r#type: Option<String>,
    }
    let fault = |message: String| Fault::new(codes::ACCESS, message).file(file.display().to_string());
    let text = std::fs::read_to_string(file)
        .map_err(|error| fault("the file of Google's credentials cannot be read".to_owned()).cause(error).hint(HINT))?;
    // The parser's text might tell of what stands in the file.
    let key: KeyFile = serde_json::from_str(&text)
        .map_err(|_| fault("the file of Google's credentials is not a JSON object".to_owned()).hint(HINT))?;
    match key.r#type.as_deref() {
        Some("authorized_user" | "service_account") => Ok(()),
        None if !is_default => Ok(()),
        Some("external_account") => Err(fault(
            "credentials of the type `external_account` (workload identity federation) cannot be used".to_owned(),
        )
        .hint("use the key of a service account, or a machine or pod with a service account of its own")),
        other => Err(fault(format!("`{}` is not a type of credentials", other.unwrap_or("null"))).hint(HINT)),
    }
}
