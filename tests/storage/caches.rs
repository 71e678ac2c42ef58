//! What is kept from run to run: listed, cleared out, checked.

use std::path::Path;
use std::time::{Duration, SystemTime};

use serde_json::Value;

use crate::nights::changed_history::NightlyFixture;
use crate::support::content;

const DAY: Duration = Duration::from_secs(24 * 3600);

/// Makes everything below a directory some days older.
fn age(dir: &Path, days: u32) {
    for (name, _) in content(dir) {
        let file = std::fs::File::options()
            .write(true)
            .open(dir.join(name))
            .unwrap();
        let time = file.metadata().unwrap().modified().unwrap();
        file.set_modified(time - days * DAY).unwrap();
    }
}

/// Changes a bit in the middle of a file.
fn flip_bit(file: &Path) {
    let mut bytes = std::fs::read(file).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    std::fs::write(file, bytes).unwrap();
}

fn cache(nights: &NightlyFixture, args: &[&str], code: i32) -> Value {
    let args = [&["cache"], args, &["--state=state-out", "--json"]].concat();
    nights.shop.forebay(&args).expect(code).summary()
}

fn entries(kinds: &Value, kind: &str) -> u64 {
    let kinds = kinds.as_array().unwrap().iter();
    kinds
        .filter(|found| found["kind"] == kind)
        .map(|found| found["entries"].as_u64().unwrap())
        .sum()
}

#[test]
fn entries_in_use_stay_at_any_age() {
    let nights = NightlyFixture::new(true);
    (0..30).for_each(|day| nights.show(day));
    nights.run_night(2);
    age(&nights.shop.path("state-out"), 20);
    (30..32).for_each(|day| nights.show(day));
    nights.run_night(2);
    let all = cache(&nights, &["ls"], 0);
    for (kind, least) in [
        ("states", 4),
        ("partials", 10),
        ("carries", 2),
        ("shards", 2),
        ("artifacts", 2),
        ("notes", 1),
        ("costs", 1),
    ] {
        assert!(entries(&all["kinds"], kind) >= least, "{kind}: {all}");
    }
    let unread = nights
        .shop
        .forebay(&["cache", "ls", "--state=state-out"])
        .expect(0)
        .stdout;
    assert!(
        unread.lines().any(|line| line.starts_with("partials")),
        "{unread}"
    );

    // What killed runs leave.
    let state = nights.shop.path("state-out");
    let data = nights.shop.path(".out.forebay/_data");
    let lost = [
        state.join("passes/0123.json#1"),
        data.join(".attempt-x/part-00000.parquet"),
        data.join("0123456789abcdef0123456789abcdef/part-00000.parquet"),
    ];
    for file in &lost {
        std::fs::create_dir_all(file.parent().unwrap()).unwrap();
        std::fs::write(file, "lost").unwrap();
    }
    let younger = cache(&nights, &["gc", "--older-than", "30d"], 0);
    assert_eq!(
        younger["removed"].as_array().map(Vec::len),
        Some(0),
        "{younger}"
    );
    age(&state, 40);
    std::fs::File::options()
        .write(true)
        .open(&lost[0])
        .unwrap()
        .set_modified(SystemTime::now() - 40 * DAY)
        .unwrap();
    age(&nights.shop.root("out"), 40);

    let before = content(&state);
    let would = cache(&nights, &["gc", "--older-than", "30d", "--dry-run"], 0);
    assert!(content(&state) == before && lost.iter().all(|file| file.exists()));
    let gone = cache(&nights, &["gc", "--older-than", "30d"], 0);
    assert_eq!(would["removed"], gone["removed"]);
    for kind in ["states", "carries", "passes", "outputs"] {
        assert!(
            entries(&gone["removed"], kind) > 0,
            "{kind} of the first night are still there: {gone}"
        );
    }
    assert!(lost.iter().all(|file| !file.exists()), "leftovers");
    assert_eq!(
        entries(&gone["removed"], "costs"),
        0,
        "they tell how long the next night will take: {gone}"
    );
    cache(&nights, &["verify"], 0);
    nights.show(32);
    assert_eq!(nights.run_night(2), nights.rows([32]), "the night after");
}

#[test]
fn a_size_limit_keeps_entries_in_use() {
    let nights = NightlyFixture::new(false);
    (0..12).for_each(|day| nights.show(day));
    nights.run_night(2);
    nights.hide(11);
    nights.run_night(2);
    let gone = cache(&nights, &["gc", "--max-size", "1kB"], 0);
    assert!(entries(&gone["removed"], "states") > 0, "{gone}");
    let left: u64 = gone["kept"]
        .as_array()
        .unwrap()
        .iter()
        .map(|kind| kind["bytes"].as_u64().unwrap())
        .sum();
    assert!(left > 1000 && gone["bytes_in_use"] == left, "{gone}");
    assert_eq!(nights.run_night(1), 0, "nothing new");
    let spec = ["gc", "--older-than", "soon"];
    nights
        .shop
        .forebay(&[&["cache"], &spec[..]].concat())
        .expect(64);
}

#[test]
fn broken_entries_are_named() {
    let nights = NightlyFixture::new(false);
    (0..12).for_each(|day| nights.show(day));
    nights.run_night(2);
    let sound = cache(&nights, &["verify"], 0);
    assert!(sound["files"].as_u64().unwrap() > 10 && sound["broken"] == serde_json::json!([]));
    let mut victims = Vec::new();
    for dir in [
        "state-out/states",
        "state-out/partials",
        "state-out/carries",
        "state-out/notes",
        ".out.forebay/_data",
    ] {
        let name = content(&nights.shop.path(dir)).remove(0).0;
        flip_bit(&nights.shop.path(dir).join(&name));
        victims.push(name);
    }
    let record = content(&nights.shop.path("state-out/shards")).remove(0).0;
    std::fs::write(nights.shop.path("state-out/shards").join(&record), "{}").unwrap();
    victims.push(record);
    let found = cache(&nights, &["verify"], 65);
    let broken = found["broken"].as_array().unwrap();
    assert_eq!(broken.len(), victims.len(), "{found}");
    for victim in &victims {
        assert!(
            broken
                .iter()
                .any(|file| file["path"].as_str().unwrap().ends_with(victim.as_str())),
            "{victim}: {found}"
        );
    }
    assert_eq!(found["fault"]["exit_code"], 65);
}

/// Keeps rows that were gathered, and learns of them.
const GATHERED: &str = r#"
version: 1
name: gathered
params:
  out: { type: path, default: out }
sources:
  demand: { parquet: { path: history } }
steps:
  features:
    from: demand
    do:
      - dedupe: { keys: [store_id, item_id] }
      - standardize: { columns: [price] }
sinks:
  table: { from: features, parquet: { path: "${out}" } }
"#;

#[test]
fn a_broken_file_of_gathered_rows_is_named() {
    let nights = NightlyFixture::with_spec(GATHERED);
    (0..3).for_each(|day| nights.show(day));
    nights.run_night(2);
    let folder = nights.shop.path("state-out/gathered");
    let (name, _) = content(&folder)
        .into_iter()
        .find(|(name, _)| name.ends_with(".parquet.data"))
        .unwrap();
    flip_bit(&folder.join(&name));
    let found = cache(&nights, &["verify"], 65);
    let broken = found["broken"].as_array().unwrap();
    assert!(
        broken.len() == 1 && broken[0]["path"].as_str().unwrap().ends_with(&name),
        "{found}"
    );
}
