//! Runs over terabytes on 16 to 512 workers, simulated: the engine's own scheduler and measured costs, with slow and lost
//! workers. Prints a table, and draws where the time goes.

mod cluster;
mod job;
mod measure;
mod pass;
mod plot;
mod run;

use std::error::Error;
use std::fs;
use std::io::Write;
use std::path::PathBuf;

use clap::Parser;
use forebay_commit::sources_per_merge;

use crate::cluster::{Cluster, Merging};
use crate::run::JobOutcome;

#[derive(Parser)]
#[command(about = "A nightly run and a first run over terabytes on many workers, simulated")]
struct Arguments {
    /// Terabytes of stored history.
    #[arg(long, default_value_t = 5)]
    terabytes: u64,
    /// Numbers of workers.
    #[arg(long, value_delimiter = ',', default_values_t = [16, 64, 256, 512])]
    workers: Vec<usize>,
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Where the drawing goes.
    #[arg(long)]
    plot: Option<PathBuf>,
}

/// A line of the table.
struct Case {
    job: &'static str,
    workers: usize,
    merging: Merging,
    outcome: JobOutcome,
}

fn main() -> Result<(), Box<dyn Error>> {
    let arguments = Arguments::parse();
    let cost = measure::merge_cost()?;
    let terabytes = arguments.terabytes;
    let sample_bytes = cost.state_bytes;
    let mut cases = Vec::new();
    for job in [
        job::first_run(terabytes, sample_bytes),
        job::night(terabytes, sample_bytes),
    ] {
        for merging in [
            Merging::OnCoordinator,
            Merging::InRuns {
                fan_in: sources_per_merge() as u64,
            },
        ] {
            for &workers in &arguments.workers {
                let cluster = Cluster::new(workers, merging, cost.bytes_per_second);
                cases.push(Case {
                    job: job.name,
                    workers,
                    merging,
                    outcome: run::run(&cluster, &job, arguments.seed),
                });
            }
        }
    }
    let mut out = std::io::stdout().lock();
    let bytes = cost.state_bytes;
    let rate = cost.bytes_per_second / 1e6;
    writeln!(
        out,
        "A sample of quantiles has {bytes} bytes; a thread merges {rate:.0} MB a second.\n"
    )?;
    writeln!(
        out,
        "| job | merging | workers | total s | list s | learn s | write s | merge s (workers, coordinator) | coordinator \
         CPU s | of which scheduler | busiest | memory MB | GET/s | PUT/s | lost, tried twice | repeated | idle |"
    )?;
    writeln!(
        out,
        "|---|---|---|---|---|---|---|---|---|---|---|---|---|---|---|---|---|"
    )?;
    for case in &cases {
        writeln!(out, "{}", row(case))?;
    }
    if let Some(path) = arguments.plot {
        fs::write(path, plot::draw(&cases)?)?;
    }
    Ok(())
}

fn row(case: &Case) -> String {
    let one = &case.outcome;
    let pass = |name: &str| {
        one.pass_seconds
            .iter()
            .filter(|(pass, _)| *pass == name)
            .map(|(_, seconds)| seconds)
            .sum::<f64>()
    };
    let merging = match case.merging {
        Merging::OnCoordinator => "coordinator",
        Merging::InRuns { .. } => "in runs",
    };
    format!(
        "| {} | {merging} | {} | {:.0} | {:.1} | {:.0} | {:.0} | {:.1}, {:.1} | {:.0} | {:.2} | {:.1} % | {:.0} | {:.0} | {:.0} | {}, {} | {:.1} % | {:.1} % |",
        case.job,
        case.workers,
        one.seconds,
        one.listing_seconds,
        pass("learn"),
        pass("write"),
        one.worker_merge_seconds,
        one.coordinator_merge_seconds,
        one.coordinator_cpu_seconds,
        one.scheduler_seconds,
        one.event_share * 100.0,
        one.coordinator_memory_bytes / 1e6,
        one.gets_per_second,
        one.puts_per_second,
        one.deaths,
        one.second_attempts,
        one.repeated_share * 100.0,
        one.idle_share * 100.0,
    )
}
