//! Results of commands on standard output.

use std::io::{IsTerminal, Write};

use forebay_model::{Fault, Result, codes};

use super::{fit, output_columns, printable_lines, printable_screen};

/// Writes results to standard output; a reader that has gone away is no fault of ours. A terminal gets text in which
/// nothing steers it: names and values may come from strangers.
pub(crate) fn write_stdout(text: &str) -> Result<()> {
    if std::io::stdout().is_terminal() {
        let text = printable_screen(text);
        return write_all(&mut anstream::stdout().lock(), text.as_bytes());
    }
    write_all(&mut anstream::stdout().lock(), text.as_bytes())
}

/// Writes text for people, without styles, to standard output, in lines that fit the terminal.
pub(crate) fn write_text(text: &str) -> Result<()> {
    if std::io::stdout().is_terminal() {
        let text = printable_lines(text);
        return write_stdout(&fit(&text, output_columns()));
    }
    write_stdout(&fit(text, output_columns()))
}

/// Writes bytes to standard output as they are.
pub(crate) fn write_stdout_bytes(bytes: &[u8]) -> Result<()> {
    write_all(&mut std::io::stdout().lock(), bytes)
}

fn write_all(stdout: &mut impl Write, bytes: &[u8]) -> Result<()> {
    match stdout.write_all(bytes).and_then(|()| stdout.flush()) {
        Err(error) if error.kind() != std::io::ErrorKind::BrokenPipe => {
            Err(Fault::new(codes::STORAGE, "standard output cannot be written").cause(error))
        }
        _ => Ok(()),
    }
}
