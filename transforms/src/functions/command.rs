//! `command`: columns that a program computes.

use forebay_model::{Fault, Result, codes};
use forebay_plan::{
    BindScope, ColumnSelector, ConfiguredTransform, PlanOp, StepChange, StepFacts, Transform,
};
use forebay_setters::Setters;
use indexmap::IndexMap;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::by_series::{FunctionBy, LookAhead, WholeSeries};
use super::code::{FunctionCode, is_program};
use super::{
    FunctionSettings, change_function, default_batch_rows, default_timeout_seconds, function_facts,
};
use crate::columns::TypeName;
use crate::shared::bad_value;

/// Columns that a program computes, row by row or series by series.
///
/// In: the chosen columns, as an Arrow IPC stream on the standard input of the program. Out: the declared columns, as
/// an Arrow IPC stream on its standard output. The program answers each batch with one batch of as many rows, in the
/// same order, and flushes it before it reads the next one. It ends when its input does. Without `by` it must be row-wise:
/// a row's output depends on the row alone, since batches are cut differently from run to run. A column is then as old as
/// its youngest input for the check of leaks. With `by` each batch is one whole series in order of time, as for
/// `python`. A program must not keep anything from batch to batch.
///
/// The columns come in Arrow's types, text as `utf8`. A returned column must have the declared type, text in any
/// layout. Other columns, other numbers of rows and nulls in a column that is not `nullable` are faults, and so is a
/// program that ends; the fault shows the last 8 KiB of its standard error. Standard error of a program that does not
/// fail is not shown. One process runs for each thread that computes the step, on workers too; it ends with the run.
/// Its memory is not part of `--memory`. A program of Python has `PYTHONHASHSEED=0`, unless the environment sets the
/// variable.
///
/// The id of the step holds the words of `run`, and the content of those that name files. Words are paths from the
/// working directory, on a worker from that of the worker; no shell reads them. A worker whose files differ is refused.
/// Learns nothing. A spec with this step runs programs: run only specs that you trust.
///
/// ```yaml
/// - command: { run: [cat], columns: [qty], returns: { qty: int32 }, nullable: [qty] }
/// ```
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema, Setters)]
#[serde(deny_unknown_fields)]
#[setters(
    fn command(run, columns, returns),
    example = r#"command(["./clean"], ["qty"], [("qty", TypeName::Float32)]).batch_rows(99)"#
)]
pub struct CommandFunction {
    /// The program and its arguments.
    pub run: Vec<String>,
    /// The columns that the program receives.
    pub columns: ColumnSelector,
    /// The columns that it returns, with their types.
    pub returns: IndexMap<String, TypeName>,
    /// Returned columns that may be null.
    #[serde(default)]
    pub nullable: Vec<String>,
    /// Most rows of a batch. A series is one batch, of any number of rows.
    #[serde(default = "default_batch_rows")]
    pub batch_rows: usize,
    /// Most seconds for the answer to a batch.
    #[serde(default = "default_timeout_seconds")]
    pub timeout_seconds: u64,
    /// Text that changes the id of the step. Change it when the program changes, if no word of `run` is its file.
    #[serde(default)]
    pub revision: Option<String>,
    /// The rows of a batch: whole series by the keys of the source (`series`) or by columns.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub by: Option<FunctionBy>,
    /// The rows of a series that a value is computed from, for the check of leaks; with `by` only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub looks_ahead: Option<LookAhead>,
}

impl ConfiguredTransform for CommandFunction {
    const NAME: &'static str = "command";
}

impl Transform for CommandFunction {
    fn facts(&self) -> StepFacts {
        function_facts(self.by.as_ref())
    }

    fn change(&self, config: &mut Value, change: &StepChange<'_>) {
        change_function(config, change);
    }

    fn bind(&self, scope: &BindScope<'_>) -> Result<Vec<PlanOp>> {
        let Some(program) = self.run.first() else {
            return Err(bad_value("`run` names no program").field("run"));
        };
        if !is_program(program) {
            let message = format!("there is no program `{program}`");
            let fault = Fault::new(codes::UNKNOWN_NAME, message).field("run");
            return Err(fault.hint(
                "a name is searched in the directories of PATH, a path with `/` begins at the \
                 working directory",
            ));
        }
        let columns = scope.columns(&self.columns)?;
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
        let operation = settings.operation(
            format!("the program `{program}`"),
            self.run.clone(),
            FunctionCode::Command(self.run.clone()),
            &columns,
        )?;
        Ok(vec![operation])
    }
}
