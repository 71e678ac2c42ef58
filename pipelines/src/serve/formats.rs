//! Tables in the bodies of requests and answers: rows of JSON, CSV, Parquet, Arrow streams.

use std::collections::{BTreeMap, BTreeSet};
use std::io::Cursor;
use std::sync::Arc;

use arrow::array::{
    ArrayRef, BooleanArray, Float64Array, Int64Array, RecordBatch, StringArray, UInt64Array,
    new_null_array,
};
use arrow::compute::concat_batches;
use arrow::datatypes::{DataType, Field, Schema};
use arrow::error::ArrowError;
use arrow::ipc::writer::StreamWriter;
use bytes::Bytes;
use forebay_connectors::{RequestFormat, read_request};
use forebay_model::{check_times_have_texts, first_repeated};
use serde_json::{Map, Value};

use super::body::{off_network, sized_work};
use super::error::ServeError;
use super::model::EXACT_INTEGERS_FLOAT64;
use super::service::ServeService;

/// Content type of Arrow streams.
pub(super) const ARROW_STREAM: &str = "application/vnd.apache.arrow.stream";

/// Bytes of a value as text, about.
const VALUE_BYTES: usize = 16;

/// Columns by name.
pub(super) type NamedColumns = BTreeMap<String, ArrayRef>;

/// The columns of a batch.
pub(super) fn columns_of(batch: &RecordBatch) -> NamedColumns {
    let fields = batch.schema_ref().fields().iter();
    let names = fields.map(|field| field.name().clone());
    names.zip(batch.columns().iter().cloned()).collect()
}

/// Reads an Arrow stream or a Parquet file. It may wait for memory that other readers have taken.
pub(super) async fn read_file(
    service: &ServeService,
    format: RequestFormat,
    bytes: &Bytes,
) -> Result<RecordBatch, ServeError> {
    let reader = service.reader.clone();
    let bytes = bytes.clone();
    let rows_max = service.limits.request_rows;
    off_network(service, move || {
        let rows = read_request(&reader, format, bytes, rows_max)?;
        rows.ok_or_else(|| too_many_rows(rows_max))
    })
    .await
}

/// An Arrow stream of one batch.
pub(super) async fn write_arrow(
    service: &ServeService,
    rows: RecordBatch,
) -> Result<Vec<u8>, ServeError> {
    let bytes = value_bytes(&rows);
    sized_work(service, bytes, move || {
        arrow_stream(&rows).map_err(|error| ServeError::internal(error.to_string()))
    })
    .await
}

fn arrow_stream(rows: &RecordBatch) -> Result<Vec<u8>, ArrowError> {
    let mut writer = StreamWriter::try_new(Vec::new(), rows.schema_ref())?;
    writer.write(rows)?;
    writer.into_inner()
}

/// Bytes of rows as text, about.
pub(super) fn value_bytes(rows: &RecordBatch) -> usize {
    rows.num_rows() * rows.num_columns() * VALUE_BYTES
}

/// Reads CSV with a header. All values are texts, which the inputs' types parse; an empty field is missing.
pub(super) fn read_csv(bytes: &Bytes, rows_max: usize) -> Result<RecordBatch, ServeError> {
    let broken = |error: arrow::error::ArrowError| {
        ServeError::bad_request(format!("the CSV cannot be read: {error}"))
    };
    let format = arrow::csv::reader::Format::default().with_header(true);
    let (schema, _) = format
        .infer_schema(Cursor::new(bytes), Some(0))
        .map_err(broken)?;
    if let Some(name) = first_repeated(schema.fields().iter().map(|field| field.name().as_str())) {
        let message = format!("two columns of the CSV are called `{name}`");
        return Err(ServeError::bad_request(message));
    }
    let fields = schema.fields().iter();
    let fields = fields.map(|field| Field::new(field.name(), DataType::Utf8, true));
    let schema = Arc::new(Schema::new(fields.collect::<Vec<_>>()));
    let reader = arrow::csv::ReaderBuilder::new(schema.clone())
        .with_header(true)
        .build(Cursor::new(bytes))
        .map_err(broken)?;
    let mut batches = Vec::new();
    let mut rows = 0;
    for batch in reader {
        let batch = batch.map_err(broken)?;
        rows += batch.num_rows();
        check_rows(rows, rows_max)?;
        batches.push(batch);
    }
    concat_batches(&schema, &batches).map_err(broken)
}

