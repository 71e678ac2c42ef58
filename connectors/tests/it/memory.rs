//! Reading with little memory: less at a time, or a fault before a page is made.

use std::fs::File;
use std::path::Path;
use std::sync::Arc;

use arrow::array::{
    ArrayRef, AsArray, BinaryArray, BooleanArray, DictionaryArray, Int64Array, ListArray,
    ListBuilder, RecordBatch, StringArray, StringBuilder, StructArray,
};
use arrow::buffer::NullBuffer;
use arrow::datatypes::{DataType, Field, Int32Type};
use arrow::ipc::CompressionType;
use arrow::ipc::writer::{FileWriter, IpcWriteOptions, StreamWriter};
use bytes::Bytes;
use forebay_contract::{RowRuns, ScanRequest};
use forebay_model::{Chunk, Span, codes};
use forebay_storage::{MemoryBudget, ReadLease, StorageClient};
use parquet::arrow::ArrowWriter;
use parquet::basic::{Compression, ZstdLevel};
use parquet::column::writer::ColumnCloseResult;
use parquet::file::metadata::ParquetMetaDataReader;
use parquet::file::properties::WriterProperties;
use parquet::file::writer::SerializedFileWriter;
use serde_json::json;

use crate::help::{assert_rows, chunks, keys, request, rows, source, whole};

/// Rows with columns inside of columns.
fn nested_rows(count: usize) -> RecordBatch {
    let plain = rows(0, count);
    let mut words = ListBuilder::new(StringBuilder::new());
    for row in 0..count {
        if row % 11 == 5 {
            words.append_null();
            continue;
        }
        words.append_value((0..row % 4).map(|word| {
            let is_null = (row + word) % 5 == 0;
            (!is_null).then(|| format!("word {word} of row {row}"))
        }));
    }
    let flags =
        BooleanArray::from_iter((0..count).map(|row| (row % 3 != 1).then_some(row % 2 == 0)));
    let inner: Vec<(Arc<Field>, ArrayRef)> = vec![
        (
            Arc::new(Field::new("flag", DataType::Boolean, true)),
            Arc::new(flags),
        ),
        (
            Arc::new(Field::new("number", DataType::Int64, true)),
            Arc::new(Int64Array::from_iter_values(0..count as i64)),
        ),
    ];
    let (fields, arrays): (Vec<_>, Vec<_>) = inner.into_iter().unzip();
    let nulls = NullBuffer::from_iter((0..count).map(|row| row % 13 != 2));
    let object = StructArray::new(fields.into(), arrays, Some(nulls));
    let numbers = ListArray::from_iter_primitive::<Int32Type, _, _>(
        (0..count as i32)
            .map(|row| (row % 4 != 1).then(|| (0..row % 3).map(Some).collect::<Vec<_>>())),
    );
    let more: Vec<(&str, ArrayRef)> = vec![
        ("words", Arc::new(words.finish())),
        ("object", Arc::new(object)),
        ("numbers", Arc::new(numbers)),
    ];
    let plain = plain
        .schema()
        .fields()
        .iter()
        .zip(plain.columns())
        .map(|(field, column)| (field.name().clone(), column.clone()))
        .collect::<Vec<_>>();
    let more = more
        .into_iter()
        .map(|(name, column)| (name.to_owned(), column));
    let columns = plain
        .into_iter()
        .chain(more)
        .map(|(name, column)| (name, column, true));
    RecordBatch::try_from_iter_with_nullable(columns).unwrap()
}

/// Storage whose readers have used up their share of the memory, for as long as the lease is held.
fn used_up() -> (StorageClient, ReadLease) {
    let io = StorageClient::new().unwrap();
    let limit_bytes = 1 << 40;
    io.set_memory(MemoryBudget::new(limit_bytes), 1 << 30);
    let lease = io.read_memory().lease(limit_bytes / 2).unwrap();
    (io, lease)
}

fn write_arrow(file: &Path, batch: &RecordBatch, compression: Option<CompressionType>) {
    let options = IpcWriteOptions::default()
        .try_with_compression(compression)
        .unwrap();
    let file = File::create(file).unwrap();
    let mut writer = FileWriter::try_new_with_options(file, &batch.schema(), options).unwrap();
    writer.write(&batch.slice(0, 3_000)).unwrap();
    writer
        .write(&batch.slice(3_000, batch.num_rows() - 3_000))
        .unwrap();
    writer.finish().unwrap();
}

