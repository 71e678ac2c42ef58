//! `estimator`: columns that an estimator of Python computes, which has learned from the rows.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use arrow::datatypes::{Field, Schema, SchemaRef};
use forebay_analyze::OrderedRows;
use forebay_model::{ContentId, Fault, Finding, Result, codes, type_words};
use forebay_plan::{
    AnalyzerRequest, BindScope, ColumnSelector, ConfiguredTransform, LoweredMap, MapOp, PlanOp,
    StepChange, StepFacts, Transform, WrittenNulls,
};
use forebay_setters::Setters;
use indexmap::IndexMap;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::call::FunctionCall;
use super::code::FunctionCode;
use super::estimator_fit::{EstimatorFit, FittedEstimator};
use super::process::FunctionProgram;
use super::python::{
    FrameKind, default_interpreter, default_path, driver_words, encoded_schema, python_code,
    refuse_missing_interpreter,
};
use super::{
    FunctionSettings, change_function, default_batch_rows, default_timeout_seconds, function_facts,
};
use crate::columns::TypeName;
use crate::numeric::ConstantValue;
use crate::shared::{bad_value, finding_at};

/// Columns that an estimator of Python computes, after it has learned from the rows: scikit-learn's `partial_fit` and
/// `transform`.
///
/// In: the chosen columns, as a matrix of NumPy in which null is NaN, or as tables of pyarrow, pandas or Polars
/// (`frames`); no lists. Out: the declared columns: those of a matrix in their order, or those of a table or a dict by
/// their names. Types, rows and nulls are checked as for `python`.
///
/// `function` makes the estimator: a function without parameters, or a class. In a pass of its own, one process calls
/// `partial_fit(rows)` for batches of `fit_rows` rows, in the order of the source, or `partial_fit(rows, y=labels)` with
/// a `label`; rows whose label is null are not learned from. `classes` are passed on each call, as classifiers of
/// scikit-learn need them. Then processes, one for each thread that computes the step, call `transform(rows)`, or another
/// `method`, for batches of any size. With a split, set `fit_on: train`: an estimator with a label knows the labels of the
/// rows that it learns from. A new row, or another order of files, learns from all rows again.
///
/// The result is the pickled estimator, at most 64 MiB, with its digest. The artifact keeps it, `apply` and serving use
/// it. It must depend on rows and settings alone: set the estimator's own `random_state`. Until all rows are read, the
/// state is these columns of them, which spill to temporary files. Memory of the processes is not part of `--memory`.
/// They run with `PYTHONHASHSEED=0`, as for `python`.
///
/// A pickle is code: it runs when it is loaded. The program loads it from the state directory and from the artifact of
/// the pipeline alone, if the digest is right and if the step's code is the code that fitted it. Run only specs, and
/// apply only artifacts, that you trust.
///
/// An exception of `partial_fit` is a fault with the traceback and the first rows of the batch; one of `transform`, with
/// the row that raises it. `check --functions` finds estimators whose values depend on the size of batches. The id of the
/// step holds the source of the module and of the modules that it imports, as for `python`: name a `revision` for the
/// versions of packages. An export to ONNX refuses the step.
///
/// ```text
/// - estimator: { function: "models:scaler", columns: [qty, price], returns: { qty: float64, price: float64 } }
/// ```
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema, Setters)]
#[serde(deny_unknown_fields)]
#[setters(
    fn estimator(function, columns, returns),
    example = r#"estimator("models:scaler", ["qty"], [("qty", TypeName::Float64)]).fit_rows(999)"#
)]
pub struct PythonEstimator {
    /// The function that makes the estimator: `module:name`, or a name that `code` defines.
    pub function: String,
    /// The columns that the estimator receives.
    pub columns: ColumnSelector,
    /// The columns that it returns, with their types.
    pub returns: IndexMap<String, TypeName>,
    /// Returned columns that may be null.
    #[serde(default)]
    pub nullable: Vec<String>,
    /// The column of labels to learn from, which is not among `columns`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub label: Option<String>,
    /// All values of the label, for a classifier.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub classes: Vec<ConstantValue>,
    /// The method that computes the columns, such as `predict`.
    #[serde(default = "default_method")]
    pub method: String,
    /// The kind of tables that the estimator receives.
    #[serde(default = "default_frames")]
    pub frames: FrameKind,
    /// Code that defines the function, instead of a module.
    #[serde(default)]
    pub code: Option<String>,
    /// Directories in which modules are searched, from the working directory; on a worker, from that of the worker.
    #[serde(default = "default_path")]
    pub path: Vec<String>,
    /// The program that runs Python.
    #[serde(default = "default_interpreter")]
    pub interpreter: String,
    /// Rows of each batch that it learns from. The last one has more than half as many, and at most one and a half times.
    #[serde(default = "default_batch_rows")]
    pub fit_rows: usize,
    /// Most rows of a batch that it transforms.
    #[serde(default = "default_batch_rows")]
    pub batch_rows: usize,
    /// Most seconds for the answer to a batch. The first one includes the start of Python and its imports.
    #[serde(default = "default_timeout_seconds")]
    pub timeout_seconds: u64,
    /// Text that changes the id of the step, such as the digest of a file with the versions of packages.
    #[serde(default)]
    pub revision: Option<String>,
}

