//! Predictions for groups without a model of their own.

use std::collections::HashMap;

use super::column_fallback::ColumnFallback;
use super::config::BoostedOutput;
use super::fallback_kind::GroupFallbackKind;
use super::fit::{FittedModel, ModelFitter, model_result};
use super::model::ErrorSums;
use super::table::{FeatureTable, RowFeatures};
use crate::group_names::{GroupName, group_text};

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
