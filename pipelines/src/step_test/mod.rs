//! Tests of steps: given rows in, expected rows or a fault out.

mod compare;
mod given;

use std::collections::BTreeSet;

use arrow::array::RecordBatch;
use forebay_connectors::ColumnTypes;
use forebay_model::{Fault, FaultCode, Pipeline, Result, SpecLocation, codes};
use forebay_run::{PreviewOptions, Session};
use serde_json::{Map, Value};

/// A row: values by column.
pub type TestRow = Map<String, Value>;

/// A test of a step.
///
/// ```no_run
/// use std::collections::BTreeMap;
///
/// use forebay::{Forebay, spec};
///
/// let forebay = Forebay::new();
/// let text = spec::read_text("demand.yaml".as_ref())?;
/// let parsed = spec::parse_all(&text, "demand.yaml", &BTreeMap::new(), &forebay.spec_catalog())?;
/// for test in &parsed.tests {
///     let outcome = test.run(&forebay.session()?, &parsed.pipeline)?;
///     println!("{}: {}", test.name, if outcome.differences.is_empty() { "passes" } else { "fails" });
/// }
/// # Ok::<(), forebay::model::Fault>(())
/// ```
#[derive(Debug, Clone)]
pub struct StepTest {
    /// The name in the spec.
    pub name: String,
    /// The step.
    pub step: String,
    /// The rows of the sources.
    pub given: Vec<GivenRows>,
    /// A SQL condition on the rows to compare.
    pub condition: Option<String>,
    /// Expected result of the step.
    pub expected: ExpectedResult,
    /// The largest difference of numbers, relative to the larger one where this exceeds 1.
    pub tolerance: f64,
    /// The place in the spec.
    pub at: Option<SpecLocation>,
}

/// Rows of a source.
#[derive(Debug, Clone)]
pub struct GivenRows {
    /// The source.
    pub source: String,
    /// The rows; columns that a row lacks are null.
    pub rows: Vec<TestRow>,
    /// The types of columns where values do not determine them.
    pub types: ColumnTypes,
}

/// Expected result of a step.
#[derive(Debug, Clone)]
pub enum ExpectedResult {
    /// These rows, in order. Columns that a row does not name are not compared.
    Rows(Vec<TestRow>),
    /// A fault with this code.
    Fault(FaultCode),
}

/// The outcome of a test.
#[derive(Debug)]
pub struct TestOutcome {
    /// Differences from the expected rows; none where the test passed.
    pub differences: Vec<String>,
    /// The rows that the step made, where it made any.
    pub rows: Vec<RecordBatch>,
}

impl StepTest {
    /// Runs the step on the given rows, in a temporary directory. Fails if the test itself is
    /// wrong.
    pub fn run(&self, session: &Session, pipeline: &Pipeline) -> Result<TestOutcome> {
        let scratch = tempfile::tempdir()
            .map_err(|error| Fault::disk("a temporary directory cannot be made", error))?;
        let mut pipeline = pipeline.clone();
        let read: BTreeSet<String> = session
            .sources_of(&pipeline, &self.step)?
            .into_iter()
            .collect();
        let given_sources: BTreeSet<String> = self
            .given
            .iter()
            .map(|table| table.source.clone())
            .collect();
        if let Some(missing) = read.difference(&given_sources).next() {
            let message = format!(
                "the step `{}` reads the source `{missing}`, of which no rows are given",
                self.step
            );
            let fault = Fault::new(codes::MISSING_FIELD, message).at(self.at.as_ref());
            return Err(fault.hint(format!("add rows of `{missing}` under `given:`")));
        }
        for table in self
            .given
            .iter()
            .filter(|table| read.contains(&table.source))
        {
            let source = pipeline
                .sources
                .iter_mut()
                .find(|source| source.name == table.source);
            let Some(source) = source else { continue };
            table
                .put_in_place(source, scratch.path())
                .map_err(|fault| fault.at(self.at.as_ref()))?;
        }
        let options = PreviewOptions {
            step: Some(self.step.clone()),
            rows: usize::MAX,
            condition: self.condition.clone(),
            sample_rows: u64::MAX,
            ..PreviewOptions::default()
        };
        Ok(
            match (session.preview(&pipeline, &options), &self.expected) {
                (Ok(preview), ExpectedResult::Rows(rows)) => TestOutcome {
                    differences: compare::differences(&preview.batches, rows, self.tolerance)?,
                    rows: preview.batches,
                },
                (Ok(preview), ExpectedResult::Fault(code)) => TestOutcome {
                    differences: vec![format!(
                        "expected the fault {}, but the step ended without one",
                        code.name
                    )],
                    rows: preview.batches,
                },
                (Err(fault), ExpectedResult::Fault(code)) if fault.code() == *code => TestOutcome {
                    differences: Vec::new(),
                    rows: Vec::new(),
                },
                (Err(fault), _) => TestOutcome {
                    differences: vec![format!("{}: {}", fault.code().name, fault.message())],
                    rows: Vec::new(),
                },
            },
        )
    }
}
