//! Delta tables as sources. The logs are written here action by action, so that each feature of the format is met alone.

use std::collections::{BTreeMap, HashMap};
use std::path::Path;
use std::sync::Arc;

use arrow::array::types::{Float64Type, Int32Type, Int64Type};
use arrow::array::{
    Array, ArrayRef, AsArray, Date32Array, Decimal128Array, Float32Array, Float64Array, Int32Array,
    Int64Array, ListArray, MapArray, RecordBatch, StringArray, StructArray,
    TimestampMicrosecondArray,
};
use arrow::buffer::OffsetBuffer;
use arrow::compute::cast;
use arrow::datatypes::{DataType, Field, Schema, TimeUnit};
use parquet::arrow::ArrowWriter;
use parquet::data_type::{Int64Type as ParquetInt64Type, Int96, Int96Type};
use parquet::file::writer::SerializedFileWriter;
use parquet::schema::parser::parse_message_type;
use serde_json::{Value, json};

use crate::support::request_failures::RequestFailure;
use crate::support::s3_server::S3Server;
use crate::support::{ProgramOutput, TestDirectory};

/// A column of a table: its name, its type in the log, and what the log notes beside it.
fn column(name: &str, data_type: &str, notes: Value) -> Value {
    json!({ "name": name, "type": data_type, "nullable": true, "metadata": notes })
}

/// A table whose log is written by hand.
struct HandmadeTable<'s> {
    shop: &'s TestDirectory,
    name: &'s str,
    versions: usize,
}

impl<'s> HandmadeTable<'s> {
    /// Commits a protocol and a schema.
    fn create(
        shop: &'s TestDirectory,
        name: &'s str,
        columns: &[Value],
        partitions: &[&str],
        features: &[&str],
    ) -> Self {
        std::fs::create_dir_all(shop.path(name).join("_delta_log")).unwrap();
        let mut table = HandmadeTable {
            shop,
            name,
            versions: 0,
        };
        let protocol = match features {
            [] => json!({ "minReaderVersion": 1, "minWriterVersion": 2 }),
            _ => json!({
                "minReaderVersion": 3, "minWriterVersion": 7, "readerFeatures": features, "writerFeatures": features
            }),
        };
        let mode = features
            .iter()
            .find_map(|feature| feature.strip_prefix("columnMapping"));
        assert!(mode.is_none_or(str::is_empty));
        table.commit(&[
            json!({ "protocol": protocol }),
            metadata(columns, partitions, &json!({})),
        ]);
        table
    }

    /// Commits some actions as the next version.
    fn commit(&mut self, actions: &[Value]) {
        let lines: Vec<String> = actions.iter().map(Value::to_string).collect();
        let log = self
            .shop
            .path(self.name)
            .join("_delta_log")
            .join(format!("{:020}.json", self.versions));
        std::fs::write(log, lines.join("\n")).unwrap();
        self.versions += 1;
    }

    /// Writes a file and gives the action that adds it.
    fn add(
        &self,
        file: &str,
        columns: Vec<(Field, ArrayRef)>,
        partition: Value,
        more: Value,
    ) -> Value {
        let path = self.shop.path(self.name).join(file);
        let (fields, arrays): (Vec<Field>, Vec<ArrayRef>) = columns.into_iter().unzip();
        let batch = RecordBatch::try_new(Arc::new(Schema::new(fields)), arrays).unwrap();
        let mut writer =
            ArrowWriter::try_new(std::fs::File::create(&path).unwrap(), batch.schema(), None)
                .unwrap();
        writer.write(&batch).unwrap();
        writer.close().unwrap();
        self.added(file, batch.num_rows(), partition, more)
    }

    /// The action that adds a file that is there.
    fn added(&self, file: &str, rows: usize, partition: Value, more: Value) -> Value {
        let path = self.shop.path(self.name).join(file);
        let bytes = std::fs::metadata(path).unwrap().len();
        let mut add = json!({
            "path": file, "size": bytes, "partitionValues": partition, "modificationTime": self.versions,
            "dataChange": true, "stats": json!({ "numRecords": rows }).to_string(),
        });
        add.as_object_mut()
            .unwrap()
            .extend(more.as_object().cloned().unwrap_or_default());
        json!({ "add": add })
    }

    fn remove(&self, file: &str) -> Value {
        json!({ "remove": { "path": file, "deletionTimestamp": 9, "dataChange": true } })
    }
}

fn metadata(columns: &[Value], partitions: &[&str], configuration: &Value) -> Value {
    let schema = json!({ "type": "struct", "fields": columns }).to_string();
    json!({ "metaData": {
        "id": "5fba94ed-9794-4965-ba6e-6ee3c0d22af9", "format": { "provider": "parquet", "options": {} },
        "schemaString": schema, "partitionColumns": partitions, "configuration": configuration, "createdTime": 1,
    } })
}

fn ints(name: &str, values: impl IntoIterator<Item = i32>) -> (Field, ArrayRef) {
    (
        Field::new(name, DataType::Int32, true),
        Arc::new(Int32Array::from_iter_values(values)),
    )
}

fn texts(name: &str, values: &[&str]) -> (Field, ArrayRef) {
    (
        Field::new(name, DataType::Utf8, true),
        Arc::new(StringArray::from_iter_values(values)),
    )
}

/// The bytes of an inline deletion vector, as the log writes them: the positions of rows in a Roaring bitmap.
pub fn deletion_vector(rows: &[u16]) -> Value {
    let mut bytes = 1_681_511_377_u32.to_le_bytes().to_vec();
    bytes.extend(1_u64.to_le_bytes());
    bytes.extend(0_u32.to_le_bytes());
    bytes.extend([12346_u32, 1].iter().flat_map(|word| word.to_le_bytes()));
    bytes.extend(
        [0, rows.len() as u16 - 1]
            .iter()
            .flat_map(|word| word.to_le_bytes()),
    );
    bytes.extend(16_u32.to_le_bytes());
    bytes.extend(rows.iter().flat_map(|row| row.to_le_bytes()));
    let size = bytes.len();
    bytes.resize(size.next_multiple_of(4), 0);
    json!({ "deletionVector": {
        "storageType": "i", "pathOrInlineDv": z85(&bytes), "sizeInBytes": size, "cardinality": rows.len(),
    } })
}

