//! `aggregate`: one row for each group.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray};
use arrow::compute::cast;
use arrow::datatypes::{DataType, Date32Type, Field, Int64Type, Schema, TimeUnit};
use datafusion::common::{DataFusionError, ScalarValue};
use datafusion::functions::math::expr_fn::isnan;
use datafusion::functions_aggregate::count::count_udaf;
use datafusion::functions_aggregate::expr_fn::{count, max, min, sum};
use datafusion::functions_aggregate::first_last::{first_value_udaf, last_value_udaf};
use datafusion::logical_expr::expr::NullTreatment;
use datafusion::logical_expr::logical_plan::builder::table_scan;
use datafusion::logical_expr::{
    AggregateUDF, ColumnarValue, Expr, ExprFunctionExt, LogicalPlan, LogicalPlanBuilder, Volatility, cast as cast_expr,
    create_udf, lit, when,
};
use forebay_model::{Fault, Result, codes, logical_type};
use forebay_plan::{BindScope, ConfiguredTransform, GatherBy, GatherOp, PlanOp, Transform, canonical_key};
use indexmap::IndexMap;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::dedupe::column_expr;
use super::exact_udaf::{MomentStatistic, exact_aggregate_udf};
use crate::shared::bad_value;

/// One row for each group of rows with equal keys, and for each bucket of time.
///
/// Out: the key columns, then `time` (the bucket's start, in the column's type), then the computed
/// columns; rows sorted by keys and time, nulls last. Null is a key of its own; -0.0 and 0.0
/// are one key, 0.0, and so are all NaN. Nulls and NaN in the values are ignored; where a group has nothing else, the result is null (counts are 0).
/// Sums, means, variances of floats are exact and rounded once, so that the bits do not depend on
/// threads; sums of integers are `int64`, a sum that does not fit is a fault; means, `std` and
/// `var` are `float64`. `first` and `last` go by the order of the data. Without keys and `every`
/// there is one row, of empty data too. Takes a pass of its own, whose memory grows with the
/// number of groups; it spills.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Aggregate {
    /// The key columns.
    #[serde(default)]
    pub by: Vec<String>,
    /// The length of a bucket of time: a whole number and `s`, `m`, `h`, `d` or `w`, such as `15m`.
    /// Buckets are half-open and begin at multiples of it since 1970-01-01, weeks on Mondays.
    #[serde(default)]
    pub every: Option<String>,
    /// The column of dates or timestamps that `every` divides.
    #[serde(default)]
    pub time: Option<String>,
    /// New columns by name, each `function: column`.
    pub compute: IndexMap<String, AggregateExpression>,
    /// `std` and `var` divide by `n - ddof`.
    #[serde(default = "one")]
    pub ddof: u32,
}

fn one() -> u32 {
    1
}

impl Default for Aggregate {
    fn default() -> Self {
        Aggregate { by: Vec::new(), every: None, time: None, compute: IndexMap::new(), ddof: one() }
    }
}

/// What is computed of a column over a group.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum AggregateExpression {
    /// The sum of numbers.
    Sum(String),
    /// The mean of numbers.
    Mean(String),
    /// The number of values that are neither null nor NaN; of rows for `*`.
    Count(String),
    /// The least value.
    Min(String),
    /// The greatest value.
    Max(String),
    /// The standard deviation of numbers.
    Std(String),
    /// The variance of numbers.
    Var(String),
    /// The first value that is neither null nor NaN.
    First(String),
    /// The last value that is neither null nor NaN.
    Last(String),
    /// The number of distinct values, exactly.
    NUnique(String),
}

impl AggregateExpression {
    fn column(&self) -> &str {
        match self {
            AggregateExpression::Sum(column)
            | AggregateExpression::Mean(column)
            | AggregateExpression::Count(column)
            | AggregateExpression::Min(column) => column,
            AggregateExpression::Max(column)
            | AggregateExpression::Std(column)
            | AggregateExpression::Var(column)
            | AggregateExpression::First(column) => column,
            AggregateExpression::Last(column) | AggregateExpression::NUnique(column) => column,
        }
    }

    fn needs_numbers(&self) -> bool {
        matches!(
            self,
            AggregateExpression::Sum(_)
                | AggregateExpression::Mean(_)
                | AggregateExpression::Std(_)
                | AggregateExpression::Var(_)
        )
    }
}

