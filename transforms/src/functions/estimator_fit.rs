//! Fits of estimators: one process learns from all rows in their order, and what it learned is a finding.

use std::sync::Arc;
use std::time::Duration;

use arrow::array::{ArrayRef, AsArray, BinaryArray, RecordBatch, StringArray, UInt64Array};
use arrow::datatypes::{DataType, SchemaRef};
use forebay_analyze::{LearnedRows, OrderedBatches, RowLearner};
use forebay_model::{ContentId, Fault, Finding, Result, codes};
use serde_json::{Value, json};

use super::call::located;
use super::process::{FunctionProcess, FunctionProgram};

/// The column of the pickled estimator, in answers of the process and in the finding.
const ESTIMATOR: &str = "estimator";

/// The column of the finding with the digest of the pickled estimator.
const DIGEST: &str = "digest";

/// The column of the finding with the digest of the code that fitted the estimator.
const CODE: &str = "code";

/// The column of the finding with the number of rows that were learned from.
const COUNT: &str = "count";

/// An estimator that learns from rows in a process.
#[derive(Debug)]
pub(super) struct EstimatorFit {
    /// The program of the process. It answers a batch with no rows, and a batch without rows with the estimator.
    pub program: Arc<FunctionProgram>,
    /// The columns that it receives, of which the label is the last.
    pub inputs: SchemaRef,
    /// Types of these columns.
    pub types: Vec<DataType>,
    /// True if there is a label.
    pub has_label: bool,
    /// Rows of each batch but the last one.
    pub batch_rows: usize,
    /// Most time for the answer to a batch.
    pub timeout: Duration,
    /// The settings of the step that decide what is learned.
    pub settings: Value,
}

impl RowLearner for EstimatorFit {
    fn kind(&self) -> &'static str {
        "estimator"
    }

    fn config(&self) -> Value {
        json!({ "settings": self.settings, "code": self.program.digest })
    }

    fn types(&self) -> &[DataType] {
        &self.types
    }

    fn required_column(&self) -> Option<usize> {
        if self.has_label {
            self.types.len().checked_sub(1)
        } else {
            None
        }
    }

    fn batch_rows(&self) -> usize {
        self.batch_rows
    }

    fn learn(&self, batches: &mut OrderedBatches<'_>) -> Result<Vec<u8>> {
        let mut process = FunctionProcess::start(&self.program, self.inputs.clone())?;
        let mut rows = 0;
        for columns in batches {
            let batch = RecordBatch::try_new(self.inputs.clone(), columns?)?;
            process
                .call(batch.clone(), self.timeout)
                .map_err(|fault| learning_fault(fault, &batch, rows))?;
            rows += batch.num_rows();
        }
        let end = RecordBatch::new_empty(self.inputs.clone());
        let answer = process.call(end, self.timeout)?;
        let Some(estimator) = pickled_estimator(&answer) else {
            let message = format!("{} returned no bytes", self.program.name);
            return Err(Fault::new(codes::FUNCTION, message));
        };
        Ok(estimator.to_vec())
    }

    fn finding(&self, learned: LearnedRows) -> Result<Finding> {
        let digest = ContentId::of(&learned.bytes).to_string();
        let code = self.program.digest.to_string();
        let estimator: ArrayRef = Arc::new(BinaryArray::from_iter_values([&learned.bytes]));
        let digest: ArrayRef = Arc::new(StringArray::from(vec![digest]));
        let code: ArrayRef = Arc::new(StringArray::from(vec![code]));
        let count: ArrayRef = Arc::new(UInt64Array::from(vec![learned.rows]));
        Finding::of([
            (ESTIMATOR, estimator),
            (DIGEST, digest),
            (CODE, code),
            (COUNT, count),
        ])
    }
}

/// A fault of a batch that the estimator learns from, behind a number of rows.
fn learning_fault(fault: Fault, batch: &RecordBatch, rows: usize) -> Fault {
    if fault.code() != codes::FUNCTION {
        return fault;
    }
    located(fault, 0, batch).note(format!("it had learned from {rows} rows before"))
}

/// The pickled estimator in the first row of an answer.
fn pickled_estimator(answer: &RecordBatch) -> Option<&[u8]> {
    let column = answer.column_by_name(ESTIMATOR)?.as_binary_opt::<i32>()?;
    column.iter().next().flatten()
}

/// The estimator of a finding.
#[derive(Debug)]
pub(super) struct FittedEstimator {
    /// The estimator as Python pickles it.
    pub bytes: Vec<u8>,
    /// The id of these bytes.
    pub digest: String,
}

impl FittedEstimator {
    /// The estimator of a finding, if this code has fitted it. `name` is the estimator as messages name it.
    pub fn of(finding: &Finding, code: ContentId, name: &str) -> Result<FittedEstimator> {
        if first_text(finding, CODE)? != code.to_string() {
            let message = format!("{name} was fitted by other code than that of now");
            return Err(Fault::new(codes::FUNCTION, message)
                .hint("run again, which fits it with the code of now, or bring that code back"));
        }
        let digest = first_text(finding, DIGEST)?.to_owned();
        let estimator = pickled_estimator(finding.table());
        match estimator {
            Some(bytes) if ContentId::of(bytes).to_string() == digest => Ok(FittedEstimator {
                bytes: bytes.to_vec(),
                digest,
            }),
            _ => Err(Fault::new(
                codes::CORRUPT,
                format!("what {name} has learned is damaged"),
            )),
        }
    }
}

/// The text in the first row of a finding.
fn first_text<'f>(finding: &'f Finding, name: &str) -> Result<&'f str> {
    let column = finding.column(name)?.as_string_opt::<i32>();
    let text = column.and_then(|column| column.iter().next().flatten());
    text.ok_or_else(|| Fault::internal(format!("a finding has no text `{name}`")))
}
