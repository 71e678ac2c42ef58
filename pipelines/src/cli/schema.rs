//! `forebay schema`.

use std::process::ExitCode;

use clap::{Args, ValueEnum};
use forebay_model::{Fault, Result};

use crate::present::reference;
use crate::{Forebay, spec};

/// Print the JSON Schema of specs, for editors, or the reference made from it.
#[derive(Debug, Args)]
pub(crate) struct SchemaCommand {
    /// The form: a JSON Schema, or a reference to read.
    #[arg(long, value_enum, default_value_t = SchemaOutputFormat::Json)]
    format: SchemaOutputFormat,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum SchemaOutputFormat {
    Json,
    Markdown,
}

impl SchemaCommand {
    pub fn run(self) -> Result<ExitCode> {
        let forebay = Forebay::new();
        let catalog = forebay.spec_catalog();
        let schema = spec::json_schema(&catalog);
        let text = match self.format {
            SchemaOutputFormat::Json => {
                let text = serde_json::to_string_pretty(&schema);
                text.map_err(|error| Fault::internal("the schema cannot be written").cause(error))?
                    + "\n"
            }
            SchemaOutputFormat::Markdown => reference::markdown(&schema, &catalog)?,
        };
        super::write_stdout(&text)?;
        Ok(ExitCode::SUCCESS)
    }
}
