//! Mini-batches and how they come, in words.

use std::fmt::Write;
use std::time::Duration;

use forebay_feed::{
    BatchFeatures, BatchLayout, Feed, FeedBatch, FeedBottleneck, FeedStats, PartRole,
    ShuffleQuality, ValueType,
};
use forebay_run::{FeedOrigin, FeedSource};
use forebay_storage::CacheStats;
use half::{bf16, f16};
use serde_json::json;

use super::units::{bytes, duration, grouped, rows};

/// Values of a row that are shown.
const VALUES_SHOWN: usize = 6;

/// Rows of a batch that are shown.
const ROWS_SHOWN: usize = 2;

/// What there is to tell at the end.
pub struct FeedReport<'a> {
    /// What the feed did.
    pub stats: &'a FeedStats,
    /// How well the rows were shuffled.
    pub quality: Option<ShuffleQuality>,
    /// Whether they were to be shuffled.
    pub shuffled: bool,
    /// Bytes of rows that the feed holds at most.
    pub memory_bytes: u64,
    /// How many blocks workers read at a time; none without them.
    pub streams: usize,
    /// What the cache was good for, where there is one.
    pub cache: Option<CacheStats>,
    /// What it did without a shuffle.
    pub straight: Option<&'a FeedStats>,
}

fn type_name(data_type: ValueType) -> &'static str {
    match data_type {
        ValueType::F32 => "f32",
        ValueType::F16 => "f16",
        ValueType::Bf16 => "bf16",
        ValueType::I32 => "i32",
        ValueType::I64 => "i64",
        ValueType::U8 => "u8",
    }
}

/// What is fed, before the first batch.
pub fn feed_header(fed: &FeedSource, feed: &Feed, epoch: u64) -> String {
    let mut text = String::new();
    for (blocks, from) in fed.blocks.iter().zip(&fed.from) {
        let from = match from {
            FeedOrigin::Output(sink) => format!("the output of `{sink}`"),
            FeedOrigin::Sources => "the sources, with the steps done on the way".to_owned(),
        };
        let data = blocks.dataset();
        let _ = writeln!(
            text,
            "{} in {} blocks, from {from}",
            rows(data.rows()),
            grouped(data.blocks() as u64)
        );
    }
    for part in &feed.layout().parts {
        let shape: Vec<String> = part.shape.iter().map(ToString::to_string).collect();
        let columns = columns(&fed.features, part.role);
        let _ = writeln!(
            text,
            "  {:<11} {} {}  {columns}",
            part.role.name(),
            type_name(part.data_type),
            shape.join(" x ")
        );
    }
    let _ = writeln!(text, "epoch {epoch}: {} steps", grouped(feed.steps(epoch)));
    text
}

fn columns(features: &BatchFeatures, of: PartRole) -> String {
    let fields = match of {
        PartRole::Dense => features.dense.as_slice(),
        PartRole::Categorical => features.categorical.as_slice(),
        PartRole::Label => features.label.as_slice(),
        PartRole::Weight => features.weight.as_slice(),
        PartRole::Mask => return "1 where there is a row".to_owned(),
    };
    fields
        .iter()
        .map(|field| field.column.as_str())
        .collect::<Vec<_>>()
        .join(", ")
}

/// The first rows of a batch.
pub fn batch(batch: &FeedBatch) -> String {
    let layout: &BatchLayout = batch.layout();
    let mut text = format!("step {}: {}\n", batch.step(), rows(batch.rows() as u64));
    for row in 0..batch.rows().min(ROWS_SHOWN) {
        let parts = layout
            .parts
            .iter()
            .filter(|part| part.role != PartRole::Mask)
            .map(|part| {
                let values = batch
                    .part(part.role)
                    .get(row * part.row_bytes..(row + 1) * part.row_bytes)
                    .unwrap_or(&[]);
                let all = values.len() / part.data_type.bytes();
                let shown = values
                    .chunks_exact(part.data_type.bytes())
                    .take(VALUES_SHOWN)
                    .map(|one| value(part.data_type, one));
                let shown: Vec<String> = shown.collect();
                let more = if all > VALUES_SHOWN { ", ..." } else { "" };
                format!("{} [{}{more}]", part.role.name(), shown.join(", "))
            });
        let _ = writeln!(text, "  {}", parts.collect::<Vec<_>>().join(" "));
    }
    text
}

fn value(data_type: ValueType, bytes: &[u8]) -> String {
    let four = || <[u8; 4]>::try_from(bytes).unwrap_or_default();
    let two = || <[u8; 2]>::try_from(bytes).unwrap_or_default();
    match data_type {
        ValueType::F32 => format!("{:.4}", f32::from_ne_bytes(four())),
        ValueType::F16 => format!("{:.3}", f16::from_ne_bytes(two())),
        ValueType::Bf16 => format!("{:.3}", bf16::from_ne_bytes(two())),
        ValueType::I32 => i32::from_ne_bytes(four()).to_string(),
        ValueType::I64 => {
            i64::from_ne_bytes(<[u8; 8]>::try_from(bytes).unwrap_or_default()).to_string()
        }
        ValueType::U8 => bytes.first().map_or_else(String::new, ToString::to_string),
    }
}

