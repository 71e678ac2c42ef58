//! The seasonal index of groups of series.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, Float64Array};
use arrow::datatypes::{DataType, Field};
use forebay_model::{Result, TimeDistance, ticks};
use forebay_plan::{BindScope, LoweredMap, MapOp, WrittenNulls};

use super::length::TimeColumn;
use super::pooled_table::{PooledTable, ask_moments, key_fields, slot_key_field};
use crate::shared::finding_at;

/// Values and their sum up to each cell of each group.
struct RunningTotals {
    groups: PooledTable,
    totals: Vec<(f64, f64)>,
}

impl RunningTotals {
    fn new(groups: PooledTable) -> Self {
        let mut totals = vec![(0.0, 0.0); groups.cells.len()];
        let mut group = 0;
        let mut range = groups.range(Some(group));
        let mut running = (0.0, 0.0);
        for (index, cell) in groups.cells.iter().enumerate() {
            while index >= range.end {
                group += 1;
                range = groups.range(Some(group));
                running = (0.0, 0.0);
            }
            running = (running.0 + cell.count as f64, running.1 + cell.sum);
            totals[index] = running;
        }
        RunningTotals { groups, totals }
    }

    /// The mean of a group's values at or before a time.
    fn mean_until(&self, group: Option<u32>, until: i64) -> Option<f64> {
        let range = self.groups.range(group);
        let cells = &self.groups.cells[range.clone()];
        let seen = cells.partition_point(|cell| cell.time <= until);
        let (count, sum) = self.totals.get(range.start + seen.checked_sub(1)?)?;
        Some(sum / count)
    }
}

/// Writes the mean of the group's values in the row's slot divided by that of all its values, both
/// at or before `t - gap`; null where there is none. Rows without a slot do not count.
pub(super) fn pooled_index(
    scope: &BindScope<'_>,
    field: &Field,
    parents: &[String],
    slot: &str,
    time: &TimeColumn,
    gap: TimeDistance,
    output: &str,
) -> Result<MapOp> {
    let mut keys = key_fields(scope, parents)?;
    keys.push(slot_key_field(slot));
    let ask = ask_moments(scope, field, &keys, time)?;
    let back = time.steps_back(gap)?;
    let reads: Vec<String> = keys
        .iter()
        .map(|key| key.name().clone())
        .chain([time.name.clone()])
        .collect();
    let keys = keys.len();
    let whole = field.data_type().is_integer();
    let map = MapOp::fitted(
        reads,
        [Field::new(output, DataType::Float64, true)],
        [ask],
        move |findings| {
            let finding = finding_at(findings, 0)?;
            let slots = RunningTotals::new(PooledTable::new(finding, keys, keys, whole)?);
            let all_slots = RunningTotals::new(PooledTable::new(finding, keys - 1, keys, whole)?);
            Ok(LoweredMap::new(move |inputs, rows| {
                let of_slot = slots.groups.find_groups(&inputs[..keys], rows)?;
                let of_all = all_slots.groups.find_groups(&inputs[..keys - 1], rows)?;
                let times = ticks(&inputs[keys])?;
                let index = |row: usize| {
                    if times.is_null(row) || inputs[keys - 1].is_null(row) {
                        return None;
                    }
                    let until = back.before(times.value(row));
                    let index = slots.mean_until(of_slot[row], until)?
                        / all_slots.mean_until(of_all[row], until)?;
                    index.is_finite().then_some(index)
                };
                Ok(vec![
                    Arc::new((0..rows).map(index).collect::<Float64Array>()) as ArrayRef,
                ])
            }))
        },
    );
    let nulls = WrittenNulls::Made("has too few values at the start of the data");
    Ok(map.data_age(time.behind(gap)).written_nulls(nulls))
}
