//! Sources in memory whose rows tell who they are.
#![allow(dead_code)] // Every test binary uses a part.

use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use arrow::array::*;
use forebay_feed::*;
use forebay_model::{ContentId, Result};

/// Blocks in memory; batches of `cut` rows.
pub struct TestBlocks {
    pub name: String,
    pub blocks: Vec<RecordBatch>,
    pub halo: u64,
    pub cut: usize,
    pub read: AtomicUsize,
}

impl TestBlocks {
    pub fn new(name: &str, blocks: Vec<RecordBatch>) -> TestBlocks {
        TestBlocks {
            name: name.into(),
            blocks,
            halo: 0,
            cut: 7,
            read: AtomicUsize::new(0),
        }
    }

    /// Blocks of so many rows: `id` counts the rows, `x` is half of it, and `null` misses each third.
    pub fn rows(name: &str, rows: &[u64]) -> TestBlocks {
        let mut first = 0;
        let block = |rows: &u64| {
            let ids = first..first + *rows as i64;
            first = ids.end;
            let x = Float64Array::from_iter_values(ids.clone().map(|id| id as f64 / 2.0));
            let null =
                Int32Array::from_iter(ids.clone().map(|id| (id % 3 != 0).then_some(id as i32)));
            RecordBatch::try_from_iter([
                (
                    "id",
                    Arc::new(Int64Array::from_iter_values(ids)) as ArrayRef,
                ),
                ("x", Arc::new(x)),
                ("null", Arc::new(null)),
            ])
        };
        TestBlocks::new(
            name,
            rows.iter()
                .map(block)
                .collect::<std::result::Result<_, _>>()
                .unwrap(),
        )
    }

    pub fn source(self) -> Vec<Arc<dyn BlockSource>> {
        vec![Arc::new(self)]
    }
}

impl BlockSource for TestBlocks {
    fn dataset(&self) -> BlockDataset {
        let rows = self
            .blocks
            .iter()
            .map(|block| block.num_rows() as u64 - self.halo);
        let blocks: Vec<DatasetBlock> = rows
            .map(|rows| DatasetBlock {
                rows,
                halo: self.halo,
                ..DatasetBlock::default()
            })
            .collect();
        BlockDataset::new(ContentId::of(self.name.as_bytes()), blocks)
    }

    fn read(
        &self,
        block: u32,
        columns: &[String],
        rows: &mut dyn FnMut(RecordBatch) -> ControlFlow<()>,
    ) -> Result<Duration> {
        self.read.fetch_add(1, Ordering::Relaxed);
        let block = &self.blocks[block as usize];
        let columns: Vec<usize> = columns
            .iter()
            .map(|name| block.schema().index_of(name).unwrap())
            .collect();
        let block = block.project(&columns)?;
        for first in (0..block.num_rows()).step_by(self.cut) {
            if rows(block.slice(first, self.cut.min(block.num_rows() - first))).is_break() {
                break;
            }
        }
        Ok(Duration::ZERO)
    }
}

/// `x` dense, `id` categorical.
pub fn features() -> BatchFeatures {
    BatchFeatures {
        dense: vec![FeatureField::new("x")],
        categorical: vec![FeatureField::new("id")],
        ..BatchFeatures::default()
    }
}

/// A small feed with few threads.
pub fn config(sources: Vec<Arc<dyn BlockSource>>, order: SampleOrder) -> FeedOptions {
    let mut config = FeedOptions::new(sources, features(), order);
    (
        config.batch_rows,
        config.threads,
        config.slots,
        config.receipts,
    ) = (8, 2, 3, true);
    config
}

/// The ids of a batch's rows, after checking that its parts agree.
pub fn ids(batch: &FeedBatch) -> Vec<i64> {
    let ids: &[i64] = batch.numbers(PartRole::Categorical);
    let x: &[f32] = batch.numbers(PartRole::Dense);
    let mask: &[u8] = batch.numbers(PartRole::Mask);
    assert_eq!(
        (ids.len(), x.len(), mask.len()),
        (batch.shape_rows(), batch.shape_rows(), batch.shape_rows())
    );
    for row in 0..batch.rows() {
        assert_eq!((x[row], mask[row]), (ids[row] as f32 / 2.0, 1));
    }
    assert!(mask[batch.rows()..].iter().all(|&mask| mask == 0));
    assert!(x[batch.rows()..].iter().all(|&x| x == 0.0));
    ids[..batch.rows()].to_vec()
}

/// How many cases a property test tries: so many, or as many as `FOREBAY_CASES` says.
pub fn cases(quick: u32) -> u32 {
    std::env::var("FOREBAY_CASES")
        .ok()
        .and_then(|cases| cases.parse().ok())
        .unwrap_or(quick)
}