/// What a shuffle that mixes too little means, and what to do.
pub fn poor_shuffle(quality: &ShuffleQuality) -> String {
    format!(
        "the shuffle is {:.2} of a true permutation: rows that lie near each other are delivered near each other; raise \
         `window_rows`, write the data in smaller row groups (`group_rows_max`), or feed Parquet files of a local disk",
        quality.score
    )
}

/// How the batches came.
pub fn feed_summary(told: &FeedReport<'_>) -> String {
    let FeedReport {
        stats,
        quality,
        shuffled,
        memory_bytes,
        streams,
        cache,
        straight,
    } = told;
    // Rows that workers send are waited for as those of storage are.
    let (from, bottleneck) = match (streams, stats.bottleneck()) {
        (0, bottleneck) => ("storage", bottleneck.name()),
        (_, FeedBottleneck::Disk) => ("workers", "workers"),
        (_, bottleneck) => ("workers", bottleneck.name()),
    };
    let mut text = format!(
        "{} in {}: {} rows/s, {}/s of batches\n",
        rows(stats.rows),
        duration(stats.wall),
        grouped(rate(stats) as u64),
        bytes(stats.bytes_per_second() as u64)
    );
    if let Some(quality) = quality {
        let _ = writeln!(
            text,
            "shuffle     {:.3} of a true permutation (rows {} apart)",
            quality.score, quality.lag
        );
        if *shuffled && quality.is_poor() {
            let _ = writeln!(text, "            {}", poor_shuffle(quality));
        }
    }
    let times = &stats.times;
    let _ = writeln!(
        text,
        "waits       consumer {} ({} of {} steps were not ready), producers {}",
        duration(stats.consumer_wait),
        grouped(stats.starved_steps),
        grouped(stats.steps),
        duration(times.producer_wait)
    );
    let _ = writeln!(
        text,
        "threads     {from} {}, decoding and steps {}, packing {}, filling {}",
        duration(times.disk),
        duration(times.decoding),
        duration(times.packing),
        duration(times.filling)
    );
    let _ = writeln!(
        text,
        "read        {}; rows held take at most {}",
        bytes(times.stored),
        bytes(*memory_bytes)
    );
    if let Some(cache) = cache {
        let _ = write!(
            text,
            "cache       {} of {} came from it",
            bytes(cache.hit_bytes),
            bytes(cache.hit_bytes + cache.missed_bytes)
        );
        let _ = match (cache.refused_bytes, cache.corrupt) {
            (0, 0) => writeln!(text),
            (refused, 0) => writeln!(text, "; {} found no room", bytes(refused)),
            (refused, corrupt) => {
                writeln!(
                    text,
                    "; {} found no room, {} entries were corrupt",
                    bytes(refused),
                    grouped(corrupt)
                )
            }
        };
    }
    if times.found.non_finite > 0 {
        let _ = writeln!(
            text,
            "not finite  {} values became 0, {} have mask 0",
            grouped(times.found.non_finite),
            rows(times.found.skipped)
        );
    }
    let _ = writeln!(text, "bottleneck  {bottleneck}");
    if let Some(straight) = straight {
        let share = rate(stats) / rate(straight).max(f64::MIN_POSITIVE) * 100.0;
        let _ = writeln!(
            text,
            "in order    {} rows/s: the shuffle keeps {share:.0} % of it",
            grouped(rate(straight) as u64)
        );
    }
    text
}

/// The same as one line of JSON.
pub fn json(told: &FeedReport<'_>) -> String {
    let FeedReport {
        stats,
        quality,
        memory_bytes,
        streams,
        cache,
        straight,
        ..
    } = told;
    let seconds = |time: Duration| time.as_secs_f64();
    let times = &stats.times;
    let line = json!({
        "event": "fed",
        "rows": stats.rows,
        "steps": stats.steps,
        "seconds": seconds(stats.wall),
        "rows_per_second": rate(stats),
        "bytes_per_second": stats.bytes_per_second(),
        "quality": quality.map(|quality| quality.score),
        "consumer_wait_seconds": seconds(stats.consumer_wait),
        "starved_steps": stats.starved_steps,
        "producer_wait_seconds": seconds(times.producer_wait),
        "storage_seconds": seconds(times.disk),
        "decoding_seconds": seconds(times.decoding),
        "packing_seconds": seconds(times.packing),
        "filling_seconds": seconds(times.filling),
        "stored_bytes": times.stored,
        "memory_bytes": memory_bytes,
        "streams": streams,
        "cached_bytes": cache.map(|cache| cache.hit_bytes),
        "cache_missed_bytes": cache.map(|cache| cache.missed_bytes),
        "cache_refused_bytes": cache.map(|cache| cache.refused_bytes),
        "cache_corrupt_entries": cache.map(|cache| cache.corrupt),
        "non_finite": times.found.non_finite,
        "skipped_rows": times.found.skipped,
        "bottleneck": stats.bottleneck().name(),
        "unshuffled_rows_per_second": straight.map(rate),
    });
    format!("{line}\n")
}

fn rate(stats: &FeedStats) -> f64 {
    stats.rows as f64 / stats.wall.as_secs_f64().max(f64::MIN_POSITIVE)
}
