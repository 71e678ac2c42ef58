//! Fuzz targets for stored state: damaged bytes give a fault or a value, never a panic, and take
//! little memory.

use std::fs;
use std::sync::Arc;

use arrow::array::{ArrayRef, Int64Array, RecordBatch};
use forebay_fuzz::{FuzzTarget, fuzz};
use forebay_model::{ContentId, Finding, RelativePath};
use forebay_storage::{IgnoreEvents, ScratchDir, StorageClient};
use serde_json::json;
use xxhash_rust::xxh3::xxh3_128;

use crate::output::{Manifest, OutputFile, Shard};
use crate::state_store::StateStore;

struct StoreFixture {
    io: StorageClient,
    folder: tempfile::TempDir,
    store: StateStore,
}

impl StoreFixture {
    fn new() -> StoreFixture {
        let io = StorageClient::new().unwrap();
        let folder = tempfile::tempdir().unwrap();
        let store = StateStore::new(
            io.clone(),
            io.resolve(folder.path().to_str().unwrap()).unwrap(),
        );
        StoreFixture { io, folder, store }
    }

    fn put(&self, name: &str, bytes: &[u8]) {
        let path = self.folder.path().join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, bytes).unwrap();
    }
}

/// Files of a header, a body and their digest: as they are, and with a digest that fits the damage.
#[test]
fn framed_files() {
    let shop = StoreFixture::new();
    let id = ContentId::of(b"fuzz");
    let scratch = ScratchDir::new(None, Arc::new(IgnoreEvents)).unwrap();
    shop.store
        .put_metadata(id, br#"[{"path":"a","rows":3}]"#, &scratch)
        .unwrap();
    shop.store.put_checkpoint(id, &[7; 90], &scratch).unwrap();
    let counts: ArrayRef = Arc::new(Int64Array::from_iter_values(0..9));
    let finding = Finding::new(RecordBatch::try_from_iter([("count", counts)]).unwrap());
    shop.store
        .share_finding(id, &finding, None, &scratch)
        .unwrap();
    let names = [
        format!("notes/{id}"),
        format!("checkpoints/{id}"),
        format!("exchanges/{id}/finding"),
    ];
    let seeds: Vec<_> = names
        .iter()
        .map(|name| fs::read(shop.folder.path().join(name)).unwrap())
        .collect();
    fuzz!(FuzzTarget::new("framed").seeds(seeds), |bytes: &[u8]| {
        let whole = &bytes[..bytes.len().saturating_sub(16)];
        let sealed = [whole, &xxh3_128(whole).to_le_bytes()].concat();
        for bytes in [bytes, &sealed] {
            names.iter().for_each(|name| shop.put(name, bytes));
            let _ = shop.store.get_metadata(id);
            let _ = shop.store.get_checkpoint(id);
            let _ = shop.store.shared_finding(id, true);
            let _ = shop
                .store
                .check_framed(&shop.store.root().join(&names[0]), &id.to_string());
        }
    });
}

/// A finding that another process left, damaged, with a digest that fits: it is not there, or another table.
#[test]
fn findings_with_any_damage_are_read() {
    let shop = StoreFixture::new();
    let id = ContentId::of(b"fuzz");
    let scratch = ScratchDir::new(None, Arc::new(IgnoreEvents)).unwrap();
    let counts: ArrayRef = Arc::new(Int64Array::from_iter_values(0..9));
    let finding = Finding::new(RecordBatch::try_from_iter([("count", counts)]).unwrap());
    shop.store
        .share_finding(id, &finding, None, &scratch)
        .unwrap();
    let name = format!("exchanges/{id}/finding");
    let whole = fs::read(shop.folder.path().join(&name)).unwrap();
    let (body, _) = whole.split_at(whole.len() - 16);
    for at in body.iter().position(|byte| *byte == b'\n').unwrap() + 1..body.len() {
        let mut damaged = body.to_vec();
        damaged[at] = !damaged[at];
        let digest = xxh3_128(&damaged).to_le_bytes();
        shop.put(&name, &[damaged.as_slice(), &digest].concat());
        shop.store.shared_finding(id, false).unwrap();
    }
}

/// Manifests and records, read as the next run reads them.
#[test]
fn manifests() {
    let shop = StoreFixture::new();
    let id = ContentId::of(b"fuzz");
    let out = shop.store.root().join("out");
    let path = RelativePath::new("_data/a/part-00000.parquet").unwrap();
    let file = OutputFile {
        path,
        rows: 3,
        bytes: 4,
        digest: "00".repeat(16),
    };
    let shard = Shard {
        id: id.to_string(),
        spans: vec!["s".into()],
        rows_in: 3,
        files: vec![file],
        ..Shard::default()
    };
    let manifest = Manifest {
        previous: vec![RelativePath::new("_data/b").unwrap()],
        ..Manifest::new(id, &arrow::datatypes::Schema::empty(), vec![shard.clone()]).unwrap()
    };
    let record = json!({ "format": 1, "pass": id, "shard": shard, "out": "out" });
    let seeds = [
        serde_json::to_vec(&manifest).unwrap(),
        serde_json::to_vec(&record).unwrap(),
    ];
    shop.put("out/_data/a/part-00000.parquet", b"rows");
    let words = [
        "../",
        "/etc",
        "_data/",
        "\"shards\":",
        "\"previous\":[",
        "\"files\":[]",
        "\"format\":3",
        "18446744073709551615",
    ];
    fuzz!(
        FuzzTarget::new("manifests").seeds(seeds).words(&words),
        |bytes: &[u8]| {
            shop.put("out/_manifest.json", bytes);
            shop.put(&format!("passes/{id}.json"), bytes);
            let _ = shop.store.pass_record(id, |_| Ok(true));
            if let Ok(Some(manifest)) = Manifest::read(&shop.io, &out) {
                let _ = (
                    manifest.intact(&shop.io, &out),
                    manifest.files().count(),
                    manifest.check_interval_mode(true),
                );
                let _ = manifest.directories();
            }
            if let Ok(shard) = serde_json::from_slice::<Shard>(bytes) {
                let _ = (shard.intact(&shop.io, &out), shard.counts());
            }
            let _ = crate::gc::StateDirectory::new(shop.io.clone(), shop.store.root().clone())
                .holdings();
        }
    );
}
