//! Locations of objects: URLs of stores, as their parts.

use forebay_model::{Fault, Result, codes};

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

    /// Environment variables to check if a bucket is not found.
    pub fn location_variables(self) -> &'static str {
        match self {
            StoreKind::S3 => "AWS_REGION or AWS_ENDPOINT_URL",
            StoreKind::Gcs => "GOOGLE_BASE_URL",
            StoreKind::Azure => "the account (AZURE_STORAGE_ACCOUNT_NAME)",
            StoreKind::Http => "the host",
        }
    }
}

/// Location of an object, parsed from its URL.
#[derive(Debug)]
pub struct ObjectUrl<'t> {
    pub kind: StoreKind,
    /// The URL up to the bucket, container or host.
    pub root: &'t str,
    /// The part of the URL between the scheme and the key.
    pub bucket: &'t str,
    pub key: &'t str,
}

impl<'t> ObjectUrl<'t> {
    /// The parts of a URL. `None` for a path of the file system.
    pub fn parse(text: &'t str) -> Result<Option<ObjectUrl<'t>>> {
        let Some((scheme, remainder)) = text
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
        let bucket = remainder.split('/').next().unwrap_or_default();
        let root = &text[..scheme.len() + "://".len() + bucket.len()];
        if bucket.is_empty() {
            let container = match kind {
                StoreKind::Azure => "container",
                StoreKind::Http => "host",
                StoreKind::S3 | StoreKind::Gcs => "bucket",
            };
            let fault = Fault::new(codes::BAD_VALUE, format!("`{text}` names no {container}"));
            return Err(fault.hint(format!("write `{scheme}://{container}/path`")));
        }
        if kind == StoreKind::Http {
            require_plain(text, bucket)?;
        } else if let Some((user, _)) = bucket.rsplit_once('@')
            // Of Azure's URLs, the container stands there.
            && (kind != StoreKind::Azure || user.contains(':'))
        {
            require_plain(text, bucket)?;
        }
        Ok(Some(ObjectUrl {
            kind,
            root,
            bucket,
            key: remainder[bucket.len()..].trim_matches('/'),
        }))
    }
}

/// Refuses parts of a URL besides host and path: a query or a password would be stored in artifacts
/// and reports.
fn require_plain(text: &str, host: &str) -> Result<()> {
    let refuse = |part: &str| {
        let fault = Fault::new(codes::UNSUPPORTED, format!("a URL with {part} is not read"));
        Err(fault.hint(
            "URLs are kept in artifacts and reports, which must hold no secrets: use s3://, \
             gs:// or az://, whose credentials come from the environment, or copy the file",
        ))
    };
    if host.contains('@') {
        return refuse("a user name or password");
    }
    if text.contains(['?', '#']) {
        refuse("a query or a fragment")
    } else {
        Ok(())
    }
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
            ("s3://key:word@lake/a", codes::UNSUPPORTED),
            ("gs://word@lake/a", codes::UNSUPPORTED),
            (
                "abfss://lake:word@account.dfs.core.windows.net/a",
                codes::UNSUPPORTED,
            ),
        ] {
            let fault = ObjectUrl::parse(text).unwrap_err();
            assert_eq!(fault.code(), code, "{text}: {fault}");
            assert!(!fault.to_string().contains("word@"), "{fault}");
        }
    }
}