fn write_parquet(file: &Path, batch: &RecordBatch) {
    let properties = WriterProperties::builder()
        .set_max_row_group_row_count(Some(3_000))
        .set_data_page_row_count_limit(500)
        .set_write_batch_size(100)
        .set_compression(Compression::SNAPPY)
        .build();
    let file = File::create(file).unwrap();
    let mut writer = ArrowWriter::try_new(file, batch.schema(), Some(properties)).unwrap();
    writer.write(batch).unwrap();
    writer.close().unwrap();
}

#[test]
fn readers_without_memory_read_the_same_rows_some_at_a_time() {
    let dir = tempfile::tempdir().unwrap();
    let batch = nested_rows(5_000);
    let at = |name: &str| dir.path().join(name);
    write_parquet(&at("a.parquet"), &batch);
    write_arrow(&at("plain.arrow"), &batch, None);
    write_arrow(&at("zstd.arrow"), &batch, Some(CompressionType::ZSTD));
    write_arrow(&at("lz4.arrow"), &batch, Some(CompressionType::LZ4_FRAME));
    let file = File::create(at("a.arrows")).unwrap();
    let mut writer = StreamWriter::try_new(file, &batch.schema()).unwrap();
    writer.write(&batch).unwrap();
    writer.finish().unwrap();
    // Dictionaries are decoded as a whole.
    let word: DictionaryArray<Int32Type> = (0..5_000).map(|row| ["a", "b", "c"][row % 3]).collect();
    let coded = RecordBatch::try_from_iter([("word", Arc::new(word) as ArrayRef)]).unwrap();
    write_arrow(&at("coded.arrow"), &coded, Some(CompressionType::ZSTD));
    for (format, name) in [
        ("parquet", "a.parquet"),
        ("arrow", "plain.arrow"),
        ("arrow", "zstd.arrow"),
        ("arrow", "lz4.arrow"),
        ("arrow", "a.arrows"),
        ("arrow", "coded.arrow"),
    ] {
        let source = source(format, json!({"path": at(name)}));
        let (io, _lease) = used_up();
        let dataset = source.discover(&io, &[]).unwrap();
        let request = ScanRequest {
            batch_rows: 700,
            ..request(&dataset)
        };
        let read = |io: &StorageClient, request: &ScanRequest| {
            chunks(io, source.as_ref(), &dataset, request).unwrap()
        };
        let expected = read(&StorageClient::new().unwrap(), &request);
        let divided = read(&io, &request);
        assert_rows(&whole(&divided), &whole(&expected));
        assert_eq!(keys(&divided), keys(&expected), "{name}");
        let rows_max = divided.iter().map(|chunk| chunk.batch.num_rows()).max();
        assert!(rows_max <= Some(700), "{name}: {rows_max:?}");
        if name != "coded.arrow" {
            let some = ScanRequest {
                columns: vec!["object".to_owned(), "id".to_owned()],
                ..request
            };
            let expected = read(&StorageClient::new().unwrap(), &some);
            assert_rows(&whole(&read(&io, &some)), &whole(&expected));
        }
    }
}

/// Short columns have few bytes of pages. Their decoders are larger.
#[test]
fn decoders_of_many_short_columns_count() {
    let dir = tempfile::tempdir().unwrap();
    let numbers: ArrayRef = Arc::new(Int64Array::from_iter_values(0..10));
    let columns = (0..2_000).map(|column| (format!("x{column}"), numbers.clone()));
    let batch = RecordBatch::try_from_iter(columns).unwrap();
    write_parquet(&dir.path().join("a.parquet"), &batch);
    let source = source("parquet", json!({"path": dir.path()}));
    let io = StorageClient::new().unwrap();
    let limit_bytes = 1 << 40;
    io.set_memory(MemoryBudget::new(limit_bytes), 1);
    // Half of the memory is for readers: these are left of it.
    let left_bytes = 24 << 20;
    let _lease = io.read_memory().lease(limit_bytes / 2 - left_bytes);
    let dataset = source.discover(&io, &[]).unwrap();
    let request = ScanRequest {
        batch_rows: 4,
        ..request(&dataset)
    };
    let mut scan = source.open(&io, &dataset.spans[0], &request).unwrap();
    let chunk = scan.next().unwrap().unwrap();
    assert_eq!(chunk.batch.num_rows(), 4);
    assert!(io.read_memory().lease(20 << 20).is_none());
    drop(scan);
    assert!(io.read_memory().lease(20 << 20).is_some());
}