/// Base 85, as ZeroMQ writes it.
fn z85(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 85] =
        b"0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ.-:+=^!/*?&<>()[]{}@%$#";
    let word = |four: &[u8]| u32::from_be_bytes(four.try_into().unwrap());
    let digits = |word: u32| {
        (0..5)
            .rev()
            .map(move |power| DIGITS[(word / 85_u32.pow(power) % 85) as usize] as char)
    };
    bytes
        .chunks(4)
        .flat_map(|four| digits(word(four)))
        .collect()
}

/// Copies a table to an output of Parquet.
fn spec(source: &str, steps: &str, out: &str) -> String {
    format!(
        "version: 1\nname: copies\nsources:\n  table:\n    delta: {{ {source} }}\nsteps:\n  rows:\n    from: table\n    \
         do: [{steps}]\nsinks:\n  out: {{ from: rows, parquet: {{ path: \"{out}\" }} }}\n"
    )
}

fn copy(shop: &TestDirectory, source: &str, steps: &str) -> (RecordBatch, Value) {
    let out = format!("out-{}", std::fs::read_dir(shop.path("")).unwrap().count());
    shop.write("copy.yaml", &spec(source, steps, &out));
    let summary = shop
        .forebay(&[
            "run",
            "copy.yaml",
            "--json",
            &format!("--state=state-{out}"),
        ])
        .expect(0)
        .summary();
    (shop.visible(&out), summary)
}

fn refused(shop: &TestDirectory, source: &str) -> String {
    shop.write("refused.yaml", &spec(source, "", "out-refused"));
    let ProgramOutput { code, stderr, .. } = shop.forebay(&["run", "refused.yaml"]);
    assert_ne!(code, 0, "{source}");
    assert!(!shop.path("out-refused").exists());
    stderr
}

fn values(rows: &RecordBatch, column: &str) -> Vec<i32> {
    rows[column].as_primitive::<Int32Type>().values().to_vec()
}

fn words(rows: &RecordBatch, column: &str) -> Vec<Option<String>> {
    let texts = cast(&rows[column], &DataType::Utf8).unwrap();
    texts
        .as_string::<i32>()
        .iter()
        .map(|text| text.map(str::to_owned))
        .collect()
}

#[test]
fn versions_are_those_of_the_log() {
    let shop = TestDirectory::new();
    let mut table = HandmadeTable::create(
        &shop,
        "table",
        &[column("n", "integer", json!({}))],
        &[],
        &[],
    );
    for (version, file) in ["a.parquet", "b.parquet", "c.parquet"].iter().enumerate() {
        let first = version as i32 * 10;
        let add = table.add(
            file,
            vec![ints("n", first..first + 3)],
            json!({}),
            json!({}),
        );
        table.commit(&[add]);
    }
    let remove = table.remove("a.parquet");
    table.commit(&[remove]);
    for (version, expected) in [
        (1, vec![0, 1, 2]),
        (2, vec![0, 1, 2, 10, 11, 12]),
        (4, vec![10, 11, 12, 20, 21, 22]),
    ] {
        let (rows, _) = copy(&shop, &format!("path: table, version: {version}"), "");
        assert_eq!(values(&rows, "n"), expected, "version {version}");
    }
    let (rows, summary) = copy(&shop, "path: table", "");
    assert_eq!(values(&rows, "n"), [10, 11, 12, 20, 21, 22]);
    let artifact = shop.path(summary["artifact_path"].as_str().unwrap());
    let lineage: Value =
        serde_json::from_slice(&std::fs::read(artifact.join("lineage.json")).unwrap()).unwrap();
    assert_eq!(lineage["sources"]["table"]["version"], 4);
    // The time of a commit is that of its file.
    let times = [
        (1, "2024-03-01T00:00:00Z"),
        (2, "2024-03-02T00:00:00Z"),
        (3, "2024-03-03T00:00:00Z"),
    ];
    let seconds = 1_709_251_200;
    for version in 0..5 {
        let log = shop
            .path("table/_delta_log")
            .join(format!("{version:020}.json"));
        let time = std::time::UNIX_EPOCH
            + std::time::Duration::from_secs(seconds + (version.max(1) - 1) * 86_400);
        let file = std::fs::File::options().append(true).open(log).unwrap();
        file.set_modified(time - std::time::Duration::from_secs(u64::from(version == 0)))
            .unwrap();
    }
    for (files, time) in times {
        let (rows, _) = copy(&shop, &format!("path: table, timestamp: \"{time}\""), "");
        assert_eq!(rows.num_rows(), files * 3, "{time}");
    }
    for (source, expected) in [
        (
            "path: table, version: 9",
            "the table has no version 9: its newest is 4",
        ),
        (
            "path: table, timestamp: \"2020-01-01\"",
            "no version that is so old",
        ),
        ("path: nowhere", "there is no Delta table here"),
        (
            "path: table, version: 1, timestamp: \"2024-03-01\"",
            "not both",
        ),
        ("path: table, timestamp: soon", "is no time"),
        ("path: table, columns: [m]", "the table has no column `m`"),
    ] {
        let said = refused(&shop, source);
        assert!(said.contains(expected), "{source}: {said}");
    }
}

/// The kernel follows links, and names files by the directories in which they lie.
#[test]
fn a_table_behind_a_link_is_read() {
    let shop = TestDirectory::new();
    let mut table = HandmadeTable::create(
        &shop,
        "table",
        &[column("n", "integer", json!({}))],
        &[],
        &[],
    );
    let add = table.add("a.parquet", vec![ints("n", 0..3)], json!({}), json!({}));
    table.commit(&[add]);
    std::os::unix::fs::symlink(shop.path("table"), shop.path("link")).unwrap();
    let (rows, _) = copy(&shop, "path: link", "");
    assert_eq!(values(&rows, "n"), [0, 1, 2]);
}

