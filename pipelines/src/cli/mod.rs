//! The command line: one file per command.

mod apply;
mod backfill;
mod backtest;
mod cache;
mod certificates;
mod check;
mod completions;
mod diff;
mod doctor;
mod drift;
mod explain;
mod export;
mod export_model;
mod export_serving;
mod feed;
mod fit;
mod fmt;
mod generate;
mod groups;
mod init;
mod launched;
mod log;
mod man;
#[cfg(feature = "cuda")]
mod measure_gpu;
mod new;
mod options;
mod predict;
mod preview;
mod profile;
mod report;
mod run;
mod schema;
mod score;
mod serve;
mod show;
mod signals;
mod sources;
mod test;
mod top;
mod ui;
mod worker;
mod workers;

use std::ffi::OsString;
use std::io::Write as _;
use std::net::TcpListener;
use std::panic::AssertUnwindSafe;
use std::process::ExitCode;

use clap::{CommandFactory, FromArgMatches, Parser, Subcommand};
use forebay_model::{Fault, FaultDomain, Result, codes};
use forebay_run::RunReport;

pub(crate) use self::options::MetricsArgs;
use crate::exit_codes::{EXIT_USAGE, exit_code};
use crate::present::report::RunReporter;
use crate::present::standard_output::{write_stdout, write_stdout_bytes, write_text};
use crate::{allocator, present};

/// Exit code of a run that found nothing new, if the caller requests it: Airflow then skips later
/// tasks.
const EXIT_NOTHING_NEW: u8 = 99;

/// Exit code of a degraded run, if the caller requests it.
const EXIT_DEGRADED: u8 = 98;

/// Reports the result of a run. The exit code signals nothing new, or a degradation, if requested.
fn report_run(
    reporter: &RunReporter,
    report: Result<RunReport>,
    nothing_new: bool,
    ladder: bool,
) -> Result<ExitCode> {
    let signal = report.as_ref().ok().and_then(|report| match report {
        report if report.nothing_new && nothing_new => Some(EXIT_NOTHING_NEW),
        report if report.ladder.is_some() && ladder => Some(EXIT_DEGRADED),
        _ => None,
    });
    let code = reporter.finish(report)?;
    Ok(signal.map_or(code, ExitCode::from))
}

/// Turns a large history into the batches that a model trains on.
#[derive(Debug, Parser)]
#[command(
    name = "forebay",
    version,
    max_term_width = 100,
    arg_required_else_help = true
)]
pub(crate) struct CommandLine {
    #[command(subcommand)]
    command: CliCommand,
}

#[derive(Debug, Subcommand)]
enum CliCommand {
    New(new::NewCommand),
    Init(init::InitCommand),
    Fmt(fmt::FmtCommand),
    Check(check::CheckCommand),
    Test(test::TestCommand),
    Explain(explain::ExplainCommand),
    Fit(fit::FitCommand),
    Apply(apply::ApplyCommand),
    Run(run::RunCommand),
    Backfill(backfill::BackfillCommand),
    Backtest(backtest::BacktestCommand),
    Score(score::ScoreCommand),
    Feed(feed::FeedCommand),
    Predict(predict::PredictCommand),
    Preview(preview::PreviewCommand),
    Serve(Box<serve::ServeCommand>),
    Worker(worker::WorkerCommand),
    Certificates(certificates::CertificatesCommand),
    Top(top::TopCommand),
    Ui(ui::UiCommand),
    Profile(profile::ProfileCommand),
    Drift(drift::DriftCommand),
    Report(report::ReportCommand),
    Show(show::ShowCommand),
    Diff(diff::DiffCommand),
    Export(export::ExportCommand),
    Cache(cache::CacheCommand),
    Schema(schema::SchemaCommand),
    Generate(generate::GenerateCommand),
    Doctor(doctor::DoctorCommand),
    #[cfg(feature = "cuda")]
    #[command(hide = true)]
    MeasureGpu(measure_gpu::MeasureGpuCommand),
    Completions(completions::CompletionsCommand),
    Man(man::ManCommand),
}

