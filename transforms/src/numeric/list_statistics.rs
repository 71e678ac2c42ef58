//! `list_statistics`: numbers of the elements of a list.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, Float64Array};
use arrow::datatypes::{DataType, Field};
use forebay_model::Result;
use forebay_plan::{
    BindScope, ColumnSelector, ConfiguredTransform, MapOp, PlanOp, Transform, WrittenNulls,
};
use forebay_setters::Setters;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::shared::{bad_value, doubles, element_field, large_lists};

/// The mean, the sum and other numbers of a list's elements: a list of any length as columns.
///
/// In: lists of numbers. Out: `<column>_<statistic>` for each, `float64`; the columns stay. Sums are of doubles, in the
/// order of the list. Null elements and NaN do not count, infinities do. A null list gives null. An empty list, and one
/// without numbers, has the sum and the count 0, and no mean, minimum, maximum or last element. Learns nothing. Follows
/// the pooling of sequences in NVTabular and Merlin Models.
///
/// ```yaml
/// - derive: { amounts: "make_array(price, qty)" }
/// - list_statistics: { columns: [amounts], compute: [mean, last] }
/// ```
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema, Setters)]
#[serde(deny_unknown_fields)]
#[setters(
    fn list_statistics(columns, compute),
    example = r#"list_statistics(["recent_prices"], [ListStatistic::Mean, ListStatistic::Last])"#
)]
pub struct ListStatistics {
    /// Columns of lists of numbers.
    pub columns: ColumnSelector,
    /// The numbers, each of which is a column.
    pub compute: Vec<ListStatistic>,
}

/// A number of the elements of a list.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum ListStatistic {
    /// The sum divided by the count.
    Mean,
    /// The sum.
    Sum,
    /// The least element.
    Min,
    /// The greatest element.
    Max,
    /// Number of elements.
    Count,
    /// The last element.
    Last,
}

impl ListStatistic {
    fn name(self) -> &'static str {
        match self {
            ListStatistic::Mean => "mean",
            ListStatistic::Sum => "sum",
            ListStatistic::Min => "min",
            ListStatistic::Max => "max",
            ListStatistic::Count => "count",
            ListStatistic::Last => "last",
        }
    }

    /// The number of these elements, none of which is NaN.
    fn of(self, elements: &[f64]) -> Option<f64> {
        let count = elements.len() as f64;
        // The sum of no numbers is -0.0.
        let sum = elements.iter().sum::<f64>() + 0.0;
        match self {
            ListStatistic::Sum => Some(sum),
            ListStatistic::Count => Some(count),
            ListStatistic::Mean if elements.is_empty() => None,
            ListStatistic::Mean => Some(sum / count),
            ListStatistic::Min => elements.iter().copied().reduce(f64::min),
            ListStatistic::Max => elements.iter().copied().reduce(f64::max),
            ListStatistic::Last => elements.last().copied(),
        }
    }
}

impl ConfiguredTransform for ListStatistics {
    const NAME: &'static str = "list_statistics";
}

impl Transform for ListStatistics {
    fn bind(&self, scope: &BindScope<'_>) -> Result<Vec<PlanOp>> {
        if self.compute.is_empty() {
            return Err(bad_value("`compute` names no number").field("compute"));
        }
        let is_list = |field: &Field| {
            element_field(field.data_type()).is_some_and(|element| element.data_type().is_numeric())
        };
        let mut ops = Vec::new();
        for field in scope.typed_columns(&self.columns, "a list of numbers", is_list)? {
            for statistic in &self.compute {
                ops.push(PlanOp::Map(statistic_map(field.name(), *statistic)));
            }
        }
        Ok(ops)
    }
}

fn statistic_map(column: &str, statistic: ListStatistic) -> MapOp {
    let output = format!("{column}_{}", statistic.name());
    let output = Field::new(output, DataType::Float64, true);
    let map = MapOp::new([column], [output], move |inputs, _| {
        let mut outputs = Vec::with_capacity(inputs.len());
        for input in inputs {
            outputs.push(list_numbers(input, statistic)?);
        }
        Ok(outputs)
    });
    map.written_nulls(WrittenNulls::Made("has no number of empty lists"))
}

/// The number of each list.
fn list_numbers(column: &ArrayRef, statistic: ListStatistic) -> Result<ArrayRef> {
    let lists = large_lists(column)?;
    let values = doubles(lists.values())?;
    let mut numbers = Float64Array::builder(lists.len());
    let mut elements = Vec::new();
    for (row, ends) in lists.offsets().windows(2).enumerate() {
        if lists.is_null(row) {
            numbers.append_null();
            continue;
        }
        elements.clear();
        for element in ends[0] as usize..ends[1] as usize {
            if values.is_valid(element) && !values.value(element).is_nan() {
                elements.push(values.value(element));
            }
        }
        numbers.append_option(statistic.of(&elements));
    }
    Ok(Arc::new(numbers.finish()))
}