impl ConfiguredTransform for Aggregate {
    const NAME: &'static str = "aggregate";
}

impl Transform for Aggregate {
    fn bind(&self, scope: &BindScope<'_>) -> Result<Vec<PlanOp>> {
        let spec = self.resolve(scope)?;
        // The plan over no rows tells the types.
        let mut fields: Vec<Field> = scope.schema.fields().iter().map(|field| field.as_ref().clone()).collect();
        fields.push(Field::new(GatherOp::ROW, DataType::UInt64, false));
        let fault = |error: DataFusionError| {
            Fault::new(codes::COLUMN_TYPE, "the groups cannot be computed from these columns").cause(error)
        };
        let empty = table_scan(Some("this"), &Schema::new(fields), None).and_then(|scan| scan.build());
        let plan = empty.and_then(|input| spec.plan(input)).map_err(fault)?;
        let fields = plan.schema().fields().iter();
        let fields = fields.map(|f| Field::new(f.name(), logical_type(f.data_type()), f.is_nullable()));
        Ok(vec![PlanOp::Gather(GatherOp {
            others: Vec::new(),
            alone: false,
            schema: Arc::new(Schema::new(fields.collect::<Vec<_>>())),
            lower: GatherBy::Query(Arc::new(move |mut inputs| {
                let input = inputs.pop().ok_or_else(|| Fault::internal("a gather was given no input"))?;
                spec.plan(input).map_err(fault)
            })),
        })])
    }
}

impl Aggregate {
    /// Checks names and types.
    fn resolve(&self, scope: &BindScope<'_>) -> Result<ResolvedAggregate> {
        if self.compute.is_empty() {
            return Err(bad_value("`compute` is empty"));
        }
        let mut faults: Vec<Fault> = self.by.iter().filter_map(|key| scope.field(key).err()).collect();
        let time = match (&self.time, &self.every) {
            (Some(time), Some(every)) => {
                let field = scope.field(time)?;
                if !matches!(field.data_type(), DataType::Timestamp(..) | DataType::Date32) {
                    let message = format!("`{time}` is {}, not a date or timestamp", field.data_type());
                    faults.push(Fault::new(codes::COLUMN_TYPE, message).column(time));
                }
                let seconds = parse_bucket_length(every)?;
                if *field.data_type() == DataType::Date32 && seconds % DAY != 0 {
                    faults.push(bad_value(format!("`{time}` holds dates, which `every: {every}` does not divide")));
                }
                let origin = if every.ends_with('w') { FIRST_MONDAY } else { 0 };
                Some(TimeBuckets { column: time.clone(), data_type: field.data_type().clone(), seconds, origin })
            }
            (None, None) => None,
            _ => return Err(bad_value("`every` and `time` go together")),
        };
        let mut computed = Vec::new();
        for (name, compute) in &self.compute {
            if self.by.contains(name) || self.time.as_ref() == Some(name) {
                faults.push(Fault::new(codes::COLUMN_CLASH, format!("two columns would be called `{name}`")));
            }
            if *compute == AggregateExpression::Count("*".to_owned()) {
                computed.push((name.clone(), compute.clone(), DataType::Null));
                continue;
            }
            match scope.field(compute.column()) {
                Err(fault) => faults.push(fault),
                Ok(field) if compute.needs_numbers() && !field.data_type().is_numeric() => {
                    let message = format!("`{}` is {}, not a number", field.name(), field.data_type());
                    faults.push(Fault::new(codes::COLUMN_TYPE, message).column(field.name()));
                }
                Ok(field) => computed.push((name.clone(), compute.clone(), field.data_type().clone())),
            }
        }
        if let Some(fault) = Fault::combine(faults) {
            return Err(fault);
        }
        let typed = |key: &String| Ok((key.clone(), scope.field(key)?.data_type().clone()));
        let by = self.by.iter().map(typed).collect::<Result<_>>()?;
        Ok(ResolvedAggregate { by, time, computed, ddof: self.ddof })
    }
}

/// Seconds of a day.
const DAY: i64 = 86_400;

/// 1970-01-05, in seconds.
const FIRST_MONDAY: i64 = 4 * DAY;

