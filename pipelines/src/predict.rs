//! Models that were trained, and what they predict for whole datasets.
//!
//! Predicting is one more step after those of the artifact, so that it is done as any step is: in
//! bounded memory, on all threads, with outputs that are whole or not there.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use arrow::array::{ArrayRef, Float32Array, RecordBatch};
use arrow::datatypes::{DataType, Field as Column, Schema};
use forebay_connectors::{MODEL_FILE, ModelCard, OnNonFinite, ParquetSink, Predictor, SinkFormat};
use forebay_feed::{BatchFeatures, CategoricalType, FeatureField, NonFinite, PackedRows, PartRole};
use forebay_model::{Fault, NodeInput, Pipeline, PipelineNode, PipelineSink, Result, codes};
use forebay_plan::{BindScope, ColumnSelector, ConfiguredTransform, MapOp, PlanOp, Transform, unknown_column};
use forebay_run::{Artifact, Manifest, RunReport, Session};
use forebay_storage::StorageClient;
use forebay_transforms::SelectColumns;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

/// The id of values that are missing: no row of a table has it.
const MISSING_ID: f64 = -1.0;

/// The step that predicts.
const NODE: &str = "predictions";

/// A model that was trained, with the artifact that its features come from.
pub struct TrainedModel {
    predictor: Arc<Predictor>,
    /// What the features are made with.
    pub artifact: Artifact,
}

/// What is to be predicted.
#[derive(Debug, Clone, Default)]
pub struct ScoringRequest {
    /// Where the sources of the pipeline are now, by name.
    pub sources: BTreeMap<String, String>,
    /// The directory of the predictions.
    pub output: String,
    /// Columns of the model's step that are written beside them; all when empty.
    pub columns: Vec<String>,
    /// Predicts for the rows of this part of the split only.
    pub split: Option<String>,
    /// What the column of predictions is called: `prediction` when left out.
    pub name: Option<String>,
}

impl TrainedModel {
    /// Reads the directory of a `train` sink as its readers see it, or one of its `_data` directories.
    pub fn load(io: &StorageClient, dir: &str) -> Result<TrainedModel> {
        let dir = io.resolve(dir)?;
        let data = Manifest::read(io, &dir)?.map_or(dir.clone(), |visible| dir.join(&visible.data));
        let file = data.join(MODEL_FILE);
        let bytes = io.get(&file)?.ok_or_else(|| {
            let fault = Fault::new(codes::NOT_FOUND, "there is no model here").file(&dir.shown);
            fault.hint("give the directory of a `train` sink, as `forebay run` prints it")
        })?;
        let predictor = Predictor::read(&bytes).map_err(|fault| fault.file(&file.shown))?;
        let artifact = Artifact::load(io, &data.join("artifact"))?;
        if artifact.id.to_string() != predictor.card.origin.artifact {
            let fault = Fault::new(codes::CORRUPT, "the artifact beside the model is not the model's");
            return Err(fault.file(&data.shown).hint("train the model again: the same command writes what is missing"));
        }
        let predictor = Arc::new(predictor);
        register_predictor(&predictor);
        Ok(TrainedModel { predictor, artifact })
    }

    /// What the model takes and predicts.
    pub fn card(&self) -> &ModelCard {
        &self.predictor.card
    }

    /// Predictions for rows that have the columns of the model's step: null for rows that do not count.
    pub fn predict(&self, rows: &RecordBatch) -> Result<Float32Array> {
        let features = model_features(&self.predictor.card);
        let column =
            |name: String| rows.column_by_name(&name).cloned().ok_or_else(|| unknown_column(&name, rows.schema_ref()));
        let columns: Vec<ArrayRef> = features.columns().into_iter().map(column).collect::<Result<_>>()?;
        predict(&self.predictor, &features, &columns, rows.num_rows())
    }

    /// Predicts for whole datasets, and publishes that as Parquet.
    pub fn score(&self, session: &Session, scoring: &ScoringRequest) -> Result<RunReport> {
        session.apply(&self.pipeline(scoring)?, &self.artifact)
    }

    fn pipeline(&self, scoring: &ScoringRequest) -> Result<Pipeline> {
        let mut pipeline = self.artifact.pipeline.clone();
        for source in &mut pipeline.sources {
            let path = scoring.sources.get(&source.name).ok_or_else(|| {
                Fault::new(codes::MISSING_FIELD, format!("nothing says where the source `{}` is", source.name))
            })?;
            source.config["path"] = Value::from(path.as_str());
        }
        let mut name = NODE.to_owned();
        while pipeline.node(&name).is_some() || pipeline.source(&name).is_some() {
            name.push('_');
        }
        let column = scoring.name.clone().unwrap_or_else(|| "prediction".to_owned());
        let model = self.predictor.card.origin.training.clone();
        let mut steps = vec![PredictTransform { model, column: column.clone() }.step()?];
        if !scoring.columns.is_empty() {
            let columns = scoring.columns.iter().cloned().chain([column]);
            steps.push(SelectColumns(columns.collect::<ColumnSelector>()).step()?);
        }
        let input = NodeInput::From(self.predictor.card.origin.from.clone());
        pipeline.nodes.push(PipelineNode { name: name.clone(), input, fit_on: None, steps, optional: false, at: None });
        let config = json!(ParquetSink::at(&scoring.output));
        let (format, split) = (<ParquetSink as SinkFormat>::NAME.to_owned(), scoring.split.clone());
        pipeline.sinks =
            vec![PipelineSink { name: NODE.to_owned(), from: name, format, config, split, optional: false, at: None }];
        Ok(pipeline)
    }
}

