//! Compiled half of the Python package; `forebay/__init__.py` is the other half, and the public
//! interface.

// Python's and Arrow's C interfaces hand over pointers.
#![allow(unsafe_code)]
#![deny(clippy::undocumented_unsafe_blocks)]

mod arrow_c;
mod artifact;
mod batch;
mod batch_rows;
mod dataset;
mod device;
mod dlpack;
mod fault;
mod loader;
mod model;
mod program;
mod session;
mod spec_source;
mod workers;

use forebay::allocator;
use pyo3::prelude::*;

/// Allocator of Rust's memory; Python's own memory is no part of it.
#[global_allocator]
static ALLOCATOR: allocator::Allocator = allocator::Allocator;

#[pymodule]
mod _forebay {
    #[pymodule_export]
    use super::arrow_c::Table;
    #[pymodule_export]
    use super::artifact::Artifact;
    #[pymodule_export]
    use super::batch::{Batch, Part};
    #[pymodule_export]
    use super::dataset::Dataset;
    #[pymodule_export]
    use super::loader::Loader;
    #[pymodule_export]
    use super::model::Model;
    #[pymodule_export]
    use super::program::main;
    #[pymodule_export]
    use super::session::{execute, keep_table, rows};
    #[pymodule_export]
    use super::workers::LaunchedWorkers;

    #[pymodule_init]
    fn init(module: &pyo3::Bound<'_, pyo3::types::PyModule>) -> pyo3::PyResult<()> {
        use pyo3::types::{PyAnyMethods, PyModuleMethods};
        forebay::allocator::prepare();
        super::program::prepare_workers(module.py())?;
        forebay::connectors::add_python_prefix(
            module.py().import("sys")?.getattr("prefix")?.extract()?,
        );
        module.add("version", env!("CARGO_PKG_VERSION"))
    }
}
