//! Workers that read and apply for a loader.

use std::path::PathBuf;
use std::time::Duration;

use forebay::model::{Fault, codes};
use forebay::run::{ClusterOptions, ClusterSecurity, TlsFiles};
use serde_json::{Map, Value};

/// As patient as the command line is.
const LEASE: Duration = Duration::from_secs(15);
const GRACE: Duration = Duration::from_secs(60);

/// Reads `["host:port"]`, or a mapping with `addresses`, `token_file`, and `tls_ca`, `tls_cert`, `tls_key` and
/// `tls_name`. Where there is no file, the token is that of the variable FOREBAY_TOKEN, else this user's.
pub(crate) fn cluster_options(wanted: Value) -> Result<ClusterOptions, Fault> {
    let mut wanted = match wanted {
        Value::Object(wanted) => wanted,
        addresses => Map::from_iter([("addresses".to_owned(), addresses)]),
    };
    let bad = |message: String| {
        Fault::new(codes::BAD_VALUE, message).hint("give `workers=[\"host:port\"]`")
    };
    let addresses = wanted.remove("addresses").unwrap_or_default();
    let workers: Vec<String> = serde_json::from_value(addresses)
        .map_err(|error| bad("`workers` are no list of addresses".to_owned()).cause(error))?;
    let mut text = |name: &str| match wanted.remove(name) {
        None | Some(Value::Null) => Ok(None),
        Some(Value::String(text)) => Ok(Some(text)),
        Some(other) => Err(bad(format!("`{name}` of `workers` is {other}, not a text"))),
    };
    let token_file = text("token_file")?.map(PathBuf::from);
    let name = text("tls_name")?;
    let tls = match (text("tls_ca")?, text("tls_cert")?, text("tls_key")?) {
        (Some(ca), Some(cert), Some(key)) => Some(TlsFiles {
            ca: PathBuf::from(ca),
            cert: PathBuf::from(cert),
            key: PathBuf::from(key),
            name,
        }),
        (None, None, None) => None,
        _ => {
            return Err(bad(
                "`tls_ca`, `tls_cert` and `tls_key` of `workers` belong together".to_owned(),
            ));
        }
    };
    if let Some(unknown) = wanted.keys().next() {
        return Err(bad(format!("`workers` has no `{unknown}`")));
    }
    Ok(ClusterOptions {
        workers,
        security: ClusterSecurity::new(tls, token_file.as_deref())?,
        lease: LEASE,
        grace: GRACE,
    })
}
