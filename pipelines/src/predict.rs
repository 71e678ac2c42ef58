//! Trained models, and their predictions for whole datasets.
//!
//! Prediction is one more step after those of the artifact, so that it runs like any step: in
//! bounded memory, on all threads, with outputs that are complete or absent.

use std::collections::BTreeMap;
use std::sync::Arc;

use arrow::array::{ArrayRef, RecordBatch};
use arrow::datatypes::{DataType, Field};
use forebay_connectors::{MODEL_FILE, ModelCard, ModelPart, Predictor, lightgbm_model, onnx_model};
use forebay_contract::{
    ForecastFormat, HORIZON_STEP, ModelClasses, ModelPredictor, Predictions, TargetFunction,
    TargetStage, prediction_fields,
};
use forebay_model::{
    ContentId, Fault, Interval, NodeInput, Pipeline, PipelineNode, PipelineSink, Result, codes,
};
use forebay_plan::{ConfiguredTransform, FUTURE_PART, TransformRegistry, unknown_column};
use forebay_run::{
    Artifact, ForecastColumns, ForecastRequest, LoadedModel, Manifest, PredictTransform, RunReport,
    ServedRows, ServingModel, ServingReference, Session, output_root, portable_artifact_steps,
    target_stages,
};
use forebay_storage::{StorageClient, StorageLocation};
use forebay_transforms::{SelectColumns, TargetTransform};
use serde_json::json;

use crate::forebay::{Forebay, exact_sql};

/// Name of the column of predictions, unless a request says another.
const PREDICTION: &str = "prediction";

/// The step that predicts.
const NODE: &str = "predictions";

/// A model that was trained, with the artifact that its features come from.
///
/// ```no_run
/// use forebay::prelude::*;
///
/// let session = Forebay::new().session()?;
/// let model = TrainedModel::load(session.io(), "out/net")?;
/// let mut scoring = ScoringRequest { output: "out/predictions".into(), ..ScoringRequest::default() };
/// scoring.sources.insert("demand".into(), "data/demand".into());
/// let report = model.score(&session, &scoring)?;
/// # let _ = report;
/// # Ok::<(), Fault>(())
/// ```
pub struct TrainedModel {
    predictor: Arc<Predictor>,
    /// Model as steps find it.
    loaded: Arc<LoadedModel>,
    /// Transforms that its steps may name.
    registry: TransformRegistry,
    /// Artifact that the features are made with.
    pub artifact: Artifact,
}

/// Request for predictions.
///
/// ```
/// use forebay::prelude::*;
///
/// let mut scoring = ScoringRequest { output: "out/forecast".into(), ..ScoringRequest::default() };
/// scoring.sources.insert("demand".into(), "data/demand".into());
/// scoring.rows_from = Some("2016-05-22".into());
/// scoring.format = ForecastFormat::Csv;
/// scoring.bounds = (Some(0.0), None);
/// # let _ = scoring;
/// ```
#[derive(Debug, Clone, Default)]
pub struct ScoringRequest {
    /// Present paths of the sources of the pipeline, by name.
    pub sources: BTreeMap<String, String>,
    /// The directory of the predictions.
    pub output: String,
    /// The format of its files.
    pub format: ForecastFormat,
    /// Columns that are written in addition to them: of the model's step, all when empty; of rows
    /// of the future, source columns in addition to keys and time.
    pub columns: Vec<String>,
    /// Predicts for the rows of this part of the split only; `future` are the rows that `future_rows` adds, which are
    /// predicted when left out, where the model's step has them.
    pub split: Option<String>,
    /// Name of the column of predictions: `prediction` when left out.
    pub name: Option<String>,
    /// Least and greatest prediction: what lies beyond is moved to them.
    pub bounds: (Option<f64>, Option<f64>),
    /// Predicts as if time had come as far as its end: for the rows inside it, or for the future after it.
    pub interval: Option<Interval>,
    /// The time from which on rows are predicted. Earlier rows are history: they are read for windows alone.
    pub rows_from: Option<String>,
    /// The given rows are all the history that there is: rows are predicted although windows reach further back.
    pub whole_history: bool,
}

