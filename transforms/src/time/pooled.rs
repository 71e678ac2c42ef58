//! `pooled`: windows over many series at once.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, Float64Array, Int64Array};
use arrow::datatypes::{DataType, Field};
use forebay_model::Result;
use forebay_plan::{
    BindScope, ColumnSelector, ConfiguredTransform, LoweredMap, MapOp, PlanOp, Transform,
    WrittenNulls,
};
use forebay_setters::Setters;
use hashbrown::HashMap;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::length::{LengthSpec, ticks_of};
use super::pooled_sample::{PooledSample, statistic_of_cells};
use super::pooled_table::{PooledCell, PooledTable, ask_moments, key_fields};
use super::rolling::one;
use super::windows::{require_not_empty, time_column};
use super::{ClosedWindow, FloatType, SeriesStatistic};
use crate::shared::{bad_value, finding_at, to_float_type};

/// Statistics of a window of time over all series, or over those of the row's group.
///
/// In: columns of numbers. Out, for each length and statistic: `<column>_<by>_<statistic>_<over>`,
/// such as `qty_category_mean_28d`, `qty_all_sum_7d` without `by`, and with `aggregate`
/// `qty_category_sum_mean_28d`; without `over` `qty_category_expanding_mean`. Numbers are `dtype`,
/// `count` and `n_unique` `int64`. Rows are aggregated for each group and time first, and windows
/// are ranges of time, `(t - gap - over, t - gap]`, so that the result does not depend on how many
/// rows a time has, in which order they come or how they are divided; without a gap the rows of
/// the same time count, those that come later too. By default a statistic is of all rows' values:
/// `mean`, `sum`, `count`, `std`, `var`, `min`, `max`. With `aggregate` it is of one number for
/// each time, and may be any. To split a window by a column's value, put the column into `by`.
///
/// Null and NaN are no values; null in `by` is a group of its own; a group that was never seen has
/// an empty window, and a row without a time gets null. State: a table of some 60 bytes for each
/// group and time that occurs, and some 300 while it is made, spilled beyond the budget. It is
/// learned from the rows that the step is fitted on: an artifact that is applied uses the table
/// that it was made with, and knows nothing of the rows that it is applied to.
///
/// ```yaml
/// - pooled: { columns: [qty], compute: [mean], by: [category], over: [28d], gap: 1d }
/// ```
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema, Setters)]
#[serde(deny_unknown_fields)]
#[setters(
    fn pooled(columns),
    example = r#"pooled(["qty"]).compute([SeriesStatistic::Mean]).by(["category"]).over(["28d"]).gap("1d")"#
)]
pub struct PooledWindow {
    /// Columns of numbers.
    pub columns: ColumnSelector,
    /// Which statistics.
    pub compute: Vec<SeriesStatistic>,
    /// The columns that tell groups apart; all rows are one group where left out.
    #[serde(default)]
    pub by: Vec<String>,
    /// How long windows are, lengths of time; everything up to `t - gap` where left out.
    #[serde(default)]
    pub over: Vec<LengthSpec>,
    /// How far before the row windows end, a length of time: a feature then uses data at or before
    /// `t - gap` only.
    #[serde(default)]
    pub gap: Option<LengthSpec>,
    /// Makes one number of a group's rows of each time first: the total demand of a day, say.
    #[serde(default)]
    pub aggregate: Option<TimeAggregate>,
    /// Which ends belong to the window.
    #[serde(default)]
    pub closed: ClosedWindow,
    /// How many values it takes (with `aggregate`, times); 1 where left out, 0 for `count`.
    #[serde(default)]
    pub min_periods: Option<u64>,
    /// `std` and `var` divide by `n - ddof`.
    #[serde(default = "one")]
    pub ddof: u8,
    /// The event-time column, where the source does not declare it.
    #[serde(default)]
    pub time: Option<String>,
    /// The type of computed numbers.
    #[serde(default)]
    pub dtype: FloatType,
}

/// What becomes of a group's values of one time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[allow(missing_docs)] // The names say it.
pub enum TimeAggregate {
    Sum,
    Mean,
    Min,
    Max,
    Count,
}

impl TimeAggregate {
    fn cell_value(self, cell: &PooledCell) -> f64 {
        match self {
            TimeAggregate::Sum => cell.sum,
            TimeAggregate::Mean => cell.mean,
            TimeAggregate::Min => cell.min,
            TimeAggregate::Max => cell.max,
            TimeAggregate::Count => cell.count as f64,
        }
    }

