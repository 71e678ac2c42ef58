//! The stores that URLs name: one file for each, with the credentials that it looks for.

mod azure;
mod gcs;
mod gcs_federation;
mod http;
mod s3;
mod s3_credentials;

use std::ffi::OsString;
use std::net::{TcpStream, ToSocketAddrs};
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use forebay_model::{Fault, Result, codes};
use object_store::ObjectStore;
use url::Url;

use super::retry::{CountingConnector, RetryBudget};

pub use s3_credentials::is_refreshable;

/// How long, and how often, a connection to a cloud's metadata service is tried: elsewhere there is nothing at its
/// address.
const METADATA_TIMEOUT: Duration = Duration::from_secs(1);
const METADATA_TRIES: usize = 2;

/// A kind of store that is reached by URLs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StoreKind {
    S3,
    Gcs,
    Azure,
    /// A web server, which is only read, file by file.
    Http,
}

impl StoreKind {
    /// The kind that a URL's scheme names.
    pub fn of_scheme(scheme: &str) -> Option<StoreKind> {
        match scheme {
            "s3" => Some(StoreKind::S3),
            "gs" => Some(StoreKind::Gcs),
            "az" | "abfs" | "abfss" => Some(StoreKind::Azure),
            "https" | "http" => Some(StoreKind::Http),
            _ => None,
        }
    }

    /// The variables to look at where a bucket is not found.
    pub fn location_variables(self) -> &'static str {
        match self {
            StoreKind::S3 => "AWS_REGION or AWS_ENDPOINT_URL",
            StoreKind::Gcs => "GOOGLE_BASE_URL",
            StoreKind::Azure => "the account (AZURE_STORAGE_ACCOUNT_NAME)",
            StoreKind::Http => "the host",
        }
    }
}

/// Where an object lies, as its URL tells.
#[derive(Debug)]
pub struct ObjectUrl<'t> {
    pub kind: StoreKind,
    /// The URL up to the bucket, container or host.
    pub root: &'t str,
    /// What stands between the scheme and the key.
    pub bucket: &'t str,
    pub key: &'t str,
}

impl<'t> ObjectUrl<'t> {
    /// The parts of a URL. `None` for a path of the file system.
    pub fn parse(text: &'t str) -> Result<Option<ObjectUrl<'t>>> {
        let Some((scheme, rest)) = text
            .split_once("://")
            .filter(|(scheme, _)| *scheme != "file")
        else {
            return Ok(None);
        };
        let Some(kind) = StoreKind::of_scheme(scheme) else {
            return Err(Fault::new(
                codes::UNSUPPORTED,
                format!("`{scheme}://` is not a storage that Forebay knows"),
            )
            .hint("use a local path, s3://, gs://, az://, abfss:// or https://"));
        };
        let bucket = rest.split('/').next().unwrap_or_default();
        let root = &text[..scheme.len() + "://".len() + bucket.len()];
        if bucket.is_empty() {
            let what = match kind {
                StoreKind::Azure => "container",
                StoreKind::Http => "host",
                StoreKind::S3 | StoreKind::Gcs => "bucket",
            };
            let fault = Fault::new(codes::BAD_VALUE, format!("`{text}` names no {what}"));
            return Err(fault.hint(format!("write `{scheme}://{what}/path`")));
        }
        if kind == StoreKind::Http {
            http::require_plain(text, bucket)?;
        }
        Ok(Some(ObjectUrl {
            kind,
            root,
            bucket,
            key: rest[bucket.len()..].trim_matches('/'),
        }))
    }

    /// A client of the store, with credentials from the environment.
    pub fn connect(
        &self,
        patience: RetryBudget,
        connector: CountingConnector,
    ) -> Result<Arc<dyn ObjectStore>> {
        match self.kind {
            StoreKind::S3 => s3::connect(self.bucket, patience, connector),
            StoreKind::Gcs => gcs::connect(self, patience, connector),
            StoreKind::Azure => azure::connect(self, patience, connector),
            StoreKind::Http => http::connect(self, patience, connector),
        }
    }

    /// A fault for credentials that are not there.
    fn access_fault(&self, message: impl Into<String>) -> Fault {
        Fault::new(codes::ACCESS, message).file(self.root)
    }
}

/// A variable of the environment. One that is set to nothing counts as unset: deployments pass on variables for which
/// they have no value.
fn env_value(name: &str) -> Option<String> {
    std::env::var(name).ok().filter(|value| !value.is_empty())
}

fn env_flag(name: &str) -> bool {
    env_value(name).is_some_and(|value| {
        matches!(
            value.to_ascii_lowercase().as_str(),
            "1" | "true" | "yes" | "y" | "on"
        )
    })
}

/// What variables that begin with a prefix tell of a store, in the order of their names. Variables that are set to
/// nothing tell nothing.
fn env_config<K: FromStr>(prefix: &str) -> Vec<(K, String)> {
    let text = |(name, value): (OsString, OsString)| {
        Some((name.into_string().ok()?, value.into_string().ok()?))
    };
    let mut set: Vec<(String, String)> = std::env::vars_os()
        .filter_map(text)
        .filter(|(name, value)| name.starts_with(prefix) && !value.is_empty())
        .collect();
    set.sort();
    set.into_iter()
        .filter_map(|(name, value)| Some((name.to_ascii_lowercase().parse().ok()?, value)))
        .collect()
}

/// Whether something listens at the address of a metadata service.
fn metadata_service_responds(url: &str) -> bool {
    let Ok(url) = Url::parse(url) else {
        return false;
    };
    let (Some(host), Some(port)) = (url.host_str(), url.port_or_known_default()) else {
        return false;
    };
    let addresses: Vec<_> = (host, port)
        .to_socket_addrs()
        .into_iter()
        .flatten()
        .collect();
    let answers = |address| TcpStream::connect_timeout(address, METADATA_TIMEOUT).is_ok();
    (0..METADATA_TRIES).any(|_| addresses.iter().any(answers))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_are_divided_into_root_and_key() {
        for (text, kind, root, key) in [
            (
                "s3://lake/a/b.parquet",
                StoreKind::S3,
                "s3://lake",
                "a/b.parquet",
            ),
            ("gs://lake", StoreKind::Gcs, "gs://lake", ""),
            ("az://lake/a/", StoreKind::Azure, "az://lake", "a"),
            (
                "abfss://c@acc.dfs.core.windows.net/a",
                StoreKind::Azure,
                "abfss://c@acc.dfs.core.windows.net",
                "a",
            ),
            (
                "https://example.org:8443/a/b.csv",
                StoreKind::Http,
                "https://example.org:8443",
                "a/b.csv",
            ),
        ] {
            let url = ObjectUrl::parse(text).unwrap().unwrap();
            assert_eq!((url.kind, url.root, url.key), (kind, root, key), "{text}");
        }
        for text in ["data/a.parquet", "file:///data/a.parquet", "/data/a"] {
            assert!(ObjectUrl::parse(text).unwrap().is_none(), "{text}");
        }
        for (text, code) in [
            ("ftp://host/a", codes::UNSUPPORTED),
            ("s3://", codes::BAD_VALUE),
            ("gs:///a", codes::BAD_VALUE),
            ("https://host/a?token=x", codes::UNSUPPORTED),
            ("https://user:word@host/a", codes::UNSUPPORTED),
        ] {
            let fault = ObjectUrl::parse(text).unwrap_err();
            assert_eq!(fault.code(), code, "{text}: {fault}");
            assert!(!fault.to_string().contains("word@"), "{fault}");
        }
    }
}
