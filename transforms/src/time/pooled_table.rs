//! Moments of each group of series at each time.

use std::ops::Range;

use arrow::array::{Array, ArrayRef, AsArray, Float64Array, Int64Array, UInt32Array, UInt64Array};
use arrow::compute::{partition, take};
use arrow::datatypes::{DataType, Field, UInt64Type};
use forebay_analyze::GroupedMoments;
use forebay_model::{Fault, Finding, Result, canonical_keys, codes, ticks, type_words};
use forebay_plan::{AnalyzerRequest, BindScope};

use super::length::TimeColumn;
use crate::shared::{KeyIndex, doubles};

/// The rows of one group at one time.
#[derive(Debug, Clone, Copy)]
pub(crate) struct PooledCell {
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
pub(crate) struct PooledTable {
    /// Absent where all rows are one group.
    index: Option<KeyIndex>,
    starts: Vec<usize>,
    pub cells: Vec<PooledCell>,
}

/// Asks for the moments of a column for each combination of keys and time.
pub(crate) fn ask_moments(
    scope: &BindScope<'_>,
    field: &Field,
    keys: &[Field],
    time: &TimeColumn,
) -> Result<AnalyzerRequest> {
    let mut types = Vec::with_capacity(keys.len() + 1);
    let mut inputs = vec![field.name().clone()];
    for key in keys {
        if key.data_type().is_nested() {
            let message = format!(
                "`{}` is {}, which cannot tell groups apart",
                key.name(),
                type_words(key.data_type())
            );
            return Err(Fault::new(codes::COLUMN_TYPE, message).column(key.name()));
        }
        types.push(key.data_type().clone());
        inputs.push(key.name().clone());
    }
    scope.field(field.name())?;
    types.push(time.data_type.clone());
    inputs.push(time.name.clone());
    Ok(AnalyzerRequest::new(GroupedMoments { keys: types }, inputs))
}

/// Columns of a finding, of which each row is a cell.
struct CellColumns {
    times: Int64Array,
    counts: UInt64Array,
    means: Float64Array,
    vars: Float64Array,
    mins: Float64Array,
    maxs: Float64Array,
    /// True if sums are rounded
    whole: bool,
}

impl CellColumns {
    fn cell(&self, row: usize) -> PooledCell {
        let count = self.counts.value(row);
        let mean = self.means.value(row);
        let mut sum = count as f64 * mean;
        if self.whole {
            sum = sum.round();
        }
        PooledCell {
            time: self.times.value(row),
            count,
            sum,
            mean,
            var: self.vars.value(row),
            min: self.mins.value(row),
            max: self.maxs.value(row),
        }
    }
}

/// Rows of each group, which follow each other.
fn group_ranges(keys: &[ArrayRef], rows: usize) -> Result<Vec<Range<usize>>> {
    if keys.is_empty() {
        return Ok(std::iter::once(0..rows).collect());
    }
    let mut canonical = Vec::with_capacity(keys.len());
    for key in keys {
        canonical.push(canonical_keys(key)?);
    }
    Ok(partition(&canonical)?.ranges())
}

impl PooledTable {
    /// Groups by the first `keys` of the finding's columns; its `time`-th holds the times. Rows
    /// with a null in it, or between the keys and it, are left out. Sums of `whole` numbers are
    /// rounded to what they are.
    pub fn new(finding: &Finding, keys: usize, time: usize, whole: bool) -> Result<Self> {
        let table = finding.table();
        let rows = table.num_rows();
        let Some(time_column) = table.columns().get(time) else {
            return Err(Fault::internal("a finding has no times"));
        };
        let columns = CellColumns {
            times: ticks(time_column)?,
            counts: finding
                .column("count")?
                .as_primitive::<UInt64Type>()
                .clone(),
            means: doubles(finding.column("mean")?)?,
            vars: doubles(finding.column("var")?)?,
            mins: doubles(finding.column("min")?)?,
            maxs: doubles(finding.column("max")?)?,
            whole,
        };
        let (keys, others) = table.columns().split_at(keys);
        let others = &others[..others.len().min(time + 1 - keys.len())];
        let ranges = group_ranges(keys, rows)?;
        let mut starts = Vec::with_capacity(ranges.len() + 1);
        let mut cells = Vec::with_capacity(rows);
        for range in &ranges {
            let start = cells.len();
            starts.push(start);
            for row in range.clone() {
                if others.iter().all(|column| column.is_valid(row)) {
                    cells.push(columns.cell(row));
                }
            }
            // Keys between the group's and the time keep their order where times are equal.
            cells[start..].sort_by_key(|cell: &PooledCell| cell.time);
        }
        starts.push(cells.len());
        let mut index = None;
        if !keys.is_empty() {
            let firsts: UInt32Array = ranges.iter().map(|range| range.start as u32).collect();
            let mut first_keys = Vec::with_capacity(keys.len());
            for key in keys {
                first_keys.push(take(key, &firsts, None)?);
            }
            index = Some(KeyIndex::new(&first_keys, |_, _| Ok(()))?);
        }
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

    /// The ranges of the cells of all groups.
    pub fn ranges(&self) -> impl Iterator<Item = Range<usize>> + '_ {
        self.starts.windows(2).map(|ends| ends[0]..ends[1])
    }

    /// The range of a group's cells.
    pub fn range(&self, group: Option<u32>) -> Range<usize> {
        let Some(group) = group else {
            return 0..0;
        };
        match self.starts.get(group as usize..) {
            Some([start, end, ..]) => *start..*end,
            _ => 0..0,
        }
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
