//! `impute`: fills missing values.

use std::sync::Arc;

use arrow::array::{
    Array, ArrayRef, AsArray, BooleanArray, DictionaryArray, Float64Array, Int64Array,
    PrimitiveArray, Scalar as One, StringArray,
};
use arrow::compute::kernels::zip::zip;
use arrow::compute::{CastOptions, cast, cast_with_options, concat, is_null, or};
use arrow::datatypes::{ArrowPrimitiveType, DataType, Field, Float32Type, Float64Type, Int32Type};
use forebay_analyze::{ColumnMoments, QuantileRequest as Wanted, TokenVocabulary, VocabularyOrder};
use forebay_model::{Fault, Finding, Result, RowChange, TextRef, codes};
use forebay_plan::{
    AnalyzerRequest, BindScope, ColumnSelector, ConfiguredTransform, LoweredMap, MapOp, PlanOp,
    Transform, ValueCount, WrittenNulls,
};
use forebay_setters::Setters;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::shared::{ask_quantiles, finding_at, output_name};

/// Fills missing values: nulls and, in columns of floats, NaN.
///
/// In: columns of any type that is not nested; mean and median need numbers. Out: the same type,
/// but mean and median of integers give `float64`. Where nothing was seen there is nothing to fill
/// with, and values stay missing. Infinities are values: they make the mean infinite.
/// State: none for a constant, 6 KiB for a mean, a sample or the distinct values for a median, and
/// the distinct values with their counts for a mode (spilled beyond the budget).
///
/// ```yaml
/// - impute: { columns: [price], with: median, indicator: true }
/// - impute: { columns: [event], with: { constant: none } }
/// ```
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema, Setters)]
#[serde(deny_unknown_fields)]
#[setters(fn impute(columns, with), example = r#"impute(["price"], ImputeStrategy::Median).indicator(true)"#)]
pub struct Impute {
    /// Columns to fill.
    pub columns: ColumnSelector,
    /// What is filled in: `mean`, `median`, `mode`, or `constant: value`.
    pub with: ImputeStrategy,
    /// Adds `<column>_missing` (boolean): whether the value was missing.
    #[serde(default)]
    pub indicator: bool,
    /// The rank error of the median, as a share of the rows.
    #[serde(default = "epsilon")]
    pub epsilon: f64,
    /// Takes the median exactly; the state then grows with the distinct values.
    #[serde(default)]
    pub exact: bool,
    /// Writes `<column><suffix>` instead of replacing the column.
    #[serde(default)]
    pub suffix: Option<String>,
}

/// Takes the value to fill in out of a finding.
type FillExtractor = fn(&Finding) -> Result<Option<ArrayRef>>;

fn epsilon() -> f64 {
    0.01
}

/// What missing values become.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum ImputeStrategy {
    /// The mean of what is there.
    Mean,
    /// The median of what is there, interpolated between the two values in the middle.
    Median,
    /// The most frequent value; of equally frequent ones the first by the bytes of its text.
    Mode,
    /// A value of the column's type; dates and timestamps as ISO 8601 text.
    Constant(ConstantValue),
}

/// A constant.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(untagged)]
#[allow(missing_docs)] // The names say it.
pub enum ConstantValue {
    Boolean(bool),
    Integer(i64),
    Number(f64),
    Text(String),
}

impl ImputeStrategy {
    /// A value of the column's type.
    pub fn constant(value: impl Into<ConstantValue>) -> ImputeStrategy {
        ImputeStrategy::Constant(value.into())
    }
}

impl From<bool> for ConstantValue {
    fn from(value: bool) -> Self {
        ConstantValue::Boolean(value)
    }
}

impl From<i64> for ConstantValue {
    fn from(value: i64) -> Self {
        ConstantValue::Integer(value)
    }
}

impl From<f64> for ConstantValue {
    fn from(value: f64) -> Self {
        ConstantValue::Number(value)
    }
}

impl From<&str> for ConstantValue {
    fn from(value: &str) -> Self {
        ConstantValue::Text(value.to_owned())
    }
}

impl ConfiguredTransform for Impute {
    const NAME: &'static str = "impute";
}

