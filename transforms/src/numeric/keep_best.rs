//! `keep_best`: the columns that tell most.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, StringArray, new_null_array};
use arrow::compute::{cast, partition};
use arrow::datatypes::{DataType, Field, UInt64Type};
use forebay_analyze::{ColumnCorrelation, ColumnMoments, GroupedMoments};
use forebay_model::{Fault, Finding, Result, codes, type_words};
use forebay_plan::{
    AnalyzerRequest, BindScope, ColumnSelector, ConfiguredTransform, LoweredMap, MapOp, PlanOp,
    Transform, ValueCount, WrittenNulls,
};
use forebay_setters::Setters;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::shared::{KeyedMoments, bad_value, finding_at, keyed_moments};

/// Keeps the columns that vary most or tell most of a label, as `fit_on` shows it. The other ones of `columns` become
/// null.
///
/// In: columns of numbers, and for all scores but the variance and the share of values a label. Out: the same columns
/// and types, since which columns a table has cannot depend on data: boosted trees pass over columns of nulls, and
/// `missing: 0` makes them constants for other models. Values that become null are counted by column, which names the
/// columns.
///
/// Null and NaN do not count, and neither do rows without a label. A column without a score becomes null: it has no
/// values or infinite ones, or it is constant, which gives no score but the variance 0 and the share of values. Where
/// no column has a score, all stay. If none is above `above`, that is a fault. Of equal scores the later column is the
/// better one. State: 6 KiB for each column, or some 300 bytes for each column and class of the label, and with
/// `mutual_information` and `information_value` for each of its values there, spilled beyond the budget. Follows
/// scikit-learn's `VarianceThreshold`, its `SelectKBest` with `f_regression`, `f_classif`, `chi2` and
/// `mutual_info_classif`, and feature_engine's `SelectByInformationValue`.
///
/// With `correlation_max`, columns come from the best on, and one that correlates more with a column that stays becomes
/// null, before `count` counts. A pair of columns is compared in the rows where both have a value; constant columns and
/// those with infinities correlate with none. State: some 3 KiB for each pair, of at most 100 columns. Follows
/// feature_engine's `SmartCorrelatedSelection` by variance or by the correlation with the label.
///
/// ```yaml
/// - keep_best: { columns: [price, latitude, longitude], above: 0 }
/// - keep_best: { columns: [price, latitude, longitude], score: correlation, label: qty, count: 2 }
/// ```
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema, Setters)]
#[serde(deny_unknown_fields)]
#[setters(
    fn keep_best(columns),
    example = r#"keep_best(["red", "blue"]).score(ColumnScore::Anova).label("sort").count(1)"#
)]
pub struct KeepBest {
    /// Columns of numbers.
    pub columns: ColumnSelector,
    /// The number by which columns are compared.
    #[serde(default)]
    pub score: ColumnScore,
    /// The column of labels, which is not among `columns`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub label: Option<String>,
    /// Number of columns that are kept at most.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub count: Option<usize>,
    /// The number that a score has to exceed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub above: Option<f64>,
    /// Greatest absolute value of Pearson's correlation between two columns that stay; from 0 to below 1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub correlation_max: Option<f64>,
}

/// Most columns of which each pair is compared.
const COMPARED_COLUMNS_MAX: usize = 100;

/// A number by which columns are compared.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum ColumnScore {
    /// The variance (ddof 0).
    #[default]
    Variance,
    /// The share of the rows that have a value, from 0 to 1.
    Present,
    /// The absolute value of Pearson's correlation with a label, a number or boolean. The order is that of
    /// scikit-learn's `f_regression`.
    Correlation,
    /// The variance between classes of the label divided by that within them: scikit-learn's `f_classif`.
    Anova,
    /// The statistic of the chi-squared test of the sums by class of the label, for counts of 0 and more:
    /// scikit-learn's `chi2`.
    ChiSquared,
    /// The mutual information of whole numbers and classes of the label, in nats: scikit-learn's `mutual_info_classif`
    /// with `discrete_features=True`. `k_bins` and `bucketize` make whole numbers of others.
    MutualInformation,
    /// The information value of whole numbers for a boolean label, in nats: the sum of `(a - b) ln(a / b)` over the values,
    /// where a and b are a value's shares of the rows of the two classes (Siddiqi, "Credit Risk Scorecards", 2006). Of a
    /// value that one class lacks, half a row more counts in both classes; feature_engine's `SelectByInformationValue`
    /// fails there. `k_bins` and `bucketize` make whole numbers of others.
    InformationValue,
}