    fn name_prefix(self) -> &'static str {
        match self {
            TimeAggregate::Sum => "sum_",
            TimeAggregate::Mean => "mean_",
            TimeAggregate::Min => "min_",
            TimeAggregate::Max => "max_",
            TimeAggregate::Count => "count_",
        }
    }
}

impl ConfiguredTransform for PooledWindow {
    const NAME: &'static str = "pooled";
}

/// One output.
#[derive(Clone)]
struct PooledOutput {
    statistic: SeriesStatistic,
    /// In ticks; absent where windows have no beginning.
    over: Option<i64>,
    unit: f64,
    data_type: DataType,
}

/// What a window is and what is made of it.
#[derive(Clone, Copy)]
struct PooledEvaluator {
    gap: i64,
    closed: ClosedWindow,
    aggregate: Option<TimeAggregate>,
    min_periods: Option<u64>,
    ddof: u8,
}

impl Transform for PooledWindow {
    fn bind(&self, scope: &BindScope<'_>) -> Result<Vec<PlanOp>> {
        require_not_empty(&self.compute, "compute")?;
        let time = time_column(scope, Self::NAME, &self.time)?;
        let gap = self
            .gap
            .filter(|gap| !gap.is_zero())
            .map_or(Ok(0), |gap| gap.ticks(&time))?;
        let fields = scope.numeric_columns(&self.columns)?;
        let keys = key_fields(scope, &self.by)?;
        let group = if self.by.is_empty() {
            "all".to_owned()
        } else {
            self.by.join("_")
        };
        let aggregate = self.aggregate.map_or("", TimeAggregate::name_prefix);
        let mut outputs = Vec::new();
        let mut names = Vec::new();
        for length in self
            .over
            .iter()
            .copied()
            .map(Some)
            .chain(self.over.is_empty().then_some(None))
        {
            for statistic in self.compute.iter().copied() {
                statistic.of(self.ddof, None)?;
                if length.is_some_and(LengthSpec::is_zero) {
                    return Err(bad_value("a window of no length holds nothing"));
                }
                if self.aggregate.is_none() && !follows_from_moments(statistic) {
                    let message = format!(
                        "`{}` of all rows' values is not kept for each time",
                        statistic.snake()
                    );
                    return Err(bad_value(message)
                        .hint("say what is made of the rows of a time: `aggregate: sum`"));
                }
                let over = length.map(|length| length.ticks(&time)).transpose()?;
                let unit = match length.or(self.gap) {
                    Some(length) if statistic.measures() => length.unit().ticks(&time)? as f64,
                    None if statistic.measures() => {
                        let message = format!(
                            "`{}` of everything before needs a unit of time",
                            statistic.snake()
                        );
                        return Err(bad_value(message)
                            .hint("give a `gap`: `0d` has no length, and says days"));
                    }
                    _ => 1.0,
                };
                let data_type = statistic.data_type(&self.dtype.data_type(), self.dtype, false);
                names.push(match length {
                    Some(length) => format!("{group}_{aggregate}{}_{length}", statistic.word()),
                    None => format!("{group}_{aggregate}expanding_{}", statistic.word()),
                });
                outputs.push(PooledOutput {
                    statistic,
                    over,
                    unit,
                    data_type,
                });
            }
        }
        let (closed, min_periods, ddof) = (self.closed, self.min_periods, self.ddof);
        let behind = time.behind(gap);
        let window = PooledEvaluator {
            gap,
            closed,
            aggregate: self.aggregate,
            min_periods,
            ddof,
        };
        let reads: Vec<String> = self.by.iter().cloned().chain([time.name.clone()]).collect();
        let each = fields.into_iter().map(|field| {
            let ask = ask_moments(scope, field, &keys, &time)?;
            let writes = names.iter().zip(&outputs);
            let writes = writes.map(|(name, output)| {
                Field::new(
                    format!("{}_{name}", field.name()),
                    output.data_type.clone(),
                    true,
                )
            });
            let (keys, whole, outputs) =
                (keys.len(), field.data_type().is_integer(), outputs.clone());
            let map = MapOp::fitted(
                reads.clone(),
                writes.collect::<Vec<_>>(),
                [ask],
                move |findings| {
                    let groups = PooledTable::new(finding_at(findings, 0)?, keys, keys, whole)?;
                    let outputs = outputs.clone();
                    Ok(LoweredMap::new(move |inputs, rows| {
                        let (Some(time), keys) =
                            (inputs.last(), &inputs[..inputs.len().saturating_sub(1)])
                        else {
                            return Ok(Vec::new());
                        };
                        let found = groups.find_groups(keys, rows)?;
                        window.over_rows(&groups, &found, time, &outputs)
                    }))
                },
            );
            let nulls = WrittenNulls::Made("has too few values at the start of the data");
            Ok(PlanOp::Map(map.data_age(behind).written_nulls(nulls)))
        });
        each.collect()
    }
}

