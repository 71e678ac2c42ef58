//! Digests of delivered rows: a proof of which rows were delivered in which order.

use std::ops::AddAssign;

use serde::{Deserialize, Serialize};

use crate::RowId;
use crate::order::splitmix64;

/// A hash of (place, row) pairs. Hashes of the pairs are added: receipts of all ranks of a step, or
/// of the steps of any range of places, add up to the same receipt however they were cut, and a row
/// that moved, was lost or came twice changes it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct DeliveryDigest {
    /// Number of rows.
    pub rows: u64,
    /// The sum of their hashes.
    pub hash: u64,
}

impl DeliveryDigest {
    /// Adds the row that lies at a place of the sequence.
    #[inline]
    pub fn add(&mut self, place_number: u64, row: RowId) {
        let hash = splitmix64(splitmix64(place_number ^ (u64::from(row.dataset) << 48)) ^ row.row);
        *self += DeliveryDigest { rows: 1, hash };
    }
}

impl AddAssign for DeliveryDigest {
    fn add_assign(&mut self, other: DeliveryDigest) {
        self.rows += other.rows;
        self.hash = self.hash.wrapping_add(other.hash);
    }
}
