//! `diff`: the change since earlier rows.

use arrow::datatypes::DataType;
use forebay_model::Result;
use forebay_plan::{BindScope, ColumnSelector, ConfiguredTransform, PlanOp, Transform};
use forebay_setters::Setters;
use forebay_window::{WindowFunction, WordEncoding};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::length::LengthSpec;
use super::naming::FeatureNamer;
use super::windows::{WindowOpBuilder, require_not_empty};
use super::{FeatureNaming, FloatType, GapPolicy};

/// The value less the value some rows or some time before. The seasonal difference is the one by
/// the length of the season: `by: [7]` or `by: [7d]`.
///
/// In: columns of numbers. Out, for each length: `<column>_diff_<by>`, `int64` of integers, else
/// `dtype`. Null where either value is missing, where there is no row that far back (by time:
/// exactly that long before), and where a difference of integers is below -(2^63 - 2) or above
/// 2^63 - 1, which is counted. State per series: some 16 bytes for each row that the longest length
/// reaches back over. It looks at the row itself, which a feature of its own label must not: take
/// the `lag` of the difference.
///
/// ```yaml
/// - diff: { columns: [qty], by: [7d] }
/// ```
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema, Setters)]
#[serde(deny_unknown_fields)]
#[setters(fn diff(columns), example = r#"diff(["qty"]).by(["1d"])"#)]
pub struct SeriesDiff {
    /// Columns of numbers.
    pub columns: ColumnSelector,
    /// How far back, in rows or time.
    pub by: Vec<LengthSpec>,
    /// The event-time column, where the source does not declare it.
    #[serde(default)]
    pub time: Option<String>,
    /// The columns that tell series apart, where the source does not declare them; `[]` makes all
    /// rows one series.
    #[serde(default)]
    pub keys: Option<Vec<String>>,
    /// Meaning of missing periods; required where rows are counted.
    #[serde(default)]
    pub gaps: Option<GapPolicy>,
    /// How the new columns are called.
    #[serde(default)]
    pub names: FeatureNaming,
    /// The type of differences of floats.
    #[serde(default)]
    pub dtype: FloatType,
}

impl ConfiguredTransform for SeriesDiff {
    const NAME: &'static str = "diff";
}

impl Transform for SeriesDiff {
    fn bind(&self, scope: &BindScope<'_>) -> Result<Vec<PlanOp>> {
        require_not_empty(&self.by, "by")?;
        let mut windows = WindowOpBuilder::new(
            scope,
            Self::NAME,
            &self.time,
            &self.keys,
            self.gaps.as_ref(),
        )?;
        let time = windows.time.clone();
        let fields = scope.numeric_columns(&self.columns)?;
        let names = FeatureNamer::new(self.names, fields.len(), &time, self.gaps.as_ref());
        for field in fields {
            let (keep, data_type) = match field.data_type() {
                DataType::Int64 | DataType::UInt64 => (WordEncoding::Bits, DataType::Int64),
                integer if integer.is_integer() => (WordEncoding::Number, DataType::Int64),
                _ => (WordEncoding::Number, self.dtype.data_type()),
            };
            let input = windows.add_input(field, keep);
            for length in &self.by {
                let by = windows.lookback_length(*length)?;
                let name = names.column_name(field.name(), format!("diff_{length}"), |names| {
                    Ok(format!("diff{}", names.periods(*length)?))
                })?;
                windows.add_output(input, WindowFunction::Diff { by }, name, data_type.clone());
            }
        }
        windows.finish()
    }
}
