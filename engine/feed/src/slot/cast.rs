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

/// Counts of values and rows that packing changed or met.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ValueCounts {
    /// Values that are not finite.
    pub non_finite: u64,
    /// Rows that got mask 0 for it.
    pub skipped: u64,
    /// Missing values that were filled.
    pub filled: u64,
    /// Rows of sequences with the keys and the time of a row before them.
    pub duplicates: u64,
}

impl std::ops::AddAssign for ValueCounts {
    fn add_assign(&mut self, other: ValueCounts) {
        self.non_finite += other.non_finite;
        self.skipped += other.skipped;
        self.filled += other.filled;
        self.duplicates += other.duplicates;
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
    /// Columns behind the features: keys of series, their times, flags of delivered rows.
    pub others: Vec<ArrayRef>,
    pub found: ValueCounts,
    /// Missing values that were filled, by feature.
    pub filled: Vec<u64>,
}

/// Casts the columns of a batch one after another.
struct ColumnCaster<'a> {
    non_finite: NonFinite,
    rows: usize,
    first_row: u64,
    /// 1 for each row that counts, and 0 for others; empty while all do.
    mask: Vec<u8>,
    found: ValueCounts,
    filled: Vec<u64>,
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
        let mut caster = ColumnCaster {
            non_finite: features.non_finite,
            rows: batch.num_rows(),
            first_row,
            mask: Vec::new(),
            found: ValueCounts::default(),
            filled: Vec::new(),
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
                    let mut values = Vec::new();
                    if part.record_offset.is_some() {
                        values.push(caster.mask());
                    }
                    parts.push(values);
                    continue;
                }
            };
            let mut values = Vec::with_capacity(fields.len());
            for field in fields {
                values.push(match part.role {
                    PartRole::Categorical => caster.cast_categorical(field, part.data_type)?,
                    // A row that does not count has the weight 0.
                    PartRole::Weight => caster.cast_dense(field, part.data_type, true)?,
                    _ => caster.cast_dense(field, part.data_type, false)?,
                });
            }
            parts.push(values);
        }
        let mut counts = caster.found;
        counts.filled = caster.filled.iter().sum();
        Ok(PackedColumns {
            rows: caster.rows,
            parts,
            others: caster.arrays.cloned().collect(),
            found: counts,
            filled: caster.filled,
        })
    }
}

impl ColumnCaster<'_> {
    fn next_column(&mut self, field: &FeatureField, whole: bool) -> Result<FeatureValues> {
        let Some(array) = self.arrays.next() else {
            return Err(Fault::internal(
                "the source gave fewer columns than it was asked for",
            ));
        };
        let values = FeatureValues::new(field, array, self.first_row, whole)?;
        self.filled.push(values.filled_count());
        Ok(values)
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
        // Columns that are as the batch needs them are not copied.
        if data_type == ValueType::F32
            && !masked
            && let Some(values) = column.same::<Float32Type>()
            && all_finite(values)
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
            for (values, mask) in values.chunks_exact_mut(width).zip(&self.mask) {
                if *mask == 0 {
                    values.fill(0.0);
                }
            }
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
        if self.non_finite == NonFinite::Fail {
            return Err(not_finite(column, values));
        }
        if self.non_finite == NonFinite::Skip {
            self.mask.resize(self.rows, 1);
        }
        for (row, values) in values.chunks_exact_mut(column.width).enumerate() {
            let count = non_finite_count(values);
            self.found.non_finite += count as u64;
            // A row is skipped once, however many of its values are not finite.
            if count > 0
                && let Some(mask) = self.mask.get_mut(row)
            {
                self.found.skipped += u64::from(std::mem::take(mask));
            }
            for value in values {
                if !value.is_finite() {
                    *value = 0.0;
                }
            }
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
                    // Without a branch per value, so that the loop vectorizes.
                    let mut all_fit = true;
                    for (wide, narrow) in wide.iter().zip(&narrow) {
                        all_fit &= *wide == i64::from(*narrow);
                    }
                    if !all_fit {
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

/// True if all values are finite; without a branch per value.
fn all_finite(values: &[f32]) -> bool {
    let mut all_finite = true;
    for value in values {
        all_finite &= value.is_finite();
    }
    all_finite
}

fn non_finite_count(values: &[f32]) -> usize {
    values.iter().filter(|value| !value.is_finite()).count()
}

#[cold]
fn not_finite(column: &FeatureValues, values: &[f32]) -> Fault {
    let mut rows = Vec::new();
    for (row, values) in values.chunks_exact(column.width).enumerate() {
        if non_finite_count(values) > 0 {
            rows.push(column.row(row));
        }
    }
    let count = non_finite_count(values);
    let message = format!("`{}` has {count} values that are not finite", column.name);
    Fault::new(codes::NOT_FINITE, message)
        .column(&column.name)
        .rows(rows)
        .hint("`clip` or `impute` the column before, or set `non_finite` to `skip` or `zero`")
}

#[cold]
fn too_large(column: &FeatureValues, values: &[i64]) -> Fault {
    let index = values
        .iter()
        .position(|&value| i32::try_from(value).is_err())
        .unwrap_or(0);
    Fault::new(
        codes::OVERFLOW,
        format!("{} of `{}` is no 32-bit id", values[index], column.name),
    )
    .column(&column.name)
    .rows([column.row(index / column.width)])
    .hint("set `categorical_type` to `i64`")
}
