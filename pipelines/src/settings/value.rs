//! Permitted values of settings, from any origin.

use forebay_model::{Fault, LOCAL_WORKERS_MAX, MEMORY_BYTES_MIN, THREADS_MAX, codes};

use super::SettingOrigin;
use crate::present::units::parse_bytes;

/// Reason why a value is refused.
#[derive(Debug)]
pub(super) struct WrongValue {
    /// Follows the name of the setting: "is 10 bytes, and ...".
    message: String,
    hint: Option<String>,
}

impl WrongValue {
    pub fn new(message: impl Into<String>, hint: impl Into<String>) -> Self {
        WrongValue {
            message: message.into(),
            hint: Some(hint.into()),
        }
    }

    /// The fault of a value from there.
    pub fn fault(self, origin: &SettingOrigin) -> Fault {
        let (code, name, at) = match origin {
            SettingOrigin::Flag(name) => (codes::USAGE, *name, None),
            SettingOrigin::Environment(name) => (codes::BAD_VALUE, *name, None),
            SettingOrigin::File(at) => (codes::BAD_VALUE, at.path.as_str(), Some(at)),
            SettingOrigin::BuiltIn => (codes::BAD_VALUE, "the default", None),
        };
        let fault = Fault::new(code, format!("`{name}` {}", self.message)).at(at);
        match self.hint {
            Some(hint) => fault.hint(hint),
            None => fault,
        }
    }
}

/// Most memory that a setting gives: estimates beyond it would overflow.
const MEMORY_BYTES_MAX: u64 = 1 << 50;

/// Refuses less memory than anything needs, and more than any machine has.
pub(super) fn check_memory(bytes: u64) -> Result<u64, WrongValue> {
    if bytes > MEMORY_BYTES_MAX {
        let message = format!("is {bytes} bytes, and at most 1 PiB can be given");
        return Err(WrongValue::new(message, "write 512MiB or 4GiB"));
    }
    if bytes >= MEMORY_BYTES_MIN {
        return Ok(bytes);
    }
    let message = format!(
        "is {bytes} bytes, and at least {} MiB are needed",
        MEMORY_BYTES_MIN >> 20
    );
    let hint = match bytes {
        ..1000 => format!("a size needs a unit: write {bytes}GiB"),
        _ => "write 512MiB or 4GiB".to_owned(),
    };
    Err(WrongValue {
        message,
        hint: Some(hint),
    })
}

/// Memory of each of `count` workers of this machine, of which the coordinator has as much. Refuses more workers than any
/// machine has use for, and shares that are too small.
pub fn local_worker_memory(total: u64, count: usize) -> Result<u64, Fault> {
    if count > LOCAL_WORKERS_MAX {
        let message = format!("{count} local workers are more than {LOCAL_WORKERS_MAX}");
        return Err(Fault::new(codes::USAGE, message).hint("start fewer workers"));
    }
    let processes = count as u64 + 1;
    let memory = total / processes;
    if memory >= MEMORY_BYTES_MIN {
        return Ok(memory);
    }
    let message = format!(
        "of {} MiB of memory each of {count} local workers and the coordinator gets {} MiB, and \
         needs {} MiB",
        total >> 20,
        memory >> 20,
        MEMORY_BYTES_MIN >> 20
    );
    let needed = MEMORY_BYTES_MIN * processes;
    Err(Fault::new(codes::USAGE, message).hint(format!(
        "write `--memory {}MiB`, or start fewer workers",
        needed >> 20
    )))
}

/// Refuses zero threads, and more than any machine has.
pub(super) fn check_threads(threads: usize) -> Result<usize, WrongValue> {
    if (1..=THREADS_MAX).contains(&threads) {
        return Ok(threads);
    }
    Err(WrongValue {
        message: format!("must be between 1 and {THREADS_MAX}"),
        hint: None,
    })
}

/// Reads memory as a text.
pub(super) fn memory_of(text: &str) -> Result<u64, WrongValue> {
    let bytes = parse_bytes(text)
        .map_err(|_| WrongValue::new(format!("is `{text}`, not a size"), "write 512MiB or 4GiB"));
    check_memory(bytes?)
}

/// Refuses a state directory without a name.
pub(super) fn state_of(text: &str) -> Result<String, WrongValue> {
    if text.trim().is_empty() {
        Err(WrongValue::new(
            "is empty",
            "name a directory, or an s3:// URL",
        ))
    } else {
        Ok(text.to_owned())
    }
}