/// Columns of rows that are objects; an absent field is null.
pub(super) fn columns_of_records(
    records: &[Map<String, Value>],
) -> Result<NamedColumns, ServeError> {
    let names: BTreeSet<&String> = records.iter().flat_map(Map::keys).collect();
    let mut columns = NamedColumns::new();
    for name in names {
        let values: Vec<&Value> = records
            .iter()
            .map(|record| record.get(name).unwrap_or(&Value::Null))
            .collect();
        columns.insert(name.clone(), column_of_values(name, &values)?);
    }
    Ok(columns)
}

/// Columns of an object of lists.
pub(super) fn columns_of_lists(lists: &Map<String, Value>) -> Result<NamedColumns, ServeError> {
    let mut columns = NamedColumns::new();
    for (name, values) in lists {
        let values = values
            .as_array()
            .ok_or_else(|| ServeError::bad_request(format!("`{name}` is no list of values")))?;
        let values: Vec<&Value> = values.iter().collect();
        columns.insert(name.clone(), column_of_values(name, &values)?);
    }
    let mut lengths = columns.values().map(|column| column.len());
    let first = lengths.next();
    if lengths.any(|length| Some(length) != first) {
        return Err(ServeError::bad_request(
            "the columns have different lengths",
        ));
    }
    Ok(columns)
}

/// A column of values of one kind; null fits every kind.
pub(super) fn column_of_values(name: &str, values: &[&Value]) -> Result<ArrayRef, ServeError> {
    let present: Vec<&Value> = values
        .iter()
        .copied()
        .filter(|value| !value.is_null())
        .collect();
    if present.is_empty() {
        return Ok(new_null_array(&DataType::Null, values.len()));
    }
    let have_kind = |is_of_kind: fn(&Value) -> bool| present.iter().all(|value| is_of_kind(value));
    if have_kind(Value::is_i64) {
        return Ok(Arc::new(Int64Array::from_iter(
            values.iter().map(|value| value.as_i64()),
        )));
    }
    if have_kind(Value::is_u64) {
        return Ok(Arc::new(UInt64Array::from_iter(
            values.iter().map(|value| value.as_u64()),
        )));
    }
    if let Some(numbers) = whole_numbers(values) {
        return Ok(Arc::new(Int64Array::from(numbers)));
    }
    if have_kind(Value::is_number) {
        return Ok(Arc::new(Float64Array::from_iter(
            values.iter().map(|value| value.as_f64()),
        )));
    }
    if have_kind(Value::is_boolean) {
        return Ok(Arc::new(BooleanArray::from_iter(
            values.iter().map(|value| value.as_bool()),
        )));
    }
    if have_kind(Value::is_string) {
        return Ok(Arc::new(StringArray::from_iter(
            values.iter().map(|value| value.as_str()),
        )));
    }
    Err(ServeError::bad_request(format!(
        "`{name}` has values of several kinds, or lists, which JSON rows cannot hold; send an \
         Arrow stream"
    )))
}

/// Integers beside numbers such as `1.0` and `1e3`, which some programs write for whole ones. As floats, large integers
/// among them would be others.
fn whole_numbers(values: &[&Value]) -> Option<Vec<Option<i64>>> {
    let has_integer = values.iter().any(|value| value.is_i64());
    if !has_integer {
        return None;
    }
    let mut numbers = Vec::with_capacity(values.len());
    for value in values {
        numbers.push(if value.is_null() {
            None
        } else {
            Some(whole_number(value)?)
        });
    }
    Some(numbers)
}

fn whole_number(value: &Value) -> Option<i64> {
    if let Some(integer) = value.as_i64() {
        return Some(integer);
    }
    let number = value.as_f64()?;
    let is_whole = number.fract() == 0.0 && number.abs() < EXACT_INTEGERS_FLOAT64;
    // Integers have no negative zero.
    let is_negative_zero = number == 0.0 && number.is_sign_negative();
    (is_whole && !is_negative_zero).then_some(number as i64)
}

