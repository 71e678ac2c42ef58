//! `aggregate`: one row for each group.

use std::sync::Arc;

use arrow::datatypes::{DataType, Field, Schema};
use forebay_model::{
    CalendarSpan, ColumnClock, DAY_NANOSECONDS, Fault, GroupBy, GroupFunction, GroupKey,
    GroupResult, LENGTH_HINT, Result, TimeBucket, TimeLength, business_days_hint, codes,
    logical_type, tick_nanoseconds, type_words,
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
/// `var` are `float64`. `median`, `quantile`, `weighted_mean` and `weighted_quantile` are exact, too. `first`, `last` and
/// `list` go by the order of the data. `first_by` and `last_by` go by time, and by the order of the data among rows of one
/// time. Without keys and `every` there is one row, of empty data too. Takes a pass of its own, whose memory grows with the
/// number of groups, for `n_unique`, `median`, `quantile`, `weighted_quantile` and `top_k` of distinct values in groups; it
/// spills.
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
    /// `weighted_quantile: { column, weight, q }`, `first_by: { column, time }`, `last_by: { column, time }`,
    /// `top_k: { column, k }` (a list, most frequent first) and `list: { column, limit, beyond }` (with
    /// `beyond: truncate` a longer list is cut, else it is a fault).
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
    /// A quantile of numbers, weighted by another column, exactly.
    WeightedQuantile(AggregateWeightedQuantile),
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

/// A weighted quantile of a column over a group: the least value up to which at least the share `q` of the weight lies, as
/// numpy's `quantile` with `weights` and `method="inverted_cdf"` has it. Shares are compared without rounding.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct AggregateWeightedQuantile {
    /// The column.
    pub column: String,
    /// The column of weights. Rows without a value or without a weight are ignored, and so are weights of 0; a weight that is
    /// negative, infinite, below 1e-200 or above 1e200 is a fault. Without any other row the quantile is null.
    pub weight: String,
    /// The share of the weight, from 0 to 1. Values are not interpolated.
    pub q: f64,
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
            | AggregateExpression::WeightedQuantile(AggregateWeightedQuantile { column, .. })
            | AggregateExpression::FirstBy(AggregateByTime { column, .. })
            | AggregateExpression::LastBy(AggregateByTime { column, .. })
            | AggregateExpression::TopK(AggregateTopK { column, .. })
            | AggregateExpression::List(AggregateList { column, .. }) => column,
        }
    }

    /// The second column of a function.
    fn other(&self) -> Option<&str> {
        match self {
            AggregateExpression::WeightedMean(AggregateWeightedMean { weight, .. })
            | AggregateExpression::WeightedQuantile(AggregateWeightedQuantile { weight, .. }) => {
                Some(weight)
            }
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
            AggregateExpression::WeightedQuantile(AggregateWeightedQuantile { q, .. }) => {
                GroupFunction::WeightedQuantile {
                    q: *q,
                    weight: other,
                }
            }
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
            | AggregateExpression::WeightedQuantile(AggregateWeightedQuantile { q, .. })
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
        let (fits, expected) = match self {
            AggregateExpression::WeightedMean(_) | AggregateExpression::WeightedQuantile(_) => {
                (data_type.is_numeric(), "a number")
            }
            _ => (
                is_time || data_type.is_integer(),
                "a date, a timestamp or a whole number",
            ),
        };
        if fits {
            return None;
        }
        let message = format!(
            "`{}` is {}, not {expected}",
            field.name(),
            type_words(data_type)
        );
        Some(Fault::new(codes::COLUMN_TYPE, message).column(field.name()))
    }

    fn is_row_count(&self) -> bool {
        matches!(self, AggregateExpression::Count(column) if column == "*")
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
                | AggregateExpression::WeightedQuantile(_)
        )
    }
}

impl ConfiguredTransform for Aggregate {
    const NAME: &'static str = "aggregate";
}

