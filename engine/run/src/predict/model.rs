//! Models that are loaded.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use forebay_contract::ModelPredictor;
use forebay_model::{Fault, Result, codes};
use forebay_storage::StorageLocation;

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
    use arrow::array::{ArrayRef, Float32Array};
    use arrow::datatypes::Schema;
    use forebay_contract::Predictions;
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
