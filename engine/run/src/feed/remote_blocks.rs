//! Blocks that workers read and send: they read, decode and apply findings; the training host
//! shuffles and fills batches.

use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::Duration;

use arrow::array::RecordBatch;
use forebay_cluster::{Cluster, FeedSpec, StageSpec, TaskKind, TaskSpec};
use forebay_contract::FeedSource;
use forebay_feed::{BlockDataset, BlockSource};
use forebay_model::{ContentId, Fault, Result};
use forebay_storage::CancellationToken;

/// Blocks that are read at the same time at most.
const STREAMS_MAX: usize = 64;

/// Blocks of a dataset, by workers.
struct RemoteBlocks {
    cluster: Arc<Cluster>,
    asks: Arc<StageSpec>,
    /// The dataset's number.
    number: usize,
    /// Local source of the same blocks, which knows their rows and locations.
    here: Arc<dyn BlockSource>,
    interrupt: CancellationToken,
}

/// Makes workers read the rows of a feed.
pub(super) fn read_on_workers(
    mut feed: FeedSource,
    cluster: &Arc<Cluster>,
    feed_spec: FeedSpec,
    cancellation: &CancellationToken,
) -> Result<FeedSource> {
    feed.streams = cluster.wait_for_slots(cancellation)?.min(STREAMS_MAX);
    let asks = Arc::new(StageSpec::Feed(Box::new(feed_spec)));
    let mut remote_blocks: Vec<Arc<dyn BlockSource>> = Vec::new();
    for (number, here) in feed.blocks.into_iter().enumerate() {
        remote_blocks.push(Arc::new(RemoteBlocks {
            cluster: cluster.clone(),
            asks: asks.clone(),
            number,
            here,
            interrupt: cancellation.clone(),
        }));
    }
    feed.blocks = remote_blocks;
    Ok(feed)
}

impl BlockSource for RemoteBlocks {
    fn dataset(&self) -> BlockDataset {
        self.here.dataset()
    }

    fn read(
        &self,
        block: u32,
        _: &[String],
        rows: &mut dyn FnMut(RecordBatch) -> ControlFlow<()>,
    ) -> Result<Duration> {
        let cost = self.here.dataset().block(block).bytes.max(1);
        let task = TaskSpec {
            cost,
            after: None,
            what: TaskKind::Read {
                dataset: self.number,
                block,
            },
        };
        self.cluster
            .read_rows(&self.asks, task, &self.interrupt, rows)
    }

    fn block_id(&self, block: u32) -> Option<ContentId> {
        self.here.block_id(block)
    }

    fn locate_fault(&self, block: u32, fault: Fault) -> Fault {
        self.here.locate_fault(block, fault)
    }
}