/// A length of time in seconds.
fn parse_bucket_length(text: &str) -> Result<i64> {
    let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let parsed = digits.parse::<i32>().ok().filter(|count| *count > 0).and_then(|count| {
        let unit = match &text[digits.len()..] {
            "w" => 7 * DAY,
            "d" => DAY,
            "h" => 3600,
            "m" | "min" => 60,
            "s" => 1,
            _ => return None,
        };
        Some(i64::from(count) * unit)
    });
    parsed.ok_or_else(|| {
        bad_value(format!("`every: {text}` is not a length of time"))
            .hint("write a whole number and a unit: 30m, 12h, 7d or 2w")
    })
}

/// The checked configuration.
struct ResolvedAggregate {
    /// Names and types.
    by: Vec<(String, DataType)>,
    time: Option<TimeBuckets>,
    computed: Vec<(String, AggregateExpression, DataType)>,
    ddof: u32,
}

impl ResolvedAggregate {
    fn plan(&self, input: LogicalPlan) -> Result<LogicalPlan, DataFusionError> {
        let key = |(name, data_type): &(String, DataType)| canonical_key(column_expr(name), data_type).alias(name);
        let mut columns: Vec<Expr> = self.by.iter().map(key).collect();
        columns.extend(self.time.as_ref().map(|time| time.start_expr().alias(&time.column)));
        let names = self.by.iter().map(|(name, _)| name);
        let keys: Vec<String> = names.chain(self.time.iter().map(|time| &time.column)).cloned().collect();
        columns.push(column_expr(GatherOp::ROW).alias(GatherOp::ROW));
        let mut aggregates = Vec::new();
        let mut outputs: Vec<Expr> = keys.iter().map(|key| column_expr(key)).collect();
        for (index, (name, compute, data_type)) in self.computed.iter().enumerate() {
            let (value, result) = (format!("__value_{index}"), format!("__result_{index}"));
            if *data_type != DataType::Null {
                columns.push(input_expr(compute, data_type)?.alias(&value));
            }
            aggregates.push(aggregate_expr(compute, column_expr(&value), data_type, self.ddof)?.alias(&result));
            let result = match compute {
                AggregateExpression::Sum(_) if data_type.is_integer() => {
                    cast_expr(column_expr(&result), DataType::Int64)
                }
                AggregateExpression::Min(_) | AggregateExpression::Max(_) if data_type.is_floating() => {
                    cast_expr(column_expr(&result), data_type.clone())
                }
                _ => column_expr(&result),
            };
            outputs.push(result.alias(name));
        }
        let groups: Vec<Expr> = keys.iter().map(|key| column_expr(key)).collect();
        let plan = LogicalPlanBuilder::from(input).project(columns)?.aggregate(groups.clone(), aggregates)?;
        let plan =
            if groups.is_empty() { plan } else { plan.sort(groups.into_iter().map(|key| key.sort(true, false)))? };
        plan.project(outputs)?.build()
    }
}

/// Buckets of time of equal length.
struct TimeBuckets {
    column: String,
    data_type: DataType,
    /// The length of one.
    seconds: i64,
    /// Where one of them begins.
    origin: i64,
}

impl TimeBuckets {
    /// The start of the bucket of each time, in the column's own type and unit: no other unit holds all
    /// times that a column can.
    fn start_expr(&self) -> Expr {
        let per_second = match &self.data_type {
            DataType::Timestamp(TimeUnit::Second, _) => 1,
            DataType::Timestamp(TimeUnit::Millisecond, _) => 1_000,
            DataType::Timestamp(TimeUnit::Microsecond, _) => 1_000_000,
            DataType::Timestamp(TimeUnit::Nanosecond, _) => 1_000_000_000,
            _ => 0,
        };
        let ticks = |seconds: i64| match per_second {
            0 => i128::from(seconds / DAY),
            _ => i128::from(seconds) * per_second,
        };
        let (length, origin) = (ticks(self.seconds), ticks(self.origin));
        let start = move |time: i64| {
            let time = i128::from(time);
            time - (time - origin).rem_euclid(length)
        };
        let function = move |inputs: &[ColumnarValue]| {
            let columns = ColumnarValue::values_to_arrays(inputs)?;
            let column =
                columns.first().ok_or_else(|| DataFusionError::Internal("a bucket without times".to_owned()))?;
            map_times(column, start)
                .map(ColumnarValue::Array)
                .map_err(|fault| DataFusionError::External(Box::new(fault)))
        };
        let types = (vec![self.data_type.clone()], self.data_type.clone());
        // The engine takes functions of one name for one function.
        let name = format!("bucket_{}_{}", self.seconds, self.origin);
        create_udf(&name, types.0, types.1, Volatility::Immutable, Arc::new(function))
            .call(vec![column_expr(&self.column)])
    }
}

