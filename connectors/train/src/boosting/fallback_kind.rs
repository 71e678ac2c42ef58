//! Kinds of predictions for groups without a model of their own.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Prediction for groups without a model of their own.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum GroupFallbackKind {
    /// The model over all rows.
    #[default]
    AllRows,
    /// The model of the group that all values of `by` but the last name, where that has `min_rows` rows; else that of
    /// all but the last two, and so on; at last the model over all rows.
    Parent,
    /// The value of a column among `dense` that holds the label of another time in the label's own units, such as
    /// `qty_lag_7d`: the seasonal naive forecast. Its quantiles lie as far from it as the quantiles of its errors over all
    /// rows that are learned from. Rows without a value have the model over all rows.
    Column(String),
}

impl GroupFallbackKind {
    pub(super) fn is_default(&self) -> bool {
        *self == GroupFallbackKind::AllRows
    }

    /// Name of the predicting model, in words.
    pub(super) fn in_words(&self) -> String {
        match self {
            GroupFallbackKind::AllRows => "the model over all rows".to_owned(),
            GroupFallbackKind::Parent => {
                "that of the group above, or the model over all rows,".to_owned()
            }
            GroupFallbackKind::Column(column) => format!("the column `{column}`"),
        }
    }
}
