//! Float rules used everywhere: key equality and interpolation.

use std::sync::Arc;

use arrow::array::{
    Array, ArrayData, ArrayRef, ArrowPrimitiveType, AsArray, PrimitiveArray, make_array,
};
use arrow::datatypes::{DataType, Float16Type, Float32Type, Float64Type};

use crate::Result;

/// Canonicalizes floats for comparison as keys: -0.0 becomes 0.0, and every NaN becomes the same NaN. Columns
/// without floats, and columns that are canonical already, are returned unchanged.
pub fn canonical_keys(column: &ArrayRef) -> Result<ArrayRef> {
    if !contains_floats(column.data_type()) {
        return Ok(column.clone());
    }
    Ok(match column.data_type() {
        DataType::Float64 => canonicalize_values::<Float64Type>(column, f64::to_bits, |value| {
            if value.is_nan() {
                f64::NAN
            } else {
                value + 0.0
            }
        }),
        DataType::Float32 => canonicalize_values::<Float32Type>(
            column,
            |value| u64::from(value.to_bits()),
            |value| {
                if value.is_nan() {
                    f32::NAN
                } else {
                    value + 0.0
                }
            },
        ),
        DataType::Float16 => {
            let zero = <Float16Type as ArrowPrimitiveType>::Native::default();
            canonicalize_values::<Float16Type>(
                column,
                |value| u64::from(value.to_bits()),
                |value| {
                    if value.is_nan() {
                        <Float16Type as ArrowPrimitiveType>::Native::NAN
                    } else {
                        value + zero
                    }
                },
            )
        }
        _ => {
            // Dictionaries, lists and structs hold their floats in child arrays.
            let data = column.to_data();
            let mut children: Vec<ArrayData> = Vec::new();
            for child in data.child_data() {
                let canonical = canonical_keys(&make_array(child.clone()))?;
                children.push(canonical.to_data());
            }
            make_array(data.into_builder().child_data(children).build()?)
        }
    })
}

/// True if the type is a float type or contains one.
pub fn contains_floats(data_type: &DataType) -> bool {
    match data_type {
        DataType::Dictionary(_, value) => contains_floats(value),
        DataType::List(item)
        | DataType::LargeList(item)
        | DataType::FixedSizeList(item, _)
        | DataType::Map(item, _) => contains_floats(item.data_type()),
        DataType::Struct(fields) => fields
            .iter()
            .any(|field| contains_floats(field.data_type())),
        other => other.is_floating(),
    }
}

fn canonicalize_values<T: ArrowPrimitiveType>(
    column: &ArrayRef,
    bits: impl Fn(T::Native) -> u64,
    canonical: impl Fn(T::Native) -> T::Native,
) -> ArrayRef {
    let values: &PrimitiveArray<T> = column.as_primitive();
    // Most columns are canonical already: a check is far cheaper than a copy.
    if values
        .values()
        .iter()
        .all(|&value| bits(value) == bits(canonical(value)))
    {
        return column.clone();
    }
    Arc::new(values.unary::<_, T>(canonical))
}

/// The middle of some values, or the mean of the two in the middle; NaN of no values. Sorts the values.
pub fn median(values: &mut [f64]) -> f64 {
    values.sort_by(f64::total_cmp);
    let half = values.len() / 2;
    let Some(upper) = values.get(half).copied() else {
        return f64::NAN;
    };
    if values.len() % 2 == 1 {
        return upper;
    }
    (values[half - 1] + upper) / 2.0
}

/// Linear interpolation between `lower` and `upper` at `share` in [0, 1). Exact at the lower end. Finite if both
/// ends are, even if their difference overflows. Between a number and an infinity lies that infinity, and
/// between both infinities NaN.
pub fn lerp(lower: f64, upper: f64, share: f64) -> f64 {
    let distance = upper - lower;
    if share == 0.0 || lower == upper {
        lower
    } else if lower.is_infinite() || upper.is_infinite() {
        lower + upper
    } else if distance.is_infinite() {
        lower * (1.0 - share) + upper * share
    } else {
        lower + share * distance
    }
}

/// `(x - from) / (upper - lower)`, computed on halved operands if a difference of finite numbers overflows.
#[inline]
pub fn scaled_distance(x: f64, from: f64, lower: f64, upper: f64) -> f64 {
    let part = x - from;
    let whole = upper - lower;
    if part.is_infinite() || whole.is_infinite() {
        return halved_distance(x, from, lower, upper);
    }
    part / whole
}

