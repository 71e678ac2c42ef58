//! `clip`: bounds for numbers.

use std::sync::Arc;

use arrow::array::{
    ArrayRef, ArrowNativeTypeOp, ArrowPrimitiveType, PrimitiveArray, downcast_integer_array,
};
use arrow::compute::cast;
use arrow::compute::kernels::cmp::neq;
use arrow::datatypes::DataType;
use forebay_contract::NumberExpr;
use forebay_model::{Fault, Result, RowChange};
use forebay_plan::{
    BindScope, ColumnSelector, ConfiguredTransform, MapOp, PlanOp, Transform, ValueCount,
};
use forebay_setters::Setters;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::shared::{bad_value, map_doubles, output_field};

/// Values below `min` become `min`, values above `max` become `max`.
///
/// In: columns of numbers. Out: the same types; decimals give `float64`. Integers take the
/// nearest whole numbers inside the bounds that their type can hold. Null stays null, NaN stays
/// NaN, infinities are clipped. Learns nothing. `min > max`, neither of them, or no
/// whole number between them for integers is a fault.
///
/// ```yaml
/// - clip: { columns: [qty], min: 0, max: 100 }
/// ```
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema, Setters)]
#[serde(deny_unknown_fields)]
#[setters(fn clip(columns), example = r#"clip(["price"]).min(0.0).max(1e4)"#)]
pub struct Clip {
    /// Columns of numbers.
    pub columns: ColumnSelector,
    /// The lower bound; none where left out.
    #[serde(default)]
    pub min: Option<f64>,
    /// The upper bound; none where left out.
    #[serde(default)]
    pub max: Option<f64>,
    /// Writes `<column><suffix>` instead of replacing the column.
    #[serde(default)]
    pub suffix: Option<String>,
}

impl ConfiguredTransform for Clip {
    const NAME: &'static str = "clip";
}

impl Transform for Clip {
    fn bind(&self, scope: &BindScope<'_>) -> Result<Vec<PlanOp>> {
        let min = self.min.unwrap_or(f64::NEG_INFINITY);
        let max = self.max.unwrap_or(f64::INFINITY);
        if self.min.is_none() && self.max.is_none() {
            return Err(bad_value("`clip` needs `min`, `max` or both"));
        }
        if min.is_nan() || max.is_nan() || min > max {
            return Err(bad_value(format!("`min` {min} is above `max` {max}")));
        }
        let each = scope
            .numeric_columns(&self.columns)?
            .into_iter()
            .map(|field| {
                let out = clipped_type(field.data_type());
                if out.is_integer() && min.ceil() > max.floor() {
                    let message =
                        format!("no whole number lies between `min` {min} and `max` {max}");
                    return Err(bad_value(message)
                        .column(field.name())
                        .hint("cast the column to float64 first"));
                }
                let map = MapOp::new(
                    [field.name()],
                    [output_field(field, &self.suffix, out.clone())],
                    move |inputs, _| {
                        inputs
                            .iter()
                            .map(|column| clip_column(column, &out, min, max))
                            .collect()
                    },
                );
                let map = map.counting(ValueCount::new(RowChange::Clipped, count_moved));
                // Whole numbers are moved to whole bounds, in 128 bits.
                if field.data_type().is_integer() {
                    return Ok(PlanOp::Map(map));
                }
                let form = NumberExpr::Input.greatest(min).least(max);
                Ok(PlanOp::Map(map.portable_number(form)))
            });
        each.collect()
    }
}

/// The type of a column whose values get bounds.
pub(super) fn clipped_type(input: &DataType) -> DataType {
    match input {
        DataType::Float16 => DataType::Float32,
        other if other.is_decimal() => DataType::Float64,
        other => other.clone(),
    }
}

/// Counts the values that differ. NaN equals NaN.
pub(super) fn count_moved(original: &ArrayRef, clipped: &ArrayRef) -> Result<u64> {
    let original = if original.data_type() == clipped.data_type() {
        original
    } else {
        &cast(original, clipped.data_type())?
    };
    Ok(neq(original, clipped)?.true_count() as u64)
}

/// Moves values to bounds, `min` at most `max`; those of integers are rounded inward.
pub(super) fn clip_column(
    column: &ArrayRef,
    out: &DataType,
    min: f64,
    max: f64,
) -> Result<ArrayRef> {
    if !out.is_integer() {
        return map_doubles(column, out, |value| value.clamp(min, max));
    }
    let column = if column.data_type() == out {
        column
    } else {
        &cast(column, out)?
    };
    let min = min.ceil() as i128;
    let max = max.floor() as i128;
    Ok(downcast_integer_array!(
        column => {
            Arc::new(clip_integers(column, min, max))
        }
        other => return Err(Fault::internal(format!("{other} is not a type of integers"))),
    ))
}

/// Bounds that the type cannot hold become its own.
fn clip_integers<T: ArrowPrimitiveType>(
    array: &PrimitiveArray<T>,
    min: i128,
    max: i128,
) -> PrimitiveArray<T>
where
    T::Native: Into<i128> + TryFrom<i128>,
{
    let clip = |value: T::Native| {
        let wide = value.into().clamp(min, max);
        T::Native::try_from(wide).unwrap_or(if wide < 0 {
            T::Native::MIN_TOTAL_ORDER
        } else {
            T::Native::MAX_TOTAL_ORDER
        })
    };
    array.unary(clip)
}
