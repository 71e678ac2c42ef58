//! Outputs and tables as readers should see them.

use arrow::error::ArrowError;
use forebay::VisibleDataset;
use forebay::run::StorageClient;
use pyo3::prelude::*;
use pyo3::types::PyCapsule;

use crate::arrow_c::stream_capsule;
use crate::fault::IntoPyResult;

/// The rows of an output, of one version.
#[pyclass(frozen, module = "forebay._forebay")]
pub(crate) struct Dataset {
    dataset: VisibleDataset,
}

#[pymethods]
impl Dataset {
    /// Opens the published data at a path.
    #[new]
    fn new(py: Python<'_>, path: &str) -> PyResult<Self> {
        let opened = py.detach(|| VisibleDataset::open(&StorageClient::new()?, path));
        Ok(Dataset {
            dataset: opened.into_py_result(py)?,
        })
    }

    /// The paths of its files.
    #[getter]
    fn files(&self) -> Vec<&str> {
        self.dataset
            .files()
            .iter()
            .map(|file| file.path.as_str())
            .collect()
    }

    /// The names of its columns.
    #[getter]
    fn column_names(&self) -> Vec<&str> {
        self.dataset
            .schema()
            .fields()
            .iter()
            .map(|field| field.name().as_str())
            .collect()
    }

    /// A stream of the rows, which are read on demand.
    #[pyo3(signature = (requested_schema=None))]
    fn __arrow_c_stream__<'py>(
        &self,
        py: Python<'py>,
        requested_schema: Option<Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, PyCapsule>> {
        // The interface permits another schema than the requested one.
        let _ = requested_schema;
        let arrow_error = |fault: forebay::model::Fault| {
            ArrowError::ExternalError(Box::new(std::io::Error::other(fault.to_string())))
        };
        let batches = self
            .dataset
            .batches()
            .map(move |batch| batch.map_err(arrow_error));
        stream_capsule(py, self.dataset.schema().clone(), batches)
    }
}