#[test]
fn partition_values_have_the_types_of_the_table() {
    let shop = TestDirectory::new();
    let none = || json!({});
    let columns = [
        column("n", "integer", none()),
        column("day", "date", none()),
        column("code", "string", none()),
        column("rate", "double", none()),
    ];
    let mut table = HandmadeTable::create(&shop, "table", &columns, &["day", "code", "rate"], &[]);
    let parts = [
        json!({ "day": "2024-02-29", "code": "007", "rate": "0.5" }),
        json!({ "day": "2024-03-01", "code": "a b/%", "rate": "1" }),
        json!({ "day": null, "code": "", "rate": null }),
    ];
    for (at, part) in parts.iter().enumerate() {
        let add = table.add(
            &format!("{at}.parquet"),
            vec![ints("n", [at as i32])],
            part.clone(),
            none(),
        );
        table.commit(&[add]);
    }
    let (rows, _) = copy(&shop, "path: table", "");
    assert_eq!(values(&rows, "n"), [0, 1, 2]);
    assert_eq!(rows["day"].data_type(), &DataType::Date32);
    assert_eq!(
        words(&rows, "day"),
        [Some("2024-02-29".into()), Some("2024-03-01".into()), None]
    );
    assert_eq!(
        words(&rows, "code"),
        [Some("007".into()), Some("a b/%".into()), None]
    );
    let rates: Vec<Option<f64>> = rows["rate"].as_primitive::<Float64Type>().iter().collect();
    assert_eq!(rates, [Some(0.5), Some(1.0), None]);
    // Files that no row can come from are not opened; their rows are counted as filtered.
    std::fs::remove_file(shop.path("table/0.parquet")).unwrap();
    let (rows, summary) = copy(
        &shop,
        "path: \"table\"",
        "{ filter: \"day = DATE '2024-03-01'\" }",
    );
    assert_eq!(values(&rows, "n"), [1]);
    assert_eq!(summary["passes"][0]["rows_filtered"], 2, "{summary}");
}

#[test]
fn deleted_rows_are_left_out_wherever_they_lie() {
    let shop = TestDirectory::new();
    let columns = [column("n", "integer", json!({}))];
    let mut table = HandmadeTable::create(&shop, "table", &columns, &[], &["deletionVectors"]);
    let first = table.add("a.parquet", vec![ints("n", 0..1000)], json!({}), json!({}));
    table.commit(&[first]);
    let (whole, _) = copy(&shop, "path: table", "");
    assert_eq!(whole.num_rows(), 1000);
    let deleted: Vec<u16> = (0..1000)
        .filter(|row| row % 7 == 0 || (500..600).contains(row))
        .collect();
    let again = table.add(
        "a.parquet",
        vec![ints("n", 0..1000)],
        json!({}),
        deletion_vector(&deleted),
    );
    let other = table.add(
        "b.parquet",
        vec![ints("n", 1000..1010)],
        json!({}),
        json!({}),
    );
    let before = table.remove("a.parquet");
    table.commit(&[before, again, other]);
    let expected: Vec<i32> = (0..1010)
        .filter(|n| !deleted.contains(&(*n as u16)))
        .collect();
    for batch_rows in [1, 7, 100, 8192] {
        shop.write(
            "copy.yaml",
            &spec("path: table", "", &format!("out-{batch_rows}")),
        );
        let args = [
            "run",
            "copy.yaml",
            "--json",
            &format!("--batch-rows={batch_rows}"),
            &format!("--state=state-{batch_rows}"),
        ];
        let summary = shop.forebay(&args).expect(0).summary();
        assert_eq!(
            values(&shop.visible(&format!("out-{batch_rows}")), "n"),
            expected,
            "{batch_rows}"
        );
        assert_eq!(summary["passes"][0]["rows_in"], expected.len(), "{summary}");
    }
    // A filter that removes all rows of a row group counts those that the table still has.
    let (rows, summary) = copy(&shop, "path: table", "{ filter: \"n >= 1000\" }");
    assert_eq!(values(&rows, "n"), (1000..1010).collect::<Vec<i32>>());
    assert_eq!(
        summary["passes"][0]["rows_filtered"],
        expected.len() - 10,
        "{summary}"
    );
}

#[test]
fn renamed_columns_are_found_by_name_or_by_id() {
    for mode in ["name", "id"] {
        let shop = TestDirectory::new();
        let notes = |id: i64, physical: &str| json!({ "delta.columnMapping.id": id, "delta.columnMapping.physicalName": physical });
        let columns = [
            column("amount", "integer", notes(1, "col-1")),
            column("label", "string", notes(2, "col-2")),
            column("new", "integer", notes(4, "col-4")),
            column("part", "integer", notes(3, "col-3")),
        ];
        let mut table =
            HandmadeTable::create(&shop, "table", &columns, &["part"], &["columnMapping"]);
        let configuration =
            json!({ "delta.columnMapping.mode": mode, "delta.columnMapping.maxColumnId": "4" });
        table.commit(&[metadata(&columns, &["part"], &configuration)]);
        // By id, names in files mean nothing.
        let (amount, label) = if mode == "id" {
            ("col-2", "col-1")
        } else {
            ("col-1", "col-2")
        };
        let with_id = |(field, array): (Field, ArrayRef), id: &str| {
            let note = HashMap::from([("PARQUET:field_id".to_owned(), id.to_owned())]);
            (field.with_metadata(note), array)
        };
        let stored = vec![
            with_id(texts(label, &["x", "y"]), "2"),
            with_id(ints(amount, [5, 6]), "1"),
        ];
        let add = table.add("a.parquet", stored, json!({ "col-3": "3" }), json!({}));
        table.commit(&[add]);
        let (rows, _) = copy(&shop, "path: table", "{ filter: \"amount > 4\" }");
        assert_eq!(values(&rows, "amount"), [5, 6], "{mode}");
        assert_eq!(
            words(&rows, "label"),
            [Some("x".into()), Some("y".into())],
            "{mode}"
        );
        assert_eq!(values(&rows, "part"), [3, 3], "{mode}");
        assert_eq!(
            rows["new"].null_count(),
            2,
            "a column that the file does not have"
        );
    }
}

