//! A version that is served: an artifact, or a model with the artifact of its features.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, RecordBatch, new_null_array};
use arrow::compute::cast;
use arrow::datatypes::{DataType, Field, FieldRef, Float64Type, Schema, SchemaRef};
use forebay_model::{Fault, Result, codes, logical_type, shorten, type_label, type_words};
use forebay_run::{Artifact, ServingModel, bounded_predictions};
use serde_json::{Value, json};

use super::drift::DriftMonitor;
use super::error::ServeError;
use crate::{Forebay, ForecastForm, TrainedModel};

/// Below it, each whole number has a float64 of its own.
pub(super) const EXACT_INTEGERS_FLOAT64: f64 = (1_u64 << 53) as f64;

/// Settings of the answers of a version.
#[derive(Debug, Clone, Default)]
pub(crate) struct AnswerOptions {
    /// The step whose columns an artifact's answers have; by default, that of the first sink.
    pub node: Option<String>,
    /// Adds the columns of the model's step to its predictions.
    pub with_features: bool,
    /// Answers series with forecasts of their whole horizon.
    pub forecast: bool,
    /// Name of the column of predictions.
    pub prediction: String,
    /// Least and greatest prediction.
    pub bounds: (Option<f64>, Option<f64>),
    /// Memory for the states of series of a version.
    pub state_bytes: Option<usize>,
}

impl AnswerOptions {
    fn with_state_memory(&self, features: ServingModel) -> ServingModel {
        match self.state_bytes {
            Some(bytes) => features.with_state_bytes(bytes),
            None => features,
        }
    }
}

/// Facts about the state that a version holds of past rows.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct StateFacts {
    /// Seconds between the newest time of the state and now; NaN where times are plain numbers, or without rows.
    pub age_seconds: f64,
    /// Number of series.
    pub series: u64,
    /// Bytes in memory or in mapped files.
    pub bytes: u64,
}

/// The fault of a step that needs other rows, with the ways to them: a state for this step, or a dataset.
fn with_state_hint(fault: Fault, step: &str) -> Fault {
    if fault.code() != codes::UNSUPPORTED {
        return fault;
    }
    fault.hint(format!(
        "declare `serving: {{ from: {step} }}` in the spec, run it, and give its state directory \
         with `--state`: it holds the rows before; or use `forebay predict` on a dataset"
    ))
}

/// Answers of a version.
enum AnswerKind {
    /// The columns of a step.
    Features,
    /// Predictions of a model, for rows of its source.
    Predictions(Box<TrainedModel>),
    /// Forecasts of a model, for series of the serving state.
    Forecasts,
}

/// A version that answers requests.
pub(crate) struct ServedModel {
    /// Id of the artifact or of the model's training. With a serving state there is a version for each state: beginning
    /// of the id, hyphen, hash of the state.
    pub version: String,
    /// Name of its pipeline.
    pub pipeline: String,
    /// Key columns of the source.
    pub keys: Vec<String>,
    /// Column of times of the source.
    pub time: Option<String>,
    /// Drift of the rows that it has answered.
    pub(super) drift: DriftMonitor,
    features: ServingModel,
    /// Columns of the source by name.
    source_fields: HashMap<String, FieldRef>,
    kind: AnswerKind,
    inputs: SchemaRef,
    outputs: SchemaRef,
    options: AnswerOptions,
}

impl ServedModel {
    /// Serves the columns of an artifact's step.
    pub fn of_artifact(artifact: &Artifact, options: AnswerOptions) -> Result<ServedModel> {
        if options.forecast {
            let message = "an artifact has features and no forecasts: a model makes those";
            return Err(Fault::new(codes::UNSUPPORTED, message)
                .hint("give the output of a `train` sink, or leave `--forecast` out"));
        }
        let features = Forebay::new().model(artifact, options.node.as_deref())?;
        let features = options.with_state_memory(features);
        Ok(ServedModel {
            version: state_version(artifact.id.to_string(), artifact)?,
            pipeline: artifact.pipeline.name.clone(),
            keys: key_columns(artifact, &features),
            time: time_column(artifact, &features),
            drift: DriftMonitor::new(features.column_fits()),
            outputs: features.output().clone(),
            source_fields: fields_by_name(&features),
            inputs: features.input().clone(),
            features,
            kind: AnswerKind::Features,
            options,
        })
    }

