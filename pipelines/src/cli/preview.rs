//! `forebay preview`.

use std::process::ExitCode;

use clap::{Args, ValueEnum};
use forebay_model::Result;
use forebay_run::PreviewOptions;

use super::options::{RunArgs, SpecArgs};
use crate::present::rows;

/// Show rows of a step, computed from the first rows of the sources; writes nothing that lasts.
#[derive(Debug, Args)]
pub(crate) struct PreviewCommand {
    #[command(flatten)]
    spec: SpecArgs,
    /// The step or source [default: that of the first sink]
    step: Option<String>,
    /// Rows to show.
    #[arg(long, value_name = "N", default_value_t = 20)]
    rows: usize,
    /// Show only rows that meet this SQL condition, such as "qty > 5".
    #[arg(long = "where", value_name = "SQL")]
    condition: Option<String>,
    /// Rows of each source to compute from, its first ones; statistics are learned from these, too.
    #[arg(long, value_name = "N", default_value_t = 100_000)]
    sample_rows: u64,
    /// The form of the rows.
    #[arg(long, value_enum, default_value_t = RowFormat::Table)]
    format: RowFormat,
    #[command(flatten)]
    options: RunArgs,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum RowFormat {
    Table,
    Csv,
    /// One object per line.
    Json,
}

impl PreviewCommand {
    pub fn run(self) -> Result<ExitCode> {
        let pipeline = self.spec.pipeline()?;
        let (rows, sample_rows) = (self.rows.max(1), self.sample_rows.max(1));
        let options = PreviewOptions { step: self.step, rows, condition: self.condition, sample_rows };
        let preview = self.options.silent_session()?.preview(&pipeline, &options)?;
        let format = if self.options.json { RowFormat::Json } else { self.format };
        super::write_stdout(&match format {
            RowFormat::Table => rows::table(&preview.batches)?,
            RowFormat::Csv => rows::csv(&preview.batches)?,
            RowFormat::Json => rows::json(&preview.batches)?,
        })?;
        Ok(ExitCode::SUCCESS)
    }
}