/// A struct of a table whose files name its fields in another way: `town` and `floor`, which the files lack.
fn mapped_struct(first_id: i64) -> Value {
    json!({ "type": "struct", "fields": [
        mapped("town", first_id, json!("string")),
        mapped("floor", first_id + 1, json!("integer")),
    ] })
}

/// A column or a field that files call by its id.
fn mapped(name: &str, id: i64, data_type: Value) -> Value {
    let notes = json!({
        "delta.columnMapping.id": id,
        "delta.columnMapping.physicalName": format!("col-{id}"),
    });
    json!({ "name": name, "type": data_type, "nullable": true, "metadata": notes })
}

/// The part of such a struct that a file stores: the town, and a field that was dropped from the table.
fn stored_struct(mode: &str, first_id: i64, towns: &[&str]) -> StructArray {
    // By id, names in files mean nothing.
    let name = match mode {
        "id" => "town of old".to_owned(),
        _ => format!("col-{first_id}"),
    };
    let with_id = |field: Field, id: i64| {
        let note = HashMap::from([("PARQUET:field_id".to_owned(), id.to_string())]);
        Arc::new(field.with_metadata(note))
    };
    let dropped: ArrayRef = Arc::new(Int32Array::from(vec![9; towns.len()]));
    let towns: ArrayRef = Arc::new(StringArray::from_iter_values(towns));
    StructArray::from(vec![
        (
            with_id(Field::new("floor", DataType::Int32, true), 99),
            dropped,
        ),
        (
            with_id(Field::new(name, DataType::Utf8, true), first_id),
            towns,
        ),
    ])
}

#[test]
fn fields_inside_of_mapped_columns_are_found_by_name_or_by_id() {
    for mode in ["name", "id"] {
        let shop = TestDirectory::new();
        let list =
            json!({ "type": "array", "elementType": mapped_struct(20), "containsNull": true });
        let map = json!({
            "type": "map", "keyType": "string",
            "valueType": mapped_struct(30), "valueContainsNull": true,
        });
        let columns = [
            mapped("place", 1, mapped_struct(10)),
            mapped("places", 2, list),
            mapped("by_name", 3, map),
        ];
        let mut table = HandmadeTable::create(&shop, "table", &columns, &[], &["columnMapping"]);
        let configuration =
            json!({ "delta.columnMapping.mode": mode, "delta.columnMapping.maxColumnId": "99" });
        table.commit(&[metadata(&columns, &[], &configuration)]);
        let field = |id: i64, data_type: &DataType| {
            let note = HashMap::from([("PARQUET:field_id".to_owned(), id.to_string())]);
            Field::new(format!("col-{id}"), data_type.clone(), true).with_metadata(note)
        };
        let home = stored_struct(mode, 10, &["Rom", "Bonn"]);
        let homes = stored_struct(mode, 20, &["Paris", "Wien", "Oslo"]);
        let item = Arc::new(Field::new("element", homes.data_type().clone(), true));
        let offsets = OffsetBuffer::from_lengths([2, 1]);
        let homes = ListArray::new(item, offsets, Arc::new(homes), None);
        let named = stored_struct(mode, 30, &["Bern", "Prag"]);
        let keys: ArrayRef = Arc::new(StringArray::from(vec!["a", "b"]));
        let entries = vec![
            Field::new("key", DataType::Utf8, false),
            Field::new("value", named.data_type().clone(), true),
        ];
        let entries = StructArray::new(entries.into(), vec![keys, Arc::new(named)], None);
        let entry = Arc::new(Field::new("key_value", entries.data_type().clone(), false));
        let by_name = MapArray::new(
            entry,
            OffsetBuffer::from_lengths([1, 1]),
            entries,
            None,
            false,
        );
        let stored: Vec<(Field, ArrayRef)> = vec![
            (field(1, home.data_type()), Arc::new(home)),
            (field(2, homes.data_type()), Arc::new(homes)),
            (field(3, by_name.data_type()), Arc::new(by_name)),
        ];
        let add = table.add("a.parquet", stored, json!({}), json!({}));
        table.commit(&[add]);
        let (rows, _) = copy(&shop, "path: table", "");
        let towns = |homes: &StructArray| {
            assert_eq!(homes["floor"].null_count(), homes.len(), "{mode}");
            let towns = cast(&homes["town"], &DataType::Utf8).unwrap();
            let towns = towns.as_string::<i32>().iter().flatten();
            towns.map(str::to_owned).collect::<Vec<_>>()
        };
        assert_eq!(towns(rows["place"].as_struct()), ["Rom", "Bonn"], "{mode}");
        let homes = rows["places"].as_list::<i32>().values();
        assert_eq!(
            towns(homes.as_struct()),
            ["Paris", "Wien", "Oslo"],
            "{mode}"
        );
        let named = rows["by_name"].as_map().values();
        assert_eq!(towns(named.as_struct()), ["Bern", "Prag"], "{mode}");
    }
}

const MICROSECONDS_PER_DAY: i64 = 86_400_000_000;

/// Writes times as Spark does by default, of type INT96, and clock times beside them. Both are in microseconds since
/// 1970.
fn write_spark_times(path: &Path, times: &[i64], clock_times: &[i64]) {
    let schema = "message spark_schema { optional int96 at; \
                  optional int64 local (TIMESTAMP(MICROS,false)); }";
    let schema = Arc::new(parse_message_type(schema).unwrap());
    let file = std::fs::File::create(path).unwrap();
    let mut writer = SerializedFileWriter::new(file, schema, Default::default()).unwrap();
    let mut group = writer.next_row_group().unwrap();
    let levels = vec![1_i16; times.len()];
    let mut instants = Vec::new();
    for time in times {
        let julian_day = time.div_euclid(MICROSECONDS_PER_DAY) + 2_440_588;
        let nanosecond = time.rem_euclid(MICROSECONDS_PER_DAY) as u64 * 1_000;
        let mut instant = Int96::new();
        instant.set_data(
            nanosecond as u32,
            (nanosecond >> 32) as u32,
            julian_day as u32,
        );
        instants.push(instant);
    }
    let mut column = group.next_column().unwrap().unwrap();
    let typed = column.typed::<Int96Type>();
    typed.write_batch(&instants, Some(&levels), None).unwrap();
    column.close().unwrap();
    let mut column = group.next_column().unwrap().unwrap();
    let typed = column.typed::<ParquetInt64Type>();
    typed.write_batch(clock_times, Some(&levels), None).unwrap();
    column.close().unwrap();
    group.close().unwrap();
    writer.close().unwrap();
}

