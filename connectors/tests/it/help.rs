//! Helpers of all tests.

use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use arrow::array::{
    ArrayRef, BooleanArray, Date32Array, Float64Array, Int32Array, Int64Array, RecordBatch,
    StringArray,
};
use arrow::compute::{cast, concat_batches};
use arrow::datatypes::{Field, Schema};
use forebay_connectors::BuiltInConnectors;
use forebay_contract::{ConnectorRegistry, ScanRequest, Source};
use forebay_model::{Chunk, Dataset, Result, logical_type};
use forebay_storage::StorageClient;
use serde_json::Value;

/// Rows of every type that all formats know: one in seven is null, except for `id`.
pub fn rows(from: i64, count: usize) -> RecordBatch {
    let all = || from..from + count as i64;
    let some = |i: i64| i % 7 != 3;
    let columns: Vec<(&str, ArrayRef)> = vec![
        ("id", Arc::new(Int64Array::from_iter_values(all()))),
        (
            "small",
            Arc::new(Int32Array::from_iter(
                all().map(|i| some(i).then_some((i % 100) as i32)),
            )),
        ),
        (
            "x",
            Arc::new(Float64Array::from_iter(
                all().map(|i| some(i).then_some(i as f64 / 8.0)),
            )),
        ),
        (
            "word",
            Arc::new(StringArray::from_iter(
                all().map(|i| some(i).then(|| format!("word {}", i % 10))),
            )),
        ),
        (
            "text",
            Arc::new(StringArray::from_iter(
                all().map(|i| some(i).then(|| format!("a text, number {i}"))),
            )),
        ),
        (
            "flag",
            Arc::new(BooleanArray::from_iter(
                all().map(|i| some(i).then_some(i % 2 == 0)),
            )),
        ),
        (
            "day",
            Arc::new(Date32Array::from_iter(
                all().map(|i| some(i).then_some((i / 100) as i32)),
            )),
        ),
    ];
    let nullable = columns
        .into_iter()
        .map(|(name, array)| (name, array, name != "id"));
    RecordBatch::try_from_iter_with_nullable(nullable).unwrap()
}

pub fn source(format: &str, config: Value) -> Arc<dyn Source> {
    BuiltInConnectors.source(format, &config).unwrap()
}

/// Writes batches as one file of a sink, one encoded part per batch.
pub fn write(format: &str, config: Value, file: &Path, batches: &[RecordBatch]) {
    let sink = BuiltInConnectors.sink(format, &config).unwrap();
    let schema = batches[0].schema();
    fs::create_dir_all(file.parent().unwrap()).unwrap();
    let mut writer = sink
        .open_writer(&schema, Box::new(fs::File::create(file).unwrap()))
        .unwrap();
    for batch in batches {
        let part = sink.encode(&schema, std::slice::from_ref(batch)).unwrap();
        writer.append(part).unwrap();
    }
    writer.finish().unwrap();
}

pub fn request(dataset: &Dataset) -> ScanRequest {
    ScanRequest {
        columns: dataset
            .schema
            .fields()
            .iter()
            .map(|field| field.name().clone())
            .collect(),
        schema: dataset.schema.clone(),
        pruning: Vec::new(),
        batch_rows: 8192,
        row_keys: true,
    }
}

/// All chunks of all spans.
pub fn chunks(
    io: &StorageClient,
    source: &dyn Source,
    dataset: &Dataset,
    request: &ScanRequest,
) -> Result<Vec<Chunk>> {
    let mut all = Vec::new();
    for span in &dataset.spans {
        for chunk in source.open(io, span, request)? {
            all.push(chunk?);
        }
    }
    Ok(all)
}

/// Chunks as one batch in logical types.
pub fn whole(chunks: &[Chunk]) -> RecordBatch {
    let plain = |chunk: &Chunk| {
        let schema = chunk.batch.schema();
        let fields: Vec<_> = schema
            .fields()
            .iter()
            .map(|field| Field::new(field.name(), logical_type(field.data_type()), true))
            .collect();
        let columns = chunk
            .batch
            .columns()
            .iter()
            .zip(&fields)
            .map(|(column, field)| cast(column, field.data_type()).unwrap());
        RecordBatch::try_new(Arc::new(Schema::new(fields.clone())), columns.collect()).unwrap()
    };
    let batches: Vec<_> = chunks.iter().map(plain).collect();
    concat_batches(&batches[0].schema(), &batches).unwrap()
}

/// Reads everything that a source has.
pub fn read(format: &str, config: Value) -> Result<RecordBatch> {
    let io = StorageClient::new().unwrap();
    let source = BuiltInConnectors.source(format, &config)?;
    let dataset = source.discover(&io, &[])?;
    let chunks = chunks(&io, source.as_ref(), &dataset, &request(&dataset))?;
    if chunks.is_empty() {
        return Ok(RecordBatch::new_empty(dataset.schema));
    }
    Ok(whole(&chunks))
}

/// Compares rows; nullability in the schemas may differ.
pub fn assert_rows(read: &RecordBatch, written: &RecordBatch) {
    assert_eq!(read.num_rows(), written.num_rows());
    let names = |batch: &RecordBatch| {
        batch
            .schema()
            .fields()
            .iter()
            .map(|field| field.name().clone())
            .collect::<Vec<_>>()
    };
    assert_eq!(names(read), names(written));
    for ((a, b), name) in read
        .columns()
        .iter()
        .zip(written.columns())
        .zip(names(written))
    {
        assert_eq!(a, b, "column {name}");
    }
}

pub fn keys(chunks: &[Chunk]) -> Vec<u64> {
    chunks
        .iter()
        .flat_map(|chunk| chunk.keys.as_ref().unwrap().as_slice().to_vec())
        .collect()
}

/// Real data, when it is there.
pub fn shared_data(name: &str) -> Option<PathBuf> {
    let root = std::env::var_os("FOREBAY_SHARED_DATA").map(PathBuf::from);
    let root =
        root.unwrap_or_else(|| Path::new(env!("CARGO_MANIFEST_DIR")).join("../../shared/data"));
    let path = root.join(name);
    if !path.exists() {
        // Not by the macro: the harness would keep it for tests that fail.
        let _ = writeln!(
            std::io::stderr(),
            "skipped: there is no {}; set FOREBAY_SHARED_DATA",
            path.display()
        );
        return None;
    }
    Some(path)
}
