//! Statistics of one column, over everything or for each key, and scaling by them.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, BooleanArray};
use arrow::buffer::BooleanBuffer;
use arrow::datatypes::{DataType, Field, UInt64Type};
use forebay_analyze::{ColumnMoments, GroupedMoments};
use forebay_contract::NumberExpr;
use forebay_model::{Fault, Finding, Result};
use forebay_plan::{AnalyzerRequest, BindScope, LoweredMap, MapOp, PlanOp, RowMark, WrittenNulls};

use super::{
    KeyIndex, doubles, finding_at, float_type, map_doubles, map_doubles_with_row, output_field,
    portable_by_keys,
};

/// Moments of a group of values; `None` where no value was seen, and for moments that rows do not take.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct KeyedMoments {
    pub count: u64,
    pub mean: Option<f64>,
    pub var: Option<f64>,
    pub min: Option<f64>,
    pub max: Option<f64>,
}

/// Scales values by numbers that were made of moments.
pub(crate) trait MomentScaler: Copy + Send + Sync + 'static {
    /// The moments on which scaled values depend; `None` for all.
    const MOMENTS: Option<&'static [&'static str]> = None;

    fn scale(self, x: f64) -> f64;

    /// The computation in terms that exports have
    fn portable(self) -> NumberExpr;
}

/// An operation that scales one column of numbers by its moments, of which `scaler` makes a scaler. A key that was never
/// seen takes `unseen`.
pub(crate) fn scale_by_moments<S: MomentScaler>(
    scope: &BindScope<'_>,
    field: &Field,
    by: &[String],
    suffix: &Option<String>,
    scaler: impl Fn(&KeyedMoments) -> Result<S> + Send + Sync + 'static,
    unseen: S,
) -> Result<PlanOp> {
    let column = field.name().clone();
    let scaler =
        move |learned: &KeyedMoments| scaler(learned).map_err(|fault: Fault| fault.column(&column));
    let output = output_field(field, suffix, float_type(field.data_type()));
    if by.is_empty() {
        return Ok(PlanOp::Map(scale_all(field, output, scaler)));
    }
    let mut key_types = Vec::with_capacity(by.len());
    let mut reads = vec![field.name().clone()];
    for key in by {
        key_types.push(scope.field(key)?.data_type().clone());
        reads.push(key.clone());
    }
    let scaled = scale_by_key(reads, key_types, output, scaler, unseen);
    let nulls = WrittenNulls::Of(field.name().clone());
    Ok(PlanOp::Map(scaled.written_nulls(nulls)))
}

/// Scales a column by the moments of all of its values.
fn scale_all<S: MomentScaler>(
    field: &Field,
    output: Field,
    scaler: impl Fn(&KeyedMoments) -> Result<S> + Send + Sync + 'static,
) -> MapOp {
    let reads = vec![field.name().clone()];
    let out = output.data_type().clone();
    let mut request = AnalyzerRequest::new(ColumnMoments, reads.clone());
    if let Some(moments) = S::MOMENTS {
        request = request.row_columns(moments.iter().copied());
    }
    MapOp::fitted(reads, [output], [request], move |findings| {
        let moments = keyed_moments(finding_at(findings, 0)?)?;
        let scaler = scaler(&moments.first().copied().unwrap_or_default())?;
        let out = out.clone();
        let scaled =
            LoweredMap::unary(move |column| map_doubles(column, &out, |value| scaler.scale(value)));
        Ok(scaled.portable_number(scaler.portable()))
    })
}

