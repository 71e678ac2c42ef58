//! `profile`: learns what columns hold, and changes nothing.

use arrow::datatypes::{DataType, Field};
use forebay_analyze::{
    CategoryAssociation, ColumnCorrelation, ColumnCounts, ColumnExamples, ColumnMoments,
    DistinctCount, PROFILE_FREQUENT_VALUES, PROFILE_QUANTILE_PARTS, QuantileRequest,
    SampledQuantiles, SeriesShape, TokenVocabulary, ValueShape, VocabularyOrder,
};
use forebay_model::{ColumnClock, Fault, Result, codes, logical_type};
use forebay_plan::{
    AnalyzerRequest, BindScope, ColumnSelector, ConfiguredTransform, MapOp, PlanOp, Transform,
};
use forebay_setters::Setters;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Rank error of quantiles, as a share of the rows. They are exact up to 18,136 rows.
const QUANTILE_ERROR: f64 = 0.02;

/// Learns what columns hold, for `forebay profile` and drift: rows stay as they are.
///
/// In: columns of any type. Out: the same. Learned per column: rows and nulls; of numbers, dates and times also NaN,
/// infinities, zeros, negative values, least, greatest, mean, variance and the quantiles 0, 0.01 to 1 (within 2 % of the
/// rank, exact up to 18,136 rows); of texts and lists the lengths; the number of distinct values of numbers, texts,
/// booleans, dates and times (HyperLogLog, 0.8 %) and five examples; of lists and binary values five examples: the first
/// elements, or the first bytes in hexadecimal; of texts, booleans and integers of one byte the 100 most frequent values
/// with exact counts.
///
/// With `pairs`, also learned for each two of these columns: Pearson's correlation where both are numbers, Cramér's V where
/// both are categories (texts, booleans, integers of one byte). Rows where either is missing do not count.
///
/// With `series`, also learned of rows with a time and keys: how many series there are, their lengths, the period (months
/// where all times of each series lie whole months apart), the gaps, and how many are intermittent (1.32 periods a demand
/// and more; Syntetos, Boylan and Croston, 2005).
///
/// State: some 650 KiB per numeric column; distinct texts with their counts, pairs of categories, and some 150 bytes per
/// series, spilled beyond the budget.
///
/// ```yaml
/// - profile: { columns: [qty, price] }
/// ```
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema, Setters)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "Profile")]
#[setters(fn profile(), example = r#"profile().columns(["price", "qty"])"#)]
pub struct ProfileColumns {
    /// The columns.
    #[serde(default = "all_columns")]
    pub columns: ColumnSelector,
    /// Columns of which each two are compared: at most 40.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pairs: Option<ColumnSelector>,
    /// Whether and how series are measured. Rows whose source declares no `time` and no `keys`, or that no longer have
    /// these columns, have no series.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub series: Option<ProfileSeries>,
}

/// How series are measured.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ProfileSeries {
    /// The column of numbers whose values other than 0 are demands; without it, each row is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub demand: Option<String>,
}

/// Columns that are compared with each other at most: their pairs are 780.
const PAIRED_COLUMNS_MAX: usize = 40;

fn all_columns() -> ColumnSelector {
    ["*"].into_iter().collect()
}

impl ConfiguredTransform for ProfileColumns {
    const NAME: &'static str = "profile";
}

impl Transform for ProfileColumns {
    fn bind(&self, scope: &BindScope<'_>) -> Result<Vec<PlanOp>> {
        let mut asks: Vec<AnalyzerRequest> = scope
            .columns(&self.columns)?
            .into_iter()
            .flat_map(profile_requests)
            .collect();
        if let Some(pairs) = &self.pairs {
            asks.extend(pair_requests(&scope.columns(pairs)?)?);
        }
        if let Some(series) = &self.series {
            asks.extend(series_requests(series, scope)?);
        }
        Ok(vec![PlanOp::Map(MapOp::asking(asks))])
    }
}

fn is_category(data_type: &DataType) -> bool {
    matches!(
        data_type,
        DataType::Utf8 | DataType::Boolean | DataType::Int8 | DataType::UInt8
    )
}

