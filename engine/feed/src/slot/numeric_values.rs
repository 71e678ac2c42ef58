//! Columns as numbers.

use arrow::array::{Array, ArrayRef, AsArray};
use arrow::buffer::{NullBuffer, ScalarBuffer};
use arrow::compute::cast;
use arrow::datatypes::*;
use forebay_model::{Fault, Result, codes, type_words};

use super::features::FeatureField;

/// A column as a flat array of numbers, `width` for each row.
#[derive(Debug, Clone)]
pub(super) struct FeatureValues {
    pub name: String,
    pub width: usize,
    missing: Option<f64>,
    /// The number of the first row, for faults.
    first_row: u64,
    values: ArrayRef,
    /// Validity of rows, for columns of lists.
    rows: Option<NullBuffer>,
    /// Validity of values.
    nulls: Option<NullBuffer>,
}

/// Runs code with the values of a column as a slice of their own type.
macro_rules! numbers {
    ($values:expr, $slice:ident => $code:expr) => {
        match $values.data_type() {
            DataType::Float32 => numbers!(@ $values, Float32Type, $slice, $code),
            DataType::Float64 => numbers!(@ $values, Float64Type, $slice, $code),
            DataType::Int8 => numbers!(@ $values, Int8Type, $slice, $code),
            DataType::Int16 => numbers!(@ $values, Int16Type, $slice, $code),
            DataType::Int32 => numbers!(@ $values, Int32Type, $slice, $code),
            DataType::Int64 => numbers!(@ $values, Int64Type, $slice, $code),
            DataType::UInt8 => numbers!(@ $values, UInt8Type, $slice, $code),
            DataType::UInt16 => numbers!(@ $values, UInt16Type, $slice, $code),
            DataType::UInt32 => numbers!(@ $values, UInt32Type, $slice, $code),
            _ => numbers!(@ $values, UInt64Type, $slice, $code),
        }
    };
    (@ $values:expr, $type:ty, $slice:ident, $code:expr) => {{
        let $slice = $values.as_primitive::<$type>().values();
        $code
    }};
}

/// The values of a column as numbers, `width` for each row. The field replaces missing ones.
pub fn real_values(field: &FeatureField, array: &ArrayRef) -> Result<Vec<f32>> {
    FeatureValues::new(field, array, 0, false)?.reals()
}

/// Number of missing values of a column that a field replaces.
pub fn filled_values(field: &FeatureField, array: &ArrayRef) -> Result<u64> {
    if field.missing.is_none() || array.logical_null_count() == 0 && !is_list(array.data_type()) {
        return Ok(0);
    }
    // Ids are numbers, too: their type does not matter here.
    Ok(FeatureValues::new(field, array, 0, false)?.filled_count())
}

/// The values of a column as categorical ids, `width` for each row. The field replaces missing ones; those
/// that do not fit 32 bits are a fault.
pub fn id_values(field: &FeatureField, array: &ArrayRef) -> Result<Vec<i32>> {
    let column = FeatureValues::new(field, array, 0, true)?;
    let wide = column.wholes()?;
    let mut narrow = Vec::with_capacity(wide.len());
    for (index, id) in wide.iter().enumerate() {
        let Ok(id) = i32::try_from(*id) else {
            let message = format!("{id} of `{}` is no 32-bit id", column.name);
            return Err(column.id_overflow(message, index));
        };
        narrow.push(id);
    }
    Ok(narrow)
}

impl FeatureValues {
    /// A fault where the column is of a type or width that the field does not have.
    pub fn new(
        field: &FeatureField,
        array: &ArrayRef,
        first_row: u64,
        whole: bool,
    ) -> Result<FeatureValues> {
        let name = field.column.clone();
        let width = field.width as usize;
        let rows = if is_list(array.data_type()) {
            array.logical_nulls()
        } else {
            None
        };
        let values = flatten_lists(array, width).map_err(|fault| fault.column(&name))?;
        let values = to_numeric(values, whole).map_err(|fault| fault.column(&name))?;
        let nulls = values
            .logical_nulls()
            .filter(|nulls| nulls.null_count() > 0);
        let rows = rows.filter(|rows| rows.null_count() > 0);
        Ok(FeatureValues {
            name,
            width,
            missing: field.missing,
            first_row,
            values,
            rows,
            nulls,
        })
    }

