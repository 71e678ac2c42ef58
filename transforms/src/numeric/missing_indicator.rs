//! `missing_indicator`: which values are missing.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, BooleanArray, PrimitiveArray};
use arrow::compute::{cast, is_null, or};
use arrow::datatypes::{ArrowPrimitiveType, DataType, Field, Float32Type, Float64Type};
use forebay_contract::PortableMap;
use forebay_model::Result;
use forebay_plan::{BindScope, ColumnSelector, ConfiguredTransform, MapOp, PlanOp, Transform};
use forebay_setters::Setters;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::shared::bad_value;

/// Adds `<column>_missing` for each column: true where the value is null or, in columns of floats, NaN.
///
/// In: columns of any type that is not nested. Out: the columns as they are, and a `boolean` beside each, never null.
/// Infinities and the empty string are values. An empty suffix is a fault. Learns nothing, so that the columns are
/// those of the spec whatever the data holds. Follows scikit-learn's `MissingIndicator` with `features="all"`. `impute`
/// with `indicator: true` adds the same column to the one that it fills.
///
/// ```yaml
/// - missing_indicator: { columns: [price, qty] }
/// ```
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema, Setters)]
#[serde(deny_unknown_fields)]
#[setters(
    fn missing_indicator(columns),
    example = r#"missing_indicator(["price", "qty"]).suffix("_was_null")"#
)]
pub struct MissingIndicator {
    /// Columns whose missing values are marked.
    pub columns: ColumnSelector,
    /// The end of the names of the new columns.
    #[serde(default = "suffix")]
    pub suffix: String,
}

fn suffix() -> String {
    "_missing".to_owned()
}

impl ConfiguredTransform for MissingIndicator {
    const NAME: &'static str = "missing_indicator";
}

impl Transform for MissingIndicator {
    fn bind(&self, scope: &BindScope<'_>) -> Result<Vec<PlanOp>> {
        if self.suffix.is_empty() {
            return Err(bad_value(
                "`suffix` is empty, and indicators stand beside their columns",
            ));
        }
        let fields = scope.typed_columns(&self.columns, "a plain value", |field| {
            !field.data_type().is_nested()
        })?;
        let mut ops = Vec::new();
        for field in fields {
            ops.push(PlanOp::Map(indicator_map(
                field,
                format!("{}{}", field.name(), self.suffix),
            )));
        }
        Ok(ops)
    }
}

/// Writes whether each value of a column is missing.
pub(super) fn indicator_map(field: &Field, output: String) -> MapOp {
    let output = Field::new(output, DataType::Boolean, false);
    let map = MapOp::new([field.name()], [output], |inputs, _| {
        let mut masks: Vec<ArrayRef> = Vec::new();
        for input in inputs {
            masks.push(Arc::new(missing_mask(input)?));
        }
        Ok(masks)
    });
    // The empty text stands for a missing one in other runtimes, and is a value here.
    if field.data_type().is_numeric() || *field.data_type() == DataType::Boolean {
        map.portable(PortableMap::Missing)
    } else {
        map
    }
}

/// Null or NaN.
pub(super) fn missing_mask(column: &ArrayRef) -> Result<BooleanArray> {
    let null = match column.logical_nulls() {
        Some(nulls) => BooleanArray::new(!nulls.inner(), None),
        None => is_null(column)?,
    };
    fn nan<T: ArrowPrimitiveType>(
        array: &PrimitiveArray<T>,
        is_nan: impl Fn(T::Native) -> bool,
    ) -> BooleanArray {
        BooleanArray::new(
            array.values().iter().map(|value| is_nan(*value)).collect(),
            None,
        )
    }
    Ok(match column.data_type() {
        DataType::Float64 => or(
            &null,
            &nan::<Float64Type>(column.as_primitive(), f64::is_nan),
        )?,
        DataType::Float32 => or(
            &null,
            &nan::<Float32Type>(column.as_primitive(), f32::is_nan),
        )?,
        DataType::Float16 => missing_mask(&cast(column, &DataType::Float32)?)?,
        DataType::Dictionary(_, value) if value.is_floating() => {
            missing_mask(&cast(column, value)?)?
        }
        _ => null,
    })
}
