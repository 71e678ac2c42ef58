//! Files that clients send in requests: the rows that were sent, or a fault.

use std::sync::Arc;

use arrow::array::{
    ArrayRef, AsArray, Int32Array, ListArray, RecordBatch, StringArray, StringDictionaryBuilder,
};
use arrow::compute::cast;
use arrow::datatypes::{DataType, Field, Int32Type, Schema, TimestampMicrosecondType};
use arrow::ipc::CompressionType;
use arrow::ipc::writer::{IpcWriteOptions, StreamWriter};
use bytes::Bytes;
use forebay_connectors::{RequestFormat, read_request};
use forebay_model::codes;
use forebay_storage::StorageClient;
use parquet::arrow::ArrowWriter;
use parquet::basic::{Compression, Encoding, ZstdLevel};
use parquet::data_type::{Int96, Int96Type};
use parquet::file::properties::{WriterProperties, WriterVersion};
use parquet::file::writer::SerializedFileWriter;
use parquet::schema::parser::parse_message_type;

/// Memory of readers in these tests.
const MEMORY_BYTES: u64 = 256 << 20;

fn client() -> StorageClient {
    let io = StorageClient::new().unwrap();
    io.read_memory().set_limit(MEMORY_BYTES, 1);
    io
}

fn sample_rows() -> RecordBatch {
    let texts: StringArray = (0..100).map(|i| Some(format!("word {i}"))).collect();
    let mut coded = StringDictionaryBuilder::<Int32Type>::new();
    coded.extend((0..100).map(|i| Some(["a", "bb"][i % 2])));
    RecordBatch::try_from_iter([
        (
            "id",
            Arc::new(Int32Array::from_iter_values(0..100)) as ArrayRef,
        ),
        ("word", Arc::new(texts)),
        ("coded", Arc::new(coded.finish())),
    ])
    .unwrap()
}

fn parquet_bytes(version: WriterVersion, encoding: Encoding) -> Vec<u8> {
    let properties = WriterProperties::builder()
        .set_writer_version(version)
        .set_dictionary_enabled(false)
        .set_column_encoding("word".into(), encoding)
        .set_data_page_row_count_limit(50)
        .set_write_batch_size(10)
        .build();
    let mut bytes = Vec::new();
    let rows = sample_rows();
    let mut writer = ArrowWriter::try_new(&mut bytes, rows.schema(), Some(properties)).unwrap();
    writer.write(&rows).unwrap();
    writer.close().unwrap();
    bytes
}

fn arrow_bytes(compression: Option<CompressionType>) -> Vec<u8> {
    let options = IpcWriteOptions::default()
        .try_with_compression(compression)
        .unwrap();
    let rows = sample_rows();
    let mut writer =
        StreamWriter::try_new_with_options(Vec::new(), rows.schema_ref(), options).unwrap();
    writer.write(&rows).unwrap();
    writer.into_inner().unwrap()
}

#[test]
fn rows_are_those_that_were_sent() {
    let io = client();
    let sent = sample_rows();
    let mut requests = vec![
        (RequestFormat::Arrow, arrow_bytes(None)),
        (
            RequestFormat::Arrow,
            arrow_bytes(Some(CompressionType::ZSTD)),
        ),
        (
            RequestFormat::Arrow,
            arrow_bytes(Some(CompressionType::LZ4_FRAME)),
        ),
    ];
    for version in [WriterVersion::PARQUET_1_0, WriterVersion::PARQUET_2_0] {
        for encoding in [
            Encoding::PLAIN,
            Encoding::DELTA_LENGTH_BYTE_ARRAY,
            Encoding::DELTA_BYTE_ARRAY,
        ] {
            requests.push((RequestFormat::Parquet, parquet_bytes(version, encoding)));
        }
    }
    for (format, bytes) in requests {
        let bytes = Bytes::from(bytes);
        let read = read_request(&io, format, bytes.clone(), 100)
            .unwrap()
            .unwrap();
        assert_eq!(read.num_rows(), 100, "{format:?}");
        for (column, field) in sent.columns().iter().zip(sent.schema_ref().fields()) {
            let read = cast(read.column_by_name(field.name()).unwrap(), &DataType::Utf8).unwrap();
            let column = cast(column, &DataType::Utf8).unwrap();
            assert_eq!(&read, &column, "{format:?}, {}", field.name());
        }
        let too_many = read_request(&io, format, bytes, 99).unwrap();
        assert!(too_many.is_none(), "{format:?}");
    }
}

#[test]
fn lists_in_several_pages_are_those_that_were_sent() {
    let lists = (0..100_i32).map(|row| Some((0..row % 7).map(Some).collect::<Vec<_>>()));
    let lists: ArrayRef = Arc::new(ListArray::from_iter_primitive::<Int32Type, _, _>(lists));
    let sent = RecordBatch::try_from_iter([("lists", lists)]).unwrap();
    for version in [WriterVersion::PARQUET_1_0, WriterVersion::PARQUET_2_0] {
        let properties = WriterProperties::builder()
            .set_writer_version(version)
            .set_compression(Compression::ZSTD(ZstdLevel::default()))
            .set_dictionary_enabled(false)
            .set_data_page_row_count_limit(10)
            .set_write_batch_size(5)
            .build();
        let mut bytes = Vec::new();
        let mut writer = ArrowWriter::try_new(&mut bytes, sent.schema(), Some(properties)).unwrap();
        writer.write(&sent).unwrap();
        writer.close().unwrap();
        // At the end of a page, the decoder looks at the header of the next one before it reads that page.
        let read = read_request(&client(), RequestFormat::Parquet, bytes.into(), 100);
        let rows = read.unwrap().unwrap();
        assert_eq!(rows.columns(), sent.columns(), "{version:?}");
    }
}