/// Stack for a command, in bytes. The limit of the system (`ulimit -s`) may leave the first thread less than a parser
/// of command lines takes.
const COMMAND_STACK_BYTES: usize = 8 << 20;

/// Runs the command line of this process.
pub fn main() -> ExitCode {
    let arguments: Vec<OsString> = std::env::args_os().collect();
    let json = is_json(&arguments);
    let command_thread = std::thread::Builder::new()
        .name("forebay".to_owned())
        .stack_size(COMMAND_STACK_BYTES)
        .spawn(|| run_command_line(arguments));
    let failure = match command_thread {
        Ok(thread) => match thread.join() {
            Ok(code) => return code,
            Err(panic) => Fault::panicked(panic.as_ref()),
        },
        Err(error) => Fault::refused_thread(error),
    };
    report_failure(failure, json)
}

/// Runs a command line; its first word is the program.
pub fn run_command_line(arguments: Vec<OsString>) -> ExitCode {
    let json = is_json(&arguments);
    signals::set_json(json);
    let cli = match parse(arguments) {
        Ok(cli) => cli,
        // Help and version are no mistakes.
        Err(error) if !error.use_stderr() => {
            let _ = error.print();
            return ExitCode::SUCCESS;
        }
        Err(error) => {
            if json {
                print_failure(&usage_of(&error));
            }
            let _ = anstream::stderr()
                .lock()
                .write_all(usage_text(&error).as_bytes());
            return ExitCode::from(EXIT_USAGE);
        }
    };
    // A bug must not look like a killed process to schedulers; the panic's own words are out already.
    let done = std::panic::catch_unwind(AssertUnwindSafe(|| {
        allocator::name_refused_memory()?;
        signals::keep_running_at_file_size_limit()?;
        log::start()?;
        run(cli.command)
    }));
    let done = done.unwrap_or_else(|panic| Err(Fault::panicked(panic.as_ref())));
    match done {
        Ok(code) => code,
        Err(fault) => report_failure(fault, json),
    }
}

/// The command line of the program, with the commands of its help by group.
pub(crate) fn command() -> clap::Command {
    let program = CommandLine::command();
    let template = groups::help_template(&program);
    program.help_template(template)
}

fn parse(arguments: Vec<OsString>) -> std::result::Result<CommandLine, clap::Error> {
    let mut program = command();
    let mut matches = program.try_get_matches_from_mut(arguments)?;
    CommandLine::from_arg_matches_mut(&mut matches).map_err(|error| error.format(&mut program))
}

fn is_json(arguments: &[OsString]) -> bool {
    arguments.iter().any(|argument| argument == "--json")
}

/// Reports the fault that ended a command, and returns the exit code.
fn report_failure(fault: Fault, json: bool) -> ExitCode {
    let code = exit_code(&fault);
    let fault = present::fault::located(fault);
    if json {
        print_failure(&fault);
    }
    present::fault::report(&fault);
    ExitCode::from(code)
}

/// Messages of the parser about numbers, with plain replacements.
const PARSER_WORDS: [(&str, &str); 4] = [
    ("invalid digit found in string", "it is not a whole number"),
    ("number too large to fit in target type", "it is too large"),
    ("cannot parse integer from empty string", "it is empty"),
    (
        "number would be zero for non-zero type",
        "it must be at least 1",
    ),
];

/// A mistake on the command line, in the parser's words, with colours.
fn usage_text(error: &clap::Error) -> String {
    let text = error.render().ansi().to_string();
    let text = PARSER_WORDS
        .iter()
        .fold(text, |text, (parser_words, meant)| {
            text.replace(parser_words, meant)
        });
    // An option that is none is hardly meant as a value.
    let mut blocks: Vec<&str> = text.split("\n\n").collect();
    blocks.retain(|block| !(block.contains("tip:") && block.contains(" to pass '")));
    blocks.join("\n\n")
}

