//! `cargo xtask`: the commands of a person who changes Forebay.

mod bench;
mod bless;
mod check;
mod new;
#[cfg(test)]
mod outside;
mod release;
mod test;
mod tidy;
mod workspace;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

#[derive(Parser)]
#[command(name = "cargo xtask", bin_name = "cargo xtask", about)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Runs the formatter, Clippy, the documentation's build and `tidy`
    Check,
    /// Regenerates every generated file: schema, reference, snapshots, Python types, counts of `tidy`
    Bless,
    /// Checks the rules that neither the compiler nor Clippy knows
    Tidy(tidy::TidyArguments),
    /// Runs tests
    Test(test::TestArguments),
    /// Runs one benchmark; without a name, lists them
    Bench(bench::BenchArguments),
    /// Adds the file of a new transform, source, sink or command, and registers it
    New(new::NewArguments),
    /// Makes a directory with programs, wheel, checksums, bill of materials, changelog and installer
    Release(release::ReleaseArguments),
}

fn main() -> ExitCode {
    let outcome = match Arguments::parse().command {
        Command::Check => check::run(),
        Command::Bless => bless::run(),
        Command::Tidy(arguments) => tidy::run(&arguments),
        Command::Test(arguments) => test::run(&arguments),
        Command::Bench(arguments) => bench::run(&arguments),
        Command::New(arguments) => new::run(&arguments),
        Command::Release(arguments) => release::run(&arguments),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(problem) => {
            anstream::eprintln!("error: {problem}");
            ExitCode::FAILURE
        }
    }
}
