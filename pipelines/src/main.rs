//! The `forebay` program.

fn main() -> std::process::ExitCode {
    forebay::cli::main()
}
