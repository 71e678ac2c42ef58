//! The feed's cache of what is read of a bucket.

use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use arrow::array::{ArrayRef, FixedSizeListArray, Float32Array, Int64Array, RecordBatch};
use arrow::datatypes::{DataType, Field};
use parquet::arrow::ArrowWriter;
use parquet::file::properties::WriterProperties;

use crate::support::s3_server::S3Server;
use crate::support::{ProgramOutput, TestDirectory};

/// How often data was read of the bucket since the server was told to count, by what is asked.
fn counting(server: &S3Server) -> Arc<AtomicU64> {
    let gets = Arc::new(AtomicU64::new(0));
    let counted = gets.clone();
    server.inject_failures(move |asked| {
        let of_data = asked.method == "GET"
            && asked.target.contains("demand")
            && asked.target.contains(".parquet");
        counted.fetch_add(u64::from(of_data), Ordering::SeqCst);
        None
    });
    gets
}

/// The files in the bucket.
fn data_of(shop: &TestDirectory) -> Vec<PathBuf> {
    let files = std::fs::read_dir(shop.path("buckets/lake/demand"))
        .unwrap()
        .map(|file| file.unwrap().path());
    let mut files: Vec<_> = files
        .filter(|path| path.extension().is_some_and(|ending| ending == "parquet"))
        .collect();
    files.sort();
    files
}

/// What was found out about files that have just been written is not noted: they are looked at each time.
fn age(path: &Path) {
    let old = std::time::SystemTime::now() - std::time::Duration::from_secs(3600);
    std::fs::File::open(path)
        .unwrap()
        .set_modified(old)
        .unwrap();
}

/// A training reads a bucket no more often for three epochs than for one, and less often where another one has
/// filled the cache; it learns the same.
#[test]
fn a_training_reads_a_bucket_once_where_it_has_a_cache() {
    let (shop, server) = S3Server::over_demand();
    data_of(&shop).iter().for_each(|path| age(path));
    let train = |name: &str, epochs: u32, cache: Option<&str>| {
        let out = shop.at(&format!("out-{name}"));
        let cache = cache.map(|cache| {
            format!(
                "cache: {{ path: {:?}, bytes_max: 1073741824 }}",
                shop.at(cache)
            )
        });
        let more = cache.unwrap_or_default();
        let text = format!(
            "version: 1\nname: afar\nsources: {{ demand: {{ parquet: {{ path: \"s3://lake/demand\" }}, time: date }} }}\n\
             steps: {{ sold: {{ from: demand, do: [{{ filter: qty IS NOT NULL }}] }} }}\n\
             sinks: {{ net: {{ from: sold, train: {{ path: {out:?}, label: qty, dense: [price], missing: 0, \
             non_finite: skip, batch_rows: 512, window_rows: 2000, epochs: {epochs}, {more} }} }} }}\n"
        );
        let spec = shop.write(&format!("{name}.yaml"), &text);
        let state = shop.at(&format!("state-{name}"));
        let gets = counting(&server);
        let told = server
            .forebay(&shop, &["run", &spec, "--json", "--state", &state])
            .expect(0)
            .summary();
        let model = std::fs::read(shop.path(&format!("out-{name}/model.safetensors"))).unwrap();
        (
            gets.load(Ordering::SeqCst),
            told["models"][0]["id"].clone(),
            model,
        )
    };
    let (once, ..) = train("once", 1, Some("first"));
    let (thrice, id, model) = train("thrice", 3, Some("second"));
    let (again, ..) = train("again", 3, Some("second"));
    let (bare, same_id, same_model) = train("bare", 3, None);
    // A few requests may be sent again where the machine is busy; two more epochs would be far more.
    assert!(
        once > 0 && thrice <= once + once / 4,
        "{once} and {thrice} requests"
    );
    assert!(
        again < bare,
        "{again} requests with what another training left, and {bare} without"
    );
    assert!(
        model == same_model && id == same_id,
        "the cache changes nothing"
    );
}

