//! Models that predict, and those that are loaded.

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use arrow::array::{ArrayRef, Float32Array};
use arrow::datatypes::Schema;
use forebay_model::{Fault, Result, codes};
use forebay_storage::StorageLocation;

/// A model that predicts rows of the step that it was trained on.
pub trait ModelPredictor: Debug + Send + Sync {
    /// The id of its training: names everything that determines it.
    fn id(&self) -> &str;

    /// The id of the artifact that its features are made with.
    fn artifact(&self) -> &str;

    /// The label's horizon for which it was trained, if the pipeline declared one.
    fn horizon(&self) -> Option<&str>;

    /// The columns that it reads, in order. A model for each step of the horizon reads the hidden column
    /// [`HORIZON_STEP`](crate::HORIZON_STEP) of rows of the future, too.
    fn columns(&self) -> Vec<String>;

    /// Fails where the columns that it reads have other types than it takes.
    fn check(&self, schema: &Schema) -> Result<()>;

    /// The quantiles that it predicts beside its point forecast, in ascending order.
    fn quantiles(&self) -> &[f64] {
        &[]
    }

    /// The label, where the predictions for a row are values of the label in features of later rows.
    fn feeds_back(&self) -> Option<&str> {
        None
    }

    /// Predictions, given its columns; null for rows that do not count.
    fn predict(&self, columns: &[ArrayRef], rows: usize) -> Result<Predictions>;
}

/// What a model predicts for some rows.
#[derive(Debug, Clone, PartialEq)]
pub struct Predictions {
    /// The point forecast.
    pub point: Float32Array,
    /// Of each quantile of the model, in their order. They may cross.
    pub quantiles: Vec<Float32Array>,
}

impl From<Float32Array> for Predictions {
    fn from(point: Float32Array) -> Self {
        Predictions {
            point,
            quantiles: Vec::new(),
        }
    }
}

/// The column of a quantile beside that of the point forecast: `prediction_q10` for 0.1.
pub fn quantile_column(point: &str, quantile: f64) -> String {
    format!("{point}_q{}", (quantile * 1e10).round() / 1e8)
}

/// A model in memory. Steps find it by its id as long as it is held.
#[derive(Debug)]
pub struct LoadedModel {
    /// The model.
    pub predictor: Arc<dyn ModelPredictor>,
    /// The directory of its files, from which workers load it; none of one that is in memory alone.
    pub(crate) place: Option<String>,
}

/// Models that a caller holds, by id: the configuration of a step is JSON, and so has only the id.
static LOADED: Mutex<BTreeMap<String, Weak<LoadedModel>>> = Mutex::new(BTreeMap::new());

impl LoadedModel {
    /// Lets steps find a model. `place` is the directory of its files.
    pub fn new(
        predictor: Arc<dyn ModelPredictor>,
        place: Option<&StorageLocation>,
    ) -> Arc<LoadedModel> {
        let place = place.map(|place| place.shown.clone());
        let id = predictor.id().to_owned();
        let mut loaded = LOADED.lock().unwrap_or_else(PoisonError::into_inner);
        loaded.retain(|_, known| known.strong_count() > 0);
        // The stages of a worker share a model: the first of them to end must not take it from the others.
        if let Some(known) = loaded.get(&id).and_then(Weak::upgrade)
            && place.is_some()
            && known.place == place
        {
            return known;
        }
        let model = Arc::new(LoadedModel { predictor, place });
        loaded.insert(id, Arc::downgrade(&model));
        model
    }

    /// The model of this id.
    pub(crate) fn find(id: &str) -> Result<Arc<LoadedModel>> {
        let loaded = LOADED.lock().unwrap_or_else(PoisonError::into_inner);
        let found = loaded.get(id).and_then(Weak::upgrade);
        found.ok_or_else(|| Fault::new(codes::NOT_FOUND, format!("the model {id} is not loaded")))
    }
}
