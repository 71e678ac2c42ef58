//! `pct_change`: the relative change since earlier rows.

use forebay_model::Result;
use forebay_plan::{Columns, Configured, Op, Scope, Transform};
use forebay_window::{Compute, Keep};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::length::Length;
use super::naming::Names;
use super::windows::{Windows, not_empty};
use super::{FloatType, Gaps, Naming};

/// The value divided by the value some rows or some time before, less one.
///
/// In: columns of numbers. Out, for each length: `<column>_pct_change_<by>`. A share: 0.1 is ten
/// percent. Null where either value is missing or there is no row that far back (by time: exactly
/// that long before); infinite where the earlier value is 0, null where both are. Earlier values
/// are not filled in. State per series: some 16 bytes for each row that the longest length reaches
/// back over. It looks at the row itself, which a feature of its own label must not: take the
/// `lag` of the change. Follows pandas' `pct_change(fill_method=None)`.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct PctChange {
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
    /// The type that comes out.
    #[serde(default)]
    pub dtype: FloatType,
}

impl Configured for PctChange {
    const NAME: &'static str = "pct_change";
}

impl Transform for PctChange {
    fn bind(&self, scope: &Scope<'_>) -> Result<Vec<Op>> {
        not_empty(&self.by, "by")?;
        let mut windows = Windows::new(scope, Self::NAME, &self.time, &self.keys, self.gaps.as_ref())?;
        let time = windows.time.clone();
        let fields = scope.numeric_columns(&self.columns)?;
        let names = Names::new(self.names, fields.len(), &time, self.gaps.as_ref());
        for field in fields {
            let input = windows.input(field, Keep::Number);
            for length in &self.by {
                let by = windows.back(*length)?;
                let name = names.of(field.name(), format!("pct_change_{length}"), |names| {
                    Ok(format!("pct_change{}", names.periods(*length)?))
                })?;
                windows.push(input, Compute::PctChange { by }, name, self.dtype.data_type());
            }
        }
        windows.finish()
    }
}