fn default_method() -> String {
    "transform".to_owned()
}

fn default_frames() -> FrameKind {
    FrameKind::Numpy
}

impl ConfiguredTransform for PythonEstimator {
    const NAME: &'static str = "estimator";
}

impl Transform for PythonEstimator {
    fn facts(&self) -> StepFacts {
        function_facts(None)
    }

    fn change(&self, config: &mut Value, change: &StepChange<'_>) {
        change_function(config, change);
    }

    fn bind(&self, scope: &BindScope<'_>) -> Result<Vec<PlanOp>> {
        refuse_missing_interpreter(&self.interpreter)?;
        self.check_settings()?;
        let code = python_code(&self.function, self.code.as_deref(), &self.path)?;
        let code = FunctionCode::Python(code);
        let digest = code.digest()?;
        let columns = self.frames.columns(scope, &self.columns)?;
        let label = self.label_field(scope)?;
        let mut inputs = Vec::new();
        for field in &columns {
            refuse_list(field)?;
            if self.label.as_ref() == Some(field.name()) {
                let message = "`columns` hold the label, which tells everything of itself";
                return Err(bad_value(message).column(field.name()));
            }
            inputs.push(input_field(field));
        }
        let settings = FunctionSettings {
            returns: &self.returns,
            nullable: &self.nullable,
            batch_rows: self.batch_rows,
            timeout_seconds: self.timeout_seconds,
            series: None,
        };
        let fitted = FittedCalls {
            config: self.clone(),
            code,
            digest,
            inputs: Arc::new(Schema::new(inputs.clone())),
            outputs: settings.fields()?,
            latest: Mutex::default(),
        };
        let fit = fitted.fit(&inputs, label.map(input_field));
        let fit_columns: Vec<String> = fit
            .inputs
            .fields()
            .iter()
            .map(|field| field.name().clone())
            .collect();
        let request = AnalyzerRequest::new(OrderedRows(fit), fit_columns);
        let reads = columns.iter().map(|field| field.name().as_str());
        let outputs = fitted.outputs.clone();
        let map = MapOp::fitted(reads, outputs, [request], move |findings| {
            let call = fitted.call(finding_at(findings, 0)?)?;
            Ok(LoweredMap::new(move |inputs, rows| {
                call.apply(inputs, rows)
            }))
        });
        let nulls = WrittenNulls::Made("returns null for some rows");
        let map = map.written_nulls(nulls).with_code(digest);
        Ok(vec![PlanOp::Map(map.portable_instead(
            "export the estimator by its own tools, such as skl2onnx",
        ))])
    }
}

impl PythonEstimator {
    fn check_settings(&self) -> Result<()> {
        if self.fit_rows == 0 {
            return Err(bad_value("`fit_rows` is 0").field("fit_rows"));
        }
        if self.method.is_empty() || self.method.starts_with('_') {
            let message = format!("`method` is `{}`, which is no public method", self.method);
            let fault = bad_value(message).field("method");
            return Err(fault.hint("name a method of the estimator, such as `predict`"));
        }
        if !self.classes.is_empty() && self.label.is_none() {
            let fault = bad_value("`classes` are those of a `label`, and there is none");
            return Err(fault.field("classes").hint("name the column as `label`"));
        }
        Ok(())
    }

