//! Models that were trained, and what they predict for whole datasets.
//!
//! Predicting is one more step after those of the artifact, so that it is done as any step is: in
//! bounded memory, on all threads, with outputs that are whole or not there.

use std::collections::BTreeMap;
use std::sync::Arc;

use arrow::array::{ArrayRef, RecordBatch};
use forebay_connectors::{MODEL_FILE, ModelCard, Predictor};
use forebay_model::{
    Fault, Interval, NodeInput, Pipeline, PipelineNode, PipelineSink, Result, codes,
};
use forebay_plan::{ConfiguredTransform, FUTURE_PART, unknown_column};
use forebay_run::{
    Artifact, ForecastColumns, ForecastFormat, LoadedModel, Manifest, ModelPredictor,
    PredictTransform, Predictions, RunReport, ServedRows, Session, output_root, quantile_column,
};
use forebay_storage::StorageClient;
use forebay_transforms::SelectColumns;
use serde_json::{Value, json};

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
    /// Keeps the model where steps find it.
    _loaded: Arc<LoadedModel>,
    /// What the features are made with.
    pub artifact: Artifact,
}

/// What is to be predicted.
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
    /// Where the sources of the pipeline are now, by name.
    pub sources: BTreeMap<String, String>,
    /// The directory of the predictions.
    pub output: String,
    /// The format of its files.
    pub format: ForecastFormat,
    /// Columns that are written beside them: of the model's step, all when empty; of rows of the future, source columns
    /// beside keys and time.
    pub columns: Vec<String>,
    /// Predicts for the rows of this part of the split only; `future` are the rows that `future_rows` adds, which are
    /// predicted when left out, where the model's step has them.
    pub split: Option<String>,
    /// What the column of predictions is called: `prediction` when left out.
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
            _loaded: LoadedModel::new(predictor.clone(), Some(&data)),
            predictor,
            artifact,
        })
    }

    /// What the model takes and predicts.
    pub fn card(&self) -> &ModelCard {
        &self.predictor.card
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
        let session = session.clone().serving(ServedRows {
            from: scoring.rows_from.clone(),
            whole_history: scoring.whole_history,
            labels: vec![self.predictor.card.label.clone()],
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
            source.config["path"] = Value::from(path.as_str());
        }
        let mut name = NODE.to_owned();
        while pipeline.node(&name).is_some() || pipeline.source(&name).is_some() {
            name.push('_');
        }
        let column = scoring
            .name
            .clone()
            .unwrap_or_else(|| "prediction".to_owned());
        let card = &self.predictor.card;
        let has_future = session.has_future_rows(&self.artifact, &card.origin.from, &card.label)?;
        let split = scoring
            .split
            .clone()
            .or_else(|| has_future.then(|| FUTURE_PART.to_owned()));
        let forecast = (split.as_deref() == Some(FUTURE_PART)).then(|| ForecastColumns {
            columns: scoring.columns.clone(),
            artifact: self.artifact.id.to_string(),
            horizon: card.origin.horizon.clone(),
        });
        let selects = forecast.is_none() && !scoring.columns.is_empty();
        let (model, (min, max)) = (card.origin.training.clone(), scoring.bounds);
        let mut steps = vec![
            PredictTransform {
                model,
                column: column.clone(),
                min,
                max,
                forecast,
            }
            .step()?,
        ];
        if selects {
            let predictor: &dyn ModelPredictor = self.predictor.as_ref();
            let quantiles = predictor
                .quantiles()
                .iter()
                .map(|quantile| quantile_column(&column, *quantile));
            let columns = scoring
                .columns
                .iter()
                .cloned()
                .chain([column.clone()])
                .chain(quantiles);
            steps.push(SelectColumns(columns.collect()).step()?);
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
