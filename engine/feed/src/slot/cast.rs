//! From the columns of a source to values of a batch's types: cast, filled and checked.

use arrow::array::{ArrayRef, RecordBatch};
use arrow::buffer::Buffer;
use arrow::datatypes::{Float32Type, Int32Type, Int64Type};
use bytemuck::cast_slice_mut;
use forebay_model::{Fault, Result, codes};
use half::slice::HalfFloatSliceExt;
use half::{bf16, f16};

use super::features::{BatchFeatures, FeatureField, NonFinite};
use super::layout::{BatchLayout, PartRole, ValueType};
use super::numeric_values::FeatureValues;

/// What was found while packing.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct NonFiniteCounts {
    /// Values that are not finite.
    pub non_finite: u64,
    /// Rows that got mask 0 for it.
    pub skipped: u64,
}

impl std::ops::AddAssign for NonFiniteCounts {
    fn add_assign(&mut self, other: NonFiniteCounts) {
        self.non_finite += other.non_finite;
        self.skipped += other.skipped;
    }
}

/// The values of one column, row after row, as a batch holds them.
#[derive(Debug, Clone)]
pub(crate) struct PackedValues {
    pub bytes: Buffer,
    /// Values of a row.
    pub width: usize,
}

/// The columns of one batch of the source, ready to be moved.
#[derive(Debug, Clone)]
pub(crate) struct PackedColumns {
    pub rows: usize,
    /// The columns of each part of the layout; none for a mask that is 1 in all rows.
    pub parts: Vec<Vec<PackedValues>>,
    /// What comes after the features: keys of series, their times, which rows are delivered.
    pub others: Vec<ArrayRef>,
    pub found: NonFiniteCounts,
}

/// Columns on their way.
struct ColumnCaster<'a> {
    non_finite: NonFinite,
    rows: usize,
    first_row: u64,
    /// Of each row, whether it counts; empty while all do.
    mask: Vec<u8>,
    found: NonFiniteCounts,
    arrays: std::slice::Iter<'a, ArrayRef>,
}

impl PackedColumns {
    /// The columns of a batch in the order of [`BatchFeatures::columns`]; `first_row` is the number of
    /// its first row, for faults.
    pub fn new(
        features: &BatchFeatures,
        layout: &BatchLayout,
        batch: &RecordBatch,
        first_row: u64,
    ) -> Result<PackedColumns> {
        let mut packing = ColumnCaster {
            non_finite: features.non_finite,
            rows: batch.num_rows(),
            first_row,
            mask: Vec::new(),
            found: NonFiniteCounts::default(),
            arrays: batch.columns().iter(),
        };
        let mut parts = Vec::with_capacity(layout.parts.len());
        // In the order of the columns, and the mask last: it depends on what was found in the others.
        for part in &layout.parts {
            let fields = match part.role {
                PartRole::Dense => features.dense.as_slice(),
                PartRole::Categorical => features.categorical.as_slice(),
                PartRole::Label => features.label.as_slice(),
                PartRole::Weight => features.weight.as_slice(),
                PartRole::Mask => {
                    parts.push(if part.record_offset.is_some() {
                        vec![packing.mask()]
                    } else {
                        Vec::new()
                    });
                    continue;
                }
            };
            let values = fields.iter().map(|field| match part.role {
                PartRole::Categorical => packing.cast_categorical(field, part.data_type),
                role => packing.cast_dense(field, part.data_type, role == PartRole::Weight),
            });
            parts.push(values.collect::<Result<_>>()?);
        }
        Ok(PackedColumns {
            rows: packing.rows,
            parts,
            others: packing.arrays.cloned().collect(),
            found: packing.found,
        })
    }
}