/// A mistake on the command line, in the parser's words.
fn usage_of(error: &clap::Error) -> Fault {
    let text = anstream::adapter::strip_str(&usage_text(error)).to_string();
    let mut lines = text.lines().map(str::trim).filter(|line| !line.is_empty());
    let fault = usage(
        lines
            .next()
            .unwrap_or_default()
            .trim_start_matches("error: "),
    );
    match lines.find_map(|line| line.strip_prefix("tip: ")) {
        Some(tip) => fault.hint(tip),
        None => fault,
    }
}

/// The last line of JSON of a command that failed before it could write any.
fn print_failure(fault: &Fault) {
    let body = present::report::failure(fault, serde_json::json!({}));
    // A write to a reader that has gone away fails; the fault is on standard error, too.
    let _ = present::report::summary_line("failed", &body).and_then(|line| write_stdout(&line));
}

fn run(command: CliCommand) -> Result<ExitCode> {
    match command {
        CliCommand::New(command) => command.run(),
        CliCommand::Init(command) => command.run(),
        CliCommand::Fmt(command) => command.run(),
        CliCommand::Check(command) => command.run(),
        CliCommand::Test(command) => command.run(),
        CliCommand::Explain(command) => command.run(),
        CliCommand::Fit(command) => command.run(),
        CliCommand::Apply(command) => command.run(),
        CliCommand::Run(command) => command.run(),
        CliCommand::Backfill(command) => command.run(),
        CliCommand::Backtest(command) => command.run(),
        CliCommand::Score(command) => command.run(),
        CliCommand::Feed(command) => command.run(),
        CliCommand::Predict(command) => command.run(),
        CliCommand::Preview(command) => command.run(),
        CliCommand::Serve(command) => command.run(),
        CliCommand::Worker(command) => command.run(),
        CliCommand::Certificates(command) => command.run(),
        CliCommand::Top(command) => command.run(),
        CliCommand::Ui(command) => command.run(),
        CliCommand::Profile(command) => command.run(),
        CliCommand::Drift(command) => command.run(),
        CliCommand::Report(command) => command.run(),
        CliCommand::Show(command) => command.run(),
        CliCommand::Diff(command) => command.run(),
        CliCommand::Export(command) => command.run(),
        CliCommand::Cache(command) => command.run(),
        CliCommand::Schema(command) => command.run(),
        CliCommand::Generate(command) => command.run(),
        CliCommand::Doctor(command) => command.run(),
        #[cfg(feature = "cuda")]
        CliCommand::MeasureGpu(command) => command.run(),
        CliCommand::Completions(command) => command.run(&mut CommandLine::command()),
        CliCommand::Man(command) => command.run(&CommandLine::command()),
    }
}

/// A mistake on the command line.
pub(crate) fn usage(message: impl Into<String>) -> Fault {
    debug_assert_eq!(codes::USAGE.domain, FaultDomain::Spec);
    Fault::new(codes::USAGE, message)
}

/// Listens at an address of the user.
pub(crate) fn bind_listener(address: &str) -> Result<TcpListener> {
    use std::io::ErrorKind as Kind;
    TcpListener::bind(address).map_err(|error| {
        let (code, hint) = match error.kind() {
            Kind::AddrInUse => (
                codes::STORAGE,
                "end the process that listens there, or choose another port",
            ),
            Kind::PermissionDenied => (codes::ACCESS, "choose a port above 1023"),
            Kind::AddrNotAvailable => (codes::ACCESS, "give an address of this machine"),
            _ => (codes::BAD_VALUE, "write host:port, such as 127.0.0.1:7400"),
        };
        Fault::new(code, format!("`{address}` cannot be listened at"))
            .cause(error)
            .hint(hint)
    })
}
