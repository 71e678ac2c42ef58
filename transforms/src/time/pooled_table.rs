//! What was learned of each group of series at each time.

use arrow::array::{Array, ArrayRef, AsArray, UInt32Array};
use arrow::compute::{partition, take};
use arrow::datatypes::{DataType, Field, UInt64Type};
use forebay_analyze::GroupedMoments;
use forebay_model::{Fault, Finding, Result, canonical_keys, codes};
use forebay_plan::{AnalyzerRequest, BindScope};

use super::length::{TimeColumn, ticks_of};
use crate::shared::{KeyIndex, doubles};

/// The rows of one group at one time.
#[derive(Debug, Clone, Copy)]
pub(super) struct PooledCell {
    pub time: i64,
    /// Values that are neither null nor NaN; at least one.
    pub count: u64,
    pub sum: f64,
    pub mean: f64,
    /// Divided by the count.
    pub var: f64,
    pub min: f64,
    pub max: f64,
}

/// Cells by group, each group's in order of time.
pub(super) struct PooledTable {
    /// Absent where all rows are one group.
    index: Option<KeyIndex>,
    starts: Vec<usize>,
    pub cells: Vec<PooledCell>,
}

/// Asks for the moments of a column for each combination of keys and time.
pub(super) fn ask_moments(
    scope: &BindScope<'_>,
    field: &Field,
    keys: &[Field],
    time: &TimeColumn,
) -> Result<AnalyzerRequest> {
    for key in keys {
        if key.data_type().is_nested() {
            let message = format!(
                "`{}` is {}, which cannot tell groups apart",
                key.name(),
                key.data_type()
            );
            return Err(Fault::new(codes::COLUMN_TYPE, message).column(key.name()));
        }
    }
    scope.field(field.name())?;
    let types = keys
        .iter()
        .map(|key| key.data_type().clone())
        .chain([time.data_type.clone()])
        .collect();
    let inputs = [field.name()]
        .into_iter()
        .chain(keys.iter().map(Field::name))
        .chain([&time.name])
        .cloned();
    Ok(AnalyzerRequest::new(
        GroupedMoments { keys: types },
        inputs.collect::<Vec<String>>(),
    ))
}

impl PooledTable {
    /// Groups by the first `keys` of the finding's columns; its `time`-th holds the times. Rows
    /// with a null in it, or between the keys and it, are left out. Sums of `whole` numbers are
    /// rounded to what they are.
    pub fn new(finding: &Finding, keys: usize, time: usize, whole: bool) -> Result<Self> {
        let table = finding.table();
        let rows = table.num_rows();
        let column = table
            .columns()
            .get(time)
            .ok_or_else(|| Fault::internal("a finding has no times"))?;
        let times = ticks_of(column)?;
        let counts = finding
            .column("count")?
            .as_primitive::<UInt64Type>()
            .clone();
        let number = |name: &str| doubles(finding.column(name)?);
        let (mean, var, min, max) = (
            number("mean")?,
            number("var")?,
            number("min")?,
            number("max")?,
        );
        let (keys, others) = table.columns().split_at(keys);
        let others = &others[..others.len().min(time + 1 - keys.len())];
        let told = |row: &usize| others.iter().all(|column| column.is_valid(*row));
        let ranges = match keys {
            [] => std::iter::once(0..rows).collect(),
            keys => {
                let keys = keys
                    .iter()
                    .map(canonical_keys)
                    .collect::<Result<Vec<_>>>()?;
                partition(&keys)?.ranges()
            }
        };
        let mut starts = Vec::with_capacity(ranges.len() + 1);
        let mut cells = Vec::with_capacity(rows);
        for range in &ranges {
            let start = cells.len();
            starts.push(start);
            for row in range.clone().filter(told) {
                let (count, mean) = (counts.value(row), mean.value(row));
                let sum = count as f64 * mean;
                let sum = if whole { sum.round() } else { sum };
                let (min, max, var) = (min.value(row), max.value(row), var.value(row));
                cells.push(PooledCell {
                    time: times.value(row),
                    count,
                    sum,
                    mean,
                    var,
                    min,
                    max,
                });
            }
            // Keys between the group's and the time keep their order where times are equal.
            cells[start..].sort_by_key(|cell: &PooledCell| cell.time);
        }
        starts.push(cells.len());
        let firsts: UInt32Array = ranges.iter().map(|range| range.start as u32).collect();
        let index = match keys {
            [] => None,
            keys => {
                let keys = keys
                    .iter()
                    .map(|key| Ok(take(key, &firsts, None)?))
                    .collect::<Result<Vec<ArrayRef>>>()?;
                Some(KeyIndex::new(&keys, |_, _| Ok(()))?)
            }
        };
        Ok(PooledTable {
            index,
            starts,
            cells,
        })
    }

    /// The group of each row, by its key columns; `None` where it was never seen.
    pub fn find_groups(&self, keys: &[ArrayRef], rows: usize) -> Result<Vec<Option<u32>>> {
        match &self.index {
            Some(index) => index.find(keys),
            None => Ok(vec![Some(0); rows]),
        }
    }

    /// Where a group's cells lie.
    pub fn range(&self, group: Option<u32>) -> std::ops::Range<usize> {
        let group = group
            .map(|group| group as usize)
            .filter(|group| group + 1 < self.starts.len());
        group.map_or(0..0, |group| self.starts[group]..self.starts[group + 1])
    }
}

/// Key columns by name.
pub(super) fn key_fields(scope: &BindScope<'_>, names: &[String]) -> Result<Vec<Field>> {
    names
        .iter()
        .map(|name| scope.field(name).cloned())
        .collect()
}

/// A key column that the step itself writes.
pub(super) fn slot_key_field(name: &str) -> Field {
    Field::new(name, DataType::Int64, true)
}