#[test]
fn parts_of_row_groups_are_read_without_memory() {
    let dir = tempfile::tempdir().unwrap();
    let batch = nested_rows(5_000);
    write_parquet(&dir.path().join("a.parquet"), &batch);
    let source = source("parquet", json!({"path": dir.path()}));
    let (io, _lease) = used_up();
    let dataset = source.discover(&io, &[]).unwrap();
    let columns = ["id", "text", "words"].map(str::to_owned);
    let runs = RowRuns {
        rows_max: 900,
        columns: &columns,
    };
    let spans: Vec<Span> = source.split_spans(&io, &dataset.spans, Some(runs)).unwrap();
    assert!(spans.len() > 4, "{}", spans.len());
    let request = ScanRequest {
        columns: columns.to_vec(),
        batch_rows: 256,
        ..request(&dataset)
    };
    let read = |io: &StorageClient| {
        let mut all = Vec::new();
        for span in &spans {
            for chunk in source.open(io, span, &request).unwrap() {
                all.push(chunk.unwrap());
            }
        }
        all
    };
    let expected = read(&StorageClient::new().unwrap());
    assert_rows(&whole(&read(&io)), &whole(&expected));
}

#[test]
fn a_page_beyond_the_memory_is_refused_with_its_place() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("a.parquet");
    let rows = 30_000_000;
    let batch = RecordBatch::try_from_iter([
        (
            "small",
            Arc::new(BooleanArray::from(vec![true; 10])) as ArrayRef,
        ),
        ("large", Arc::new(Int64Array::from(vec![0; 10]))),
    ])
    .unwrap();
    let properties = WriterProperties::builder()
        .set_dictionary_enabled(false)
        .set_compression(Compression::ZSTD(ZstdLevel::default()))
        .set_data_page_size_limit(1 << 30)
        .set_data_page_row_count_limit(rows)
        .set_max_row_group_row_count(Some(rows))
        .build();
    let writer = File::create(&file).unwrap();
    let mut writer = ArrowWriter::try_new(writer, batch.schema(), Some(properties)).unwrap();
    writer.write(&batch).unwrap();
    writer.flush().unwrap();
    let columns: [(&str, ArrayRef); 2] = [
        ("small", Arc::new(BooleanArray::from(vec![true; rows]))),
        ("large", Arc::new(Int64Array::from(vec![0; rows]))),
    ];
    writer
        .write(&RecordBatch::try_from_iter(columns).unwrap())
        .unwrap();
    writer.close().unwrap();
    assert!(std::fs::metadata(&file).unwrap().len() < 1 << 20);
    let source = source("parquet", json!({"path": file}));
    let io = StorageClient::new().unwrap();
    let dataset = source.discover(&io, &[]).unwrap();
    io.set_memory(MemoryBudget::new(64 << 20), 1);
    let request = ScanRequest {
        columns: vec!["large".to_owned()],
        ..request(&dataset)
    };
    let fault = chunks(&io, source.as_ref(), &dataset, &request).unwrap_err();
    assert_eq!(fault.code(), codes::MEMORY, "{fault:?}");
    let site = fault.site();
    assert_eq!(site.row_group, Some(1), "{fault:?}");
    assert_eq!(site.column.as_deref(), Some("large"), "{fault:?}");
    let message = fault.message();
    assert!(message.starts_with("a page of 228 MiB needs"), "{message}");
    let hint = fault.hint_text().unwrap();
    assert!(hint.contains("--memory"), "{hint}");
}

