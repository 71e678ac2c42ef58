//! Blocks that workers read, and send: reading, decoding and what is learned are theirs; the training host
//! shuffles and fills batches.

use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::Duration;

use arrow::array::RecordBatch;
use forebay_cluster::{Cluster, FeedSpec, StageSpec, TaskKind, TaskSpec};
use forebay_feed::{BlockDataset, BlockSource};
use forebay_model::{ContentId, Fault, Result};
use forebay_storage::CancellationToken;

use crate::feed::FeedSource;

/// Blocks that are read at the same time at most.
const STREAMS_MAX: usize = 64;

/// Blocks of a dataset, by workers.
struct RemoteBlocks {
    cluster: Arc<Cluster>,
    asks: Arc<StageSpec>,
    /// The dataset's number.
    number: usize,
    /// The same blocks here: which there are, and where they lie.
    here: Arc<dyn BlockSource>,
    interrupt: CancellationToken,
}

impl FeedSource {
    /// The same rows, read by workers.
    pub(super) fn away(
        mut self,
        cluster: &Arc<Cluster>,
        job: FeedSpec,
        interrupt: &CancellationToken,
    ) -> Result<FeedSource> {
        self.streams = cluster.wait_for_slots(interrupt)?.min(STREAMS_MAX);
        let asks = Arc::new(StageSpec::Feed(Box::new(job)));
        let away = |(number, here)| {
            let (cluster, asks, interrupt) = (cluster.clone(), asks.clone(), interrupt.clone());
            Arc::new(RemoteBlocks {
                cluster,
                asks,
                number,
                here,
                interrupt,
            }) as Arc<dyn BlockSource>
        };
        self.blocks = self.blocks.into_iter().enumerate().map(away).collect();
        Ok(self)
    }
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
