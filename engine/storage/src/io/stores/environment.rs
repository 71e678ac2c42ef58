//! Settings of stores from environment variables, and metadata services of clouds.

use std::ffi::OsString;
use std::net::{TcpStream, ToSocketAddrs};
use std::str::FromStr;
use std::time::Duration;

use url::Url;

/// Timeout and number of attempts for a connection to a cloud's metadata service: outside of the
/// cloud, its address is unused.
const METADATA_TIMEOUT: Duration = Duration::from_secs(1);
const METADATA_TRIES: usize = 2;

/// Value of an environment variable. An empty value counts as unset: deployments pass on variables
/// for which they have no value.
pub(super) fn env_value(name: &str) -> Option<String> {
    std::env::var(name).ok().filter(|value| !value.is_empty())
}

pub(super) fn env_flag(name: &str) -> bool {
    env_value(name).is_some_and(|value| {
        matches!(
            value.to_ascii_lowercase().as_str(),
            "1" | "true" | "yes" | "y" | "on"
        )
    })
}

/// Settings of a store from variables with a prefix, in the order of their names. Empty variables
/// are ignored.
pub(super) fn env_config<K: FromStr>(prefix: &str) -> Vec<(K, String)> {
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

/// True if a metadata service accepts connections at its address.
pub(super) fn metadata_service_responds(url: &str) -> bool {
    let Ok(url) = Url::parse(url) else {
        return false;
    };
    let Some(host) = url.host_str() else {
        return false;
    };
    let Some(port) = url.port_or_known_default() else {
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
