//! Artifacts of fits, applied to tables.

use forebay::Forebay;
use forebay::model::{Fault, codes};
use pyo3::prelude::*;
use serde_json::json;

use crate::arrow_c::{Table, batches};
use crate::fault::IntoPyResult;
use crate::session::{load_artifact, request};

/// An artifact ready to serve.
#[pyclass(frozen, module = "forebay._forebay")]
pub(crate) struct Artifact {
    artifact: forebay::Artifact,
    model: forebay::ServingModel,
    /// The step whose columns are made, where it was named.
    node: Option<String>,
}

#[pymethods]
impl Artifact {
    /// Loads the artifact of a directory; `node` is the step whose columns are made, `states` a directory in which
    /// processes share the states of series.
    #[new]
    #[pyo3(signature = (path, node=None, states=None))]
    fn new(py: Python<'_>, path: &str, node: Option<&str>, states: Option<&str>) -> PyResult<Self> {
        let loaded = py.detach(|| {
            let artifact = load_artifact(path)?;
            let model = Forebay::new().model(&artifact, node)?;
            let model = match states {
                Some(directory) => model.with_shared_states(directory),
                None => model,
            };
            Ok::<_, Fault>(Artifact {
                artifact,
                model,
                node: node.map(str::to_owned),
            })
        });
        loaded.into_py_result(py)
    }

    /// Returns the id of the artifact.
    #[getter]
    fn id(&self) -> String {
        self.artifact.id.to_string()
    }

    /// Returns the pipeline's name and a summary of the findings, as JSON.
    fn summary(&self) -> String {
        let mut findings = Vec::new();
        for learned in self.artifact.findings.iter() {
            findings.push(json!({
                "step": learned.step,
                "analyzer": learned.analyzer,
                "columns": learned.columns,
                "part": learned.part,
                "rows": learned.finding.table().num_rows(),
            }));
        }
        json!({ "pipeline": self.artifact.pipeline.name, "findings": findings }).to_string()
    }

    /// The columns that tables must have.
    #[getter]
    fn inputs(&self) -> Vec<String> {
        self.model
            .input()
            .fields()
            .iter()
            .map(|field| field.name().clone())
            .collect()
    }

    /// Columns that may be absent, since no step uses them.
    #[getter]
    fn optional_inputs(&self) -> Vec<&str> {
        self.model.optional_inputs()
    }

    /// Returns the output columns.
    #[getter]
    fn outputs(&self) -> Vec<String> {
        self.model
            .output()
            .fields()
            .iter()
            .map(|field| field.name().clone())
            .collect()
    }

    /// Applies to a table: anything with `__arrow_c_stream__` or `__arrow_c_array__`.
    fn apply(&self, py: Python<'_>, table: &Bound<'_, PyAny>) -> PyResult<Table> {
        let batches = batches(table)?;
        let applied = py.detach(|| {
            // Windows see all earlier rows of the table, in whichever batch they are.
            let batches = match batches.first() {
                Some(first) if self.model.has_state() => {
                    vec![arrow::compute::concat_batches(&first.schema(), &batches)?]
                }
                _ => batches,
            };
            let applied = batches
                .iter()
                .map(|batch| self.model.apply(batch))
                .collect::<Result<Vec<_>, _>>()?;
            let output_schema = batches
                .first()
                .map(|batch| self.model.output_of(batch.schema_ref()))
                .transpose()?;
            let whole = arrow::compute::concat_batches(
                output_schema.as_ref().unwrap_or(self.model.output()),
                &applied,
            )?;
            Ok::<_, Fault>(Table::new(whole))
        });
        applied.into_py_result(py)
    }

    /// Computes the columns of the source from those that the steps made of them: anything with `__arrow_c_stream__` or
    /// `__arrow_c_array__`.
    fn inverse(&self, py: Python<'_>, table: &Bound<'_, PyAny>) -> PyResult<Table> {
        let batches = batches(table)?;
        let inverted = py.detach(|| {
            let Some(first) = batches.first() else {
                return Err(Fault::new(codes::EMPTY, "the table has no rows"));
            };
            let mut columns = Vec::new();
            for field in first.schema_ref().fields() {
                columns.push(field.name().clone());
            }
            let inverse = Forebay::new().inverse(&self.artifact, self.node.as_deref(), &columns)?;
            let whole = arrow::compute::concat_batches(first.schema_ref(), &batches)?;
            Ok::<_, Fault>(Table::new(inverse.apply(&whole)?))
        });
        inverted.into_py_result(py)
    }

    /// Contents of the serving state, as JSON; `null` without one.
    fn state(&self, py: Python<'_>) -> String {
        let state = py.detach(|| self.model.state());
        let state = state.map(
            |state| json!({ "as_of": state.as_of, "series": state.series, "bytes": state.bytes }),
        );
        json!(state).to_string()
    }

    /// Makes the rows of a table part of the next answers; returns their number. They are on the disk then.
    fn append(&self, py: Python<'_>, table: &Bound<'_, PyAny>) -> PyResult<u64> {
        let batches = batches(table)?;
        let appended = py.detach(|| {
            let Some(first) = batches.first() else {
                return Ok(0);
            };
            let facts = arrow::compute::concat_batches(&first.schema(), &batches)?;
            Ok::<_, Fault>(self.model.append(&facts)?.rows)
        });
        appended.into_py_result(py)
    }

    /// Applies to one row, as JSON. A row that a filter takes is a fault that names the filter.
    fn apply_row(&self, py: Python<'_>, row: &str) -> PyResult<String> {
        let row = request(py, row)?;
        let applied = py
            .detach(|| self.model.apply_row(&row))
            .into_py_result(py)?;
        serde_json::to_string(&applied)
            .map_err(|error| Fault::new(codes::INTERNAL, "a row").cause(error))
            .into_py_result(py)
    }
}
