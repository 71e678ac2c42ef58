//! `profile`: learns what columns hold, and changes nothing.

use arrow::datatypes::{DataType, Field};
use forebay_analyze::{
    ColumnCounts, ColumnMoments, DistinctCount, QuantileRequest, SampledQuantiles, TokenVocabulary, ValueShape,
    VocabularyOrder,
};
use forebay_model::{Result, logical_type};
use forebay_plan::{AnalyzerRequest, BindScope, ColumnSelector, ConfiguredTransform, MapOp, PlanOp, Transform};
use forebay_setters::Setters;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Rank error of quantiles, as a share of the rows. They are exact up to 18,136 rows.
const QUANTILE_ERROR: f64 = 0.02;

/// Quantiles are taken at multiples of one of so many parts.
const QUANTILE_PARTS: usize = 100;

/// Frequent values that are kept of a column of texts. A column with fewer values is counted exactly.
const FREQUENT_VALUES: usize = 100;

/// Learns what columns hold, for `forebay profile` and drift: rows stay as they are.
///
/// In: columns of any type. Out: the same. Learned per column: rows and nulls; of numbers, dates and times also NaN,
/// infinities, zeros, negative values, least, greatest, mean, variance and the quantiles 0, 0.01 to 1 (within 2 % of the
/// rank, exact up to 18,136 rows); of texts and lists the lengths; the number of distinct values (HyperLogLog, 0.8 %); of
/// texts, booleans and integers of one byte the 100 most frequent values with exact counts.
///
/// State: some 650 KiB per numeric column; distinct texts with their counts, spilled beyond the budget.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema, Setters)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "Profile")]
#[setters(fn profile(), example = r#"profile().columns(["price", "qty"])"#)]
pub struct ProfileColumns {
    /// The columns.
    #[serde(default = "all_columns")]
    pub columns: ColumnSelector,
}

fn all_columns() -> ColumnSelector {
    ["*"].into_iter().collect()
}

impl ConfiguredTransform for ProfileColumns {
    const NAME: &'static str = "profile";
}

impl Transform for ProfileColumns {
    fn bind(&self, scope: &BindScope<'_>) -> Result<Vec<PlanOp>> {
        let asks: Vec<AnalyzerRequest> = scope.columns(&self.columns)?.into_iter().flat_map(profile_requests).collect();
        Ok(vec![PlanOp::Map(MapOp::asking(asks))])
    }
}

/// What is asked about a column.
pub(crate) fn profile_requests(field: &Field) -> Vec<AnalyzerRequest> {
    let name = [field.name().as_str()];
    let mut requests = vec![AnalyzerRequest::new(ColumnCounts, name)];
    let data_type = logical_type(field.data_type());
    let is_number = data_type.is_numeric() || data_type.is_temporal() || data_type == DataType::Boolean;
    let is_text = data_type == DataType::Utf8;
    let is_list = matches!(data_type, DataType::List(_) | DataType::LargeList(_) | DataType::FixedSizeList(..));
    if data_type.is_numeric() || is_text || is_list {
        requests.push(AnalyzerRequest::new(ValueShape, name));
    }
    if is_number {
        requests.push(AnalyzerRequest::new(ColumnMoments, name));
    }
    if is_number && data_type != DataType::Boolean {
        let probabilities = (0..=QUANTILE_PARTS).map(|part| part as f64 / QUANTILE_PARTS as f64).collect();
        let ask = QuantileRequest::Probabilities(probabilities);
        requests.push(AnalyzerRequest::new(SampledQuantiles { epsilon: QUANTILE_ERROR, ask }, name));
    }
    if is_number || is_text {
        requests.push(AnalyzerRequest::new(DistinctCount::default(), name));
    }
    if is_text || matches!(data_type, DataType::Boolean | DataType::Int8 | DataType::UInt8) {
        let frequent =
            TokenVocabulary { min_count: 1, top_k: Some(FREQUENT_VALUES), order: VocabularyOrder::CountThenValue };
        requests.push(AnalyzerRequest::new(frequent, name));
    }
    requests
}