/// An object of JSON whose only field holds rows as a list of objects; null where there is no value.
pub(super) async fn write_named_records(
    service: &ServeService,
    field: &'static str,
    rows: RecordBatch,
) -> Result<Vec<u8>, ServeError> {
    let bytes = value_bytes(&rows);
    sized_work(service, bytes, move || {
        check_times_have_texts(&rows)?;
        named_records(field, &rows).map_err(|error| ServeError::internal(error.to_string()))
    })
    .await
}

fn named_records(field: &str, rows: &RecordBatch) -> Result<Vec<u8>, ArrowError> {
    let mut text = format!("{{\"{field}\":").into_bytes();
    if rows.num_rows() == 0 {
        text.extend(b"[]}");
        return Ok(text);
    }
    let mut writer = arrow::json::WriterBuilder::new()
        .with_explicit_nulls(true)
        .build::<_, arrow::json::writer::JsonArray>(text);
    writer.write(rows)?;
    writer.finish()?;
    let mut text = writer.into_inner();
    text.push(b'}');
    Ok(text)
}

fn check_rows(rows: usize, most: usize) -> Result<(), ServeError> {
    if rows <= most {
        return Ok(());
    }
    Err(too_many_rows(most))
}

fn too_many_rows(most: usize) -> ServeError {
    ServeError::too_large(format!(
        "the request has more than {most} rows; send several requests"
    ))
}

#[cfg(test)]
mod tests {
    use arrow::array::{Array, AsArray};
    use serde_json::json;

    use super::*;

    #[test]
    fn columns_of_json_have_the_kind_of_their_values() {
        let types = [
            (json!([1, null, -3]), DataType::Int64),
            (json!([1, u64::MAX]), DataType::UInt64),
            (json!([1, 2.5]), DataType::Float64),
            (json!([1, null, 2e3]), DataType::Int64),
            (json!([1, -0.0]), DataType::Float64),
            (json!([1.0, null]), DataType::Float64),
            (json!([i64::MAX, 1e300]), DataType::Float64),
            (json!([true, null]), DataType::Boolean),
            (json!(["a", null]), DataType::Utf8),
            (json!([null, null]), DataType::Null),
        ];
        for (values, data_type) in types {
            let values: Vec<&Value> = values.as_array().unwrap().iter().collect();
            let column = column_of_values("x", &values).unwrap();
            assert_eq!(*column.data_type(), data_type);
            assert_eq!(column.len(), values.len());
        }
        let large = [json!(9_007_199_254_740_993_i64), json!(1e15)];
        let column = column_of_values("x", &large.iter().collect::<Vec<_>>()).unwrap();
        let numbers = column.as_primitive::<arrow::datatypes::Int64Type>();
        assert_eq!(
            numbers.values(),
            &[9_007_199_254_740_993, 1_000_000_000_000_000]
        );
        let mixed = [json!(1), json!("a")];
        assert!(column_of_values("x", &mixed.iter().collect::<Vec<_>>()).is_err());
    }

    #[test]
    fn absent_fields_are_null() {
        let records = json!([{ "a": 1 }, { "b": "x" }]);
        let records: Vec<Map<String, Value>> = serde_json::from_value(records).unwrap();
        let columns = columns_of_records(&records).unwrap();
        assert!(columns["a"].is_null(1) && columns["b"].is_null(0));
    }

    #[test]
    fn csv_keeps_texts_and_takes_empty_fields_for_missing() {
        let rows = read_csv(&Bytes::from_static(b"day,item\n2016-05-22,a\n,b\n"), 10).unwrap();
        assert_eq!(rows.num_rows(), 2);
        assert_eq!(rows["day"].as_string::<i32>().value(0), "2016-05-22");
        assert!(rows["day"].is_null(1));
        assert!(read_csv(&Bytes::from_static(b"a\n1\n2\n"), 1).is_err());
        assert!(read_csv(&Bytes::from_static(b"a,a\n1,2\n"), 10).is_err());
    }
}
