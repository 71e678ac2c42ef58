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
    /// Which rows are there.
    rows: Option<NullBuffer>,
    /// Which values are there.
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

/// The values of a column as numbers, `width` for each row. Missing ones become what the field says.
pub fn real_values(field: &FeatureField, array: &ArrayRef) -> Result<Vec<f32>> {
    FeatureValues::new(field, array, 0, false)?.reals()
}

/// The values of a column as categorical ids, `width` for each row. Missing ones become what the field says; those
/// that do not fit 32 bits are a fault.
pub fn id_values(field: &FeatureField, array: &ArrayRef) -> Result<Vec<i32>> {
    let column = FeatureValues::new(field, array, 0, true)?;
    let narrow = |(place, id): (usize, &i64)| {
        i32::try_from(*id).map_err(|_| {
            Fault::new(
                codes::OVERFLOW,
                format!("{id} of `{}` is no 32-bit id", column.name),
            )
            .column(&column.name)
            .rows([column.row(place / column.width)])
            .hint("make ids of it with `vocabulary` or `hash_bucket` before")
        })
    };
    column.wholes()?.iter().enumerate().map(narrow).collect()
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
        let mut all = numbers!(self.values, values => values.iter().map(|&value| value as f32).collect::<Vec<_>>());
        self.fill(&mut all, |missing| missing as f32)?;
        Ok(all)
    }

    /// All values as `i64`; a fault where one does not fit.
    #[allow(clippy::unnecessary_cast)] // As above.
    pub fn wholes(&self) -> Result<Vec<i64>> {
        self.fit_signed()?;
        let mut all = numbers!(self.values, values => values.iter().map(|&value| value as i64).collect::<Vec<_>>());
        self.fill(&mut all, |missing| missing as i64)?;
        Ok(all)
    }

    /// Refuses unsigned values beyond the signed ones.
    fn fit_signed(&self) -> Result<()> {
        let Some(values) = self.values.as_primitive_opt::<UInt64Type>() else {
            return Ok(());
        };
        if values.values().iter().fold(0, |all, value| all | value) <= i64::MAX as u64 {
            return Ok(());
        }
        let is_there = |place: usize| {
            let row = self
                .rows
                .as_ref()
                .is_none_or(|rows| rows.is_valid(place / self.width));
            row && values.is_valid(place)
        };
        let large = (0..values.len())
            .find(|&place| values.value(place) > i64::MAX as u64 && is_there(place));
        large.map_or(Ok(()), |place| {
            Err(Fault::new(
                codes::OVERFLOW,
                format!(
                    "{} of `{}` is no 64-bit signed id",
                    values.value(place),
                    self.name
                ),
            )
            .column(&self.name)
            .rows([self.row(place / self.width)])
            .hint("make ids of it with `vocabulary` or `hash_bucket` before"))
        })
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
            let rows = nulls.inner().iter().enumerate().filter(|(_, valid)| !valid);
            let rows: Vec<u64> = rows
                .map(|(i, _)| self.row(i * width / self.width))
                .collect();
            return Err(Fault::new(
                codes::BAD_ROW,
                format!("{} values of `{}` are missing", rows.len(), self.name),
            )
            .column(&self.name)
            .rows(rows)
            .hint(
                "`impute` the column, filter such rows, or give the field a value for `missing`",
            ));
        };
        let missing = convert(missing);
        for (values, valid) in values.chunks_exact_mut(width).zip(nulls.inner()) {
            values
                .iter_mut()
                .for_each(|value| *value = if valid { *value } else { missing });
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
    let wrong = |found: String| {
        Err(Fault::new(
            codes::SCHEMA_DRIFT,
            format!("rows of {found}, and the batch has room for {width}"),
        )
        .hint(
            "a feature's width is fixed by the layout of the batch: write the data with one width",
        ))
    };
    match array.data_type() {
        DataType::FixedSizeList(_, found) if *found as usize == width => {
            let list = array.as_fixed_size_list();
            Ok(list
                .values()
                .slice(list.offset() * width, list.len() * width))
        }
        DataType::FixedSizeList(_, found) => wrong(format!("{found} values")),
        DataType::List(field) => {
            let list = DataType::FixedSizeList(field.clone(), width as i32);
            let lengths = array.as_list::<i32>().offsets().lengths();
            // Rows that are missing have no values; the cast makes room for them.
            match lengths
                .enumerate()
                .find(|(row, length)| array.is_valid(*row) && *length != width)
            {
                Some((_, found)) => wrong(format!("{found} values")),
                None => flatten_lists(&cast(array, &list)?, width),
            }
        }
        DataType::LargeList(field) => {
            flatten_lists(&cast(array, &DataType::List(field.clone()))?, width)
        }
        _ if width == 1 => Ok(array.clone()),
        _ => wrong("one value".to_owned()),
    }
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
            let what = if whole { "an id" } else { "a number" };
            let hint = if whole {
                "make ids of it with `vocabulary` or `hash_bucket` before"
            } else {
                "make numbers of it before, or list it under `categorical`"
            };
            return Err(Fault::new(
                codes::COLUMN_TYPE,
                format!("{} is not {what}", type_words(data_type)),
            )
            .hint(hint));
        }
    };
    Ok(cast(&values, &to)?)
}