/// Whether a statistic of all values follows from the moments of each time.
fn follows_from_moments(statistic: SeriesStatistic) -> bool {
    use SeriesStatistic as S;
    matches!(
        statistic,
        S::Mean | S::Sum | S::Count | S::Std | S::Var | S::Min | S::Max
    )
}

impl PooledEvaluator {
    fn over_rows(
        &self,
        groups: &PooledTable,
        found: &[Option<u32>],
        time: &ArrayRef,
        outputs: &[PooledOutput],
    ) -> Result<Vec<ArrayRef>> {
        let times = ticks_of(time)?;
        // Many rows of a batch have the same group and time.
        let mut known: HashMap<(Option<u32>, i64), usize> = HashMap::new();
        let mut results: Vec<Vec<Option<f64>>> = vec![Vec::new(); outputs.len()];
        let mut places: Vec<Option<usize>> = Vec::with_capacity(found.len());
        for (row, group) in found.iter().enumerate() {
            if times.is_null(row) {
                places.push(None);
                continue;
            }
            let time = times.value(row);
            let place = *known.entry((*group, time)).or_insert_with(|| {
                let cells = &groups.cells[groups.range(*group)];
                for (output, results) in outputs.iter().zip(&mut results) {
                    // As everywhere in windows, what is not determined (infinity less infinity) is null.
                    results.push(
                        self.result(output, cells, time)
                            .filter(|result| !result.is_nan()),
                    );
                }
                results.first().map_or(0, |results| results.len() - 1)
            });
            places.push(Some(place));
        }
        let columns = outputs.iter().zip(&results).map(|(output, results)| {
            let each = places
                .iter()
                .map(|place| place.and_then(|place| results[place]));
            match output.data_type {
                DataType::Int64 => Arc::new(
                    each.map(|count| count.map(|count| count as i64))
                        .collect::<Int64Array>(),
                ) as ArrayRef,
                _ => to_float_type(each.collect::<Float64Array>(), &output.data_type),
            }
        });
        Ok(columns.collect())
    }

    fn result(&self, output: &PooledOutput, cells: &[PooledCell], time: i64) -> Option<f64> {
        let end = time.saturating_sub(self.gap);
        let (with_start, with_end) = match self.closed {
            ClosedWindow::Right => (false, true),
            ClosedWindow::Left => (true, false),
            ClosedWindow::Both => (true, true),
            ClosedWindow::Neither => (false, false),
        };
        let from = output.over.map_or(0, |over| {
            let start = end.saturating_sub(over);
            cells.partition_point(|cell| cell.time < start || (cell.time == start && !with_start))
        });
        let to = cells.partition_point(|cell| cell.time < end || (cell.time == end && with_end));
        let cells = &cells[from.min(to)..to];
        let count: u64 = match self.aggregate {
            None => cells.iter().map(|cell| cell.count).sum(),
            Some(_) => cells.len() as u64,
        };
        let unless_set = if output.statistic == SeriesStatistic::Count {
            0
        } else {
            1
        };
        if count < self.min_periods.unwrap_or(unless_set) {
            return None;
        }
        let Some(aggregate) = self.aggregate else {
            return statistic_of_cells(output.statistic, self.ddof, cells);
        };
        let times: Vec<i64> = cells.iter().map(|cell| cell.time).collect();
        let values: Vec<f64> = cells
            .iter()
            .map(|cell| aggregate.cell_value(cell))
            .collect();
        PooledSample {
            times: &times,
            values: &values,
            now: time,
            unit: output.unit,
            ddof: self.ddof,
        }
        .of(output.statistic)
    }
}
