//! `impute`: fills missing values.

use std::sync::Arc;

use arrow::array::{
    Array, ArrayRef, AsArray, BooleanArray, DictionaryArray, Float64Array, Int64Array,
    PrimitiveArray, Scalar as One, StringArray,
};
use arrow::compute::kernels::zip::zip;
use arrow::compute::{CastOptions, cast, cast_with_options, concat};
use arrow::datatypes::{ArrowPrimitiveType, DataType, Field, Float32Type, Float64Type, Int32Type};
use forebay_analyze::{
    ColumnMoments, GroupedMoments, GroupedQuantiles, QuantileRequest as Wanted, TokenVocabulary,
    VocabularyOrder,
};
use forebay_contract::NumberExpr;
use forebay_model::{
    Fault, Finding, Result, RowChange, TextRef, codes, column_bytes, text_length, type_words,
};
use forebay_plan::{
    AnalyzerRequest, BindScope, ColumnSelector, ConfiguredTransform, LoweredMap, MapOp, PlanOp,
    Transform, ValueCount, WrittenNulls, admit_output,
};
use forebay_setters::Setters;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::end_tail::EndTail;
use super::impute_by_key::{KeyNumberRequests, fill_by_key};
use super::missing_indicator::{indicator_map, missing_mask};
use crate::shared::{ask_quantiles, bad_value, finding_at, output_name};

/// Fills missing values: nulls and, in columns of floats, NaN.
///
/// In: columns of any type that is not nested; mean, median and end need numbers. Out: the same type,
/// but mean, median and end of integers give `float64`. Where nothing was seen there is nothing to fill
/// with, and values stay missing. Infinities are values: they make the mean infinite.
/// State: none for a constant, 6 KiB for a mean, a sample or the distinct values for a median, and
/// the distinct values with their counts for a mode (spilled beyond the budget).
///
/// `end_tail` fills a number beyond the values, as feature_engine's `EndTailImputer` with `"gaussian"` and, for
/// `around: quartiles`, with `"iqr"`. Where there are fewer than two values, or infinite ones, values stay missing.
/// State: that of a mean or a median.
///
/// With `by`, a mean or a median is that of the values with the same key, the median exactly; null is a key. A key without
/// values takes the number of all rows. State: as well, some 300 bytes or the distinct values of each key, spilled beyond
/// the budget; the numbers have to fit memory.
///
/// ```yaml
/// - impute: { columns: [price], with: median, indicator: true }
/// - impute: { columns: [price], with: median, by: [category] }
/// - impute: { columns: [event], with: { constant: none } }
/// - impute: { columns: [price], with: { end_tail: { side: lower } } }
/// ```
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema, Setters)]
#[serde(deny_unknown_fields)]
#[setters(
    fn impute(columns, with),
    example = r#"impute(["price"], ImputeStrategy::Median).indicator(true)"#
)]
pub struct Impute {
    /// Columns to fill.
    pub columns: ColumnSelector,
    /// What is filled in: `mean`, `median`, `mode`, `constant: value`, or `end_tail: {}`.
    pub with: ImputeStrategy,
    /// Key columns: a mean or a median is learned for each of their values.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub by: Vec<String>,
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
    /// A number beyond what is there.
    EndTail(EndTail),
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
            ImputeStrategy::Mean | ImputeStrategy::Median | ImputeStrategy::EndTail(_) => {
                scope.numeric_columns(&self.columns)?
            }
            _ => scope.typed_columns(&self.columns, "a plain value", |field| {
                !field.data_type().is_nested()
            })?,
        };
        let mut ops = Vec::new();
        for field in fields {
            if self.indicator {
                let indicator = format!("{}_missing", field.name());
                ops.push(PlanOp::Map(indicator_map(field, indicator)));
            }
            let filled = ValueCount::new(RowChange::Imputed, count_filled);
            let map = if self.by.is_empty() {
                self.fill_map(field)?
            } else {
                self.fill_map_by_key(scope, field)?
            };
            ops.push(PlanOp::Map(map.counting(filled)));
        }
        Ok(ops)
    }
}

