//! Google Cloud Storage.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use forebay_model::{Fault, Result, codes};
use object_store::gcp::{GoogleCloudStorageBuilder, GoogleConfigKey};
use object_store::{ClientConfigKey, ObjectStore};
use serde::Deserialize;

use super::environment::{env_config, env_flag, env_value, metadata_service_responds};
use super::gcs_federation::{ExternalAccount, FederatedCredentials};
use crate::io::object_url::ObjectUrl;
use crate::io::retry::{CountingConnector, RetryBudget};
use crate::small_file::read_small_text;

/// Host of the metadata service of Google's virtual machines and pods, which issues tokens.
const METADATA_HOST: &str = "metadata.google.internal";

const HINT: &str = "set GOOGLE_APPLICATION_CREDENTIALS or GOOGLE_SERVICE_ACCOUNT to the path of \
                    a key file, or GOOGLE_SERVICE_ACCOUNT_KEY to its content, or run `gcloud \
                    auth application-default login`; for public data, \
                    GOOGLE_SKIP_SIGNATURE=true";

/// A client of one bucket. Credentials are searched in the order of Google's own libraries; tokens
/// are renewed before they expire.
pub fn connect(
    url: &ObjectUrl,
    retry: RetryBudget,
    connector: CountingConnector,
) -> Result<Arc<dyn ObjectStore>> {
    let external = require_credentials(url)?;
    let mut builder = GoogleCloudStorageBuilder::new();
    if let Some(file) = env_value("SERVICE_ACCOUNT") {
        builder = builder.with_service_account_path(file);
    }
    let set = env_config("GOOGLE_").into_iter();
    builder = set
        .fold(builder, |builder, (key, value)| {
            builder.with_config(key, value)
        })
        .with_bucket_name(url.bucket)
        .with_retry(retry.retry_config());
    if let Some(account) = external {
        builder = builder.with_credentials(Arc::new(FederatedCredentials::new(
            account, retry, &connector,
        )?));
    }
    builder = builder.with_http_connector(connector);
    if env_value("GOOGLE_BASE_URL").is_some_and(|base| base.starts_with("http://")) {
        builder = builder.with_config(GoogleConfigKey::Client(ClientConfigKey::AllowHttp), "true");
    }
    let store = builder.build().map_err(|error| {
        url.access_fault(format!(
            "Google Cloud Storage is not configured for `{}`",
            url.bucket
        ))
        .cause(error)
        .hint("look at the variables that begin with GOOGLE_")
    })?;
    Ok(Arc::new(store))
}

/// Refuses an environment without credentials: otherwise each request would query a metadata
/// service that does not exist. Returns credentials of types that the store itself does not
/// support.
fn require_credentials(url: &ObjectUrl) -> Result<Option<ExternalAccount>> {
    if env_flag("GOOGLE_SKIP_SIGNATURE") || env_value("GOOGLE_SERVICE_ACCOUNT_KEY").is_some() {
        return Ok(None);
    }
    let variables = [
        "GOOGLE_SERVICE_ACCOUNT",
        "GOOGLE_SERVICE_ACCOUNT_PATH",
        "SERVICE_ACCOUNT",
    ];
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
    if metadata_service_responds(&format!("http://{host}")) {
        Ok(None)
    } else {
        let message = format!("there are no credentials for the bucket `{}`", url.bucket);
        Err(url.access_fault(message).hint(HINT))
    }
}

/// File in which `gcloud auth application-default login` stores its credentials.
fn default_credentials_file() -> Option<PathBuf> {
    Some(std::env::home_dir()?.join(".config/gcloud/application_default_credentials.json"))
}

/// Refuses a key file that cannot be read, or whose kind cannot be used.
fn require_key_file(file: &Path, is_default: bool) -> Result<Option<ExternalAccount>> {
    #[derive(Deserialize)]
    struct KeyFile {
        r#type: Option<String>,
    }
    let fault =
        |message: String| Fault::new(codes::ACCESS, message).file(file.display().to_string());
    let text = read_small_text(file).map_err(|error| {
        fault("the file of Google's credentials cannot be read".to_owned())
            .cause(error)
            .hint(HINT)
    })?;
    // The parser's text may contain secrets of the file.
    let key: KeyFile = serde_json::from_str(&text).map_err(|_| {
        fault("the file of Google's credentials is not a JSON object".to_owned()).hint(HINT)
    })?;
    match key.r#type.as_deref() {
        Some("authorized_user" | "service_account") => Ok(None),
        None if !is_default => Ok(None),
        Some("external_account") if is_default => {
            let account = ExternalAccount::parse(&text);
            account
                .map(Some)
                .map_err(|fault| fault.file(file.display().to_string()))
        }
        Some("external_account") => {
            let message =
                "credentials of the type `external_account` are no key of a service account"
                    .to_owned();
            Err(fault(message).hint("name their file in GOOGLE_APPLICATION_CREDENTIALS"))
        }
        other => Err(fault(format!(
            "`{}` is not a type of credentials",
            other.unwrap_or("null")
        ))
        .hint(HINT)),
    }
}