    /// The column of labels.
    fn label_field<'s>(&self, scope: &BindScope<'s>) -> Result<Option<&'s Field>> {
        let Some(name) = &self.label else {
            return Ok(None);
        };
        let field = scope.field(name)?;
        refuse_list(field)?;
        Ok(Some(field))
    }

    /// The settings of the driver that all of its modes have.
    fn driver_settings(&self, mode: &str) -> Value {
        json!({
            "mode": mode,
            "function": self.function,
            "code": self.code,
            "path": self.path,
            "frames": self.frames,
            "method": self.method,
        })
    }

    /// The estimator as messages name it.
    fn title(&self) -> String {
        format!("the estimator `{}`", self.function)
    }
}

/// Refuses a column of lists or structures.
fn refuse_list(field: &Field) -> Result<()> {
    if !field.data_type().is_nested() {
        return Ok(());
    }
    let words = type_words(field.data_type());
    let message = format!("`{}` is {words}, not a single value", field.name());
    Err(Fault::new(codes::COLUMN_TYPE, message)
        .column(field.name())
        .hint("give the estimator columns of single values"))
}

/// A column as processes receive it.
fn input_field(field: &Field) -> Field {
    Field::new(field.name(), field.data_type().clone(), true)
}

/// Processes with the estimators of findings.
struct FittedCalls {
    config: PythonEstimator,
    code: FunctionCode,
    digest: ContentId,
    inputs: SchemaRef,
    outputs: Vec<Field>,
    /// Processes of the finding that came last: chains of all passes share them.
    latest: Mutex<Option<LatestCall>>,
}

struct LatestCall {
    /// The digest of the estimator.
    digest: String,
    call: Arc<FunctionCall>,
}

impl FittedCalls {
    /// The fit of the estimator to columns and a label.
    fn fit(&self, columns: &[Field], label: Option<Field>) -> EstimatorFit {
        let config = &self.config;
        let has_label = label.is_some();
        let mut settings = config.driver_settings("fit");
        settings["has_label"] = json!(has_label);
        settings["classes"] = json!(config.classes);
        let mut inputs = columns.to_vec();
        inputs.extend(label);
        let types = inputs.iter().map(|field| field.data_type().clone());
        EstimatorFit {
            types: types.collect(),
            program: Arc::new(self.program(&settings, Vec::new())),
            inputs: Arc::new(Schema::new(inputs)),
            has_label,
            batch_rows: config.fit_rows,
            timeout: self.timeout(),
            settings: json!({
                "function": config.function,
                "frames": config.frames,
                "has_label": has_label,
                "classes": config.classes,
                "revision": config.revision,
            }),
        }
    }

    /// The estimator of a finding in processes.
    fn call(&self, finding: &Finding) -> Result<Arc<FunctionCall>> {
        let estimator = FittedEstimator::of(finding, self.digest, &self.config.title())?;
        let mut latest = self.latest.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(latest) = &*latest
            && latest.digest == estimator.digest
        {
            return Ok(latest.call.clone());
        }
        let mut settings = self.config.driver_settings("transform");
        settings["estimator_bytes"] = json!(estimator.bytes.len());
        settings["returns"] = json!(encoded_schema(&self.outputs)?);
        let call = Arc::new(FunctionCall {
            program: Arc::new(self.program(&settings, estimator.bytes)),
            inputs: self.inputs.clone(),
            outputs: self.outputs.clone(),
            batch_rows: self.config.batch_rows,
            timeout: self.timeout(),
            idle: Mutex::default(),
        });
        *latest = Some(LatestCall {
            digest: estimator.digest,
            call: call.clone(),
        });
        Ok(call)
    }

    fn program(&self, settings: &Value, preamble: Vec<u8>) -> FunctionProgram {
        FunctionProgram {
            name: self.config.title(),
            words: driver_words(&self.config.interpreter, settings),
            code: self.code.clone(),
            digest: self.digest,
            preamble,
        }
    }

    fn timeout(&self) -> Duration {
        Duration::from_secs(self.config.timeout_seconds)
    }
}
