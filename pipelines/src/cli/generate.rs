//! `forebay generate`.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Args, Subcommand};
use forebay_generate::{
    CalendarDay, ClicksOptions, DemandOptions, FilePeriod, GenerateSummary, HistoryExtent,
    OutputCompression, OutputOptions, clicks, demand,
};
use forebay_model::{Fault, Result};

use crate::present::progress::TerminalProgress;
use crate::present::units;

/// Generate data to try things on: deterministic, larger than memory if you like.
#[derive(Debug, Args)]
pub(crate) struct GenerateCommand {
    #[command(subcommand)]
    what: GenerateTarget,
}

#[derive(Debug, Subcommand)]
enum GenerateTarget {
    /// A retailer's history: one row for each item, store and day, one file per period.
    Demand {
        /// Number of rows; whole days back from the last day, and a part of the day before them.
        #[arg(long, required_unless_present = "days")]
        rows: Option<u64>,
        /// Number of days, instead of rows.
        #[arg(long, conflicts_with = "rows")]
        days: Option<u32>,
        /// Number of series: items times stores.
        #[arg(long)]
        series: Option<u64>,
        /// The last day of the history, such as 2016-05-22.
        #[arg(long, value_parser = parse::<CalendarDay>)]
        last_day: Option<CalendarDay>,
        /// Period of one file: day, week, month or year. Do not mix periods in one directory.
        #[arg(long, value_parser = parse::<FilePeriod>)]
        period: Option<FilePeriod>,
        #[command(flatten)]
        common: GenerateArgs,
    },
    /// An advertiser's log: a label, 13 skewed numbers, 26 categories with long tails.
    Clicks {
        /// Number of rows.
        #[arg(long)]
        rows: u64,
        /// Rows per file.
        #[arg(long)]
        rows_per_file: Option<u64>,
        #[command(flatten)]
        common: GenerateArgs,
    },
}

#[derive(Debug, Args)]
struct GenerateArgs {
    /// Seed; the same seed gives the same bytes.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// The directory for the files.
    #[arg(long)]
    out: PathBuf,
    /// Replace files that are there.
    #[arg(long)]
    replace: bool,
    /// Rows per row group at most.
    #[arg(long)]
    row_group_rows: Option<usize>,
    /// Threads [default: all of the machine's]
    #[arg(long)]
    threads: Option<usize>,
    /// The files' compression: snappy, zstd or none.
    #[arg(long, value_parser = parse::<OutputCompression>)]
    compression: Option<OutputCompression>,
}

fn parse<T: std::str::FromStr<Err = Fault>>(text: &str) -> Result<T, String> {
    text.parse()
        .map_err(|fault: Fault| match fault.hint_text() {
            Some(hint) => format!("{}; {hint}", fault.message()),
            None => fault.message().to_owned(),
        })
}

impl GenerateArgs {
    fn output(&self, output: &mut OutputOptions) {
        output.replace = self.replace;
        if let Some(rows) = self.row_group_rows {
            output.row_group_rows = rows;
        }
        if let Some(threads) = self.threads {
            output.threads = threads;
        }
        if let Some(compression) = self.compression {
            output.compression = compression;
        }
    }
}

impl GenerateCommand {
    pub fn run(self) -> Result<ExitCode> {
        let (summary, out): (GenerateSummary, PathBuf) = match self.what {
            GenerateTarget::Demand {
                rows,
                days,
                series,
                last_day,
                period,
                common,
            } => {
                let extent = match (rows, days) {
                    (_, Some(days)) => HistoryExtent::Days(days),
                    (rows, None) => HistoryExtent::Rows(rows.unwrap_or(0)),
                };
                let mut options = DemandOptions::new(extent, common.seed, common.out.clone());
                if let Some(series) = series {
                    options.series = series;
                }
                if let Some(last_day) = last_day {
                    options.last_day = last_day;
                }
                if let Some(period) = period {
                    options.period = period;
                }
                common.output(&mut options.output);
                let total = options.rows()?;
                (
                    with_progress("demand", total, |progress| demand(&options, progress))?,
                    common.out,
                )
            }
            GenerateTarget::Clicks {
                rows,
                rows_per_file,
                common,
            } => {
                let mut options = ClicksOptions::new(rows, common.seed, common.out.clone());
                if let Some(rows) = rows_per_file {
                    options.rows_per_file = rows;
                }
                common.output(&mut options.output);
                (
                    with_progress("clicks", rows, |progress| clicks(&options, progress))?,
                    common.out,
                )
            }
        };
        super::write_stdout(&format!(
            "{}, {} in {}, in {}\n",
            units::rows(summary.rows),
            units::bytes(summary.bytes),
            units::counted(summary.files as u64, "file"),
            out.display()
        ))?;
        Ok(ExitCode::SUCCESS)
    }
}

/// Runs a generator under a line of progress.
fn with_progress(
    label: &str,
    total: u64,
    work: impl FnOnce(&mut dyn FnMut(u64)) -> Result<GenerateSummary>,
) -> Result<GenerateSummary> {
    let progress = TerminalProgress::new(true);
    let pass = progress.pass(1, 1, &format!("{label}, {}", units::rows(total)), None);
    let mut rows_before = 0;
    let summary = work(&mut |rows| {
        pass.advance(rows - rows_before, 0);
        rows_before = rows;
    });
    pass.finish();
    summary
}
