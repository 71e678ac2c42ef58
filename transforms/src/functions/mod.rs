//! Functions of one's own: programs and functions of Python that compute columns.
//!
//! The engine starts the processes, one for each thread, and sends them batches of rows as an Arrow stream. A function
//! is row-wise, or is given whole series, and keeps nothing from batch to batch. An estimator learns from all rows in one
//! process before.

mod by_series;
mod call;
mod code;
mod command;
mod estimator;
mod estimator_fit;
mod process;
mod python;
mod stream;

use std::sync::{Arc, Mutex};
use std::time::Duration;

use arrow::datatypes::{Field, Schema};
use forebay_model::{Fault, Result, codes};
use forebay_plan::{MapOp, PlanOp, SeriesOp, StepChange, StepFacts, WrittenNulls};
use indexmap::IndexMap;
use serde_json::Value;

use crate::columns::TypeName;
use crate::shared::bad_value;
use by_series::WholeSeries;
use call::FunctionCall;
use code::FunctionCode;
use process::FunctionProgram;

pub use by_series::{FunctionBy, LookAhead, SeriesWord};
pub use command::{CommandFunction, command};
pub use estimator::{PythonEstimator, estimator};
pub use python::{FrameKind, PythonFunction, python};

/// Settings that programs and functions of Python share.
struct FunctionSettings<'a> {
    returns: &'a IndexMap<String, TypeName>,
    nullable: &'a [String],
    batch_rows: usize,
    timeout_seconds: u64,
    /// The series that are given as a whole; `None` for a function that is row-wise.
    series: Option<WholeSeries>,
}

fn default_batch_rows() -> usize {
    16_384
}

fn default_timeout_seconds() -> u64 {
    600
}

/// Facts of a step that calls a function, given its `by`.
fn function_facts(by: Option<&FunctionBy>) -> StepFacts {
    StepFacts {
        // A function that is given whole series has no other batches.
        calls_function: by.is_none(),
        ..StepFacts::default()
    }
}

/// Makes a change to the configuration of a step that calls a function.
fn change_function(config: &mut Value, change: &StepChange<'_>) {
    if let StepChange::BatchRows(rows) = change {
        config["batch_rows"] = Value::from(*rows);
    }
}

impl FunctionSettings<'_> {
    /// The declared columns.
    fn fields(&self) -> Result<Vec<Field>> {
        if self.returns.is_empty() {
            return Err(bad_value("`returns` declares no column").field("returns"));
        }
        if self.batch_rows == 0 {
            return Err(bad_value("`batch_rows` is 0").field("batch_rows"));
        }
        if self.timeout_seconds == 0 {
            return Err(bad_value("`timeout_seconds` is 0").field("timeout_seconds"));
        }
        for name in self.nullable {
            if self.returns.contains_key(name) {
                continue;
            }
            let message = format!("`nullable` names `{name}`, which `returns` does not declare");
            let fault = Fault::new(codes::UNKNOWN_NAME, message).field("nullable");
            let declared = self.returns.keys().map(String::as_str);
            return Err(fault.suggest(name, declared, "the declared columns are"));
        }
        let mut fields = Vec::new();
        for (name, type_name) in self.returns {
            let nullable = self.nullable.contains(name);
            fields.push(Field::new(name, type_name.data_type(), nullable));
        }
        Ok(fields)
    }

    /// The operation that computes the declared columns of these columns.
    fn operation(
        self,
        name: String,
        words: Vec<String>,
        code: FunctionCode,
        columns: &[&Field],
    ) -> Result<PlanOp> {
        let outputs = self.fields()?;
        let mut inputs = Vec::new();
        for field in columns {
            inputs.push(Field::new(field.name(), field.data_type().clone(), true));
        }
        let digest = code.digest()?;
        // A series is one batch.
        let batch_rows = match &self.series {
            Some(_) => usize::MAX,
            None => self.batch_rows,
        };
        let call = FunctionCall {
            program: Arc::new(FunctionProgram {
                name,
                words,
                code,
                digest,
                preamble: Vec::new(),
            }),
            inputs: Arc::new(Schema::new(inputs)),
            outputs: outputs.clone(),
            batch_rows,
            timeout: Duration::from_secs(self.timeout_seconds),
            idle: Mutex::default(),
        };
        let reads = columns.iter().map(|field| field.name());
        if let Some(WholeSeries {
            time,
            keys,
            looks_ahead,
        }) = self.series
        {
            return Ok(PlanOp::Series(SeriesOp {
                time,
                keys,
                reads: reads.cloned().collect(),
                writes: outputs,
                kernel: Arc::new(move |inputs, rows| call.apply(inputs, rows)),
                looks_ahead,
                behind: None,
                code: Some(digest),
            }));
        }
        let map = MapOp::new(reads, outputs, move |inputs, rows| call.apply(inputs, rows));
        let nulls = WrittenNulls::Made("returns null for some rows");
        Ok(PlanOp::Map(map.written_nulls(nulls).with_code(digest)))
    }
}
