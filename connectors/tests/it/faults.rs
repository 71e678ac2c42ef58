//! Files that are not as they should be: the fault names them.

use std::path::Path;

use forebay_model::{Fault, codes};
use forebay_storage::StorageClient;
use serde_json::{Value, json};

use crate::help::{chunks, read, request, rows, source, write};

fn site(fault: &Fault) -> (&'static str, String) {
    let file = fault.site().file.as_deref().unwrap_or("");
    (
        fault.code().name,
        Path::new(file)
            .file_name()
            .and_then(|name| name.to_str())
            .unwrap_or("")
            .to_owned(),
    )
}

fn parquet(dir: &Path, name: &str) -> Vec<u8> {
    let file = dir.join(name);
    write(
        "parquet",
        json!({"path": "out", "compression": "none"}),
        &file,
        &[rows(0, 3000), rows(3000, 3000)],
    );
    std::fs::read(file).unwrap()
}

#[test]
fn truncated_files_are_named() {
    let dir = tempfile::tempdir().unwrap();
    let bytes = parquet(dir.path(), "a.parquet");
    for (i, length) in [0, 5, 11, 12, bytes.len() / 2, bytes.len() - 1]
        .into_iter()
        .enumerate()
    {
        let name = format!("b{i}.parquet");
        std::fs::write(dir.path().join(&name), &bytes[..length]).unwrap();
        let fault = read("parquet", json!({"path": dir.path()})).unwrap_err();
        assert_eq!(site(&fault), (codes::CORRUPT.name, name.clone()), "{fault}");
        std::fs::remove_file(dir.path().join(&name)).unwrap();
    }
}

#[test]
fn a_broken_page_is_named_by_file_row_group_and_column() {
    let dir = tempfile::tempdir().unwrap();
    let mut bytes = parquet(dir.path(), "a.parquet");
    let meta = ::parquet::file::metadata::ParquetMetaDataReader::new()
        .parse_and_finish(&std::fs::File::open(dir.path().join("a.parquet")).unwrap())
        .unwrap();
    let column = meta
        .file_metadata()
        .schema_descr()
        .columns()
        .iter()
        .position(|c| c.name() == "word")
        .unwrap();
    let (start, length) = meta.row_group(1).column(column).byte_range();
    bytes[start as usize..(start + length) as usize].fill(0xff);
    std::fs::write(dir.path().join("a.parquet"), bytes).unwrap();
    let fault = read("parquet", json!({"path": dir.path()})).unwrap_err();
    assert_eq!(
        site(&fault),
        (codes::CORRUPT.name, "a.parquet".to_owned()),
        "{fault}"
    );
    assert_eq!(
        (fault.site().row_group, fault.site().column.as_deref()),
        (Some(1), Some("word")),
        "{fault}"
    );
}

#[test]
fn any_broken_byte_gives_a_fault_or_rows_but_no_crash() {
    for format in ["parquet", "arrow"] {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join(format!("a.{format}"));
        write(format, json!({"path": "out"}), &file, &[rows(0, 300)]);
        let bytes = std::fs::read(&file).unwrap();
        let mut faults = 0;
        for at in (0..bytes.len()).step_by(bytes.len() / 300 + 1) {
            let mut broken = bytes.clone();
            broken[at] ^= 0x55;
            std::fs::write(&file, broken).unwrap();
            if let Err(fault) = read(format, json!({"path": file})) {
                faults += 1;
                assert_eq!(site(&fault).1, format!("a.{format}"), "byte {at}: {fault}");
            }
        }
        assert!(faults > 10, "{format}: {faults} faults");
    }
}

/// Bytes that are damaged stay damaged: no fault of them says that another try may help.
#[test]
fn damage_in_packed_buffers_is_bad_data() {
    for (format, compression) in [
        ("arrow", "lz4"),
        ("arrow", "zstd"),
        ("parquet", "snappy"),
        ("parquet", "zstd"),
    ] {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join(format!("a.{format}"));
        let config = json!({"path": "out", "compression": compression});
        write(format, config, &file, &[rows(0, 300)]);
        let bytes = std::fs::read(&file).unwrap();
        let mut faults = 0;
        for at in (0..bytes.len()).step_by(bytes.len() / 400 + 1) {
            for damage in [0x01, 0x80, 0xff] {
                let mut broken = bytes.clone();
                broken[at] ^= damage;
                std::fs::write(&file, broken).unwrap();
                if let Err(fault) = read(format, json!({"path": file})) {
                    faults += 1;
                    let exit = fault.code().exit_code();
                    assert_ne!(exit, 75, "{format} {compression} byte {at}: {fault:?}");
                }
            }
        }
        assert!(faults > 10, "{format} {compression}: {faults} faults");
    }
}

