//! A model whose predictions are replaced by reconciled forecasts.

use std::sync::Arc;

use arrow::array::{ArrayRef, BooleanArray};
use arrow::datatypes::Schema;
use forebay_contract::{ModelClasses, ModelPredictor, Predictions, ReconciledForecasts};
use forebay_model::Result;

use super::reconciled::ReconciledTable;

/// A model whose predictions are replaced by reconciled forecasts.
#[derive(Debug)]
pub(super) struct ReconciledModel {
    id: String,
    model: Arc<dyn ModelPredictor>,
    forecasts: ReconciledTable,
}

impl ReconciledModel {
    pub fn new(model: Arc<dyn ModelPredictor>, forecasts: ReconciledTable) -> ReconciledModel {
        ReconciledModel {
            id: format!("{}, reconciled as {}", model.id(), forecasts.id()),
            model,
            forecasts,
        }
    }
}

impl ModelPredictor for ReconciledModel {
    fn id(&self) -> &str {
        &self.id
    }

    fn horizon(&self) -> Option<&str> {
        self.model.horizon()
    }

    fn columns(&self) -> Vec<String> {
        self.model.columns()
    }

    fn filled_columns(&self) -> Vec<String> {
        self.model.filled_columns()
    }

    fn decisive_columns(&self) -> Vec<String> {
        self.model.decisive_columns()
    }

    fn predicts_empty_rows(&self) -> bool {
        self.model.predicts_empty_rows()
    }

    fn check(&self, schema: &Schema) -> Result<()> {
        self.model.check(schema)
    }

    fn quantiles(&self) -> &[f64] {
        self.model.quantiles()
    }

    fn classes(&self) -> Option<&ModelClasses> {
        self.model.classes()
    }

    fn label(&self) -> Option<&str> {
        self.model.label()
    }

    fn feeds_back(&self) -> Option<&str> {
        self.model.feeds_back()
    }

    fn rows_with_models(&self, columns: &[ArrayRef], rows: usize) -> Result<Option<BooleanArray>> {
        self.model.rows_with_models(columns, rows)
    }

    fn reconciled(&self) -> Option<&dyn ReconciledForecasts> {
        Some(&self.forecasts)
    }

    fn predict(&self, columns: &[ArrayRef], rows: usize) -> Result<Predictions> {
        self.model.predict(columns, rows)
    }
}
