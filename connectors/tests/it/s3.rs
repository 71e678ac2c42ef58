//! A server that speaks S3, in this process, over files in a temporary folder.

use std::path::Path;
use std::sync::Arc;

use forebay_contract::{ConnectorRegistry, ScanRequest};
use forebay_model::codes;
use forebay_storage::StorageClient;
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::server::conn::auto::Builder;
use object_store::aws::AmazonS3Builder;
use s3s::auth::SimpleAuth;
use s3s::service::S3ServiceBuilder;
use serde_json::json;
use tokio::net::TcpListener;

use crate::help::{assert_rows, chunks, keys, request, rows, source, whole, write};

/// Serves a folder; each folder in it is a bucket.
fn serve(root: &Path) -> StorageClient {
    let io = StorageClient::new().unwrap();
    let mut service = S3ServiceBuilder::new(s3s_fs::FileSystem::new(root).unwrap());
    service.set_auth(SimpleAuth::from_single("key", "secret"));
    let service = service.build();
    let listener = io
        .block_on(TcpListener::bind("127.0.0.1:0"))
        .unwrap()
        .unwrap();
    let endpoint = format!("http://{}", listener.local_addr().unwrap());
    io.runtime_handle().unwrap().spawn(async move {
        while let Ok((socket, _)) = listener.accept().await {
            let service = service.clone();
            tokio::spawn(async move {
                let _ = Builder::new(TokioExecutor::new())
                    .serve_connection(TokioIo::new(socket), service)
                    .await;
            });
        }
    });
    let store = AmazonS3Builder::new()
        .with_endpoint(endpoint)
        .with_allow_http(true)
        .with_region("us-east-1")
        .with_access_key_id("key")
        .with_secret_access_key("secret")
        .with_bucket_name("lake")
        .build()
        .unwrap();
    io.with_store("s3://lake", Arc::new(store)).unwrap()
}

#[test]
fn objects_are_read_like_files() {
    let dir = tempfile::tempdir().unwrap();
    let lake = dir.path().join("lake/demand");
    for format in ["parquet", "arrow"] {
        for day in 1..4 {
            let file = lake.join(format!("{format}/day={day}/a.{format}"));
            let from = day * 1000;
            write(
                format,
                json!({"path": "out"}),
                &file,
                &[rows(from, 600), rows(from + 600, 400)],
            );
        }
    }
    std::fs::create_dir_all(lake.join("csv")).unwrap();
    std::fs::write(
        lake.join("csv/a.csv"),
        "a,b\n".to_owned() + &"1,x\n".repeat(300_000),
    )
    .unwrap();
    std::fs::create_dir_all(lake.join("json")).unwrap();
    std::fs::write(lake.join("json/a.jsonl"), "{\"a\":1}\n".repeat(100_000)).unwrap();
    let io = serve(dir.path());
    for format in ["parquet", "arrow"] {
        let read = |path: String| {
            let source = source(format, json!({"path": path}));
            let dataset = source.discover(&io, &[]).unwrap();
            let chunks = chunks(&io, source.as_ref(), &dataset, &request(&dataset)).unwrap();
            (whole(&chunks), keys(&chunks))
        };
        let (remote, remote_keys) = read(format!("s3://lake/demand/{format}"));
        let (local, local_keys) = read(lake.join(format).display().to_string());
        assert_rows(&remote, &local);
        assert_eq!(remote_keys, local_keys);
        let (some, _) = read(format!("s3://lake/demand/{format}/day=[x]*/*").replace("[x]", ""));
        assert_eq!(some.num_rows(), 3000);
        let (single, _) = read(format!("s3://lake/demand/{format}/day=2/a.{format}"));
        assert_eq!(single.num_rows(), 1000);
    }
    for (format, count) in [("csv", 300_000), ("json", 100_000)] {
        let source = source(
            format,
            json!({"path": format!("s3://lake/demand/{format}")}),
        );
        let dataset = source.discover(&io, &[]).unwrap();
        let some = ScanRequest {
            columns: vec!["a".into()],
            ..request(&dataset)
        };
        assert_eq!(
            whole(&chunks(&io, source.as_ref(), &dataset, &some).unwrap()).num_rows(),
            count
        );
    }
    let missing = source("parquet", json!({"path": "s3://lake/nowhere"}))
        .discover(&io, &[])
        .unwrap_err();
    assert_eq!(missing.code().name, codes::NO_INPUT.name);
}

#[test]
fn objects_are_read_under_the_etags_of_their_listing() {
    let dir = tempfile::tempdir().unwrap();
    let io = StorageClient::new().unwrap();
    let io = io
        .with_store("s3://lake", Arc::new(object_store::memory::InMemory::new()))
        .unwrap();
    for format in ["parquet", "arrow"] {
        let local = dir.path().join(format!("a.{format}"));
        let place = io
            .resolve(&format!("s3://lake/{format}/a.{format}"))
            .unwrap();
        let put = |from| {
            write(
                format,
                json!({"path": "out"}),
                &local,
                &[rows(from, 600), rows(from + 600, 400)],
            );
            io.put(&place, std::fs::read(&local).unwrap().into())
                .unwrap();
        };
        put(0);
        let source = source(format, json!({"path": place.shown}));
        let dataset = source.discover(&io, &[]).unwrap();
        let read = || chunks(&io, source.as_ref(), &dataset, &request(&dataset));
        let before = whole(&read().unwrap());
        assert_eq!(before.num_rows(), 1000);
        put(7);
        match format {
            // A small file is in memory since it was discovered.
            "parquet" => assert!(whole(&read().unwrap()) == before),
            _ => {
                let fault = read().unwrap_err();
                assert_eq!(
                    (fault.code().name, fault.site().file.as_ref()),
                    ("FB0208", Some(&place.shown)),
                    "{fault}"
                );
            }
        }
        // Another reader of the dataset knows no etag.
        let other = forebay_connectors::BuiltInConnectors
            .source(format, &json!({"path": place.shown}))
            .unwrap();
        let fault = chunks(&io, other.as_ref(), &dataset, &request(&dataset)).unwrap_err();
        assert_eq!(
            (fault.code().name, fault.site().file.as_ref()),
            ("FB0208", Some(&place.shown)),
            "{fault}"
        );
        put(0);
    }
}

#[test]
fn objects_that_change_or_break_are_named() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("lake/a.parquet");
    let put = |from| write("parquet", json!({"path": "out"}), &file, &[rows(from, 500)]);
    put(0);
    let io = serve(dir.path());
    let source = forebay_connectors::BuiltInConnectors
        .source("parquet", &json!({"path": "s3://lake/a.parquet"}))
        .unwrap();
    let dataset = source.discover(&io, &[]).unwrap();
    std::thread::sleep(std::time::Duration::from_millis(1100));
    put(7);
    // One that has not read the file yet.
    let other = forebay_connectors::BuiltInConnectors
        .source("parquet", &json!({"path": "s3://lake/a.parquet"}))
        .unwrap();
    let fault = chunks(&io, other.as_ref(), &dataset, &request(&dataset)).unwrap_err();
    assert_eq!(
        (fault.code().name, fault.site().file.as_deref()),
        ("FB0208", Some("s3://lake/a.parquet")),
        "{fault}"
    );
    let bytes = std::fs::read(&file).unwrap();
    std::fs::write(&file, &bytes[..bytes.len() - 100]).unwrap();
    let fault = source.discover(&io, &[]).unwrap_err();
    assert_eq!(
        (fault.code().name, fault.site().file.as_deref()),
        ("FB0203", Some("s3://lake/a.parquet")),
        "{fault}"
    );
}
