//! A second version beside the served one: its answers are compared, or given to a share of the keys.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

use arrow::array::{Array, ArrayRef, AsArray, BooleanArray, RecordBatch, UInt64Array};
use arrow::compute::kernels::cmp::distinct;
use arrow::compute::{cast, concat_batches, take_record_batch};
use arrow::datatypes::{DataType, Float64Type, SchemaRef};
use arrow::util::display::{ArrayFormatter, FormatOptions};
use serde_json::{Value, json};
use xxhash_rust::xxh3::xxh3_64;

use super::error::ServeError;
use super::tensor::flat_items;
use super::versions::VersionSet;

/// The second version.
pub(super) struct ShadowVersions {
    pub versions: VersionSet,
    /// Share of the keys that it answers, from 0 to 1.
    pub share: f64,
    report: Mutex<ShadowReport>,
}

/// Differences so far.
#[derive(Default)]
struct ShadowReport {
    rows: u64,
    failed_requests: u64,
    columns: BTreeMap<String, ColumnDifferences>,
}

#[derive(Default)]
struct ColumnDifferences {
    rows: u64,
    greatest: f64,
}

impl ShadowVersions {
    pub fn new(versions: VersionSet, share: f64) -> ShadowVersions {
        ShadowVersions {
            versions,
            share,
            report: Mutex::default(),
        }
    }

    /// Counts the differences between two answers to the same rows. Returns the differing values.
    pub fn compare(&self, served: &RecordBatch, shadow: &Result<RecordBatch, ServeError>) -> u64 {
        let mut report = self.report.lock().unwrap_or_else(PoisonError::into_inner);
        let shadow = match shadow {
            Ok(shadow) if shadow.num_rows() == served.num_rows() => shadow,
            _ => {
                report.failed_requests += 1;
                return 0;
            }
        };
        report.rows += served.num_rows() as u64;
        let mut values = 0;
        for (field, column) in served.schema_ref().fields().iter().zip(served.columns()) {
            let rows = match shadow.column_by_name(field.name()) {
                Some(other) => differing_rows(column, other),
                None => vec![true; column.len()].into(),
            };
            let count = rows.true_count() as u64;
            if count == 0 {
                continue;
            }
            values += count;
            let differences = report.columns.entry(field.name().clone()).or_default();
            differences.rows += count;
            if let Some(other) = shadow.column_by_name(field.name()) {
                differences.greatest = differences.greatest.max(greatest_difference(column, other));
            }
        }
        values
    }

    /// The differences so far.
    pub fn card(&self) -> Value {
        let report = self.report.lock().unwrap_or_else(PoisonError::into_inner);
        let columns = report.columns.iter().map(|(name, differences)| {
            let entry = json!({
                "rows": differences.rows,
                "greatest_difference": differences.greatest,
            });
            (name.clone(), entry)
        });
        json!({
            "versions": self.versions.card(),
            "share": self.share,
            "compared_rows": report.rows,
            "failed_requests": report.failed_requests,
            "differing_columns": columns.collect::<serde_json::Map<_, _>>(),
        })
    }
}

/// Rows whose values differ; null equals null, and NaN equals NaN.
fn differing_rows(first: &ArrayRef, second: &ArrayRef) -> BooleanArray {
    if let Ok(differing) = distinct(first, second) {
        return differing;
    }
    // Types without a comparison are compared as texts.
    let first = value_texts(first).unwrap_or_default();
    let second = value_texts(second).unwrap_or_default();
    let pairs = first.iter().zip(&second);
    pairs.map(|(first, second)| Some(first != second)).collect()
}

fn value_texts(column: &ArrayRef) -> Option<Vec<String>> {
    let options = FormatOptions::default();
    let formatter = ArrayFormatter::try_new(column, &options).ok()?;
    let rows = 0..column.len();
    Some(rows.map(|row| formatter.value(row).to_string()).collect())
}

/// Greatest difference of two columns of numbers, or of lists of them; 0 for others.
fn greatest_difference(first: &ArrayRef, second: &ArrayRef) -> f64 {
    let first_lists = first.as_fixed_size_list_opt();
    let second_lists = second.as_fixed_size_list_opt();
    if let (Some(first), Some(second)) = (first_lists, second_lists) {
        if first.value_length() != second.value_length() {
            return 0.0;
        }
        return match (flat_items(first), flat_items(second)) {
            (Ok(first), Ok(second)) => greatest_difference(&first, &second),
            _ => 0.0,
        };
    }
    if !first.data_type().is_numeric() || !second.data_type().is_numeric() {
        return 0.0;
    }
    let Ok(first) = cast(first, &DataType::Float64) else {
        return 0.0;
    };
    let Ok(second) = cast(second, &DataType::Float64) else {
        return 0.0;
    };
    let pairs = first.as_primitive::<Float64Type>().iter();
    let pairs = pairs.zip(second.as_primitive::<Float64Type>().iter());
    pairs
        .filter_map(|(first, second)| Some((first? - second?).abs()))
        .fold(0.0, f64::max)
}

/// Rows of a request that each version answers.
pub(super) struct SplitRows {
    pub served: RecordBatch,
    pub shadow: RecordBatch,
    /// For each row of the request, its row among those of the served version, then those of the other.
    order: UInt64Array,
}

