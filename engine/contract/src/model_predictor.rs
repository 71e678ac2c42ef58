//! Models that predict.

use std::fmt::Debug;

use arrow::array::{ArrayRef, BooleanArray};
use arrow::datatypes::{DataType, Field, Schema};
use forebay_model::Result;

use crate::model_classes::{ModelClasses, class_column};
use crate::predictions::Predictions;

/// A model that predicts rows of the step that it was trained on.
pub trait ModelPredictor: Debug + Send + Sync {
    /// The id of its training: names everything that determines it.
    fn id(&self) -> &str;

    /// The label's horizon for which it was trained, if the pipeline declared one.
    fn horizon(&self) -> Option<&str>;

    /// The columns that it reads, in order. A model for each step of the horizon reads the hidden column
    /// [`HORIZON_STEP`](crate::HORIZON_STEP) of rows of the future, too.
    fn columns(&self) -> Vec<String>;

    /// The columns that it reads whose missing values it fills with a constant.
    fn filled_columns(&self) -> Vec<String> {
        Vec::new()
    }

    /// The columns that its predictions for all steps of the horizon depend on. A forecast counts those of their values
    /// that are missing and that it does not fill.
    fn decisive_columns(&self) -> Vec<String> {
        self.columns()
    }

    /// True if it predicts a constant for rows in which all columns that it reads are missing.
    fn predicts_empty_rows(&self) -> bool {
        false
    }

    /// Fails where the columns that it reads have other types than it takes.
    fn check(&self, schema: &Schema) -> Result<()>;

    /// The predicted quantiles in addition to the point forecast, in ascending order.
    fn quantiles(&self) -> &[f64] {
        &[]
    }

    /// The classes that it tells apart; `None` if it predicts numbers.
    fn classes(&self) -> Option<&ModelClasses> {
        None
    }

    /// The column whose values it learned; `None` if it predicts values of the rows.
    fn label(&self) -> Option<&str> {
        None
    }

    /// The label, where the predictions for a row are values of the label in features of later rows.
    fn feeds_back(&self) -> Option<&str> {
        None
    }

    /// Marks the rows of the groups or series that it has models of, given its columns; `None` where one model predicts
    /// all rows.
    fn rows_with_models(
        &self,
        _columns: &[ArrayRef],
        _rows: usize,
    ) -> Result<Option<BooleanArray>> {
        Ok(None)
    }

    /// Forecasts that take the place of its predictions, where those of several levels were made to add up.
    fn reconciled(&self) -> Option<&dyn ReconciledForecasts> {
        None
    }

    /// Predictions, given its columns; null for rows that do not count.
    fn predict(&self, columns: &[ArrayRef], rows: usize) -> Result<Predictions>;
}

/// Name of the column of a quantile, derived from that of the point forecast: `prediction_q10` for
/// 0.1.
pub fn quantile_column(point: &str, quantile: f64) -> String {
    format!("{point}_q{}", (quantile * 1e10).round() / 1e8)
}

/// The columns of a model's predictions: the point forecast and its quantiles, of `number_type`; or
/// the most probable class and the probability of each. `point` is the name of the first.
pub fn prediction_fields(
    model: &dyn ModelPredictor,
    point: &str,
    number_type: &DataType,
) -> Vec<Field> {
    let mut fields = Vec::new();
    match model.classes() {
        Some(classes) => {
            fields.push(Field::new(point, classes.data_type(), true));
            for class in classes.names() {
                let name = class_column(point, &class);
                fields.push(Field::new(name, DataType::Float32, true));
            }
        }
        None => {
            fields.push(Field::new(point, number_type.clone(), true));
            for quantile in model.quantiles() {
                let name = quantile_column(point, *quantile);
                fields.push(Field::new(name, number_type.clone(), true));
            }
        }
    }
    fields
}

/// Reconciled forecasts, by series and time.
pub trait ReconciledForecasts: Debug + Send + Sync {
    /// Forecasts of rows of the future, given the columns of their keys and their time. They have the type `data_type`.
    fn of_rows(
        &self,
        keys: &[ArrayRef],
        time: &ArrayRef,
        data_type: &DataType,
    ) -> Result<ReconciledRows>;
}

/// Reconciled forecasts of some rows.
pub struct ReconciledRows {
    /// The forecasts.
    pub values: ArrayRef,
    /// True for rows that were moved to a bound.
    pub clipped: BooleanArray,
}
