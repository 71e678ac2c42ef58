//! The feed's threads under a model checker: blocks are loaded, slots filled and given back in many schedules.
//! `FOREBAY_SCHEDULES` sets how many.
//!
//! ```text
//! cargo test -p forebay-feed --features shuttle --test model
//! ```

#![allow(clippy::unwrap_used, clippy::panic)] // Only tests are here.

mod common;

use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::Duration;

use arrow::array::RecordBatch;
use common::*;
use forebay_feed::*;
use forebay_model::{Fault, Result};

fn check(model: impl Fn() + Send + Sync + 'static) {
    let schedules = std::env::var("FOREBAY_SCHEDULES")
        .ok()
        .and_then(|text| text.parse().ok())
        .unwrap_or(100);
    let model = Arc::new(model);
    let again = model.clone();
    shuttle::check_random(move || model(), schedules);
    shuttle::check_pct(move || again(), schedules, 3);
}

/// A source whose third block cannot be read.
struct UnreadableBlocks(TestBlocks);

impl BlockSource for UnreadableBlocks {
    fn dataset(&self) -> BlockDataset {
        self.0.dataset()
    }

    fn read(
        &self,
        block: u32,
        columns: &[String],
        rows: &mut dyn FnMut(RecordBatch) -> ControlFlow<()>,
    ) -> Result<Duration> {
        if block == 2 {
            Err(Fault::internal("a bad block"))
        } else {
            self.0.read(block, columns, rows)
        }
    }
}

/// Slots that cannot be written from the third on.
#[derive(Default)]
struct FailingSlots(std::sync::atomic::AtomicUsize);

struct FailingSlot(Box<dyn SlotMemory>);

impl SlotMemory for FailingSlot {
    fn bytes(&self) -> &[u8] {
        self.0.bytes()
    }

    fn bytes_mut(&mut self) -> Result<&mut [u8]> {
        Err(Fault::internal("a bad slot"))
    }
}

impl SlotAllocator for FailingSlots {
    fn allocate(&self, bytes: usize) -> Result<Box<dyn SlotMemory>> {
        let slot = HostMemory.allocate(bytes)?;
        let is_bad = self.0.fetch_add(1, std::sync::atomic::Ordering::Relaxed) == 2;
        Ok(if is_bad {
            Box::new(FailingSlot(slot))
        } else {
            slot
        })
    }
}

#[test]
fn every_row_comes_once_and_the_feed_ends() {
    for order in [SampleOrder::sequential(), SampleOrder::shuffled(1, 12)] {
        check(move || {
            let source = TestBlocks::rows("a", &[6; 4]).source();
            let feed = Feed::start(config(source, order.clone())).unwrap();
            let mut rows: Vec<i64> = feed.flat_map(|batch| ids(&batch.unwrap())).collect();
            rows.sort_unstable();
            assert_eq!(rows, (0..24).collect::<Vec<_>>());
        });
    }
}

#[test]
fn a_consumer_that_stops_or_holds_all_slots_ends_the_feed() {
    check(|| {
        let start = || {
            let source = TestBlocks::rows("a", &[6; 4]).source();
            Feed::start(FeedOptions {
                slots: 1,
                slots_max: 3,
                ..config(source, SampleOrder::sequential())
            })
            .unwrap()
        };
        drop(start().next().unwrap().unwrap());
        assert_eq!(
            start()
                .map(|batch| batch.unwrap())
                .collect::<Vec<_>>()
                .len(),
            3
        );
    });
}

#[test]
fn a_failure_of_a_thread_reaches_the_consumer() {
    check(|| {
        let bad: Arc<dyn BlockSource> = Arc::new(UnreadableBlocks(TestBlocks::rows("a", &[6; 4])));
        let feed = Feed::start(config(vec![bad], SampleOrder::sequential())).unwrap();
        assert_eq!(feed.filter_map(|batch| batch.err()).count(), 1);
    });
    check(|| {
        let slots = Arc::new(FailingSlots::default());
        let source = TestBlocks::rows("a", &[6; 6]).source();
        let feed = Feed::start(FeedOptions {
            allocator: slots,
            ..config(source, SampleOrder::sequential())
        })
        .unwrap();
        assert_eq!(feed.filter_map(|batch| batch.err()).count(), 1);
    });
}