/// Each row would get a copy of its value: 64 MiB in one batch.
#[test]
fn values_that_rows_share_are_copied_to_few_rows_at_a_time() {
    let dir = tempfile::tempdir().unwrap();
    let values = [vec![1u8; 32 << 10], vec![2u8; 32 << 10]];
    let values = BinaryArray::from(vec![&values[0][..], &values[1][..]]);
    let keys: Vec<i32> = (0..2_000).map(|row| row % 2).collect();
    let coded = DictionaryArray::<Int32Type>::new(keys.into(), Arc::new(values));
    let numbers: Int64Array = (0..2_000).collect();
    let columns: [(&str, ArrayRef); 2] = [("bytes", Arc::new(coded)), ("n", Arc::new(numbers))];
    let batch = RecordBatch::try_from_iter(columns).unwrap();
    let arrow = dir.path().join("a.arrow");
    let options = IpcWriteOptions::default();
    let file = File::create(&arrow).unwrap();
    let mut writer = FileWriter::try_new_with_options(file, &batch.schema(), options).unwrap();
    writer.write(&batch).unwrap();
    writer.finish().unwrap();
    let parquet = dir.path().join("a.parquet");
    let file = File::create(&parquet).unwrap();
    let mut writer = ArrowWriter::try_new(file, batch.schema(), None).unwrap();
    writer.write(&batch).unwrap();
    writer.close().unwrap();
    for (format, path) in [("arrow", arrow), ("parquet", parquet)] {
        assert!(std::fs::metadata(&path).unwrap().len() < 1 << 20);
        let source = source(format, json!({"path": path}));
        let io = StorageClient::new().unwrap();
        io.set_memory(MemoryBudget::new(1 << 30), 16);
        let dataset = source.discover(&io, &[]).unwrap();
        let chunks = chunks(&io, source.as_ref(), &dataset, &request(&dataset)).unwrap();
        let rows_max = chunks.iter().map(|chunk| chunk.batch.num_rows()).max();
        assert!(rows_max <= Some(256), "{format}: {rows_max:?}");
        let first_rows: Vec<u64> = chunks.iter().map(|chunk| chunk.first_row).collect();
        assert!(first_rows.is_sorted(), "{format}: {first_rows:?}");
        assert_rows(&whole(&chunks), &whole(&[Chunk::of(batch.clone())]));
    }
}

/// Batches with dictionaries are decoded as a whole, and their compressed bytes tell nothing of their size.
#[test]
fn a_small_batch_that_becomes_large_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("a.arrow");
    let keys = vec![0i32; 60_000_000];
    let values = BinaryArray::from(vec![&b"x"[..]]);
    let coded = DictionaryArray::<Int32Type>::new(keys.into(), Arc::new(values));
    let batch = RecordBatch::try_from_iter([("b", Arc::new(coded) as ArrayRef)]).unwrap();
    let options = IpcWriteOptions::default()
        .try_with_compression(Some(CompressionType::ZSTD))
        .unwrap();
    let file = File::create(&path).unwrap();
    let mut writer = FileWriter::try_new_with_options(file, &batch.schema(), options).unwrap();
    writer.write(&batch).unwrap();
    writer.finish().unwrap();
    drop((writer, batch));
    assert!(std::fs::metadata(&path).unwrap().len() < 1 << 20);
    let source = source("arrow", json!({"path": path}));
    let io = StorageClient::new().unwrap();
    let dataset = source.discover(&io, &[]).unwrap();
    let limit_bytes = 64 << 20;
    io.set_memory(MemoryBudget::new(limit_bytes), 1);
    let _lease = io.read_memory().lease(limit_bytes / 2).unwrap();
    let fault = chunks(&io, source.as_ref(), &dataset, &request(&dataset)).unwrap_err();
    assert_eq!(fault.code(), codes::MEMORY, "{fault:?}");
    let message = fault.message();
    assert!(message.starts_with("decoding batch 0 needs"), "{message}");
}

/// Texts inside of lists are stored once, and each list gets a copy.
#[test]
fn lists_of_texts_that_are_stored_once_are_read_some_rows_at_a_time() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("a.parquet");
    let text = "x".repeat(32 << 10);
    let mut lists = ListBuilder::new(StringBuilder::new());
    for _ in 0..500 {
        lists.append_value([Some(&text), Some(&text)]);
    }
    let columns = [("texts", Arc::new(lists.finish()) as ArrayRef)];
    let batch = RecordBatch::try_from_iter(columns).unwrap();
    let file = File::create(&path).unwrap();
    let mut writer = ArrowWriter::try_new(file, batch.schema(), None).unwrap();
    writer.write(&batch).unwrap();
    writer.close().unwrap();
    assert!(std::fs::metadata(&path).unwrap().len() < 1 << 20);
    let source = source("parquet", json!({"path": path}));
    let io = StorageClient::new().unwrap();
    // A chunk has 8 MiB, and a row 64 KiB.
    io.set_memory(MemoryBudget::new(1 << 30), 16);
    let dataset = source.discover(&io, &[]).unwrap();
    let read = chunks(&io, source.as_ref(), &dataset, &request(&dataset)).unwrap();
    let rows_max = read.iter().map(|chunk| chunk.batch.num_rows()).max();
    assert!(rows_max <= Some(128), "{rows_max:?}");
    assert_eq!(whole(&read).num_rows(), 500);
}