fn ticks(rows: &RecordBatch, column: &str) -> Vec<i64> {
    let ticks = cast(&rows[column], &DataType::Int64).unwrap();
    ticks.as_primitive::<Int64Type>().values().to_vec()
}

/// The years 1 and 9999, the last microsecond before 1970, and 2024.
const FAR_TIMES: [i64; 4] = [
    -62_135_596_800_000_000,
    253_402_214_400_000_000,
    -1,
    1_709_164_800_000_000,
];

#[test]
fn times_of_tables_are_instants_or_clock_times_in_every_file() {
    let shop = TestDirectory::new();
    let columns = [
        column("at", "timestamp", json!({})),
        column("local", "timestamp_ntz", json!({})),
    ];
    let mut table = HandmadeTable::create(&shop, "table", &columns, &[], &["timestampNtz"]);
    write_spark_times(&shop.path("table/a.parquet"), &FAR_TIMES, &FAR_TIMES);
    let statistics = json!({
        "numRecords": 4,
        "minValues": { "at": "0001-01-01T00:00:00.000Z", "local": "0001-01-01T00:00:00.000" },
        "maxValues": { "at": "9999-12-31T00:00:00.000Z", "local": "9999-12-31T00:00:00.000" },
        "nullCount": { "at": 0, "local": 0 },
    });
    let more = json!({ "stats": statistics.to_string() });
    let add = table.added("a.parquet", 4, json!({}), more);
    table.commit(&[add]);
    // Programs beside Spark write instants in UTC, in other units, too.
    let milliseconds = Int64Array::from(vec![-1, 253_402_214_400_000]);
    let utc = DataType::Timestamp(TimeUnit::Millisecond, Some("UTC".into()));
    let plain = DataType::Timestamp(TimeUnit::Millisecond, None);
    let written = vec![
        (
            Field::new("at", utc.clone(), true),
            cast(&milliseconds, &utc).unwrap(),
        ),
        (
            Field::new("local", plain.clone(), true),
            cast(&milliseconds, &plain).unwrap(),
        ),
    ];
    let add = table.add("b.parquet", written, json!({}), json!({}));
    table.commit(&[add]);
    let (rows, _) = copy(&shop, "path: table", "");
    let instants = DataType::Timestamp(TimeUnit::Microsecond, Some("UTC".into()));
    let clock_times = DataType::Timestamp(TimeUnit::Microsecond, None);
    assert_eq!(rows["at"].data_type(), &instants);
    assert_eq!(rows["local"].data_type(), &clock_times);
    let mut expected = FAR_TIMES.to_vec();
    expected.extend([-1_000, 253_402_214_400_000_000]);
    assert_eq!(ticks(&rows, "at"), expected);
    assert_eq!(ticks(&rows, "local"), expected);
    for (condition, expected) in [
        ("at = TIMESTAMP '9999-12-31T00:00:00Z'", 2),
        ("local >= DATE '9999-01-01'", 2),
        ("local < DATE '0002-01-01'", 1),
        ("at < TIMESTAMP '1970-01-01T00:00:00Z'", 3),
    ] {
        let (rows, _) = copy(
            &shop,
            "path: table",
            &format!("{{ filter: \"{condition}\" }}"),
        );
        assert_eq!(rows.num_rows(), expected, "{condition}");
    }
}

/// A column of a file.
fn stored_column(name: &str, values: ArrayRef) -> (Field, ArrayRef) {
    let field = Field::new(name, values.data_type().clone(), true);
    (field, values)
}

fn decimal(value: i128, digits: u8, scale: i8) -> ArrayRef {
    let values = Decimal128Array::from(vec![value]);
    Arc::new(values.with_precision_and_scale(digits, scale).unwrap())
}

fn doubles(rows: &RecordBatch, column: &str) -> Vec<f64> {
    rows[column].as_primitive::<Float64Type>().values().to_vec()
}

/// A column whose type was widened: the log notes each change.
fn widened(name: &str, from: &str, to: &str) -> Value {
    let changes = json!([{ "fromType": from, "toType": to, "tableVersion": 1 }]);
    column(name, to, json!({ "delta.typeChanges": changes }))
}

