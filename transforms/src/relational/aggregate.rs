//! `aggregate`: one row for each group.

use std::sync::Arc;

use arrow::datatypes::{DataType, Field, Schema, TimeUnit};
use forebay_model::{
    Fault, GroupBy, GroupFunction, GroupKey, GroupResult, Result, TimeBucket, codes, logical_type,
    type_words,
};
use forebay_plan::{
    BindScope, ConfiguredTransform, GatherBy, GatherOp, GroupByOp, PlanOp, Transform,
};
use forebay_setters::Setters;
use indexmap::IndexMap;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::shared::bad_value;

/// One row for each group of rows with equal keys, and for each bucket of time.
///
/// Out: the key columns, then `time` (the bucket's start, in the column's type), then the computed
/// columns; rows sorted by keys and time, nulls last. Null is a key of its own; -0.0 and 0.0
/// are one key, 0.0, and so are all NaN. Nulls and NaN in the values are ignored; where a group has nothing else, the
/// result is null (counts are 0).
/// Sums, means, variances of floats are exact and rounded once, so that the bits do not depend on
/// threads; sums of integers are `int64`, a sum that does not fit is a fault; means, `std` and
/// `var` are `float64`. `median`, `quantile` and `weighted_mean` are exact, too. `first`, `last` and `list` go by the
/// order of the data. `first_by` and `last_by` go by time, and by the order of the data among rows of one time. Without
/// keys and `every` there is one row, of empty data too. Takes a pass of its own, whose memory grows with the
/// number of groups, for `n_unique`, `median`, `quantile` and `top_k` of distinct values in groups; it spills.
/// `approx_n_unique` holds at most 4 KiB for each group. It estimates the number of distinct values by HyperLogLog
/// (Flajolet and others 2007) with 4,096 registers and the estimator of Ertl (2017): the standard error is 1.04 /
/// sqrt(4096) = 1.63 %, so that 95 of 100 estimates are within 3.3 %. Up to 1,023 values are counted one by one (Heule
/// and others 2013): the count is exact unless two hashes agree in 26 bits, at most once in 128 groups of that size.
/// The estimate depends on the values alone, not on threads or nights.
///
/// ```yaml
/// - aggregate: { by: [store, item], time: date, every: 1w, compute: { sold: { sum: qty }, price: { mean: price } } }
/// ```
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema, Setters)]
#[serde(deny_unknown_fields)]
#[setters(
    fn aggregate(),
    example = r#"aggregate().by(["store_id"]).compute([("total", agg::sum("qty")), ("days", agg::count("*"))])"#
)]
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
    /// New columns by name, each `function: column` (`sum`, `mean`, `count`, `min`, `max`, `std`, `var`, `first`, `last`,
    /// `n_unique`, `approx_n_unique`, `median`) or one of `quantile: { column, q }`, `weighted_mean: { column, weight }`,
    /// `first_by: { column, time }`, `last_by: { column, time }`, `top_k: { column, k }` (a list, most frequent first) and
    /// `list: { column, limit, beyond }` (with `beyond: truncate` a longer list is cut, else it is a fault).
    pub compute: IndexMap<String, AggregateExpression>,
    /// `std` and `var` divide by `n - ddof`.
    #[serde(default = "one")]
    pub ddof: u32,
}

fn one() -> u32 {
    1
}

/// What is computed of a column over a group.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
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
    /// The number of distinct values, estimated by HyperLogLog: exact up to about 1,000 values, then with a standard error
    /// of 1.63 %.
    ApproxNUnique(String),
    /// The median of numbers, exactly; the mean of the two middle values where their number is even.
    Median(String),
    /// A quantile of numbers, exactly.
    Quantile(AggregateQuantile),
    /// The mean of numbers, weighted by another column: the sum of value times weight divided by the sum of the weights.
    WeightedMean(AggregateWeightedMean),
    /// The value of the row with the least time.
    FirstBy(AggregateByTime),
    /// The value of the row with the greatest time.
    LastBy(AggregateByTime),
    /// The most frequent values as a list: by count descending, then by value.
    TopK(AggregateTopK),
    /// The values that are neither null nor NaN as a list, in the order of the data.
    List(AggregateList),
}

/// A quantile of a column over a group.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct AggregateQuantile {
    /// The column.
    pub column: String,
    /// The share of values below it, from 0 to 1. Between two values the result is interpolated linearly.
    pub q: f64,
}

