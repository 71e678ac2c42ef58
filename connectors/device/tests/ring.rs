//! The ring, over a device that does its work late and in any order that its queues allow: what is still to
//! be copied is not overwritten, what is computed with is there and stays. A device that skips one of the
//! waits shows that these tests would detect it.
#![allow(missing_docs, clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::collections::{BTreeMap, VecDeque};
use std::ops::ControlFlow;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use arrow::array::{ArrayRef, Float32Array, RecordBatch};
use forebay_device::{ComputeDevice, DeliveredBatch, DeviceStage, HostDevice, run_stage};
use forebay_feed::{
    BatchFeatures, BlockDataset, BlockSource, DatasetBlock, FeatureField, Feed, FeedOptions,
    SampleOrder, SlotAllocator, SlotMemory,
};
use forebay_model::{ContentId, Fault, Result};

/// The promise that the device breaks.
#[derive(Debug, Clone, Copy, PartialEq)]
enum BrokenPromise {
    Nothing,
    CopiesDoNotWait,
    ComputeDoesNotWait,
    WritersDoNotWait,
}

/// An entry of a queue.
enum QueuedWork {
    /// The bytes that a slot had, the slot's writes by then, and where they go.
    Copy {
        bytes: Vec<u8>,
        writes: Arc<AtomicU64>,
        seen: u64,
        left: Arc<AtomicU64>,
        to: usize,
    },
    /// A kernel reads memory that must hold `wanted`.
    Look {
        memory: usize,
        wanted: Vec<u8>,
    },
    Record {
        event: usize,
        nth: u64,
    },
    Wait {
        event: usize,
        nth: u64,
    },
}

#[derive(Default)]
struct DeferredQueues {
    copies: VecDeque<QueuedWork>,
    compute: VecDeque<QueuedWork>,
    memory: Vec<Vec<u8>>,
    /// For each event, the number of its records, and of those that were reached.
    recorded: Vec<u64>,
    come: BTreeMap<usize, u64>,
    random: u64,
    looked: u64,
    wrong: Vec<&'static str>,
}

impl DeferredQueues {
    fn random(&mut self) -> u64 {
        self.random = self
            .random
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        self.random >> 33
    }

    /// Does the first work of a queue, if it can be done.
    fn advance(&mut self, of_copies: bool) -> bool {
        let queue = if of_copies {
            &mut self.copies
        } else {
            &mut self.compute
        };
        let Some(work) = queue.pop_front() else {
            return false;
        };
        match work {
            QueuedWork::Wait { event, nth }
                if self.come.get(&event).copied().unwrap_or(0) < nth =>
            {
                let queue = if of_copies {
                    &mut self.copies
                } else {
                    &mut self.compute
                };
                queue.push_front(QueuedWork::Wait { event, nth });
                return false;
            }
            QueuedWork::Wait { .. } => {}
            QueuedWork::Record { event, nth } => {
                self.come.insert(event, nth);
            }
            QueuedWork::Copy {
                bytes,
                writes,
                seen,
                left,
                to,
            } => {
                if writes.load(Ordering::SeqCst) != seen {
                    self.wrong.push("a slot was written before it was copied");
                }
                left.fetch_sub(1, Ordering::SeqCst);
                self.memory[to] = bytes;
            }
            QueuedWork::Look { memory, wanted } => {
                self.looked += 1;
                if self.memory[memory] != wanted {
                    self.wrong
                        .push("a batch was computed with that is not there");
                }
            }
        }
        true
    }

    /// Does some work, in an order that chance chooses.
    fn advance_some(&mut self) {
        for _ in 0..self.random() % 4 {
            let first = self.random().is_multiple_of(2);
            let _ = self.advance(first);
        }
    }

    fn finish(&mut self) {
        while self.advance(true) || self.advance(false) {}
        assert!(
            self.copies.is_empty() && self.compute.is_empty(),
            "the queues wait for each other"
        );
    }
}

#[derive(Clone)]
struct DeferredDevice {
    queues: Arc<Mutex<DeferredQueues>>,
    broken: BrokenPromise,
}

impl DeferredDevice {
    fn put(&self, of_copies: bool, work: QueuedWork) {
        let mut queues = self.queues.lock().unwrap();
        if of_copies {
            queues.copies.push_back(work)
        } else {
            queues.compute.push_back(work)
        }
        queues.advance_some();
    }

