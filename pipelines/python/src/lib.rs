//! The compiled half of the Python package: `forebay/__init__.py` is the other, and what people see.

mod arrow_c;
mod artifact;
mod batch;
mod dlpack;
mod fault;
mod loader;
mod session;
mod workers;

use pyo3::prelude::*;

#[pymodule]
mod _forebay {
    #[pymodule_export]
    use super::arrow_c::Table;
    #[pymodule_export]
    use super::artifact::Artifact;
    #[pymodule_export]
    use super::batch::{Batch, Part};
    #[pymodule_export]
    use super::loader::Loader;
    #[pymodule_export]
    use super::session::{fit, run};
}
