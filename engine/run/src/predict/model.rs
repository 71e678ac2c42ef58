//! Models that predict, and those that are loaded.

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use arrow::array::{ArrayRef, BooleanArray};
use arrow::datatypes::{DataType, Field, Schema};
use forebay_model::{Fault, Result, codes};
use forebay_storage::StorageLocation;

use super::classes::{ModelClasses, class_column};
use super::reconciled::ReconciledForecasts;
use super::values::Predictions;

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
    fn reconciled(&self) -> Option<&ReconciledForecasts> {
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

/// A model in memory. Steps find it by its id as long as it is held.
#[derive(Debug)]
pub struct LoadedModel {
    /// The model.
    pub predictor: Arc<dyn ModelPredictor>,
    /// The directory of its files, from which workers load it; none of one that is in memory alone.
    pub(crate) path: Option<String>,
}

impl LoadedModel {
    /// A model with the directory of its files.
    pub fn new(
        predictor: Arc<dyn ModelPredictor>,
        path: Option<&StorageLocation>,
    ) -> Arc<LoadedModel> {
        Arc::new(LoadedModel {
            predictor,
            path: path.map(|path| path.shown.clone()),
        })
    }
}

type ModelsById = BTreeMap<String, Vec<Weak<LoadedModel>>>;

/// Models that the steps of a session can predict with, while callers hold them. The configuration
/// of a step is JSON, and so has only the id. Clones share the models.
#[derive(Debug, Clone, Default)]
pub(crate) struct LoadedModels(Arc<Mutex<ModelsById>>);

impl LoadedModels {
    /// Adds a model, unless one is loaded from the same directory already; returns the one that
    /// steps find.
    pub(crate) fn load(
        &self,
        predictor: Arc<dyn ModelPredictor>,
        path: Option<&StorageLocation>,
    ) -> Arc<LoadedModel> {
        let model = LoadedModel::new(predictor, path);
        let mut models = self.lock();
        // The stages of a worker share a model.
        if let Some(path) = &model.path {
            let same_id = models.get(model.predictor.id()).into_iter().flatten();
            for loaded in same_id.filter_map(Weak::upgrade) {
                if loaded.path.as_ref() == Some(path) {
                    return loaded;
                }
            }
        }
        add_model(&mut models, &model);
        model
    }

    /// Adds a model that the caller holds.
    pub(crate) fn add(&self, model: &Arc<LoadedModel>) {
        add_model(&mut self.lock(), model);
    }

    /// The model of this id: of several, the newest that is held.
    pub(crate) fn find(&self, id: &str) -> Result<Arc<LoadedModel>> {
        let models = self.lock();
        let mut same_id = models.get(id).into_iter().flatten().rev();
        let model = same_id.find_map(Weak::upgrade);
        model.ok_or_else(|| Fault::new(codes::NOT_FOUND, format!("the model {id} is not loaded")))
    }

    fn lock(&self) -> MutexGuard<'_, ModelsById> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn add_model(models: &mut ModelsById, model: &Arc<LoadedModel>) {
    models.retain(|_, same_id| {
        same_id.retain(|model| model.strong_count() > 0);
        !same_id.is_empty()
    });
    let same_id = models.entry(model.predictor.id().to_owned()).or_default();
    same_id.push(Arc::downgrade(model));
}

#[cfg(test)]
mod tests {
    use arrow::array::Float32Array;
    use forebay_storage::StorageClient;

    use super::*;

    #[derive(Debug)]
    struct ConstantModel;

    impl ModelPredictor for ConstantModel {
        fn id(&self) -> &str {
            "constant"
        }

        fn horizon(&self) -> Option<&str> {
            None
        }

        fn columns(&self) -> Vec<String> {
            Vec::new()
        }

        fn check(&self, _: &Schema) -> Result<()> {
            Ok(())
        }

        fn predict(&self, _: &[ArrayRef], rows: usize) -> Result<Predictions> {
            Ok(Predictions::from(Float32Array::new_null(rows)))
        }
    }

    #[test]
    fn a_session_finds_its_models_while_they_are_held() {
        let models = LoadedModels::default();
        let first = models.load(Arc::new(ConstantModel), None);
        let second = models.clone().load(Arc::new(ConstantModel), None);
        assert!(Arc::ptr_eq(&models.find("constant").unwrap(), &second));
        drop(second);
        assert!(Arc::ptr_eq(&models.find("constant").unwrap(), &first));
        let other_session = LoadedModels::default();
        assert!(other_session.find("constant").is_err());
        other_session.add(&first);
        assert!(Arc::ptr_eq(
            &other_session.find("constant").unwrap(),
            &first
        ));
        drop(first);
        let fault = models.find("constant").unwrap_err();
        assert_eq!(fault.code(), codes::NOT_FOUND);
    }

    #[test]
    fn a_directory_is_loaded_once() {
        let models = LoadedModels::default();
        let io = StorageClient::new().unwrap();
        let net = io.resolve("/models/net").unwrap();
        let trees = io.resolve("/models/trees").unwrap();
        let first = models.load(Arc::new(ConstantModel), Some(&net));
        let again = models.load(Arc::new(ConstantModel), Some(&net));
        let other = models.load(Arc::new(ConstantModel), Some(&trees));
        assert!(Arc::ptr_eq(&first, &again));
        assert!(!Arc::ptr_eq(&first, &other));
    }
}