impl Impute {
    fn fill_map(&self, field: &Field) -> Result<MapOp> {
        let name = field.name().clone();
        let fits = self.filled_type(field);
        let output = Field::new(
            output_name(&name, &self.suffix),
            fits.clone(),
            field.is_nullable(),
        );
        let (request, extract): (AnalyzerRequest, FillExtractor) = match &self.with {
            ImputeStrategy::Constant(value) => return fill_constant(&name, value, output),
            ImputeStrategy::EndTail(end_tail) => {
                return self.fill_end_tail(*end_tail, name, output);
            }
            ImputeStrategy::Mean => (AnalyzerRequest::new(ColumnMoments, [&name]), |finding| {
                mean_or_median(finding, "mean")
            }),
            ImputeStrategy::Median => {
                let median = Wanted::Probabilities(vec![0.5]);
                let request = ask_quantiles(&name, median, self.epsilon, self.exact)?;
                (request, |finding| mean_or_median(finding, "value"))
            }
            ImputeStrategy::Mode => {
                // Two, because the first may be the text `NaN`.
                let vocabulary = TokenVocabulary {
                    min_count: 1,
                    top_k: Some(2),
                    order: VocabularyOrder::CountThenValue,
                };
                let request = AnalyzerRequest::new(vocabulary, [&name]).row_columns(["token"]);
                if field.data_type().is_floating() {
                    (request, |finding| most_frequent(finding, true))
                } else {
                    (request, |finding| most_frequent(finding, false))
                }
            }
        };
        let filled = MapOp::fitted([name.clone()], [output], [request], move |findings| {
            let value = match extract(finding_at(findings, 0)?)? {
                Some(learned) => Some(cast_fill_value(learned, &fits, &name)?),
                None => None,
            };
            Ok(fill_learned(&fits, value))
        });
        Ok(filled.written_nulls(WrittenNulls::Filled))
    }

    /// Fills a number beyond the values into a column.
    fn fill_end_tail(&self, end_tail: EndTail, name: String, output: Field) -> Result<MapOp> {
        end_tail.check()?;
        let request = end_tail.request(&name, self.epsilon, self.exact)?;
        let fits = output.data_type().clone();
        let filled = MapOp::fitted([name.clone()], [output], [request], move |findings| {
            let value = match end_tail.number(finding_at(findings, 0)?)? {
                Some(number) => {
                    let number: ArrayRef = Arc::new(Float64Array::from(vec![number]));
                    Some(cast_fill_value(number, &fits, &name)?)
                }
                None => None,
            };
            Ok(fill_learned(&fits, value))
        });
        Ok(filled.written_nulls(WrittenNulls::Filled))
    }

    fn fill_map_by_key(&self, scope: &BindScope<'_>, field: &Field) -> Result<MapOp> {
        let name = field.name();
        let mut key_types = Vec::with_capacity(self.by.len());
        let mut reads = vec![name.clone()];
        for key in &self.by {
            key_types.push(scope.field(key)?.data_type().clone());
            reads.push(key.clone());
        }
        let requests = match &self.with {
            ImputeStrategy::Mean => {
                let moments = GroupedMoments { keys: key_types };
                KeyNumberRequests {
                    by_key: AnalyzerRequest::new(moments, reads.clone()),
                    key_number: "mean",
                    total: AnalyzerRequest::new(ColumnMoments, [name]),
                    total_number: "mean",
                }
            }
            ImputeStrategy::Median => {
                let quantiles = GroupedQuantiles::new(&key_types, &[0.5])?;
                let median = Wanted::Probabilities(vec![0.5]);
                KeyNumberRequests {
                    by_key: AnalyzerRequest::new(quantiles, reads.clone()),
                    key_number: "quantile1",
                    total: ask_quantiles(name, median, self.epsilon, self.exact)?,
                    total_number: "value",
                }
            }
            ImputeStrategy::Mode | ImputeStrategy::Constant(_) | ImputeStrategy::EndTail(_) => {
                let fault = bad_value("`by` is for `mean` and `median`").field("by");
                return Err(fault.hint("leave out `by`"));
            }
        };
        let output = Field::new(
            output_name(name, &self.suffix),
            self.filled_type(field),
            field.is_nullable(),
        );
        Ok(fill_by_key(reads, output, requests))
    }

