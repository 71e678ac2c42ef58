//! `pooled`: windows over many series at once.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, Float64Array, Int64Array};
use arrow::datatypes::{DataType, Field};
use forebay_model::{Result, TimeDistance, ticks};
use forebay_plan::{
    AnalyzerRequest, BindScope, ColumnSelector, ConfiguredTransform, LoweredMap, MapOp, PlanOp,
    Transform, WrittenNulls,
};
use forebay_setters::Setters;
use hashbrown::HashMap;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::length::{LengthSpec, StepBack, TimeColumn};
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
/// that it was made with, and knows nothing of the rows that it is applied to. With `fit_on` a part
/// of a split by time, windows of later rows are empty: use a step of its own without `fit_on`.
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
    /// The name behind that of the column.
    name: String,
    statistic: SeriesStatistic,
    /// The start of the window; absent where windows have no beginning.
    start: Option<StepBack>,
    unit: f64,
    data_type: DataType,
}

/// A window and the features of it.
#[derive(Clone, Copy)]
struct PooledEvaluator {
    end: StepBack,
    closed: ClosedWindow,
    aggregate: Option<TimeAggregate>,
    min_periods: Option<u64>,
    ddof: u8,
}

impl Transform for PooledWindow {
    fn bind(&self, scope: &BindScope<'_>) -> Result<Vec<PlanOp>> {
        require_not_empty(&self.compute, "compute")?;
        let time = time_column(scope, Self::NAME, &self.time)?;
        let gap = match self.gap {
            Some(gap) if !gap.is_zero() => gap.distance(&time)?,
            _ => TimeDistance::Ticks(0),
        };
        let end = time.steps_back(gap)?;
        let fields = scope.numeric_columns(&self.columns)?;
        let keys = key_fields(scope, &self.by)?;
        let outputs = self.outputs(&time, end)?;
        let window = PooledEvaluator {
            end,
            closed: self.closed,
            aggregate: self.aggregate,
            min_periods: self.min_periods,
            ddof: self.ddof,
        };
        let mut reads = self.by.clone();
        reads.push(time.name.clone());
        let mut ops = Vec::with_capacity(fields.len());
        for field in fields {
            let request = ask_moments(scope, field, &keys, &time)?;
            let map = window.over_column(field, reads.clone(), request, &outputs);
            let nulls = WrittenNulls::Made("has too few values at the start of the data");
            let map = map.data_age(time.behind(gap)).written_nulls(nulls);
            ops.push(PlanOp::Map(map));
        }
        Ok(ops)
    }
}

impl PooledWindow {
    /// The outputs of a column. Windows end at `end`.
    fn outputs(&self, time: &TimeColumn, end: StepBack) -> Result<Vec<PooledOutput>> {
        let mut lengths: Vec<Option<LengthSpec>> = self.over.iter().copied().map(Some).collect();
        if lengths.is_empty() {
            // Windows of everything before the end.
            lengths.push(None);
        }
        let mut outputs = Vec::new();
        for length in lengths {
            for statistic in &self.compute {
                outputs.push(self.output(*statistic, length, time, end)?);
            }
        }
        Ok(outputs)
    }

    fn output(
        &self,
        statistic: SeriesStatistic,
        length: Option<LengthSpec>,
        time: &TimeColumn,
        end: StepBack,
    ) -> Result<PooledOutput> {
        statistic.of(self.ddof, None)?;
        if length.is_some_and(LengthSpec::is_zero) {
            return Err(bad_value("a window of no length holds nothing"));
        }
        if self.aggregate.is_none() && !follows_from_moments(statistic) {
            let message = format!(
                "`{}` of all rows' values is not kept for each time",
                statistic.snake()
            );
            return Err(
                bad_value(message).hint("say what is made of the rows of a time: `aggregate: sum`")
            );
        }
        let start = match length {
            Some(length) => Some(time.steps_back(length.distance(time)?)?.and(end)),
            None => None,
        };
        let group = if self.by.is_empty() {
            "all".to_owned()
        } else {
            self.by.join("_")
        };
        let aggregate = self.aggregate.map_or("", TimeAggregate::name_prefix);
        let name = match length {
            Some(length) => format!("{group}_{aggregate}{}_{length}", statistic.word()),
            None => format!("{group}_{aggregate}expanding_{}", statistic.word()),
        };
        Ok(PooledOutput {
            name,
            statistic,
            start,
            unit: self.unit(statistic, length, time)?,
            data_type: statistic.data_type(&self.dtype.data_type(), self.dtype, false),
        })
    }