/// What the first epoch reads of a bucket, the others need not; whatever becomes of the cache.
#[test]
fn a_feed_reads_a_bucket_once_where_it_has_a_cache() {
    let (shop, server) = S3Server::over_demand();
    let data = || data_of(&shop);
    data().iter().for_each(|path| age(path));
    let spec = |bytes_max: u64| {
        let cache = shop.at("cache");
        let state = shop.at("state");
        let text = format!(
            "version: 1\nname: afar\nsources: {{ demand: {{ parquet: {{ path: \"s3://lake/demand\" }}, time: date }} }}\n\
             feed: {{ dense: [qty, price], missing: 0, batch_rows: 512, last: short, window_rows: 2000, \
             cache: {{ path: {cache:?}, bytes_max: {bytes_max} }} }}\n"
        );
        (shop.write(&format!("feed-{bytes_max}.yaml"), &text), state)
    };
    let args = |bytes_max: u64, epoch: &str| {
        let (spec, state) = spec(bytes_max);
        ["feed", &spec, "--json", "--state", &state, "--epoch", epoch].map(str::to_owned)
    };
    let feed = |bytes_max: u64, epoch: &str| {
        let gets = counting(&server);
        let args = args(bytes_max, epoch);
        let args: Vec<&str> = args.iter().map(String::as_str).collect();
        let told = server.forebay(&shop, &args).expect(0).summary();
        (told, gets.load(Ordering::SeqCst))
    };
    let size = || {
        let files = std::fs::read_dir(shop.path("cache"))
            .unwrap()
            .map(|file| file.unwrap());
        files
            .filter(|file| file.file_name() != "sizes")
            .map(|file| file.metadata().unwrap().len())
            .sum::<u64>()
    };
    let (first, gets) = feed(1 << 30, "0");
    let rows = first["rows"].as_u64().unwrap();
    let stored = first["cache_missed_bytes"].as_u64().unwrap();
    assert!(
        gets > 0 && rows > 1000 && stored > 0,
        "{gets} requests, {first}"
    );
    let (second, gets) = feed(1 << 30, "1");
    assert_eq!(
        (
            gets,
            second["rows"].as_u64(),
            second["cached_bytes"].as_u64()
        ),
        (0, Some(rows), Some(stored))
    );

    // A bit that the disk has lost is read again, and kept.
    let files = std::fs::read_dir(shop.path("cache"))
        .unwrap()
        .map(|file| file.unwrap().path());
    let entry = files
        .filter(|path| !path.ends_with("sizes"))
        .max_by_key(|path| path.metadata().unwrap().len())
        .unwrap();
    let mut bytes = std::fs::read(&entry).unwrap();
    bytes[20] ^= 4;
    std::fs::write(&entry, bytes).unwrap();
    let (mended, gets) = feed(1 << 30, "2");
    assert!(gets > 0, "the entry is read again");
    assert_eq!(
        (
            mended["rows"].as_u64(),
            mended["cache_corrupt_entries"].as_u64()
        ),
        (Some(rows), Some(1))
    );
    assert_eq!(feed(1 << 30, "3").1, 0);

    // What changes in the bucket is read anew.
    let files = data();
    std::fs::copy(&files[files.len() - 1], &files[0]).unwrap();
    age(&files[0]);
    let (changed, gets) = feed(1 << 30, "1");
    let (changed, missed) = (
        changed["rows"].as_u64().unwrap(),
        changed["cache_missed_bytes"].as_u64().unwrap(),
    );
    assert!(gets > 0 && changed != rows && missed > 0 && missed < stored);

    // A small cache stays small; two processes share it.
    std::fs::remove_dir_all(shop.path("cache")).unwrap();
    let small = stored / 2;
    let both: Vec<_> = (0..2)
        .map(|_| {
            let args = args(small, "0");
            let args: Vec<&str> = args.iter().map(String::as_str).collect();
            let mut command = server.command(&shop, &args);
            command
                .stdout(Stdio::piped())
                .stderr(Stdio::piped())
                .spawn()
                .unwrap()
        })
        .collect();
    for one in both {
        let told = ProgramOutput::from(one.wait_with_output().unwrap())
            .expect(0)
            .summary();
        assert_eq!(told["rows"].as_u64(), Some(changed));
    }
    assert!(size() > 0 && size() <= small, "{} of {small}", size());
    // Another epoch reads in another order, and still finds entries of the epoch before.
    let (third, gets) = feed(small, "1");
    let cached = third["cached_bytes"].as_u64().unwrap();
    assert!(gets > 0 && cached > 0, "{gets} requests, {third}");
    assert!(size() > 0 && size() <= small, "{} of {small}", size());

    // A cache that cannot be is a fault.
    std::fs::write(shop.path("taken"), "x").unwrap();
    let text = std::fs::read_to_string(shop.path("feed-1073741824.yaml")).unwrap();
    let taken = shop.write(
        "taken.yaml",
        &text.replace(&shop.at("cache"), &shop.at("taken")),
    );
    let fault = server.forebay(&shop, &["feed", &taken, "--state", &shop.at("state")]);
    assert!(
        fault
            .stderr
            .contains("the cache of the feed cannot be used"),
        "{}",
        fault.stderr
    );
}