impl ConfiguredTransform for KeepBest {
    const NAME: &'static str = "keep_best";
}

impl Transform for KeepBest {
    fn bind(&self, scope: &BindScope<'_>) -> Result<Vec<PlanOp>> {
        self.check_limits()?;
        let fields = scope.numeric_columns(&self.columns)?;
        let label = self.label_field(scope)?;
        let mut names: Vec<String> = Vec::with_capacity(fields.len());
        let mut outputs = Vec::with_capacity(fields.len());
        let mut requests = Vec::with_capacity(fields.len());
        for field in &fields {
            if label.is_some_and(|label| label.name() == field.name()) {
                let message = "`columns` hold the label, which tells everything of itself";
                return Err(bad_value(message).column(field.name()));
            }
            if self.score.needs_whole_numbers() && !field.data_type().is_integer() {
                return Err(not_whole(field));
            }
            names.push(field.name().clone());
            outputs.push(Field::new(field.name(), field.data_type().clone(), true));
            requests.push(self.request(field, label));
        }
        if self.correlation_max.is_some() {
            requests.extend(pair_requests(&fields)?);
        }
        let columns = names.clone();
        let config = self.clone();
        let map = MapOp::fitted(names, outputs, requests, move |findings| {
            let mut scores = Vec::with_capacity(columns.len());
            for (index, column) in columns.iter().enumerate() {
                let score = config.score.of(finding_at(findings, index)?);
                scores.push(score.map_err(|fault| fault.column(column))?);
            }
            let correlations = pair_correlations(findings, columns.len())?;
            let is_best = config.best_columns(&scores, &columns, &correlations)?;
            Ok(LoweredMap::new(move |inputs, _| {
                Ok(without_others(inputs, &is_best))
            }))
        });
        let mut map = map.written_nulls(WrittenNulls::Made("keeps other columns"));
        for index in 0..map.writes.len() {
            map = map.counting(ValueCount {
                before: index,
                after: index,
                ..ValueCount::nulled()
            });
        }
        Ok(vec![PlanOp::Map(map)])
    }
}

impl KeepBest {
    fn check_limits(&self) -> Result<()> {
        if self.count.is_none() && self.above.is_none() && self.correlation_max.is_none() {
            let fault = bad_value("`keep_best` has no `count`, `above` or `correlation_max`");
            return Err(fault.hint("`above: 0` keeps the columns that are not constant"));
        }
        if let Some(limit) = self.correlation_max
            && !(0.0..1.0).contains(&limit)
        {
            let message = format!("`correlation_max: {limit}` is not from 0 to below 1");
            return Err(bad_value(message).field("correlation_max"));
        }
        if self.count == Some(0) {
            return Err(bad_value("`count: 0` keeps no column").field("count"));
        }
        if let Some(above) = self.above
            && !above.is_finite()
        {
            return Err(bad_value(format!("`above: {above}` is not a number")).field("above"));
        }
        Ok(())
    }

