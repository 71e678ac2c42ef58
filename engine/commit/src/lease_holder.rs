//! Identity of a process that holds a lock or a lease. A process on the same machine can find out whether it has ended.

use forebay_storage::AttemptOrigin;
use serde::{Deserialize, Serialize};

/// A process, as others on its machine can find it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct LeaseHolder {
    /// Machine since its last start, and the process namespace on it.
    pub machine: Option<String>,
    pub process: u32,
    /// Start time of the process, in the system's own unit.
    pub began: Option<String>,
    /// The machine, as it calls itself; absent in leases of earlier versions.
    #[serde(default)]
    pub host: Option<String>,
}

impl LeaseHolder {
    /// Identity of this process.
    pub fn here() -> LeaseHolder {
        let process = std::process::id();
        LeaseHolder {
            machine: machine(),
            process,
            began: process_start(process),
            host: Some(AttemptOrigin::current_process().host),
        }
    }

    /// True if the process is known to have ended.
    pub fn has_ended(&self) -> bool {
        self.machine.is_some()
            && self.machine == machine()
            && process_start(self.process) != self.began
    }
}

/// The machine and the namespace of its processes, where the system has them.
fn machine() -> Option<String> {
    let boot = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").ok()?;
    let namespace = std::fs::read_link("/proc/self/ns/pid").ok()?;
    Some(format!("{} {}", boot.trim(), namespace.display()))
}

/// Start time of a process; `None` if there is none of this number.
fn process_start(process: u32) -> Option<String> {
    let stat = std::fs::read_to_string(format!("/proc/{process}/stat")).ok()?;
    // The name before may hold anything; the time is the twentieth field after it.
    Some(
        stat.rsplit_once(')')?
            .1
            .split_whitespace()
            .nth(19)?
            .to_owned(),
    )
}
