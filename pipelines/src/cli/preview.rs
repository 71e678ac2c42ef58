//! `forebay preview`.

use std::io::IsTerminal;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Args, ValueEnum};
use forebay_model::{Pipeline, Result};
use forebay_run::PreviewOptions;

use super::options::{RunArgs, SpecArgs};
use super::usage;
use crate::present::{printable_lines, rows, units};
use crate::replace_file::replace_file;

/// Transforms whose columns have no values at the begin of a series.
const WINDOW_TRANSFORMS: [&str; 10] = [
    "diff",
    "ewm",
    "expanding",
    "forecast_feature",
    "lag",
    "pct_change",
    "pooled",
    "rolling",
    "seasonal_index",
    "seasonal_rolling",
];

/// Show rows of a step, computed from the first rows of the sources; writes nothing that lasts. A
/// table begins where windows have values, and shows numbers to six digits.
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
    /// Rows of each source to compute from, its first ones; statistics are learned from these, too. Sources that joins
    /// alone look rows up in are read whole.
    #[arg(long, value_name = "N", default_value_t = 100_000)]
    sample_rows: u64,
    /// Take the steps and their statistics from the newest artifact of the pipeline, rather than learn from the sample.
    #[arg(long)]
    artifact: bool,
    /// Begin at the first row, also where windows have no values yet.
    #[arg(long)]
    first: bool,
    /// Show each row as lines of a name and a value, in full.
    #[arg(long)]
    expand: bool,
    /// The form of the rows.
    #[arg(long, value_enum, default_value_t = RowFormat::Table)]
    format: RowFormat,
    /// Write to this file instead of standard output.
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
    #[command(flatten)]
    options: RunArgs,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum RowFormat {
    Table,
    Csv,
    /// One object per line.
    Json,
    /// Arrow's IPC format: a stream on standard output, a file with `--out`.
    Arrow,
}

impl PreviewCommand {
    pub fn run(self) -> Result<ExitCode> {
        let format = if self.options.json {
            RowFormat::Json
        } else {
            self.format
        };
        if format == RowFormat::Arrow && self.out.is_none() && std::io::stdout().is_terminal() {
            return Err(usage("rows as Arrow are no text").hint("name a file: `--out rows.arrow`"));
        }
        if format != RowFormat::Table && self.expand {
            return Err(usage(
                "--expand shows rows as text: leave --format and --json out",
            ));
        }
        let pipeline = self.spec.pipeline()?;
        let begins_anywhere = self.first || self.condition.is_some();
        let fullest = format == RowFormat::Table && !begins_anywhere && has_windows(&pipeline);
        let options = PreviewOptions {
            step: self.step,
            rows: self.rows,
            condition: self.condition,
            sample_rows: self.sample_rows.max(1),
            newest_artifact: self.artifact,
            fullest,
        };
        let preview = self
            .options
            .silent_session()?
            .preview(&pipeline, &options)?;
        let mut bytes = match format {
            RowFormat::Table if self.expand => rows::expanded(&preview.batches)?.into_bytes(),
            RowFormat::Table => rows::short_table(&preview.batches)?.into_bytes(),
            RowFormat::Csv => rows::csv(&preview.batches)?.into_bytes(),
            RowFormat::Json => rows::json(&preview.batches)?.into_bytes(),
            RowFormat::Arrow if self.out.is_some() => rows::arrow_file(&preview.batches)?,
            RowFormat::Arrow => rows::arrow_stream(&preview.batches)?,
        };
        if preview.skipped > 0 {
            bytes.extend(begin_text(preview.skipped).into_bytes());
        }
        match &self.out {
            Some(path) => replace_file(path, &bytes, "the rows cannot be written")?,
            // Rows of Arrow do not come here: a terminal is refused above.
            None if std::io::stdout().is_terminal() => {
                super::write_stdout(&printable_lines(&String::from_utf8_lossy(&bytes)))?;
            }
            None => super::write_stdout_bytes(&bytes)?,
        }
        Ok(ExitCode::SUCCESS)
    }
}

/// True if a step of the pipeline has windows.
fn has_windows(pipeline: &Pipeline) -> bool {
    let mut steps = pipeline.nodes.iter().flat_map(|node| &node.steps);
    steps.any(|step| WINDOW_TRANSFORMS.contains(&step.kind.as_str()))
}

fn begin_text(skipped: u64) -> String {
    let row = units::grouped(skipped + 1);
    format!("from row {row} on, where windows have values; --first shows the first rows\n")
}
