//! `python`: columns that a function of Python computes.

use std::fmt::Write;

use arrow::datatypes::{DataType, Field, Schema};
use arrow::ipc::writer::StreamWriter;
use forebay_model::{Fault, Result, codes};
use forebay_plan::{
    BindScope, ColumnSelector, ConfiguredTransform, PlanOp, StepChange, StepFacts, Transform,
};
use forebay_setters::Setters;
use indexmap::IndexMap;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::by_series::{FunctionBy, LookAhead, WholeSeries};
use super::code::{FunctionCode, PythonCode, PythonRoot, is_program};
use super::{
    FunctionSettings, change_function, default_batch_rows, default_timeout_seconds, function_facts,
};
use crate::columns::TypeName;
use crate::shared::bad_value;

/// The program of the processes, which the interpreter receives as an argument.
const DRIVER: &str = include_str!("driver.py");

/// Columns that a function of Python computes, row by row or series by series.
///
/// In: the chosen columns, as a `pyarrow.RecordBatch`, or as a data frame of pandas or Polars, or a matrix of NumPy
/// (`frames`). Out: the declared columns. The function returns a table or a data frame of them, or a dict of columns;
/// where one column is declared, the column alone will do. Columns are arrays of Arrow, NumPy or pandas, series of Polars,
/// or lists. Integers and floats of another width are converted where each value fits (floats are rounded), and whole
/// floats of lists and of NumPy and pandas become integers; other types are a fault. pandas has NaN for null in numbers, in
/// both directions.
///
/// Without `by`, the function must be row-wise: a row's output depends on the row alone, since batches are cut
/// differently from run to run. A column is then as old as its youngest input for the check of leaks. With `by: series`
/// the function is called once for each series of the source, as in pandas' `groupby(keys).apply`: it receives all rows
/// of the series in order of time, those of equal times in the order of the source, and returns as many rows in the same
/// order. `by: [store]` names other keys: `by: []` makes all rows one series, and rows without a declared time keep their
/// order. Rows whose keys are null are a series, too. The rows of the step stay where they are: they are sorted by series
/// with spilling, and the results are sorted back. One series at a time must fit into a sixteenth of `--memory`, else the
/// fault FB0301 names it. A function by series may look at later rows: next to a label its columns are a leak, unless
/// `looks_ahead: none` states that each value is computed from rows up to its own. Serving refuses the step, and a new
/// row computes all rows of a sink again.
///
/// A function must not keep anything from batch to batch. It is `module:name`, with the module in a directory of `path` or of `PYTHONPATH`; or a name that `code`
/// defines. It runs in processes of `interpreter`, which need pyarrow: one for each thread that computes the step, on
/// workers too. They end with the run, and their memory is not part of `--memory`. What the function prints is not
/// shown unless it fails. Hashes of texts, and with them the order of sets, are alike in all processes: these run with
/// `PYTHONHASHSEED=0`, unless the environment sets the variable. It is no part of the id.
///
/// An exception is a fault with the traceback and the row that raises it, or the first rows of the batch where no row
/// does so alone. So are other columns, another number of rows, and nulls in a column that is not `nullable`. `check`
/// finds a missing module or function without running any code; `check --functions` runs functions on the first rows,
/// and finds those whose values depend on the size of batches.
///
/// The id of the step holds the source of the module and of the modules that it imports from the same directories, by
/// `import` statements. It does not hold installed packages, files that the function reads and modules that are
/// imported by other means: name a `revision` for them. A worker whose source differs is refused. Learns nothing.
/// A spec with this step runs code: run only specs that you trust.
///
/// ```text
/// - python: { function: "cleaning:revenue", columns: [qty, price], returns: { revenue: float64 } }
/// ```
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema, Setters)]
#[serde(deny_unknown_fields)]
#[setters(
    fn python(function, columns, returns),
    example = r#"python("cleaning:revenue", ["qty"], [("sum", TypeName::Float64)]).batch_rows(99)"#
)]
pub struct PythonFunction {
    /// The function: `module:name`, or a name that `code` defines.
    pub function: String,
    /// The columns that the function receives.
    pub columns: ColumnSelector,
    /// The columns that it returns, with their types.
    pub returns: IndexMap<String, TypeName>,
    /// Returned columns that may be null.
    #[serde(default)]
    pub nullable: Vec<String>,
    /// The kind of tables that the function receives.
    #[serde(default)]
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
    /// Most rows of a batch. A series is one batch, of any number of rows.
    #[serde(default = "default_batch_rows")]
    pub batch_rows: usize,
    /// Most seconds for the answer to a batch. The first one includes the start of Python and its imports.
    #[serde(default = "default_timeout_seconds")]
    pub timeout_seconds: u64,
    /// Text that changes the id of the step, such as the digest of a file with the versions of packages.
    #[serde(default)]
    pub revision: Option<String>,
    /// The rows that the function receives at once: whole series by the keys of the source (`series`) or by columns.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub by: Option<FunctionBy>,
    /// The rows of a series that a value is computed from, for the check of leaks; with `by` only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub looks_ahead: Option<LookAhead>,
}

