//! Exit codes of commands.

use forebay_model::{Fault, FaultCode, codes};

/// Exit code of a command line that cannot be understood (sysexits' EX_USAGE).
pub(crate) const EXIT_USAGE: u8 = 64;

/// The exit code of a fault: usage has its own, everything else goes by its code.
pub(crate) fn exit_code(fault: &Fault) -> u8 {
    code_of(fault.code())
}

/// The exit code of faults with a code.
pub(crate) fn code_of(code: FaultCode) -> u8 {
    if code == codes::USAGE {
        EXIT_USAGE
    } else {
        code.exit_code()
    }
}
