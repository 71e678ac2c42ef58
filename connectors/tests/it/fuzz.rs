//! Damaged files: a fault or rows, never a panic, never much memory.

use std::fs;
use std::sync::Arc;

use arrow::array::*;
use arrow::datatypes::{Field, Int32Type, Schema};
use forebay_connectors::{BuiltInConnectors, Predictor, RequestFormat, read_request};
use forebay_contract::{ConnectorRegistry, Source};
use forebay_fuzz::{CountingAllocator, FuzzTarget, fuzz};
use forebay_model::Result;
use forebay_storage::StorageClient;
use parquet::arrow::ArrowWriter;
use parquet::basic::{Compression, Encoding};
use parquet::file::properties::{WriterProperties, WriterVersion};
use serde_json::{Value, json};

use crate::help::{chunks, request, rows, write};

#[global_allocator]
static ALLOCATOR: CountingAllocator = CountingAllocator;

/// Reads a file of these bytes as a source would be read by a run.
struct FuzzReader {
    io: StorageClient,
    dir: tempfile::TempDir,
    name: &'static str,
    source: Arc<dyn Source>,
}

impl FuzzReader {
    fn new(format: &str, name: &'static str, more: Value) -> FuzzReader {
        let dir = tempfile::tempdir().unwrap();
        let mut config = json!({ "path": dir.path().join(name) });
        config
            .as_object_mut()
            .unwrap()
            .extend(more.as_object().unwrap().clone());
        FuzzReader {
            io: StorageClient::new().unwrap(),
            name,
            source: BuiltInConnectors.source(format, &config).unwrap(),
            dir,
        }
    }

    fn read(&self, bytes: &[u8]) -> Result<()> {
        fs::write(self.dir.path().join(self.name), bytes).unwrap();
        let dataset = self.source.discover(&self.io, &[])?;
        chunks(&self.io, self.source.as_ref(), &dataset, &request(&dataset)).map(drop)
    }

    /// Reads damaged bytes: rows, or a fault that does not say that another try may help.
    fn try_read(&self, bytes: &[u8]) {
        if let Err(fault) = self.read(bytes) {
            assert_ne!(fault.code().exit_code(), 75, "{fault:?}");
        }
    }
}

/// Reads damaged bytes as those of a request.
fn try_request(io: &StorageClient, format: RequestFormat, bytes: &[u8]) {
    if let Err(fault) = read_request(io, format, bytes.to_vec().into(), 1000) {
        assert_ne!(fault.code().exit_code(), 75, "{fault:?}");
    }
}

/// Columns of more kinds than text formats know.
fn columns() -> RecordBatch {
    let plain = rows(0, 90);
    let list = |i: i32| (i % 4 != 1).then(|| (0..i % 3).map(Some).collect::<Vec<_>>());
    let more: Vec<(&str, ArrayRef)> = vec![
        (
            "coded",
            Arc::new(DictionaryArray::<Int32Type>::from_iter(
                (0..90).map(|i| Some(["a", "bb", ""][i % 3])),
            )),
        ),
        (
            "list",
            Arc::new(ListArray::from_iter_primitive::<Int32Type, _, _>(
                (0..90).map(list),
            )),
        ),
        (
            "money",
            Arc::new(
                Decimal128Array::from_iter_values(0..90)
                    .with_precision_and_scale(12, 2)
                    .unwrap(),
            ),
        ),
        ("tiny", Arc::new(UInt8Array::from_iter_values(0..90))),
        (
            "bytes",
            Arc::new(BinaryArray::from_iter_values(
                (0..90u8).map(|i| [i, 0, 255]),
            )),
        ),
        (
            "at",
            Arc::new(TimestampMicrosecondArray::from_iter_values(
                (0..90).map(|i| i * 86_400_000_000),
            )),
        ),
    ];
    let fields = more
        .iter()
        .map(|(name, column)| Arc::new(Field::new(*name, column.data_type().clone(), true)));
    let fields: Vec<_> = plain
        .schema()
        .fields()
        .iter()
        .cloned()
        .chain(fields)
        .collect();
    let columns = plain
        .columns()
        .iter()
        .cloned()
        .chain(more.iter().map(|(_, column)| column.clone()))
        .collect();
    RecordBatch::try_new(Arc::new(Schema::new(fields)), columns).unwrap()
}