pub(super) fn default_path() -> Vec<String> {
    vec![".".to_owned()]
}

pub(super) fn default_interpreter() -> String {
    "python3".to_owned()
}

/// A kind of tables.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum FrameKind {
    /// A `pyarrow.RecordBatch`.
    #[default]
    Arrow,
    /// A data frame of pandas.
    Pandas,
    /// A data frame of Polars.
    Polars,
    /// A matrix of NumPy, of `float32` if all columns are no wider, else of `float64`. Columns are numbers or booleans, and
    /// null is NaN.
    Numpy,
}

impl FrameKind {
    /// The chosen columns, which such tables can have.
    pub(super) fn columns<'s>(
        self,
        scope: &BindScope<'s>,
        columns: &ColumnSelector,
    ) -> Result<Vec<&'s Field>> {
        if self != FrameKind::Numpy {
            return scope.columns(columns);
        }
        scope.typed_columns(columns, "a number or boolean", |field| {
            field.data_type().is_numeric() || *field.data_type() == DataType::Boolean
        })
    }
}

impl ConfiguredTransform for PythonFunction {
    const NAME: &'static str = "python";
}

impl Transform for PythonFunction {
    fn facts(&self) -> StepFacts {
        function_facts(self.by.as_ref())
    }

    fn change(&self, config: &mut Value, change: &StepChange<'_>) {
        change_function(config, change);
    }

    fn bind(&self, scope: &BindScope<'_>) -> Result<Vec<PlanOp>> {
        refuse_missing_interpreter(&self.interpreter)?;
        let code = python_code(&self.function, self.code.as_deref(), &self.path)?;
        let columns = self.frames.columns(scope, &self.columns)?;
        let series = WholeSeries::of_step(scope, Self::NAME, self.by.as_ref(), self.looks_ahead)?;
        if let Some(series) = &series {
            series.refuse_replaced(self.returns.keys())?;
        }
        let settings = FunctionSettings {
            returns: &self.returns,
            nullable: &self.nullable,
            batch_rows: self.batch_rows,
            timeout_seconds: self.timeout_seconds,
            series,
        };
        let words = self.command_line(&settings.fields()?)?;
        let operation = settings.operation(
            format!("the function `{}`", self.function),
            words,
            FunctionCode::Python(code),
            &columns,
        )?;
        Ok(vec![operation])
    }
}

impl PythonFunction {
    fn command_line(&self, returns: &[Field]) -> Result<Vec<String>> {
        let settings = json!({
            "mode": "call",
            "function": self.function,
            "code": self.code,
            "path": self.path,
            "frames": self.frames,
            "by_series": self.by.is_some(),
            "returns": encoded_schema(returns)?,
        });
        Ok(driver_words(&self.interpreter, &settings))
    }
}

/// Fails if there is no program of this name.
pub(super) fn refuse_missing_interpreter(interpreter: &str) -> Result<()> {
    if is_program(interpreter) {
        return Ok(());
    }
    let message = format!("there is no program `{interpreter}`");
    let fault = Fault::new(codes::UNKNOWN_NAME, message).field("interpreter");
    Err(fault.hint("install Python, or give its path as `interpreter`"))
}

/// The code of a step, which has the function as far as its text shows.
pub(super) fn python_code(
    function: &str,
    code: Option<&str>,
    path: &[String],
) -> Result<PythonCode> {
    let mut name = function;
    let root = match code {
        Some(code) => PythonRoot::Text(code.to_owned()),
        None => {
            let Some((module, member)) = function.split_once(':') else {
                let message = format!("`{function}` names no module");
                let fault = bad_value(message).field("function");
                return Err(fault.hint("write it as `module:function`, or give its `code`"));
            };
            name = member;
            PythonRoot::Module(module.to_owned())
        }
    };
    let code = PythonCode::new(root, path);
    code.check_function(name)?;
    Ok(code)
}

/// The words that start the driver with these settings.
pub(super) fn driver_words(interpreter: &str, settings: &Value) -> Vec<String> {
    vec![
        interpreter.to_owned(),
        // Nothing is written beside the modules.
        "-B".to_owned(),
        "-c".to_owned(),
        DRIVER.to_owned(),
        settings.to_string(),
    ]
}

/// The columns as the begin of an Arrow stream, in hexadecimal digits. All of them may be null: the engine checks nulls.
pub(super) fn encoded_schema(fields: &[Field]) -> Result<String> {
    let mut nullable = Vec::new();
    for field in fields {
        nullable.push(field.clone().with_nullable(true));
    }
    let stream = StreamWriter::try_new(Vec::new(), &Schema::new(nullable))?.into_inner()?;
    let mut digits = String::with_capacity(2 * stream.len());
    for byte in stream {
        let _ = write!(digits, "{byte:02x}");
    }
    Ok(digits)
}
