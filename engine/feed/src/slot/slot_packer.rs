//! Rows into slots, by way of tiles.
//!
//! A *tile* holds [`RUN_ROWS`] rows column by column: `[16 values of the first | 16 of the second | ...]`.
//! So a tile is written with a copy for each column, waits in a shuffle window in one piece, and is
//! read once: from there each value goes to its row of the slot.

use std::ops::Range;

use bytemuck::{Pod, bytes_of, bytes_of_mut, cast_slice, cast_slice_mut};

use super::cast::{PackedColumns, PackedValues};
use super::features::BatchFeatures;
use super::layout::{BatchLayout, PartLayout, PartRole, ValueType};
use super::nontemporal::copy_nontemporal;
use crate::order::RUN_ROWS;

/// Rows of a tile.
pub(crate) const TILE_ROWS: usize = RUN_ROWS as usize;

/// The row of a slot that nothing goes to.
pub(crate) const NO_ROW: u32 = u32::MAX;

/// Packs rows of some features.
#[derive(Debug, Clone)]
pub(crate) struct TilePacker {
    pub features: BatchFeatures,
    pub layout: BatchLayout,
    /// Values per row of each column of each part; `None` where all have one.
    widths: Vec<Option<Vec<usize>>>,
}

impl TilePacker {
    pub fn new(features: BatchFeatures, layout: BatchLayout) -> TilePacker {
        let mut widths = Vec::with_capacity(layout.parts.len());
        for part in &layout.parts {
            let fields = match part.role {
                PartRole::Dense => features.dense.as_slice(),
                PartRole::Categorical => features.categorical.as_slice(),
                PartRole::Label | PartRole::Weight | PartRole::Mask => &[],
            };
            let part_widths: Vec<usize> = fields.iter().map(|field| field.width as usize).collect();
            let is_uneven = part_widths.iter().any(|width| *width != 1);
            widths.push(is_uneven.then_some(part_widths));
        }
        TilePacker {
            widths,
            features,
            layout,
        }
    }

    /// Bytes of a tile.
    pub fn tile_bytes(&self) -> usize {
        self.layout.record_bytes * TILE_ROWS
    }

    /// The values of columns, ready to be moved.
    pub fn part_columns<'a>(&self, columns: &'a PackedColumns) -> Vec<PartColumns<'a>> {
        let mut part_columns = Vec::with_capacity(self.layout.parts.len());
        let parts = self.layout.parts.iter().zip(&columns.parts);
        for ((part, columns), widths) in parts.zip(&self.widths) {
            let Some(offset) = part.record_offset else {
                continue;
            };
            let uneven = widths.is_some();
            let start = offset * TILE_ROWS;
            // Types of one size are moved by the same code.
            part_columns.push(match part.data_type {
                ValueType::U8 => PartColumns::One(PackedValues::slices(columns), start, uneven),
                ValueType::F16 | ValueType::Bf16 => {
                    PartColumns::Two(PackedValues::slices(columns), start, uneven)
                }
                ValueType::F32 | ValueType::I32 => {
                    PartColumns::Four(PackedValues::slices(columns), start, uneven)
                }
                ValueType::I64 => PartColumns::Eight(PackedValues::slices(columns), start, uneven),
            });
        }
        part_columns
    }

    /// Copies consecutive rows of columns into a tile, from its row `at` on; past the caches if `past_caches`.
    #[inline]
    pub fn store(
        &self,
        columns: &[PartColumns],
        rows: Range<usize>,
        tile: &mut [u8],
        at: usize,
        past_caches: bool,
    ) {
        for columns in columns {
            match columns {
                PartColumns::One(columns, start, uneven) => store_columns(
                    columns,
                    *uneven,
                    &rows,
                    &mut tile[*start..],
                    at,
                    past_caches,
                ),
                PartColumns::Two(columns, start, uneven) => store_columns(
                    columns,
                    *uneven,
                    &rows,
                    &mut tile[*start..],
                    at,
                    past_caches,
                ),
                PartColumns::Four(columns, start, uneven) => store_columns(
                    columns,
                    *uneven,
                    &rows,
                    &mut tile[*start..],
                    at,
                    past_caches,
                ),
                PartColumns::Eight(columns, start, uneven) => store_columns(
                    columns,
                    *uneven,
                    &rows,
                    &mut tile[*start..],
                    at,
                    past_caches,
                ),
            }
        }
    }

    /// Writes the rows of a tile to rows of a slot; those with [`NO_ROW`] are left out.
    #[inline]
    pub fn scatter(&self, tile: &[u8], rows: &[u32; TILE_ROWS], slot: &mut [u8]) {
        for (part, widths) in self.layout.parts.iter().zip(&self.widths) {
            let Some(offset) = part.record_offset else {
                continue;
            };
            let tile = &tile[offset * TILE_ROWS..(offset + part.row_bytes) * TILE_ROWS];
            let slot = &mut slot[part.offset..part.offset + part.bytes()];
            match part.data_type {
                ValueType::U8 => scatter_values::<u8>(tile, widths.as_deref(), rows, slot),
                ValueType::F16 | ValueType::Bf16 => {
                    scatter_values::<u16>(tile, widths.as_deref(), rows, slot)
                }
                ValueType::F32 | ValueType::I32 => {
                    scatter_values::<u32>(tile, widths.as_deref(), rows, slot)
                }
                ValueType::I64 => scatter_values::<u64>(tile, widths.as_deref(), rows, slot),
            }
        }
    }

    /// Packs consecutive rows of columns into the rows of a slot, by way of the tile.
    pub fn pack_slot(
        &self,
        columns: &PackedColumns,
        rows: Range<usize>,
        slot: &mut [u8],
        slot_row: usize,
        tile: &mut Vec<u64>,
    ) {
        tile.resize(self.tile_bytes() / size_of::<u64>(), 0);
        let tile: &mut [u8] = cast_slice_mut(tile);
        let columns = self.part_columns(columns);
        for first in rows.clone().step_by(TILE_ROWS) {
            let count = TILE_ROWS.min(rows.end - first);
            self.store(&columns, first..first + count, tile, 0, false);
            let mut targets = [NO_ROW; TILE_ROWS];
            let first_target = slot_row + first - rows.start;
            for (index, target) in targets[..count].iter_mut().enumerate() {
                *target = (first_target + index) as u32;
            }
            self.scatter(tile, &targets, slot);
        }
    }

    /// Fills the mask of rows of which all count.
    pub fn fill_mask(&self, slot: &mut [u8], rows: usize) {
        for part in &self.layout.parts {
            if part.record_offset.is_none() {
                slot[part.offset..part.offset + rows * part.row_bytes].fill(1);
            }
        }
    }

    /// Fills the rows of a slot from `slot_row` on with padding: mask 0, weight 0, all values 0.
    pub fn pad(&self, slot: &mut [u8], slot_row: usize) {
        for part in &self.layout.parts {
            let start = part.offset + slot_row * part.row_bytes;
            let end = part.offset + part.bytes();
            slot[start..end].fill(0);
        }
    }
}

