//! Numbers that each series has, as hidden columns of its rows.

use std::sync::Arc;

use arrow::array::{ArrayRef, BooleanArray, Float64Array};
use arrow::datatypes::{DataType, Field};
use forebay_analyze::{SeriesFit, SeriesStatistic};
use forebay_contract::{KeyNumbers, PortableMap};
use forebay_model::{Fault, Finding, Result, codes};
use forebay_plan::{AnalyzerRequest, BindScope, LoweredMap, MapOp, PlanOp, RowMark};

use super::TargetTransform;
use crate::shared::{KeyIndex, doubles, finding_at, portable_keys};
use crate::time::time_column;

/// Numbers of each series, in the order of a finding, and those of series that were not learned.
pub(super) struct SeriesNumbers {
    pub of_series: Vec<[f64; 2]>,
    pub of_others: [f64; 2],
}

/// The columns that tell the series of a step apart.
pub(super) fn series_keys<'a>(
    scope: &'a BindScope<'_>,
    step: &'a TargetTransform,
) -> Result<&'a Vec<String>> {
    let keys = step.keys.as_ref().or(scope.series.keys.as_ref());
    keys.ok_or_else(|| {
        let message = "`target` needs the columns that tell series apart";
        Fault::new(codes::MISSING_FIELD, message)
            .hint("declare `keys` at the source or here; `keys: []` makes all rows one series")
    })
}

/// The types of key columns.
pub(super) fn key_types(scope: &BindScope<'_>, keys: &[String]) -> Result<Vec<DataType>> {
    let mut types = Vec::with_capacity(keys.len());
    for key in keys {
        types.push(scope.field(key)?.data_type().clone());
    }
    Ok(types)
}

/// Requests a statistic of the values of each series in order of time.
pub(super) fn request_fit(
    scope: &BindScope<'_>,
    step: &TargetTransform,
    field: &Field,
    statistic: SeriesStatistic,
) -> Result<AnalyzerRequest> {
    let keys = series_keys(scope, step)?;
    let time = time_column(scope, "target", &step.time)?;
    let analyzer = SeriesFit {
        keys: key_types(scope, keys)?,
        time: time.data_type,
        statistic,
    };
    let inputs = [field.name(), &time.name].into_iter().chain(keys).cloned();
    let inputs: Vec<String> = inputs.collect();
    Ok(AnalyzerRequest::new(analyzer, inputs))
}

/// The numbers of a finding of [`SeriesFit`]. Series that were not learned take the median of each number.
pub(super) fn fitted_numbers(finding: &Finding) -> Result<SeriesNumbers> {
    let first = doubles(finding.column("value1")?)?;
    let second = doubles(finding.column("value2")?)?;
    let pairs = first.values().iter().zip(second.values());
    Ok(SeriesNumbers {
        of_series: pairs.map(|(first, second)| [*first, *second]).collect(),
        of_others: [median(first.values()), median(second.values())],
    })
}

/// The lower median; 0 of nothing.
fn median(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let middle = sorted.len().saturating_sub(1) / 2;
    sorted.get(middle).copied().unwrap_or(0.0)
}

/// Writes numbers of each row's series into hidden columns, one or two, and counts the rows of series that were not
/// learned.
pub(super) fn series_columns(
    keys: &[String],
    names: &[String],
    request: AnalyzerRequest,
    numbers: impl Fn(&Finding) -> Result<SeriesNumbers> + Send + Sync + 'static,
) -> PlanOp {
    let writes: Vec<Field> = names
        .iter()
        .map(|name| Field::new(name, DataType::Float64, false))
        .collect();
    let key_count = keys.len();
    let written = names.len();
    let map = MapOp::fitted(keys.to_vec(), writes, [request], move |findings| {
        let finding = finding_at(findings, 0)?;
        let numbers = Arc::new(numbers(finding)?);
        let numbers_of_keys = numbers.clone();
        let keys = key_columns(finding, key_count);
        let index = index_of_series(&keys)?;
        let look_up = LoweredMap::new(move |columns, rows| {
            let series = match &index {
                Some(index) => index.find(columns)?,
                None => vec![Some(0); rows],
            };
            let numbers_of = |series: &Option<u32>| {
                let of_series = series.and_then(|series| numbers.of_series.get(series as usize));
                of_series.copied().unwrap_or(numbers.of_others)
            };
            let mut outputs: Vec<ArrayRef> = Vec::with_capacity(written + 1);
            for number in 0..written {
                let values = series.iter().map(|series| numbers_of(series)[number]);
                outputs.push(Arc::new(Float64Array::from_iter_values(values)));
            }
            let marks: Vec<bool> = series.iter().map(Option::is_none).collect();
            outputs.push(Arc::new(BooleanArray::from(marks)));
            Ok(outputs)
        });
        Ok(look_up.portable_within_limits(move || {
            let mut maps = Vec::with_capacity(written);
            for number in 0..written {
                let numbers = numbers_of_keys.portable(&keys, number)?;
                maps.push(PortableMap::KeyNumbers(numbers));
            }
            Ok(PortableMap::Columns(maps))
        }))
    });
    PlanOp::Map(map.marking([RowMark::Unknown]))
}

impl SeriesNumbers {
    /// One of the numbers of each series, in terms that exports have.
    fn portable(&self, keys: &[ArrayRef], number: usize) -> Result<KeyNumbers> {
        let numbers: Vec<f64> = self
            .of_series
            .iter()
            .map(|numbers| numbers[number])
            .collect();
        let of_others = self.of_others[number];
        if keys.is_empty() {
            return Ok(KeyNumbers {
                keys: Vec::new(),
                default: numbers.first().copied().unwrap_or(of_others),
                numbers,
            });
        }
        Ok(KeyNumbers {
            keys: portable_keys(keys)?,
            numbers,
            default: of_others,
        })
    }
}

/// The key columns of a finding, which come first.
fn key_columns(finding: &Finding, key_count: usize) -> Vec<ArrayRef> {
    let columns = finding.table().columns().iter().take(key_count);
    columns.cloned().collect()
}

/// Finds the row of a finding for the keys of a row; `None` where all rows are one series.
fn index_of_series(keys: &[ArrayRef]) -> Result<Option<KeyIndex>> {
    if keys.is_empty() {
        return Ok(None);
    }
    Ok(Some(KeyIndex::new(keys, |_, _| Ok(()))?))
}