#[test]
fn files_that_are_no_arrow_are_named() {
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("a.arrow"), "this is text, not columns").unwrap();
    let fault = read("arrow", json!({"path": dir.path()})).unwrap_err();
    assert_eq!(
        site(&fault),
        (codes::CORRUPT.name, "a.arrow".to_owned()),
        "{fault}"
    );
}

#[test]
fn nothing_to_read_says_where_it_looked() {
    let dir = tempfile::tempdir().unwrap();
    std::fs::create_dir(dir.path().join("flights")).unwrap();
    let fault = read(
        "parquet",
        json!({"path": dir.path().join("flihgts/*.parquet")}),
    )
    .unwrap_err();
    assert_eq!(fault.code().name, codes::NO_INPUT.name);
    assert!(
        fault.hint_text().unwrap().contains("/flights/*.parquet`?"),
        "{fault:?}"
    );
    let fault = read("parquet", json!({"path": dir.path().join("flights")})).unwrap_err();
    assert!(
        fault.hint_text().unwrap().contains("nothing in it fits"),
        "{fault:?}"
    );
    let fault = read("csv", json!({"path": dir.path().join("a/b/c.csv")})).unwrap_err();
    assert!(
        fault
            .hint_text()
            .unwrap()
            .contains(&format!("`{}`", dir.path().display())),
        "{fault:?}"
    );
    // A group of characters of a shell.
    let path = dir.path().join("flights-0[1-3].csv");
    let fault = read("csv", json!({"path": path})).unwrap_err();
    assert!(
        fault
            .hint_text()
            .unwrap()
            .contains("`[1-3]` is no pattern, and stands for itself"),
        "{fault:?}"
    );
}

#[test]
fn a_file_that_changes_is_noticed() {
    for format in ["parquet", "arrow", "csv", "json"] {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join(format!("a.{format}"));
        let text = if format == "csv" {
            "a\n1\n"
        } else {
            "{\"a\":1}\n"
        };
        let put = |count: usize| match format {
            "parquet" | "arrow" => write(format, json!({"path": "out"}), &file, &[rows(0, count)]),
            _ => std::fs::write(&file, text.repeat(count)).unwrap(),
        };
        put(10);
        let io = StorageClient::new().unwrap();
        let source = source(format, json!({"path": file}));
        let dataset = source.discover(&io, &[]).unwrap();
        put(11);
        let fault = chunks(&io, source.as_ref(), &dataset, &request(&dataset)).unwrap_err();
        assert_eq!(
            site(&fault),
            (codes::CHANGED.name, format!("a.{format}")),
            "{fault}"
        );
        std::fs::remove_file(&file).unwrap();
        let fault = chunks(&io, source.as_ref(), &dataset, &request(&dataset)).unwrap_err();
        assert_eq!(
            site(&fault),
            (codes::CHANGED.name, format!("a.{format}")),
            "{fault}"
        );
    }
}

/// A file with a row that is no row, and where the fault says it is.
struct BadRow {
    format: &'static str,
    text: &'static [u8],
    columns: Value,
    row: u64,
    column: Option<&'static str>,
}

#[test]
fn all_rows_with_a_wrong_number_of_fields_are_named_at_once() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("a.csv");
    let config = json!({"path": file, "columns": {"a": "int64", "b": "int64"}});
    let cases = [
        ("a,b\n1,2\n5\n3,4\n", None),
        (
            "a,b\n1,2\n5\n3,4\n1,2,3\n",
            Some("another row with a wrong number of fields begins in line 5"),
        ),
        (
            "a,b\n1,2\n5\n6\n7\n8,8\n9\n9\n9\n",
            Some("other rows with a wrong number of fields begin in lines 4, 5, 7, and 2 more"),
        ),
    ];
    for (text, expected) in cases {
        std::fs::write(&file, text).unwrap();
        let fault = read("csv", config.clone()).unwrap_err();
        assert_eq!(
            fault.message(),
            "the row has 1 field, and there are 2 columns"
        );
        let notes = fault.notes();
        let of_row = "the row begins in line 3 of the file";
        assert!(notes.iter().any(|note| note == of_row), "{notes:?}");
        let others = notes.iter().find(|note| note.contains("wrong number"));
        assert_eq!(others.map(String::as_str), expected, "{text}");
    }
}

