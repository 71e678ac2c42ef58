//! From columns to rows: casts, fills, checks and packs tile by tile.
//!
//! A tile is a run of rows short enough that its rows stay in the first-level cache while one
//! column after another is written into them: reading is sequential, and so is all that leaves the
//! cache.

use arrow::array::{ArrayRef, RecordBatch};
use arrow::datatypes::{Float32Type, Int32Type};
use bytemuck::{Pod, cast_slice_mut};
use forebay_model::{Fault, Result, codes};
use half::slice::HalfFloatSliceExt;
use half::{bf16, f16};

use super::features::{Features, NonFinite};
use super::layout::{Role, Type};
use super::values::Column;

/// Rows of a tile.
pub(crate) const TILE_ROWS: usize = 64;

/// What was found while packing.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Found {
    /// Values that are not finite.
    pub non_finite: u64,
    /// Rows that got mask 0 for it.
    pub skipped: u64,
}

impl std::ops::AddAssign for Found {
    fn add_assign(&mut self, other: Found) {
        self.non_finite += other.non_finite;
        self.skipped += other.skipped;
    }
}

/// The columns of one batch of the source, ready to be packed.
#[derive(Debug, Clone)]
pub(crate) struct Columns {
    pub rows: usize,
    dense: Vec<Column>,
    categorical: Vec<Column>,
    label: Option<Column>,
    weight: Option<Column>,
    /// The keys of series.
    pub keys: Vec<ArrayRef>,
    non_finite: NonFinite,
}

/// Where a part of a tile goes: its first row at the first byte, the others `stride` bytes apart.
pub(crate) struct Target<'a> {
    pub bytes: &'a mut [u8],
    pub stride: usize,
    pub data_type: Type,
}

impl Target<'_> {
    /// Writes `width` values of each row, so many bytes into the row. Strides and offsets are
    /// multiples of the type's size.
    #[inline]
    fn put<T: Pod>(&mut self, tile: &[T], width: usize, offset: usize) {
        let size = size_of::<T>();
        let (stride, offset) = (self.stride / size, offset / size);
        // The last row may be shorter than a stride, and end within a value of this type.
        let whole = self.bytes.len() / size * size;
        let values: &mut [T] = cast_slice_mut(&mut self.bytes[..whole]);
        if width == 1 {
            let rows = values[offset..].chunks_mut(stride).zip(tile);
            rows.for_each(|(to, from)| to[0] = *from);
        } else {
            let rows = values[offset..].chunks_mut(stride).zip(tile.chunks_exact(width));
            rows.for_each(|(to, from)| to[..width].copy_from_slice(from));
        }
    }
}

/// Buffers of a thread.
#[derive(Debug)]
pub(crate) struct Scratch {
    reals: Vec<f32>,
    wholes: Vec<i64>,
    narrow: Vec<i32>,
    halves: Vec<u16>,
    /// Of each row of the tile, whether it counts.
    pub mask: [u8; TILE_ROWS],
    pub found: Found,
}

impl Default for Scratch {
    fn default() -> Self {
        let (reals, wholes, narrow, halves) = Default::default();
        Scratch { reals, wholes, narrow, halves, mask: [1; TILE_ROWS], found: Found::default() }
    }
}

impl Columns {
    /// The columns of a batch in the order of [`Features::columns`]; `first_row` is the number of
    /// its first row, for faults.
    pub fn new(features: &Features, batch: &RecordBatch, first_row: u64) -> Result<Columns> {
        let mut arrays = batch.columns().iter();
        let mut next =
            || arrays.next().ok_or_else(|| Fault::internal("the source gave fewer columns than it was asked for"));
        let mut column = |field, whole| Column::new(field, next()?, first_row, whole);
        let dense = features.dense.iter().map(|field| column(field, false)).collect::<Result<_>>()?;
        let categorical = features.categorical.iter().map(|field| column(field, true)).collect::<Result<_>>()?;
        let label = features.label.as_ref().map(|field| column(field, false)).transpose()?;
        let weight = features.weight.as_ref().map(|field| column(field, false)).transpose()?;
        let keys = arrays.cloned().collect();
        let non_finite = features.non_finite;
        Ok(Columns { rows: batch.num_rows(), dense, categorical, label, weight, keys, non_finite })
    }

    /// Packs one part of consecutive rows. Weight and mask come last: they depend on what the
    /// other parts found.
    pub fn pack(&self, role: Role, first: usize, rows: usize, mut to: Target, scratch: &mut Scratch) -> Result<()> {
        match role {
            Role::Dense => self.reals(&self.dense, first, rows, to, scratch, false),
            Role::Label => self.reals(self.label.as_slice(), first, rows, to, scratch, false),
            Role::Weight => self.reals(self.weight.as_slice(), first, rows, to, scratch, true),
            Role::Categorical => self.wholes(first, rows, to, scratch),
            Role::Mask => {
                to.put(&scratch.mask[..rows], 1, 0);
                Ok(())
            }
        }
    }

