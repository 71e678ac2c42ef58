//! Rows packed as batches have them, apart from any feed: what was trained on batches is served with
//! the same bits.

use arrow::array::RecordBatch;
use forebay_model::Result;

use super::features::Features;
use super::layout::{Layout, Role};
use super::memory::{HostMemory, SlotAllocator, SlotMemory};
use super::pack::Columns;
use super::packer::Packer;

/// All rows of one batch of columns.
pub struct Packed {
    layout: Layout,
    slot: Box<dyn SlotMemory>,
}

impl Packed {
    /// Packs columns, which come in the order of [`Features::columns`]; there is at least one row. Rows of
    /// faults count from the first.
    pub fn new(features: &Features, batch: &RecordBatch) -> Result<Packed> {
        let layout = Layout::new(features, batch.num_rows())?;
        let columns = Columns::new(features, &layout, batch, 0)?;
        let mut slot = HostMemory.allocate(layout.bytes)?;
        let packer = Packer::new(features.clone(), layout);
        packer.slot(&columns, 0..columns.rows, slot.bytes_mut()?, 0, &mut Vec::new());
        packer.count_all(slot.bytes_mut()?, columns.rows);
        Ok(Packed { layout: packer.layout, slot })
    }

    /// A part as numbers; none where there is no such part, or it has another type.
    pub fn numbers<T: bytemuck::AnyBitPattern>(&self, role: Role) -> &[T] {
        let part =
            self.layout.part(role).and_then(|part| self.slot.bytes().get(part.offset..part.offset + part.bytes()));
        part.and_then(|bytes| bytemuck::try_cast_slice(bytes).ok()).unwrap_or(&[])
    }
}