    /// Serves predictions of a model, from rows of its source, and from the serving state of its artifact, if that has
    /// one. A model that predicts rows of the future alone, or a transformed target, answers series of that state with
    /// forecasts.
    pub fn of_trained(trained: TrainedModel, options: AnswerOptions) -> Result<ServedModel> {
        if options.forecast || trained.predicts_future_alone() {
            return ServedModel::of_forecasts(&trained, options);
        }
        let from = trained.card().origin.from.clone();
        let features = Forebay::new()
            .model(&trained.artifact, Some(&from))
            .map_err(|fault| with_state_hint(fault, &from))?;
        if features.transformed_target() == Some(trained.card().label.as_str()) {
            // Predictions of single rows would be in the units of the transformed target.
            return ServedModel::of_forecasts(&trained, options);
        }
        let features = options.with_state_memory(features);
        if let Some(missing) = missing_feature(&trained, &features) {
            let message =
                format!("the model reads `{missing}`, which rows of `{from}` do not have");
            return Err(Fault::new(codes::UNSUPPORTED, message)
                .column(missing)
                .hint(
                    "the model predicts rows of the future: use `forebay predict` on the dataset",
                ));
        }
        let (min, max) = options.bounds;
        if trained.classes().is_some() && (min.is_some() || max.is_some()) {
            let message = "the model predicts classes, and `--min` and `--max` bound numbers";
            return Err(Fault::new(codes::USAGE, message).hint("leave them out"));
        }
        let outputs = prediction_schema(&trained, &features, &options)?;
        Ok(ServedModel {
            version: state_version(trained.card().origin.training.clone(), &trained.artifact)?,
            pipeline: trained.artifact.pipeline.name.clone(),
            keys: key_columns(&trained.artifact, &features),
            time: time_column(&trained.artifact, &features),
            drift: DriftMonitor::new(features.column_fits()),
            source_fields: fields_by_name(&features),
            inputs: features.input().clone(),
            features,
            kind: AnswerKind::Predictions(Box::new(trained)),
            outputs,
            options,
        })
    }

    /// Serves forecasts of a model: a request names series, and each is answered with its whole horizon.
    fn of_forecasts(trained: &TrainedModel, options: AnswerOptions) -> Result<ServedModel> {
        if options.with_features {
            let message = "the model answers series with forecasts, whose rows have no features";
            return Err(Fault::new(codes::UNSUPPORTED, message)
                .hint("leave `--with-features` out, or serve the artifact of its run"));
        }
        let from = &trained.card().origin.from;
        let form = ForecastForm {
            name: Some(options.prediction.clone()),
            columns: Vec::new(),
            bounds: options.bounds,
        };
        let has_state = trained.artifact.serving.is_some();
        let features = trained.forecasts(&Forebay::new(), &form);
        let features = match features {
            Err(fault) if !has_state => return Err(with_state_hint(fault, from)),
            features => options.with_state_memory(features?),
        };
        let outputs = features
            .series_output()
            .cloned()
            .ok_or_else(|| Fault::internal("a model of forecasts without them"))?;
        let keys = features.forecast_keys().iter();
        let keys: Vec<String> = keys.map(|key| key.name().clone()).collect();
        let mut inputs: Vec<Field> = Vec::new();
        let mut source_fields = fields_by_name(&features);
        let values = features.forecast_values();
        for field in features.forecast_keys().iter().chain(values) {
            let field = field.clone().with_nullable(true);
            // Joined columns are no columns of the source.
            let source_field = source_fields.entry(field.name().clone());
            source_field.or_insert_with(|| Arc::new(field.clone()));
            inputs.push(field);
        }
        Ok(ServedModel {
            version: state_version(trained.card().origin.training.clone(), &trained.artifact)?,
            pipeline: trained.artifact.pipeline.name.clone(),
            keys,
            time: time_column(&trained.artifact, &features),
            drift: DriftMonitor::new(features.column_fits()),
            source_fields,
            inputs: Arc::new(Schema::new(inputs)),
            features,
            kind: AnswerKind::Forecasts,
            outputs,
            options,
        })
    }