    fn wait(&self, of_copies: bool, event: usize) {
        let nth = self.queues.lock().unwrap().recorded[event];
        self.put(of_copies, QueuedWork::Wait { event, nth });
    }

    fn record(&self, of_copies: bool, event: usize) {
        let nth = {
            let mut queues = self.queues.lock().unwrap();
            queues.recorded[event] += 1;
            queues.recorded[event]
        };
        self.put(of_copies, QueuedWork::Record { event, nth });
    }
}

impl ComputeDevice for DeferredDevice {
    type Memory = usize;
    type Event = usize;

    fn memory(&self, bytes: usize) -> Result<usize> {
        let mut queues = self.queues.lock().unwrap();
        queues.memory.push(vec![0; bytes]);
        Ok(queues.memory.len() - 1)
    }

    fn event(&self) -> Result<usize> {
        let mut queues = self.queues.lock().unwrap();
        queues.recorded.push(0);
        Ok(queues.recorded.len() - 1)
    }

    fn copies_wait(&self, event: &usize) -> Result<()> {
        if self.broken != BrokenPromise::CopiesDoNotWait {
            self.wait(true, *event);
        }
        Ok(())
    }

    fn copy(&self, from: &dyn SlotMemory, to: &mut usize) -> Result<()> {
        let any: &dyn std::any::Any = from;
        let slot = any
            .downcast_ref::<DeferredSlot>()
            .ok_or_else(|| Fault::internal("another slot"))?;
        slot.left.fetch_add(1, Ordering::SeqCst);
        let bytes = slot.bytes.clone();
        let seen = slot.writes.load(Ordering::SeqCst);
        self.put(
            true,
            QueuedWork::Copy {
                bytes,
                writes: slot.writes.clone(),
                seen,
                left: slot.left.clone(),
                to: *to,
            },
        );
        Ok(())
    }

    fn record_copied(&self, event: &mut usize) -> Result<()> {
        self.record(true, *event);
        Ok(())
    }

    fn compute_waits(&self, event: &usize) -> Result<()> {
        if self.broken != BrokenPromise::ComputeDoesNotWait {
            self.wait(false, *event);
        }
        Ok(())
    }

    fn record_computed(&self, event: &mut usize) -> Result<()> {
        self.record(false, *event);
        Ok(())
    }

    fn finish(&self) -> Result<()> {
        self.queues.lock().unwrap().finish();
        Ok(())
    }
}

struct DeferredSlot {
    bytes: Vec<u8>,
    /// Number of times that a write to this slot began.
    writes: Arc<AtomicU64>,
    /// Copies from here that are still to be done.
    left: Arc<AtomicU64>,
    device: DeferredDevice,
}

impl SlotMemory for DeferredSlot {
    fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    fn bytes_mut(&mut self) -> Result<&mut [u8]> {
        if self.device.broken != BrokenPromise::WritersDoNotWait {
            while self.left.load(Ordering::SeqCst) > 0 {
                let mut queues = self.device.queues.lock().unwrap();
                let _ = queues.advance(true) || queues.advance(false);
            }
        }
        self.writes.fetch_add(1, Ordering::SeqCst);
        Ok(&mut self.bytes)
    }
}

impl SlotAllocator for DeferredDevice {
    fn allocate(&self, bytes: usize) -> Result<Box<dyn SlotMemory>> {
        let (writes, left) = Default::default();
        Ok(Box::new(DeferredSlot {
            bytes: vec![0; bytes],
            writes,
            left,
            device: self.clone(),
        }))
    }
}

/// Looks at each batch when its turn comes, which is later than the call.
struct BatchCheckStage(Vec<f32>);

impl DeviceStage<DeferredDevice> for BatchCheckStage {
    fn step(&mut self, batch: DeliveredBatch<'_, DeferredDevice>) -> Result<()> {
        // What was sent there last, wherever the copy stands.
        let queues = batch.device.queues.lock().unwrap();
        let sent = queues.copies.iter().rev().find_map(|work| match work {
            QueuedWork::Copy { bytes, to, .. } if to == batch.memory => Some(bytes.clone()),
            _ => None,
        });
        let wanted = sent.unwrap_or_else(|| queues.memory[*batch.memory].clone());
        drop(queues);
        self.0.extend(values(&wanted, &batch));
        batch.device.put(
            false,
            QueuedWork::Look {
                memory: *batch.memory,
                wanted,
            },
        );
        Ok(())
    }
}