/// Requests about each pair of columns.
fn pair_requests(columns: &[&Field]) -> Result<Vec<AnalyzerRequest>> {
    let mut paired: Vec<(&String, DataType)> = Vec::new();
    for field in columns {
        let data_type = logical_type(field.data_type());
        if data_type.is_numeric() || is_category(&data_type) {
            paired.push((field.name(), data_type));
        }
    }
    if paired.len() > PAIRED_COLUMNS_MAX {
        let message = format!("{} columns have too many pairs", paired.len());
        let hint = format!("name the columns to compare, at most {PAIRED_COLUMNS_MAX}");
        return Err(Fault::new(codes::LIMIT, message).hint(hint));
    }
    let mut requests = Vec::new();
    for (number, (first_name, first_type)) in paired.iter().enumerate() {
        for (second_name, second_type) in &paired[number + 1..] {
            let names = [*first_name, *second_name];
            if first_type.is_numeric() && second_type.is_numeric() {
                requests.push(AnalyzerRequest::new(ColumnCorrelation, names));
            }
            if is_category(first_type) && is_category(second_type) {
                let types = [first_type.clone(), second_type.clone()];
                requests.push(AnalyzerRequest::new(CategoryAssociation { types }, names));
            }
        }
    }
    Ok(requests)
}

/// The requests about series, if the rows have some.
fn series_requests(series: &ProfileSeries, scope: &BindScope<'_>) -> Result<Vec<AnalyzerRequest>> {
    let Some(time) = &scope.series.time else {
        return Ok(Vec::new());
    };
    let Some(keys) = &scope.series.keys else {
        return Ok(Vec::new());
    };
    if keys.is_empty() {
        return Ok(Vec::new());
    }
    for name in keys.iter().chain([time]) {
        if scope.schema.field_with_name(name).is_err() {
            return Ok(Vec::new());
        }
    }
    let time_type = logical_type(scope.field(time)?.data_type());
    if !time_type.is_temporal() && !time_type.is_integer() {
        return Ok(Vec::new());
    }
    let mut types = Vec::with_capacity(keys.len());
    for key in keys {
        types.push(logical_type(scope.field(key)?.data_type()));
    }
    if let Some(demand) = &series.demand {
        scope.numeric_columns(&[demand.as_str()].into_iter().collect())?;
    }
    let mut columns = vec![time.clone()];
    columns.extend(series.demand.clone());
    columns.extend(keys.iter().cloned());
    let mut requests = Vec::new();
    let clock = ColumnClock::of(&time_type)?;
    let has_uneven_days = clock.is_some_and(|clock| !clock.has_even_days());
    // Days are equally long by the clocks of a zone alone, and hours are not.
    let kinds: &[bool] = if has_uneven_days {
        &[false, true]
    } else {
        &[false]
    };
    for in_local_time in kinds {
        let analyzer = SeriesShape {
            keys: types.clone(),
            has_value: series.demand.is_some(),
            in_local_time: *in_local_time,
        };
        requests.push(AnalyzerRequest::new(analyzer, columns.iter().cloned()));
    }
    Ok(requests)
}

/// Requests about a column.
pub(crate) fn profile_requests(field: &Field) -> Vec<AnalyzerRequest> {
    let name = [field.name().as_str()];
    let mut requests = vec![AnalyzerRequest::new(ColumnCounts, name)];
    let data_type = logical_type(field.data_type());
    let is_number =
        data_type.is_numeric() || data_type.is_temporal() || data_type == DataType::Boolean;
    let is_text = data_type == DataType::Utf8;
    let is_list = matches!(
        data_type,
        DataType::List(_) | DataType::LargeList(_) | DataType::FixedSizeList(..)
    );
    if data_type.is_numeric() || is_text || is_list {
        requests.push(AnalyzerRequest::new(ValueShape, name));
    }
    if is_number {
        requests.push(AnalyzerRequest::new(ColumnMoments, name));
    }
    if is_number && data_type != DataType::Boolean {
        let probabilities = (0..=PROFILE_QUANTILE_PARTS)
            .map(|part| part as f64 / PROFILE_QUANTILE_PARTS as f64)
            .collect();
        let ask = QuantileRequest::Probabilities(probabilities);
        requests.push(AnalyzerRequest::new(
            SampledQuantiles {
                epsilon: QUANTILE_ERROR,
                ask,
            },
            name,
        ));
    }
    if is_number || is_text {
        requests.push(AnalyzerRequest::new(DistinctCount::default(), name));
    }
    if is_list || matches!(data_type, DataType::Binary | DataType::FixedSizeBinary(_)) {
        requests.push(AnalyzerRequest::new(ColumnExamples, name));
    }
    if is_category(&data_type) {
        let frequent = TokenVocabulary {
            min_count: 1,
            top_k: Some(PROFILE_FREQUENT_VALUES),
            order: VocabularyOrder::CountThenValue,
        };
        requests.push(AnalyzerRequest::new(frequent, name));
    }
    requests
}