    /// Kind of the version, in metadata.
    pub fn platform(&self) -> &'static str {
        match self.kind {
            AnswerKind::Predictions(_) | AnswerKind::Forecasts => "forebay_model",
            AnswerKind::Features => "forebay_artifact",
        }
    }

    /// True if rows of requests name series, which are answered with their whole horizon.
    pub fn answers_series(&self) -> bool {
        matches!(self.kind, AnswerKind::Forecasts)
    }

    /// True if a serving state holds the rows before those of requests.
    pub fn has_state(&self) -> bool {
        self.features.has_state()
    }

    /// True if its serving state is that of runs, in their state directory: artifacts hold their own.
    pub fn reads_state_of_runs(&self) -> bool {
        let is_artifact = matches!(self.kind, AnswerKind::Features);
        !is_artifact && self.features.has_state()
    }

    /// Columns of facts; `None` without a state.
    pub fn fact_columns(&self) -> Option<&SchemaRef> {
        self.features.fact_columns()
    }

    /// Columns that rows need. Those of [`ServedModel::is_optional`] may be absent.
    pub fn inputs(&self) -> &SchemaRef {
        &self.inputs
    }

    /// True for an input that rows may lack: values of the future, and what answers only repeat.
    pub fn is_optional(&self, column: &str) -> bool {
        if self.answers_series() {
            return !self.keys.iter().any(|key| key == column);
        }
        self.is_repeated(column)
    }

    /// True for an input that answers repeat and nothing else uses, such as a label.
    pub fn is_repeated(&self, column: &str) -> bool {
        !self.answers_series() && self.features.optional_inputs().contains(&column)
    }

    /// The column of the source with this name: rows may have columns that no step uses.
    pub fn source_field(&self, column: &str) -> Option<FieldRef> {
        self.source_fields.get(column).cloned()
    }

    /// Columns of the answers. Optional inputs that a request lacks are left out of its answer.
    pub fn outputs(&self) -> &SchemaRef {
        &self.outputs
    }

    /// Answers rows in their order. Rows that a step of the pipeline removes are missing in the answer.
    pub fn apply_batch(&self, rows: &RecordBatch) -> Result<RecordBatch> {
        match &self.kind {
            AnswerKind::Forecasts => self.features.forecast_by_series(rows),
            AnswerKind::Features => self.features.apply(rows),
            AnswerKind::Predictions(trained) => self.predict(trained, self.features.apply(rows)?),
        }
    }

    /// Answers rows, and refuses some that a step of the pipeline removes: the fault names the step.
    pub fn apply_aligned(&self, rows: &RecordBatch) -> Result<RecordBatch, ServeError> {
        let answer = match &self.kind {
            AnswerKind::Forecasts => self.features.forecast_by_series(rows)?,
            AnswerKind::Features => self.features.apply_aligned(rows)?,
            AnswerKind::Predictions(trained) => {
                self.predict(trained, self.features.apply_aligned(rows)?)?
            }
        };
        Ok(answer)
    }

    /// Predictions of a model from its features.
    fn predict(&self, trained: &TrainedModel, features: RecordBatch) -> Result<RecordBatch> {
        let predictions = trained.predict(&features)?;
        let (min, max) = self.options.bounds;
        let mut columns = match trained.classes() {
            Some(classes) => predictions.into_class_columns(classes),
            None => bounded_predictions(predictions, min, max)?,
        };
        let mut fields: Vec<FieldRef> = self.outputs.fields()[..columns.len()].to_vec();
        if self.options.with_features {
            fields.extend(features.schema_ref().fields().iter().cloned());
            columns.extend(features.columns().iter().cloned());
        }
        Ok(RecordBatch::try_new(
            Arc::new(Schema::new(fields)),
            columns,
        )?)
    }

    /// Adds facts, which later answers see. Returns the number of rows.
    pub fn append(&self, rows: &RecordBatch) -> Result<usize> {
        let report = self.features.append(rows)?;
        Ok(report.rows as usize)
    }

    /// Takes the facts over from another version where both are states of one artifact; false where they are not.
    pub fn take_log_over(&self, other: &ServedModel) -> Result<bool> {
        self.features.take_log_over(&other.features)
    }

    /// The facts that were added, in the order in which they came.
    pub fn appended(&self) -> Result<Vec<RecordBatch>> {
        self.features.appended()
    }

    /// Adds those facts of another version that are later than the run of this one.
    pub fn append_after_run(&self, appends: &[RecordBatch]) -> Result<usize> {
        let report = self.features.append_after_run(appends)?;
        Ok(report.rows as usize)
    }

    /// Number of rows without a key: one of its columns is absent or null.
    pub fn rows_without_key(&self, rows: &RecordBatch) -> usize {
        let mut columns = Vec::with_capacity(self.keys.len());
        for key in &self.keys {
            match rows.column_by_name(key) {
                Some(column) => columns.push(column),
                // No row has a column that is absent.
                None => return rows.num_rows(),
            }
        }
        (0..rows.num_rows())
            .filter(|row| columns.iter().any(|column| column.is_null(*row)))
            .count()
    }

    /// For each row, true if the state holds rows of its series; `None` without a state of these keys.
    pub fn known_series(&self, rows: &RecordBatch) -> Result<Option<Vec<bool>>> {
        self.features.known_series(rows)
    }

    /// Facts about the state, if the version holds any.
    pub fn state(&self) -> Option<StateFacts> {
        let summary = self.features.state()?;
        let age_seconds = match summary.as_of_seconds {
            Some(as_of) => unix_seconds() - as_of as f64,
            None => f64::NAN,
        };
        Some(StateFacts {
            age_seconds,
            series: summary.series,
            bytes: summary.bytes,
        })
    }

    /// True if rows of several requests may be computed as one batch: each answer depends on its row alone, and there is
    /// one for each row.
    pub fn merges_requests(&self) -> bool {
        !self.features.has_state() && !self.features.changes_rows()
    }

    /// A batch of columns: the inputs in their order, then other columns of the source. Columns that the source lacks are
    /// refused.
    pub fn input_batch(
        &self,
        mut columns: BTreeMap<String, ArrayRef>,
    ) -> Result<RecordBatch, ServeError> {
        let mut fields: Vec<FieldRef> = Vec::with_capacity(columns.len());
        let mut arrays = Vec::with_capacity(columns.len());
        // The steps look inputs up faster where they are in order.
        let inputs = self.inputs().fields().iter();
        let mut ordered: Vec<(String, ArrayRef)> = Vec::with_capacity(columns.len());
        ordered.extend(inputs.filter_map(|field| columns.remove_entry(field.name())));
        ordered.extend(columns);
        for (name, array) in ordered {
            let Some(field) = self.source_fields.get(&name) else {
                return Err(self.unknown_input(&name));
            };
            let array = fitting_input(field, array)?;
            let is_declared = array.data_type() == field.data_type();
            fields.push(if is_declared {
                field.clone()
            } else {
                Arc::new(Field::new(name, array.data_type().clone(), true))
            });
            arrays.push(array);
        }
        RecordBatch::try_new(Arc::new(Schema::new(fields)), arrays)
            .map_err(|error| ServeError::bad_request(error.to_string()))
    }

    /// A batch of columns that came as JSON. Texts in the place of numbers are refused, as in files of JSON, unless the
    /// source declares the type of the column.
    pub fn input_batch_of_json(
        &self,
        columns: BTreeMap<String, ArrayRef>,
    ) -> Result<RecordBatch, ServeError> {
        for (name, array) in &columns {
            let Some(field) = self.source_fields.get(name) else {
                continue;
            };
            let is_number = field.data_type().is_integer() || field.data_type().is_floating();
            let Some(texts) = array.as_string_opt::<i32>().filter(|_| is_number) else {
                continue;
            };
            if self.features.takes_texts_for_numbers(name) {
                continue;
            }
            if let Some(text) = texts.iter().flatten().next() {
                let message = format!(
                    "`{name}` is {}, and the request has the text `{}`; send a number",
                    type_words(field.data_type()),
                    shorten(text)
                );
                return Err(ServeError::bad_request(message));
            }
        }
        self.input_batch(columns)
    }

    /// Refusal of a column that the source lacks.
    pub fn unknown_input(&self, name: &str) -> ServeError {
        let fault = forebay_plan::unknown_column(name, self.features.source());
        ServeError::from(fault)
    }

    /// Description for people and clients: ids, columns and state.
    pub fn card(&self) -> Value {
        let column = |field: &FieldRef| {
            json!({
                "name": field.name(),
                "type": type_label(field.data_type()),
                "optional": self.is_optional(field.name()),
            })
        };
        let facts = self.fact_columns().map(|columns| {
            let fields = columns.fields().iter();
            fields.map(|field| field.name()).collect::<Vec<_>>()
        });
        let state = self.state().map(|state| {
            json!({
                "age_seconds": state.age_seconds,
                "series": state.series,
                "bytes": state.bytes,
            })
        });
        json!({
            "version": self.version,
            "pipeline": self.pipeline,
            "platform": self.platform(),
            "keys": self.keys,
            "inputs": self.inputs().fields().iter().map(column).collect::<Vec<_>>(),
            "facts": facts,
            "outputs": self.outputs.fields().iter().map(|field| field.name()).collect::<Vec<_>>(),
            "state": state,
        })
    }
}

