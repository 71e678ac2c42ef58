//! Settings of the environment. A variable that is empty says nothing.

use forebay_model::{Fault, Result};

use super::value::{WrongValue, check_threads, memory_of, state_of};
use super::{Setting, SettingOrigin, SettingsLayer, WorkerSetting};

const MEMORY: &str = "FOREBAY_MEMORY";
const THREADS: &str = "FOREBAY_THREADS";
const STATE: &str = "FOREBAY_STATE";
const WORKERS: &str = "FOREBAY_WORKERS";
const LOCAL_WORKERS: &str = "FOREBAY_LOCAL_WORKERS";

/// Reads the variables of this process.
pub(super) fn read() -> Result<SettingsLayer> {
    let mut faults = Vec::new();
    let memory_bytes = variable(MEMORY, memory_of, &mut faults);
    let threads = variable(THREADS, |text| check_threads(count(text)?), &mut faults);
    let state = variable(STATE, state_of, &mut faults);
    let addresses = |text: &str| {
        let addresses = text
            .split(',')
            .map(str::trim)
            .filter(|address| !address.is_empty());
        Ok(WorkerSetting::Addresses(
            addresses.map(str::to_owned).collect(),
        ))
    };
    let remote = variable(WORKERS, addresses, &mut faults);
    let local = variable(
        LOCAL_WORKERS,
        |text| count(text).map(WorkerSetting::Local),
        &mut faults,
    );
    if let (Some(_), Some(local)) = (&remote, &local) {
        let wrong = WrongValue::new(
            format!("and `{WORKERS}` exclude each other"),
            "unset one of the two",
        );
        faults.push(wrong.fault(&local.origin));
    }
    let layer = SettingsLayer {
        memory_bytes,
        threads,
        state,
        workers: remote.or(local),
    };
    Fault::combine(faults).map_or(Ok(layer), Err)
}

fn variable<T>(
    name: &'static str,
    read: impl Fn(&str) -> Result<T, WrongValue>,
    faults: &mut Vec<Fault>,
) -> Option<Setting<T>> {
    let text = std::env::var_os(name).filter(|text| !text.is_empty())?;
    let origin = SettingOrigin::Environment(name);
    let text = text
        .to_str()
        .ok_or_else(|| WrongValue::new("is not UTF-8", "set it to text in UTF-8"));
    match text.and_then(read) {
        Ok(value) => Some(Setting { value, origin }),
        Err(wrong) => {
            faults.push(wrong.fault(&origin));
            None
        }
    }
}

fn count(text: &str) -> Result<usize, WrongValue> {
    let wrong = |_| {
        WrongValue::new(
            format!("is `{text}`, not a whole number"),
            "write a number such as 4",
        )
    };
    text.trim().parse().map_err(wrong)
}
