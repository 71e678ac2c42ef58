//! `forebay fmt`.

use std::io::{IsTerminal as _, Read as _};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Args;
use forebay_model::{Fault, Result, SPEC_BYTES_MAX, codes};

use super::usage;
use crate::replace_file::replace_file;
use crate::spec;

/// Exit code of a spec that is not formatted, for `--check` (sysexits' EX_CONFIG).
const EXIT_UNFORMATTED: u8 = 78;

/// Path that stands for standard input.
const STANDARD_INPUT: &str = "-";

/// Format specs: indentation, spaces, quotes and the length of lines. Comments stay, and so do all values: the
/// pipeline has the same ids.
#[derive(Debug, Args)]
pub(crate) struct FmtCommand {
    /// The specs, YAML files that are replaced; - formats standard input to standard output.
    #[arg(required = true, value_name = "SPEC")]
    specs: Vec<PathBuf>,
    /// Write nothing: name the specs that are not formatted, and exit with 78 if there are any.
    #[arg(long)]
    check: bool,
}

impl FmtCommand {
    pub fn run(self) -> Result<ExitCode> {
        let mut faults = Vec::new();
        let mut unformatted = 0;
        for path in &self.specs {
            match self.format(path) {
                Ok(same) => unformatted += usize::from(!same),
                Err(fault) => faults.push(fault),
            }
        }
        match Fault::combine(faults) {
            Some(fault) => Err(fault),
            None if self.check && unformatted > 0 => Ok(ExitCode::from(EXIT_UNFORMATTED)),
            None => Ok(ExitCode::SUCCESS),
        }
    }

    /// Formats a spec; returns true if it was formatted already.
    fn format(&self, path: &Path) -> Result<bool> {
        let is_input = path.as_os_str() == STANDARD_INPUT;
        let (file, text) = if is_input {
            ("standard input".to_owned(), standard_input()?)
        } else {
            (path.display().to_string(), spec::read_text(path)?)
        };
        let formatted = spec::format(&text, &file)?;
        let same = formatted == text;
        match (self.check, is_input) {
            (true, _) if !same => super::write_stdout(&format!("{file} is not formatted\n"))?,
            (true, _) => {}
            (false, true) => super::write_stdout(&formatted)?,
            (false, false) if !same => {
                // The file behind a link, not the link.
                let target = path.canonicalize().unwrap_or_else(|_| path.to_owned());
                replace_file(&target, &formatted, "the spec cannot be written")?;
                super::write_stdout(&format!("formatted {file}\n"))?;
            }
            (false, false) => {}
        }
        Ok(same)
    }
}

fn standard_input() -> Result<String> {
    let input = std::io::stdin();
    if input.is_terminal() {
        return Err(
            usage("standard input is a terminal").hint("give the path of a spec, or pipe one in")
        );
    }
    let failed = |error| Fault::new(codes::STORAGE, "standard input cannot be read").cause(error);
    std::io::read_to_string(input.take(SPEC_BYTES_MAX as u64 + 1)).map_err(failed)
}
