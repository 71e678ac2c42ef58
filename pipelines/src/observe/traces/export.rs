//! Sends spans to a collector.

use std::sync::Arc;

use forebay_model::Result;
use forebay_storage::{EventListener, StorageClient, WebClient};
use prost::Message;

use super::super::outbox::Outbox;
use super::otlp::{
    ExportTraceServiceRequest, InstrumentationScope, Resource, ResourceSpans, ScopeSpans, Span,
};
use super::settings::TraceSettings;

impl TraceSettings {
    /// Sends the spans of the queue, several at a time.
    pub(super) fn send_from(
        &self,
        spans: &Outbox<Span>,
        io: &StorageClient,
        listener: &Arc<dyn EventListener>,
    ) -> Result<()> {
        let client = WebClient::new(io, "the collector of traces", self.headers.clone())?;
        let url = self.url.clone();
        let resource = self.resource.clone();
        spans.start(listener, move |spans| {
            let scope = InstrumentationScope {
                name: "forebay".to_owned(),
                version: env!("CARGO_PKG_VERSION").to_owned(),
            };
            let spans = vec![ScopeSpans {
                scope: Some(scope),
                spans,
            }];
            let resource = Some(Resource {
                attributes: resource.clone(),
            });
            let request = ExportTraceServiceRequest {
                resource_spans: vec![ResourceSpans {
                    resource,
                    scope_spans: spans,
                }],
            };
            client
                .post(&url, "application/x-protobuf", request.encode_to_vec())
                .map(drop)
        })
    }
}
