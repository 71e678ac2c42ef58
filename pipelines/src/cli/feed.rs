//! `forebay feed`.

use std::process::ExitCode;
use std::sync::Arc;

use clap::{Args, ValueEnum};
use forebay_feed::{Feed as Batches, FeedStats, OrderMode, RemainderPolicy};
use forebay_model::{Pipeline, Result};
use forebay_run::{FeedConfig, FeedOrder, FeedSource, Session};
use forebay_storage::{EventListener, IgnoreEvents};

use super::options::{MetricsArgs, RunArgs, SpecArgs};
use super::workers::WorkersArgs;
use super::write_stdout;
use crate::metrics::{CommandMetrics, FeedMetrics};
use crate::present::feed;

/// Deliver an epoch of mini-batches, as training gets them, and tell how fast they come and what
/// they wait for.
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
    /// Which epoch, from 0.
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
    /// What becomes of rows that do not fill a last step [default: the spec's, or drop]
    #[arg(long, value_enum)]
    last: Option<RemainderArg>,
    /// Which of the consumers this is, from 0.
    #[arg(long, value_name = "N", default_value_t = 0)]
    rank: u32,
    /// How many consumers share the rows.
    #[arg(long, value_name = "N", default_value_t = 1)]
    world: u32,
    /// How many batches to print.
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
    /// As the rows lie.
    Sequential,
    /// Row groups by their times.
    Time,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum RemainderArg {
    /// Not delivered.
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
        let watch: Arc<dyn EventListener> = metrics.watch(Arc::new(IgnoreEvents));
        let session = self.options.session(watch.clone())?;
        metrics.serve(&session)?;
        let told = self.feed(&pipeline, session, &watch, &metrics);
        // A fault of the feed is the one to tell.
        let written = metrics.write();
        match self.options.json {
            true => write_stdout(&told?)?,
            false => super::write_text(&told?)?,
        }
        written.map(|()| ExitCode::SUCCESS)
    }

    /// Delivers the epoch; gives what there is to tell of it.
    fn feed(
        &self,
        pipeline: &Pipeline,
        session: Session,
        watch: &Arc<dyn EventListener>,
        metrics: &CommandMetrics<FeedMetrics>,
    ) -> Result<String> {
        let (_workers, session) = self.workers.apply(session, &self.options, watch, &[])?;
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
        let memory_bytes = batches.memory_bytes();
        drop(batches);
        let straight = match self.bench {
            true => {
                // Blocks are those of the order, too.
                let config = FeedConfig {
                    order: FeedOrder::Sequential,
                    ..config
                };
                let fed = session.feed(pipeline, None, &config)?;
                let mut batches = self.start(&fed)?;
                Some(self.deliver(&session, &mut batches, 0, metrics.own())?)
            }
            false => None,
        };
        let (cache, streams, straight) = (fed.cache(), fed.streams(), straight.as_ref());
        let told = feed::FeedReport {
            stats: &stats,
            quality,
            shuffled,
            memory_bytes,
            streams,
            cache,
            straight,
        };
        Ok(if self.options.json {
            feed::json(&told)
        } else {
            feed::feed_summary(&told)
        })
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