/// Applies a function to the ticks of times.
fn map_times(times: &ArrayRef, start: impl Fn(i64) -> i128) -> Result<ArrayRef> {
    let missing = |time: &dyn std::fmt::Display| {
        let message =
            format!("the bucket of the time {time} begins before the first one that {} holds", times.data_type());
        Fault::new(codes::OVERFLOW, message).hint("filter such rows before")
    };
    if let Some(days) = times.as_primitive_opt::<Date32Type>() {
        let start = |day: i32| i32::try_from(start(i64::from(day))).map_err(|_| missing(&day));
        return Ok(Arc::new(days.try_unary::<_, Date32Type, Fault>(start)?));
    }
    let ticks = cast(times, &DataType::Int64)?;
    let start = |tick: i64| i64::try_from(start(tick)).map_err(|_| missing(&tick));
    let starts = ticks.as_primitive::<Int64Type>().try_unary::<_, Int64Type, Fault>(start)?;
    Ok(cast(&starts, times.data_type())?)
}

/// The column without NaN, in the type that the function works on.
fn input_expr(compute: &AggregateExpression, data_type: &DataType) -> Result<Expr, DataFusionError> {
    let value = column_expr(compute.column());
    let exactly =
        data_type.is_floating() && matches!(compute, AggregateExpression::Min(_) | AggregateExpression::Max(_));
    Ok(match compute {
        AggregateExpression::Sum(_) if data_type.is_integer() => cast_expr(value, DataType::Decimal128(20, 0)),
        _ if compute.needs_numbers() || exactly => cast_expr(value, DataType::Float64),
        _ if data_type.is_floating() => {
            let numbers = when(isnan(value.clone()), lit(ScalarValue::Null)).otherwise(value)?;
            // Values of one number differ in their bits.
            if matches!(compute, AggregateExpression::NUnique(_)) { canonical_key(numbers, data_type) } else { numbers }
        }
        _ => value,
    })
}

fn aggregate_expr(
    compute: &AggregateExpression,
    value: Expr,
    data_type: &DataType,
    ddof: u32,
) -> Result<Expr, DataFusionError> {
    let one = |function: AggregateUDF| function.call(vec![value.clone()]);
    let by_row = |function: Arc<AggregateUDF>| {
        let call = function.call(vec![value.clone()]).order_by(vec![column_expr(GatherOp::ROW).sort(true, false)]);
        call.null_treatment(NullTreatment::IgnoreNulls).build()
    };
    Ok(match compute {
        AggregateExpression::Count(name) if name == "*" => count(lit(1_i64)),
        AggregateExpression::Count(_) => count(value),
        AggregateExpression::NUnique(_) => count_udaf().call(vec![value]).distinct().build()?,
        AggregateExpression::Sum(_) if data_type.is_integer() => sum(value),
        AggregateExpression::Sum(_) => one(exact_aggregate_udf(MomentStatistic::Sum)),
        AggregateExpression::Mean(_) => one(exact_aggregate_udf(MomentStatistic::Mean)),
        AggregateExpression::Std(_) => one(exact_aggregate_udf(MomentStatistic::Std(ddof))),
        AggregateExpression::Var(_) => one(exact_aggregate_udf(MomentStatistic::Var(ddof))),
        AggregateExpression::Min(_) if data_type.is_floating() => one(exact_aggregate_udf(MomentStatistic::Min)),
        AggregateExpression::Max(_) if data_type.is_floating() => one(exact_aggregate_udf(MomentStatistic::Max)),
        AggregateExpression::Min(_) => min(value),
        AggregateExpression::Max(_) => max(value),
        AggregateExpression::First(_) => by_row(first_value_udaf())?,
        AggregateExpression::Last(_) => by_row(last_value_udaf())?,
    })
}
