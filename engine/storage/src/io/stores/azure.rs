//! Azure Blob Storage and Data Lake Storage.

use std::sync::Arc;

use forebay_model::{Fault, Result, codes};
use object_store::ObjectStore;
use object_store::azure::MicrosoftAzureBuilder;

use super::environment::{env_config, env_flag, env_value, metadata_service_responds};
use crate::io::object_url::ObjectUrl;
use crate::io::retry::{CountingConnector, RetryBudget};

/// Address of the metadata service of Azure's virtual machines, which issues tokens.
const METADATA_ENDPOINT: &str = "http://169.254.169.254";

const HINT: &str = "set AZURE_STORAGE_ACCOUNT_KEY, AZURE_STORAGE_SAS_TOKEN or \
                    AZURE_STORAGE_CONNECTION_STRING, or AZURE_TENANT_ID and AZURE_CLIENT_ID with \
                    AZURE_CLIENT_SECRET or AZURE_FEDERATED_TOKEN_FILE, or \
                    AZURE_USE_AZURE_CLI=true; for public data, AZURE_SKIP_SIGNATURE=true";

/// A client of one container. The account comes from the URL, as in `abfss://container@account.dfs.core.windows.net`,
/// or from `AZURE_STORAGE_ACCOUNT_NAME`; tokens are renewed before they end.
pub fn connect(
    url: &ObjectUrl,
    retry: RetryBudget,
    connector: CountingConnector,
) -> Result<Arc<dyn ObjectStore>> {
    let set = env_config("AZURE_").into_iter();
    let mut builder = set.fold(MicrosoftAzureBuilder::new(), |builder, (key, value)| {
        builder.with_config(key, value)
    });
    if let Some(endpoint) = env_value("IDENTITY_ENDPOINT") {
        builder = builder.with_msi_endpoint(endpoint);
    }
    if let Some(text) = env_value("AZURE_STORAGE_CONNECTION_STRING") {
        builder = ConnectionString::parse(&text)?.apply(builder);
    } else if !env_flag("AZURE_STORAGE_USE_EMULATOR") {
        require_credentials(url)?;
    }
    if env_value("AZURE_STORAGE_ENDPOINT").is_some_and(|endpoint| endpoint.starts_with("http://")) {
        builder = builder.with_allow_http(true);
    }
    let store = builder
        .with_url(url.root)
        .with_retry(retry.retry_config())
        .with_http_connector(connector)
        .build()
        .map_err(|error| {
            url.access_fault(format!("Azure is not configured for `{}`", url.bucket))
                .cause(error)
                .hint(
                    "name the account in the URL \
                     (abfss://container@account.dfs.core.windows.net/path) or in \
                     AZURE_STORAGE_ACCOUNT_NAME, and look at the other variables that begin with \
                     AZURE_",
                )
        })?;
    Ok(Arc::new(store))
}

/// Refuses an environment without credentials: otherwise each request would query a metadata
/// service that does not exist.
fn require_credentials(url: &ObjectUrl) -> Result<()> {
    let keys = [
        "AZURE_STORAGE_ACCOUNT_KEY",
        "AZURE_STORAGE_ACCESS_KEY",
        "AZURE_STORAGE_MASTER_KEY",
        "AZURE_STORAGE_SAS_KEY",
        "AZURE_STORAGE_SAS_TOKEN",
        "AZURE_STORAGE_TOKEN",
        "AZURE_FABRIC_TOKEN_SERVICE_URL",
    ];
    if env_flag("AZURE_SKIP_SIGNATURE")
        || env_flag("AZURE_USE_AZURE_CLI")
        || keys.into_iter().any(|name| env_value(name).is_some())
    {
        return Ok(());
    }
    let is_set = |names: [&str; 2]| names.into_iter().any(|name| env_value(name).is_some());
    let has_client = is_set(["AZURE_CLIENT_ID", "AZURE_STORAGE_CLIENT_ID"]);
    let has_tenant = is_set(["AZURE_TENANT_ID", "AZURE_STORAGE_TENANT_ID"]);
    let secret = [
        "AZURE_CLIENT_SECRET",
        "AZURE_STORAGE_CLIENT_SECRET",
        "AZURE_FEDERATED_TOKEN_FILE",
    ];
    if let Some(secret) = secret.into_iter().find(|name| env_value(name).is_some()) {
        return match (has_client, has_tenant) {
            (true, true) => Ok(()),
            (is_client_set, _) => {
                let lacking = if is_client_set {
                    "AZURE_TENANT_ID"
                } else {
                    "AZURE_CLIENT_ID"
                };
                Err(url
                    .access_fault(format!("{secret} is set, and {lacking} is not"))
                    .hint(HINT))
            }
        };
    }
    let endpoint = [
        "AZURE_MSI_ENDPOINT",
        "AZURE_IDENTITY_ENDPOINT",
        "IDENTITY_ENDPOINT",
    ];
    let endpoint = endpoint
        .into_iter()
        .find_map(env_value)
        .unwrap_or_else(|| METADATA_ENDPOINT.to_owned());
    if metadata_service_responds(&endpoint) {
        Ok(())
    } else {
        let message = format!(
            "there are no credentials for the container `{}`",
            url.bucket
        );
        Err(url.access_fault(message).hint(HINT))
    }
}