    /// The field of the label; `None` for scores that need none.
    fn label_field<'a>(&self, scope: &BindScope<'a>) -> Result<Option<&'a Field>> {
        let Some(name) = &self.label else {
            if !self.score.needs_label() {
                return Ok(None);
            }
            let message = "this `score` compares columns with a `label`, and there is none";
            return Err(Fault::new(codes::MISSING_FIELD, message)
                .field("label")
                .hint("name the column of labels, or leave out `score`"));
        };
        if !self.score.needs_label() {
            let fault = bad_value("this `score` needs no `label`").field("label");
            return Err(fault.hint("set `score: correlation`, or leave out `label`"));
        }
        let label = scope.field(name)?;
        let data_type = label.data_type();
        if self.score == ColumnScore::Correlation {
            if data_type.is_numeric() || *data_type == DataType::Boolean {
                return Ok(Some(label));
            }
            let words = type_words(data_type);
            let message = format!("the label `{name}` is {words}, not a number or boolean");
            return Err(Fault::new(codes::COLUMN_TYPE, message)
                .column(name)
                .hint("`score: anova` compares classes"));
        }
        if self.score == ColumnScore::InformationValue && *data_type != DataType::Boolean {
            let words = type_words(data_type);
            let message = format!("the label `{name}` is {words}, not a boolean");
            return Err(Fault::new(codes::COLUMN_TYPE, message)
                .column(name)
                .hint("`score: mutual_information` compares several classes"));
        }
        if data_type.is_nested() || data_type.is_floating() {
            let words = type_words(data_type);
            let message = format!("the label `{name}` is {words}, which has no classes");
            return Err(Fault::new(codes::COLUMN_TYPE, message)
                .column(name)
                .hint("`score: correlation` compares numbers"));
        }
        Ok(Some(label))
    }

    fn request(&self, field: &Field, label: Option<&Field>) -> AnalyzerRequest {
        let column = field.name();
        let Some(label) = label else {
            return AnalyzerRequest::new(ColumnMoments, [column]);
        };
        let inputs = [column, label.name()];
        if self.score == ColumnScore::Correlation {
            return AnalyzerRequest::new(ColumnCorrelation, inputs);
        }
        let label_type = label.data_type().clone();
        if self.score.needs_whole_numbers() {
            let pairs = GroupedMoments {
                keys: vec![label_type, field.data_type().clone()],
            };
            return AnalyzerRequest::new(pairs, [column, label.name(), column]);
        }
        let classes = GroupedMoments {
            keys: vec![label_type],
        };
        AnalyzerRequest::new(classes, inputs)
    }

    /// True for each of the best columns. `correlations` are those of pairs, and none without a limit.
    fn best_columns(
        &self,
        scores: &[Option<f64>],
        columns: &[String],
        correlations: &[f64],
    ) -> Result<Vec<bool>> {
        let mut ranked: Vec<(usize, f64)> = Vec::with_capacity(scores.len());
        for (index, score) in scores.iter().enumerate() {
            if let Some(score) = score {
                ranked.push((index, *score));
            }
        }
        ranked.sort_by(|a, b| b.1.total_cmp(&a.1).then(b.0.cmp(&a.0)));
        let Some((best_index, best_score)) = ranked.first().copied() else {
            return Ok(vec![true; scores.len()]);
        };
        if let Some(above) = self.above {
            if best_score <= above {
                let best_column = &columns[best_index];
                let message = format!(
                    "no column has a score above {above}: the greatest is {best_score}, \
                     of `{best_column}`"
                );
                let fault = Fault::new(codes::BAD_VALUE, message).field("above");
                return Err(fault.hint("lower `above`, or leave the step out"));
            }
            ranked.retain(|(_, score)| *score > above);
        }
        if let Some(limit) = self.correlation_max {
            let mut distinct: Vec<(usize, f64)> = Vec::with_capacity(ranked.len());
            for candidate in ranked {
                let is_like_another = distinct.iter().any(|(index, _)| {
                    let position = pair_position(*index, candidate.0, columns.len());
                    correlations[position] > limit
                });
                if !is_like_another {
                    distinct.push(candidate);
                }
            }
            ranked = distinct;
        }
        if let Some(count) = self.count {
            ranked.truncate(count);
        }
        let mut is_best = vec![false; scores.len()];
        for (index, _) in ranked {
            is_best[index] = true;
        }
        Ok(is_best)
    }
}

/// Requests for the correlation of each pair of columns, in the order of [`pair_position`].
fn pair_requests(fields: &[&Field]) -> Result<Vec<AnalyzerRequest>> {
    if fields.len() > COMPARED_COLUMNS_MAX {
        let message = format!(
            "`correlation_max` compares each pair of {} columns, of at most {COMPARED_COLUMNS_MAX}",
            fields.len()
        );
        let fault = bad_value(message).field("correlation_max");
        return Err(fault.hint("keep the best of some columns at a time, in several steps"));
    }
    let mut requests = Vec::new();
    for (index, first) in fields.iter().enumerate() {
        for second in &fields[index + 1..] {
            let inputs = [first.name(), second.name()];
            requests.push(AnalyzerRequest::new(ColumnCorrelation, inputs));
        }
    }
    Ok(requests)
}

/// Absolute values of the correlations of pairs, from the findings behind those of scores. A pair without a correlation
/// has 0.
fn pair_correlations(findings: &[Arc<Finding>], score_count: usize) -> Result<Vec<f64>> {
    let mut correlations = Vec::new();
    for index in score_count..findings.len() {
        let correlation = finding_at(findings, index)?.number("correlation")?;
        correlations.push(correlation.unwrap_or(0.0).abs());
    }
    Ok(correlations)
}