/// A weighted mean of a column over a group.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct AggregateWeightedMean {
    /// The column.
    pub column: String,
    /// The column of weights. Rows without a value or without a weight are ignored. The mean is null if the weights sum to 0.
    pub weight: String,
}

/// The value of a column at the first or last time of a group.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct AggregateByTime {
    /// The column.
    pub column: String,
    /// The column of dates, timestamps or whole numbers. Rows without a value or without a time are ignored. Of several
    /// rows at one time, `first_by` takes the first in the order of the data and `last_by` the last.
    pub time: String,
}

/// The most frequent values of a column over a group.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct AggregateTopK {
    /// The column.
    pub column: String,
    /// The number of values at most, from 1 to 1000. Of values that occur equally often, the least come first.
    pub k: u32,
}

/// The values of a column over a group.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct AggregateList {
    /// The column.
    pub column: String,
    /// The number of values at most, from 1 to 10000.
    pub limit: u32,
    /// What happens to a group with more values.
    #[serde(default)]
    pub beyond: ListOverflow,
}

/// What happens to values beyond the limit of a list.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum ListOverflow {
    /// The run fails.
    #[default]
    Error,
    /// The list holds the first values.
    Truncate,
}

/// Most values of a list of `top_k`.
const TOP_K_MAX: u32 = 1000;

/// Most values of a `list`: the lists of a group are in memory.
const LIST_LIMIT_MAX: u32 = 10_000;

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
            AggregateExpression::Last(column)
            | AggregateExpression::NUnique(column)
            | AggregateExpression::ApproxNUnique(column)
            | AggregateExpression::Median(column)
            | AggregateExpression::Quantile(AggregateQuantile { column, .. }) => column,
            AggregateExpression::WeightedMean(AggregateWeightedMean { column, .. })
            | AggregateExpression::FirstBy(AggregateByTime { column, .. })
            | AggregateExpression::LastBy(AggregateByTime { column, .. })
            | AggregateExpression::TopK(AggregateTopK { column, .. })
            | AggregateExpression::List(AggregateList { column, .. }) => column,
        }
    }

    /// The second column of a function.
    fn other(&self) -> Option<&str> {
        match self {
            AggregateExpression::WeightedMean(AggregateWeightedMean { weight, .. }) => Some(weight),
            AggregateExpression::FirstBy(AggregateByTime { time, .. })
            | AggregateExpression::LastBy(AggregateByTime { time, .. }) => Some(time),
            _ => None,
        }
    }

    /// The function; `other` is the place of its second column among the value columns.
    fn function(&self, ddof: u32, other: usize) -> GroupFunction {
        match self {
            AggregateExpression::Count(column) if column == "*" => GroupFunction::CountRows,
            AggregateExpression::Count(_) => GroupFunction::Count,
            AggregateExpression::Sum(_) => GroupFunction::Sum,
            AggregateExpression::Mean(_) => GroupFunction::Mean,
            AggregateExpression::Min(_) => GroupFunction::Min,
            AggregateExpression::Max(_) => GroupFunction::Max,
            AggregateExpression::Std(_) => GroupFunction::Std { ddof },
            AggregateExpression::Var(_) => GroupFunction::Var { ddof },
            AggregateExpression::First(_) => GroupFunction::First,
            AggregateExpression::Last(_) => GroupFunction::Last,
            AggregateExpression::NUnique(_) => GroupFunction::NUnique,
            AggregateExpression::ApproxNUnique(_) => GroupFunction::ApproxNUnique,
            AggregateExpression::Median(_) => GroupFunction::Quantile { q: 0.5 },
            AggregateExpression::Quantile(AggregateQuantile { q, .. }) => {
                GroupFunction::Quantile { q: *q }
            }
            AggregateExpression::WeightedMean(_) => GroupFunction::WeightedMean { weight: other },
            AggregateExpression::FirstBy(_) => GroupFunction::FirstBy { time: other },
            AggregateExpression::LastBy(_) => GroupFunction::LastBy { time: other },
            AggregateExpression::TopK(AggregateTopK { k, .. }) => GroupFunction::TopK { k: *k },
            AggregateExpression::List(AggregateList { limit, beyond, .. }) => GroupFunction::List {
                limit: *limit,
                truncate: *beyond == ListOverflow::Truncate,
            },
        }
    }

    /// The fault of a number outside of its range.
    fn range_fault(&self, name: &str) -> Option<Fault> {
        let (key, number, most) = match self {
            AggregateExpression::Quantile(AggregateQuantile { q, .. })
                if !(0.0..=1.0).contains(q) =>
            {
                return Some(bad_value(format!(
                    "`q: {q}` of `{name}` is not from 0 to 1"
                )));
            }
            AggregateExpression::TopK(AggregateTopK { k, .. }) => ("k", *k, TOP_K_MAX),
            AggregateExpression::List(AggregateList { limit, .. }) => {
                ("limit", *limit, LIST_LIMIT_MAX)
            }
            _ => return None,
        };
        let is_bad = !(1..=most).contains(&number);
        is_bad.then(|| {
            bad_value(format!(
                "`{key}: {number}` of `{name}` is not from 1 to {most}"
            ))
        })
    }

    /// The fault of a second column of a type that the function does not take.
    fn other_fault(&self, field: &Field) -> Option<Fault> {
        let data_type = field.data_type();
        let is_time = matches!(
            data_type,
            DataType::Date32 | DataType::Date64 | DataType::Timestamp(..)
        );
        let (fits, what) = match self {
            AggregateExpression::WeightedMean(_) => (data_type.is_numeric(), "a number"),
            _ => (
                is_time || data_type.is_integer(),
                "a date, a timestamp or a whole number",
            ),
        };
        let message = || {
            format!(
                "`{}` is {}, not {what}",
                field.name(),
                type_words(data_type)
            )
        };
        (!fits).then(|| Fault::new(codes::COLUMN_TYPE, message()).column(field.name()))
    }

    fn needs_numbers(&self) -> bool {
        matches!(
            self,
            AggregateExpression::Sum(_)
                | AggregateExpression::Mean(_)
                | AggregateExpression::Std(_)
                | AggregateExpression::Var(_)
                | AggregateExpression::Median(_)
                | AggregateExpression::Quantile(_)
                | AggregateExpression::WeightedMean(_)
        )
    }
}

