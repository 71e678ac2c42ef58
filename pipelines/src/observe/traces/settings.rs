//! Destination of traces: a flag, else the variables of OpenTelemetry's specification.

use forebay_model::{Fault, Result, TraceContext, codes};
use percent_encoding::percent_decode_str;

use super::otlp::{KeyValue, attribute};

/// Default name of this program in collectors, if the environment sets none.
const SERVICE: &str = "forebay";

/// The path of traces below the address of a collector.
const PATH: &str = "v1/traces";

/// Destination of traces.
#[derive(Debug)]
pub(super) struct TraceSettings {
    pub url: String,
    pub headers: Vec<(String, String)>,
    pub resource: Vec<KeyValue>,
    /// The span of the caller.
    pub parent: Option<TraceContext>,
}

fn variable(name: &str) -> Option<String> {
    std::env::var(name)
        .ok()
        .map(|value| value.trim().to_owned())
        .filter(|value| !value.is_empty())
}

fn is_set_to(name: &str, word: &str) -> bool {
    variable(name).is_some_and(|value| value.eq_ignore_ascii_case(word))
}

/// The address of a collector with the path of traces.
fn with_path(address: &str) -> String {
    let address = address.trim_end_matches('/');
    if address.ends_with(PATH) {
        address.to_owned()
    } else {
        format!("{address}/{PATH}")
    }
}

/// The URL that traces are sent to; `None` if neither the flag nor a variable names one.
fn traces_url(flag: Option<&str>) -> Option<String> {
    if let Some(flag) = flag {
        return Some(with_path(flag));
    }
    // OpenTelemetry takes the variable for traces as it is.
    if let Some(url) = variable("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT") {
        return Some(url);
    }
    variable("OTEL_EXPORTER_OTLP_ENDPOINT").map(|address| with_path(&address))
}

/// Description of this process: the attributes of the environment, name and version.
fn resource_pairs() -> Vec<(String, String)> {
    let mut resource = pairs(&variable("OTEL_RESOURCE_ATTRIBUTES").unwrap_or_default());
    if let Some(name) = variable("OTEL_SERVICE_NAME") {
        resource.retain(|(key, _)| key != "service.name");
        resource.push(("service.name".to_owned(), name));
    }
    if resource.iter().all(|(key, _)| key != "service.name") {
        resource.push(("service.name".to_owned(), SERVICE.to_owned()));
    }
    let version = env!("CARGO_PKG_VERSION").to_owned();
    resource.push(("service.version".to_owned(), version));
    resource
}

/// The value of a variable of the exporter; that for traces comes first.
fn exporter_variable(name: &str) -> Option<String> {
    let of = |signal: &str| variable(&format!("OTEL_EXPORTER_OTLP_{signal}{name}"));
    of("TRACES_").or_else(|| of(""))
}

impl TraceSettings {
    /// Settings from a flag, else from the environment; `None` if no traces are requested.
    pub fn resolve(flag: Option<&str>) -> Result<Option<TraceSettings>> {
        let is_off =
            is_set_to("OTEL_SDK_DISABLED", "true") || is_set_to("OTEL_TRACES_EXPORTER", "none");
        if flag.is_none() && is_off {
            return Ok(None);
        }
        let Some(url) = traces_url(flag) else {
            return Ok(None);
        };
        if !url.starts_with("http://") && !url.starts_with("https://") {
            let fault = Fault::new(
                codes::BAD_VALUE,
                "the address for traces is no http:// or https:// URL",
            );
            return Err(fault.hint("write `--traces http://127.0.0.1:4318`"));
        }
        // A flag is for Forebay alone: the environment's protocol is that of its own endpoint.
        let protocol = exporter_variable("PROTOCOL").filter(|_| flag.is_none());
        if protocol.is_some_and(|protocol| protocol != "http/protobuf") {
            let fault = Fault::new(
                codes::UNSUPPORTED,
                "traces are sent with the protocol http/protobuf only",
            );
            return Err(fault.hint(
                "set OTEL_EXPORTER_OTLP_TRACES_PROTOCOL=http/protobuf, or \
                 OTEL_TRACES_EXPORTER=none for no traces",
            ));
        }
        let mut resource = Vec::new();
        for (key, value) in resource_pairs() {
            resource.push(attribute(&key, value.as_str()));
        }
        Ok(Some(TraceSettings {
            url,
            headers: pairs(&exporter_variable("HEADERS").unwrap_or_default()),
            resource,
            parent: variable("TRACEPARENT").and_then(|text| text.parse().ok()),
        }))
    }
}

/// `key=value` pairs between commas, with values in percent encoding.
fn pairs(text: &str) -> Vec<(String, String)> {
    let pair = |pair: &str| {
        let (key, value) = pair.split_once('=')?;
        let value = percent_decode_str(value.trim())
            .decode_utf8_lossy()
            .into_owned();
        Some((key.trim().to_owned(), value))
    };
    text.split(',').filter_map(pair).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pairs_are_read_as_their_specification_says() {
        let expected = [("key", "a b"), ("other", "1=2")]
            .map(|(key, value)| (key.to_owned(), value.to_owned()));
        assert_eq!(pairs("key=a%20b, other =1=2,,none"), expected);
    }
}
