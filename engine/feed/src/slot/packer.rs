//! Rows into slots: straight from columns, or by way of records.

use forebay_model::Result;

use super::features::Features;
use super::layout::{Layout, PartLayout, Role};
use super::pack::{Columns, Scratch, TILE_ROWS, Target};

/// Packs rows of some features.
#[derive(Debug, Clone)]
pub(crate) struct Packer {
    pub features: Features,
    pub layout: Layout,
}

impl Packer {
    /// Packs consecutive rows of columns straight into the rows of a slot.
    pub fn slot(
        &self,
        columns: &Columns,
        first: usize,
        rows: usize,
        slot: &mut [u8],
        slot_row: usize,
        scratch: &mut Scratch,
    ) -> Result<()> {
        for start in (0..rows).step_by(TILE_ROWS) {
            let count = TILE_ROWS.min(rows - start);
            scratch.mask = [1; TILE_ROWS];
            for part in &self.layout.parts {
                let from = part.offset + (slot_row + start) * part.row_bytes;
                let bytes = &mut slot[from..part.offset + part.bytes()];
                let to = Target { bytes, stride: part.row_bytes, data_type: part.data_type };
                columns.pack(part.role, first + start, count, to, scratch)?;
            }
        }
        Ok(())
    }

    /// Packs a tile of rows into records that follow each other.
    pub fn tile(&self, columns: &Columns, first: usize, records: &mut [u8], scratch: &mut Scratch) -> Result<()> {
        scratch.mask = [1; TILE_ROWS];
        let stride = self.layout.record_bytes;
        let rows = records.len() / stride;
        for part in &self.layout.parts {
            let Some(offset) = part.record_offset else { continue };
            let to = Target { bytes: &mut records[offset..], stride, data_type: part.data_type };
            columns.pack(part.role, first, rows, to, scratch)?;
        }
        Ok(())
    }

    /// Copies a record into a row of a slot.
    #[inline]
    pub fn place(&self, record: &[u8], slot: &mut [u8], slot_row: usize) {
        for part in &self.layout.parts {
            let Some(from) = part.record_offset else { continue };
            let to = part.offset + slot_row * part.row_bytes;
            let (from, to) = (&record[from..from + part.row_bytes], &mut slot[to..to + part.row_bytes]);
            match part.row_bytes {
                // A call for each would cost more than the copies of the commonest parts.
                1 => to[0] = from[0],
                4 => to[..4].copy_from_slice(&from[..4]),
                _ => to.copy_from_slice(from),
            }
        }
    }

    /// Fills the mask of rows that came from records without one.
    pub fn count_all(&self, slot: &mut [u8], rows: usize) {
        let parts = self.layout.parts.iter().filter(|part| part.record_offset.is_none());
        parts.for_each(|part| slot[part.offset..part.offset + rows * part.row_bytes].fill(1));
    }

    /// Fills the rows of a slot from `slot_row` on with padding: mask 0, weight 0, all values 0.
    pub fn pad(&self, slot: &mut [u8], slot_row: usize) {
        for part in &self.layout.parts {
            slot[part.offset + slot_row * part.row_bytes..part.offset + part.bytes()].fill(0);
        }
    }
}

impl PartLayout {
    /// This part of a record.
    #[inline]
    pub(super) fn of<'a>(&self, record: &'a [u8]) -> &'a [u8] {
        self.record_offset.map_or(&[], |offset| &record[offset..offset + self.row_bytes])
    }

    /// Whether the part has a value for each step of a series.
    pub(super) fn has_steps(&self) -> bool {
        matches!(self.role, Role::Dense | Role::Categorical | Role::Mask)
    }
}
