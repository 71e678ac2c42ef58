//! The endless sequence of rows that an order makes of datasets.

use std::ops::Range;
use std::sync::{Arc, Mutex, PoisonError};

use forebay_model::{ContentId, IdBuilder, Result};

use super::seed::{SeedPurpose, derive_seed};
use super::shuffle_chunk::SliceOrder;
use super::{BlockDataset, EpochOrder, KeyedPermutation, OrderMode, SampleOrder};

/// The identity of a row.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct RowId {
    /// The dataset's number.
    pub dataset: u32,
    /// The row's number in the dataset as it lies.
    pub row: u64,
}

/// An order bound to datasets.
#[derive(Debug)]
pub struct RowSequence {
    order: SampleOrder,
    datasets: Vec<BlockDataset>,
    /// Turns of a cycle before each dataset, and all.
    turns: Vec<u64>,
    epoch_rows: u64,
    time: Vec<Vec<u32>>,
    /// The epochs used last: one or two per dataset are in use at a time.
    epochs: Mutex<Vec<(u32, u64, Arc<EpochOrder>)>>,
}

impl RowSequence {
    pub(super) fn new(
        order: SampleOrder,
        datasets: Vec<BlockDataset>,
        shares: Vec<u64>,
    ) -> Result<RowSequence> {
        let time = match order.mode {
            OrderMode::Time => datasets
                .iter()
                .map(BlockDataset::blocks_by_time)
                .collect::<Result<_>>()?,
            _ => Vec::new(),
        };
        let epoch_rows = match &order.mix {
            Some(mix) => mix.rows(&datasets, &shares),
            None => datasets[0].rows(),
        };
        let mut turns = vec![0];
        let mut turn_count = 0;
        for share in shares {
            turn_count += share;
            turns.push(turn_count);
        }
        Ok(RowSequence {
            order,
            datasets,
            turns,
            epoch_rows,
            time,
            epochs: Mutex::default(),
        })
    }

    /// The order.
    pub fn order(&self) -> &SampleOrder {
        &self.order
    }

    /// The datasets.
    pub fn datasets(&self) -> &[BlockDataset] {
        &self.datasets
    }

    /// Rows of an epoch.
    pub fn epoch_rows(&self) -> u64 {
        self.epoch_rows
    }

    /// The id of the data, which a cursor is compared with.
    pub fn fingerprint(&self) -> ContentId {
        let mut id = IdBuilder::new("feed");
        for dataset in &self.datasets {
            id.id(dataset.fingerprint())
                .bytes(&dataset.rows().to_le_bytes());
            id.bytes(&(dataset.blocks() as u64).to_le_bytes());
        }
        id.finish()
    }

    /// The dataset of a place, and the place in the dataset's own sequence.
    #[inline]
    pub fn turn(&self, place_number: u64) -> (u32, u64) {
        let datasets = self.datasets.len();
        if datasets == 1 {
            return (0, place_number);
        }
        let cycle_turns = self.turns[datasets];
        let cycle = place_number / cycle_turns;
        let seed = derive_seed(self.order.seed, SeedPurpose::Turns, &[cycle]);
        let permutation = KeyedPermutation::new(cycle_turns, seed);
        let turn = permutation.forward(place_number % cycle_turns);
        let dataset = self.turns.partition_point(|&first| first <= turn) - 1;
        let share = self.turns[dataset + 1] - self.turns[dataset];
        (dataset as u32, cycle * share + turn - self.turns[dataset])
    }

    /// The places of a dataset's own sequence among which those of a range of places lie.
    pub fn turns_of(&self, dataset: u32, place_range: Range<u64>) -> Range<u64> {
        if self.datasets.len() == 1 || place_range.is_empty() {
            return place_range;
        }
        let cycle_turns = self.turns[self.datasets.len()];
        let share = self.turns[dataset as usize + 1] - self.turns[dataset as usize];
        // Whole cycles: within one, turns are permuted.
        place_range.start / cycle_turns * share..place_range.end.div_ceil(cycle_turns) * share
    }

    /// An epoch of a dataset.
    pub fn epoch(&self, dataset: u32, epoch: u64) -> Arc<EpochOrder> {
        let mut epochs = self.epochs.lock().unwrap_or_else(PoisonError::into_inner);
        for (cached_dataset, cached_epoch, order) in epochs.iter() {
            if *cached_dataset == dataset && *cached_epoch == epoch {
                return order.clone();
            }
        }
        let data = &self.datasets[dataset as usize];
        let order = Arc::new(match self.order.mode {
            OrderMode::Sequential => {
                EpochOrder::in_order(data, (0..data.blocks() as u32).collect())
            }
            OrderMode::Time => EpochOrder::in_order(data, self.time[dataset as usize].clone()),
            OrderMode::Shuffled { window_rows } => {
                EpochOrder::shuffled(data, window_rows, self.order.seed, dataset.into(), epoch)
            }
        });
        // The epoch at work, the next one and the last one of each dataset.
        if epochs.len() >= 3 * self.datasets.len() {
            epochs.remove(0);
        }
        epochs.push((dataset, epoch, order.clone()));
        order
    }

    /// The rows of consecutive places.
    pub fn rows(&self, place_range: Range<u64>) -> Vec<RowId> {
        let mut by_dataset: Vec<(u64, Vec<RowId>)> = Vec::new();
        for dataset in 0..self.datasets.len() as u32 {
            let turns = self.turns_of(dataset, place_range.clone());
            by_dataset.push((turns.start, self.rows_of(dataset, turns)));
        }
        let mut rows = Vec::new();
        for place_number in place_range {
            let (dataset, turn) = self.turn(place_number);
            let (first, dataset_rows) = &by_dataset[dataset as usize];
            rows.push(dataset_rows[(turn - first) as usize]);
        }
        rows
    }

    /// The rows of consecutive places of a dataset's own sequence.
    fn rows_of(&self, dataset: u32, place_range: Range<u64>) -> Vec<RowId> {
        let data = &self.datasets[dataset as usize];
        let mut rows =
            vec![RowId { dataset, row: 0 }; (place_range.end - place_range.start) as usize];
        let mut order = SliceOrder::default();
        let mut place_number = place_range.start;
        while place_number < place_range.end {
            let number = place_number / data.rows();
            let position = place_number % data.rows();
            let epoch = self.epoch(dataset, number);
            let chunk = epoch.chunk(epoch.chunk_at(position));
            let base = number * data.rows() + chunk.start;
            let end = place_range.end.min(base + chunk.rows());
            chunk.each(place_number - base..end - base, &mut order, |piece| {
                for (row, slice_place) in (piece.first as u64..).zip(piece.places) {
                    let place_number = base + piece.slice + u64::from(*slice_place);
                    // Slices are given whole, beyond the places that were asked for.
                    if place_range.contains(&place_number) {
                        let part = chunk.parts[piece.part];
                        let (block, row) = epoch.source(data, part, piece.run, row);
                        rows[(place_number - place_range.start) as usize].row =
                            data.row(block, row);
                    }
                }
            });
            place_number = end;
        }
        rows
    }
}
