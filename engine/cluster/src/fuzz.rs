//! Fuzz targets for messages of coordinators and workers: damaged ones give a fault or a message,
//! never a panic, and take little memory.

use std::sync::Arc;

use arrow::datatypes::{DataType, Field, Schema};
use datafusion::execution::TaskContext;
use datafusion_proto::physical_plan::{DefaultPhysicalProtoConverter, PhysicalExtensionCodec};
use forebay_fuzz::{FuzzTarget, fuzz};
use forebay_model::{ContentId, Fault, Pipeline, codes};
use serde_json::json;

use crate::protocol::{TableSpec, TaskProgress, WorkerHello, WorkerMessage, WorkerRequest};
use crate::query::SpanScanCodec;
use crate::query::span_scan::{SpanScanExec, TableSpans};

#[test]
fn messages() {
    let fault = Fault::new(codes::CORRUPT, "a page is broken")
        .file("a.parquet")
        .hint("write it again");
    let said = [
        WorkerMessage::Hello(WorkerHello {
            protocol: 4,
            version: "1".into(),
            slots: 2,
            memory_bytes: 9,
            leaves: false,
        }),
        WorkerMessage::Beat(TaskProgress {
            rows: 3,
            cpu_seconds: 0.5,
            ..TaskProgress::default()
        }),
        WorkerMessage::Part {
            first: 2,
            made: json!({ "rows": 3, "files": ["a"] }),
        },
        WorkerMessage::Failed {
            fault: Box::new((&fault).into()),
            order_failure: None,
        },
        WorkerMessage::HandedBack,
    ];
    let seeds = said
        .iter()
        .map(|message| serde_json::to_vec(message).unwrap());
    let asked = serde_json::to_vec(&WorkerRequest::Hello).unwrap();
    let words = [
        "\"task\":",
        "\"parts\":",
        "\"tasks\":{\"start\":9,\"end\":2}",
        "\"fault\":",
        "\"cause\":{",
        "\"code\":\"FB",
    ];
    fuzz!(
        FuzzTarget::new("messages")
            .seeds(seeds.chain([asked]))
            .words(&words),
        |bytes: &[u8]| {
            if let Ok(request) = serde_json::from_slice::<WorkerRequest>(bytes) {
                serde_json::to_vec(&request).unwrap();
            }
            match serde_json::from_slice::<WorkerMessage>(bytes) {
                Ok(WorkerMessage::Failed { fault, .. }) => {
                    let fault = Fault::from(*fault);
                    let _ = fault.to_string();
                }
                Ok(message) => {
                    serde_json::to_vec(&message).unwrap();
                }
                Err(_) => {}
            }
        }
    );
}

#[test]
fn leaves_of_queries() {
    let schema = Arc::new(Schema::new(vec![Field::new("n", DataType::Int64, true)]));
    let table = json!({
        "name": "t", "pass": 1, "input": 0, "row_orders": [], "shuffles": [],
        "rows": ContentId::of(b"rows"),
        "counts": ContentId::of(b"counts"),
        "job": {
            "pipeline": Pipeline::default(), "sinks": [], "learns": true, "known": [], "interval": null,
            "continues": null, "held": [], "applies": null, "models": [], "state": "s", "base": "/", "shared": [], "sources": {},
            "batch_rows": 8,
        },
    });
    let spec: TableSpec = serde_json::from_value(table).unwrap();
    let spans = Arc::new(TableSpans {
        bytes: vec![3, 4, 5],
        is_ordered: false,
    });
    let leaf = SpanScanExec::new(Arc::new(spec), vec!["n".to_owned()], schema, spans, 2);
    let codec = SpanScanCodec(None);
    let converter = DefaultPhysicalProtoConverter {};
    let mut seed = Vec::new();
    codec
        .try_encode(Arc::new(leaf), &mut seed, &converter)
        .unwrap();
    let context = TaskContext::default();
    assert!(codec.try_decode(&seed, &[], &context, &converter).is_ok());
    let words = [
        "\"partitions\":[{\"start\":9,\"end\":2}]",
        "\"columns\":[]",
        "\"job\":",
        "\"rows\":",
    ];
    fuzz!(
        FuzzTarget::new("leaves_of_queries")
            .seeds([seed])
            .words(&words),
        |bytes: &[u8]| {
            if let Ok(leaf) = codec.try_decode(bytes, &[], &context, &converter) {
                assert!(
                    leaf.execute(0, Arc::default()).is_err(),
                    "a coordinator reads no spans"
                );
            }
        }
    );
}
