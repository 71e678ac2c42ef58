//! Consumers that stall, stop or keep everything, and sources that fail.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)] // Only tests are here.

mod common;

use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use arrow::array::RecordBatch;
use common::*;
use forebay_feed::*;
use forebay_model::{Fault, Result, codes};

#[test]
fn a_stalled_consumer_stops_the_reading() {
    let source = Arc::new(TestBlocks::rows("a", &[64; 400]));
    let mut feed =
        Feed::start(config(vec![source.clone()], SampleOrder::shuffled(1, 640))).unwrap();
    drop(feed.next().unwrap().unwrap());
    // Hold every slot: whatever the threads still do, they cannot read more than window and lead.
    let held: Vec<FeedBatch> = feed.by_ref().take(3).map(|batch| batch.unwrap()).collect();
    let stats = feed.take_stats();
    drop(feed);
    let read = source.read.load(Ordering::Relaxed);
    assert!(read <= 10 + 2 + 8, "{read} blocks read");
    assert_eq!((stats.steps, stats.rows), (4, 32));
    assert_eq!(held.len(), 3);
}

#[test]
fn a_consumer_may_keep_batches_up_to_a_limit() {
    let start = |slots_max| {
        let source = TestBlocks::rows("a", &[50; 8]).source();
        Feed::start(FeedOptions {
            slots: 2,
            slots_max,
            ..config(source, SampleOrder::shuffled(1, 100))
        })
        .unwrap()
    };
    let all: Vec<FeedBatch> = start(50).map(|batch| batch.unwrap()).collect();
    let mut rows: Vec<i64> = all.iter().flat_map(ids).collect();
    rows.sort_unstable();
    assert_eq!(rows, (0..400).collect::<Vec<_>>());
    let all: Vec<Result<FeedBatch>> = start(10).collect();
    assert_eq!(all.len(), 11);
    let fault = all.last().unwrap().as_ref().err().unwrap();
    assert_eq!(fault.code(), codes::MEMORY);
    assert_eq!(fault.message(), "all 10 batches are held by the consumer");
}

/// How the third block of a source is bad.
type BadRead = fn(&mut dyn FnMut(RecordBatch) -> ControlFlow<()>, RecordBatch) -> Result<Duration>;

struct BadReadBlocks(TestBlocks, BadRead);

impl BlockSource for BadReadBlocks {
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
            (self.1)(rows, self.0.blocks[2].project(&[1, 0])?)
        } else {
            self.0.read(block, columns, rows)
        }
    }
}

fn fault(bad: BadRead) -> Fault {
    let bad = || {
        vec![Arc::new(BadReadBlocks(TestBlocks::rows("a", &[20; 6]), bad)) as Arc<dyn BlockSource>]
    };
    let mut faults = [SampleOrder::sequential(), SampleOrder::shuffled(3, 40)].map(|order| {
        let mut feed = Feed::start(config(bad(), order)).unwrap();
        let fault = feed.find_map(|batch| batch.err()).expect("a fault");
        assert!(feed.next().is_none(), "nothing comes after a fault");
        fault
    });
    assert_eq!(faults[0].message(), faults[1].message());
    std::mem::replace(&mut faults[0], Fault::internal(""))
}

#[test]
fn faults_of_the_source_reach_the_consumer() {
    let lost = fault(|_, _| Err(Fault::new(codes::STORAGE, "the disk is gone")));
    assert_eq!(lost.message(), "the disk is gone");
    assert_eq!(lost.notes(), ["block 2 of the feed's source"]);
    let short = fault(|rows, batch| {
        let _ = rows(batch.slice(0, 19));
        Ok(Duration::ZERO)
    });
    assert_eq!(
        (short.code(), short.message()),
        (codes::CHANGED, "a block of 20 rows gave 19")
    );
    let long = fault(|rows, batch| {
        let _ = rows(batch.clone());
        let _ = rows(batch);
        Ok(Duration::ZERO)
    });
    assert_eq!(long.message(), "a block of 20 rows gave more");
    let panic = fault(|_, _| panic!("a bug in a source"));
    assert_eq!(panic.message(), "the program panicked: a bug in a source");
    assert_eq!(panic.notes(), ["block 2 of the feed's source"]);
}

