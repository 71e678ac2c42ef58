//! The command line, run by the interpreter: the package brings the program `forebay` without a second copy of it.

use std::ffi::OsString;
use std::process::ExitCode;

use forebay::run::set_worker_program;
use pyo3::prelude::*;

/// Runs a command line, whose first word is the program; returns the exit code.
#[pyfunction]
pub(crate) fn main(py: Python<'_>, arguments: Vec<OsString>) -> u8 {
    let code = py.detach(|| forebay::cli::run_command_line(arguments));
    // The standard library compares exit codes, and does not show their number.
    (0..=u8::MAX)
        .find(|number| ExitCode::from(*number) == code)
        .unwrap_or(u8::MAX)
}

/// Makes worker processes of this machine start from this interpreter, whose program does not know
/// the command.
pub(crate) fn prepare_workers(py: Python<'_>) -> PyResult<()> {
    let executable: Option<OsString> = py.import("sys")?.getattr("executable")?.extract()?;
    if let Some(executable) = executable.filter(|executable| !executable.is_empty()) {
        set_worker_program([executable, "-m".into(), "forebay".into()].into());
    }
    Ok(())
}