#[test]
fn bad_rows_are_named_by_file_row_and_column() {
    let case = |format, text: &'static [u8], columns, row, column| BadRow {
        format,
        text,
        columns,
        row,
        column,
    };
    let cases = [
        case(
            "csv",
            b"a,b\n1,2\n3,x\n",
            json!({"a": "int64", "b": "int64"}),
            1,
            Some("b"),
        ),
        case(
            "csv",
            b"a,b\n1,2\n3,\xc3\n4,\xa9\n",
            json!({"a": "int64", "b": "string"}),
            1,
            Some("b"),
        ),
        case(
            "csv",
            b"a,b\n1,2\n3,4\n5\n",
            json!({"a": "int64", "b": "int64"}),
            2,
            None,
        ),
        case(
            "csv",
            b"a,b\n1,300\n",
            json!({"a": "int64", "b": "int8"}),
            0,
            Some("b"),
        ),
        case(
            "json",
            b"{\"a\":1,\"b\":2}\n\n{\"a\":1,\"b\":\"x\"}\n",
            json!({"a": "int64", "b": "int64"}),
            1,
            Some("b"),
        ),
        case(
            "json",
            b"{\"a\":1,\"b\":2}\n{\"a\":1,\n",
            json!({"a": "int64", "b": "int64"}),
            1,
            None,
        ),
        case(
            "json",
            b"{\"a\":1,\"b\":2}\n{\"a\":1} {\"a\":2}\n",
            json!({"a": "int64", "b": "int64"}),
            1,
            None,
        ),
    ];
    for BadRow {
        format,
        text,
        columns,
        row,
        column,
    } in cases
    {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join(format!("a.{format}"));
        std::fs::write(&file, text).unwrap();
        let fault = read(format, json!({"path": file, "columns": columns})).unwrap_err();
        assert_eq!(
            site(&fault),
            (codes::BAD_ROW.name, format!("a.{format}")),
            "{fault}"
        );
        assert_eq!(
            (&fault.site().rows[..], fault.site().column.as_deref()),
            (&[row][..], column),
            "{fault}"
        );
    }
}

#[test]
fn broken_packing_is_named() {
    let dir = tempfile::tempdir().unwrap();
    let text = "a,b\n".to_owned() + &"1,2\n".repeat(200_000);
    for name in ["a.csv.gz", "a.csv.zst"] {
        let mut packed = if name.ends_with("gz") {
            let mut out = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
            std::io::Write::write_all(&mut out, text.as_bytes()).unwrap();
            out.finish().unwrap()
        } else {
            zstd::encode_all(text.as_bytes(), 1).unwrap()
        };
        packed.truncate(packed.len() * 2 / 3);
        let file = dir.path().join(name);
        std::fs::write(&file, packed).unwrap();
        let fault = read("csv", json!({"path": file})).unwrap_err();
        assert_eq!(
            site(&fault),
            (codes::CORRUPT.name, name.to_owned()),
            "{fault}"
        );
    }
}

#[test]
fn a_file_that_is_written_over_while_it_is_read_is_noticed() {
    for format in ["parquet", "csv"] {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join(format!("a.{format}"));
        match format {
            "parquet" => write(
                format,
                json!({"path": "out"}),
                &file,
                &[rows(0, 100), rows(100, 100)],
            ),
            _ => std::fs::write(&file, "a,b\n".to_owned() + &"1,2\n".repeat(1000)).unwrap(),
        }
        let io = StorageClient::new().unwrap();
        let source = source(format, json!({"path": file}));
        let dataset = source.discover(&io, &[]).unwrap();
        let mut chunks = source
            .open(&io, &dataset.spans[0], &request(&dataset))
            .unwrap();
        chunks.next().unwrap().unwrap();
        std::io::Write::write_all(
            &mut std::fs::File::options().append(true).open(&file).unwrap(),
            b" ",
        )
        .unwrap();
        let fault = chunks.find_map(Result::err).unwrap();
        assert_eq!(
            site(&fault),
            (codes::CHANGED.name, format!("a.{format}")),
            "{fault}"
        );
        assert!(chunks.next().is_none());
    }
}
