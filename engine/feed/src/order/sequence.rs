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
        shares
            .iter()
            .for_each(|share| turns.push(turns[turns.len() - 1] + share));
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

    /// The id of the data: what a cursor must find again.
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
    pub fn turn(&self, place: u64) -> (u32, u64) {
        let datasets = self.datasets.len();
        if datasets == 1 {
            return (0, place);
        }
        let (cycle, turn) = (place / self.turns[datasets], place % self.turns[datasets]);
        let cycles = KeyedPermutation::new(
            self.turns[datasets],
            derive_seed(self.order.seed, SeedPurpose::Turns, &[cycle]),
        );
        let turn = cycles.forward(turn);
        let dataset = self.turns.partition_point(|&first| first <= turn) - 1;
        let share = self.turns[dataset + 1] - self.turns[dataset];
        (dataset as u32, cycle * share + turn - self.turns[dataset])
    }

    /// The places of a dataset's own sequence among which those of a range of places lie.
    pub fn turns_of(&self, dataset: u32, places: Range<u64>) -> Range<u64> {
        if self.datasets.len() == 1 || places.is_empty() {
            return places;
        }
        let all = self.turns[self.datasets.len()];
        let share = self.turns[dataset as usize + 1] - self.turns[dataset as usize];
        places.start / all * share..places.end.div_ceil(all) * share
    }

    /// An epoch of a dataset.
    pub fn epoch(&self, dataset: u32, epoch: u64) -> Arc<EpochOrder> {
        let mut epochs = self.epochs.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, _, found)) = epochs
            .iter()
            .find(|known| (known.0, known.1) == (dataset, epoch))
        {
            return found.clone();
        }
        let data = &self.datasets[dataset as usize];
        let made = Arc::new(match self.order.mode {
            OrderMode::Sequential => {
                EpochOrder::in_order(data, (0..data.blocks() as u32).collect())
            }
            OrderMode::Time => EpochOrder::in_order(data, self.time[dataset as usize].clone()),
            OrderMode::Shuffled { window_rows } => {
                EpochOrder::shuffled(data, window_rows, self.order.seed, dataset.into(), epoch)
            }
        });
        if epochs.len() >= 3 * self.datasets.len() {
            epochs.remove(0);
        }
        epochs.push((dataset, epoch, made.clone()));
        made
    }

    /// The rows of consecutive places.
    pub fn rows(&self, places: Range<u64>) -> Vec<RowId> {
        let datasets = 0..self.datasets.len() as u32;
        let own: Vec<(u64, Vec<RowId>)> = datasets
            .map(|dataset| {
                let own = self.turns_of(dataset, places.clone());
                (own.start, self.rows_of(dataset, own))
            })
            .collect();
        let row = |place| {
            let (dataset, place) = self.turn(place);
            let (first, rows) = &own[dataset as usize];
            rows[(place - first) as usize]
        };
        places.map(row).collect()
    }

    /// The rows of consecutive places of a dataset's own sequence.
    fn rows_of(&self, dataset: u32, places: Range<u64>) -> Vec<RowId> {
        let data = &self.datasets[dataset as usize];
        let mut rows = vec![RowId { dataset, row: 0 }; (places.end - places.start) as usize];
        let mut order = SliceOrder::default();
        let mut place = places.start;
        while place < places.end {
            let (number, position) = (place / data.rows(), place % data.rows());
            let epoch = self.epoch(dataset, number);
            let chunk = epoch.chunk(epoch.chunk_at(position));
            let base = number * data.rows() + chunk.start;
            let end = places.end.min(base + chunk.rows());
            chunk.each(place - base..end - base, &mut order, |piece| {
                for (row, own) in (piece.first as u64..).zip(piece.places) {
                    let place = base + piece.slice + u64::from(*own);
                    if places.contains(&place) {
                        let (block, row) =
                            epoch.source(data, chunk.parts[piece.part], piece.run, row);
                        rows[(place - places.start) as usize].row = data.row(block, row);
                    }
                }
            });
            place = end;
        }
        rows
    }
}
