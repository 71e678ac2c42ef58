//! `aggregate`: one row for each group.

use std::sync::Arc;

use arrow::datatypes::{DataType, Field, IntervalMonthDayNano, Schema, TimeUnit};
use datafusion::common::{DataFusionError, ScalarValue};
use datafusion::functions::datetime::expr_fn::date_bin;
use datafusion::functions::math::expr_fn::isnan;
use datafusion::functions_aggregate::count::count_udaf;
use datafusion::functions_aggregate::expr_fn::{count, max, min, sum};
use datafusion::functions_aggregate::first_last::{first_value_udaf, last_value_udaf};
use datafusion::logical_expr::expr::NullTreatment;
use datafusion::logical_expr::logical_plan::builder::table_scan;
use datafusion::logical_expr::{AggregateUDF, Expr, ExprFunctionExt, LogicalPlan, LogicalPlanBuilder, cast, lit, when};
use forebay_model::{Fault, Result, codes, logical_type};
use forebay_plan::{Configured, Gather, Op, Scope, Transform};
use indexmap::IndexMap;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::dedupe::column;
use super::exact_udaf::{Statistic, exact};
use crate::shared::bad_value;

/// One row for each group of rows with equal keys, and for each bucket of time.
///
/// Out: the key columns, then `time` (the bucket's start, in the column's type), then the computed
/// columns; rows sorted by keys and time, nulls last. Null is a key of its own. Nulls and NaN in
/// the values are ignored; where a group has nothing else, the result is null (counts are 0).
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
    pub compute: IndexMap<String, Compute>,
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
pub enum Compute {
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

impl Compute {
    fn column(&self) -> &str {
        match self {
            Compute::Sum(column) | Compute::Mean(column) | Compute::Count(column) | Compute::Min(column) => column,
            Compute::Max(column) | Compute::Std(column) | Compute::Var(column) | Compute::First(column) => column,
            Compute::Last(column) | Compute::NUnique(column) => column,
        }
    }

    fn of_numbers(&self) -> bool {
        matches!(self, Compute::Sum(_) | Compute::Mean(_) | Compute::Std(_) | Compute::Var(_))
    }
}

impl Configured for Aggregate {
    const NAME: &'static str = "aggregate";
}

impl Transform for Aggregate {
    fn bind(&self, scope: &Scope<'_>) -> Result<Vec<Op>> {
        let spec = self.resolve(scope)?;
        // The plan over no rows tells the types.
        let mut fields: Vec<Field> = scope.schema.fields().iter().map(|field| field.as_ref().clone()).collect();
        fields.push(Field::new(Gather::ROW, DataType::UInt64, false));
        let fault = |error: DataFusionError| {
            Fault::new(codes::COLUMN_TYPE, "the groups cannot be computed from these columns").cause(error)
        };
        let empty = table_scan(Some("this"), &Schema::new(fields), None).and_then(|scan| scan.build());
        let plan = empty.and_then(|input| spec.plan(input)).map_err(fault)?;
        let fields = plan.schema().fields().iter();
        let fields = fields.map(|f| Field::new(f.name(), logical_type(f.data_type()), f.is_nullable()));
        Ok(vec![Op::Gather(Gather {
            others: Vec::new(),
            alone: false,
            schema: Arc::new(Schema::new(fields.collect::<Vec<_>>())),
            lower: Arc::new(move |mut inputs| {
                let input = inputs.pop().ok_or_else(|| Fault::internal("a gather was given no input"))?;
                spec.plan(input).map_err(fault)
            }),
        })])
    }
}

impl Aggregate {
    /// Checks names and types.
    fn resolve(&self, scope: &Scope<'_>) -> Result<Spec> {
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
                let (days, seconds) = length(every)?;
                if *field.data_type() == DataType::Date32 && seconds != 0 {
                    faults.push(bad_value(format!("`{time}` holds dates, which `every: {every}` does not divide")));
                }
                Some((time.clone(), field.data_type().clone(), days, seconds, every.ends_with('w')))
            }
            (None, None) => None,
            _ => return Err(bad_value("`every` and `time` go together")),
        };
        let mut computed = Vec::new();
        for (name, compute) in &self.compute {
            if self.by.contains(name) || self.time.as_ref() == Some(name) {
                faults.push(Fault::new(codes::COLUMN_CLASH, format!("two columns would be called `{name}`")));
            }
            if *compute == Compute::Count("*".to_owned()) {
                computed.push((name.clone(), compute.clone(), DataType::Null));
                continue;
            }
            match scope.field(compute.column()) {
                Err(fault) => faults.push(fault),
                Ok(field) if compute.of_numbers() && !field.data_type().is_numeric() => {
                    let message = format!("`{}` is {}, not a number", field.name(), field.data_type());
                    faults.push(Fault::new(codes::COLUMN_TYPE, message).column(field.name()));
                }
                Ok(field) => computed.push((name.clone(), compute.clone(), field.data_type().clone())),
            }
        }
        let spec = Spec { by: self.by.clone(), time, computed, ddof: self.ddof };
        Fault::all(faults).map_or(Ok(spec), Err)
    }
}

