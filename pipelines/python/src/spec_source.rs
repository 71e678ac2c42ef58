//! Specs from Python: a file, or the text of a pipeline.

use std::collections::BTreeMap;
use std::path::Path;

use forebay::Forebay;
use forebay::model::{Fault, Pipeline};
use forebay::present::fault::SpecText;
use pyo3::prelude::*;
use serde::Deserialize;

use crate::fault::fault_exception;

/// A spec and the values of its parameters.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct SpecSource {
    /// The file, or the name of the text in faults.
    pub file: String,
    /// The spec, where it is in no file.
    pub text: Option<String>,
    /// Values of parameters.
    #[serde(default)]
    pub params: BTreeMap<String, String>,
}

impl SpecSource {
    /// Reads the spec.
    pub fn pipeline(&self) -> Result<Pipeline, Fault> {
        let text = match &self.text {
            Some(text) => text.clone(),
            None => forebay::spec::read_text(Path::new(&self.file))?,
        };
        forebay::spec::parse(
            &text,
            &self.file,
            &self.params,
            &Forebay::new().spec_catalog(),
        )
    }

    /// The value, or the exception of a fault, which shows the words of the spec.
    pub fn result_of<T>(&self, py: Python<'_>, result: Result<T, Fault>) -> PyResult<T> {
        let text = self.text.as_deref().map(|text| SpecText {
            file: &self.file,
            text,
        });
        result.map_err(|fault| fault_exception(py, &fault, text))
    }
}
