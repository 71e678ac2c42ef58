//! What values settings may have, whatever they come from.

use forebay_model::{Fault, MEMORY_BYTES_MIN, THREADS_MAX, codes};

use super::SettingOrigin;
use crate::present::units::parse_bytes;

/// Why a value is refused.
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

/// Refuses less memory than anything needs.
pub(super) fn check_memory(bytes: u64) -> Result<u64, WrongValue> {
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
    match text.trim().is_empty() {
        true => Err(WrongValue::new(
            "is empty",
            "name a directory, or an s3:// URL",
        )),
        false => Ok(text.to_owned()),
    }
}
