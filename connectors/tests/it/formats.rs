//! What every format must do.

use serde_json::json;

use crate::help::{assert_rows, read, rows, write};

#[test]
fn what_is_written_is_read_back() {
    for (format, compression) in [("parquet", "snappy"), ("parquet", "zstd"), ("parquet", "lz4"), ("parquet", "none")] {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join(format!("a.{format}"));
        let parts = [rows(0, 1000), rows(1000, 1), rows(1001, 3000)];
        write(format, json!({"path": "out", "compression": compression}), &file, &parts);
        let back = read(format, json!({"path": file})).unwrap();
        assert_rows(&back, &rows(0, 4001));
    }
}
