//! Units that a dataset's order has next.

use std::sync::Arc;

use crate::EpochOrder;

/// A unit that is to be loaded.
#[derive(Debug, Clone)]
pub(super) struct UnitLoad {
    pub dataset: u32,
    /// The epoch of the dataset.
    pub number: u64,
    pub epoch: Arc<EpochOrder>,
    pub unit: u32,
    /// Ticks before this one have been delivered already.
    pub first_tick: u32,
}

impl UnitLoad {
    /// Rows that the unit gives to a tick; none where the tick has been delivered already.
    pub fn part_rows(&self, tick: u32) -> u64 {
        if tick < self.first_tick {
            0
        } else {
            self.epoch.part_rows(self.unit, tick)
        }
    }
}