/// Parquet as other programs write it: without checksums, so that damage reaches the decoders.
fn parquet_seeds() -> Vec<Vec<u8>> {
    let encoded = |version, compression, encoding: Option<Encoding>| {
        let mut properties = WriterProperties::builder()
            .set_writer_version(version)
            .set_compression(compression)
            .set_max_row_group_row_count(Some(40))
            .set_data_page_row_count_limit(16)
            .set_write_batch_size(8);
        if let Some(encoding) = encoding {
            let names = match encoding {
                Encoding::DELTA_BINARY_PACKED => ["id", "small"],
                Encoding::BYTE_STREAM_SPLIT => ["x", "x"],
                _ => ["word", "text"],
            };
            properties = properties.set_dictionary_enabled(false);
            for name in names {
                properties = properties.set_column_encoding(name.into(), encoding);
            }
        }
        let mut bytes = Vec::new();
        let batch = columns();
        let mut writer =
            ArrowWriter::try_new(&mut bytes, batch.schema(), Some(properties.build())).unwrap();
        writer.write(&batch).unwrap();
        writer.close().unwrap();
        bytes
    };
    vec![
        encoded(WriterVersion::PARQUET_1_0, Compression::UNCOMPRESSED, None),
        encoded(WriterVersion::PARQUET_2_0, Compression::UNCOMPRESSED, None),
        encoded(WriterVersion::PARQUET_1_0, Compression::SNAPPY, None),
        encoded(
            WriterVersion::PARQUET_2_0,
            Compression::ZSTD(Default::default()),
            None,
        ),
        encoded(WriterVersion::PARQUET_2_0, Compression::LZ4_RAW, None),
        encoded(
            WriterVersion::PARQUET_2_0,
            Compression::UNCOMPRESSED,
            Some(Encoding::DELTA_BINARY_PACKED),
        ),
        encoded(
            WriterVersion::PARQUET_2_0,
            Compression::UNCOMPRESSED,
            Some(Encoding::DELTA_BYTE_ARRAY),
        ),
        encoded(
            WriterVersion::PARQUET_2_0,
            Compression::UNCOMPRESSED,
            Some(Encoding::DELTA_LENGTH_BYTE_ARRAY),
        ),
        encoded(
            WriterVersion::PARQUET_2_0,
            Compression::UNCOMPRESSED,
            Some(Encoding::BYTE_STREAM_SPLIT),
        ),
    ]
}

/// Files of our own sinks.
fn own_files(format: &str, compressions: &[&str]) -> Vec<Vec<u8>> {
    let dir = tempfile::tempdir().unwrap();
    let one = |compression: &&str| {
        let file = dir.path().join(compression);
        write(
            format,
            json!({ "path": "out", "compression": compression }),
            &file,
            &[rows(0, 60), rows(60, 30)],
        );
        fs::read(file).unwrap()
    };
    compressions.iter().map(one).collect()
}

#[test]
fn parquet_files() {
    let reader = FuzzReader::new("parquet", "a.parquet", json!({}));
    let seeds = parquet_seeds()
        .into_iter()
        .chain(own_files("parquet", &["none", "snappy"]));
    fuzz!(FuzzTarget::new("parquet").seeds(seeds), |bytes: &[u8]| {
        reader.try_read(bytes);
        try_request(&reader.io, RequestFormat::Parquet, bytes);
    });
}