/// A slot that panics when it is filled.
struct PanickingSlot(Box<dyn SlotMemory>);

impl SlotMemory for PanickingSlot {
    fn bytes(&self) -> &[u8] {
        self.0.bytes()
    }

    fn bytes_mut(&mut self) -> Result<&mut [u8]> {
        panic!("a bug in a slot")
    }
}

/// Ordinary memory, of which one slot panics.
#[derive(Default)]
struct OnePanickingSlot(AtomicUsize);

impl SlotAllocator for OnePanickingSlot {
    fn allocate(&self, bytes: usize) -> Result<Box<dyn SlotMemory>> {
        let slot = HostMemory.allocate(bytes)?;
        Ok(if self.0.fetch_add(1, Ordering::Relaxed) == 1 {
            Box::new(PanickingSlot(slot))
        } else {
            slot
        })
    }
}

#[test]
fn a_panic_while_a_slot_is_filled_reaches_the_consumer() {
    let (tell, told) = std::sync::mpsc::channel();
    // Where the feed never ends, its thread is left behind.
    std::thread::spawn(move || {
        let allocator = Arc::new(OnePanickingSlot::default());
        let config = FeedOptions {
            allocator,
            ..config(
                TestBlocks::rows("a", &[20; 6]).source(),
                SampleOrder::sequential(),
            )
        };
        let faults = Feed::start(config).unwrap().filter_map(|batch| batch.err());
        tell.send(
            faults
                .map(|fault| fault.message().to_owned())
                .collect::<Vec<_>>(),
        )
    });
    let faults = told
        .recv_timeout(Duration::from_secs(20))
        .expect("the feed does not end");
    assert_eq!(faults, ["the program panicked: a bug in a slot"]);
}

#[test]
fn what_cannot_be_is_refused_at_the_start() {
    let start = |change: fn(&mut FeedOptions)| {
        let mut config = config(
            TestBlocks::rows("a", &[10; 4]).source(),
            SampleOrder::shuffled(1, 20),
        );
        change(&mut config);
        Feed::start(config)
            .err()
            .map(|fault| fault.message().to_owned())
            .unwrap_or_default()
    };
    assert_eq!(start(|_| ()), "");
    assert_eq!(
        start(|config| config.rank = 1),
        "rank 1 is outside a world of 1"
    );
    assert_eq!(
        start(|config| config.batch_rows = 0),
        "a batch of 0 rows is not between 1 and 16777216"
    );
    assert_eq!(
        start(|config| config.threads = 0),
        "a feed needs a source, a thread and a slot"
    );
    assert_eq!(
        start(|config| config.order = SampleOrder::shuffled(1, 0)),
        "a window of no rows cannot shuffle"
    );
    let other = start(|config| {
        let feed = Feed::start(common::config(
            TestBlocks::rows("b", &[10; 4]).source(),
            SampleOrder::shuffled(1, 20),
        ))
        .unwrap();
        config.cursor = Some(feed.cursor().clone());
    });
    assert!(
        other.starts_with("the cursor belongs to dataset"),
        "{other}"
    );
}

#[test]
fn an_empty_dataset_gives_no_batches() {
    for order in [SampleOrder::sequential(), SampleOrder::shuffled(1, 10)] {
        for last in [
            RemainderPolicy::Drop,
            RemainderPolicy::Short,
            RemainderPolicy::Pad,
            RemainderPolicy::Wrap,
        ] {
            let source = TestBlocks::rows("a", &[0, 0]).source();
            assert_eq!(
                Feed::start(FeedOptions {
                    last,
                    ..config(source, order.clone())
                })
                .unwrap()
                .count(),
                0
            );
        }
    }
}

#[test]
fn a_window_is_fitted_to_the_memory() {
    let mut config = config(
        TestBlocks::rows("a", &[1000; 50]).source(),
        SampleOrder::sequential(),
    );
    let fault = config.fit_window(1000).unwrap_err();
    assert_eq!(fault.code(), codes::MEMORY);
    config.fit_window(400_000).unwrap();
    let OrderMode::Shuffled { window_rows } = config.order.mode else {
        panic!("not shuffled")
    };
    assert!((5_000..20_000).contains(&window_rows), "{window_rows}");
    let feed = Feed::start(config).unwrap();
    assert!(feed.memory_bytes() <= 400_000);
}
