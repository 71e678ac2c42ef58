//! Batches in Python's hands.

use std::sync::Arc;

use forebay::feed::{self, BatchFeatures};
use forebay::model::{Fault, codes};
use pyo3::prelude::*;
use pyo3::types::PyDict;

use crate::arrow_c::Table;
use crate::batch_rows::BatchRows;
use crate::dlpack;
use crate::fault::IntoPyResult;

/// A batch: its parts lie in a slot of the loader, which gets it back when the last of them is gone.
#[pyclass(frozen, module = "forebay._forebay")]
pub(crate) struct Batch {
    pub batch: Arc<BatchRows>,
    pub features: Arc<BatchFeatures>,
}

/// A part of a batch, for `torch.from_dlpack`, `numpy.from_dlpack` and others.
#[pyclass(frozen, module = "forebay._forebay")]
pub(crate) struct Part {
    batch: Arc<BatchRows>,
    at: usize,
}

#[pymethods]
impl Batch {
    /// The epoch, from 0.
    #[getter]
    fn epoch(&self) -> u64 {
        self.batch.place().0
    }

    /// The step in the epoch, from 0 where the epoch began or the loader was resumed.
    #[getter]
    fn step(&self) -> u64 {
        self.batch.place().1
    }

    /// Rows that are not padding; they come first.
    #[getter]
    fn rows(&self) -> usize {
        self.batch.place().2
    }

    /// Number of rows and a hash of the rows and their positions in the order, or None if the
    /// loader computes no receipts. Receipts of all ranks, and of any steps, add up.
    #[getter]
    fn receipt(&self) -> Option<(u64, u64)> {
        let receipt = self.batch.receipt();
        (receipt.rows > 0).then_some((receipt.rows, receipt.hash))
    }

    /// The parts by name.
    fn parts<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let parts = PyDict::new(py);
        for (at, part) in self.batch.layout().parts.iter().enumerate() {
            parts.set_item(
                part.role.name(),
                Part {
                    batch: self.batch.clone(),
                    at,
                },
            )?;
        }
        Ok(parts)
    }

    /// The columns by their own names: a copy.
    fn table(&self, py: Python<'_>) -> PyResult<Table> {
        let table = match &*self.batch {
            BatchRows::Host(batch) => Table::of_batch(batch, &self.features),
            BatchRows::Device(_) => Err(Fault::new(
                codes::UNSUPPORTED,
                "a batch on a GPU is no Arrow table",
            )
            .hint("leave out `device`, or take its `parts()`")),
        };
        table.into_py_result(py)
    }

    fn __len__(&self) -> usize {
        self.batch.place().2
    }
}

#[pymethods]
impl Part {
    /// Rows, and values of each row where there may be several.
    #[getter]
    fn shape(&self) -> Vec<i64> {
        self.layout()
            .map_or_else(Vec::new, |part| dlpack::shape(&self.batch, part))
    }

    #[pyo3(signature = (*, stream=None, max_version=None, dl_device=None, copy=None))]
    fn __dlpack__<'py>(
        &self,
        py: Python<'py>,
        stream: Option<i64>,
        max_version: Option<(u32, u32)>,
        dl_device: Option<(i32, i32)>,
        copy: Option<bool>,
    ) -> PyResult<Bound<'py, PyAny>> {
        dlpack::check_device(&self.batch, dl_device)?;
        if copy == Some(true) {
            return Err(pyo3::exceptions::PyBufferError::new_err(
                "a part is handed over as it is: copy it afterwards",
            ));
        }
        let part = self
            .layout()
            .ok_or_else(|| pyo3::exceptions::PyBufferError::new_err("there is no such part"))?;
        dlpack::wait_on(py, &self.batch, stream)?;
        dlpack::capsule(
            py,
            &self.batch,
            part,
            max_version.is_some_and(|(major, _)| major >= 1),
        )
    }

    fn __dlpack_device__(&self) -> (i32, i32) {
        dlpack::device(&self.batch)
    }
}

impl Part {
    fn layout(&self) -> Option<&feed::PartLayout> {
        self.batch.layout().parts.get(self.at)
    }
}