/// The position of a pair of different columns among the pairs of `column_count`: those of the first column come first.
fn pair_position(one_column: usize, other_column: usize, column_count: usize) -> usize {
    let first = one_column.min(other_column);
    let second = one_column.max(other_column);
    first * (2 * column_count - first - 1) / 2 + second - first - 1
}

impl ColumnScore {
    fn needs_label(self) -> bool {
        !matches!(self, ColumnScore::Variance | ColumnScore::Present)
    }

    /// True for scores of the values themselves, of which each counts by itself.
    fn needs_whole_numbers(self) -> bool {
        matches!(
            self,
            ColumnScore::MutualInformation | ColumnScore::InformationValue
        )
    }

    /// The score of a column by its finding; `None` if it has none.
    fn of(self, finding: &Finding) -> Result<Option<f64>> {
        let score = match self {
            ColumnScore::Variance => finding.number("var")?,
            ColumnScore::Present => share_of_values(finding)?,
            ColumnScore::Correlation => finding.number("correlation")?.map(f64::abs),
            ColumnScore::Anova => variance_ratio(&classes_of(finding)?),
            ColumnScore::ChiSquared => chi_squared(&classes_of(finding)?)?,
            ColumnScore::MutualInformation => mutual_information(&ClassTable::of(finding)?),
            ColumnScore::InformationValue => information_value(&ClassTable::of(finding)?),
        };
        Ok(score.filter(|score| !score.is_nan()))
    }
}

/// The moments of a column in the rows of each class.
fn classes_of(finding: &Finding) -> Result<Vec<KeyedMoments>> {
    let labels = finding.column("key1")?;
    let mut classes = Vec::new();
    for (row, moments) in keyed_moments(finding)?.into_iter().enumerate() {
        if labels.is_valid(row) {
            classes.push(moments);
        }
    }
    Ok(classes)
}

/// The sum of the values of a class.
fn class_sum(class: &KeyedMoments) -> f64 {
    class.count as f64 * class.mean.unwrap_or_default()
}

/// Number and sum of the values of all classes.
fn totals(classes: &[KeyedMoments]) -> [f64; 2] {
    let mut count = 0.0;
    let mut sum = 0.0;
    for class in classes {
        count += class.count as f64;
        sum += class_sum(class);
    }
    [count, sum]
}

/// The F statistic of the analysis of variance.
fn variance_ratio(classes: &[KeyedMoments]) -> Option<f64> {
    let [count, sum] = totals(classes);
    let class_count = classes.len() as f64;
    if classes.len() < 2 || count <= class_count {
        return None;
    }
    let mean = sum / count;
    let mut between = 0.0;
    let mut within = 0.0;
    for class in classes {
        let rows = class.count as f64;
        let apart = class.mean.unwrap_or_default() - mean;
        between += rows * apart * apart;
        within += rows * class.var.unwrap_or_default();
    }
    // Rounding of the mean would make infinity of a column that is constant.
    if classes.iter().all(|class| class.mean == classes[0].mean) {
        between = 0.0;
    }
    Some(between / (class_count - 1.0) / (within / (count - class_count)))
}

/// The statistic of the chi-squared test of the sums of classes.
fn chi_squared(classes: &[KeyedMoments]) -> Result<Option<f64>> {
    let [count, sum] = totals(classes);
    if classes.is_empty() || sum == 0.0 {
        return Ok(None);
    }
    let mut statistic = 0.0;
    for class in classes {
        if let Some(least) = class.min
            && least < 0.0
        {
            let message = format!("the column holds {least}, and `chi_squared` takes counts");
            return Err(Fault::new(codes::OVERFLOW, message)
                .hint("use `score: anova`, or filter such rows"));
        }
        let expected = sum * class.count as f64 / count;
        let apart = class_sum(class) - expected;
        statistic += apart * apart / expected;
    }
    Ok(Some(statistic))
}

/// The share of rows with a value; `None` without rows.
fn share_of_values(finding: &Finding) -> Result<Option<f64>> {
    let values = finding.number("count")?.unwrap_or(0.0);
    let nulls = finding.number("nulls")?.unwrap_or(0.0);
    let nans = finding.number("nans")?.unwrap_or(0.0);
    let rows = values + nulls + nans;
    Ok((rows > 0.0).then(|| values / rows))
}

