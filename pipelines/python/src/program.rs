//! The command line, run by the interpreter: the package brings the program `forebay` without a second copy of it.

use std::ffi::OsString;
use std::process::ExitCode;

use forebay::run::set_worker_program;
use pyo3::prelude::*;

/// Runs a command line, whose first word is the program; gives the exit code. Worker processes of this machine are
/// started by the words of `worker_program`.
#[pyfunction]
pub(crate) fn main(py: Python<'_>, arguments: Vec<OsString>, worker_program: Vec<OsString>) -> u8 {
    set_worker_program(worker_program);
    let code = py.detach(|| forebay::cli::run_command_line(arguments));
    // The standard library compares exit codes, and does not show their number.
    (0..=u8::MAX).find(|number| ExitCode::from(*number) == code).unwrap_or(u8::MAX)
}
