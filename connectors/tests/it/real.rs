//! Real data.

use arrow::array::{Array, AsArray};
use forebay_run::Io;
use serde_json::json;

use crate::help::{chunks, request, shared, source};

#[test]
fn flights() {
    let Some(path) = shared("flights") else { return };
    let io = Io::new().unwrap();
    let source = source("parquet", json!({"path": path}));
    let dataset = source.discover(&io).unwrap();
    assert_eq!(dataset.rows(), Some(336_776));
    let chunks = chunks(&io, source.as_ref(), &dataset, &request(&dataset)).unwrap();
    assert_eq!(chunks.iter().map(|chunk| chunk.batch.num_rows()).sum::<usize>(), 336_776);
    let carrier = chunks[0].batch.column_by_name("carrier").unwrap();
    assert_eq!(carrier.as_any_dictionary().values().len(), 15);
}