/// Writes a file again, without the lengths that the texts of its columns have in all rows: older writers do not tell
/// them.
fn remove_size_statistics(path: &Path) {
    let bytes = Bytes::from(std::fs::read(path).unwrap());
    let metadata = ParquetMetaDataReader::new()
        .parse_and_finish(&bytes)
        .unwrap();
    let schema = metadata.file_metadata().schema_descr().root_schema_ptr();
    let file = File::create(path).unwrap();
    let mut writer = SerializedFileWriter::new(file, schema, Arc::default()).unwrap();
    for group in metadata.row_groups() {
        let mut appended = writer.next_row_group().unwrap();
        for column in group.columns() {
            let without_sizes = column
                .clone()
                .into_builder()
                .set_unencoded_byte_array_data_bytes(None);
            let close = ColumnCloseResult {
                bytes_written: column.compressed_size() as u64,
                rows_written: group.num_rows() as u64,
                metadata: without_sizes.build().unwrap(),
                bloom_filter: None,
                column_index: None,
                offset_index: None,
            };
            appended.append_column(&bytes, close).unwrap();
        }
        appended.close().unwrap();
    }
    writer.close().unwrap();
}

/// Each row would get copies of its texts: 96 KiB, of which the footer tells nothing.
#[test]
fn nested_texts_of_unknown_size_are_read_some_rows_at_a_time() {
    const ROWS: usize = 500;
    const TEXT_BYTES: usize = 32 << 10;
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("a.parquet");
    let text = "x".repeat(TEXT_BYTES);
    let mut lists = ListBuilder::new(StringBuilder::new());
    for _ in 0..ROWS {
        lists.append_value([Some(&text), Some(&text)]);
    }
    let texts: ArrayRef = Arc::new(StringArray::from_iter_values(vec![&text; ROWS]));
    let field = Arc::new(Field::new("text", DataType::Utf8, true));
    let columns: [(&str, ArrayRef); 2] = [
        ("lists", Arc::new(lists.finish())),
        ("object", Arc::new(StructArray::from(vec![(field, texts)]))),
    ];
    let batch = RecordBatch::try_from_iter(columns).unwrap();
    let file = File::create(&path).unwrap();
    let mut writer = ArrowWriter::try_new(file, batch.schema(), None).unwrap();
    writer.write(&batch).unwrap();
    writer.close().unwrap();
    drop(batch);
    remove_size_statistics(&path);
    assert!(std::fs::metadata(&path).unwrap().len() < 1 << 20);
    let source = source("parquet", json!({"path": path}));
    let io = StorageClient::new().unwrap();
    // A chunk has 8 MiB.
    io.set_memory(MemoryBudget::new(1 << 30), 16);
    let dataset = source.discover(&io, &[]).unwrap();
    let mut rows = 0;
    for chunk in chunks(&io, source.as_ref(), &dataset, &request(&dataset)).unwrap() {
        let chunk_rows = chunk.batch.num_rows();
        assert!(chunk_rows * 3 * TEXT_BYTES <= 8 << 20, "{chunk_rows} rows");
        let lists = chunk.batch.column_by_name("lists").unwrap();
        let items = lists.as_list::<i32>().values().as_string::<i32>();
        assert_eq!(items.values().len(), chunk_rows * 2 * TEXT_BYTES);
        let object = chunk.batch.column_by_name("object").unwrap();
        let texts = object.as_struct().column(0).as_string::<i32>();
        assert_eq!(texts.value(0), text);
        rows += chunk_rows;
    }
    assert_eq!(rows, ROWS);
}
