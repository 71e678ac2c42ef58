//! Blocks that workers read, and send: reading, decoding and what is learned are theirs; the training host
//! shuffles and fills batches.

use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::Duration;

use arrow::array::RecordBatch;
use forebay_feed::{Blocks, Dataset};
use forebay_model::{Fault, Result};
use forebay_storage::Interrupt;

use super::Fed;
use crate::workers::{Asks, Crew, Errand, FeedJob, What};

/// Blocks that are read at the same time at most.
const STREAMS_MAX: usize = 64;

/// Blocks of a dataset, by workers.
struct Away {
    crew: Arc<Crew>,
    asks: Arc<Asks>,
    /// The dataset's number.
    number: usize,
    /// The same blocks here: which there are, and where they lie.
    here: Arc<dyn Blocks>,
    interrupt: Interrupt,
}

impl Fed {
    /// The same rows, read by workers.
    pub(super) fn away(mut self, crew: &Arc<Crew>, job: FeedJob, interrupt: &Interrupt) -> Result<Fed> {
        self.streams = crew.slots(interrupt)?.min(STREAMS_MAX);
        let asks = Arc::new(Asks::Feed(Box::new(job)));
        let away = |(number, here)| {
            let (crew, asks, interrupt) = (crew.clone(), asks.clone(), interrupt.clone());
            Arc::new(Away { crew, asks, number, here, interrupt }) as Arc<dyn Blocks>
        };
        self.blocks = self.blocks.into_iter().enumerate().map(away).collect();
        Ok(self)
    }
}

impl Blocks for Away {
    fn dataset(&self) -> Dataset {
        self.here.dataset()
    }

    fn read(&self, block: u32, _: &[String], rows: &mut dyn FnMut(RecordBatch) -> ControlFlow<()>) -> Result<Duration> {
        let cost = self.here.dataset().block(block).bytes.max(1);
        let errand = Errand { cost, after: None, what: What::Read { dataset: self.number, block } };
        self.crew.read(&self.asks, errand, &self.interrupt, rows)
    }

    fn locate(&self, block: u32, fault: Fault) -> Fault {
        self.here.locate(block, fault)
    }
}
