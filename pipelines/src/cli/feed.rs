//! `forebay feed`.

use std::process::ExitCode;
use std::sync::Arc;

use clap::{Args, ValueEnum};
use forebay_contract::FeedSource;
use forebay_feed::{Feed as Batches, FeedStats, OrderMode, RemainderPolicy};
use forebay_model::{Pipeline, Result};
use forebay_run::{FeedConfig, FeedOrder, Session};
use forebay_storage::EventListener;

use super::options::{MetricsArgs, RunArgs, SpecArgs};
use super::workers::WorkersArgs;
use super::write_stdout;
use crate::metrics::{CommandMetrics, FeedMetrics};
use crate::present::feed;
use crate::present::report::WarningLines;

/// Deliver an epoch of mini-batches, as training gets them, and report their rate and the causes of
/// waits.
#[derive(Debug, Args)]
pub(crate) struct FeedCommand {
    #[command(flatten)]
    spec: SpecArgs,
    #[command(flatten)]
    options: RunArgs,
    #[command(flatten)]
    workers: WorkersArgs,
    #[command(flatten)]
    metrics: MetricsArgs,
    /// Deliver the rows of this part of the split only.
    #[arg(long, value_name = "PART")]
    split: Option<String>,
    /// The epoch, from 0.
    #[arg(long, value_name = "N", default_value_t = 0)]
    epoch: u64,
    /// Chooses among the shuffles.
    #[arg(long, value_name = "N", default_value_t = 0)]
    seed: u64,
    /// The order of rows [default: the spec's]
    #[arg(long, value_enum)]
    order: Option<OrderArg>,
    /// Rows of a batch [default: the spec's, or 8192]
    #[arg(long, value_name = "N")]
    rows: Option<u32>,
    /// Treatment of rows that do not fill a last step [default: the spec's, or drop]
    #[arg(long, value_enum)]
    last: Option<RemainderArg>,
    /// Number of this consumer, from 0.
    #[arg(long, value_name = "N", default_value_t = 0)]
    rank: u32,
    /// Number of consumers that share the rows.
    #[arg(long, value_name = "N", default_value_t = 1)]
    world: u32,
    /// Number of batches to print.
    #[arg(long, value_name = "N", default_value_t = 3)]
    show: u64,
    /// Print no batches, and deliver the epoch in the order of the files as well, to compare.
    #[arg(long)]
    bench: bool,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum OrderArg {
    /// Another order in each epoch.
    Shuffled,
    /// In stored order.
    Sequential,
    /// Row groups by their times.
    Time,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum RemainderArg {
    /// Such rows are not delivered.
    Drop,
    /// A shorter batch.
    Short,
    /// Filled up with rows of mask 0.
    Pad,
    /// Filled up with rows of the next epoch.
    Wrap,
}

impl FeedCommand {
    pub fn run(self) -> Result<ExitCode> {
        let mut metrics = self.metrics.metrics::<FeedMetrics>()?;
        let pipeline = self.spec.pipeline()?;
        metrics.name_pipeline(&pipeline.name);
        let listener: Arc<dyn EventListener> = metrics.watch(Arc::new(WarningLines));
        let session = self.options.session(listener.clone())?;
        metrics.serve(&session)?;
        let summary = self.feed(&pipeline, session, &listener, &metrics);
        // A fault of the feed is reported before one of the file of metrics.
        let written = metrics.write();
        if self.options.json {
            write_stdout(&summary?)?
        } else {
            super::write_text(&summary?)?
        }
        written.map(|()| ExitCode::SUCCESS)
    }

    /// Delivers the epoch; returns the report.
    fn feed(
        &self,
        pipeline: &Pipeline,
        session: Session,
        listener: &Arc<dyn EventListener>,
        metrics: &CommandMetrics<FeedMetrics>,
    ) -> Result<String> {
        let (_workers, session) = self.workers.apply(session, &self.options, listener, &[])?;
        let config = self.config(FeedConfig::from_pipeline(pipeline)?);
        let fed = session.feed(pipeline, None, &config)?;
        let mut batches = self.start(&fed)?;
        let quality = batches.sequence().quality(self.epoch);
        let shuffled = matches!(batches.sequence().order().mode, OrderMode::Shuffled { .. });
        if !self.options.json {
            super::write_text(&feed::feed_header(&fed, &batches, self.epoch))?;
        }
        let stats = self.deliver(
            &session,
            &mut batches,
            if self.bench { 0 } else { self.show },
            metrics.own(),
        )?;
        metrics.own().count_epoch(&stats, fed.cache());
        let filled = batches.filled_values();
        let dropped = self.dropped_rows(&batches, &stats);
        let memory_bytes = batches.memory_bytes();
        drop(batches);
        let straight = if self.bench {
            // Blocks are those of the order, too.
            let config = FeedConfig {
                order: FeedOrder::Sequential,
                ..config
            };
            let fed = session.feed(pipeline, None, &config)?;
            let mut batches = self.start(&fed)?;
            Some(self.deliver(&session, &mut batches, 0, metrics.own())?)
        } else {
            None
        };
        let cache = fed.cache();
        let streams = fed.streams();
        let straight = straight.as_ref();
        let report = feed::FeedReport {
            stats: &stats,
            quality,
            shuffled,
            memory_bytes,
            streams,
            cache,
            filled: &filled,
            dropped,
            straight,
        };
        Ok(if self.options.json {
            feed::json(&report)
        } else {
            feed::feed_summary(&report)
        })
    }

    /// Rows of the epoch that no consumer gets, since they do not fill a step.
    fn dropped_rows(&self, batches: &Batches, stats: &FeedStats) -> u64 {
        // Each consumer gets as many rows where rows are dropped.
        let delivered = stats.rows * u64::from(self.world);
        match batches.last() {
            RemainderPolicy::Drop => batches.sequence().epoch_rows().saturating_sub(delivered),
            RemainderPolicy::Short | RemainderPolicy::Pad | RemainderPolicy::Wrap => 0,
        }
    }

    fn config(&self, mut config: FeedConfig) -> FeedConfig {
        config.split = self.split.clone().or(config.split);
        config.batch_rows = self.rows.or(config.batch_rows);
        config.order = self.order.map_or(config.order, |order| match order {
            OrderArg::Shuffled => FeedOrder::Shuffled,
            OrderArg::Sequential => FeedOrder::Sequential,
            OrderArg::Time => FeedOrder::Time,
        });
        let last = self.last.map(|last| match last {
            RemainderArg::Drop => RemainderPolicy::Drop,
            RemainderArg::Short => RemainderPolicy::Short,
            RemainderArg::Pad => RemainderPolicy::Pad,
            RemainderArg::Wrap => RemainderPolicy::Wrap,
        });
        config.last = last.or(config.last);
        config
    }

    fn start(&self, fed: &FeedSource) -> Result<Batches> {
        let mut config = fed.config(self.seed)?;
        config.rank = self.rank;
        config.world = self.world;
        config.first_epoch = self.epoch;
        config.epochs = self.epoch.saturating_add(1);
        config.require_batches()?;
        Batches::start(config)
    }

    fn deliver(
        &self,
        session: &Session,
        batches: &mut Batches,
        show: u64,
        metrics: &FeedMetrics,
    ) -> Result<FeedStats> {
        loop {
            let was_ready = batches.is_ready();
            let Some(batch) = batches.next().transpose()? else {
                break;
            };
            session.interrupt().check()?;
            metrics.count_batch(&batch, was_ready);
            if batch.step() < show && !self.options.json {
                super::write_text(&feed::batch(&batch))?;
            }
        }
        Ok(batches.take_stats())
    }
}
