//! Words to the operator of a server.

use std::io::Write;

use crate::present::printable_lines;

/// Prints a line for the operator.
pub(super) fn tell(line: &str) {
    // Standard error may be closed.
    let _ = writeln!(anstream::stderr(), "{}", printable_lines(line));
}