    /// The type of a filled column: means, medians and ends of integers are no integers.
    fn filled_type(&self, field: &Field) -> DataType {
        match self.with {
            ImputeStrategy::Mode | ImputeStrategy::Constant(_) => field.data_type().clone(),
            _ if field.data_type().is_integer() => DataType::Float64,
            _ => field.data_type().clone(),
        }
    }
}

/// Fills a constant into a column.
fn fill_constant(name: &str, value: &ConstantValue, output: Field) -> Result<MapOp> {
    let fits = output.data_type().clone();
    let value = cast_fill_value(constant_array(value), &fits, name)?;
    let form = portable_fill(&fits, &value);
    let filled = MapOp::new([name], [output.with_nullable(false)], move |inputs, _| {
        let mut columns = Vec::with_capacity(inputs.len());
        for column in inputs {
            columns.push(fill_column(column, &fits, &value)?);
        }
        Ok(columns)
    });
    let filled = filled.written_nulls(WrittenNulls::Filled);
    Ok(match form {
        Some(form) => filled.portable_number(form),
        None => filled,
    })
}

/// Fills a learned value into a column; nulls stay where no value was learned.
fn fill_learned(fits: &DataType, value: Option<ArrayRef>) -> LoweredMap {
    let form = value.as_ref().and_then(|value| portable_fill(fits, value));
    let fits = fits.clone();
    let filled = LoweredMap::unary(move |column| match &value {
        Some(value) => fill_column(column, &fits, value),
        None if fits.is_string() => Ok(column.clone()),
        None => Ok(cast(column, &fits)?),
    });
    match form {
        Some(form) => filled.portable_number(form),
        None => filled,
    }
}

/// A number in the place of missing ones. Other types have no missing values in other runtimes.
fn portable_fill(fits: &DataType, value: &ArrayRef) -> Option<NumberExpr> {
    if !fits.is_floating() {
        return None;
    }
    let number = cast(value, &DataType::Float64).ok()?;
    let number = number.as_primitive::<Float64Type>().value(0);
    Some(NumberExpr::Input.coalesce(number))
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
fn cast_fill_value(value: ArrayRef, target: &DataType, column: &str) -> Result<ArrayRef> {
    let misfit = || {
        let words = type_words(target);
        let message = format!("`{column}` is {words}, which the value to fill in does not fit");
        Fault::new(codes::COLUMN_TYPE, message).column(column)
    };
    let fraction = || {
        value
            .as_primitive_opt::<Float64Type>()
            .is_some_and(|number| number.value(0).fract() != 0.0)
    };
    let same_kind = match value.data_type() {
        DataType::Boolean => *target == DataType::Boolean,
        DataType::Utf8 => true,
        _ => target.is_numeric() && !(target.is_integer() && fraction()),
    };
    if !same_kind {
        return Err(misfit());
    }
    let options = CastOptions {
        safe: false,
        ..CastOptions::default()
    };
    cast_with_options(&value, target, &options).map_err(|error| misfit().cause(error))
}

/// Counts the values that were missing before and are not after.
pub(crate) fn count_filled(original: &ArrayRef, filled: &ArrayRef) -> Result<u64> {
    let missing = count_missing(original)?;
    if missing == 0 {
        return Ok(0);
    }
    Ok(missing.saturating_sub(count_missing(filled)?))
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
        .map(|number| if is_nan(*number) { value } else { *number })
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
    let missing_rows = missing.true_count();
    if missing_rows == 0 {
        return Ok(column.clone());
    }
    // A long text may come into each row.
    let filled_bytes = missing_rows.saturating_mul(text_length(value, 0));
    admit_output(filled_bytes.saturating_add(column_bytes(column)))?;
    Ok(zip(&missing, &One::new(cast(value, layout)?), column)?)
}