/// A small window takes parts of row groups from a bucket, too, also where a column holds vectors: as many rows mix as
/// on a local disk, each part asks for its own pages, and the rows are the same.
#[test]
fn a_small_window_mixes_row_groups_of_a_bucket() {
    const ROWS: usize = 200_000;
    const PARTS: u64 = 4 * 13;
    let shop = TestDirectory::new();
    std::fs::create_dir_all(shop.path("buckets/lake/all")).unwrap();
    let server = S3Server::start(&shop.path("buckets"));
    let ids = Int64Array::from_iter_values(0..ROWS as i64);
    let numbers = Float32Array::from_iter_values((0..2 * ROWS).map(|at| at as f32));
    let element = Arc::new(Field::new("item", DataType::Float32, true));
    let vectors = FixedSizeListArray::new(element, 2, Arc::new(numbers), None);
    let all = RecordBatch::try_from_iter([
        ("id", Arc::new(ids) as ArrayRef),
        ("pair", Arc::new(vectors)),
    ])
    .unwrap();
    let path = shop.path("buckets/lake/all/a.parquet");
    let groups = WriterProperties::builder()
        .set_max_row_group_row_count(Some(ROWS / 4))
        .set_dictionary_enabled(false);
    let file = std::fs::File::create(&path).unwrap();
    let mut writer = ArrowWriter::try_new(file, all.schema(), Some(groups.build())).unwrap();
    writer.write(&all).unwrap();
    writer.close().unwrap();
    age(&path);
    let stored = path.metadata().unwrap().len();
    let feed = |name: &str, data: &str| {
        let text = format!(
            "version: 1\nname: small\nsources: {{ all: {{ parquet: {{ path: {data:?} }} }} }}\n\
             feed: {{ dense: [id, pair], batch_rows: 4096, window_rows: 20000, last: short }}\n"
        );
        let spec = shop.write(&format!("{name}.yaml"), &text);
        let state = shop.at(&format!("state-{name}"));
        let gets = Arc::new(AtomicU64::new(0));
        let counted = gets.clone();
        server.inject_failures(move |asked| {
            let of_data = asked.method == "GET" && asked.target.contains("a.parquet");
            counted.fetch_add(u64::from(of_data), Ordering::SeqCst);
            None
        });
        let call = server
            .forebay(&shop, &["feed", &spec, "--json", "--state", &state])
            .expect(0);
        assert!(!call.stderr.contains("true permutation"), "{}", call.stderr);
        (call.summary(), gets.load(Ordering::SeqCst))
    };
    let (local, none) = feed("local", &shop.at("buckets/lake/all"));
    let (remote, gets) = feed("remote", "s3://lake/all");
    assert_eq!((local["rows"].as_u64(), none), (Some(ROWS as u64), 0));
    assert_eq!(
        (&remote["rows"], &remote["quality"]),
        (&local["rows"], &local["quality"])
    );
    assert!(remote["quality"].as_f64().unwrap() > 0.95, "{remote}");
    // The index once per row group and reader; the pages of two columns per part; the footer, and some repetitions.
    assert!(
        (PARTS..3 * PARTS).contains(&gets),
        "{gets} requests for {stored} bytes"
    );
}
