//! Predictions for groups without a model of their own.

use std::collections::HashMap;

use forebay_feed::FeatureField;
use forebay_model::{Fault, Result, codes};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::config::BoostedOutput;
use super::fit::{FittedModel, ModelFitter, model_result};
use super::loss::weighted_quantile;
use super::model::ErrorSums;
use super::table::{FeatureTable, RowFeatures, number_index};
use crate::train::group_names::{GroupName, group_text};

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

/// A column that predicts.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ColumnFallback {
    /// Index of the column among the numbers of a row.
    pub number: usize,
    /// Offsets to its value: 0 for the point forecast, and a quantile of its errors for each
    /// quantile.
    pub offsets: Vec<f64>,
}

impl ColumnFallback {
    /// A column among the numbers, and its errors over some rows.
    pub(super) fn new(
        column: &str,
        dense: &[FeatureField],
        outputs: &[BoostedOutput],
        rows: &FeatureTable,
    ) -> Result<ColumnFallback> {
        let number = number_index(dense, column).ok_or_else(|| {
            let message =
                format!("`fallback` names `{column}`, which is no number that the model takes");
            Fault::new(codes::UNKNOWN_NAME, message)
                .column(column)
                .hint("name it under `dense`, too")
        })?;
        let errors = (0..rows.rows()).map(|row| {
            (
                rows.labels[row] - rows.row(row).dense[number],
                rows.weight(row),
            )
        });
        let errors: Vec<(f32, f32)> = errors.filter(|(error, _)| error.is_finite()).collect();
        let offset = |output: &BoostedOutput| match output.quantile {
            Some(quantile) => weighted_quantile(errors.clone(), quantile),
            None => 0.0,
        };
        Ok(ColumnFallback {
            number,
            offsets: outputs.iter().map(offset).collect(),
        })
    }

    /// The prediction of an output for a row; `None` where the column has no value.
    pub fn predict(&self, output: usize, row: RowFeatures<'_>) -> Option<f32> {
        let value = row
            .dense
            .get(self.number)
            .filter(|value| value.is_finite())?;
        Some((f64::from(*value) + self.offsets.get(output)?) as f32)
    }
}

/// Models and columns that predict for groups without a model of their own.
pub struct GroupFallbacks {
    pub over_all: Vec<FittedModel>,
    /// Models of parents by the values that name them: fewer than those of a group.
    pub parents: HashMap<GroupName, Vec<FittedModel>>,
    pub column: Option<ColumnFallback>,
    /// Name of the prediction for groups without a parent, in words.
    last: String,
}

impl GroupFallbacks {
    /// The models over all rows, and the column if one predicts.
    pub fn new(
        over_all: Vec<FittedModel>,
        column: Option<ColumnFallback>,
        kind: &GroupFallbackKind,
    ) -> GroupFallbacks {
        let last = match &column {
            Some(_) => kind.in_words(),
            None => GroupFallbackKind::AllRows.in_words(),
        };
        GroupFallbacks {
            over_all,
            parents: HashMap::new(),
            column,
            last,
        }
    }

    /// Models of the nearest parent group of a group that has models, with the parent's name.
    fn parent<'n>(&self, name: &'n GroupName) -> Option<(&'n [Option<String>], &[FittedModel])> {
        (1..name.len()).rev().find_map(|values| {
            Some((
                &name[..values],
                self.parents.get(&name[..values])?.as_slice(),
            ))
        })
    }

    /// Name of the prediction for a group, in words, and its errors on rows of that group.
    pub fn errors(
        &self,
        fitter: &ModelFitter<'_>,
        name: &GroupName,
        rows: &FeatureTable,
    ) -> (String, Vec<ErrorSums>) {
        if let Some((parent, models)) = self.parent(name) {
            return (
                format!("the model of {}", group_text(parent)),
                fitter.errors_of(models, rows),
            );
        }
        if self.column.is_none() {
            return (self.last.clone(), fitter.errors_of(&self.over_all, rows));
        }
        let mut errors = vec![ErrorSums::default(); fitter.outputs.len()];
        for (number, output) in fitter.outputs.iter().enumerate() {
            for row in 0..rows.rows() {
                errors[number].add(
                    output.objective,
                    self.result_of_all(output, number, rows.row(row)),
                    rows.labels[row],
                    f64::from(rows.weight(row)),
                );
            }
        }
        (self.last.clone(), errors)
    }

    /// The result of an output for a row of a group without a model of its own.
    pub fn result(
        &self,
        output: &BoostedOutput,
        number: usize,
        name: &GroupName,
        features: RowFeatures<'_>,
    ) -> f64 {
        match self.parent(name) {
            Some((_, models)) => model_result(models, output, number, features),
            None => self.result_of_all(output, number, features),
        }
    }

    /// The result of the column that predicts, or of the model over all rows.
    fn result_of_all(
        &self,
        output: &BoostedOutput,
        number: usize,
        features: RowFeatures<'_>,
    ) -> f64 {
        let column = self.column.as_ref();
        match column.and_then(|column| column.predict(number, features)) {
            Some(value) => output.objective.result(value),
            None => model_result(&self.over_all, output, number, features),
        }
    }
}
