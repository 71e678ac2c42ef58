//! Encoding of spans as OTLP: the messages of opentelemetry-proto 1.9, as far as they are used.

use prost::Message;

/// A request that brings spans.
#[derive(Clone, PartialEq, Message)]
pub(super) struct ExportTraceServiceRequest {
    #[prost(message, repeated, tag = "1")]
    pub resource_spans: Vec<ResourceSpans>,
}

/// Spans of one process.
#[derive(Clone, PartialEq, Message)]
pub(super) struct ResourceSpans {
    #[prost(message, optional, tag = "1")]
    pub resource: Option<Resource>,
    #[prost(message, repeated, tag = "2")]
    pub scope_spans: Vec<ScopeSpans>,
}

/// The process.
#[derive(Clone, PartialEq, Message)]
pub(super) struct Resource {
    #[prost(message, repeated, tag = "1")]
    pub attributes: Vec<KeyValue>,
}

/// Spans of one library.
#[derive(Clone, PartialEq, Message)]
pub(super) struct ScopeSpans {
    #[prost(message, optional, tag = "1")]
    pub scope: Option<InstrumentationScope>,
    #[prost(message, repeated, tag = "2")]
    pub spans: Vec<Span>,
}

/// The library.
#[derive(Clone, PartialEq, Message)]
pub(super) struct InstrumentationScope {
    #[prost(string, tag = "1")]
    pub name: String,
    #[prost(string, tag = "2")]
    pub version: String,
}

/// Span of a trace, with a beginning and an end.
#[derive(Clone, PartialEq, Message)]
pub(super) struct Span {
    #[prost(bytes = "vec", tag = "1")]
    pub trace_id: Vec<u8>,
    #[prost(bytes = "vec", tag = "2")]
    pub span_id: Vec<u8>,
    #[prost(bytes = "vec", tag = "4")]
    pub parent_span_id: Vec<u8>,
    #[prost(string, tag = "5")]
    pub name: String,
    #[prost(enumeration = "SpanKind", tag = "6")]
    pub kind: i32,
    #[prost(fixed64, tag = "7")]
    pub start_time_unix_nano: u64,
    #[prost(fixed64, tag = "8")]
    pub end_time_unix_nano: u64,
    #[prost(message, repeated, tag = "9")]
    pub attributes: Vec<KeyValue>,
    #[prost(message, repeated, tag = "11")]
    pub events: Vec<SpanEvent>,
    #[prost(message, optional, tag = "15")]
    pub status: Option<Status>,
}

/// A moment of a span.
#[derive(Clone, PartialEq, Message)]
pub(super) struct SpanEvent {
    #[prost(fixed64, tag = "1")]
    pub time_unix_nano: u64,
    #[prost(string, tag = "2")]
    pub name: String,
    #[prost(message, repeated, tag = "3")]
    pub attributes: Vec<KeyValue>,
}

/// End status of a span.
#[derive(Clone, PartialEq, Message)]
pub(super) struct Status {
    #[prost(string, tag = "2")]
    pub message: String,
    #[prost(enumeration = "StatusCode", tag = "3")]
    pub code: i32,
}

/// An attribute.
#[derive(Clone, PartialEq, Message)]
pub(super) struct KeyValue {
    #[prost(string, tag = "1")]
    pub key: String,
    #[prost(message, optional, tag = "2")]
    pub value: Option<AnyValue>,
}

/// A value of an attribute.
#[derive(Clone, PartialEq, Message)]
pub(super) struct AnyValue {
    #[prost(oneof = "AttributeValue", tags = "1, 2, 3, 4")]
    pub value: Option<AttributeValue>,
}

/// Values by type.
#[derive(Clone, PartialEq, prost::Oneof)]
pub(super) enum AttributeValue {
    #[prost(string, tag = "1")]
    Text(String),
    #[prost(bool, tag = "2")]
    Boolean(bool),
    #[prost(int64, tag = "3")]
    Integer(i64),
    #[prost(double, tag = "4")]
    Number(f64),
}

/// Role of a span between processes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, prost::Enumeration)]
#[repr(i32)]
pub(super) enum SpanKind {
    Unspecified = 0,
    Internal = 1,
    Server = 2,
    Client = 3,
}

/// Outcome of a span.
#[derive(Clone, Copy, Debug, PartialEq, Eq, prost::Enumeration)]
#[repr(i32)]
pub(super) enum StatusCode {
    Unset = 0,
    Error = 2,
}

impl From<&str> for AttributeValue {
    fn from(text: &str) -> AttributeValue {
        AttributeValue::Text(text.to_owned())
    }
}

impl From<String> for AttributeValue {
    fn from(text: String) -> AttributeValue {
        AttributeValue::Text(text)
    }
}

impl From<bool> for AttributeValue {
    fn from(value: bool) -> AttributeValue {
        AttributeValue::Boolean(value)
    }
}

impl From<u64> for AttributeValue {
    fn from(count: u64) -> AttributeValue {
        AttributeValue::Integer(i64::try_from(count).unwrap_or(i64::MAX))
    }
}

impl From<f64> for AttributeValue {
    fn from(number: f64) -> AttributeValue {
        AttributeValue::Number(number)
    }
}

/// An attribute.
pub(super) fn attribute(key: &str, value: impl Into<AttributeValue>) -> KeyValue {
    KeyValue {
        key: key.to_owned(),
        value: Some(AnyValue {
            value: Some(value.into()),
        }),
    }
}