/// Checks batches in ordinary memory.
impl DeviceStage<HostDevice> for BatchCheckStage {
    fn step(&mut self, batch: DeliveredBatch<'_, HostDevice>) -> Result<()> {
        self.0.extend(values(batch.memory, &batch));
        Ok(())
    }
}

fn values<D: ComputeDevice>(bytes: &[u8], batch: &DeliveredBatch<'_, D>) -> Vec<f32> {
    let words = bytes.chunks_exact(4).take(batch.rows);
    words
        .map(|word| f32::from_le_bytes(word.try_into().unwrap()))
        .collect()
}

/// Blocks of consecutive numbers.
struct ConsecutiveBlocks;

const BLOCKS: u32 = 24;
const BLOCK_ROWS: u32 = 64;

impl BlockSource for ConsecutiveBlocks {
    fn dataset(&self) -> BlockDataset {
        let block = DatasetBlock {
            rows: u64::from(BLOCK_ROWS),
            ..DatasetBlock::default()
        };
        BlockDataset::new(ContentId::of(b"numbers"), vec![block; BLOCKS as usize])
    }

    fn read(
        &self,
        block: u32,
        _columns: &[String],
        rows: &mut dyn FnMut(RecordBatch) -> ControlFlow<()>,
    ) -> Result<Duration> {
        let values = (block * BLOCK_ROWS..(block + 1) * BLOCK_ROWS).map(|value| value as f32);
        let values: ArrayRef = Arc::new(Float32Array::from_iter_values(values));
        let _ = rows(RecordBatch::try_from_iter([("x", values)])?);
        Ok(Duration::ZERO)
    }
}

fn feed(allocator: Option<Arc<dyn SlotAllocator>>) -> Feed {
    let features = BatchFeatures {
        dense: vec![FeatureField::new("x")],
        ..BatchFeatures::default()
    };
    let mut config = FeedOptions::new(
        vec![Arc::new(ConsecutiveBlocks)],
        features,
        SampleOrder::shuffled(3, 500),
    );
    (config.batch_rows, config.threads, config.slots) = (32, 2, 4);
    config.allocator = allocator.unwrap_or(config.allocator);
    Feed::start(config).unwrap()
}

/// Errors of a device over some seeds.
fn device_errors(broken: BrokenPromise) -> Vec<&'static str> {
    let mut wrong = Vec::new();
    for random in 0..12 {
        let queues = Arc::new(Mutex::new(DeferredQueues {
            random,
            ..DeferredQueues::default()
        }));
        let device = DeferredDevice {
            queues: queues.clone(),
            broken,
        };
        let mut stage = BatchCheckStage(Vec::new());
        run_stage(
            &mut feed(Some(Arc::new(device.clone()))),
            &device,
            &mut stage,
        )
        .unwrap();
        let queues = queues.lock().unwrap();
        assert_eq!(queues.looked, u64::from(BLOCKS * BLOCK_ROWS / 32));
        wrong.extend(&queues.wrong);
        if broken == BrokenPromise::Nothing {
            let mut host = BatchCheckStage(Vec::new());
            run_stage(&mut feed(None), &HostDevice, &mut host).unwrap();
            assert_eq!(
                stage.0, host.0,
                "the device gets other batches than the host"
            );
        }
    }
    wrong
}

#[test]
fn batches_are_whole_when_they_are_computed_with() {
    assert_eq!(device_errors(BrokenPromise::Nothing), Vec::<&str>::new());
    let mut all = BatchCheckStage(Vec::new());
    run_stage(&mut feed(None), &HostDevice, &mut all).unwrap();
    all.0.sort_by(f32::total_cmp);
    assert_eq!(
        all.0,
        (0..BLOCKS * BLOCK_ROWS)
            .map(|value| value as f32)
            .collect::<Vec<_>>()
    );
}

#[test]
fn a_missing_wait_is_detected() {
    assert!(
        device_errors(BrokenPromise::CopiesDoNotWait)
            .contains(&"a batch was computed with that is not there")
    );
    assert!(
        device_errors(BrokenPromise::ComputeDoesNotWait)
            .contains(&"a batch was computed with that is not there")
    );
    assert!(
        device_errors(BrokenPromise::WritersDoNotWait)
            .contains(&"a slot was written before it was copied")
    );
}
