//! `forebay schema`.

use std::process::ExitCode;

use clap::Args;
use forebay_model::{Fault, Result};

use crate::{Forebay, spec};

/// Print the JSON Schema of specs, for editors.
#[derive(Debug, Args)]
pub(crate) struct Schema {}

impl Schema {
    pub fn run(self) -> Result<ExitCode> {
        let schema = spec::json_schema(&Forebay::standard().words());
        let text = serde_json::to_string_pretty(&schema).map_err(|e| Fault::internal("the schema").cause(e))?;
        super::out(&format!("{text}\n"))?;
        Ok(ExitCode::SUCCESS)
    }
}