#[test]
fn files_before_a_type_was_widened_have_the_wider_type() {
    let shop = TestDirectory::new();
    let list = json!({ "type": "array", "elementType": "long", "containsNull": true });
    let columns = [
        widened("n", "integer", "long"),
        widened("x", "float", "double"),
        widened("i", "integer", "double"),
        widened("price", "decimal(10,2)", "decimal(12,4)"),
        widened("id", "long", "decimal(20,0)"),
        widened("t", "date", "timestamp_ntz"),
        json!({ "name": "list", "type": list, "nullable": true, "metadata": {} }),
    ];
    let features = ["typeWidening", "timestampNtz"];
    let mut table = HandmadeTable::create(&shop, "table", &columns, &[], &features);
    let narrow_list =
        ListArray::from_iter_primitive::<Int32Type, _, _>([Some(vec![Some(i32::MAX), None])]);
    let narrow = vec![
        ints("n", [i32::MIN]),
        stored_column("x", Arc::new(Float32Array::from(vec![0.1]))),
        stored_column("i", Arc::new(Int32Array::from(vec![i32::MAX]))),
        stored_column("price", decimal(1_234, 10, 2)),
        stored_column("id", Arc::new(Int64Array::from(vec![i64::MAX]))),
        stored_column("t", Arc::new(Date32Array::from(vec![2_932_896]))),
        stored_column("list", Arc::new(narrow_list)),
    ];
    let statistics = json!({
        "numRecords": 1,
        "minValues": { "n": i32::MIN, "t": "9999-12-31" },
        "maxValues": { "n": i32::MIN, "t": "9999-12-31" },
        "nullCount": { "n": 0, "t": 0 },
    });
    let more = json!({ "stats": statistics.to_string() });
    let add = table.add("a.parquet", narrow, json!({}), more);
    table.commit(&[add]);
    let wide_list = ListArray::from_iter_primitive::<Int64Type, _, _>([Some(vec![Some(i64::MIN)])]);
    let wide = vec![
        stored_column("n", Arc::new(Int64Array::from(vec![5_000_000_000]))),
        stored_column("x", Arc::new(Float64Array::from(vec![1e300]))),
        stored_column("i", Arc::new(Float64Array::from(vec![0.5]))),
        stored_column("price", decimal(1, 12, 4)),
        stored_column("id", decimal(18_446_744_073_709_551_616, 20, 0)),
        stored_column("t", Arc::new(TimestampMicrosecondArray::from(vec![-1]))),
        stored_column("list", Arc::new(wide_list)),
    ];
    let add = table.add("b.parquet", wide, json!({}), json!({}));
    table.commit(&[add]);
    let (rows, _) = copy(&shop, "path: table", "");
    assert_eq!(ticks(&rows, "n"), [i64::from(i32::MIN), 5_000_000_000]);
    assert_eq!(doubles(&rows, "x"), [f64::from(0.1_f32), 1e300]);
    assert_eq!(doubles(&rows, "i"), [f64::from(i32::MAX), 0.5]);
    assert_eq!(rows["price"].data_type(), &DataType::Decimal128(12, 4));
    assert_eq!(
        words(&rows, "price"),
        [Some("12.3400".into()), Some("0.0001".into())]
    );
    let ids = [
        Some("9223372036854775807".into()),
        Some("18446744073709551616".into()),
    ];
    assert_eq!(words(&rows, "id"), ids);
    assert_eq!(ticks(&rows, "t"), [253_402_214_400_000_000, -1]);
    let items = rows["list"].as_list::<i32>().values();
    let items: Vec<_> = items.as_primitive::<Int64Type>().iter().collect();
    assert_eq!(items, [Some(i64::from(i32::MAX)), None, Some(i64::MIN)]);
    for (condition, expected) in [
        ("n < 0", [i64::from(i32::MIN)]),
        ("n > 2147483647", [5_000_000_000]),
        ("t >= DATE '9999-12-31'", [i64::from(i32::MIN)]),
        ("t < TIMESTAMP '1970-01-01 00:00:00'", [5_000_000_000]),
    ] {
        let (rows, _) = copy(
            &shop,
            "path: table",
            &format!("{{ filter: \"{condition}\" }}"),
        );
        assert_eq!(ticks(&rows, "n"), expected, "{condition}");
    }
}

/// Partition values stay as they were written when a type is widened.
#[test]
fn partition_values_have_the_widened_types() {
    let shop = TestDirectory::new();
    let columns = [
        column("n", "integer", json!({})),
        widened("id", "integer", "long"),
        widened("local", "date", "timestamp_ntz"),
        column("at", "timestamp", json!({})),
    ];
    let partitions = ["id", "local", "at"];
    let features = ["typeWidening", "timestampNtz"];
    let mut table = HandmadeTable::create(&shop, "table", &columns, &partitions, &features);
    let parts = [
        json!({ "id": "7", "local": "2024-02-29", "at": "2024-02-29 00:00:00" }),
        json!({
            "id": "5000000000",
            "local": "9999-12-31 00:00:00.000001",
            "at": "9999-12-31T00:00:00.000000Z",
        }),
        json!({ "id": null, "local": null, "at": null }),
    ];
    for (row, part) in parts.iter().enumerate() {
        let file = format!("{row}.parquet");
        let add = table.add(
            &file,
            vec![ints("n", [row as i32])],
            part.clone(),
            json!({}),
        );
        table.commit(&[add]);
    }
    let (rows, _) = copy(&shop, "path: table", "");
    let leap_day = 1_709_164_800_000_000;
    let last = 253_402_214_400_000_000;
    assert_eq!(rows["id"].null_count(), 1);
    assert_eq!(ticks(&rows, "id")[..2], [7, 5_000_000_000]);
    assert_eq!(ticks(&rows, "local")[..2], [leap_day, last + 1]);
    assert_eq!(ticks(&rows, "at")[..2], [leap_day, last]);
    for (condition, expected) in [
        ("id > 2147483647", 1),
        ("local > DATE '9999-12-31'", 1),
        ("at < TIMESTAMP '9999-12-31T00:00:00Z'", 0),
        ("id IS NULL AND at IS NULL", 2),
    ] {
        let (rows, _) = copy(
            &shop,
            "path: table",
            &format!("{{ filter: \"{condition}\" }}"),
        );
        assert_eq!(values(&rows, "n"), [expected], "{condition}");
    }
}

#[test]
fn features_that_readers_must_know_are_refused_by_name() {
    let shop = TestDirectory::new();
    for (at, feature) in ["variantType", "somethingNew", "catalogManaged"]
        .iter()
        .enumerate()
    {
        let name = format!("table-{at}");
        let mut table = HandmadeTable::create(
            &shop,
            &name,
            &[column("n", "integer", json!({}))],
            &[],
            &[feature],
        );
        let add = table.add("a.parquet", vec![ints("n", [1])], json!({}), json!({}));
        table.commit(&[add]);
        let said = refused(&shop, &format!("path: {name}"));
        assert!(said.contains(feature), "{feature}: {said}");
    }
}

/// Paths in a log that lead out of the table, in every form, for a file that lies at `{outside}`.
const WAYS_OUT: [&str; 14] = [
    "../secret/a.parquet",
    "%2e%2e/secret/a.parquet",
    "%2E%2E%2Fsecret%2Fa.parquet",
    "b/../../secret/a.parquet",
    "./../secret/a.parquet",
    "{outside}",
    "%2F{outside}",
    "file://{outside}",
    "file:{outside}",
    "FILE://{outside}",
    "file://{table}/../secret/a.parquet",
    "file://{table}/%2e%2e/secret/a.parquet",
    "file://{table}/..%2Fsecret%2Fa.parquet",
    "file://{table}%2F..%2Fsecret%2Fa.parquet",
];

