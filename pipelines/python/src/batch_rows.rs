//! Rows of batches, in the host's memory or a device's.

use forebay::connectors::DeviceBatch;
use forebay::feed::{BatchLayout, DeliveryDigest, FeedBatch};

/// Memory that holds the rows of a batch.
pub(crate) enum BatchRows {
    Host(FeedBatch),
    Device(DeviceBatch),
}

impl BatchRows {
    pub fn layout(&self) -> &BatchLayout {
        match self {
            BatchRows::Host(batch) => batch.layout(),
            BatchRows::Device(batch) => batch.layout(),
        }
    }

    pub fn shape_rows(&self) -> usize {
        match self {
            BatchRows::Host(batch) => batch.shape_rows(),
            BatchRows::Device(batch) => batch.shape_rows(),
        }
    }

    pub fn receipt(&self) -> DeliveryDigest {
        match self {
            BatchRows::Host(batch) => batch.receipt(),
            BatchRows::Device(batch) => batch.receipt(),
        }
    }

    /// Epoch, step and rows.
    pub fn place(&self) -> (u64, u64, usize) {
        match self {
            BatchRows::Host(batch) => (batch.epoch(), batch.step(), batch.rows()),
            BatchRows::Device(batch) => (batch.epoch(), batch.step(), batch.rows()),
        }
    }
}