/// Rows with a value in a class.
struct ClassValue {
    class: usize,
    /// The place of the value among the texts of the table.
    row: usize,
    rows: f64,
}

/// The rows of each class of a label, and of each value of a column in it.
struct ClassTable {
    class_rows: Vec<f64>,
    /// The values of pairs.
    values: StringArray,
    pairs: Vec<ClassValue>,
}

impl ClassTable {
    /// The table of the moments of each pair of a class and a value.
    fn of(finding: &Finding) -> Result<ClassTable> {
        let labels = finding.column("key1")?;
        let values = cast(finding.column("key2")?, &DataType::Utf8)?;
        let counts = finding.column("count")?.as_primitive::<UInt64Type>();
        let mut table = ClassTable {
            class_rows: Vec::new(),
            values: values.as_string::<i32>().clone(),
            pairs: Vec::new(),
        };
        // The pairs of a class follow each other.
        for range in partition(std::slice::from_ref(labels))?.ranges() {
            if labels.is_null(range.start) {
                continue;
            }
            let class = table.class_rows.len();
            table.class_rows.push(0.0);
            for row in range {
                let rows = counts.value(row) as f64;
                table.class_rows[class] += rows;
                table.pairs.push(ClassValue { class, row, rows });
            }
        }
        Ok(table)
    }
}

/// The mutual information of classes and values; `None` for a constant column.
fn mutual_information(table: &ClassTable) -> Option<f64> {
    let mut value_rows: HashMap<&str, f64> = HashMap::new();
    for pair in &table.pairs {
        let value = table.values.value(pair.row);
        *value_rows.entry(value).or_insert(0.0) += pair.rows;
    }
    if value_rows.len() < 2 {
        return None;
    }
    let rows: f64 = table.class_rows.iter().sum();
    let mut information = 0.0;
    for pair in &table.pairs {
        let value = table.values.value(pair.row);
        let expected = table.class_rows[pair.class] * value_rows[value] / rows;
        information += pair.rows / rows * (pair.rows / expected).ln();
    }
    // Rounding may make a little less than 0 of columns that tell nothing.
    Some(information.max(0.0))
}

/// Rows that count in both classes of a value that one of them lacks.
const LACKING_ROWS: f64 = 0.5;

/// The information value of a column; `None` for a constant column, and without two classes.
fn information_value(table: &ClassTable) -> Option<f64> {
    let [first_rows, second_rows] = table.class_rows[..] else {
        return None;
    };
    // Sums go by the order of values, so that their bits do.
    let mut values: BTreeMap<&str, [f64; 2]> = BTreeMap::new();
    for pair in &table.pairs {
        let rows = values.entry(table.values.value(pair.row)).or_default();
        rows[pair.class] += pair.rows;
    }
    if values.len() < 2 {
        return None;
    }
    let mut information = 0.0;
    for [first, second] in values.into_values() {
        let is_lacking = first == 0.0 || second == 0.0;
        let added_rows = if is_lacking { LACKING_ROWS } else { 0.0 };
        let first_share = (first + added_rows) / first_rows;
        let second_share = (second + added_rows) / second_rows;
        information += (first_share - second_share) * (first_share / second_share).ln();
    }
    Some(information)
}

/// The fault of a column that is not of whole numbers.
fn not_whole(field: &Field) -> Fault {
    let words = type_words(field.data_type());
    let message = format!("`{}` is {words}, not a whole number", field.name());
    Fault::new(codes::COLUMN_TYPE, message)
        .column(field.name())
        .hint("`k_bins` or `bucketize` it before this step")
}

/// The best columns as they are, and nulls for the others.
fn without_others(inputs: &[ArrayRef], is_best: &[bool]) -> Vec<ArrayRef> {
    let mut outputs = Vec::with_capacity(inputs.len());
    for (input, is_best) in inputs.iter().zip(is_best) {
        if *is_best {
            outputs.push(input.clone());
        } else {
            outputs.push(new_null_array(input.data_type(), input.len()));
        }
    }
    outputs
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pairs_follow_each_other() {
        for column_count in 0..9 {
            let mut position = 0;
            for first in 0..column_count {
                for second in first + 1..column_count {
                    assert_eq!(pair_position(first, second, column_count), position);
                    assert_eq!(pair_position(second, first, column_count), position);
                    position += 1;
                }
            }
        }
    }
}
