//! Real data.

use arrow::array::AsArray;
use arrow::datatypes::DataType;
use forebay_storage::StorageClient;
use serde_json::json;

use crate::help::{chunks, read, request, shared_data, source};

#[test]
fn flights() {
    let Some(path) = shared_data("flights") else {
        return;
    };
    let io = StorageClient::new().unwrap();
    let source = source("parquet", json!({"path": path}));
    let dataset = source.discover(&io, &[]).unwrap();
    assert_eq!(dataset.rows(), Some(336_776));
    let chunks = chunks(&io, source.as_ref(), &dataset, &request(&dataset)).unwrap();
    assert_eq!(
        chunks
            .iter()
            .map(|chunk| chunk.batch.num_rows())
            .sum::<usize>(),
        336_776
    );
    let carrier = chunks[0].batch.column_by_name("carrier").unwrap();
    assert_eq!(carrier.as_any_dictionary().values().len(), 15);
}

#[test]
fn taxi() {
    let Some(path) = shared_data("taxi/taxi.csv") else {
        return;
    };
    let all = read("csv", json!({"path": path})).unwrap();
    assert_eq!(all.num_rows(), 15_002);
    let type_of = |name: &str| {
        all.schema()
            .field_with_name(name)
            .unwrap()
            .data_type()
            .clone()
    };
    assert_eq!(type_of("fare"), DataType::Float64);
    assert_eq!(type_of("trip_start_timestamp"), DataType::Int64);
    assert_eq!(type_of("payment_type"), DataType::Utf8);
}