#[test]
fn columns_of_one_name_are_refused() {
    let column: ArrayRef = Arc::new(Int32Array::from(vec![1, 2]));
    let field = Field::new("a", DataType::Int32, false);
    let schema = Arc::new(Schema::new(vec![field.clone(), field]));
    let rows = RecordBatch::try_new(schema.clone(), vec![column.clone(), column]).unwrap();
    let mut arrow = StreamWriter::try_new(Vec::new(), &schema).unwrap();
    arrow.write(&rows).unwrap();
    let mut parquet = ArrowWriter::try_new(Vec::new(), schema, None).unwrap();
    parquet.write(&rows).unwrap();
    let requests = [
        (RequestFormat::Arrow, arrow.into_inner().unwrap()),
        (RequestFormat::Parquet, parquet.into_inner().unwrap()),
    ];
    for (format, bytes) in requests {
        let read = read_request(&client(), format, bytes.into(), 100);
        let fault = read.err().unwrap();
        assert_eq!(fault.code(), codes::DUPLICATE, "{format:?}: {fault:?}");
        assert_eq!(fault.site().column.as_deref(), Some("a"));
    }
}

#[test]
fn times_of_type_int96_do_not_wrap_around() {
    let schema = parse_message_type("message m { optional int96 at; }").unwrap();
    let mut bytes = Vec::new();
    let mut writer =
        SerializedFileWriter::new(&mut bytes, Arc::new(schema), Default::default()).unwrap();
    let mut group = writer.next_row_group().unwrap();
    let mut column = group.next_column().unwrap().unwrap();
    // 9999-12-31, the usual end of an open row.
    let mut far = Int96::new();
    far.set_data(0, 0, 5_373_484);
    column
        .typed::<Int96Type>()
        .write_batch(&[far], Some(&[1]), None)
        .unwrap();
    column.close().unwrap();
    group.close().unwrap();
    writer.close().unwrap();
    let read = read_request(&client(), RequestFormat::Parquet, bytes.into(), 1)
        .unwrap()
        .unwrap();
    let at = read.column(0).as_primitive::<TimestampMicrosecondType>();
    assert_eq!(at.value(0), 253_402_214_400_000_000);
}

/// Positions at which lists of packed lengths begin: 128 lengths a block, in 4 parts.
fn lengths_headers(bytes: &[u8]) -> Vec<usize> {
    let begins = |at: &usize| bytes[*at..].starts_with(&[0x80, 0x01, 4]);
    (0..bytes.len()).filter(begins).collect()
}

/// More lengths than any machine has memory for.
const ENDLESS_COUNT: [u8; 5] = [0xff, 0xff, 0xff, 0xff, 0x7f];

#[test]
fn pages_with_more_lengths_than_values_are_refused() {
    let io = client();
    for version in [WriterVersion::PARQUET_1_0, WriterVersion::PARQUET_2_0] {
        for (encoding, lists) in [
            (Encoding::DELTA_LENGTH_BYTE_ARRAY, 1),
            (Encoding::DELTA_BYTE_ARRAY, 2),
        ] {
            let bytes = parquet_bytes(version, encoding);
            let headers = lengths_headers(&bytes);
            assert!(headers.len() >= 2 * lists, "{headers:?}");
            for header in headers {
                let mut damaged = bytes.clone();
                damaged[header + 3..header + 8].copy_from_slice(&ENDLESS_COUNT);
                let read = read_request(&io, RequestFormat::Parquet, damaged.into(), 100);
                let fault = read.err().unwrap();
                assert_eq!(fault.code(), codes::CORRUPT, "{fault:?}");
            }
        }
    }
}

#[test]
fn buffers_that_become_more_than_they_can_are_refused() {
    let io = client();
    for compression in [CompressionType::ZSTD, CompressionType::LZ4_FRAME] {
        let bytes = arrow_bytes(Some(compression));
        // The decompressed sizes in front of the buffers of 101 offsets and of 100 numbers; a buffer that compression
        // does not make smaller has none.
        let sizes = [404_u64, 400].map(u64::to_le_bytes);
        let is_size = |at: &usize| sizes.iter().any(|size| bytes[*at..].starts_with(size));
        let positions: Vec<usize> = (0..bytes.len()).filter(is_size).collect();
        let mut is_damage_seen = false;
        for at in positions {
            let mut damaged = bytes.clone();
            damaged[at..at + 8].copy_from_slice(&(1_u64 << 45).to_le_bytes());
            let read = read_request(&io, RequestFormat::Arrow, damaged.into(), 100);
            let code = read.err().unwrap().code();
            // Some positions are lengths in headers, of bodies for which there is no memory.
            assert!([codes::CORRUPT, codes::MEMORY].contains(&code), "{code:?}");
            is_damage_seen |= code == codes::CORRUPT;
        }
        assert!(is_damage_seen, "{compression:?}");
    }
}

#[test]
fn bytes_that_are_no_file_are_faults() {
    let io = client();
    for format in [RequestFormat::Arrow, RequestFormat::Parquet] {
        for bytes in ["", "PAR1", "PAR1PAR1", "ARROW1", "{\"a\":1}"] {
            let read = read_request(&io, format, Bytes::from(bytes), 100);
            let fault = read.err().unwrap();
            assert_eq!(
                fault.code(),
                codes::CORRUPT,
                "{format:?} {bytes}: {fault:?}"
            );
        }
    }
}