    /// All values as `f32`.
    #[allow(clippy::unnecessary_cast)] // One of the ten types is the target itself.
    pub fn reals(&self) -> Result<Vec<f32>> {
        let mut reals: Vec<f32> = numbers!(self.values, values => {
            values.iter().map(|&value| value as f32).collect()
        });
        self.fill(&mut reals, |missing| missing as f32)?;
        Ok(reals)
    }

    /// All values as `i64`; a fault where one does not fit.
    #[allow(clippy::unnecessary_cast)] // As above.
    pub fn wholes(&self) -> Result<Vec<i64>> {
        self.fit_signed()?;
        let mut wholes: Vec<i64> = numbers!(self.values, values => {
            values.iter().map(|&value| value as i64).collect()
        });
        self.fill(&mut wholes, |missing| missing as i64)?;
        Ok(wholes)
    }

    /// Refuses unsigned values beyond the signed ones.
    fn fit_signed(&self) -> Result<()> {
        let Some(values) = self.values.as_primitive_opt::<UInt64Type>() else {
            return Ok(());
        };
        // One pass without branches: almost no column has such values.
        let mut used_bits = 0;
        for value in values.values() {
            used_bits |= value;
        }
        if used_bits <= i64::MAX as u64 {
            return Ok(());
        }
        for (index, value) in values.values().iter().enumerate() {
            if *value <= i64::MAX as u64 || values.is_null(index) {
                continue;
            }
            // Values under a row that is missing do not count.
            let row = index / self.width;
            if self.rows.as_ref().is_none_or(|rows| rows.is_valid(row)) {
                let message = format!("{value} of `{}` is no 64-bit signed id", self.name);
                return Err(self.id_overflow(message, index));
            }
        }
        Ok(())
    }

    /// The fault for a value that is too large for an id.
    fn id_overflow(&self, message: String, index: usize) -> Fault {
        Fault::new(codes::OVERFLOW, message)
            .column(&self.name)
            .rows([self.row(index / self.width)])
            .hint("make ids of it with `vocabulary` or `hash_bucket` before")
    }

    /// Number of missing values that are filled.
    pub fn filled_count(&self) -> u64 {
        if self.missing.is_none() {
            return 0;
        }
        let missing = match (&self.nulls, &self.rows) {
            (None, None) => 0,
            (Some(nulls), None) => nulls.null_count(),
            (None, Some(rows)) => rows.null_count() * self.width,
            // A value can be missing by itself and with its row.
            (Some(nulls), Some(rows)) => {
                let is_missing =
                    |index: &usize| nulls.is_null(*index) || rows.is_null(index / self.width);
                (0..nulls.len()).filter(is_missing).count()
            }
        };
        missing as u64
    }

    /// Nulls of the values, those of missing rows among them.
    pub fn value_nulls(&self) -> Option<NullBuffer> {
        let Some(rows) = &self.rows else {
            return self.nulls.clone();
        };
        let of_rows = rows.expand(self.width);
        NullBuffer::union(self.nulls.as_ref(), Some(&of_rows))
    }

    /// All values where they can be used as they lie: of this type, none missing.
    pub fn same<T: ArrowPrimitiveType>(&self) -> Option<&ScalarBuffer<T::Native>> {
        if self.nulls.is_some() || self.rows.is_some() {
            return None;
        }
        Some(self.values.as_primitive_opt::<T>()?.values())
    }

    /// The number of a row, for faults.
    pub fn row(&self, row: usize) -> u64 {
        self.first_row + row as u64
    }

    /// Replaces what is missing.
    fn fill<T: Copy>(&self, values: &mut [T], convert: impl Fn(f64) -> T) -> Result<()> {
        if let Some(nulls) = &self.nulls {
            self.replace(nulls, values, 1, &convert)?;
        }
        if let Some(rows) = &self.rows {
            self.replace(rows, values, self.width, &convert)?;
        }
        Ok(())
    }

