//! Mini-batches and how they come, in words.

use std::collections::BTreeMap;
use std::fmt::Write;

use forebay_contract::{FeedOrigin, FeedSource};
use forebay_feed::{
    BatchFeatures, Feed, FeedBatch, FeedBottleneck, FeedStats, PartRole, ShuffleQuality, ValueType,
};
use forebay_storage::CacheStats;
use half::{bf16, f16};
use serde_json::json;

use super::units::{bytes, duration, grouped, rows};

/// Values of a row that are shown.
const VALUES_SHOWN: usize = 6;

/// Rows of a batch that are shown.
const ROWS_SHOWN: usize = 2;

/// Report of a feed.
pub struct FeedReport<'a> {
    /// Statistics of the feed.
    pub stats: &'a FeedStats,
    /// Quality of the shuffle.
    pub quality: Option<ShuffleQuality>,
    /// True if the rows were to be shuffled.
    pub shuffled: bool,
    /// Bytes of rows that the feed holds at most.
    pub memory_bytes: u64,
    /// Number of blocks that workers read at a time; 0 without them.
    pub streams: usize,
    /// Hits and misses of the cache, if there is one.
    pub cache: Option<CacheStats>,
    /// Number of missing values that were filled, by column.
    pub filled: &'a [(String, u64)],
    /// Rows that fill no last step and are not delivered.
    pub dropped: u64,
    /// Statistics of a feed without a shuffle.
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

/// Description of the fed rows, before the first batch.
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
    let names: Vec<&str> = fields.iter().map(|field| field.column.as_str()).collect();
    names.join(", ")
}

/// The first rows of a batch.
pub fn batch(batch: &FeedBatch) -> String {
    let mut text = format!("step {}: {}\n", batch.step(), rows(batch.rows() as u64));
    for row in 0..batch.rows().min(ROWS_SHOWN) {
        let mut parts = Vec::new();
        for part in &batch.layout().parts {
            if part.role != PartRole::Mask {
                let row_bytes = row * part.row_bytes..(row + 1) * part.row_bytes;
                let values = batch.part(part.role).get(row_bytes).unwrap_or(&[]);
                parts.push(part_text(part.role, part.data_type, values));
            }
        }
        let _ = writeln!(text, "  {}", parts.join(" "));
    }
    text
}

/// The first values of a row's part.
fn part_text(role: PartRole, data_type: ValueType, values: &[u8]) -> String {
    let width = data_type.bytes();
    let mut texts = Vec::new();
    for bytes in values.chunks_exact(width).take(VALUES_SHOWN) {
        texts.push(value(data_type, bytes));
    }
    let is_long = values.len() / width > VALUES_SHOWN;
    let ellipsis = if is_long { ", ..." } else { "" };
    format!("{} [{}{ellipsis}]", role.name(), texts.join(", "))
}

fn value(data_type: ValueType, bytes: &[u8]) -> String {
    match data_type {
        ValueType::F32 => format!("{:.4}", f32::from_ne_bytes(array_of(bytes))),
        ValueType::F16 => format!("{:.3}", f16::from_ne_bytes(array_of(bytes))),
        ValueType::Bf16 => format!("{:.3}", bf16::from_ne_bytes(array_of(bytes))),
        ValueType::I32 => i32::from_ne_bytes(array_of(bytes)).to_string(),
        ValueType::I64 => i64::from_ne_bytes(array_of(bytes)).to_string(),
        ValueType::U8 => match bytes.first() {
            Some(byte) => byte.to_string(),
            None => String::new(),
        },
    }
}

/// The bytes of a value; zeros if there are too few.
fn array_of<const N: usize>(bytes: &[u8]) -> [u8; N] {
    bytes.try_into().unwrap_or([0; N])
}

/// Explanation of a shuffle that mixes too little, with a remedy.
pub fn poor_shuffle(quality: &ShuffleQuality) -> String {
    format!(
        "the shuffle is {:.2} of a true permutation: rows that lie near each other are delivered \
         near each other; raise `window_rows`, write the data in smaller row groups \
         (`group_rows_max`), or feed Parquet files of a local disk",
        quality.score
    )
}

/// Summary of a feed.
pub fn feed_summary(report: &FeedReport<'_>) -> String {
    let stats = report.stats;
    let mut text = format!(
        "{} in {}: {} rows/s, {}/s of batches\n",
        rows(stats.rows),
        duration(stats.wall),
        grouped(rate(stats) as u64),
        bytes(stats.bytes_per_second() as u64)
    );
    if let Some(quality) = &report.quality {
        text += &shuffle_text(quality, report.shuffled);
    }
    text += &times_text(report);
    if let Some(cache) = &report.cache {
        text += &cache_text(cache);
    }
    text += &values_text(report);
    let _ = writeln!(text, "bottleneck  {}", bottleneck(report));
    if let Some(straight) = report.straight {
        let share = rate(stats) / rate(straight).max(f64::MIN_POSITIVE) * 100.0;
        let _ = writeln!(
            text,
            "in order    {} rows/s: the shuffle keeps {share:.0} % of it",
            grouped(rate(straight) as u64)
        );
    }
    text
}

