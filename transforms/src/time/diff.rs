//! `diff`: the change since earlier rows.

use arrow::datatypes::DataType;
use forebay_model::Result;
use forebay_plan::{Columns, Configured, Op, Scope, Transform};
use forebay_window::{Compute, Keep};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::length::Length;
use super::naming::Names;
use super::windows::{Windows, not_empty};
use super::{FloatType, Gaps, Naming};

/// The value less the value some rows or some time before. The seasonal difference is the one by
/// the length of the season: `by: [7]` or `by: [7d]`.
///
/// In: columns of numbers. Out, for each length: `<column>_diff_<by>`, `int64` of integers, else
/// `dtype`. Null where either value is missing, where there is no row that far back (by time:
/// exactly that long before), and where a difference of integers does not fit. State per series:
/// some 16 bytes for each row that the longest length reaches back over. It looks at the row
/// itself, which a feature of its own label must not: take the `lag` of the difference.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Diff {
    /// Columns of numbers.
    pub columns: Columns,
    /// How far back, in rows or time.
    pub by: Vec<Length>,
    /// The event-time column, where the source does not declare it.
    #[serde(default)]
    pub time: Option<String>,
    /// The columns that tell series apart, where the source does not declare them; `[]` makes all
    /// rows one series.
    #[serde(default)]
    pub keys: Option<Vec<String>>,
    /// What missing periods mean; has to be said where rows are counted.
    #[serde(default)]
    pub gaps: Option<Gaps>,
    /// How the new columns are called.
    #[serde(default)]
    pub names: Naming,
    /// The type of differences of floats.
    #[serde(default)]
    pub dtype: FloatType,
}

impl Configured for Diff {
    const NAME: &'static str = "diff";
}

impl Transform for Diff {
    fn bind(&self, scope: &Scope<'_>) -> Result<Vec<Op>> {
        not_empty(&self.by, "by")?;
        let mut windows = Windows::new(scope, Self::NAME, &self.time, &self.keys, self.gaps.as_ref())?;
        let time = windows.time.clone();
        let fields = scope.numeric_columns(&self.columns)?;
        let names = Names::new(self.names, fields.len(), &time, self.gaps.as_ref());
        for field in fields {
            let (keep, data_type) = match field.data_type() {
                DataType::Int64 | DataType::UInt64 => (Keep::Bits, DataType::Int64),
                integer if integer.is_integer() => (Keep::Number, DataType::Int64),
                _ => (Keep::Number, self.dtype.data_type()),
            };
            let input = windows.input(field, keep);
            for length in &self.by {
                let by = windows.back(*length)?;
                let name = names.of(field.name(), format!("diff_{length}"), |names| {
                    Ok(format!("diff{}", names.periods(*length)?))
                })?;
                windows.push(input, Compute::Diff { by }, name, data_type.clone());
            }
        }
        windows.finish()
    }
}