    fn replace<T: Copy>(
        &self,
        nulls: &NullBuffer,
        values: &mut [T],
        width: usize,
        convert: &impl Fn(f64) -> T,
    ) -> Result<()> {
        let Some(missing) = self.missing else {
            let mut rows = Vec::new();
            for (index, valid) in nulls.inner().iter().enumerate() {
                if !valid {
                    rows.push(self.row(index * width / self.width));
                }
            }
            let message = format!("{} values of `{}` are missing", rows.len(), self.name);
            let fault = Fault::new(codes::BAD_ROW, message);
            return Err(fault.column(&self.name).rows(rows).hint(
                "`impute` the column, filter such rows, or give the field a value for `missing`",
            ));
        };
        let missing = convert(missing);
        for (values, valid) in values.chunks_exact_mut(width).zip(nulls.inner()) {
            // A selection instead of a branch: nulls come in no order.
            for value in values {
                *value = if valid { *value } else { missing };
            }
        }
        Ok(())
    }
}

fn is_list(data_type: &DataType) -> bool {
    matches!(
        data_type,
        DataType::FixedSizeList(..) | DataType::List(_) | DataType::LargeList(_)
    )
}

/// The values of all rows one after another, `width` for each.
fn flatten_lists(array: &ArrayRef, width: usize) -> Result<ArrayRef> {
    match array.data_type() {
        DataType::FixedSizeList(_, length) if *length as usize == width => {
            let list = array.as_fixed_size_list();
            let start = list.offset() * width;
            Ok(list.values().slice(start, list.len() * width))
        }
        DataType::FixedSizeList(_, length) => Err(wrong_width(&format!("{length} values"), width)),
        DataType::List(field) => {
            let lengths = array.as_list::<i32>().offsets().lengths();
            for (row, length) in lengths.enumerate() {
                // Rows that are missing have no values; the cast makes room for them.
                if array.is_valid(row) && length != width {
                    return Err(wrong_width(&format!("{length} values"), width));
                }
            }
            let list = DataType::FixedSizeList(field.clone(), width as i32);
            flatten_lists(&cast(array, &list)?, width)
        }
        DataType::LargeList(field) => {
            flatten_lists(&cast(array, &DataType::List(field.clone()))?, width)
        }
        _ if width == 1 => Ok(array.clone()),
        _ => Err(wrong_width("one value", width)),
    }
}

fn wrong_width(row_values: &str, width: usize) -> Fault {
    let message = format!("rows of {row_values}, and the batch has room for {width}");
    Fault::new(codes::SCHEMA_DRIFT, message).hint(
        "a feature's width is fixed by the layout of the batch: give it the `width` of its lists, \
         or write the data with one width",
    )
}

/// Numbers of ten types.
fn to_numeric(values: ArrayRef, whole: bool) -> Result<ArrayRef> {
    let data_type = values.data_type();
    let to = match data_type {
        t if t.is_integer() => return Ok(values),
        DataType::Float32 | DataType::Float64 if !whole => return Ok(values),
        DataType::Dictionary(_, inner) => {
            let inner = cast(&values, inner)?;
            return to_numeric(inner, whole);
        }
        DataType::Boolean => DataType::Int8,
        DataType::Date32 => DataType::Int32,
        DataType::Float16 if !whole => DataType::Float32,
        DataType::Decimal128(..) | DataType::Decimal256(..) if !whole => DataType::Float64,
        DataType::Null => {
            if whole {
                DataType::Int64
            } else {
                DataType::Float32
            }
        }
        _ => {
            let mut kind = "a number";
            let mut hint = "make numbers of it before, or list it under `categorical`";
            if whole {
                kind = "an id";
                hint = "make ids of it with `vocabulary` or `hash_bucket` before";
            }
            let message = format!("{} is not {kind}", type_words(data_type));
            return Err(Fault::new(codes::COLUMN_TYPE, message).hint(hint));
        }
    };
    Ok(cast(&values, &to)?)
}