/// The version of an artifact or of a model with this id, and with the serving state of the artifact.
fn state_version(id: String, artifact: &Artifact) -> Result<String> {
    match &artifact.serving {
        Some(state) => Ok(format!("{}-{}", short_id(&id), state.manifest.digest()?)),
        None => Ok(id),
    }
}

fn unix_seconds() -> f64 {
    std::time::UNIX_EPOCH
        .elapsed()
        .map_or(0.0, |elapsed| elapsed.as_secs_f64())
}

/// Columns of the source, which may be null in requests.
fn fields_by_name(features: &ServingModel) -> HashMap<String, FieldRef> {
    let fields = features.source().fields().iter();
    fields
        .map(|field| {
            let name = field.name().clone();
            let nullable = Field::new(&name, field.data_type().clone(), true);
            (name, Arc::new(nullable))
        })
        .collect()
}

/// Key columns of the first source whose keys are columns of the served rows.
fn key_columns(artifact: &Artifact, features: &ServingModel) -> Vec<String> {
    let columns = features.source();
    for source in &artifact.pipeline.sources {
        let mut keys = source.keys.iter();
        if !source.keys.is_empty() && keys.all(|key| columns.index_of(key).is_ok()) {
            return source.keys.clone();
        }
    }
    Vec::new()
}