impl Transform for Aggregate {
    fn bind(&self, scope: &BindScope<'_>) -> Result<Vec<PlanOp>> {
        let ResolvedAggregate { by, time, computed } = self.resolve(scope)?;
        let mut columns = GroupColumns::default();
        for (name, data_type) in by {
            columns.add_key(name, &data_type, None);
        }
        if let Some((name, data_type, bucket)) = time {
            columns.add_key(name, &data_type, Some(bucket));
        }
        for result in computed {
            columns.add_result(result, self.ddof);
        }
        let mut inputs = columns.inputs;
        inputs.extend(columns.values.keys().cloned());
        let spec = Arc::new(GroupBy {
            keys: columns.keys,
            value_names: columns.values.keys().cloned().collect(),
            values: columns.values.into_values().collect(),
            results: columns.results,
        });
        Ok(vec![PlanOp::Gather(GatherOp {
            others: Vec::new(),
            alone: false,
            schema: Arc::new(Schema::new(columns.fields)),
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
        let mut faults: Vec<Fault> = Vec::new();
        let mut by = Vec::with_capacity(self.by.len());
        for key in &self.by {
            match scope.field(key) {
                Ok(field) => by.push((key.clone(), field.data_type().clone())),
                Err(fault) => faults.push(fault),
            }
        }
        let time = self.resolve_time(scope, &mut faults)?;
        let mut computed = Vec::new();
        for (name, compute) in &self.compute {
            if self.by.contains(name) || self.time.as_ref() == Some(name) {
                let message = format!("two columns would be called `{name}`");
                faults.push(Fault::new(codes::COLUMN_CLASH, message));
            }
            faults.extend(compute.range_fault(name));
            computed.extend(resolve_result(name, compute, scope, &mut faults));
        }
        match Fault::combine(faults) {
            Some(fault) => Err(fault),
            None => Ok(ResolvedAggregate { by, time, computed }),
        }
    }

    /// The time column and its buckets, where rows are grouped by time.
    fn resolve_time(
        &self,
        scope: &BindScope<'_>,
        faults: &mut Vec<Fault>,
    ) -> Result<Option<(String, DataType, TimeBucket)>> {
        let (time, every) = match (&self.time, &self.every) {
            (Some(time), Some(every)) => (time, every),
            (None, None) => return Ok(None),
            _ => return Err(bad_value("`every` and `time` go together")),
        };
        let data_type = scope.field(time)?.data_type();
        if !matches!(data_type, DataType::Timestamp(..) | DataType::Date32) {
            let message = format!(
                "`{time}` is {}, not a date or timestamp",
                type_words(data_type)
            );
            faults.push(Fault::new(codes::COLUMN_TYPE, message).column(time));
        }
        let bucket = match time_bucket(time, data_type, every) {
            Ok(bucket) => bucket,
            Err(fault) => {
                faults.push(fault);
                NO_BUCKET
            }
        };
        Ok(Some((time.clone(), data_type.clone(), bucket)))
    }
}

/// Checks the columns that a function reads; `None` if one is missing or has a wrong type.
fn resolve_result(
    name: &str,
    compute: &AggregateExpression,
    scope: &BindScope<'_>,
    faults: &mut Vec<Fault>,
) -> Option<ResolvedResult> {
    let mut result = ResolvedResult {
        name: name.to_owned(),
        compute: compute.clone(),
        data_type: DataType::Null,
        other: None,
    };
    if compute.is_row_count() {
        return Some(result);
    }
    if let Some(other) = compute.other() {
        match scope.field(other) {
            Ok(field) => {
                faults.extend(compute.other_fault(field));
                result.other = Some(field.data_type().clone());
            }
            Err(fault) => faults.push(fault),
        }
    }
    let field = match scope.field(compute.column()) {
        Ok(field) => field,
        Err(fault) => {
            faults.push(fault);
            return None;
        }
    };
    result.data_type = field.data_type().clone();
    if compute.needs_numbers() && !result.data_type.is_numeric() {
        let message = format!(
            "`{}` is {}, not a number",
            field.name(),
            type_words(field.data_type())
        );
        faults.push(Fault::new(codes::COLUMN_TYPE, message).column(field.name()));
        return None;
    }
    Some(result)
}

/// 1970-01-05, in days since 1970-01-01.
const FIRST_MONDAY: i64 = 4;

/// The bucket where a fault takes the place of one.
const NO_BUCKET: TimeBucket = TimeBucket::Even {
    length: 1,
    origin: 0,
};

/// The remedy for a length that no buckets have.
fn bucket_hint(every: &str) -> &'static str {
    if business_days_hint(every).is_some() {
        return "business days are no unit, since each calendar has its own: number them with \
                `calendar: { parts: [business_day_number] }`, divide the number in `derive`, and \
                group by the quotient";
    }
    LENGTH_HINT
}

/// The buckets of a column. Those of days and longer begin at midnight in the column's zone; those of hours and shorter
/// are counted from 1970-01-01 00:00 UTC.
fn time_bucket(name: &str, data_type: &DataType, every: &str) -> Result<TimeBucket> {
    let wrong =
        || bad_value(format!("`every: {every}` is not a length of time")).hint(bucket_hint(every));
    let length: TimeLength = every.parse().map_err(|_| wrong())?;
    if length.count() == 0 {
        return Err(wrong());
    }
    let first_day = if length.is_weeks() { FIRST_MONDAY } else { 0 };
    if *data_type == DataType::Date32
        && length
            .nominal_nanoseconds()
            .is_some_and(|nanoseconds| nanoseconds % DAY_NANOSECONDS != 0)
    {
        return Err(bad_value(format!(
            "`{name}` holds dates, which `every: {every}` does not divide"
        )));
    }
    let has_zone = ColumnClock::of(data_type)?.is_some_and(|clock| clock.has_zone());
    let (months, nanoseconds) = length.months_and_nanoseconds();
    let is_calendar = matches!(length, TimeLength::Calendar { .. });
    if months > 0 {
        let span = CalendarSpan::months(months);
        return Ok(TimeBucket::Calendar { span, first_day });
    }
    if is_calendar && has_zone {
        let days = i64::try_from(nanoseconds / DAY_NANOSECONDS).map_err(|_| wrong())?;
        let span = CalendarSpan::days(days);
        return Ok(TimeBucket::Calendar { span, first_day });
    }
    let tick = tick_nanoseconds(data_type).unwrap_or(1);
    if nanoseconds % tick != 0 {
        return Err(bad_value(format!(
            "`every: {every}` is finer than `{name}`, which is {}",
            type_words(data_type)
        )));
    }
    Ok(TimeBucket::Even {
        length: nanoseconds / tick,
        origin: i128::from(first_day) * DAY_NANOSECONDS / tick,
    })
}

/// The checked configuration.
struct ResolvedAggregate {
    /// Names and types.
    by: Vec<(String, DataType)>,
    /// The column that buckets divide.
    time: Option<(String, DataType, TimeBucket)>,
    computed: Vec<ResolvedResult>,
}

/// Columns of the groups, and the columns that they are computed of.
#[derive(Default)]
struct GroupColumns {
    inputs: Vec<String>,
    keys: Vec<GroupKey>,
    fields: Vec<Field>,
    /// Types of the columns that functions read, by name
    values: IndexMap<String, DataType>,
    results: Vec<GroupResult>,
}

impl GroupColumns {
    fn add_key(&mut self, name: String, data_type: &DataType, bucket: Option<TimeBucket>) {
        let data_type = logical_type(data_type);
        self.fields.push(Field::new(&name, data_type.clone(), true));
        self.keys.push(GroupKey { data_type, bucket });
        self.inputs.push(name);
    }

    fn add_result(&mut self, result: ResolvedResult, ddof: u32) {
        let compute = &result.compute;
        let mut value = 0;
        if !compute.is_row_count() {
            value = self.position_of(compute.column(), &result.data_type);
        }
        let mut other = 0;
        if let (Some(column), Some(data_type)) = (compute.other(), &result.other) {
            other = self.position_of(column, data_type);
        }
        let function = compute.function(ddof, other);
        let result_type = function.result_type(&logical_type(&result.data_type));
        let field = Field::new(result.name, result_type, !function.is_count());
        self.fields.push(field);
        self.results.push(GroupResult { function, value });
    }

    /// Functions of one column share its position.
    fn position_of(&mut self, column: &str, data_type: &DataType) -> usize {
        let data_type = logical_type(data_type);
        let (position, _) = self.values.insert_full(column.to_owned(), data_type);
        position
    }
}

/// A new column with the types of the columns that it is computed of.
struct ResolvedResult {
    name: String,
    compute: AggregateExpression,
    data_type: DataType,
    other: Option<DataType>,
}