impl SplitRows {
    /// Divides rows by a hash of their keys: a key always goes to the same version. None where all rows go to the served
    /// one.
    pub fn new(rows: &RecordBatch, keys: &[String], share: f64) -> Option<SplitRows> {
        let hashes = key_hashes(rows, keys)?;
        let bound = (share * u64::MAX as f64) as u64;
        let mut served = Vec::new();
        let mut shadow = Vec::new();
        for (row, hash) in hashes.iter().enumerate() {
            let list = if *hash < bound {
                &mut shadow
            } else {
                &mut served
            };
            list.push(row as u64);
        }
        if shadow.is_empty() {
            return None;
        }
        let mut order = vec![0; rows.num_rows()];
        for (position, row) in served.iter().chain(&shadow).enumerate() {
            order[*row as usize] = position as u64;
        }
        Some(SplitRows {
            served: take_record_batch(rows, &UInt64Array::from(served)).ok()?,
            shadow: take_record_batch(rows, &UInt64Array::from(shadow)).ok()?,
            order: order.into(),
        })
    }

    /// The answers in the order of the request, where all rows are the second version's.
    pub fn join_shadow(
        &self,
        shadow: RecordBatch,
        outputs: &SchemaRef,
    ) -> Result<RecordBatch, ServeError> {
        let names = outputs.fields().iter();
        let columns = names.filter_map(|field| shadow.schema_ref().index_of(field.name()).ok());
        let columns: Vec<usize> = columns.collect();
        shadow
            .project(&columns)
            .map_err(|error| ServeError::internal(error.to_string()))
    }

    /// The answers in the order of the request.
    pub fn join(
        &self,
        served: RecordBatch,
        shadow: RecordBatch,
    ) -> Result<RecordBatch, ServeError> {
        let broken = |error: arrow::error::ArrowError| {
            ServeError::internal(format!(
                "the answers of two versions do not fit together: {error}"
            ))
        };
        let schema = served.schema();
        let columns = schema.fields().iter();
        let columns = columns.map(|field| shadow.schema_ref().index_of(field.name()));
        let shadow = shadow
            .project(&columns.collect::<Result<Vec<_>, _>>().map_err(broken)?)
            .map_err(broken)?;
        let answers = concat_batches(&schema, [&served, &shadow]).map_err(broken)?;
        take_record_batch(&answers, &self.order as &dyn Array).map_err(broken)
    }
}

/// Hash of the keys of each row; none where the rows lack a key.
fn key_hashes(rows: &RecordBatch, keys: &[String]) -> Option<Vec<u64>> {
    if keys.is_empty() {
        return None;
    }
    let options = FormatOptions::default().with_null("\0null");
    let columns: Option<Vec<&ArrayRef>> = keys.iter().map(|key| rows.column_by_name(key)).collect();
    let columns = columns?;
    let formatters = columns
        .iter()
        .map(|column| ArrayFormatter::try_new(*column, &options));
    let formatters: Vec<ArrayFormatter<'_>> = formatters.collect::<Result<_, _>>().ok()?;
    let mut text = String::new();
    let mut hashes = Vec::with_capacity(rows.num_rows());
    for row in 0..rows.num_rows() {
        text.clear();
        for formatter in &formatters {
            use std::fmt::Write;
            // Writing to a text cannot fail; a value that cannot be shown has an empty text.
            let _ = write!(text, "{}\u{1f}", formatter.value(row));
        }
        hashes.push(xxh3_64(text.as_bytes()));
    }
    Some(hashes)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow::array::{FixedSizeListArray, Float32Array, Int32Array, Int64Array, StringArray};
    use arrow::datatypes::Field;

    use super::*;

    fn rows(items: Vec<i64>) -> RecordBatch {
        let stores: StringArray = items
            .iter()
            .map(|item| Some(format!("s{}", item % 7)))
            .collect();
        RecordBatch::try_from_iter([
            ("store", Arc::new(stores) as ArrayRef),
            ("item", Arc::new(Int64Array::from(items)) as ArrayRef),
        ])
        .unwrap()
    }

    #[test]
    fn forecasts_are_compared_step_by_step() {
        let lists = |steps: Vec<Option<f32>>| -> ArrayRef {
            let item = Arc::new(Field::new("item", DataType::Float32, true));
            let steps = Arc::new(Float32Array::from(steps));
            Arc::new(FixedSizeListArray::try_new(item, 2, steps, None).unwrap())
        };
        let served = lists(vec![Some(1.0), Some(2.0), Some(3.0), None]);
        let other = lists(vec![Some(1.0), Some(4.5), Some(3.0), None]);
        assert_eq!(
            differing_rows(&served, &other),
            BooleanArray::from(vec![true, false])
        );
        assert_eq!(greatest_difference(&served, &other), 2.5);
        assert_eq!(differing_rows(&served, &served).true_count(), 0);
    }

    #[test]
    fn a_key_goes_to_one_version_whatever_its_company() {
        let keys = ["store".to_owned(), "item".to_owned()];
        let all = rows((0..10_000).collect());
        let split = SplitRows::new(&all, &keys, 0.05).unwrap();
        let share = split.shadow.num_rows() as f64 / 10_000.0;
        assert!((0.04..0.06).contains(&share), "{share}");
        let chosen: Vec<i64> = split.shadow["item"]
            .as_primitive::<arrow::datatypes::Int64Type>()
            .values()
            .to_vec();
        for item in [chosen[0], chosen[17]] {
            let alone = SplitRows::new(&rows(vec![item]), &keys, 0.05).unwrap();
            assert_eq!(alone.served.num_rows(), 0);
            // A narrower type of the same key has the same hash.
            let narrow: ArrayRef = Arc::new(Int32Array::from(vec![item as i32]));
            let store = rows(vec![item]).column(0).clone();
            let narrow = RecordBatch::try_from_iter([("store", store), ("item", narrow)]).unwrap();
            assert!(SplitRows::new(&narrow, &keys, 0.05).is_some());
        }
        let joined = split
            .join(split.served.clone(), split.shadow.clone())
            .unwrap();
        assert_eq!(joined, all);
        assert!(SplitRows::new(&all, &["nowhere".to_owned()], 0.5).is_none());
    }
}
