//! The command line: one file per command.

mod apply;
mod backfill;
mod cache;
mod check;
mod completions;
mod diff;
mod doctor;
mod explain;
mod feed;
mod fit;
mod generate;
#[cfg(feature = "cuda")]
mod measure_gpu;
mod new;
mod options;
mod predict;
mod run;
mod schema;
mod show;
mod signals;
mod sources;
mod top;
mod worker;
mod workers;

use std::net::TcpListener;
use std::panic::AssertUnwindSafe;
use std::process::ExitCode;

use clap::{CommandFactory, Parser, Subcommand};
use forebay_model::{Domain, Fault, Result, codes};
use forebay_run::Report;

use crate::present;
use crate::present::report::Reporter;

/// Exit code of a command line that cannot be understood (sysexits' EX_USAGE).
const EXIT_USAGE: u8 = 64;

/// Exit code of a run that found nothing new, for schedulers that asked: Airflow skips what comes after.
const EXIT_NOTHING_NEW: u8 = 99;

/// Exit code of a run that did less than its spec says to be on time, for schedulers that asked.
const EXIT_LADDER: u8 = 98;

/// Reports what a run came to. Its exit code tells of nothing new, or of a ladder, where that is asked for.
fn finish(reporter: &Reporter, report: Result<Report>, nothing_new: bool, ladder: bool) -> Result<ExitCode> {
    let signal = report.as_ref().ok().and_then(|report| match report {
        report if report.nothing_new && nothing_new => Some(EXIT_NOTHING_NEW),
        report if report.ladder.is_some() && ladder => Some(EXIT_LADDER),
        _ => None,
    });
    let code = reporter.finish(report)?;
    Ok(signal.map_or(code, ExitCode::from))
}

/// Turns a large history into the batches that a model trains on.
#[derive(Debug, Parser)]
#[command(name = "forebay", version, max_term_width = 100, arg_required_else_help = true)]
pub(crate) struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    New(new::New),
    Check(check::Check),
    Explain(explain::Explain),
    Fit(fit::Fit),
    Apply(apply::Apply),
    Run(run::Run),
    Backfill(backfill::Backfill),
    Feed(feed::Feed),
    Predict(predict::Predict),
    Worker(worker::Worker),
    Top(top::Top),
    Show(show::Show),
    Diff(diff::Diff),
    Cache(cache::Cache),
    Schema(schema::Schema),
    Generate(generate::Generate),
    Doctor(doctor::Doctor),
    #[cfg(feature = "cuda")]
    #[command(hide = true)]
    MeasureGpu(measure_gpu::MeasureGpu),
    Completions(completions::Completions),
}

/// Runs the command line of this process.
pub fn main() -> ExitCode {
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => {
            // Help and version are no mistakes.
            let code = if error.use_stderr() { EXIT_USAGE } else { 0 };
            let _ = error.print();
            return ExitCode::from(code);
        }
    };
    // A bug must not look like a killed process to schedulers; the panic's own words are out already.
    let done = std::panic::catch_unwind(AssertUnwindSafe(|| run(cli.command)));
    let done = done.unwrap_or_else(|panic| Err(Fault::panicked(panic.as_ref())));
    match done {
        Ok(code) => code,
        Err(fault) => {
            present::fault::report(&fault);
            ExitCode::from(exit_code(&fault))
        }
    }
}

fn run(command: Command) -> Result<ExitCode> {
    match command {
        Command::New(command) => command.run(),
        Command::Check(command) => command.run(),
        Command::Explain(command) => command.run(),
        Command::Fit(command) => command.run(),
        Command::Apply(command) => command.run(),
        Command::Run(command) => command.run(),
        Command::Backfill(command) => command.run(),
        Command::Feed(command) => command.run(),
        Command::Predict(command) => command.run(),
        Command::Worker(command) => command.run(),
        Command::Top(command) => command.run(),
        Command::Show(command) => command.run(),
        Command::Diff(command) => command.run(),
        Command::Cache(command) => command.run(),
        Command::Schema(command) => command.run(),
        Command::Generate(command) => command.run(),
        Command::Doctor(command) => command.run(),
        #[cfg(feature = "cuda")]
        Command::MeasureGpu(command) => command.run(),
        Command::Completions(command) => command.run(&mut Cli::command()),
    }
}

/// The exit code of a fault: usage has its own, everything else goes by its code.
pub(crate) fn exit_code(fault: &Fault) -> u8 {
    if fault.code() == codes::USAGE { EXIT_USAGE } else { fault.code().exit_code() }
}

/// A mistake on the command line.
pub(crate) fn usage(message: impl Into<String>) -> Fault {
    debug_assert_eq!(codes::USAGE.domain, Domain::Spec);
    Fault::new(codes::USAGE, message)
}

/// Writes results to standard output; a reader that has gone away is no fault of ours.
pub(crate) fn out(text: &str) -> Result<()> {
    use std::io::Write;
    let mut stdout = anstream::stdout().lock();
    match stdout.write_all(text.as_bytes()).and_then(|()| stdout.flush()) {
        Err(error) if error.kind() != std::io::ErrorKind::BrokenPipe => {
            Err(Fault::new(codes::STORAGE, "standard output cannot be written").cause(error))
        }
        _ => Ok(()),
    }
}

/// Listens at an address of the user.
fn listen(address: &str) -> Result<TcpListener> {
    use std::io::ErrorKind as Kind;
    TcpListener::bind(address).map_err(|error| {
        let (code, hint) = match error.kind() {
            Kind::AddrInUse => (codes::STORAGE, "end the process that listens there, or choose another port"),
            Kind::PermissionDenied => (codes::ACCESS, "choose a port above 1023"),
            Kind::AddrNotAvailable => (codes::ACCESS, "give an address of this machine"),
            _ => (codes::BAD_VALUE, "write host:port, such as 127.0.0.1:7400"),
        };
        Fault::new(code, format!("`{address}` cannot be listened at")).cause(error).hint(hint)
    })
}