/// Column of times of the first source whose column is one of the served rows.
fn time_column(artifact: &Artifact, features: &ServingModel) -> Option<String> {
    let has_column = |time: &&String| features.source().index_of(time).is_ok();
    let sources = artifact.pipeline.sources.iter();
    let mut times = sources.filter_map(|source| source.time.as_ref());
    times.find(has_column).cloned()
}

/// A column that the model reads and its step does not have.
fn missing_feature(trained: &TrainedModel, features: &ServingModel) -> Option<String> {
    let is_missing = |column: &String| features.output().index_of(column).is_err();
    trained.columns().into_iter().find(is_missing)
}

fn prediction_schema(
    trained: &TrainedModel,
    features: &ServingModel,
    options: &AnswerOptions,
) -> Result<SchemaRef> {
    let mut fields: Vec<FieldRef> = Vec::new();
    for field in trained.prediction_fields(&options.prediction) {
        fields.push(Arc::new(field));
    }
    if options.with_features {
        if let Some(name) = fields
            .iter()
            .map(|field| field.name())
            .find(|name| features.output().index_of(name).is_ok())
        {
            let message = format!("the model's step has a column `{name}` already");
            return Err(Fault::new(codes::COLUMN_CLASH, message)
                .column(name)
                .hint("call the predictions something else: `--prediction NAME`"));
        }
        fields.extend(features.output().fields().iter().cloned());
    }
    Ok(Arc::new(Schema::new(fields)))
}

/// Values of an input that its type can hold: fractions and floats beyond exact ones are refused for integers, numbers for
/// texts.
fn fitting_input(field: &Field, array: ArrayRef) -> Result<ArrayRef, ServeError> {
    let input_type = field.data_type();
    let array_type = array.data_type();
    if *array_type == DataType::Null {
        return Ok(new_null_array(input_type, array.len()));
    }
    let refused = |value: &str| {
        let message = format!(
            "`{}` is {}, and the request has {value}",
            field.name(),
            type_words(input_type)
        );
        Err(ServeError::bad_request(message))
    };
    if logical_type(input_type) == DataType::Utf8
        && (array_type.is_numeric() || *array_type == DataType::Boolean)
    {
        return refused(&type_words(array_type));
    }
    if input_type.is_integer() && array_type.is_floating() {
        let numbers = cast(&array, &DataType::Float64)
            .map_err(|error| ServeError::bad_request(error.to_string()))?;
        let numbers = numbers.as_primitive::<Float64Type>();
        let end = exact_integers_end(array_type);
        for number in numbers.iter().flatten() {
            if number.fract() != 0.0 {
                return refused(&number.to_string());
            }
            if number.abs() >= end {
                let kind = type_words(array_type);
                return refused(&format!(
                    "{number} as {kind}, which stands for several whole numbers; send integers"
                ));
            }
        }
    }
    Ok(array)
}

/// Below it, each whole number has a float of this type of its own.
fn exact_integers_end(float_type: &DataType) -> f64 {
    match float_type {
        DataType::Float16 => 2048.0,
        DataType::Float32 => 16_777_216.0,
        _ => EXACT_INTEGERS_FLOAT64,
    }
}

/// First characters of an id, for people.
pub(crate) fn short_id(id: &str) -> &str {
    // The version of a serving state tells its hash, too.
    let letters = if id.contains('-') { 21 } else { 12 };
    id.get(..letters).unwrap_or(id)
}
