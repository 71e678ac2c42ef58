//! Rows packed as batches have them, apart from any feed: what was trained on batches is served with
//! the same bits.

use arrow::array::RecordBatch;
use forebay_model::Result;

use super::cast::PackedColumns;
use super::features::BatchFeatures;
use super::layout::{BatchLayout, PartRole};
use super::memory::{HostMemory, SlotAllocator, SlotMemory};
use super::slot_packer::TilePacker;

/// All rows of one batch of columns.
pub struct PackedRows {
    layout: BatchLayout,
    slot: Box<dyn SlotMemory>,
}

impl PackedRows {
    /// Packs columns, which come in the order of [`BatchFeatures::columns`]; there is at least one row. Rows of
    /// faults count from the first.
    pub fn new(features: &BatchFeatures, batch: &RecordBatch) -> Result<PackedRows> {
        let layout = BatchLayout::new(features, batch.num_rows())?;
        let columns = PackedColumns::new(features, &layout, batch, 0)?;
        let mut slot = HostMemory.allocate(layout.bytes)?;
        let packer = TilePacker::new(features.clone(), layout);
        let mut tile = Vec::new();
        packer.pack_slot(&columns, 0..columns.rows, slot.bytes_mut()?, 0, &mut tile);
        packer.fill_mask(slot.bytes_mut()?, columns.rows);
        Ok(PackedRows {
            layout: packer.layout,
            slot,
        })
    }

    /// A part as numbers; none where there is no such part, or it has another type.
    pub fn numbers<T: bytemuck::AnyBitPattern>(&self, role: PartRole) -> &[T] {
        let Some(part) = self.layout.part(role) else {
            return &[];
        };
        let range = part.offset..part.offset + part.bytes();
        let bytes = self.slot.bytes().get(range).unwrap_or(&[]);
        bytemuck::try_cast_slice(bytes).unwrap_or(&[])
    }
}