    /// Ticks of the unit in which a statistic measures times; 1 for others.
    fn unit(
        &self,
        statistic: SeriesStatistic,
        length: Option<LengthSpec>,
        time: &TimeColumn,
    ) -> Result<f64> {
        if !statistic.measures() {
            return Ok(1.0);
        }
        let Some(length) = length.or(self.gap) else {
            let message = format!(
                "`{}` of everything before needs a unit of time",
                statistic.snake()
            );
            let hint = "give a `gap`: `0d` has no length, and says days";
            return Err(bad_value(message).hint(hint));
        };
        Ok(length.unit().ticks(time)? as f64)
    }
}

/// True if a statistic of all values follows from the moments of each time.
fn follows_from_moments(statistic: SeriesStatistic) -> bool {
    use SeriesStatistic as S;
    matches!(
        statistic,
        S::Mean | S::Sum | S::Count | S::Std | S::Var | S::Min | S::Max
    )
}

impl PooledEvaluator {
    /// The operation that computes the outputs of a column. `reads` are the keys and the time.
    fn over_column(
        self,
        field: &Field,
        reads: Vec<String>,
        request: AnalyzerRequest,
        outputs: &[PooledOutput],
    ) -> MapOp {
        let mut writes = Vec::with_capacity(outputs.len());
        for output in outputs {
            let name = format!("{}_{}", field.name(), output.name);
            writes.push(Field::new(name, output.data_type.clone(), true));
        }
        let keys = reads.len() - 1;
        let whole = field.data_type().is_integer();
        let outputs = outputs.to_vec();
        MapOp::fitted(reads, writes, [request], move |findings| {
            let groups = PooledTable::new(finding_at(findings, 0)?, keys, keys, whole)?;
            let outputs = outputs.clone();
            Ok(LoweredMap::new(move |inputs, rows| {
                let Some((time, keys)) = inputs.split_last() else {
                    return Ok(Vec::new());
                };
                let row_groups = groups.find_groups(keys, rows)?;
                self.over_rows(&groups, &row_groups, time, &outputs)
            }))
        })
    }

    fn over_rows(
        &self,
        groups: &PooledTable,
        row_groups: &[Option<u32>],
        time: &ArrayRef,
        outputs: &[PooledOutput],
    ) -> Result<Vec<ArrayRef>> {
        let times = ticks(time)?;
        // Many rows of a batch have the same group and time.
        let mut result_of: HashMap<(Option<u32>, i64), usize> = HashMap::new();
        let mut results: Vec<Vec<Option<f64>>> = vec![Vec::new(); outputs.len()];
        let mut result_indices: Vec<Option<usize>> = Vec::with_capacity(row_groups.len());
        for (row, group) in row_groups.iter().enumerate() {
            if times.is_null(row) {
                result_indices.push(None);
                continue;
            }
            let time = times.value(row);
            let next_index = result_of.len();
            let result_index = *result_of.entry((*group, time)).or_insert(next_index);
            result_indices.push(Some(result_index));
            if result_index < next_index {
                continue;
            }
            let cells = &groups.cells[groups.range(*group)];
            for (output, results) in outputs.iter().zip(&mut results) {
                let result = self.result(output, cells, time);
                // As everywhere in windows, what is not determined (infinity less infinity) is null.
                results.push(result.filter(|result| !result.is_nan()));
            }
        }
        let mut columns: Vec<ArrayRef> = Vec::with_capacity(outputs.len());
        for (output, results) in outputs.iter().zip(&results) {
            let mut values = Vec::with_capacity(result_indices.len());
            for result_index in &result_indices {
                values.push(result_index.and_then(|result_index| results[result_index]));
            }
            columns.push(match output.data_type {
                DataType::Int64 => {
                    let counts = values.iter().map(|count| count.map(|count| count as i64));
                    Arc::new(counts.collect::<Int64Array>())
                }
                _ => to_float_type(Float64Array::from(values), &output.data_type),
            });
        }
        Ok(columns)
    }

    fn result(&self, output: &PooledOutput, cells: &[PooledCell], time: i64) -> Option<f64> {
        let end = self.end.before(time);
        let (with_start, with_end) = match self.closed {
            ClosedWindow::Right => (false, true),
            ClosedWindow::Left => (true, false),
            ClosedWindow::Both => (true, true),
            ClosedWindow::Neither => (false, false),
        };
        let from = output.start.map_or(0, |start| {
            let start = start.before(time);
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