/// Models that a caller has loaded, by the ids of their trainings: a step's configuration is JSON, and so
/// holds only the id.
static LOADED: Mutex<BTreeMap<String, Weak<Predictor>>> = Mutex::new(BTreeMap::new());

fn register_predictor(predictor: &Arc<Predictor>) {
    let mut loaded = LOADED.lock().unwrap_or_else(PoisonError::into_inner);
    loaded.retain(|_, known| known.strong_count() > 0);
    loaded.insert(predictor.card.origin.training.clone(), Arc::downgrade(predictor));
}

fn loaded_predictor(training: &str) -> Result<Arc<Predictor>> {
    let loaded = LOADED.lock().unwrap_or_else(PoisonError::into_inner);
    let found = loaded.get(training).and_then(Weak::upgrade);
    found.ok_or_else(|| Fault::new(codes::NOT_FOUND, format!("the model {training} is not loaded")))
}

/// Adds a model's prediction to the rows that it takes. No spec can name it: it needs a model at hand.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct PredictTransform {
    /// The id of the training.
    model: String,
    /// The new column.
    column: String,
}

impl ConfiguredTransform for PredictTransform {
    const NAME: &'static str = "predict";
}

impl Transform for PredictTransform {
    fn bind(&self, scope: &BindScope<'_>) -> Result<Vec<PlanOp>> {
        let predictor = loaded_predictor(&self.model)?;
        let features = model_features(&predictor.card);
        if scope.schema.field_with_name(&self.column).is_ok() {
            let fault = Fault::new(codes::COLUMN_CLASH, format!("there is a column `{}` already", self.column));
            return Err(fault.column(&self.column).hint("call the predictions something else: `--name`"));
        }
        let faults = features
            .dense
            .iter()
            .chain(&features.categorical)
            .filter_map(|field| check_feature_column(field, scope.schema).err());
        if let Some(fault) = Fault::combine(faults.collect()) {
            return Err(fault);
        }
        let reads = features.columns();
        let output = Column::new(&self.column, DataType::Float32, true);
        Ok(vec![PlanOp::Map(MapOp::new(reads, [output], move |inputs, rows| {
            Ok(vec![Arc::new(predict(&predictor, &features, inputs, rows)?) as ArrayRef])
        }))])
    }
}

/// What the model takes, as batches had it when it was trained.
fn model_features(card: &ModelCard) -> BatchFeatures {
    let categorical = card.shape.embeddings.iter();
    let categorical = categorical.map(|embedding| FeatureField {
        width: embedding.ids as u32,
        ..FeatureField::new(&embedding.column).missing(MISSING_ID)
    });
    BatchFeatures {
        dense: card.shape.dense.clone(),
        categorical: categorical.collect(),
        categorical_type: CategoricalType::I32,
        non_finite: match card.non_finite {
            OnNonFinite::Fail => NonFinite::Fail,
            OnNonFinite::Skip => NonFinite::Skip,
            OnNonFinite::Zero => NonFinite::Zero,
        },
        ..BatchFeatures::default()
    }
}

/// Whether the rows have what the model takes. The widths of lists are known when they are there.
fn check_feature_column(field: &FeatureField, schema: &Schema) -> Result<()> {
    let Ok(column) = schema.field_with_name(&field.column) else {
        let fault = unknown_column(&field.column, schema);
        return Err(fault.note("the model was trained with this column"));
    };
    let is_number = |data_type: &DataType| data_type.is_numeric() || *data_type == DataType::Boolean;
    let suits = match column.data_type() {
        DataType::FixedSizeList(item, _) | DataType::List(item) | DataType::LargeList(item) => {
            is_number(item.data_type())
        }
        other => is_number(other) && field.width == 1,
    };
    if suits {
        return Ok(());
    }
    let message = format!("`{}` is {}, and the model takes {} numbers", field.column, column.data_type(), field.width);
    Err(Fault::new(codes::COLUMN_TYPE, message)
        .column(&field.column)
        .hint("predict with the data that the model is for"))
}

fn predict(predictor: &Predictor, features: &BatchFeatures, columns: &[ArrayRef], rows: usize) -> Result<Float32Array> {
    if rows == 0 {
        return Ok(Float32Array::new_null(0));
    }
    let fields = columns.iter().enumerate();
    let fields = fields.map(|(number, array)| Column::new(number.to_string(), array.data_type().clone(), true));
    let batch = RecordBatch::try_new(Arc::new(Schema::new(fields.collect::<Vec<_>>())), columns.to_vec())?;
    let packed =
        PackedRows::new(features, &batch).map_err(|fault| fault.note("rows count from the first of a batch"))?;
    let predicted = predictor.predict(rows, packed.numbers(PartRole::Dense), packed.numbers(PartRole::Categorical));
    let counts = packed.numbers::<u8>(PartRole::Mask).iter().map(|mask| *mask != 0);
    Ok(predicted.into_iter().zip(counts).map(|(value, counts)| counts.then_some(value)).collect())
}
