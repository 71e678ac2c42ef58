//! `forebay cache`.

use std::process::ExitCode;
use std::time::{Duration, SystemTime};

use clap::{Args, Subcommand};
use forebay_model::Result;
use forebay_run::{RetentionPolicy, StateDirectory as Kept};
use forebay_storage::StorageClient;

use crate::present::cache;
use crate::present::report::{RunReporter, Verbosity};
use crate::present::units::{parse_bytes, parse_duration};
use crate::settings::Settings;

/// Look at what runs keep for the runs after them, check it, or clear it out.
#[derive(Debug, Args)]
pub(crate) struct CacheCommand {
    #[command(subcommand)]
    action: CacheAction,
    /// The state directory: a path, or a URL such as s3://bucket/key [default: .forebay]
    #[arg(long, value_name = "DIR", global = true)]
    state: Option<String>,
    /// Print a line of JSON.
    #[arg(long, global = true)]
    json: bool,
}

#[derive(Debug, Subcommand)]
enum CacheAction {
    /// List the size and age of each kind.
    Ls,
    /// Remove what is old or too much, but for what the newest artifacts and the outputs that readers
    /// see were made of; and what killed runs left, after a day or --older-than.
    Gc {
        /// Remove what was written longer ago, such as 30d or 12h.
        #[arg(long, value_name = "AGE", value_parser = parse_duration)]
        older_than: Option<Duration>,
        /// Remove the oldest until the rest fits, such as 50GiB.
        #[arg(long, value_name = "SIZE", value_parser = parse_bytes)]
        max_size: Option<u64>,
        /// Only report what would be removed.
        #[arg(long)]
        dry_run: bool,
    },
    /// Read everything that is kept, and the data that outputs show, and name what is broken.
    Verify,
}

impl CacheCommand {
    pub fn run(self) -> Result<ExitCode> {
        let reporter = RunReporter::new(self.json, Verbosity::Normal);
        let io = StorageClient::new()?;
        let io = io.for_run(io.cancellation().clone(), reporter.watch());
        let directory = io
            .resolve(&Settings::load()?.state(self.state.as_deref()).value)
            .map(|state| Kept::new(io, state).with_tables(forebay_connectors::table_references));
        match self.action {
            CacheAction::Ls => {
                cache::print_usage(&reporter, directory.and_then(|state| state.holdings()))
            }
            CacheAction::Gc {
                older_than,
                max_size,
                dry_run,
            } => {
                let retention = RetentionPolicy {
                    older_than,
                    bytes_max: max_size,
                    now: SystemTime::now(),
                    dry_run,
                };
                cache::print_collected(
                    &reporter,
                    directory.and_then(|state| state.collect(&retention)),
                    max_size,
                )
            }
            CacheAction::Verify => {
                cache::print_verified(&reporter, directory.and_then(|state| state.verify()))
            }
        }
    }
}
