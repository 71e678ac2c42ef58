//! What a fit learned, applied to tables.

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
}

#[pymethods]
impl Artifact {
    /// Loads the artifact of a directory; `node` is the step whose columns are made.
    #[new]
    #[pyo3(signature = (path, node=None))]
    fn new(py: Python<'_>, path: &str, node: Option<&str>) -> PyResult<Self> {
        let loaded = py.detach(|| {
            let artifact = load_artifact(path)?;
            let model = Forebay::new().model(&artifact, node)?;
            Ok::<_, Fault>(Artifact { artifact, model })
        });
        loaded.into_py_result(py)
    }

    /// Names what was learned.
    #[getter]
    fn id(&self) -> String {
        self.artifact.id.to_string()
    }

    /// The pipeline's name, and which findings there are, as JSON.
    fn summary(&self) -> String {
        let findings = self.artifact.findings.iter().map(|learned| {
            let rows = learned.finding.table().num_rows();
            let (step, analyzer, columns) = (&learned.step, &learned.analyzer, &learned.columns);
            json!({ "step": step, "analyzer": analyzer, "columns": columns, "part": learned.part, "rows": rows })
        });
        json!({ "pipeline": self.artifact.pipeline.name, "findings": findings.collect::<Vec<_>>() })
            .to_string()
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

    /// Those of them that may be absent: no step uses them.
    #[getter]
    fn optional_inputs(&self) -> Vec<&str> {
        self.model.optional_inputs()
    }

    /// The columns that come out.
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
            let applied = batches
                .iter()
                .map(|batch| self.model.apply(batch))
                .collect::<Result<Vec<_>, _>>()?;
            let made = batches
                .first()
                .map(|batch| self.model.output_of(batch.schema_ref()))
                .transpose()?;
            let whole = arrow::compute::concat_batches(
                made.as_ref().unwrap_or(self.model.output()),
                &applied,
            )?;
            Ok::<_, Fault>(Table::new(whole))
        });
        applied.into_py_result(py)
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