/// A log can name no file outside of its table, unless the spec allows a directory; and never one of another storage.
#[test]
fn a_log_names_files_of_its_table_alone() {
    let shop = TestDirectory::new();
    let columns = [column("n", "integer", json!({}))];
    let mut table = HandmadeTable::create(&shop, "table", &columns, &[], &[]);
    std::fs::create_dir_all(shop.path("secret")).unwrap();
    let outside = table.add(
        "../secret/a.parquet",
        vec![ints("n", [1])],
        json!({}),
        json!({}),
    );
    let inside = table.add("b.parquet", vec![ints("n", [2])], json!({}), json!({}));
    table.commit(&[inside]);
    let named = |path: &str| {
        let mut add = outside.clone();
        add["add"]["path"] = json!(path);
        add
    };
    let full = |name: &str| shop.path(name).display().to_string();
    let filled = |way: &str| {
        way.replace("{outside}", &full("secret/a.parquet"))
            .replace("{table}", &full("table"))
    };
    let log = shop.path("table/_delta_log/00000000000000000002.json");
    let others = [
        "http://localhost:1/a.parquet",
        "https://localhost:1/a.parquet",
        "s3://lake/a.parquet",
        "gs://lake/a.parquet",
        "az://lake/a.parquet",
    ];
    for way in WAYS_OUT.iter().map(|way| filled(way)) {
        std::fs::write(&log, named(&way).to_string()).unwrap();
        let said = refused(&shop, "path: table");
        assert!(said.contains("FB0403"), "{way}: {said}");
        assert!(said.contains("allow_outside"), "{way}: {said}");
        // A directory beside that one does not help, nor one whose name only begins the same.
        refused(&shop, "path: table, allow_outside: [elsewhere, secre]");
        let (rows, _) = copy(&shop, "path: table, allow_outside: [secret]", "");
        let mut numbers = values(&rows, "n");
        numbers.sort_unstable();
        assert_eq!(numbers, [1, 2], "{way}");
    }
    for way in others {
        std::fs::write(&log, named(way).to_string()).unwrap();
        let said = refused(&shop, "path: table, allow_outside: [/]");
        assert!(said.contains("FB0403"), "{way}: {said}");
        let scheme = way.split_once("//").unwrap().0;
        let source = format!("path: table, allow_outside: [\"{scheme}//lake\"]");
        let said = refused(&shop, &source);
        assert!(said.contains("FB0104"), "{way}: {said}");
    }
    // What is encoded twice is a name; and a way round inside of the table stays in it.
    std::fs::write(&log, named("%252e%252e/secret/a.parquet").to_string()).unwrap();
    let said = refused(&shop, "path: table");
    assert!(!said.contains("FB0403"), "{said}");
    let mut round = named("x/../b.parquet");
    round["add"]["size"] = json!(
        std::fs::metadata(shop.path("table/b.parquet"))
            .unwrap()
            .len()
    );
    let remove = table.remove("b.parquet");
    std::fs::write(&log, format!("{remove}\n{round}")).unwrap();
    let (rows, _) = copy(&shop, "path: table", "");
    assert_eq!(values(&rows, "n"), [2]);
}

/// Deleted rows are read from the table's own files alone, too.
#[test]
fn a_deletion_vector_lies_in_its_table() {
    let shop = TestDirectory::new();
    let columns = [column("n", "integer", json!({}))];
    let mut table = HandmadeTable::create(&shop, "table", &columns, &[], &["deletionVectors"]);
    let vector = json!({ "deletionVector": {
        "storageType": "p", "pathOrInlineDv": format!("file://{}", shop.path("rows.bin").display()),
        "offset": 1, "sizeInBytes": 34, "cardinality": 1,
    } });
    std::fs::write(shop.path("rows.bin"), [1; 64]).unwrap();
    let add = table.add("a.parquet", vec![ints("n", [1, 2])], json!({}), vector);
    table.commit(&[add]);
    let said = refused(&shop, "path: table");
    assert!(said.contains("FB0403"), "{said}");
}

/// A table of daily files that grows by a file a night, and loses one.
#[test]
fn a_night_reads_what_commits_added() {
    let shop = TestDirectory::new();
    let columns = [
        column("day", "integer", json!({})),
        column("n", "integer", json!({})),
    ];
    let mut table = HandmadeTable::create(&shop, "table", &columns, &[], &[]);
    let add = |table: &HandmadeTable<'_>, day: i32| {
        let stats = json!({ "numRecords": 40, "minValues": { "day": day }, "maxValues": { "day": day },
            "nullCount": { "day": 0 } });
        let rows = vec![ints("day", [day; 40]), ints("n", (0..40).map(|n| n * day))];
        table.add(
            &format!("{day}.parquet"),
            rows,
            json!({}),
            json!({ "stats": stats.to_string() }),
        )
    };
    for day in 0..20 {
        let add = add(&table, day);
        table.commit(&[add]);
    }
    let spec = "version: 1\nname: nights\nparams:\n  out: { type: path, default: out }\nsources:\n  table: { delta: \
                { path: table }, time: day }\nsteps:\n  rows:\n    from: table\n    do:\n      - standardize: { columns: \
                [n] }\nsinks:\n  out: { from: rows, parquet: { path: \"${out}\" } }\n";
    shop.write("spec.yaml", spec);
    let night = |fresh: &str| {
        let run = |out: &str| {
            let args = [
                "run",
                "spec.yaml",
                "--json",
                &format!("--param=out={out}"),
                &format!("--state=state-{out}"),
            ];
            shop.forebay(&args).expect(0).summary()
        };
        let summary = run("out");
        let full = run(fresh);
        assert_eq!(
            summary["artifact"].as_str().map(file_name),
            full["artifact"].as_str().map(file_name)
        );
        assert!(
            shop.visible("out") == shop.visible(fresh),
            "a full run gives other rows"
        );
        let learn = summary["passes"]
            .as_array()
            .unwrap()
            .iter()
            .find(|pass| pass["work"] == "learn")
            .unwrap();
        learn["rows_in"].as_u64().unwrap() - learn["rows_kept"].as_u64().unwrap()
    };
    assert_eq!(night("full-0"), 800);
    let more = add(&table, 20);
    let gone = table.remove("3.parquet");
    table.commit(&[more]);
    assert_eq!(night("full-1"), 40, "the day that was added");
    table.commit(&[gone]);
    // The days that shared a state with the one that was removed.
    assert!(night("full-2") <= 4 * 40);
}

