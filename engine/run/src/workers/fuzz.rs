//! What coordinators and workers say, damaged: a fault or a message, never a panic, never much memory.

use forebay_fuzz::{Target, fuzz};
use forebay_model::{Fault, codes};
use serde_json::json;

use super::message::{Hello, Message, Progress, Request};

#[test]
fn messages() {
    let fault = Fault::new(codes::CORRUPT, "a page is broken").file("a.parquet").hint("write it again");
    let said = [
        Message::Hello(Hello { protocol: 4, version: "1".into(), slots: 2, memory_bytes: 9, leaves: false }),
        Message::Beat(Progress { rows: 3, cpu_seconds: 0.5, ..Progress::default() }),
        Message::Part { first: 2, made: json!({ "rows": 3, "files": ["a"] }) },
        Message::Failed { fault: Box::new((&fault).into()), fallen: None },
        Message::HandedBack,
    ];
    let seeds = said.iter().map(|message| serde_json::to_vec(message).unwrap());
    let asked = serde_json::to_vec(&Request::Hello).unwrap();
    let words =
        ["\"task\":", "\"parts\":", "\"tasks\":{\"start\":9,\"end\":2}", "\"fault\":", "\"cause\":{", "\"code\":\"FB"];
    fuzz!(Target::new("messages").seeds(seeds.chain([asked])).words(&words), |bytes: &[u8]| {
        if let Ok(request) = serde_json::from_slice::<Request>(bytes) {
            serde_json::to_vec(&request).unwrap();
        }
        match serde_json::from_slice::<Message>(bytes) {
            Ok(Message::Failed { fault, .. }) => {
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