impl Transform for Impute {
    fn bind(&self, scope: &BindScope<'_>) -> Result<Vec<PlanOp>> {
        let fields = match self.with {
            ImputeStrategy::Mean | ImputeStrategy::Median => {
                scope.numeric_columns(&self.columns)?
            }
            _ => scope.typed_columns(&self.columns, "a plain value", |field| {
                !field.data_type().is_nested()
            })?,
        };
        let mut ops = Vec::new();
        for field in fields {
            if self.indicator {
                let output = Field::new(
                    format!("{}_missing", field.name()),
                    DataType::Boolean,
                    false,
                );
                ops.push(PlanOp::Map(MapOp::new(
                    [field.name()],
                    [output],
                    |inputs, _| {
                        inputs
                            .iter()
                            .map(|column| Ok(Arc::new(missing_mask(column)?) as ArrayRef))
                            .collect()
                    },
                )));
            }
            let filled = ValueCount::new(RowChange::Imputed, count_filled);
            ops.push(PlanOp::Map(self.fill_map(field)?.counting(filled)));
        }
        Ok(ops)
    }
}

impl Impute {
    fn fill_map(&self, field: &Field) -> Result<MapOp> {
        let name = field.name();
        let fits = match self.with {
            ImputeStrategy::Mean | ImputeStrategy::Median if field.data_type().is_integer() => {
                DataType::Float64
            }
            _ => field.data_type().clone(),
        };
        let output = Field::new(
            output_name(name, &self.suffix),
            fits.clone(),
            field.is_nullable(),
        );
        let (asks, learn): (Vec<AnalyzerRequest>, FillExtractor) = match &self.with {
            ImputeStrategy::Constant(value) => {
                let value = cast_fill_value(constant_array(value), &fits, name)?;
                return Ok(MapOp::new(
                    [name],
                    [output.with_nullable(false)],
                    move |inputs, _| {
                        inputs
                            .iter()
                            .map(|column| fill_column(column, &fits, &value))
                            .collect()
                    },
                ));
            }
            ImputeStrategy::Mean => (
                vec![AnalyzerRequest::new(ColumnMoments, [name])],
                |finding| mean_or_median(finding, "mean"),
            ),
            ImputeStrategy::Median => {
                let wanted = Wanted::Probabilities(vec![0.5]);
                (
                    vec![ask_quantiles(name, wanted, self.epsilon, self.exact)?],
                    |finding| mean_or_median(finding, "value"),
                )
            }
            ImputeStrategy::Mode => {
                // Two, because the first may be the text `NaN`.
                let vocabulary = TokenVocabulary {
                    min_count: 1,
                    top_k: Some(2),
                    order: VocabularyOrder::CountThenValue,
                };
                let of_floats = field.data_type().is_floating();
                let learn: FillExtractor = if of_floats {
                    |finding| most_frequent(finding, true)
                } else {
                    |finding| most_frequent(finding, false)
                };
                (vec![AnalyzerRequest::new(vocabulary, [name])], learn)
            }
        };
        let name = name.clone();
        let filled = MapOp::fitted([name.clone()], [output], asks, move |findings| {
            let value = learn(finding_at(findings, 0)?)?
                .map(|value| cast_fill_value(value, &fits, &name))
                .transpose()?;
            let fits = fits.clone();
            Ok(LoweredMap::unary(move |column| match &value {
                Some(value) => fill_column(column, &fits, value),
                None if fits.is_string() => Ok(column.clone()),
                None => Ok(cast(column, &fits)?),
            }))
        });
        Ok(filled.written_nulls(WrittenNulls::Filled))
    }
}

fn mean_or_median(finding: &Finding, name: &str) -> Result<Option<ArrayRef>> {
    let at = finding.column(name)?;
    Ok((at.len() == 1 && at.is_valid(0)).then(|| at.clone()))
}

fn most_frequent(finding: &Finding, of_floats: bool) -> Result<Option<ArrayRef>> {
    let tokens = finding.column("token")?;
    let text = TextRef::new(tokens).ok_or_else(|| Fault::internal("a vocabulary is not text"))?;
    let first = text
        .iter()
        .flatten()
        .find(|token| !of_floats || *token != "NaN");
    Ok(first.map(|token| Arc::new(StringArray::from(vec![token])) as ArrayRef))
}

fn constant_array(value: &ConstantValue) -> ArrayRef {
    match value {
        ConstantValue::Boolean(value) => Arc::new(BooleanArray::from(vec![*value])),
        ConstantValue::Integer(value) => Arc::new(Int64Array::from(vec![*value])),
        ConstantValue::Number(value) => Arc::new(Float64Array::from(vec![*value])),
        ConstantValue::Text(value) => Arc::new(StringArray::from(vec![value.as_str()])),
    }
}

