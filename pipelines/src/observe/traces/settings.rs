//! Where traces go: a flag, else the variables of OpenTelemetry's specification.

use forebay_model::{Fault, Result, TraceContext, codes};
use percent_encoding::percent_decode_str;

use super::otlp::{KeyValue, attribute};

/// What collectors call this program, where the environment gives no other name.
const SERVICE: &str = "forebay";

/// The path of traces below the address of a collector.
const PATH: &str = "v1/traces";

/// Where traces go.
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

/// The value of a variable of the exporter; that for traces comes first.
fn exporter_variable(name: &str) -> Option<String> {
    let of = |signal: &str| variable(&format!("OTEL_EXPORTER_OTLP_{signal}{name}"));
    of("TRACES_").or_else(|| of(""))
}

impl TraceSettings {
    /// From a flag, else from the environment; `None` where there are to be no traces.
    pub fn resolve(flag: Option<&str>) -> Result<Option<TraceSettings>> {
        let is = |name: &str, word: &str| {
            variable(name).is_some_and(|value| value.eq_ignore_ascii_case(word))
        };
        if flag.is_none() && (is("OTEL_SDK_DISABLED", "true") || is("OTEL_TRACES_EXPORTER", "none"))
        {
            return Ok(None);
        }
        let below = |base: String| match base.trim_end_matches('/') {
            base if base.ends_with(PATH) => base.to_owned(),
            base => format!("{base}/{PATH}"),
        };
        let named = || variable("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT");
        let url = flag.map(|flag| below(flag.to_owned())).or_else(named);
        let Some(url) = url.or_else(|| variable("OTEL_EXPORTER_OTLP_ENDPOINT").map(below)) else {
            return Ok(None);
        };
        if !["http://", "https://"]
            .iter()
            .any(|scheme| url.starts_with(scheme))
        {
            let fault = Fault::new(
                codes::BAD_VALUE,
                "the address for traces is no http:// or https:// URL",
            );
            return Err(fault.hint("write `--traces http://127.0.0.1:4318`"));
        }
        if flag.is_none()
            && exporter_variable("PROTOCOL").is_some_and(|protocol| protocol != "http/protobuf")
        {
            let fault = Fault::new(
                codes::UNSUPPORTED,
                "traces are sent with the protocol http/protobuf only",
            );
            return Err(fault.hint(
                "set OTEL_EXPORTER_OTLP_TRACES_PROTOCOL=http/protobuf, or OTEL_TRACES_EXPORTER=none for no traces",
            ));
        }
        let mut resource = pairs(&variable("OTEL_RESOURCE_ATTRIBUTES").unwrap_or_default());
        if let Some(name) = variable("OTEL_SERVICE_NAME") {
            resource.retain(|(key, _)| key != "service.name");
            resource.push(("service.name".to_owned(), name));
        }
        if !resource.iter().any(|(key, _)| key == "service.name") {
            resource.push(("service.name".to_owned(), SERVICE.to_owned()));
        }
        resource.push((
            "service.version".to_owned(),
            env!("CARGO_PKG_VERSION").to_owned(),
        ));
        Ok(Some(TraceSettings {
            url,
            headers: pairs(&exporter_variable("HEADERS").unwrap_or_default()),
            resource: resource
                .iter()
                .map(|(key, value)| attribute(key, value.as_str()))
                .collect(),
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
