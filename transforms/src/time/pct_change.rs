//! `pct_change`: the relative change since earlier rows.

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

/// The value divided by the value some rows or some time before, less one.
///
/// In: columns of numbers. Out, for each length: `<column>_pct_change_<by>`. A share: 0.1 is ten
/// percent. Null where either value is missing or there is no row that far back (by time: exactly
/// that long before); infinite where the earlier value is 0, null where both are, and both counted.
/// Earlier values are not filled in. State per series: some 16 bytes for each row that the longest
/// length reaches back over. It looks at the row itself, which a feature of its own label must not: take the
/// `lag` of the change. Follows pandas' `pct_change(fill_method=None)`.
///
/// ```yaml
/// - pct_change: { columns: [price], by: [7d] }
/// ```
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema, Setters)]
#[serde(deny_unknown_fields)]
#[setters(fn pct_change(columns), example = r#"pct_change(["price"]).by(["7d"])"#)]
pub struct PctChange {
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
    /// The type that comes out.
    #[serde(default)]
    pub dtype: FloatType,
}

impl ConfiguredTransform for PctChange {
    const NAME: &'static str = "pct_change";
}

impl Transform for PctChange {
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
            let input = windows.add_input(field, WordEncoding::Number);
            for length in &self.by {
                let by = windows.lookback_length(*length)?;
                let name =
                    names.column_name(field.name(), format!("pct_change_{length}"), |names| {
                        Ok(format!("pct_change{}", names.periods(*length)?))
                    })?;
                windows.add_output(
                    input,
                    WindowFunction::PctChange { by },
                    name,
                    self.dtype.data_type(),
                );
            }
        }
        windows.finish()
    }
}