/// Form of served forecasts.
///
/// ```
/// use forebay::prelude::*;
///
/// let form = ForecastForm { bounds: (Some(0.0), None), ..ForecastForm::default() };
/// # let _ = form;
/// ```
#[derive(Debug, Clone, Default)]
pub struct ForecastForm {
    /// Name of the column of predictions: `prediction` when left out.
    pub name: Option<String>,
    /// Source columns in addition to keys and time: those that `future_rows` carries on.
    pub columns: Vec<String>,
    /// Least and greatest prediction: what lies beyond is moved to them.
    pub bounds: (Option<f64>, Option<f64>),
}

impl TrainedModel {
    /// Reads the directory of a `train` sink as its readers see it, or one of its `_data` directories.
    pub fn load(io: &StorageClient, dir: &str) -> Result<TrainedModel> {
        let root = output_root(io, dir)?;
        let visible = Manifest::read(io, &root)?;
        let dir = io.resolve(dir)?;
        let data = visible.map_or(dir.clone(), |visible| root.join(&visible.data));
        let file = data.join(MODEL_FILE);
        let bytes = io.get(&file)?.ok_or_else(|| {
            let fault = Fault::new(codes::NOT_FOUND, "there is no model here").file(&dir.shown);
            fault.hint("give the directory of a `train` sink, as `forebay run` prints it")
        })?;
        let predictor = Predictor::read(&bytes).map_err(|fault| fault.file(&file.shown))?;
        let artifact = Artifact::load(io, &data.join("artifact"))?;
        if artifact.id.to_string() != predictor.card.origin.artifact {
            let fault = Fault::new(
                codes::CORRUPT,
                "the artifact beside the model is not the model's",
            );
            return Err(fault
                .file(&data.shown)
                .hint("train the model again: the same command writes what is missing"));
        }
        let predictor = Arc::new(predictor);
        Ok(TrainedModel {
            loaded: LoadedModel::new(predictor.clone(), Some(&data)),
            predictor,
            artifact,
            registry: forebay_transforms::registry(),
        })
    }