#[cold]
fn halved_distance(x: f64, from: f64, lower: f64, upper: f64) -> f64 {
    if [x, from, lower, upper].into_iter().all(f64::is_finite) {
        return (x / 2.0 - from / 2.0) / (upper / 2.0 - lower / 2.0);
    }
    (x - from) / (upper - lower)
}

#[cfg(test)]
mod tests {
    use super::*;
    use arrow::array::{
        DictionaryArray, Float16Array, Float32Array, Float64Array, Int32Array, StructArray,
    };
    use arrow::datatypes::{Field, Int32Type};

    const OTHER_NAN: f64 = f64::from_bits(0xfff8_0000_0000_0001);

    fn bits(column: &ArrayRef) -> Vec<Option<u64>> {
        column
            .as_primitive::<Float64Type>()
            .iter()
            .map(|value| value.map(f64::to_bits))
            .collect()
    }

    #[test]
    fn canonical_keys_unify_zeros_and_nans() {
        let column: ArrayRef = Arc::new(Float64Array::from(vec![
            Some(-0.0),
            Some(0.0),
            None,
            Some(OTHER_NAN),
            Some(-1.5),
        ]));
        let expected = [
            Some(0),
            Some(0),
            None,
            Some(f64::NAN.to_bits()),
            Some((-1.5f64).to_bits()),
        ];
        assert_eq!(bits(&canonical_keys(&column).unwrap()), expected);
        let narrow: ArrayRef = Arc::new(Float32Array::from(vec![-0.0]));
        assert_eq!(
            canonical_keys(&narrow)
                .unwrap()
                .as_primitive::<Float32Type>()
                .value(0)
                .to_bits(),
            0
        );
        let half: ArrayRef = Arc::new(Float16Array::from(vec![
            -<Float16Type as ArrowPrimitiveType>::Native::default(),
        ]));
        assert_eq!(
            canonical_keys(&half)
                .unwrap()
                .as_primitive::<Float16Type>()
                .value(0)
                .to_bits(),
            0
        );
    }

    #[test]
    fn floats_inside_other_types_are_found() {
        let values: ArrayRef = Arc::new(Float64Array::from(vec![-0.0, 2.0]));
        let keys = Int32Array::from(vec![1, 0, 0]);
        let dictionary: ArrayRef =
            Arc::new(DictionaryArray::<Int32Type>::new(keys, values.clone()));
        let found = canonical_keys(&dictionary).unwrap();
        assert_eq!(
            bits(found.as_any_dictionary().values()),
            [Some(0), Some(2f64.to_bits())]
        );
        let field = Arc::new(Field::new("x", DataType::Float64, true));
        let record: ArrayRef = Arc::new(StructArray::from(vec![(field, values)]));
        assert_eq!(
            bits(canonical_keys(&record).unwrap().as_struct().column(0))[0],
            Some(0)
        );
        let plain: ArrayRef = Arc::new(Int32Array::from(vec![1]));
        assert!(Arc::ptr_eq(&canonical_keys(&plain).unwrap(), &plain));
    }

    #[test]
    fn median_is_the_middle_of_sorted_values() {
        assert_eq!(median(&mut [3.0, 1.0, 2.0]), 2.0);
        assert_eq!(median(&mut [4.0, 1.0, 2.0, 3.0]), 2.5);
        assert!(median(&mut []).is_nan());
    }

    #[test]
    fn lerp_handles_overflowing_distances() {
        assert_eq!(lerp(-1.7e308, 1.7e308, 0.5), 0.0);
        assert!((lerp(-1.7e308, 1.7e308, 0.25) / -0.85e308 - 1.0).abs() < 1e-15);
        assert_eq!(lerp(1.0, 2.0, 0.5), 1.5);
        assert_eq!(lerp(1.0, f64::INFINITY, 0.5), f64::INFINITY);
        assert_eq!(lerp(f64::NEG_INFINITY, 1.0, 0.5), f64::NEG_INFINITY);
        assert!(lerp(f64::NEG_INFINITY, f64::INFINITY, 0.5).is_nan());
        assert_eq!(scaled_distance(0.0, -1.7e308, -1.7e308, 1.7e308), 0.5);
        assert_eq!(scaled_distance(3.0, 1.0, 1.0, 5.0), 0.5);
        assert!(scaled_distance(f64::INFINITY, 0.0, 0.0, 1.0).is_infinite());
    }
}
