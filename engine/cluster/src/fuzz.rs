//! What coordinators and workers say, damaged: a fault or a message, never a panic, never much memory.

use forebay_fuzz::{FuzzTarget, fuzz};
use forebay_model::{Fault, codes};
use serde_json::json;

use crate::protocol::{TaskProgress, WorkerHello, WorkerMessage, WorkerRequest};

#[test]
fn messages() {
    let fault = Fault::new(codes::CORRUPT, "a page is broken").file("a.parquet").hint("write it again");
    let said = [
        WorkerMessage::Hello(WorkerHello {
            protocol: 4,
            version: "1".into(),
            slots: 2,
            memory_bytes: 9,
            leaves: false,
        }),
        WorkerMessage::Beat(TaskProgress { rows: 3, cpu_seconds: 0.5, ..TaskProgress::default() }),
        WorkerMessage::Part { first: 2, made: json!({ "rows": 3, "files": ["a"] }) },
        WorkerMessage::Failed { fault: Box::new((&fault).into()), order_failure: None },
        WorkerMessage::HandedBack,
    ];
    let seeds = said.iter().map(|message| serde_json::to_vec(message).unwrap());
    let asked = serde_json::to_vec(&WorkerRequest::Hello).unwrap();
    let words =
        ["\"task\":", "\"parts\":", "\"tasks\":{\"start\":9,\"end\":2}", "\"fault\":", "\"cause\":{", "\"code\":\"FB"];
    fuzz!(FuzzTarget::new("messages").seeds(seeds.chain([asked])).words(&words), |bytes: &[u8]| {
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
    });
}