    /// Knows the transforms that were registered with [`Forebay::with_transform`], for an export of its steps.
    ///
    /// ```no_run
    /// use forebay::prelude::*;
    ///
    /// let forebay = Forebay::new();
    /// let session = forebay.session()?;
    /// let model = TrainedModel::load(session.io(), "out/net")?.with_transforms_of(&forebay);
    /// std::fs::write("net.onnx", model.to_onnx(&ModelPart::default())?)?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn with_transforms_of(self, forebay: &Forebay) -> TrainedModel {
        TrainedModel {
            registry: forebay.registry.clone(),
            ..self
        }
    }

    /// Takes the serving state of its features from a state directory: that of the newest run whose windows are those of
    /// the model's run, else that of the model's run. Without such a state it has none.
    pub fn with_state(mut self, io: &StorageClient, state: &str) -> Result<TrainedModel> {
        let step = &self.predictor.card.origin.from;
        let pipeline = &self.artifact.pipeline.name;
        let state = io.resolve(state)?;
        self.artifact.serving = serving_state(io, &state, self.artifact.id, pipeline, step)?;
        Ok(self)
    }

    /// Description of the model's inputs and predictions.
    pub fn card(&self) -> &ModelCard {
        &self.predictor.card
    }

    /// The columns of its step that it reads, in order.
    pub fn columns(&self) -> Vec<String> {
        let model: &dyn ModelPredictor = self.predictor.as_ref();
        model.columns()
    }

    /// The predicted quantiles beside the point forecast, in ascending order.
    pub fn quantiles(&self) -> &[f64] {
        let model: &dyn ModelPredictor = self.predictor.as_ref();
        model.quantiles()
    }

    /// The classes that it tells apart, in ascending order; `None` if it predicts numbers.
    pub fn classes(&self) -> Option<&ModelClasses> {
        let model: &dyn ModelPredictor = self.predictor.as_ref();
        model.classes()
    }

    /// The columns of predictions of which the first has this name.
    pub(crate) fn prediction_fields(&self, point: &str) -> Vec<Field> {
        prediction_fields(self.predictor.as_ref(), point, &DataType::Float32)
    }

    /// True if it predicts rows of the future alone: it has trees for each step of the horizon, or predicts one step from
    /// another.
    pub fn predicts_future_alone(&self) -> bool {
        let model: &dyn ModelPredictor = self.predictor.as_ref();
        let mut columns = model.columns().into_iter();
        model.feeds_back().is_some() || columns.any(|column| column == HORIZON_STEP)
    }

    /// Its forecasts for series of the serving state of its artifact: [`ServingModel::forecast`] gives the whole horizon of
    /// some series. A model that is loaded has no serving state yet: [`TrainedModel::with_state`] takes it from the state
    /// directory of its run.
    ///
    /// ```no_run
    /// use forebay::prelude::*;
    ///
    /// let forebay = Forebay::new();
    /// let session = forebay.session()?;
    /// let model = TrainedModel::load(session.io(), "out/trees")?;
    /// let model = model.with_state(session.io(), ".forebay")?;
    /// let served = model.forecasts(&forebay, &ForecastForm::default())?;
    /// println!("{:?}", served.forecast_keys());
    /// # Ok::<(), Fault>(())
    /// ```
    pub fn forecasts(&self, forebay: &Forebay, form: &ForecastForm) -> Result<ServingModel> {
        let card = &self.predictor.card;
        let column = form.name.clone().unwrap_or_else(|| PREDICTION.to_owned());
        let columns = ForecastColumns {
            columns: form.columns.clone(),
            artifact: Some(self.artifact.id.to_string()),
            horizon: card.origin.horizon.clone(),
        };
        let step = self.prediction_step(column, form.bounds, Some(columns));
        let request = ForecastRequest {
            from: &card.origin.from,
            model: &self.loaded,
            step: &step,
        };
        ServingModel::with_forecast(&self.artifact, &forebay.registry, &exact_sql(), &request)
    }

    /// The step that predicts with it.
    fn prediction_step(
        &self,
        column: String,
        (min, max): (Option<f64>, Option<f64>),
        forecast: Option<ForecastColumns>,
    ) -> PredictTransform {
        PredictTransform {
            model: self.predictor.card.origin.training.clone(),
            column,
            min,
            max,
            doubles: false,
            forecast,
        }
    }

    /// The model as a file of ONNX, with the row-wise steps before it: it takes columns of the source, and results of
    /// windows and joins. A step that other runtimes do not compute is a fault that names it.
    ///
    /// ```no_run
    /// use forebay::prelude::*;
    ///
    /// let session = Forebay::new().session()?;
    /// let model = TrainedModel::load(session.io(), "out/net")?;
    /// std::fs::write("net.onnx", model.to_onnx(&ModelPart::default())?)?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn to_onnx(&self, part: &ModelPart) -> Result<Vec<u8>> {
        let card = self.card();
        let dense = card.shape.dense.iter().map(|field| &field.column);
        let ids = card.shape.embeddings.iter();
        let ids = ids.map(|embedding| &embedding.column);
        let target = self.target_stages()?;
        // Earlier values, which differences need, are no part of a file.
        let stages = target
            .iter()
            .filter(|stage| stage.function != TargetFunction::Difference);
        let parameters = stages.flat_map(|stage| &stage.parameters);
        let columns: Vec<String> = dense.chain(ids).chain(parameters).cloned().collect();
        let steps = portable_artifact_steps(
            &self.artifact,
            &self.registry,
            &exact_sql(),
            &card.origin.from,
            &columns,
        )?;
        onnx_model(&self.predictor, part, Some(&steps), &target)
    }

    /// The model alone as a file of ONNX: it takes the columns that its step delivers.
    pub fn to_onnx_without_steps(&self, part: &ModelPart) -> Result<Vec<u8>> {
        onnx_model(&self.predictor, part, None, &self.target_stages()?)
    }

    /// The stages by which the steps transform the label.
    fn target_stages(&self) -> Result<Vec<TargetStage>> {
        let nodes = self.artifact.pipeline.nodes.iter();
        let mut steps = nodes.flat_map(|node| &node.steps);
        // Binding all steps takes more than a model alone needs, such as the modules of functions.
        if !steps.any(|step| step.kind == TargetTransform::NAME) {
            return Ok(Vec::new());
        }
        let card = self.card();
        target_stages(
            &self.artifact,
            &self.registry,
            &exact_sql(),
            &card.origin.from,
            &card.label,
        )
    }

    /// The point forecast of boosted trees as a text model of LightGBM.
    pub fn to_lightgbm(&self, part: &ModelPart) -> Result<String> {
        lightgbm_model(&self.predictor, part)
    }

    /// Predictions for rows that have the columns of the model's step: null for rows that do not count.
    pub fn predict(&self, rows: &RecordBatch) -> Result<Predictions> {
        let column = |name: String| {
            rows.column_by_name(&name)
                .cloned()
                .ok_or_else(|| unknown_column(&name, rows.schema_ref()))
        };
        let model: &dyn ModelPredictor = self.predictor.as_ref();
        let columns: Vec<ArrayRef> = model
            .columns()
            .into_iter()
            .map(column)
            .collect::<Result<_>>()?;
        model.predict(&columns, rows.num_rows())
    }

    /// Predicts for whole datasets, and publishes that. Rows of the future become a forecast as a `predict` sink writes
    /// it, with the same contract.
    pub fn score(&self, session: &Session, scoring: &ScoringRequest) -> Result<RunReport> {
        let pipeline = self.pipeline(session, scoring)?;
        session.add_model(&self.loaded);
        let known_columns = self
            .artifact
            .origin
            .known
            .get(&self.predictor.card.origin.from);
        let session = session.clone().serving(ServedRows {
            from: scoring.rows_from.clone(),
            whole_history: scoring.whole_history,
            labels: vec![self.predictor.card.label.clone()],
            known: known_columns.into_iter().flatten().cloned().collect(),
        });
        match &scoring.interval {
            Some(interval) => session.apply_interval(&pipeline, &self.artifact, interval),
            None => session.apply(&pipeline, &self.artifact),
        }
    }

    fn pipeline(&self, session: &Session, scoring: &ScoringRequest) -> Result<Pipeline> {
        let mut pipeline = self.artifact.pipeline.clone();
        for source in &mut pipeline.sources {
            let path = scoring.sources.get(&source.name).ok_or_else(|| {
                Fault::new(
                    codes::MISSING_FIELD,
                    format!("nothing says where the source `{}` is", source.name),
                )
            })?;
            source.set_path(path.as_str());
        }
        let mut name = NODE.to_owned();
        while pipeline.node(&name).is_some() || pipeline.source(&name).is_some() {
            name.push('_');
        }
        let column = scoring
            .name
            .clone()
            .unwrap_or_else(|| PREDICTION.to_owned());
        let card = &self.predictor.card;
        let has_future = session.has_future_rows(&self.artifact, &card.origin.from, &card.label)?;
        let split = scoring
            .split
            .clone()
            .or_else(|| has_future.then(|| FUTURE_PART.to_owned()));
        let forecast = (split.as_deref() == Some(FUTURE_PART)).then(|| ForecastColumns {
            columns: scoring.columns.clone(),
            artifact: Some(self.artifact.id.to_string()),
            horizon: card.origin.horizon.clone(),
        });
        let selects = forecast.is_none() && !scoring.columns.is_empty();
        let step = self.prediction_step(column.clone(), scoring.bounds, forecast);
        let mut steps = vec![step.step()?];
        if selects {
            let mut columns = scoring.columns.clone();
            for field in self.prediction_fields(&column) {
                columns.push(field.name().clone());
            }
            steps.push(SelectColumns(columns.into_iter().collect()).step()?);
        }
        let input = NodeInput::From(card.origin.from.clone());
        pipeline.nodes.push(PipelineNode::new(&name, input, steps));
        let format = scoring.format.name().to_owned();
        let config = session.canonical_sink(&format, json!({ "path": scoring.output }))?;
        pipeline.sinks = vec![PipelineSink {
            name: NODE.to_owned(),
            from: name,
            format,
            config,
            split,
            optional: false,
            at: None,
        }];
        Ok(pipeline)
    }
}

/// The serving state of a model's features: that of the newest run whose windows are those of the model's run, else that
/// of the model's run. `None` where the state directory has none of the model's step.
pub(crate) fn serving_state(
    io: &StorageClient,
    state: &StorageLocation,
    artifact: ContentId,
    pipeline: &str,
    step: &str,
) -> Result<Option<ServingReference>> {
    let directory = Artifact::directory(state, artifact);
    let of_run = ServingReference::read(io, &directory)?;
    let Some(of_run) = of_run.filter(|state| state.manifest.node == step) else {
        return Ok(None);
    };
    let Some(newest) = Artifact::latest(io, state, pipeline)? else {
        return Ok(Some(of_run));
    };
    let Some(newest) = ServingReference::read(io, &newest)? else {
        return Ok(Some(of_run));
    };
    let is_later = newest.manifest.as_of_ticks >= of_run.manifest.as_of_ticks;
    if is_later && newest.manifest.continues(&of_run.manifest) {
        Ok(Some(newest))
    } else {
        Ok(Some(of_run))
    }
}