/// The columns of a part by the size of their values in bytes, each with the values of a row; the position in a
/// tile at which they begin; and true if some have other than one value a row.
pub(crate) enum PartColumns<'a> {
    One(Vec<(&'a [u8], usize)>, usize, bool),
    Two(Vec<(&'a [u16], usize)>, usize, bool),
    Four(Vec<(&'a [u32], usize)>, usize, bool),
    Eight(Vec<(&'a [u64], usize)>, usize, bool),
}

impl PackedValues {
    fn slices<T: Pod>(columns: &[PackedValues]) -> Vec<(&[T], usize)> {
        columns
            .iter()
            .map(|values| (cast_slice(&values.bytes), values.width))
            .collect()
    }
}

#[inline]
fn store_columns<T: Pod>(
    columns: &[(&[T], usize)],
    uneven: bool,
    rows: &Range<usize>,
    tile: &mut [u8],
    at: usize,
    past_caches: bool,
) {
    let count = rows.len();
    if !uneven && count == TILE_ROWS {
        // Without a call for each column.
        let tile: &mut [T] =
            cast_slice_mut(&mut tile[..columns.len() * TILE_ROWS * size_of::<T>()]);
        for ((values, _), to) in columns.iter().zip(tile.as_chunks_mut::<TILE_ROWS>().0) {
            match values[rows.start..].first_chunk::<TILE_ROWS>() {
                Some(values) if past_caches => copy_nontemporal(bytes_of(values), bytes_of_mut(to)),
                Some(values) => *to = *values,
                None => {}
            }
        }
        return;
    }
    let mut start = 0;
    for (values, width) in columns {
        let to = start + at * width * size_of::<T>();
        let values: &[u8] = cast_slice(&values[rows.start * width..rows.end * width]);
        tile[to..to + values.len()].copy_from_slice(values);
        start += TILE_ROWS * width * size_of::<T>();
    }
}

#[inline]
fn scatter_values<T: Pod>(
    tile: &[u8],
    widths: Option<&[usize]>,
    rows: &[u32; TILE_ROWS],
    slot: &mut [u8],
) {
    let tile: &[T] = cast_slice(tile);
    let slot: &mut [T] = cast_slice_mut(slot);
    let count = tile.len() / TILE_ROWS;
    for (i, row) in rows.iter().enumerate() {
        if *row == NO_ROW {
            continue;
        }
        let to = &mut slot[*row as usize * count..][..count];
        let Some(widths) = widths else {
            // Columns of fixed length, so that the index needs no check.
            for (to, column) in to.iter_mut().zip(tile.as_chunks::<TILE_ROWS>().0) {
                *to = column[i];
            }
            continue;
        };
        let mut start = 0;
        for width in widths {
            to[start..start + width]
                .copy_from_slice(&tile[start * TILE_ROWS + i * width..][..*width]);
            start += width;
        }
    }
}

impl PartLayout {
    /// True if the part has a value for each step of a series.
    pub(super) fn has_steps(&self) -> bool {
        matches!(
            self.role,
            PartRole::Dense | PartRole::Categorical | PartRole::Mask
        )
    }
}