    /// Numbers; zero where the row does not count, if `masked`.
    fn reals(
        &self,
        columns: &[Column],
        first: usize,
        rows: usize,
        mut to: Target,
        scratch: &mut Scratch,
        masked: bool,
    ) -> Result<()> {
        let data_type = to.data_type;
        let same = data_type == Type::F32 && !masked;
        let mut offset = 0;
        for column in columns {
            if let Some(tile) = column.slice::<Float32Type>(first, rows).filter(|tile| same && finite(tile)) {
                to.put(tile, column.width, offset);
                offset += column.width * size_of::<f32>();
                continue;
            }
            let mut tile = std::mem::take(&mut scratch.reals);
            column.real(first, rows, &mut tile)?;
            if !finite(&tile) {
                self.not_finite(column, first, &mut tile, scratch)?;
            }
            if masked {
                let rows = tile.chunks_exact_mut(column.width).zip(&scratch.mask[..rows]);
                rows.filter(|(_, mask)| **mask == 0).for_each(|(values, _)| values.fill(0.0));
            }
            match data_type {
                Type::F16 | Type::Bf16 => {
                    scratch.halves.resize(tile.len(), 0);
                    if data_type == Type::F16 {
                        cast_slice_mut::<_, f16>(&mut scratch.halves).convert_from_f32_slice(&tile);
                    } else {
                        cast_slice_mut::<_, bf16>(&mut scratch.halves).convert_from_f32_slice(&tile);
                    }
                    to.put(&scratch.halves, column.width, offset);
                }
                _ => to.put(&tile, column.width, offset),
            }
            scratch.reals = tile;
            offset += column.width * data_type.bytes();
        }
        Ok(())
    }

    #[cold]
    fn not_finite(&self, column: &Column, first: usize, tile: &mut [f32], scratch: &mut Scratch) -> Result<()> {
        let bad = |values: &[f32]| values.iter().filter(|value| !value.is_finite()).count();
        if self.non_finite == NonFinite::Fail {
            let rows = tile.chunks_exact(column.width).enumerate().filter(|(_, values)| bad(values) > 0);
            let rows: Vec<u64> = rows.map(|(row, _)| column.row(first + row)).collect();
            return Err(Fault::new(
                codes::NOT_FINITE,
                format!("`{}` has {} values that are not finite", column.name, bad(tile)),
            )
            .column(&column.name)
            .rows(rows)
            .hint("`clip` or `impute` the column before, or set `non_finite` to `skip` or `zero`"));
        }
        for (row, values) in tile.chunks_exact_mut(column.width).enumerate() {
            let count = bad(values);
            scratch.found.non_finite += count as u64;
            if count > 0 && self.non_finite == NonFinite::Skip {
                scratch.found.skipped += u64::from(std::mem::take(&mut scratch.mask[row]));
            }
            values.iter_mut().filter(|value| !value.is_finite()).for_each(|value| *value = 0.0);
        }
        Ok(())
    }

    fn wholes(&self, first: usize, rows: usize, mut to: Target, scratch: &mut Scratch) -> Result<()> {
        let data_type = to.data_type;
        let mut offset = 0;
        for column in &self.categorical {
            if let (Type::I32, Some(tile)) = (data_type, column.slice::<Int32Type>(first, rows)) {
                to.put(tile, column.width, offset);
                offset += column.width * size_of::<i32>();
                continue;
            }
            column.whole(first, rows, &mut scratch.wholes)?;
            if data_type == Type::I64 {
                to.put(&scratch.wholes, column.width, offset);
            } else {
                scratch.narrow.clear();
                scratch.narrow.extend(scratch.wholes.iter().map(|&value| value as i32));
                let fits = |(wide, narrow): (&i64, &i32)| *wide == i64::from(*narrow);
                if !scratch.wholes.iter().zip(&scratch.narrow).fold(true, |all, pair| all & fits(pair)) {
                    return Err(too_large(column, first, &scratch.wholes));
                }
                to.put(&scratch.narrow, column.width, offset);
            }
            offset += column.width * data_type.bytes();
        }
        Ok(())
    }
}

/// Whether all values are; without a branch per value.
fn finite(tile: &[f32]) -> bool {
    tile.iter().fold(true, |all, value| all & value.is_finite())
}

#[cold]
fn too_large(column: &Column, first: usize, tile: &[i64]) -> Fault {
    let row = tile.iter().position(|&value| i32::try_from(value).is_err()).unwrap_or(0);
    Fault::new(codes::OVERFLOW, format!("{} of `{}` is no 32-bit id", tile[row], column.name))
        .column(&column.name)
        .rows([column.row(first + row / column.width)])
        .hint("set `categorical_type` to `i64`")
}