/// Scales a column by the moments of the values with the same key. `reads` are the column and its keys. Values whose key
/// was never seen are counted.
fn scale_by_key<S: MomentScaler>(
    reads: Vec<String>,
    key_types: Vec<DataType>,
    output: Field,
    scaler: impl Fn(&KeyedMoments) -> Result<S> + Send + Sync + 'static,
    unseen: S,
) -> MapOp {
    let out = output.data_type().clone();
    let keys = key_types.len();
    let mut request = AnalyzerRequest::new(GroupedMoments { keys: key_types }, reads.clone());
    if let Some(moments) = S::MOMENTS {
        let mut columns: Vec<String> = (1..=keys).map(|key| format!("key{key}")).collect();
        columns.extend(moments.iter().map(|moment| (*moment).to_owned()));
        request = request.row_columns(columns);
    }
    let scaled = MapOp::fitted(reads, [output], [request], move |findings| {
        let finding = finding_at(findings, 0)?;
        let key_columns = finding.table().columns()[..key_column_count(finding)].to_vec();
        let index = KeyIndex::new(&key_columns, |_, _| Ok(()))?;
        let mut scalers: Vec<S> = Vec::new();
        for moments in keyed_moments(finding)? {
            scalers.push(scaler(&moments)?);
        }
        let keyed = Arc::new(KeyedScalers {
            index,
            scalers,
            unseen,
            out: out.clone(),
        });
        let scalers_of_keys = keyed.clone();
        let scaled = LoweredMap::new(move |inputs, _| keyed.scale(inputs));
        Ok(scaled.portable_within_limits(move || {
            let mut expressions = Vec::with_capacity(scalers_of_keys.scalers.len());
            for scaler in &scalers_of_keys.scalers {
                expressions.push(scaler.portable());
            }
            portable_by_keys(&key_columns, expressions, scalers_of_keys.unseen.portable())
        }))
    });
    scaled.marking([RowMark::Unknown])
}

/// Scalers of all keys that were learned.
struct KeyedScalers<S> {
    index: KeyIndex,
    /// By the number of the key in the index.
    scalers: Vec<S>,
    /// Scaler of keys that were not learned.
    unseen: S,
    out: DataType,
}

impl<S: MomentScaler> KeyedScalers<S> {
    /// Scales a column, which comes before its keys, and marks the values of keys that were not learned.
    fn scale(&self, inputs: &[ArrayRef]) -> Result<Vec<ArrayRef>> {
        let Some((column, keys)) = inputs.split_first() else {
            return Err(Fault::internal("a scaling by key received no column"));
        };
        let key_numbers = self.index.find(keys)?;
        let scaled = map_doubles_with_row(column, &self.out, |row, value| {
            let key_number = key_numbers.get(row).copied().flatten();
            self.scaler(key_number).scale(value)
        })?;
        let rows = key_numbers.len();
        let marks = BooleanBuffer::collect_bool(rows, |row| key_numbers[row].is_none());
        let marks = BooleanArray::new(marks, column.logical_nulls());
        Ok(vec![scaled, Arc::new(marks)])
    }

    fn scaler(&self, key_number: Option<u32>) -> S {
        let scaler = key_number.and_then(|number| self.scalers.get(number as usize));
        scaler.copied().unwrap_or(self.unseen)
    }
}

/// The key columns of a finding come first and are called `key1`, `key2`, ...
fn key_column_count(finding: &Finding) -> usize {
    finding
        .table()
        .schema_ref()
        .fields()
        .iter()
        .take_while(|field| field.name().starts_with("key"))
        .count()
}

/// The moments of each group of a finding of [`GroupedMoments`].
pub(crate) fn keyed_moments(finding: &Finding) -> Result<Vec<KeyedMoments>> {
    let counts = finding.table().column_by_name("count");
    let counts = counts.map(|counts| counts.as_primitive::<UInt64Type>());
    let mean = moments_named(finding, "mean")?;
    let var = moments_named(finding, "var")?;
    let min = moments_named(finding, "min")?;
    let max = moments_named(finding, "max")?;
    let mut groups = Vec::with_capacity(finding.rows());
    for row in 0..finding.rows() {
        groups.push(KeyedMoments {
            count: counts.map_or(0, |counts| counts.value(row)),
            mean: mean[row],
            var: var[row],
            min: min[row],
            max: max[row],
        });
    }
    Ok(groups)
}

/// One moment of each group; the finding may lack those that rows do not take.
fn moments_named(finding: &Finding, name: &str) -> Result<Vec<Option<f64>>> {
    match finding.table().column_by_name(name) {
        Some(column) => Ok(doubles(column)?.iter().collect()),
        None => Ok(vec![None; finding.rows()]),
    }
}