/// Days and seconds.
fn length(text: &str) -> Result<(i32, i64)> {
    let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let parsed = digits.parse::<i32>().ok().filter(|count| *count > 0).and_then(|count| {
        Some(match &text[digits.len()..] {
            "w" => (count.checked_mul(7)?, 0),
            "d" => (count, 0),
            "h" => (0, i64::from(count) * 3600),
            "m" | "min" => (0, i64::from(count) * 60),
            "s" => (0, i64::from(count)),
            _ => return None,
        })
    });
    parsed.ok_or_else(|| {
        bad_value(format!("`every: {text}` is not a length of time"))
            .hint("write a whole number and a unit: 30m, 12h, 7d or 2w")
    })
}

/// The checked configuration.
struct Spec {
    by: Vec<String>,
    /// Column, type, days, seconds, whether weeks.
    time: Option<(String, DataType, i32, i64, bool)>,
    computed: Vec<(String, Compute, DataType)>,
    ddof: u32,
}

impl Spec {
    fn plan(&self, input: LogicalPlan) -> Result<LogicalPlan, DataFusionError> {
        let mut columns: Vec<Expr> = self.by.iter().map(|key| column(key).alias(key)).collect();
        if let Some((name, data_type, days, seconds, weeks)) = &self.time {
            columns.push(bucket(column(name), data_type, *days, *seconds, *weeks).alias(name));
        }
        let keys: Vec<String> = self.by.iter().chain(self.time.iter().map(|time| &time.0)).cloned().collect();
        columns.push(column(Gather::ROW).alias(Gather::ROW));
        let mut aggregates = Vec::new();
        let mut outputs: Vec<Expr> = keys.iter().map(|key| column(key)).collect();
        for (index, (name, compute, data_type)) in self.computed.iter().enumerate() {
            let (value, result) = (format!("__value_{index}"), format!("__result_{index}"));
            if *data_type != DataType::Null {
                columns.push(input_of(compute, data_type)?.alias(&value));
            }
            aggregates.push(aggregate(compute, column(&value), data_type, self.ddof)?.alias(&result));
            let result = match compute {
                Compute::Sum(_) if data_type.is_integer() => cast(column(&result), DataType::Int64),
                Compute::Min(_) | Compute::Max(_) if data_type.is_floating() => {
                    cast(column(&result), data_type.clone())
                }
                _ => column(&result),
            };
            outputs.push(result.alias(name));
        }
        let groups: Vec<Expr> = keys.iter().map(|key| column(key)).collect();
        let plan = LogicalPlanBuilder::from(input).project(columns)?.aggregate(groups.clone(), aggregates)?;
        let plan =
            if groups.is_empty() { plan } else { plan.sort(groups.into_iter().map(|key| key.sort(true, false)))? };
        plan.project(outputs)?.build()
    }
}

/// The start of the bucket of time, in the column's own type.
fn bucket(time: Expr, data_type: &DataType, days: i32, seconds: i64, weeks: bool) -> Expr {
    let stride = IntervalMonthDayNano::new(0, days, seconds * 1_000_000_000);
    // The first Monday is 1970-01-05.
    let origin = if weeks { 4 * 86_400 * 1_000_000_000 } else { 0 };
    let origin = lit(ScalarValue::TimestampNanosecond(Some(origin), None));
    let time =
        if *data_type == DataType::Date32 { cast(time, DataType::Timestamp(TimeUnit::Second, None)) } else { time };
    cast(date_bin(lit(ScalarValue::IntervalMonthDayNano(Some(stride))), time, origin), data_type.clone())
}

/// The column without NaN, in the type that the function works on.
fn input_of(compute: &Compute, data_type: &DataType) -> Result<Expr, DataFusionError> {
    let value = column(compute.column());
    let exactly = data_type.is_floating() && matches!(compute, Compute::Min(_) | Compute::Max(_));
    Ok(match compute {
        Compute::Sum(_) if data_type.is_integer() => cast(value, DataType::Decimal128(20, 0)),
        _ if compute.of_numbers() || exactly => cast(value, DataType::Float64),
        _ if data_type.is_floating() => when(isnan(value.clone()), lit(ScalarValue::Null)).otherwise(value)?,
        _ => value,
    })
}

fn aggregate(compute: &Compute, value: Expr, data_type: &DataType, ddof: u32) -> Result<Expr, DataFusionError> {
    let one = |function: AggregateUDF| function.call(vec![value.clone()]);
    let by_row = |function: Arc<AggregateUDF>| {
        let call = function.call(vec![value.clone()]).order_by(vec![column(Gather::ROW).sort(true, false)]);
        call.null_treatment(NullTreatment::IgnoreNulls).build()
    };
    Ok(match compute {
        Compute::Count(name) if name == "*" => count(lit(1_i64)),
        Compute::Count(_) => count(value),
        Compute::NUnique(_) => count_udaf().call(vec![value]).distinct().build()?,
        Compute::Sum(_) if data_type.is_integer() => sum(value),
        Compute::Sum(_) => one(exact(Statistic::Sum)),
        Compute::Mean(_) => one(exact(Statistic::Mean)),
        Compute::Std(_) => one(exact(Statistic::Std(ddof))),
        Compute::Var(_) => one(exact(Statistic::Var(ddof))),
        Compute::Min(_) if data_type.is_floating() => one(exact(Statistic::Min)),
        Compute::Max(_) if data_type.is_floating() => one(exact(Statistic::Max)),
        Compute::Min(_) => min(value),
        Compute::Max(_) => max(value),
        Compute::First(_) => by_row(first_value_udaf())?,
        Compute::Last(_) => by_row(last_value_udaf())?,
    })
}
