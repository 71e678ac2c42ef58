//! Rows and columns that are ready to be fed.

use std::sync::Arc;

use forebay_feed::{
    BatchFeatures, BatchLayout, BlockSource, DatasetMixture, FeedConfig, FeedOptions, InspectBatch,
    ReportDuplicates, SampleOrder,
};
use forebay_model::Result;
use forebay_storage::{CacheStats, DiskCache};

/// Rows and columns that are ready to be fed.
#[derive(Clone)]
pub struct FeedSource {
    /// The rows: of one dataset, or of several that are mixed.
    pub blocks: Vec<Arc<dyn BlockSource>>,
    /// The columns.
    pub features: BatchFeatures,
    /// Origin of the rows of each block source: an output, or the sources of the pipeline.
    pub from: Vec<FeedOrigin>,
    /// The mixture of the datasets, where there are several.
    pub mix: Option<DatasetMixture>,
    /// Disk caches of the bytes of remote sources.
    pub caches: Vec<Arc<DiskCache>>,
    /// Configuration from which the feed was planned.
    pub config: FeedConfig,
    /// Threads that read and fill batches.
    pub threads: usize,
    /// Blocks that workers read at the same time; none without workers.
    pub streams: usize,
    /// Bytes that the rows of a stream of a worker hold at most.
    pub stream_bytes_max: u64,
    /// The memory limit of the process.
    pub memory_bytes: u64,
    /// Looks at the first batch that is delivered.
    pub on_first_batch: Option<InspectBatch>,
    /// Hears of rows of sequences with the keys and the time of a row before them.
    pub on_duplicates: Option<ReportDuplicates>,
}

/// Origin of the rows of a feed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum FeedOrigin {
    /// An output that a run has committed, by the name of its sink.
    Output(String),
    /// The sources; the steps are applied while reading.
    Sources,
}

impl FeedSource {
    /// Number of rows, each counted once.
    pub fn rows(&self) -> u64 {
        self.blocks
            .iter()
            .map(|blocks| blocks.dataset().rows())
            .sum()
    }

    /// Maximum number of blocks that workers read at the same time; 0 where this machine reads.
    pub fn streams(&self) -> usize {
        self.streams
    }

    /// Hits and misses of the disk caches so far; `None` without a cache.
    pub fn cache(&self) -> Option<CacheStats> {
        let statistics = self.caches.iter().map(|cache| cache.stats());
        statistics.reduce(|a, b| CacheStats {
            hit_bytes: a.hit_bytes + b.hit_bytes,
            missed_bytes: a.missed_bytes + b.missed_bytes,
            corrupt: a.corrupt + b.corrupt,
            refused_bytes: a.refused_bytes + b.refused_bytes,
        })
    }

    /// Feed options: rows in the order of a seed, for a single rank, one epoch.
    pub fn config(&self, seed: u64) -> Result<FeedOptions> {
        let layout = BatchLayout::new(&self.features, self.config.rows_per_batch() as usize)?;
        let order = self
            .config
            .sample_order(seed, layout.window_row_bytes(&self.features));
        let order = SampleOrder {
            mix: self.mix.clone(),
            ..order
        };
        let mut config = FeedOptions::new(self.blocks.clone(), self.features.clone(), order);
        config.batch_rows = self.config.rows_per_batch();
        config.last = self.config.last.unwrap_or(config.last);
        config.on_first_batch = self.on_first_batch.clone();
        config.on_duplicates = self.on_duplicates.clone();
        config.threads = self.threads;
        let rows_apart = self.features.series.is_none();
        for streams in (0..=self.streams).rev() {
            // A thread that waits for a worker fills no batches: each stream gets a thread of its own.
            config.threads = self.threads + streams;
            // Blocks of sequences are large: they hold the history of their rows.
            config.read_ahead = if rows_apart { config.threads as u32 } else { 1 };
            config.memory_max = Some(
                self.memory_bytes
                    .saturating_sub(streams as u64 * self.stream_bytes_max),
            );
            if streams <= 1 || Some(config.held_bytes()?) <= config.memory_max {
                break;
            }
        }
        Ok(config)
    }
}