impl ColumnCaster<'_> {
    fn next_column(&mut self, field: &FeatureField, whole: bool) -> Result<FeatureValues> {
        let missing = || Fault::internal("the source gave fewer columns than it was asked for");
        FeatureValues::new(
            field,
            self.arrays.next().ok_or_else(missing)?,
            self.first_row,
            whole,
        )
    }

    /// Numbers; zero where the row does not count, if `masked`.
    fn cast_dense(
        &mut self,
        field: &FeatureField,
        data_type: ValueType,
        masked: bool,
    ) -> Result<PackedValues> {
        let column = self.next_column(field, false)?;
        let width = column.width;
        let masked = masked && !self.mask.is_empty();
        if let Some(values) = column
            .same::<Float32Type>()
            .filter(|values| all_finite(values) && !masked)
            && data_type == ValueType::F32
        {
            return Ok(PackedValues {
                bytes: values.inner().clone(),
                width,
            });
        }
        let mut values = column.reals()?;
        if !all_finite(&values) {
            self.handle_non_finite(&column, &mut values)?;
        }
        if masked {
            let rows = values.chunks_exact_mut(width).zip(&self.mask);
            rows.filter(|(_, mask)| **mask == 0)
                .for_each(|(values, _)| values.fill(0.0));
        }
        let bytes = match data_type {
            ValueType::F16 | ValueType::Bf16 => {
                let mut halves = vec![0_u16; values.len()];
                if data_type == ValueType::F16 {
                    cast_slice_mut::<_, f16>(&mut halves).convert_from_f32_slice(&values);
                } else {
                    cast_slice_mut::<_, bf16>(&mut halves).convert_from_f32_slice(&values);
                }
                Buffer::from_vec(halves)
            }
            _ => Buffer::from_vec(values),
        };
        Ok(PackedValues { bytes, width })
    }

    #[cold]
    fn handle_non_finite(&mut self, column: &FeatureValues, values: &mut [f32]) -> Result<()> {
        let bad = |values: &[f32]| values.iter().filter(|value| !value.is_finite()).count();
        if self.non_finite == NonFinite::Fail {
            let rows = values
                .chunks_exact(column.width)
                .enumerate()
                .filter(|(_, values)| bad(values) > 0);
            let rows: Vec<u64> = rows.map(|(row, _)| column.row(row)).collect();
            return Err(Fault::new(
                codes::NOT_FINITE,
                format!(
                    "`{}` has {} values that are not finite",
                    column.name,
                    bad(values)
                ),
            )
            .column(&column.name)
            .rows(rows)
            .hint(
                "`clip` or `impute` the column before, or set `non_finite` to `skip` or `zero`",
            ));
        }
        if self.non_finite == NonFinite::Skip {
            self.mask.resize(self.rows, 1);
        }
        for (row, values) in values.chunks_exact_mut(column.width).enumerate() {
            let count = bad(values);
            self.found.non_finite += count as u64;
            if count > 0
                && let Some(mask) = self.mask.get_mut(row)
            {
                self.found.skipped += u64::from(std::mem::take(mask));
            }
            values
                .iter_mut()
                .filter(|value| !value.is_finite())
                .for_each(|value| *value = 0.0);
        }
        Ok(())
    }

    fn cast_categorical(
        &mut self,
        field: &FeatureField,
        data_type: ValueType,
    ) -> Result<PackedValues> {
        let column = self.next_column(field, true)?;
        let width = column.width;
        let bytes = if data_type == ValueType::I32 {
            match column.same::<Int32Type>() {
                Some(values) => values.inner().clone(),
                None => {
                    let wide = column.wholes()?;
                    let narrow: Vec<i32> = wide.iter().map(|&value| value as i32).collect();
                    let fits = |(wide, narrow): (&i64, &i32)| *wide == i64::from(*narrow);
                    if !wide
                        .iter()
                        .zip(&narrow)
                        .fold(true, |all, pair| all & fits(pair))
                    {
                        return Err(too_large(&column, &wide));
                    }
                    Buffer::from_vec(narrow)
                }
            }
        } else {
            match column.same::<Int64Type>() {
                Some(values) => values.inner().clone(),
                None => Buffer::from_vec(column.wholes()?),
            }
        };
        Ok(PackedValues { bytes, width })
    }

    fn mask(&mut self) -> PackedValues {
        self.mask.resize(self.rows, 1);
        PackedValues {
            bytes: Buffer::from_vec(std::mem::take(&mut self.mask)),
            width: 1,
        }
    }
}

/// Whether all values are; without a branch per value.
fn all_finite(values: &[f32]) -> bool {
    values
        .iter()
        .fold(true, |all, value| all & value.is_finite())
}

#[cold]
fn too_large(column: &FeatureValues, values: &[i64]) -> Fault {
    let place = values
        .iter()
        .position(|&value| i32::try_from(value).is_err())
        .unwrap_or(0);
    Fault::new(
        codes::OVERFLOW,
        format!("{} of `{}` is no 32-bit id", values[place], column.name),
    )
    .column(&column.name)
    .rows([column.row(place / column.width)])
    .hint("set `categorical_type` to `i64`")
}