/// Connection string of Azure's portal: pairs of names and values.
#[derive(Debug, Default, PartialEq)]
struct ConnectionString {
    account: Option<String>,
    key: Option<String>,
    sas: Option<String>,
    endpoint: Option<String>,
}

impl ConnectionString {
    fn parse(text: &str) -> Result<ConnectionString> {
        let mut connection = ConnectionString::default();
        let mut protocol = "https";
        let mut suffix = "core.windows.net";
        for (name, value) in text
            .split(';')
            .filter_map(|part| part.trim().split_once('='))
        {
            let value = value.trim();
            match name.trim().to_ascii_lowercase().as_str() {
                "accountname" => connection.account = Some(value.to_owned()),
                "accountkey" => connection.key = Some(value.to_owned()),
                "sharedaccesssignature" => connection.sas = Some(value.to_owned()),
                "blobendpoint" => {
                    connection.endpoint = Some(value.trim_end_matches('/').to_owned())
                }
                "defaultendpointsprotocol" => protocol = value,
                "endpointsuffix" => suffix = value,
                _ => {}
            }
        }
        let Some(account) = &connection.account else {
            let fault = Fault::new(
                codes::ACCESS,
                "AZURE_STORAGE_CONNECTION_STRING names no account",
            );
            return Err(fault.hint(
                "copy it again: it begins with `DefaultEndpointsProtocol=` or `AccountName=`",
            ));
        };
        if connection.endpoint.is_none() && (protocol != "https" || suffix != "core.windows.net") {
            connection.endpoint = Some(format!("{protocol}://{account}.blob.{suffix}"));
        }
        Ok(connection)
    }

    fn apply(self, mut builder: MicrosoftAzureBuilder) -> MicrosoftAzureBuilder {
        use object_store::azure::AzureConfigKey;
        let allow_http = self
            .endpoint
            .as_ref()
            .is_some_and(|endpoint| endpoint.starts_with("http://"));
        let values = [
            (AzureConfigKey::AccountName, self.account),
            (AzureConfigKey::AccessKey, self.key),
            (AzureConfigKey::SasKey, self.sas),
            (AzureConfigKey::Endpoint, self.endpoint),
        ];
        for (name, value) in values {
            if let Some(value) = value {
                builder = builder.with_config(name, value);
            }
        }
        if allow_http {
            builder.with_allow_http(true)
        } else {
            builder
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn connection_strings_are_parsed() {
        let parse = |text: &str| ConnectionString::parse(text).unwrap();
        let text = "DefaultEndpointsProtocol=https;AccountName=lake;AccountKey=a2V5==;\
                    EndpointSuffix=core.windows.net";
        let some = |text: &str| Some(text.to_owned());
        let expected = ConnectionString {
            account: some("lake"),
            key: some("a2V5=="),
            ..ConnectionString::default()
        };
        assert_eq!(parse(text), expected);
        let local = parse("AccountName=dev;AccountKey=k;BlobEndpoint=http://127.0.0.1:10000/dev/;");
        assert_eq!(local.endpoint, some("http://127.0.0.1:10000/dev"));
        let other = parse(
            "AccountName=lake;SharedAccessSignature=sv=1&sig=x;\
             EndpointSuffix=core.chinacloudapi.cn",
        );
        assert_eq!(
            other.endpoint,
            some("https://lake.blob.core.chinacloudapi.cn")
        );
        assert_eq!(other.sas, some("sv=1&sig=x"));
        let fault = ConnectionString::parse("AccountKey=secretkey").unwrap_err();
        assert!(!format!("{fault:?}").contains("secretkey"), "{fault:?}");
    }
}