/// One value in the column's type; a fault where it is another kind of value or does not fit.
fn cast_fill_value(value: ArrayRef, wanted: &DataType, column: &str) -> Result<ArrayRef> {
    let misfit = || {
        let message = format!("`{column}` is {wanted}, which the value to fill in does not fit");
        Fault::new(codes::COLUMN_TYPE, message).column(column)
    };
    let fraction = || {
        value
            .as_primitive_opt::<Float64Type>()
            .is_some_and(|number| number.value(0).fract() != 0.0)
    };
    let same_kind = match value.data_type() {
        DataType::Boolean => *wanted == DataType::Boolean,
        DataType::Utf8 => true,
        _ => wanted.is_numeric() && !(wanted.is_integer() && fraction()),
    };
    if !same_kind {
        return Err(misfit());
    }
    let options = CastOptions {
        safe: false,
        ..CastOptions::default()
    };
    cast_with_options(&value, wanted, &options).map_err(|error| misfit().cause(error))
}

/// Counts the values that were missing before and are not after.
fn count_filled(before: &ArrayRef, after: &ArrayRef) -> Result<u64> {
    let missing = count_missing(before)?;
    if missing == 0 {
        return Ok(0);
    }
    Ok(missing.saturating_sub(count_missing(after)?))
}

/// Counts nulls and NaN.
fn count_missing(column: &ArrayRef) -> Result<u64> {
    let nulls = column.logical_null_count();
    let nans = match column.data_type() {
        DataType::Float32 => count_nan(column.as_primitive::<Float32Type>(), f32::is_nan),
        DataType::Float64 => count_nan(column.as_primitive::<Float64Type>(), f64::is_nan),
        DataType::Float16 => return Ok(missing_mask(column)?.true_count() as u64),
        DataType::Dictionary(_, value) if value.is_floating() => {
            return Ok(missing_mask(column)?.true_count() as u64);
        }
        _ => 0,
    };
    Ok((nulls + nans) as u64)
}

fn count_nan<T: ArrowPrimitiveType>(
    array: &PrimitiveArray<T>,
    is_nan: impl Fn(T::Native) -> bool,
) -> usize {
    if array.null_count() == 0 {
        let values = array.values().iter();
        return values.filter(|value| is_nan(**value)).count();
    }
    let values = array.iter().flatten();
    values.filter(|value| is_nan(*value)).count()
}

/// Null or NaN.
fn missing_mask(column: &ArrayRef) -> Result<BooleanArray> {
    let null = match column.logical_nulls() {
        Some(nulls) => BooleanArray::new(!nulls.inner(), None),
        None => is_null(column)?,
    };
    fn nan<T: arrow::datatypes::ArrowPrimitiveType>(
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

/// Floats without a mask: one pass for NaN, one for the nulls.
fn fill_floats<T: ArrowPrimitiveType>(
    column: &ArrayRef,
    value: &ArrayRef,
    is_nan: impl Fn(T::Native) -> bool,
) -> Result<ArrayRef> {
    let array = column.as_primitive::<T>();
    let value = value.as_primitive::<T>().value(0);
    let mut values: Vec<T::Native> = array
        .values()
        .iter()
        .map(|held| if is_nan(*held) { value } else { *held })
        .collect();
    if let Some(nulls) = array.nulls().filter(|nulls| nulls.null_count() > 0) {
        (!nulls.inner())
            .set_indices()
            .for_each(|row| values[row] = value);
    }
    Ok(Arc::new(PrimitiveArray::<T>::new(values.into(), None)))
}

fn fill_column(column: &ArrayRef, fits: &DataType, value: &ArrayRef) -> Result<ArrayRef> {
    if let DataType::Dictionary(key, values) = column.data_type()
        && **key == DataType::Int32
        && values.is_string()
        && let dictionary = column.as_dictionary::<Int32Type>()
        && dictionary.values().null_count() == 0
    {
        if dictionary.null_count() == 0 {
            return Ok(column.clone());
        }
        // The value becomes one more entry of the dictionary.
        let entries = concat(&[dictionary.values(), &cast(value, values)?])?;
        let last = dictionary.values().len() as i32;
        let keys = dictionary
            .keys()
            .iter()
            .map(|key| Some(key.unwrap_or(last)));
        return Ok(Arc::new(DictionaryArray::<Int32Type>::try_new(
            keys.collect(),
            entries,
        )?));
    }
    let layout = if fits.is_string() && column.data_type().is_string() {
        column.data_type()
    } else {
        fits
    };
    let column = if column.data_type() == layout {
        column
    } else {
        &cast(column, layout)?
    };
    match column.data_type() {
        DataType::Float32 => {
            return fill_floats::<Float32Type>(column, &cast(value, layout)?, f32::is_nan);
        }
        DataType::Float64 => {
            return fill_floats::<Float64Type>(column, &cast(value, layout)?, f64::is_nan);
        }
        _ => {}
    }
    let missing = missing_mask(column)?;
    if missing.true_count() == 0 {
        return Ok(column.clone());
    }
    Ok(zip(&missing, &One::new(cast(value, layout)?), column)?)
}