/// Data that are not as the log says stay so: a scheduler must not try again.
#[test]
fn files_that_are_not_as_the_log_says_are_bad_data() {
    let shop = TestDirectory::new();
    let mut table = HandmadeTable::create(
        &shop,
        "table",
        &[column("n", "integer", json!({}))],
        &[],
        &[],
    );
    let file = table.add("a.parquet", vec![ints("n", 0..10)], json!({}), json!({}));
    table.commit(&[file]);
    let spec = "version: 1\nname: gone\nsources:\n  table: { delta: { path: table } }\nsinks:\n  out: { from: table, \
                csv: { path: out } }\n";
    shop.write("spec.yaml", spec);
    let stored = shop.path("table/a.parquet");
    std::fs::rename(&stored, shop.path("elsewhere")).unwrap();
    let missing = "version 1 of the Delta table names a file that is not there";
    let longer = "version 1 of the Delta table says that the file has";
    for (message, file) in [(missing, None), (longer, Some("not what was logged"))] {
        if let Some(text) = file {
            std::fs::write(&stored, text).unwrap();
        }
        for command in ["check", "run"] {
            let call = shop.forebay(&[command, "spec.yaml", "--json"]);
            // Findings of a check are for the author of the spec.
            let is_bad_data = call.code == 65 || (command == "check" && call.code == 78);
            assert!(is_bad_data, "{command}: {} {}", call.code, call.stderr);
            assert!(call.stderr.contains(message), "{command}: {}", call.stderr);
            assert!(call.stderr.contains("table/a.parquet"), "{}", call.stderr);
        }
    }
}

/// A bucket lists a file of the table and answers 404 when it is asked for: it was removed in between.
#[test]
fn files_that_a_bucket_has_no_more_are_bad_data() {
    let shop = TestDirectory::new();
    std::fs::create_dir_all(shop.path("buckets/lake")).unwrap();
    let columns = [column("n", "integer", json!({}))];
    let mut table = HandmadeTable::create(&shop, "buckets/lake/table", &columns, &[], &[]);
    for part in 0..2 {
        let name = format!("part-{part}.parquet");
        let file = table.add(&name, vec![ints("n", 0..10)], json!({}), json!({}));
        table.commit(&[file]);
    }
    let server = S3Server::start(&shop.path("buckets"));
    shop.write("copy.yaml", &spec("path: \"s3://lake/table\"", "", "out"));
    for (gone, says) in [
        (
            "part-1.parquet",
            "version 2 of the Delta table names a file that is not there",
        ),
        (
            "00000000000000000001.json",
            "a file of the table's log is not there",
        ),
    ] {
        server.inject_failures(move |asked| {
            let is_gone = asked.target.contains(gone) && !asked.target.contains("list-type");
            is_gone.then_some(RequestFailure::Says(404, "NoSuchKey"))
        });
        for command in ["check", "run"] {
            let call = server.forebay(&shop, &[command, "copy.yaml", "--json"]);
            let is_bad_data = call.code == 65 || (command == "check" && call.code == 78);
            assert!(is_bad_data, "{command}: {} {}", call.code, call.stderr);
            for part in ["FB0402", says, gone] {
                assert!(call.stderr.contains(part), "{command}: {}", call.stderr);
            }
        }
        // A store that says so is believed at once.
        let asked = server.stop_failures();
        assert!(
            (1..=8).contains(&asked),
            "{gone} was asked for {asked} times"
        );
    }
    server
        .forebay(&shop, &["run", "copy.yaml", "--json"])
        .expect(0);
    assert_eq!(values(&shop.visible("out"), "n").len(), 20);
}

fn file_name(path: &str) -> &str {
    Path::new(path).file_name().unwrap().to_str().unwrap()
}

#[test]
fn a_table_in_a_bucket_is_read_with_few_requests() {
    let shop = TestDirectory::new();
    std::fs::create_dir_all(shop.path("buckets/lake")).unwrap();
    let columns = [column("n", "integer", json!({}))];
    let mut table = HandmadeTable::create(
        &shop,
        "buckets/lake/a table",
        &columns,
        &[],
        &["deletionVectors"],
    );
    for part in 0..12 {
        let file = format!("part%20{part}.parquet");
        let stored = format!("part {part}.parquet");
        let mut add = table.add(
            &stored,
            vec![ints("n", part * 10..part * 10 + 10)],
            json!({}),
            deletion_vector(&[3]),
        );
        add["add"]["path"] = file.into();
        table.commit(&[add]);
    }
    let server = S3Server::start(&shop.path("buckets"));
    let asked: Arc<std::sync::Mutex<BTreeMap<String, u64>>> = Arc::default();
    let counted = asked.clone();
    server.inject_failures(move |request| {
        if request.target.contains(".parquet") && !request.target.contains("out") {
            *counted
                .lock()
                .unwrap()
                .entry(request.method.clone())
                .or_default() += 1;
        }
        None
    });
    shop.write("copy.yaml", &spec("path: \"s3://lake/a table\"", "", "out"));
    server
        .forebay(&shop, &["run", "copy.yaml", "--json"])
        .expect(0);
    let expected: Vec<i32> = (0..120).filter(|n| n % 10 != 3).collect();
    assert_eq!(values(&shop.visible("out"), "n"), expected);
    let asked = asked.lock().unwrap().clone();
    assert_eq!(asked.get("HEAD"), None, "{asked:?}");
    // A footer and the columns of each, and the footer that tells how large columns are.
    assert!(asked["GET"] <= 12 * 2 + 1, "{asked:?}");
}