impl ConfiguredTransform for Aggregate {
    const NAME: &'static str = "aggregate";
}

impl Transform for Aggregate {
    fn bind(&self, scope: &BindScope<'_>) -> Result<Vec<PlanOp>> {
        let ResolvedAggregate { by, time, computed } = self.resolve(scope)?;
        let key = |name: &str, data_type: &DataType, bucket| {
            (
                name.to_owned(),
                GroupKey {
                    data_type: logical_type(data_type),
                    bucket,
                },
            )
        };
        let keys = by
            .iter()
            .map(|(name, data_type)| key(name, data_type, None));
        let keys = keys.chain(
            time.iter()
                .map(|(name, data_type, bucket)| key(name, data_type, Some(*bucket))),
        );
        let (mut inputs, keys): (Vec<String>, Vec<GroupKey>) = keys.unzip();
        let mut fields: Vec<Field> = inputs
            .iter()
            .zip(&keys)
            .map(|(name, key)| Field::new(name, key.data_type.clone(), true))
            .collect();
        let mut values: IndexMap<String, DataType> = IndexMap::new();
        let mut results = Vec::new();
        for ResolvedResult {
            name,
            compute,
            data_type,
            other,
        } in computed
        {
            let mut place = |column: &str, data_type| {
                values
                    .insert_full(column.to_owned(), logical_type(data_type))
                    .0
            };
            let value = match compute == AggregateExpression::Count("*".to_owned()) {
                true => 0,
                false => place(compute.column(), &data_type),
            };
            let other = compute
                .other()
                .zip(other.as_ref())
                .map_or(0, |(column, data_type)| place(column, data_type));
            let function = compute.function(self.ddof, other);
            fields.push(Field::new(
                name,
                function.result_type(&logical_type(&data_type)),
                !function.is_count(),
            ));
            results.push(GroupResult { function, value });
        }
        inputs.extend(values.keys().cloned());
        let spec = Arc::new(GroupBy {
            keys,
            values: values.into_values().collect(),
            results,
        });
        Ok(vec![PlanOp::Gather(GatherOp {
            others: Vec::new(),
            alone: false,
            schema: Arc::new(Schema::new(fields)),
            lower: GatherBy::GroupBy(GroupByOp { spec, inputs }),
            query: None,
        })])
    }
}

