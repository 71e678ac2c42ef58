//! Faults as Python exceptions.

use forebay::model::{Fault, FaultDomain};
use forebay::present::fault::{SpecText, plain, spec_of};
use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;

/// The exception of a fault: code, message and hint are its attributes, and its text is what the
/// program prints. `spec` is the text of a spec that is in no file.
pub(crate) fn fault_exception(py: Python<'_>, fault: &Fault, spec: Option<SpecText<'_>>) -> PyErr {
    let read = match spec {
        Some(_) => None,
        None => spec_of(fault),
    };
    let text = plain(
        fault,
        spec.or(read.as_ref().map(|(file, text)| SpecText { file, text })),
    );
    let kind = match fault.code().domain {
        FaultDomain::Spec => "SpecFault",
        FaultDomain::Data => "DataFault",
        FaultDomain::Resource => "ResourceFault",
        FaultDomain::External => "ExternalFault",
        FaultDomain::Internal => "Fault",
    };
    let exception = py
        .import("forebay._fault")
        .and_then(|module| module.getattr(kind))
        .and_then(|class| {
            let site = fault.site();
            let rows = site.rows.clone();
            class.call1((
                fault.code().name,
                fault.message(),
                fault.hint_text(),
                text.trim_end(),
                site.column.clone(),
                rows,
            ))
        });
    exception.map_or_else(|_| PyRuntimeError::new_err(text.clone()), PyErr::from_value)
}

/// Turns faults into exceptions.
pub(crate) trait IntoPyResult<T> {
    /// The value, or the exception of the fault.
    fn into_py_result(self, py: Python<'_>) -> PyResult<T>;
}

impl<T> IntoPyResult<T> for Result<T, Fault> {
    fn into_py_result(self, py: Python<'_>) -> PyResult<T> {
        self.map_err(|fault| fault_exception(py, &fault, None))
    }
}