#[test]
fn arrow_files() {
    let reader = FuzzReader::new("arrow", "a.arrow", json!({}));
    let mut stream = Vec::new();
    let mut writer =
        arrow::ipc::writer::StreamWriter::try_new(&mut stream, &columns().schema()).unwrap();
    writer.write(&columns()).unwrap();
    writer.finish().unwrap();
    drop(writer);
    let seeds = own_files("arrow", &["none", "lz4", "zstd"])
        .into_iter()
        .chain([stream]);
    fuzz!(FuzzTarget::new("arrow").seeds(seeds), |bytes: &[u8]| {
        reader.try_read(bytes);
        try_request(&reader.io, RequestFormat::Arrow, bytes);
    });
}

#[test]
fn text_files() {
    let types =
        json!({ "columns": { "id": "int64", "x": "float64", "word": "string", "day": "date" } });
    let readers = [
        FuzzReader::new("csv", "a.csv", json!({})),
        FuzzReader::new("csv", "b.csv", types.clone()),
        FuzzReader::new("json", "a.jsonl", json!({})),
        FuzzReader::new("json", "b.jsonl", types),
    ];
    fuzz!(
        FuzzTarget::new("text").words(&[
            "id",
            "x",
            "word",
            "day",
            "\"\"\"",
            "2024-02-30",
            "-0.0",
            "{}\n",
            "[{}]"
        ]),
        |bytes: &[u8]| {
            for reader in &readers {
                reader.try_read(bytes);
            }
        }
    );
}

#[test]
fn packed_text() {
    let readers = [
        FuzzReader::new("csv", "a.csv.gz", json!({})),
        FuzzReader::new("json", "a.jsonl.zst", json!({})),
    ];
    let text = "id,x\n1,2.5\n2,\n3,4e5\n".repeat(20);
    let mut packed = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    std::io::Write::write_all(&mut packed, text.as_bytes()).unwrap();
    let lines = "{\"id\": 1, \"x\": 2.5}\n".repeat(40);
    let seeds = [
        packed.finish().unwrap(),
        zstd::encode_all(lines.as_bytes(), 1).unwrap(),
    ];
    fuzz!(FuzzTarget::new("packed").seeds(seeds), |bytes: &[u8]| {
        for reader in &readers {
            reader.try_read(bytes);
        }
    });
}

/// Any pattern is a pattern: it names files, or the fault says that it names none.
#[test]
fn patterns() {
    let dir = tempfile::tempdir().unwrap();
    let io = StorageClient::new().unwrap();
    for file in [
        "day=1/a.jsonl",
        "day=2/b.jsonl",
        "deep/er/c.jsonl",
        "é.jsonl",
    ] {
        let file = dir.path().join(file);
        fs::create_dir_all(file.parent().unwrap()).unwrap();
        fs::write(file, "{\"id\":1}\n").unwrap();
    }
    let words = [
        "*",
        "**",
        "**/**/**/**/",
        "?",
        "../",
        "%2F",
        "day=",
        "[a-z]",
        "s3://",
        "file:///",
        "//",
        "{a,b}",
        "\\",
    ];
    fuzz!(
        FuzzTarget::new("patterns").words(&words),
        |bytes: &[u8]| {
            let pattern = String::from_utf8_lossy(bytes);
            // Only below the test's own directory: other folders of the machine are large.
            if pattern.contains("..") {
                return;
            }
            let path = format!("{}/{pattern}", dir.path().display());
            if let Ok(source) = BuiltInConnectors.source("json", &json!({ "path": path })) {
                let _ = source.discover(&io, &[]);
            }
        }
    );
}

#[test]
fn models() {
    fuzz!(
        FuzzTarget::new("models").words(&["65536", "\"rows\":", "\"hidden\":[", "F32"]),
        |bytes: &[u8]| {
            let Ok(model) = Predictor::read(bytes) else {
                return;
            };
            let (dense, ids) = (model.card.shape.dense_width(), model.card.shape.ids());
            // As many ids as a row says that it has; they come with the rows.
            if ids > 1 << 16 {
                return;
            }
            let _ = model.predict(2, &vec![0.5; 2 * dense], &vec![0; 2 * ids]);
        }
    );
}