impl Aggregate {
    /// Checks names and types.
    fn resolve(&self, scope: &BindScope<'_>) -> Result<ResolvedAggregate> {
        if self.compute.is_empty() {
            return Err(bad_value("`compute` is empty"));
        }
        let mut faults: Vec<Fault> = self
            .by
            .iter()
            .filter_map(|key| scope.field(key).err())
            .collect();
        let time = match (&self.time, &self.every) {
            (Some(time), Some(every)) => {
                let field = scope.field(time)?;
                if !matches!(
                    field.data_type(),
                    DataType::Timestamp(..) | DataType::Date32
                ) {
                    let message = format!(
                        "`{time}` is {}, not a date or timestamp",
                        type_words(field.data_type())
                    );
                    faults.push(Fault::new(codes::COLUMN_TYPE, message).column(time));
                }
                let seconds = parse_bucket_length(every)?;
                if *field.data_type() == DataType::Date32 && seconds % DAY != 0 {
                    faults.push(bad_value(format!(
                        "`{time}` holds dates, which `every: {every}` does not divide"
                    )));
                }
                let origin = if every.ends_with('w') {
                    FIRST_MONDAY
                } else {
                    0
                };
                Some((
                    time.clone(),
                    field.data_type().clone(),
                    time_bucket(field.data_type(), seconds, origin),
                ))
            }
            (None, None) => None,
            _ => return Err(bad_value("`every` and `time` go together")),
        };
        let mut computed = Vec::new();
        for (name, compute) in &self.compute {
            if self.by.contains(name) || self.time.as_ref() == Some(name) {
                faults.push(Fault::new(
                    codes::COLUMN_CLASH,
                    format!("two columns would be called `{name}`"),
                ));
            }
            faults.extend(compute.range_fault(name));
            let mut result = ResolvedResult {
                name: name.clone(),
                compute: compute.clone(),
                data_type: DataType::Null,
                other: None,
            };
            if *compute == AggregateExpression::Count("*".to_owned()) {
                computed.push(result);
                continue;
            }
            match compute.other().map(|other| scope.field(other)) {
                Some(Err(fault)) => faults.push(fault),
                Some(Ok(field)) => {
                    faults.extend(compute.other_fault(field));
                    result.other = Some(field.data_type().clone());
                }
                None => {}
            }
            match scope.field(compute.column()) {
                Err(fault) => faults.push(fault),
                Ok(field) if compute.needs_numbers() && !field.data_type().is_numeric() => {
                    let message = format!(
                        "`{}` is {}, not a number",
                        field.name(),
                        type_words(field.data_type())
                    );
                    faults.push(Fault::new(codes::COLUMN_TYPE, message).column(field.name()));
                }
                Ok(field) => computed.push(ResolvedResult {
                    data_type: field.data_type().clone(),
                    ..result
                }),
            }
        }
        if let Some(fault) = Fault::combine(faults) {
            return Err(fault);
        }
        let typed = |key: &String| Ok((key.clone(), scope.field(key)?.data_type().clone()));
        let by = self.by.iter().map(typed).collect::<Result<_>>()?;
        Ok(ResolvedAggregate { by, time, computed })
    }
}

/// Seconds of a day.
const DAY: i64 = 86_400;

/// 1970-01-05, in seconds.
const FIRST_MONDAY: i64 = 4 * DAY;

/// A length of time in seconds.
fn parse_bucket_length(text: &str) -> Result<i64> {
    let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let parsed = digits
        .parse::<i32>()
        .ok()
        .filter(|count| *count > 0)
        .and_then(|count| {
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

/// The buckets in ticks of a column.
fn time_bucket(data_type: &DataType, seconds: i64, origin: i64) -> TimeBucket {
    let per_second = match data_type {
        DataType::Timestamp(TimeUnit::Millisecond, _) => 1_000,
        DataType::Timestamp(TimeUnit::Microsecond, _) => 1_000_000,
        DataType::Timestamp(TimeUnit::Nanosecond, _) => 1_000_000_000,
        _ => 1,
    };
    let ticks = |seconds: i64| match data_type {
        DataType::Date32 => i128::from(seconds / DAY),
        _ => i128::from(seconds) * per_second,
    };
    TimeBucket {
        length: ticks(seconds),
        origin: ticks(origin),
    }
}

/// The checked configuration.
struct ResolvedAggregate {
    /// Names and types.
    by: Vec<(String, DataType)>,
    /// The column that buckets divide.
    time: Option<(String, DataType, TimeBucket)>,
    computed: Vec<ResolvedResult>,
}

/// A new column with the types of the columns that it is computed of.
struct ResolvedResult {
    name: String,
    compute: AggregateExpression,
    data_type: DataType,
    other: Option<DataType>,
}
