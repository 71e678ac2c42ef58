//! The files of a forecast, read in the order of their rows.

use std::ops::ControlFlow;

use arrow::array::RecordBatch;
use datafusion::prelude::Expr;
use forebay_commit::Manifest;
use forebay_contract::{ScanRequest, literal_path};
use forebay_model::Result;
use forebay_storage::StorageLocation;
use serde_json::{Value, json};

use crate::session::Session;

/// True if files of a format record no types.
pub(crate) fn is_text_format(format: &str) -> bool {
    ["csv", "json"].contains(&format)
}

/// The files of a manifest.
pub(super) struct ForecastFiles<'a> {
    pub session: &'a Session,
    pub out: &'a StorageLocation,
    pub manifest: &'a Manifest,
    pub format: &'a str,
    /// Types of columns by name, for files that do not record them.
    pub types: Option<Value>,
}

impl ForecastFiles<'_> {
    /// Reads columns of all rows that can satisfy the conditions, until `read` has enough. Other rows may be given, too.
    pub fn read(
        &self,
        columns: &[String],
        pruning: &[Expr],
        read: &mut dyn FnMut(&RecordBatch) -> Result<ControlFlow<()>>,
    ) -> Result<()> {
        for file in self.manifest.files() {
            let mut config = json!({ "path": literal_path(&self.out.join(&file.path).shown) });
            if let Some(types) = &self.types {
                config["columns"] = types.clone();
            }
            let source = self.session.connectors.source(self.format, &config)?;
            let dataset = source.discover(&self.session.io, &[])?;
            let request = ScanRequest {
                pruning: pruning.to_vec(),
                ..ScanRequest::of_columns(columns.to_vec(), &dataset.schema)
            };
            for span in &dataset.spans {
                for chunk in source.open(&self.session.io, span, &request)? {
                    self.session.interrupt.check()?;
                    if read(&chunk?.batch)?.is_break() {
                        return Ok(());
                    }
                }
            }
        }
        Ok(())
    }
}