/// The slowest part of a feed. Rows that workers send are waited for as those of storage are.
fn bottleneck(report: &FeedReport<'_>) -> &'static str {
    match report.stats.bottleneck() {
        FeedBottleneck::Disk if report.streams > 0 => "workers",
        bottleneck => bottleneck.name(),
    }
}

fn shuffle_text(quality: &ShuffleQuality, shuffled: bool) -> String {
    let mut text = format!(
        "shuffle     {:.3} of a true permutation (rows {} apart)\n",
        quality.score, quality.lag
    );
    if shuffled && quality.is_poor() {
        let _ = writeln!(text, "            {}", poor_shuffle(quality));
    }
    text
}

/// Times of the consumer and of the threads of a feed, and the bytes that they read.
fn times_text(report: &FeedReport<'_>) -> String {
    let stats = report.stats;
    let times = &stats.times;
    let origin = if report.streams > 0 {
        "workers"
    } else {
        "storage"
    };
    let mut text = format!(
        "waits       consumer {} ({} of {} steps were not ready), producers {}\n",
        duration(stats.consumer_wait),
        grouped(stats.starved_steps),
        grouped(stats.steps),
        duration(times.producer_wait)
    );
    let _ = writeln!(
        text,
        "threads     {origin} {}, decoding and steps {}, packing {}, filling {}",
        duration(times.disk),
        duration(times.decoding),
        duration(times.packing),
        duration(times.filling)
    );
    let _ = writeln!(
        text,
        "read        {}; rows held take at most {}",
        bytes(times.stored),
        bytes(report.memory_bytes)
    );
    text
}

fn cache_text(cache: &CacheStats) -> String {
    let mut text = format!(
        "cache       {} of {} came from it",
        bytes(cache.hit_bytes),
        bytes(cache.hit_bytes + cache.missed_bytes)
    );
    if cache.refused_bytes > 0 || cache.corrupt > 0 {
        text += &format!("; {} found no room", bytes(cache.refused_bytes));
    }
    if cache.corrupt > 0 {
        text += &format!(", {} entries were corrupt", grouped(cache.corrupt));
    }
    text + "\n"
}

/// Rows and values that were left out, filled or replaced.
fn values_text(report: &FeedReport<'_>) -> String {
    let counts = &report.stats.times.found;
    let mut text = String::new();
    if report.dropped > 0 {
        let _ = writeln!(
            text,
            "left out    {} that do not fill a step (`last: drop`)",
            rows(report.dropped)
        );
    }
    for (column, values) in report.filled {
        let _ = writeln!(
            text,
            "filled      {} missing values of `{column}`",
            grouped(*values)
        );
    }
    if counts.duplicates > 0 {
        let _ = writeln!(
            text,
            "duplicates  {} have the keys and the time of a row before them",
            rows(counts.duplicates)
        );
    }
    if counts.non_finite > 0 {
        let _ = writeln!(
            text,
            "not finite  {} values became 0, {} have mask 0",
            grouped(counts.non_finite),
            rows(counts.skipped)
        );
    }
    text
}

/// Summary of a feed as one line of JSON.
pub fn json(report: &FeedReport<'_>) -> String {
    let FeedReport {
        stats,
        quality,
        memory_bytes,
        streams,
        cache,
        filled,
        dropped,
        straight,
        ..
    } = report;
    let times = &stats.times;
    let line = json!({
        "event": "fed",
        "rows": stats.rows,
        "steps": stats.steps,
        "seconds": stats.wall.as_secs_f64(),
        "rows_per_second": rate(stats),
        "bytes_per_second": stats.bytes_per_second(),
        "quality": quality.map(|quality| quality.score),
        "consumer_wait_seconds": stats.consumer_wait.as_secs_f64(),
        "starved_steps": stats.starved_steps,
        "producer_wait_seconds": times.producer_wait.as_secs_f64(),
        "storage_seconds": times.disk.as_secs_f64(),
        "decoding_seconds": times.decoding.as_secs_f64(),
        "packing_seconds": times.packing.as_secs_f64(),
        "filling_seconds": times.filling.as_secs_f64(),
        "stored_bytes": times.stored,
        "memory_bytes": memory_bytes,
        "streams": streams,
        "cached_bytes": cache.map(|cache| cache.hit_bytes),
        "cache_missed_bytes": cache.map(|cache| cache.missed_bytes),
        "cache_refused_bytes": cache.map(|cache| cache.refused_bytes),
        "cache_corrupt_entries": cache.map(|cache| cache.corrupt),
        "non_finite": times.found.non_finite,
        "skipped_rows": times.found.skipped,
        "dropped_rows": dropped,
        "filled": filled.iter().cloned().collect::<BTreeMap<String, u64>>(),
        "duplicate_rows": times.found.duplicates,
        "bottleneck": stats.bottleneck().name(),
        "unshuffled_rows_per_second": straight.map(rate),
    });
    format!("{line}\n")
}

fn rate(stats: &FeedStats) -> f64 {
    stats.rows as f64 / stats.wall.as_secs_f64().max(f64::MIN_POSITIVE)
}
